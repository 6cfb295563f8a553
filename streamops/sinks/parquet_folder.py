"""The files of a folder that ``sinks.parquet`` writes, and its manifests."""

from __future__ import annotations

import hashlib
import os
import re
import time
import uuid
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from streamops.kernel.databases import secrets_of
from streamops.sinks import conditions, leftovers
from streamops.sinks.core.ledger import Delivery
from streamops.sinks.core.manifest import File, Manifest, damaged, decode, read_chain, start_of
from streamops.sinks.sink import hide, unavailable

Check = Literal["size", "content"]

ROWS_PER_FILE, BYTES_PER_FILE = 1 << 20, 128 << 20
_SMALL_FILE, _BYTES_PER_MERGE = 8 << 20, 64 << 20
_RETENTION = 24 * 3600
"""Seconds for which those who have listed the files of the folder can read them."""

# Spark and other readers skip folders whose names begin with an underscore: without the manifests, they
# would read the files of micro-batches that were not committed.
_MANIFESTS, _BATCHES, _ATTEMPTED, _NEWEST = "_manifests", "_batches", "_attempts", "_newest"


def driver_folder(delivery: Delivery) -> str:
    """The folder in which every attempt of a driver writes a micro-batch. Tasks write to new ones."""
    return f"{delivery.batch:020}-{hashlib.sha256(delivery.query.encode()).hexdigest()[:12]}"


def _names(manifests: Iterable[Manifest]) -> set[str]:
    """The names of all files of manifests, without their folders."""
    return {file.path.rpartition("/")[2] for manifest in manifests for file in manifest.files}


