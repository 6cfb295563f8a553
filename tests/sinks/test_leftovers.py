"""Folders of targets, which others create and delete meanwhile."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow.fs as pafs

from streamops.sinks import leftovers


def test_a_folder_is_listed_while_it_is_created(tmp_path: Path) -> None:
    """PyArrow lists it first, and then looks whether there is one."""
    files = pafs.LocalFileSystem()
    folders = [tmp_path / str(number) for number in range(2_000)]
    creator = threading.Thread(target=lambda: [folder.mkdir() for folder in folders])
    creator.start()
    for folder in folders:
        while creator.is_alive() and not folder.exists():
            assert leftovers.list_entries(files, str(folder)) == []
    creator.join()
