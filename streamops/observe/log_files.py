"""The micro-batches that a checkpoint planned, and the rows of its file sources."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow import fs

from streamops.kernel.calls import explain_call
from streamops.kernel.columns import concat
from streamops.kernel.time import Duration
from streamops.observe import conditions
from streamops.state.checkpoint import Checkpoint, local_path

Prepare = Callable[[pa.Table], pa.Table]

_NO_OFFSET = "-"
_INSTANT = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """A micro-batch that a checkpoint planned.

    Parameters
    ----------
    number : int
        Its number.
    watermark : int
        Spark's watermark, in milliseconds.
    starts, ends : tuple of str or None
        The offsets of each source as JSON, before and after it.
    is_committed : bool
        Whether it is committed.
    """

    number: int
    watermark: int
    starts: tuple[str | None, ...]
    ends: tuple[str | None, ...]
    is_committed: bool

    @property
    def has_data(self) -> bool:
        """Whether a source had new rows."""
        return self.starts != self.ends


def read_plan(checkpoint: Checkpoint) -> list[MicroBatch]:
    """The micro-batches whose plan the checkpoint still has, oldest first."""
    committed, plan = set(checkpoint.commits), list[MicroBatch]()
    before: tuple[str | None, ...] | None = None
    for number in checkpoint.offsets:
        if not (checkpoint.path / "offsets" / str(number)).exists():
            continue  # the running query has removed it since
        _, (metadata, *lines) = checkpoint.read_log("offsets", number)
        ends = tuple(None if line == _NO_OFFSET else line for line in lines)
        watermark = int(json.loads(metadata).get("batchWatermarkMs", 0))
        starts = before or (None,) * len(ends)
        plan.append(MicroBatch(number, watermark, starts, ends, number in committed))
        before = ends
    return plan


@dataclass(frozen=True)
class FileSource:
    """The files that a file source of a query read. See :func:`files`."""

    prepare: Prepare | None
    columns: Mapping[str, str] | None
    schema: pa.Schema | None
    watermark: Duration | None
    number: int | None

    def read(
        self, checkpoint: Checkpoint, number: int, plan: list[MicroBatch], where: Mapping[str, Any]
    ) -> tuple[list[pa.Table], list[str]]:
        """The prepared rows of each micro-batch, and the files that do not exist any more."""
        number = number if self.number is None else self.number
        entries = list(_entries(checkpoint.path / "sources" / str(number)))
        # Without a prepare, the files have the columns of the operator.
        names = self.columns
        if names is None:
            names = {} if self.prepare is not None else {name: name for name in where}
        expression: ds.Expression | None = None
        for name, value in where.items():
            if name in names:
                column = ds.field(names[name])
                term = column.is_null() if value is None else column == pa.scalar(value)
                expression = term if expression is None else expression & term
        tables, removed = list[list[pa.Table]](), list[str]()
        empty = None if self.schema is None else self.schema.empty_table()
        for batch in plan:
            first, last = _log_offset(batch.starts[number]), _log_offset(batch.ends[number])
            found = list[pa.Table]()
            for path in (path for at, path in entries if first < at <= last):
                try:
                    rows = _read(path, expression, self.schema)
                except FileNotFoundError:
                    removed.append(path)
                    continue
                empty = rows.schema.empty_table() if empty is None else empty
                found.append(rows)
            tables.append(found)
        if empty is None:
            raise conditions.NO_SOURCE_FILES.error(
                got=f"{len(removed)} files, none of which exists"
            )
        prepare = self.prepare or (lambda rows: rows)
        return [prepare(concat([empty, *found])) for found in tables], removed


@explain_call("observe.files")
def files(
    *,
    prepare: Prepare | None = None,
    columns: Mapping[str, str] | None = None,
    schema: pa.Schema | None = None,
    watermark: Duration | None = None,
    number: int | None = None,
) -> FileSource:
    """The Parquet files that a file source of a query read, as its checkpoint lists them.

    Parameters
    ----------
    prepare : callable, optional
        From a Table with rows of the files to the input of the operator: what the query does between
        the source and the operator. By default, the files have the columns of the operator.
    columns : mapping of str to str, optional
        Names of key columns in the files, by their names in the operator. Parquet's reader then skips
        rows of other keys. By default, with `prepare`, all rows are read.
    schema : Schema, optional
        The columns of the files. By default, those of the first file.
    watermark : duration, optional
        The delay of ``withWatermark`` on the frame before the operator, if it has one.
    number : int, optional
        Number of the source in the query. By default, inputs of the operator are sources 0 and 1.

    Returns
    -------
    FileSource

    Raises
    ------
    SpecError
        ``PARAMETER_TYPE``.

    Examples
    --------
    >>> observe.files(prepare=lambda rows: rows.rename_columns(["page", "ts"]), columns={"page": "url"})

    See Also
    --------
    explain : replay one key of a query.
    """
    return FileSource(prepare, columns, schema, watermark, number)


def _log_offset(offset: str | None) -> int:
    return -1 if offset is None else int(json.loads(offset)["logOffset"])


def _entries(log: Path) -> Iterator[tuple[int, str]]:
    """Each file of a file source: the number of its entry in the log, and its path."""
    names = [path.name for path in log.iterdir()] if log.is_dir() else []
    compacted = max((int(n.split(".")[0]) for n in names if n.endswith(".compact")), default=-1)
    later = sorted(int(name) for name in names if name.isdecimal() and int(name) > compacted)
    chosen = [f"{compacted}.compact"] if compacted >= 0 else []
    for name in (*chosen, *map(str, later)):
        for line in (log / name).read_text().splitlines()[1:]:
            entry = json.loads(line)
            yield int(entry["batchId"]), entry["path"]


def _read(path: str, where: ds.Expression | None, schema: pa.Schema | None) -> pa.Table:
    if "://" in path and not path.startswith("file:"):
        system, name = fs.FileSystem.from_uri(path)
    else:
        system, name = fs.LocalFileSystem(), str(local_path(path))
    # Spark writes INT96 by default, which is an instant in UTC.
    options = ds.ParquetReadOptions(coerce_int96_timestamp_unit="us")
    form = ds.ParquetFileFormat(read_options=options)
    table = ds.dataset(name, schema=schema, filesystem=system, format=form).to_table(filter=where)
    with system.open_input_file(name) as file:
        physical = pq.ParquetFile(file).schema
    int96 = {
        of.name for of in map(physical.column, range(len(physical))) if of.physical_type == "INT96"
    }
    for at, column in enumerate(table.schema):
        if column.name in int96 and pa.types.is_timestamp(column.type):
            instants = table.column(at).cast(pa.timestamp("us")).cast(_INSTANT)
            table = table.set_column(at, pa.field(column.name, _INSTANT), instants)
    return table
