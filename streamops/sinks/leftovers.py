"""Folders to which tasks write, announced before they do so: what no commit has is found and removed later."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import pyarrow.fs as pafs

OBJECT_STORES = {"s3", "gcs", "abfs"}
"""File systems without folders. A file is there as a whole, or not at all."""


class Announced(NamedTuple):
    """A folder to which tasks write.

    Parameters
    ----------
    folder : str
        The last part of its name.
    number : int
        The last commit before it was announced.
    path : str
        The file that announces it.
    """

    folder: str
    number: int
    path: str


def make_folder(filesystem: pafs.FileSystem, folder: str) -> None:
    """Create a folder where there are some."""
    base = getattr(filesystem, "base_fs", filesystem)
    if base.type_name not in OBJECT_STORES:
        filesystem.create_dir(folder, recursive=True)


def write_file(filesystem: pafs.FileSystem, name: str, content: Any) -> None:
    """Write a file, and its folder."""
    make_folder(filesystem, name.rpartition("/")[0])
    with filesystem.open_output_stream(name) as stream:
        stream.write(content)


def announce(filesystem: pafs.FileSystem, where: str, folder: str, number: int) -> None:
    """Store that tasks write to a folder, of which `where` gets the last part of the name."""
    write_file(filesystem, f"{where}/{number:020}-{folder.rpartition('/')[2]}", b"")


def announced(filesystem: pafs.FileSystem, where: str) -> Iterator[Announced]:
    """The folders that were announced there."""
    for info in list_files(filesystem, where):
        number, _, folder = info.base_name.partition("-")
        yield Announced(folder, int(number), info.path)


def clean_up(
    filesystem: pafs.FileSystem,
    where: str,
    committed_since: Callable[[int], Collection[str] | None],
    remove: Callable[[str, Collection[str]], None],
) -> None:
    """Remove what was written to announced folders and is in no commit.

    Parameters
    ----------
    filesystem : FileSystem
        The files of the target.
    where : str
        Where folders are announced.
    committed_since : function
        Returns the names of all files that were committed after a commit. None, if the ledger has no entry
        of the sink since, so that the run which announced a folder then can still commit it; or if that is
        not known any more.
    remove : function
        Removes what was written to a folder, but for these names.
    """
    for folder, number, path in announced(filesystem, where):
        committed = committed_since(number)
        if committed is not None:
            remove(folder, committed)
            delete(filesystem, path)


def remove(filesystem: pafs.FileSystem, folder: str, committed: Collection[str] = ()) -> None:
    """Remove the files of a folder that no commit has, and the folder if it is empty then."""
    found = list_files(filesystem, folder)
    for info in found:
        if info.base_name not in committed:
            delete(filesystem, info.path)
    if not any(info.base_name in committed for info in found):
        delete_folder(filesystem, folder)


def delete_folder(filesystem: pafs.FileSystem, folder: str) -> None:
    """Delete a folder, if there is one: object stores have none."""
    with suppress(OSError):
        filesystem.delete_dir(folder)


def delete(filesystem: pafs.FileSystem, name: str) -> None:
    """Delete a file, if it is there."""
    with suppress(FileNotFoundError):
        filesystem.delete_file(name)


def list_files(filesystem: pafs.FileSystem, folder: str) -> list[pafs.FileInfo]:
    """The files of a folder, which need not exist."""
    return [info for info in list_entries(filesystem, folder) if info.is_file]


def list_entries(filesystem: pafs.FileSystem, folder: str) -> list[pafs.FileInfo]:
    """The files and folders in a folder, which need not exist."""
    selector = pafs.FileSelector(folder, allow_not_found=True)
    try:
        return list(filesystem.get_file_info(selector))
    except FileNotFoundError:
        # PyArrow lists a folder before it looks whether there is one: it was created in between.
        return list(filesystem.get_file_info(selector))