class Folder:
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
        """The name of a file in the file system."""
        return f"{self.path}/{name}"

    def manifest_name(self, number: int) -> str:
        """The name of a manifest in the file system."""
        return self.absolute(f"{_MANIFESTS}/{number:020}.json")

    def read_all(self, check: Check) -> list[Manifest]:
        """All manifests that are not merged, the oldest first. One that was written in part was never committed."""
        newest = self.read_newest()  # first, since manifests are added meanwhile
        last = max(self._numbers(), default=0)
        found = list(read_chain(self._read, last, newest or 0))
        has_newest = newest is not None or self.read_newest() is not None
        if not has_newest and check == "content" and last > 1:
            raise damaged(_NEWEST, "no file", "the number of the newest manifest")
        return found[::-1]

    def refresh(self) -> Manifest | None:
        """The newest manifest."""
        if not self._is_known():
            self.number = max(self._numbers(), default=0)
            # All of them, to refuse a folder that lacks one.
            self.manifest = next(iter(list(read_chain(self._read, self.number))), None)
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
            raise damaged(f"manifest {newest}", "no file", "a manifest")

    def _is_known(self) -> bool:
        """Whether the newest manifest is still there, and not that of a folder that was created again."""
        last = self.manifest
        if last is None or not self._exists(self.manifest_name(last.number)):
            return False
        found = self._read(last.number)
        return found is not None and found.digest == last.digest

    def write_rows(self, rows: pa.Table, folder: str) -> tuple[File, ...]:
        """Write the rows to files that no manifest lists yet."""
        starts = range(0, len(rows), ROWS_PER_FILE)
        parts = (rows.slice(start, ROWS_PER_FILE) for start in starts)
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
        leftovers.announce(self.filesystem, self.absolute(_ATTEMPTED), folder, self.number)
        self.announced = self.number

    def clean_up(self, delivery: Delivery) -> None:
        """Remove what attempts before a delivery have written, and what is in no manifest.

        The delivery is committed: no run before it can commit any more what it has left.
        """
        self.refresh()
        own = (
            number
            for number in range(self.number, 0, -1)
            if (manifest := self._read_if_any(number)) and delivery.is_of(manifest.entry)
        )
        committed = next(own, None)
        if committed is None:
            return  # the folder was created again

        def committed_since(number: int) -> set[str] | None:
            if number >= committed:
                return None  # of a newer run, which can still commit it
            # A manifest that lists the files is later.
            return _names(filter(None, map(self._read_if_any, range(self.number, number, -1))))

        where = self.absolute(_ATTEMPTED)
        leftovers.clean_up(self.filesystem, where, committed_since, self._remove_others)
        if delivery.is_first:
            before = filter(None, map(self._read_if_any, range(committed, 0, -1)))
            of_batch = takewhile(lambda manifest: delivery.is_of(manifest.entry), before)
            self._remove_others(driver_folder(delivery), _names(of_batch))

    def _remove_others(self, folder: str, committed: Collection[str]) -> None:
        leftovers.remove(self.filesystem, self.absolute(f"{_BATCHES}/{folder}"), committed)

    def merge(self, manifest: Manifest, folder: str) -> Manifest:
        """The next manifest, with the files of those before it that it replaces. Small files are merged."""
        number, last = self.number + 1, self.manifest
        start, previous = start_of(number), "" if last is None else last.digest
        if start == number:
            return replace(manifest, number=number, start=number, previous=previous)
        newer, files = manifest, list[File]()
        for before in read_chain(self._read, self.number):
            if before.number < start:
                break
            previous = before.previous
            if not newer.is_first:
                files[:0] = before.files
                newer = before
        return replace(
            manifest,
            number=number,
            start=start,
            previous=previous,
            is_first=newer.is_first,
            files=(*self._merge_files(files, manifest.schema, folder), *manifest.files),
        )

    def _merge_files(self, files: list[File], schema: pa.Schema, folder: str) -> Iterator[File]:
        left, small = _BYTES_PER_MERGE, list[tuple[File, pa.Table]]()
        for file in files:
            rows = None
            if file.bytes < _SMALL_FILE and file.bytes <= left:
                content = self._read_file(file)
                left -= file.bytes
                # One that is damaged stays as it is: who reads the folder gets the error.
                rows = None if content is None else pq.read_table(pa.BufferReader(content))
            if rows is None:
                yield file
                continue
            small.append((file, rows))
            if sum(f.bytes for f, _ in small) >= _SMALL_FILE:
                yield self._write_merged(small, schema, folder)
                small = []
        if small:
            yield self._write_merged(small, schema, folder)

    def _write_merged(
        self, small: list[tuple[File, pa.Table]], schema: pa.Schema, folder: str
    ) -> File:
        if len(small) == 1:
            return small[0][0]
        rows = pa.concat_tables([rows for _, rows in small], promote_options="default")
        columns = pa.schema([part for part in schema if part.name in rows.column_names])
        return self.write_file(rows.select(columns.names).cast(columns), folder)

    def _read_file(self, file: File) -> bytes | None:
        """The content of a committed file; None if it is not the one that was written."""
        with suppress(FileNotFoundError), self._open_file(file) as stream:
            content: bytes = stream.readall()
            if hashlib.sha256(content).hexdigest() == file.sha256:
                return content
        return None

    def _open_file(self, file: File) -> pa.NativeFile:
        return self.filesystem.open_input_stream(self.absolute(file.path))

    def remove_merged(self) -> None:
        """Remove manifests whose files were merged a day ago, and files that no manifest lists since then."""
        chain = list(read_chain(self._read, self.number))
        listed = {file.path for manifest in chain for file in manifest.files}
        merged = [manifest for manifest in chain if manifest.start < manifest.number]
        infos = self.filesystem.get_file_info([self.manifest_name(m.number) for m in merged])
        last = time.time() - _RETENTION
        spans = [
            (manifest.start, manifest.number)
            for manifest, info in zip(merged, infos, strict=True)
            if info.mtime_ns is not None and info.mtime_ns < last * 1e9
        ]
        for number in self._numbers():
            if any(start <= number < end for start, end in spans):
                before = self._read_if_any(number)
                names = {file.path for file in before.files} - listed if before else set()
                for name in names:
                    leftovers.delete(self.filesystem, self.absolute(name))
                for folder in {name.rpartition("/")[0] for name in names}:
                    if not self._list(folder):
                        leftovers.delete_folder(self.filesystem, self.absolute(folder))
                leftovers.delete(self.filesystem, self.manifest_name(number))

    def publish(self, manifest: Manifest, newest: int) -> bool:
        """Commit a manifest as the next one, unless another writer commits before.

        Parameters
        ----------
        manifest : Manifest
            What `merge` has returned.
        newest : int
            What `read_newest` returned before ``refresh``; 0 for None.
        """
        number, last = manifest.number, self.manifest
        name, content = self.manifest_name(number), manifest.encode()
        if self._exists(name):
            return False
        if last is not None and not newest:
            self._mark_newest(last.number)  # its writer has not done so yet, or crashed before
        if self.filesystem.type_name in leftovers.OBJECT_STORES:
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
        leftovers.write_file(self.filesystem, name, content)

    def _mark_newest(self, number: int) -> None:
        """Store the number of a complete manifest, so that readers notice when it is missing later."""
        name, content = self.absolute(_NEWEST), f"{number:020}\n".encode()
        is_whole = self.filesystem.type_name in leftovers.OBJECT_STORES  # for readers, at any time
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
            raise damaged(_NEWEST, f"{len(content)} bytes", "21 bytes")
        return int(content)

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
                raise damaged(file.path, f"{size} bytes", f"{file.bytes} bytes")
            if check == "content":
                with self._open_file(file) as stream:
                    digest = hashlib.sha256(stream.readall()).hexdigest()
                if digest != file.sha256:
                    raise damaged(file.path, f"SHA-256 {digest}", file.sha256)

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
        """The numbers of the manifests, also of merged ones that are still there."""
        names = (info.base_name for info in self._list(_MANIFESTS))
        return [int(n[:-5]) for n in names if re.fullmatch(r"\d{20}\.json", n)]

    def _list(self, folder: str) -> list[pafs.FileInfo]:
        return leftovers.list_files(self.filesystem, self.absolute(folder))

    def _exists(self, name: str) -> bool:
        return bool(self.filesystem.get_file_info(name).is_file)

    def _read(self, number: int) -> Manifest | None:
        with self.filesystem.open_input_stream(self.manifest_name(number)) as stream:
            return decode(stream.readall())

    def _read_if_any(self, number: int) -> Manifest | None:
        """The manifest with a number; None also if it was merged, and removed."""
        with suppress(FileNotFoundError):
            return self._read(number)
        return None
