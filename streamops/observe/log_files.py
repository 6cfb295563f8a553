"""The rows of file sources: the files that the log of a source in a checkpoint lists."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import and_
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow import fs

from streamops.kernel.calls import explain_call
from streamops.kernel.ddl import SchemaLike, parse_schema
from streamops.kernel.time import Duration
from streamops.kernel.versions import to_arrow
from streamops.observe import conditions
from streamops.observe.plan import Piece, Prepare, Recorded, RecordedSource
from streamops.state.checkpoint import local_path
from streamops.state.stores import session_or_new

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_INSTANT = pa.timestamp("us", tz="UTC")
_TEXT = pa.schema([("value", pa.string())])
_NULL = "__HIVE_DEFAULT_PARTITION__"
_PUSHED = (int, str, bool)
"""Types of values that a reader compares with a column as the operator does."""


@dataclass(frozen=True, kw_only=True)
class FileSource(RecordedSource):
    """The files that a file source of a query read. See :func:`files`."""

    OFFSET: ClassVar[str | None] = "logOffset"

    format: str = "parquet"
    schema: pa.Schema | None = None
    options: Mapping[str, str] | None = None
    spark: SparkSession | None = None

    def scan(self, recorded: Recorded, wanted: Mapping[str, Any] | None) -> Iterator[Piece]:
        """Yield the rows of each file, or of each micro-batch if Spark reads it."""
        if self.schema is not None:
            yield 0, self.schema.empty_table()
        entries = _entries(recorded.log)
        unlisted, missing, rewritten = list[str](), list[str](), list[str]()
        for at, (start, end) in enumerate(recorded.ranges):
            paths = list[str]()
            for number in range(_log_offset(start) + 1, _log_offset(end) + 1):
                if number not in entries:
                    unlisted.append(str(number))
                for path, stamp in entries.get(number, ()):
                    system, name = _locate(path)
                    info = system.get_file_info(name)
                    if info.type != fs.FileType.File:
                        missing.append(path)
                        continue
                    paths.append(path)
                    if _is_rewritten(info, stamp):
                        rewritten.append(path)
            if paths:
                yield from ((at, rows) for rows in self._read(paths, wanted))
        recorded.note(unlisted, "the checkpoint does not list the files of entry {} any more")
        recorded.note(missing, "the file {} does not exist any more")
        recorded.note(
            rewritten,
            "the file {} was written again after the query had listed it: its rows may differ",
        )

    def _read(self, paths: list[str], wanted: Mapping[str, Any] | None) -> Iterator[pa.Table]:
        if self.format != "parquet" or self.spark is not None:
            yield self._read_with_spark(paths, wanted)
            return
        for path in paths:
            try:
                rows = read_parquet(*_locate(path), self.schema, wanted)
            except pa.ArrowInvalid as error:
                raise conditions.NOT_PARQUET.error(got=f"{path} ({error})") from None
            yield rows

    def _read_with_spark(self, paths: list[str], wanted: Mapping[str, Any] | None) -> pa.Table:
        from pyspark.sql import functions as F
        from pyspark.sql.pandas.types import from_arrow_schema

        reader = session_or_new(self.spark).read.format(self.format)
        folders = paths[0].split("/")[:-1]
        partitions = [at for at, name in enumerate(folders) if "=" in unquote(name)]
        if partitions:  # as the stream has it, whose path is a folder
            reader = reader.option("basePath", "/".join(folders[: partitions[0]]))
        reader = reader.options(**(self.options or {}))
        if self.schema is not None and self.format != "text":
            reader = reader.schema(from_arrow_schema(self.schema, prefer_timestamp_ntz=True))
        frame = reader.load(paths)
        for name, value in (wanted or {}).items():
            if isinstance(value, _PUSHED):
                frame = frame.where(F.col(f"`{name.replace('`', '``')}`").eqNullSafe(F.lit(value)))
        found = to_arrow(frame)
        return found if self.schema is None else found.select(self.schema.names)


@explain_call("observe.files")
def files(
    *,
    format: str = "parquet",
    schema: SchemaLike | None = None,
    options: Mapping[str, str] | None = None,
    spark: SparkSession | None = None,
    prepare: Prepare | None = None,
    columns: Mapping[str, str] | None = None,
    watermark: Duration | None = None,
    number: int | None = None,
) -> RecordedSource:
    """The files that a file source of a query read, as its checkpoint lists them.

    Parquet is read without Spark. Spark reads every other format, and Parquet if a session is passed, with
    the options of the stream. Notes name the files that do not exist any more, and those that were
    written again since the query listed them.

    Parameters
    ----------
    format : str, default "parquet"
        Format of the files, as in ``readStream.format``.
    schema : str, Schema or mapping, optional
        The columns of the files, as for the stream: ``"page string, ts timestamp"``, a schema of Arrow, or types by
        name. Required for every format but Parquet and text, and for columns that are names of folders
        (``day=2024-01-31``). By default, those of the first file of Parquet.
    options : mapping of str to str, optional
        Options of the reader, as for the stream.
    spark : SparkSession, optional
        Session that reads the files; its time zone must be that of the query. By default, Parquet needs
        none, and other formats are read by the running session, or by a new local one.
    prepare : callable, optional
        From a Table with rows of the files to the input of the operator: what the query does between
        the source and the operator, row by row. By default, the files have the columns of the operator.
    columns : mapping of str to str, optional
        Names of key columns in the files, by their names in the operator. Readers
        then skip rows of other keys. By default, with `prepare`, all rows are read.
    watermark : duration, optional
        The delay of ``withWatermark`` on the frame before the operator, if it has one.
    number : int, optional
        Number of the source in the query. By default, one source for each input, or all of a union.

    Returns
    -------
    RecordedSource

    Raises
    ------
    SpecError
        ``PARAMETER_TYPE``; ``PARAMETER_MISSING``: no schema; ``INVALID_SCHEMA``.

    Examples
    --------
    >>> observe.files(prepare=lambda rows: rows.rename_columns(["page", "ts"]), columns={"page": "url"})

    See Also
    --------
    explain : replay one key of a query.
    """
    columns_ = None if schema is None else parse_schema(schema, parameter="schema")
    if format == "text":
        columns_ = columns_ or _TEXT
    elif not columns_ and (format != "parquet" or schema is not None):
        raise conditions.SCHEMA_REQUIRED.error(format=format, got=f"schema={schema!r}")
    return FileSource(
        format=format, schema=columns_, options=options, spark=spark,
        prepare=prepare, columns=columns, watermark=watermark, number=number,
    )  # fmt: skip


def _log_offset(offset: str | None) -> int:
    return -1 if offset is None else int(json.loads(offset)["logOffset"])


def _entries(log: Path) -> dict[int, list[tuple[str, int]]]:
    """The files of a file source, by the number of their entry in the log: path and time."""
    names = [path.name for path in log.iterdir()] if log.is_dir() else []
    compacted = max((int(n.split(".")[0]) for n in names if n.endswith(".compact")), default=-1)
    later = sorted(int(name) for name in names if name.isdecimal() and int(name) > compacted)
    found: dict[int, list[tuple[str, int]]] = {}
    for name in ([f"{compacted}.compact"] if compacted >= 0 else []) + [*map(str, later)]:
        for line in (log / name).read_text().splitlines()[1:]:
            entry = json.loads(line)
            files = found.setdefault(int(entry["batchId"]), [])
            files.append((entry["path"], int(entry["timestamp"])))
    return found


def _is_rewritten(info: fs.FileInfo, stamp: int) -> bool:
    """Whether a file has another time than the log; some file systems had whole seconds only."""
    if info.mtime_ns is None:
        return False
    now = info.mtime_ns // 1_000_000
    return now != stamp and (stamp % 1_000 > 0 or now // 1_000 * 1_000 != stamp)


def _locate(path: str) -> tuple[fs.FileSystem, str]:
    if "://" in path and not path.startswith("file:"):
        try:
            system, name = fs.FileSystem.from_uri(path)
        except (pa.ArrowException, ValueError) as error:
            raise conditions.STORE_UNKNOWN.error(got=f"{path} ({type(error).__name__})") from None
        return system, name
    return fs.LocalFileSystem(), str(local_path(path))


def read_parquet(
    system: fs.FileSystem,
    name: str,
    schema: pa.Schema | None,
    wanted: Mapping[str, Any] | None,
) -> pa.Table:
    """The rows of a file of Parquet, without those whose columns have other than the wanted values.

    Columns of the schema may be names of folders, in upper and lower case, or missing, as in Spark. Without
    wanted values (None), there are columns only.
    """
    # Spark writes INT96 by default, which is an instant in UTC.
    options = ds.ParquetReadOptions(coerce_int96_timestamp_unit="us")
    form = ds.ParquetFileFormat(read_options=options)
    with system.open_input_file(name) as file:
        opened = pq.ParquetFile(file)
        physical, stored = opened.schema, opened.schema_arrow
    int96 = {
        of.name for of in map(physical.column, range(len(physical))) if of.physical_type == "INT96"
    }
    folded = {of.lower(): of for of in stored.names}
    names = stored.names if schema is None else schema.names
    here = {of: folded[of.lower()] for of in names if of.lower() in folded}
    types = {} if schema is None else {here[of]: schema.field(of).type for of in here}
    read = pa.schema([pa.field(of, types.get(of, stored.field(of).type)) for of in here.values()])
    dataset = ds.dataset(name, schema=read if types else None, filesystem=system, format=form)
    terms = [
        ds.field(here[of]) == pa.scalar(value)
        for of, value in (wanted or {}).items()
        if of in here and isinstance(value, _PUSHED) and _is_of(value, stored.field(here[of]).type)
    ]
    if wanted is None:
        table = dataset.head(0, columns=[*here.values()])
    else:
        table = dataset.to_table([*here.values()], filter=reduce(and_, terms) if terms else None)
    table = table.rename_columns(list(here))
    for at, field in enumerate(table.schema):
        if here[field.name] in int96 and pa.types.is_timestamp(field.type):
            instants = table.column(at).cast(pa.timestamp("us")).cast(_INSTANT)
            table = table.set_column(at, pa.field(field.name, _INSTANT), instants)
    if schema is None:
        return table
    folders = _hive(name)
    for field in schema:
        if field.name not in here:
            column = _partition(folders.get(field.name), field.type, len(table))
            table = table.append_column(field, column)
    return table.select(schema.names)


def _is_of(value: Any, type_: pa.DataType) -> bool:
    """Whether a value is of the type of a column, so that Arrow compares them."""
    if isinstance(value, bool):
        return bool(pa.types.is_boolean(type_))
    return bool(pa.types.is_integer(type_) if isinstance(value, int) else pa.types.is_string(type_))


def _hive(path: str) -> dict[str, str | None]:
    """The columns that are names of folders, as Hive has them: ``day=2024-01-31``."""
    pairs = (folder.partition("=") for folder in path.split("/")[:-1])
    return {
        unquote(name): None if text == _NULL else unquote(text)
        for name, separator, text in pairs
        if separator and name
    }


def _partition(text: str | None, type_: pa.DataType, rows: int) -> pa.Array:
    try:
        if pa.types.is_timestamp(type_) and text is not None:
            raise pa.ArrowInvalid  # in the time zone of the session
        return pa.repeat(pa.scalar(text, pa.string()).cast(type_), rows)
    except pa.ArrowException:
        raise conditions.FOLDER_NEEDS_SPARK.error(type=type_, got=text) from None
