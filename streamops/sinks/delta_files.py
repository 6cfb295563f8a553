"""The data files of a Delta table: tasks write and read them, and the driver commits their names."""

from __future__ import annotations

import datetime as dt
import hashlib
import importlib
import json
import os
import time
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, NamedTuple
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from streamops.kernel.columns import key_codes, null_table
from streamops.kernel.groups import Ids
from streamops.sinks import leftovers
from streamops.sinks.copy_on_write import Files, Replaced
from streamops.sinks.core import delta_log
from streamops.sinks.core.data_files import find_candidates, has_range
from streamops.sinks.core.delta_commit import normalize
from streamops.sinks.core.ledger import Entry
from streamops.sinks.lake import state_of
from streamops.sinks.sink import refused, type_differs
from streamops.sinks.tasks import Part

_BATCH_ROWS = 1 << 17
_COLUMNS_WITH_STATISTICS = 32
_LONGEST_TEXT = 32
_LAST_CHARACTER = "\U0010ffff"
_LAST_MILLISECOND = dt.datetime.fromisoformat("9999-12-31T23:59:59.999")
_ANNOUNCED, _STAGED = "announced", "staged"


class Column(NamedTuple):
    """What a Delta table declares about a column."""

    name: str
    nullable: bool
    metadata: Mapping[str, Any]


