"""Folders to which tasks write, announced before they do so: what no commit has is found and removed later."""

from __future__ import annotations

from collections.abc import Callable, Iterator
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
    if filesystem.type_name not in OBJECT_STORES:
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


def remove(
    filesystem: pafs.FileSystem, folder: str, is_committed: Callable[[str], bool] | None = None
) -> None:
    """Remove the files of a folder that no commit has, and the folder if it is empty then."""
    has_others = False
    for info in list_files(filesystem, folder):
        if is_committed is not None and is_committed(info.base_name):
            has_others = True
        else:
            filesystem.delete_file(info.path)
    if not has_others:
        with suppress(FileNotFoundError):  # no task has written to it
            filesystem.delete_dir(folder)


def list_files(filesystem: pafs.FileSystem, folder: str) -> list[pafs.FileInfo]:
    """The files of a folder, which need not exist."""
    selector = pafs.FileSelector(folder, allow_not_found=True)
    return [info for info in filesystem.get_file_info(selector) if info.is_file]
