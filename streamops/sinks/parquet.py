"""Write micro-batches to a folder of Parquet files, each exactly once, and read such a folder."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, overload

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.fs as pafs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from streamops.kernel.databases import public_path
from streamops.kernel.errors import located
from streamops.kernel.parameters import parse_path
from streamops.sinks import conditions
from streamops.sinks.core.ledger import Action, Decision, Delivery, Entry, NewCheckpoint, Repeated
from streamops.sinks.core.manifest import File, Manifest
from streamops.sinks.core.stored_types import accepts, stored_type
from streamops.sinks.parquet_folder import (
    BYTES_PER_FILE,
    ROWS_PER_FILE,
    Check,
    Folder,
    driver_folder,
)
from streamops.sinks.protocol import Attempt, Conflict, Content, Found
from streamops.sinks.sink import Columns, Sink
from streamops.sinks.tasks import Deliver, Part, Receipts, in_pieces

_WHERE = "sinks.parquet"


def parquet(
    path: str | os.PathLike[str],
    *,
    columns: Columns = "exact",
    new_checkpoint: NewCheckpoint = "refuse",
    repeated: Repeated = "fail",
    checkpoint: str | None = None,
    filesystem: pafs.FileSystem | None = None,
) -> ParquetSink:
    """Write micro-batches to a folder of Parquet files, each exactly once.

    The files of a micro-batch are written first. They become part of the folder with its manifest, one
    small file with the ledger entry and the list of files. Read the folder with ``sinks.read_parquet``,
    which ignores files that no manifest lists.

    Input        the output of any operator. Rows are stored as they are: a change stream stays one, and
                 ``changes.fold`` reads it
    Output       Parquet files in ``_batches``, manifests in ``_manifests``
    Output mode  append or update
    Watermark    none
    State        none in Spark
    Order        any, within a micro-batch
    Batch        ``sink.write(frame, query=...)``

    Parameters
    ----------
    path : str or path
        The folder, or a URL of ``pyarrow.fs`` such as ``s3://bucket/folder``. One sink per folder.
    columns : "exact" or "add"
        Whether columns that the rows before do not have are an error, or are null in these rows.
    new_checkpoint : "refuse", "continue" or "replace"
        What a query with another checkpoint may do. "replace" ignores all rows before its first
        micro-batch, whose files are removed some time later; "continue" adds to them: use it if the new
        query starts where the old one ended.
    repeated : "fail" or "skip"
        What happens if a micro-batch that the folder already has arrives again with other rows. With the
        same rows it is always skipped.
    checkpoint : str, optional
        The checkpoint location of the query. Only Spark Connect needs it.
    filesystem : pyarrow.fs.FileSystem, optional
        The file system of `path`, for example with credentials, which are neither shown nor logged.

    Returns
    -------
    ParquetSink
        For use with ``DataStreamWriter.foreachBatch``.

    Raises
    ------
    SpecError
        A parameter has the wrong type or value.

    Examples
    --------
    >>> from streamops import sinks
    >>> archive = sinks.parquet("/data/archive")
    >>> views.writeStream.foreachBatch(archive).option("checkpointLocation", path)

    Notes
    -----
    Errors while the query runs. ``SinkError``: another run, query or checkpoint writes to this folder, see
    docs/sinks.md; ``TARGET_COLUMNS`` and ``TARGET_TYPE``, if the columns differ from those before;
    ``TARGET_UNAVAILABLE``. In all cases the folder has the same rows as before.

    Of two writers, one commits each micro-batch. On a local disk, a manifest is created only if there is
    none. On HDFS and in object stores the last one replaces the other, which is the same micro-batch of
    the same query; the replaced writer is fenced at its next micro-batch.
    """
    path = parse_path(path)
    return ParquetSink(
        name=path,
        path=path,
        columns=columns,
        new_checkpoint=new_checkpoint,
        repeated=repeated,
        checkpoint=checkpoint,
        filesystem=filesystem,
    )


@overload
def read_parquet(
    path: str | os.PathLike[str], *, check: Check = ..., filesystem: pafs.FileSystem | None = ...
) -> pads.Dataset: ...


@overload
def read_parquet(
    path: str | os.PathLike[str],
    *,
    spark: SparkSession,
    check: Check = ...,
    filesystem: pafs.FileSystem | None = ...,
) -> DataFrame: ...


def read_parquet(
    path: str | os.PathLike[str],
    *,
    spark: SparkSession | None = None,
    check: Check = "size",
    filesystem: pafs.FileSystem | None = None,
) -> Any:
    """Read a folder that ``sinks.parquet`` writes: all committed micro-batches, and nothing else.

    Parameters
    ----------
    path : str or path
        The folder, as in ``sinks.parquet``.
    spark : SparkSession, optional
        Return a frame of this session instead of an Arrow dataset. Its executors read the files by `path`.
    check : "size" or "content"
        How files are compared with the manifests. "content" reads them and computes their SHA-256.
    filesystem : pyarrow.fs.FileSystem, optional
        The file system of `path`.

    Returns
    -------
    pyarrow.dataset.Dataset or DataFrame
        As of now: later micro-batches need another call.

    Raises
    ------
    SinkError
        ``TARGET_MISSING``: no micro-batch was committed. ``FILE_DAMAGED``: a committed file is missing, or
        is not the one that was written.

    Examples
    --------
    >>> from streamops import sinks
    >>> table = sinks.read_parquet("/data/archive").to_table()
    """
    path = parse_path(path)
    folder = Folder(path, filesystem)
    with located(f"sinks.read_parquet({public_path(path)!r})"), folder.errors():
        schema, files = _committed(folder.read_all(check))
        folder.check(files, check)
    if spark is not None:
        types = from_arrow_schema(schema, prefer_timestamp_ntz=True)
        if not files:
            return spark.createDataFrame([], types)
        base = re.sub("^s3://", "s3a://", path.rstrip("/"))
        names = (re.sub(r"([\\{}\[\]*?])", r"\\\1", f"{base}/{file.path}") for file in files)
        return spark.read.schema(types).parquet(*names)
    if not files:
        return pads.dataset(schema.empty_table())
    names = (folder.absolute(file.path) for file in files)
    return pads.dataset(list(names), schema=schema, format="parquet", filesystem=folder.filesystem)


def _committed(manifests: list[Manifest]) -> tuple[pa.Schema, list[File]]:
    """The columns and the files of all manifests."""
    if not manifests:
        raise conditions.NO_MANIFEST.error(got="no manifest")
    start = max((n for n, manifest in enumerate(manifests) if manifest.is_first), default=0)
    files = [file for manifest in manifests[start:] for file in manifest.files]
    return manifests[-1].schema, files


class _Attempt(Attempt):
    """An attempt to publish the next manifest."""

    def __init__(
        self, sink: ParquetSink, folder: Folder, content: Content, delivery: Delivery
    ) -> None:
        self.newest = folder.read_newest() or 0  # first, since manifests are added meanwhile
        self.last = folder.refresh()
        self.found = Found(None if self.last is None else self.last.entry)
        self.sink, self.folder, self.content, self.delivery = sink, folder, content, delivery

    def write(self, decision: Decision) -> None:
        folder, last, content = self.folder, self.last, self.content
        is_new = last is None or last.entry.query != self.delivery.query
        if is_new and decision.action != "replace":
            folder.require_newest(self.newest)
        if decision.action == "skip" and last is not None:
            manifest = Manifest(decision.entry, last.schema)
        else:
            is_first = last is None or decision.action == "replace"
            schema = self.sink._fit(None if is_first else last, content.schema)
            if isinstance(content, Receipts):
                if content.parts and folder.number != folder.announced:
                    # Whoever has committed since may have removed the files.
                    raise conditions.COMMIT_CONFLICTS.error(
                        got=f"manifest {folder.number}, and {folder.announced} when tasks began to write"
                    )
                files = tuple(File(**part) for part in content.parts)
            else:
                columns = pa.schema([schema.field(n) for n in content.column_names])
                files = folder.write_rows(content.cast(columns), driver_folder(self.delivery))
            manifest = Manifest(decision.entry, schema, files, is_first)
        manifest = folder.merge(manifest, driver_folder(self.delivery))
        if not folder.publish(manifest, self.newest):
            raise Conflict()
        self.sink.session.has_leftovers = manifest.has_merged


def _deliver(
    filesystem: pafs.FileSystem,
    path: str,
    name: str,
    columns: pa.Schema,
    tables: Iterator[pa.Table],
) -> Iterator[Part]:
    """Write the rows of a task to files that no manifest lists yet."""
    folder = Folder(path, filesystem)
    for piece in in_pieces(tables, rows=ROWS_PER_FILE, size=BYTES_PER_FILE):
        yield asdict(folder.write_file(piece.cast(columns), name))


@dataclass(frozen=True, kw_only=True, repr=False)
class ParquetSink(Sink):
    """A function that writes micro-batches, for use with ``DataStreamWriter.foreachBatch``."""

    where = _WHERE

    name: str = field(repr=False)
    path: str = field(metadata={"shown": lambda path: repr(public_path(path))})
    columns: Columns
    filesystem: pafs.FileSystem | None = field(default=None, repr=False, hash=False)

    def __post_init__(self) -> None:
        """Validate the parameters."""
        super().__post_init__()
        given: Any = self.filesystem
        if given is not None and not isinstance(given, pafs.FileSystem):
            raise conditions.NOT_A_FILESYSTEM.error(got=type(given).__name__)

    @property
    def label(self) -> str:
        """The name of the sink in errors."""
        return f"{self.where}({public_path(self.path)!r})"

    def _read_ledger(self) -> Entry | None:
        folder = self._open()
        with folder.errors():
            manifest = folder.refresh()
            return None if manifest is None else manifest.entry

    def _inspect(self) -> tuple[str, Sequence[str], Entry | None]:
        entry, path = self._read_ledger(), public_path(self.path)
        return f"folder {path!r}", [] if entry else [f"folder {path!r}"], entry

    def _open(self) -> Folder:
        if self.session.connection is None:
            self.session.connection = Folder(self.path, self.filesystem)
        folder: Folder = self.session.connection
        return folder

    @contextmanager
    def _attempt(self, content: Content, delivery: Delivery) -> Iterator[_Attempt]:
        folder = self._open()
        with folder.errors():
            yield _Attempt(self, folder, content, delivery)

    @property
    def _is_distributed(self) -> bool:
        return True

    def _prepare(self, schema: pa.Schema, batch_id: int, action: Action) -> Deliver:
        folder = self._open()
        with folder.errors():
            stored = self._fit(folder.manifest if action == "write" else None, schema)
            name = f"{batch_id:020}-{uuid.uuid4().hex[:12]}"
            folder.announce(name)
        columns = pa.schema([stored.field(n) for n in schema.names])
        return partial(_deliver, folder.filesystem, folder.path, name, columns)

    def _clean_up(self, delivery: Delivery) -> None:
        folder = self._open()
        with folder.errors():
            folder.clean_up(delivery)
            if delivery.is_first or self.session.has_leftovers:
                folder.remove_merged()

    def _fit(self, last: Manifest | None, schema: pa.Schema) -> pa.Schema:
        """The columns of all rows, if these are added to the rows so far."""
        wanted = [pa.field(part.name, stored_type(part.type) or part.type) for part in schema]
        if last is None:
            return pa.schema(wanted)
        found = last.schema
        new = [part for part in wanted if part.name not in found.names]
        if new and self.columns == "exact":
            raise conditions.NEW_COLUMNS.error(
                columns=", ".join(found.names), got=", ".join(part.name for part in new)
            )
        for part in wanted:
            if part not in new and not accepts(found.field(part.name).type, part.type):
                raise conditions.TYPE_CHANGED.error(
                    column=part.name, expected=found.field(part.name).type, got=part.type
                )
        return pa.schema([*found, *new])
