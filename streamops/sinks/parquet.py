"""Write micro-batches to a folder of Parquet files, each exactly once, and read such a folder."""

from __future__ import annotations

import hashlib
import os
import re
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal, overload

import pyarrow as pa
import pyarrow.dataset as pads
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from streamops.kernel.databases import public_path, secrets_of
from streamops.kernel.errors import SinkError, located
from streamops.sinks import conditions
from streamops.sinks.core.ledger import Action, Decision, Delivery, Entry, NewCheckpoint, Repeated
from streamops.sinks.core.manifest import File, Manifest, decode, find_damage
from streamops.sinks.core.stored_types import accepts, stored_type
from streamops.sinks.protocol import Attempt, Conflict, Content, Found
from streamops.sinks.sink import Columns, Sink, hide, unavailable
from streamops.sinks.tasks import Deliver, Part, Receipts, in_pieces

Check = Literal["size", "content"]

_WHERE = "sinks.parquet"
_ROWS_PER_FILE, _BYTES_PER_FILE = 1 << 20, 128 << 20
# Spark and other readers skip folders whose names begin with an underscore: without the manifests, they
# would read the files of micro-batches that were not committed.
_MANIFESTS, _BATCHES, _ATTEMPTED, _NEWEST = "_manifests", "_batches", "_attempts", "_newest"
_OBJECT_STORES = {"s3", "gcs", "abfs"}


def parquet(
    path: str,
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
    path : str
        The folder, or a URL of ``pyarrow.fs`` such as ``s3://bucket/folder``. One sink per folder.
    columns : "exact" or "add"
        Whether columns that the rows before do not have are an error, or are null in these rows.
    new_checkpoint : "refuse", "continue" or "replace"
        What a query with another checkpoint may do. "replace" ignores all rows before its first
        micro-batch; "continue" adds to them: use it if the new query starts where the old one ended.
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
    path: str, *, check: Check = ..., filesystem: pafs.FileSystem | None = ...
) -> pads.Dataset: ...


@overload
def read_parquet(
    path: str,
    *,
    spark: SparkSession,
    check: Check = ...,
    filesystem: pafs.FileSystem | None = ...,
) -> DataFrame: ...


