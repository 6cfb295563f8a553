"""The rows of file sources: the files that the log of a source in a checkpoint lists."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow import fs

from streamops.kernel.calls import explain_call
from streamops.kernel.time import Duration
from streamops.observe import conditions
from streamops.observe.lines import read_lines, require_options, require_types
from streamops.observe.plan import Piece, Prepare, RecordedSource
from streamops.state.checkpoint import Checkpoint, local_path

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_INSTANT = pa.timestamp("us", tz="UTC")
_TEXT = pa.schema([("value", pa.string())])


@dataclass(frozen=True, kw_only=True)
class FileSource(RecordedSource):
    """The files that a file source of a query read. See :func:`files`."""

    format: str = "parquet"
    schema: pa.Schema | None = None
    options: Mapping[str, str] | None = None
    spark: SparkSession | None = None

    def scan(
        self,
        checkpoint: Checkpoint,
        number: int,
        ranges: Sequence[tuple[str | None, str | None]],
        wanted: Mapping[str, Any],
        notes: list[str],
    ) -> Iterator[Piece]:
        """Yield the rows of each file, or of each micro-batch if Spark reads it."""
        entries = list(_entries(checkpoint.path / "sources" / str(number)))
        removed, is_empty = 0, self.schema is None
        if self.schema is not None:
            yield 0, self.schema.empty_table()
        for at, (start, end) in enumerate(ranges):
            first, last = _log_offset(start), _log_offset(end)
            paths = list[str]()
            for path in (path for entry, path in entries if first < entry <= last):
                system, name = _locate(path)
                if system.get_file_info(name).type == fs.FileType.File:
                    paths.append(path)
                else:
                    notes.append(f"the file {path} does not exist any more")
                    removed += 1
            for rows in self._read(paths, wanted):
                is_empty = False
                yield at, rows
        if is_empty:
            raise conditions.NO_SOURCE_FILES.error(got=f"{removed} files, none of which exists")

    def _read(self, paths: list[str], wanted: Mapping[str, Any]) -> Iterator[pa.Table]:
        if self.spark is not None:
            if paths:
                yield self._read_with_spark(self.spark, paths, wanted)
            return
        for path in paths:
            system, name = _locate(path)
            if self.format == "parquet":
                yield read_parquet(system, name, self.schema, wanted)
            else:
                assert self.schema is not None
                yield read_lines(system, name, self.format, self.schema, dict(self.options or {}))

    def _read_with_spark(
        self, spark: SparkSession, paths: list[str], wanted: Mapping[str, Any]
    ) -> pa.Table:
        from pyspark.sql import functions as F
        from pyspark.sql.pandas.types import from_arrow_schema

        reader = spark.read.format(self.format).options(**(self.options or {}))
        if self.schema is not None and self.format != "text":
            reader = reader.schema(from_arrow_schema(self.schema, prefer_timestamp_ntz=True))
        frame = reader.load(paths)
        for name, value in wanted.items():
            frame = frame.where(F.col(f"`{name.replace('`', '``')}`").eqNullSafe(F.lit(value)))
        return frame.toArrow()


@explain_call("observe.files")
def files(
    *,
    format: str = "parquet",
    schema: pa.Schema | None = None,
    options: Mapping[str, str] | None = None,
    spark: SparkSession | None = None,
    prepare: Prepare | None = None,
    columns: Mapping[str, str] | None = None,
    watermark: Duration | None = None,
    number: int | None = None,
) -> RecordedSource:
    """The files that a file source of a query read, as its checkpoint lists them.

    Parquet, lines of JSON, CSV and text are read without Spark. What Spark may read otherwise than the
    reader of this function is refused, such as quotes in CSV or a malformed line. With a session, Spark
    reads the files, in any format.

    Parameters
    ----------
    format : str, default "parquet"
        Format of the files, as in ``readStream.format``: "parquet", "json", "csv" or "text"; with `spark`,
        any one.
    schema : Schema, optional
        The columns of the files, as for the stream. Required for JSON and CSV. By default, those of the
        first file of Parquet.
    options : mapping of str to str, optional
        Options of the reader, as for the stream. Without `spark`: ``header`` and ``sep`` of CSV.
    spark : SparkSession, optional
        Session that reads the files. Its time zone must be that of the query.
    prepare : callable, optional
        From a Table with rows of the files to the input of the operator: what the query does between
        the source and the operator, row by row. By default, the files have the columns of the operator.
    columns : mapping of str to str, optional
        Names of key columns in the files, by their names in the operator. Readers of Parquet and of Spark
        then skip rows of other keys. By default, with `prepare`, all rows are read.
    watermark : duration, optional
        The delay of ``withWatermark`` on the frame before the operator, if it has one.
    number : int, optional
        Number of the source in the query. By default, inputs of the operator are sources 0 and 1.

    Returns
    -------
    RecordedSource

    Raises
    ------
    SpecError
        ``PARAMETER_TYPE``; ``UNKNOWN_CHOICE``: a format or an option that only Spark reads;
        ``PARAMETER_MISSING``: no schema.
    SchemaError
        ``TYPE_UNSUPPORTED``: a column that only Spark reads.

    Examples
    --------
    >>> observe.files(prepare=lambda rows: rows.rename_columns(["page", "ts"]), columns={"page": "url"})

    See Also
    --------
    explain : replay one key of a query.
    """
    if spark is None:
        require_options(format, options or {})
        if format == "text":
            schema = _TEXT
        elif format != "parquet":
            require_types(format, schema)
    return FileSource(
        format=format, schema=schema, options=options, spark=spark,
        prepare=prepare, columns=columns, watermark=watermark, number=number,
    )  # fmt: skip


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


def _locate(path: str) -> tuple[fs.FileSystem, str]:
    if "://" in path and not path.startswith("file:"):
        system, name = fs.FileSystem.from_uri(path)
        return system, name
    return fs.LocalFileSystem(), str(local_path(path))


def read_parquet(
    system: fs.FileSystem, name: str, schema: pa.Schema | None, wanted: Mapping[str, Any]
) -> pa.Table:
    """The rows of a file of Parquet whose columns have the wanted values."""
    expression: ds.Expression | None = None
    for column, value in wanted.items():
        term = ds.field(column).is_null() if value is None else ds.field(column) == pa.scalar(value)
        expression = term if expression is None else expression & term
    # Spark writes INT96 by default, which is an instant in UTC.
    options = ds.ParquetReadOptions(coerce_int96_timestamp_unit="us")
    form = ds.ParquetFileFormat(read_options=options)
    table = ds.dataset(name, schema=schema, filesystem=system, format=form).to_table(
        filter=expression
    )
    with system.open_input_file(name) as file:
        physical = pq.ParquetFile(file).schema
    int96 = {
        of.name for of in map(physical.column, range(len(physical))) if of.physical_type == "INT96"
    }
    for at, field in enumerate(table.schema):
        if field.name in int96 and pa.types.is_timestamp(field.type):
            instants = table.column(at).cast(pa.timestamp("us")).cast(_INSTANT)
            table = table.set_column(at, pa.field(field.name, _INSTANT), instants)
    return table