@dataclass(frozen=True, repr=False)
class DeltaFiles(Files):
    """The data files of a table.

    Parameters
    ----------
    path : str
        The table.
    options : mapping of str to str, optional
        Options of the object store.
    folder : str
        The folder in the table to which new files are written.
    schema : Schema
        The columns of the table.
    partitions : tuple of str
        Columns by which it is partitioned.
    columns : tuple of Column
        What the table declares.
    wanted : Schema
        The rows in types of the table.
    key : tuple of str
        Columns whose floats are normalized.
    """

    path: str
    options: Mapping[str, str] | None
    folder: str
    schema: pa.Schema
    partitions: tuple[str, ...]
    columns: tuple[Column, ...]
    wanted: pa.Schema
    key: tuple[str, ...] = ()
    declared: pa.Schema = field(init=False)

    def __post_init__(self) -> None:
        """Declare all columns nullable, except in files."""
        object.__setattr__(self, "declared", self.schema)
        parts = [part.with_nullable(True) for part in self.schema]
        object.__setattr__(self, "schema", pa.schema(parts))

    def filesystem(self) -> pafs.FileSystem:
        """The files of the table, which is the root."""
        return open_files(self.path, self.options)

    @property
    def stored(self) -> list[str]:
        """The columns that are stored in files."""
        return [name for name in self.schema.names if name not in self.partitions]

    def convert(self, rows: pa.Table) -> pa.Table:
        """The rows with all columns of the table, in its types. Refuses what the table does not take."""
        rows = convert(rows, self.wanted, self.columns, self.partitions, self.key)
        missing = [part for part in self.schema if part.name not in rows.column_names]
        nulls = null_table(pa.schema(missing), len(rows)).columns
        for part, values in zip(missing, nulls, strict=True):
            rows = rows.append_column(part, values)
        return rows.select(self.schema.names).cast(self.schema)

    def read(self, file: Part, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Read columns of a file in its order, in pieces and in the types of the table."""
        schema = pa.schema([self.schema.field(name) for name in columns])
        with (
            self.filesystem().open_input_file(file["path"]) as stream,
            pq.ParquetFile(stream, coerce_int96_timestamp_unit="us") as parquet,
        ):
            present = [n for n in parquet.schema_arrow.names if n in columns]
            for batch in parquet.iter_batches(_BATCH_ROWS, columns=present):
                yield pa.table([self._column(batch, file, part) for part in schema], schema=schema)

    def _column(self, batch: pa.RecordBatch, file: Part, part: pa.Field) -> pa.Array:
        if part.name in self.partitions:
            value = pa.scalar(file["partition"][part.name], pa.string()).cast(part.type)
            return pa.repeat(value, batch.num_rows)
        if part.name in batch.schema.names:
            return batch.column(part.name).cast(part.type)
        return pa.nulls(batch.num_rows, part.type)  # the column was added later

    def partition_of(self, rows: pa.Table) -> Ids:
        """A number of the partition of each row."""
        return key_codes([rows.column(name) for name in self.partitions], len(rows))

    def write(self, rows: pa.Table) -> Part:
        """Write rows of one partition to a new file, in their order."""
        partition = {name: partition_text(rows.column(name)[0]) for name in self.partitions}
        return self._write(iter([rows]), partition)

    def rewrite(self, pieces: Iterator[pa.Table], like: Part) -> list[Part]:
        """Write the `stored` columns of rows of a file, or of several in its partition, to new files."""
        first = next((piece for piece in pieces if len(piece)), None)
        return [] if first is None else [self._write(chain([first], pieces), like["partition"])]

    def _write(self, pieces: Iterator[pa.Table], partition: Mapping[str, str | None]) -> Part:
        name = f"{self.folder}/{uuid.uuid4().hex}.parquet"
        schema = pa.schema([self.declared.field(n) for n in self.stored])
        statistics = Statistics(schema, self.key)
        filesystem = self.filesystem()
        leftovers.make_folder(filesystem, self.folder)
        with (
            filesystem.open_output_stream(name) as stream,
            pq.ParquetWriter(stream, schema, store_schema=False) as writer,
        ):
            for piece in pieces:
                piece = piece.select(schema.names).cast(schema)
                writer.write_table(piece)
                statistics.add(piece)
            writer.close()
            size = stream.tell()
        text = statistics.to_json()
        return {
            "path": name,
            "rows": statistics.rows,
            "size": size,
            "partition": dict(partition),
            "statistics": text,
        }


def open_files(path: str, options: Mapping[str, str] | None) -> pafs.FileSystem:
    """The files of a table."""
    if "://" not in path:
        return pafs.SubTreeFileSystem(os.path.abspath(path), pafs.LocalFileSystem())
    handler = importlib.import_module("deltalake.fs").DeltaStorageHandler(
        path, None if options is None else dict(options)
    )
    return pafs.PyFileSystem(handler)


def convert(
    rows: pa.Table,
    schema: pa.Schema,
    columns: Sequence[Any],
    partitions: Sequence[str],
    key: Sequence[str],
) -> pa.Table:
    """The rows in the types of a table, which has these fields. Refuses values that it does not take."""
    rows = rows.select(schema.names).cast(schema)
    for part in columns:  # which deltalake does not refuse if columns are added
        if not part.nullable and part.name in schema.names and rows.column(part.name).null_count:
            reason = ValueError(f"null in column {part.name!r}, which is NOT NULL")
            raise refused("the Delta table", reason)
    unfit = delta_log.find_unfit(rows, columns, partitions)
    if unfit is not None:
        name, got, expected = unfit
        raise type_differs(name, got, expected, expected)
    return normalize(rows, key)


def partition_text(value: pa.Scalar) -> str | None:
    """The value of a partition as Delta's text.

    Examples
    --------
    >>> partition_text(pa.scalar(True)), partition_text(pa.scalar(None, pa.string()))
    ('true', None)
    >>> partition_text(pa.scalar(0, pa.timestamp("us")))
    '1970-01-01 00:00:00.000000'
    """
    found = value.as_py()
    if found is None:
        return None
    if isinstance(found, bool):
        return str(found).lower()
    if isinstance(found, dt.datetime):
        return found.isoformat(sep=" ", timespec="microseconds")
    return str(found)


class Statistics:
    """The statistics of the rows of a file, which may be written in pieces."""

    def __init__(self, schema: pa.Schema, key: Sequence[str]) -> None:
        indexed = {*schema.names[:_COLUMNS_WITH_STATISTICS], *key}
        self._fields = [part for part in schema if part.name in indexed]
        self.rows = 0
        # Delta counts the nulls of a struct by its fields. They are of no use here.
        counted = (part.name for part in self._fields if not pa.types.is_struct(part.type))
        self._nulls = dict.fromkeys(counted, 0)
        self._low: dict[str, Any] = {}
        self._high: dict[str, Any] = {}

    def add(self, rows: pa.Table) -> None:
        """Count rows."""
        self.rows += len(rows)
        for part in self._fields:
            values = rows.column(part.name)
            if part.name in self._nulls:
                self._nulls[part.name] += values.null_count
            if has_range(part.type) and values.null_count < len(values):
                ends = pc.min_max(values)
                try:
                    low, high = ends["min"].as_py(), ends["max"].as_py()
                except OverflowError:  # instants that Python's datetime does not have
                    self._fields.remove(part)
                    continue
                self._low[part.name] = min(self._low.get(part.name, low), low)
                self._high[part.name] = max(self._high.get(part.name, high), high)

    def to_json(self) -> str:
        """The statistics as Delta's text. What has no exact text there is omitted.

        Examples
        --------
        >>> statistics = Statistics(pa.schema({"a": pa.int64(), "s": pa.struct({"x": pa.int64()})}), ())
        >>> statistics.add(pa.table({"a": [1, None], "s": [{"x": 1}, None]}))
        >>> statistics.to_json()
        '{"numRecords": 2, "minValues": {"a": 1}, "maxValues": {"a": 1}, "nullCount": {"a": 1}}'
        """
        low = {name: text_of(value, is_highest=False) for name, value in self._low.items()}
        high = {name: text_of(value, is_highest=True) for name, value in self._high.items()}
        known = {
            "numRecords": self.rows,
            "minValues": {name: value for name, value in low.items() if value is not None},
            "maxValues": {name: value for name, value in high.items() if value is not None},
            "nullCount": self._nulls,
        }
        return json.dumps(known)


def text_of(value: Any, *, is_highest: bool) -> Any:
    """The lowest or highest value of a column as JSON of Delta; None if there is none.

    Text is cut to 32 characters and timestamps to milliseconds, as in Spark, and so that no value is
    outside: readers differ in what they add to a highest timestamp.

    Examples
    --------
    >>> text_of("a" * 40, is_highest=False) == "a" * 32
    True
    >>> text_of(dt.datetime(2024, 1, 1, microsecond=1), is_highest=True)
    '2024-01-01T00:00:00.001'
    """
    if isinstance(value, str):
        if len(value) <= _LONGEST_TEXT:
            return value
        start = value[:_LONGEST_TEXT]
        if not is_highest:
            return start
        # A text with this start is above it only if it goes on with the last character of Unicode, too.
        return None if value[_LONGEST_TEXT] == _LAST_CHARACTER else start + _LAST_CHARACTER
    if isinstance(value, dt.datetime):
        rest = value.microsecond % 1000
        if is_highest and rest:
            if value.replace(tzinfo=None) > _LAST_MILLISECOND:
                return None
            value += dt.timedelta(microseconds=1000 - rest)
        elif rest:
            value -= dt.timedelta(microseconds=rest)
        text = value.replace(tzinfo=None).isoformat(timespec="milliseconds")
        return text if value.tzinfo is None else f"{text}Z"
    if isinstance(value, dt.date):
        return value.isoformat()
    return value if isinstance(value, int) else float(value)


def stored_files(table: Any, wanted: pa.Table | None = None) -> list[Part]:
    """The data files of a version of a table: all, or those that can have rows in a range."""
    actions = pa.table(table.get_add_actions()).combine_chunks()
    count = len(actions)

    def struct(name: str) -> pa.StructArray:
        if name not in actions.column_names:
            return pa.array([{}] * count, pa.struct([]))
        return (
            pa.concat_arrays(actions.column(name).chunks) if count else pa.array([], pa.struct([]))
        )

    values = struct("partition")
    names = [part.name for part in values.type]
    texts = [
        {name: partition_text(value) for name, value in zip(names, row, strict=True)}
        for row in (zip(*(values.field(n) for n in names), strict=True) if names else [()] * count)
    ]
    sizes = actions.column("size_bytes").to_pylist()
    files = [
        {
            "path": unquote(path),
            "size": size,
            "rows": size // 8 if rows is None else rows,  # an estimate
            "partition": partition,
        }
        for path, size, rows, partition in zip(
            actions.column("path").to_pylist(),
            sizes,
            actions.column("num_records").to_pylist(),
            texts,
            strict=True,
        )
    ]
    if wanted is None:
        return files
    found = find_candidates(wanted, struct("min"), struct("max"), values)
    return [files[int(number)] for number in np.flatnonzero(found)]


def is_written_by_tasks(table: Any) -> bool:
    """Whether files that tasks write are all that a commit to a table needs.

    Constraints and generated columns are computed by deltalake, which writes the change data feed, too.
    """
    settings = table.metadata().configuration
    if delta_log.is_on(settings, "delta.enableChangeDataFeed") or any(
        name.startswith("delta.constraints.") for name in settings
    ):
        return False
    parts = table.schema().fields
    computed = ("delta.generationExpression", "delta.invariants", "delta.identity.start")
    if any(name in (part.metadata or {}) for part in parts for name in computed):
        return False
    # Files elsewhere are those of a clone.
    paths = pa.table(table.get_add_actions()).column("path")
    return not pc.any(pc.match_substring_regex(paths, "^/|://")).as_py()


def state(table: Any, entry: Entry | None) -> str:
    """What files of a table depend on."""
    metadata = table.metadata()
    settings = sorted(metadata.configuration.items())
    columns = table.schema().to_json()
    return state_of([metadata.id, columns, metadata.partition_columns, settings], entry)


def open_table(
    path: str,
    options: Mapping[str, str] | None,
    table: Any,
    wanted: pa.Schema,
    folder: str,
    key: Sequence[str],
) -> DeltaFiles:
    """The data files of a version of a table, for rows with the wanted columns."""
    fields = table.schema().fields
    columns = (Column(part.name, part.nullable, dict(part.metadata or {})) for part in fields)
    partitions = tuple(table.metadata().partition_columns)
    schema = pa.schema(table.schema().to_arrow())
    return DeltaFiles(path, options, folder, schema, partitions, tuple(columns), wanted, tuple(key))


def add_columns(table: Any, wanted: pa.Schema) -> None:
    """Add the columns that the table lacks."""
    known = pa.schema(table.schema().to_arrow()).names
    new = pa.schema([part for part in wanted if part.name not in known])
    table.alter.add_columns(importlib.import_module("deltalake").Schema.from_arrow(new).fields)


def respell(table: Any) -> bool:
    """Spell properties of the table so that deltalake reads them as Spark does; return whether some were not."""
    spelled = delta_log.respelled(table.metadata().configuration)
    if spelled:
        hooks = importlib.import_module("deltalake").PostCommitHookProperties(False, False)
        table.alter.set_table_properties(spelled, post_commithook_properties=hooks)
    return bool(spelled)


def commit_files(table: Any, replaced: Replaced, properties: Any) -> None:
    """Commit files of a micro-batch as the next version of a table, with the entry of the ledger."""
    transaction = importlib.import_module("deltalake.transaction")
    now = int(time.time() * 1000)
    added = [
        transaction.AddAction(
            file["path"], file["size"], file["partition"], now, True, file["statistics"]
        )
        for file in replaced.added
    ]
    removed = [
        transaction.RemoveAction(file["path"], True, now, file["size"], file["partition"])
        for file in replaced.removed
    ]
    table.create_write_transaction(
        [*added, *removed],
        "append",
        table.schema(),
        partition_by=table.metadata().partition_columns,
        commit_properties=properties,
    )
    table.update_incremental()


def _of_sink(table: Any, sink: str) -> str:
    """The folder of a sink in a table. Readers ignore it, since its name begins with an underscore.

    Another table that was created at this place, perhaps from these files, has other folders.
    """
    text = f"{table.metadata().id} {sink}"
    return f"_streamops/{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def staging(table: Any, sink: str, folder: str) -> str:
    """The folder in which tasks stage what must be looked up."""
    return f"{_of_sink(table, sink)}/{_STAGED}/{folder}"


def announce(filesystem: pafs.FileSystem, table: Any, sink: str) -> str:
    """Store that tasks write files to a new folder of the table, and return its name."""
    folder = f"part-{uuid.uuid4().hex[:16]}"
    where = f"{_of_sink(table, sink)}/{_ANNOUNCED}"
    leftovers.announce(filesystem, where, folder, table.version())
    return folder


def clean_up(filesystem: pafs.FileSystem, table: Any, sink: str, actions: Any) -> None:
    """Remove what was written to announced folders and is in no commit up to this version."""
    version = table.version()

    def committed_since(number: int) -> set[str] | None:
        commits = [actions(later) for later in range(number + 1, version + 1)]
        # If the log does not tell any more what was committed, VACUUM removes it.
        if None in commits or not any(delta_log.commit_entry(c, sink) for c in commits):
            return None
        adds = (action["add"] for commit in commits for action in commit if "add" in action)
        return {unquote(add["path"]).rpartition("/")[2] for add in adds}

    def remove(folder: str, committed: Collection[str]) -> None:
        leftovers.remove(filesystem, staging(table, sink, folder))
        leftovers.remove(filesystem, folder, committed)

    where = f"{_of_sink(table, sink)}/{_ANNOUNCED}"
    leftovers.clean_up(filesystem, where, committed_since, remove)