def read_parquet(
    path: str,
    *,
    spark: SparkSession | None = None,
    check: Check = "size",
    filesystem: pafs.FileSystem | None = None,
) -> Any:
    """Read a folder that ``sinks.parquet`` writes: all committed micro-batches, and nothing else.

    Parameters
    ----------
    path : str
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
    folder = _Folder(path, filesystem)
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


def _damaged(what: str, got: str, expected: str) -> SinkError:
    return conditions.FILE_DAMAGED.error(file=what, expected=expected, got=got)


class _Folder:
    """The files of a folder. As the connection of a session, it knows the newest manifest."""

    def __init__(self, path: str, filesystem: pafs.FileSystem | None) -> None:
        self.secrets = secrets_of(path)
        if filesystem is None:
            is_url = re.match(r"[A-Za-z][A-Za-z0-9+.-]+://", path)
            with self.errors():
                filesystem, path = pafs.FileSystem.from_uri(
                    path if is_url else os.path.abspath(path)
                )
        if isinstance(filesystem, pafs.SubTreeFileSystem):
            path = f"{filesystem.base_path.rstrip('/')}/{path.lstrip('/')}"
            filesystem = filesystem.base_fs
        self.filesystem, self.path = filesystem, path.rstrip("/")
        self.number = 0
        self.manifest: Manifest | None = None
        """The newest manifest; one that was written in part can have a higher number."""
        self.announced = 0
        """What `number` was at the last announcement."""

    def close(self) -> None:
        """A folder holds nothing that must be released."""

    def absolute(self, name: str) -> str:
        return f"{self.path}/{name}"

    def manifest_name(self, number: int) -> str:
        return self.absolute(f"{_MANIFESTS}/{number:020}.json")

    def read_all(self, check: Check) -> list[Manifest]:
        """All manifests, the oldest first. One that was written in part was never committed."""
        newest = self.read_newest()  # first, since manifests are added meanwhile
        numbers = self._numbers()
        with ThreadPoolExecutor(8) as threads:
            found = dict(zip(numbers, threads.map(self._read, numbers), strict=True))
        has_newest = newest is not None or self.read_newest() is not None
        if not has_newest and check == "content" and len(found) > 1:
            raise _damaged(_NEWEST, "no file", "the number of the newest manifest")
        self._refuse_damage(found, newest or 0)
        return [manifest for manifest in found.values() if manifest is not None]

    def refresh(self) -> Manifest | None:
        """The newest manifest."""
        if not self._is_known():
            numbers = self._numbers()
            self._refuse_damage(dict.fromkeys(numbers), 0)
            self.number, self.manifest = max(numbers, default=0), None
            for number in reversed(numbers):
                self.manifest = self._read(number)
                if self.manifest is not None:
                    break
        while self._exists(self.manifest_name(self.number + 1)):
            self.number += 1
            self.manifest = self._read(self.number) or self.manifest
        return self.manifest

    def require_newest(self, newest: int) -> None:
        """Refuse a folder that lacks its last manifest, whose micro-batch no other query would repeat.

        Parameters
        ----------
        newest : int
            What `read_newest` returned before ``refresh``, since another writer can commit in between.
        """
        if newest > self.number:
            raise _damaged(f"manifest {newest}", "no file", "a manifest")

    def _is_known(self) -> bool:
        """Whether the newest manifest is still there, and not that of a folder that was created again."""
        last = self.manifest
        if last is None or not self._exists(self.manifest_name(last.number)):
            return False
        found = self._read(last.number)
        return found is not None and found.digest == last.digest

    def write_rows(self, rows: pa.Table, folder: str) -> tuple[File, ...]:
        """Write the rows to files that no manifest lists yet."""
        starts = range(0, len(rows), _ROWS_PER_FILE)
        parts = (rows.slice(start, _ROWS_PER_FILE) for start in starts)
        return tuple(self.write_file(part, folder) for part in parts)

    def write_file(self, rows: pa.Table, folder: str) -> File:
        """Write a file that no manifest lists yet."""
        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink)
        content = sink.getvalue()
        name = f"{_BATCHES}/{folder}/{uuid.uuid4().hex}.parquet"
        self.write(self.absolute(name), content)
        return File(name, len(rows), content.size, hashlib.sha256(content).hexdigest())

    def announce(self, folder: str) -> None:
        """Store that tasks write to a folder, before they do so."""
        self.write(self.absolute(f"{_ATTEMPTED}/{self.number:020}-{folder}"), b"")
        self.announced = self.number

    def clean_up(self, delivery: Delivery) -> None:
        """Remove what attempts before a delivery have written, and what is in no manifest.

        The delivery is committed: no run before it can commit any more what it has left.
        """
        self.refresh()
        own = (
            number
            for number in range(self.number, 0, -1)
            if (manifest := self._read(number)) and delivery.is_of(manifest.entry)
        )
        committed = next(own, None)
        if committed is None:
            return  # the folder was created again
        for info in self._list(_ATTEMPTED):
            number, _, folder = info.base_name.partition("-")
            if int(number) >= committed:
                continue  # of a newer run, which can still commit it
            # A manifest that lists the files is later.
            later = filter(None, map(self._read, range(self.number, int(number), -1)))
            self._remove_uncommitted(folder, later)
            self._remove(info.path)
        if delivery.is_first:
            before = filter(None, map(self._read, range(committed, 0, -1)))
            of_batch = takewhile(lambda manifest: delivery.is_of(manifest.entry), before)
            self._remove_uncommitted(driver_folder(delivery), of_batch)

    def _remove_uncommitted(self, folder: str, manifests: Iterable[Manifest]) -> None:
        found = self._list(f"{_BATCHES}/{folder}")
        if not found:
            return
        committed = {file.path for manifest in manifests for file in manifest.files}
        names = {f"{_BATCHES}/{folder}/{info.base_name}" for info in found}
        for name in names - committed:
            self._remove(self.absolute(name))
        if not names & committed:
            with suppress(OSError):  # of an object store, which has no folders
                self.filesystem.delete_dir(self.absolute(f"{_BATCHES}/{folder}"))

    def _remove(self, name: str) -> None:
        with suppress(FileNotFoundError):  # another run has removed it
            self.filesystem.delete_file(name)

    def publish(self, manifest: Manifest, newest: int) -> bool:
        """Commit a manifest as the next one, unless another writer commits before.

        Parameters
        ----------
        manifest : Manifest
            The manifest.
        newest : int
            What `read_newest` returned before ``refresh``; 0 for None.
        """
        number, last = self.number + 1, self.manifest
        manifest = replace(manifest, number=number, previous="" if last is None else last.digest)
        name, content = self.manifest_name(number), manifest.encode()
        if self._exists(name):
            return False
        if last is not None and not newest:
            self._mark_newest(last.number)  # its writer has not done so yet, or crashed before
        if self.filesystem.type_name in _OBJECT_STORES:
            self.write(name, content)
        else:
            # Only a complete file gets the name of a manifest.
            temporary = f"{name}.{uuid.uuid4().hex}"
            self.write(temporary, content)
            if not self.move(temporary, name):
                return False
        written = self._read(number)
        if written is None or written.entry != manifest.entry:
            return False
        self._mark_newest(number)
        return True

    def write(self, name: str, content: Any) -> None:
        """Write a file, and its folder."""
        if self.filesystem.type_name not in _OBJECT_STORES:
            self.filesystem.create_dir(name.rpartition("/")[0], recursive=True)
        with self.filesystem.open_output_stream(name) as stream:
            stream.write(content)

    def _mark_newest(self, number: int) -> None:
        """Store the number of a complete manifest, so that readers notice when it is missing later."""
        name, content = self.absolute(_NEWEST), f"{number:020}\n".encode()
        is_whole = self.filesystem.type_name in _OBJECT_STORES  # for readers, at any time
        written = name if is_whole else f"{name}.{uuid.uuid4().hex}"
        self.write(written, content)
        if not is_whole:
            self.filesystem.move(written, name)

    def read_newest(self) -> int | None:
        """The number of the newest complete manifest that was stored, before others are listed."""
        name = self.absolute(_NEWEST)
        if not self._exists(name):
            return None
        with self.filesystem.open_input_stream(name) as stream:
            content = stream.readall()
        if not re.fullmatch(rb"\d{20}\n", content):
            raise _damaged(_NEWEST, f"{len(content)} bytes", "21 bytes")
        return int(content)

    def _refuse_damage(self, found: Mapping[int, Manifest | None], newest: int) -> None:
        damage = find_damage(found, newest)
        if damage is not None:
            raise _damaged(*damage)

    def move(self, name: str, new: str) -> bool:
        """Rename a file, unless there is one with the new name."""
        if not isinstance(self.filesystem, pafs.LocalFileSystem):
            self.filesystem.move(name, new)
            return True
        try:
            os.link(name, new)
        except FileExistsError:
            return False
        finally:
            with suppress(FileNotFoundError):
                Path(name).unlink()
        return True

    def check(self, files: list[File], check: Check) -> None:
        """Compare committed files with their manifests."""
        names = [self.absolute(file.path) for file in files]
        for file, info in zip(files, self.filesystem.get_file_info(names), strict=True):
            size = info.size if info.is_file else "no file"
            if size != file.bytes:
                raise _damaged(file.path, f"{size} bytes", f"{file.bytes} bytes")
            if check == "content":
                with self.filesystem.open_input_stream(self.absolute(file.path)) as stream:
                    digest = hashlib.sha256(stream.readall()).hexdigest()
                if digest != file.sha256:
                    raise _damaged(file.path, f"SHA-256 {digest}", file.sha256)

    @contextmanager
    def errors(self) -> Iterator[None]:
        """Replace errors of the file system by those of streamops."""
        with hide(*self.secrets):
            try:
                yield
            except OSError as error:
                raise unavailable("the folder", error) from error
            except pa.ArrowNotImplementedError as error:
                raise conditions.NOT_A_PARQUET_TYPE.error(got=str(error)) from error

    def _numbers(self) -> list[int]:
        names = (info.base_name for info in self._list(_MANIFESTS))
        found = {int(n[:-5]) for n in names if re.fullmatch(r"\d{20}\.json", n)}
        # A list made while manifests are added may have a later one and lack an earlier one.
        missing = set(range(1, max(found, default=0))) - found
        found |= {number for number in missing if self._exists(self.manifest_name(number))}
        return sorted(found)

    def _list(self, folder: str) -> list[pafs.FileInfo]:
        selector = pafs.FileSelector(self.absolute(folder), allow_not_found=True)
        return [info for info in self.filesystem.get_file_info(selector) if info.is_file]

    def _exists(self, name: str) -> bool:
        return bool(self.filesystem.get_file_info(name).is_file)

    def _read(self, number: int) -> Manifest | None:
        with self.filesystem.open_input_stream(self.manifest_name(number)) as stream:
            return decode(stream.readall())


class _Attempt(Attempt):
    """An attempt to publish the next manifest."""

    def __init__(
        self, sink: ParquetSink, folder: _Folder, content: Content, delivery: Delivery
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
        if not folder.publish(manifest, self.newest):
            raise Conflict()


def driver_folder(delivery: Delivery) -> str:
    """The folder in which every attempt of a driver writes a micro-batch. Tasks write to new ones."""
    return f"{delivery.batch:020}-{hashlib.sha256(delivery.query.encode()).hexdigest()[:12]}"


def _deliver(
    filesystem: pafs.FileSystem,
    path: str,
    name: str,
    columns: pa.Schema,
    tables: Iterator[pa.Table],
) -> Iterator[Part]:
    """Write the rows of a task to files that no manifest lists yet."""
    folder = _Folder(path, filesystem)
    for piece in in_pieces(tables, rows=_ROWS_PER_FILE, size=_BYTES_PER_FILE):
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

    def _open(self) -> _Folder:
        if self.session.connection is None:
            self.session.connection = _Folder(self.path, self.filesystem)
        folder: _Folder = self.session.connection
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
