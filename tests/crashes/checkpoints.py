"""The states of a checkpoint that a crash leaves, made from the checkpoint of a query that did not crash."""

from __future__ import annotations

import re
import shutil
import uuid
from pathlib import Path

from tests.crashes.cases import LAST
from tests.crashes.targets import truncate

_STATE = re.compile(r"(\d+)\.(zip|delta|changelog)")
"""The files that complete a version of a state store, of RocksDB and of HDFSBackedStateStoreProvider."""


def lose_offset(checkpoint: Path, number: int) -> bool:
    """As before the plan of the micro-batch was written."""
    _leave_torn(checkpoint / "offsets" / str(number), keep=False)
    _lose_plan(checkpoint, number)
    return True


def tear_offset(checkpoint: Path, number: int) -> bool:
    """While the plan is written. The log of a file source is written before."""
    _leave_torn(checkpoint / "offsets" / str(number), keep=True)
    if number < LAST:  # if that log stayed, the next start would plan one file more
        _lose_plan(checkpoint, number)
    return True


def tear_commit(checkpoint: Path, number: int) -> bool:
    """While the end of the micro-batch is written."""
    commits = checkpoint / "commits"
    commits.mkdir(exist_ok=True)
    (commits / f".{number}.{uuid.uuid4()}.tmp").write_bytes(b"v1\n{")
    return True


def tear_state(checkpoint: Path, number: int) -> bool:
    """Let all files of the state after the micro-batch be incomplete."""
    files = _state_files(checkpoint, number)
    for file in files:
        truncate(file)
    return bool(files)


def lose_state(checkpoint: Path, number: int) -> bool:
    """Let every second operator have a temporary file instead of its state after the micro-batch."""
    files = _state_files(checkpoint, number)
    for file in files[::2]:
        _leave_torn(file, keep=True)
    return bool(files)


def last_commit(checkpoint: Path) -> int:
    """The number of the last micro-batch that Spark has committed."""
    return max(int(file.name) for file in (checkpoint / "commits").iterdir() if file.name.isdigit())


def _state_files(checkpoint: Path, number: int) -> list[Path]:
    """The files with the state after a micro-batch: version N + 1."""
    matches = ((f, _STATE.fullmatch(f.name)) for f in sorted((checkpoint / "state").rglob("*")))
    return [file for file, match in matches if match and int(match[1]) == number + 1]


def _leave_torn(file: Path, *, keep: bool) -> None:
    """Remove a file. With `keep`, the first half of it stays under the temporary name that Spark uses."""
    if keep:
        truncate(file)
        file.rename(file.with_name(f".{file.name}.{uuid.uuid4()}.tmp"))
    else:
        file.unlink()
    file.with_name(f".{file.name}.crc").unlink(missing_ok=True)


def _lose_plan(checkpoint: Path, number: int) -> None:
    """Remove what is written right before and after the first plan: logs of files, schemas of the state."""
    for file in (checkpoint / "sources").glob(f"*/{number}"):
        _leave_torn(file, keep=False)
    if number == 0:
        shutil.rmtree(checkpoint / "state", ignore_errors=True)
