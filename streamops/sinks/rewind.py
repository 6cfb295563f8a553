"""Set the checkpoint of a query back to what its target has."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import PurePosixPath

from pyarrow import fs

from streamops.kernel.databases import public_path
from streamops.sinks import conditions
from streamops.sinks.sink import Sink
from streamops.spark.identity import unload_state_stores

_LOG = re.compile(r"(?P<log>commits|offsets)/\.?(?P<batch>\d+)(?:\..*)?")
"""Also checksums such as ``.7.crc``, and temporary files."""

_STATE = re.compile(
    r"(?P<store>state/\d+/\d+(?:/[^/]+)?)/(?P<hidden>\.?)(?P<version>\d+)(?:_[^/.]+)?"
    r"\.(?P<type>zip|snapshot|changelog|delta)(?P<rest>\..*)?"
)
"""A snapshot, or the changes of a micro-batch, of RocksDB and of HDFSBackedStateStoreProvider.

Format 2 of a checkpoint has an identifier behind the version.
"""

_SCHEMA = re.compile(r"state/\d+/(?:_metadata/v2|_stateSchema/[^/]+)/\.?(?P<batch>\d+)(?:[._].*)?")
"""Metadata of an operator, and a schema of its state, which a run writes in its first micro-batch."""


def later_files(files: Iterable[str], batch: int) -> list[str]:
    """The files that are later than a micro-batch, in the order in which they are removed.

    The state is first. If the removal is interrupted, Spark does not start from micro-batches whose state is
    missing, so the query neither skips a micro-batch nor uses a state that is too new. The data files of
    RocksDB stay: they have unique names, and Spark removes those that no snapshot refers to.

    Parameters
    ----------
    files : iterable of str
        Paths below the checkpoint.
    batch : int
        The last micro-batch that stays.

    Examples
    --------
    >>> later_files(["offsets/8", "offsets/9", "commits/9", "state/0/0/9.delta", "state/0/0/10.delta"], 8)
    ['state/0/0/10.delta', 'commits/9', 'offsets/9']
    """
    found = []
    for file in files:
        if of := _STATE.fullmatch(file):  # version N + 1 is the state after micro-batch N
            found.append((0, 1 - int(of["version"]), file))
        elif of := _SCHEMA.fullmatch(file):
            found.append((1, -int(of["batch"]), file))
        elif of := _LOG.fullmatch(file):
            found.append((2, -int(of["batch"]), file))
    return [file for *_, number, file in sorted(found) if -number > batch]


def unreadable_stores(files: Iterable[str], batch: int) -> list[str]:
    """The state stores that cannot be read as of a micro-batch.

    A state is read from the last snapshot at or before it, or from nothing, and all changes since.

    Examples
    --------
    >>> unreadable_stores(["state/0/0/4.zip", "state/0/0/6.zip", "state/0/1/5.zip"], 4)
    ['state/0/0']
    """
    snapshots: defaultdict[str, set[int]] = defaultdict(set)
    changes: defaultdict[str, set[int]] = defaultdict(set)
    for file in files:
        of = _STATE.fullmatch(file)
        if of and not of["hidden"] and not of["rest"]:
            versions = snapshots if of["type"] in {"zip", "snapshot"} else changes
            versions[of["store"]].add(int(of["version"]))
    wanted = batch + 1
    return [
        store
        for store in sorted({*snapshots, *changes})
        for last in [max((n for n in snapshots[store] if n <= wanted), default=0)]
        if not changes[store].issuperset(range(last + 1, wanted + 1))
    ]


def rewind(checkpoint: str, sink: Sink, *, dry_run: bool = True) -> list[str]:
    """Set the checkpoint of a stopped query back to the last micro-batch that its target has.

    Use it when the target was restored from an older copy, and the sink refuses the next micro-batch with
    ``BATCH_GAP``. The query then continues with the micro-batch after it, and reads the rows that the target
    lacks again, in other micro-batches. Spark keeps 100 micro-batches by default
    (``spark.sql.streaming.minBatchesToRetain``), and the source must still have their rows. Other targets of the
    query have to be restored to the same micro-batch: they refuse the next one.

    First end the Spark application that ran the query. Up to
    ``spark.sql.streaming.stateStore.maintenanceInterval`` after a query has stopped, its executors may still
    write a snapshot of the state that is removed here.

    Parameters
    ----------
    checkpoint : str
        The checkpoint location: a path, or a URI of a file system that PyArrow supports.
    sink : sink
        The sink with the restored target.
    dry_run : bool
        Only return the files that would be removed.

    Returns
    -------
    list of str
        The removed files, in this order: the state after later micro-batches, in all stores and partitions,
        with their metadata; commits (``commits``) and plans (``offsets``). The logs of sources stay.

    Raises
    ------
    SinkError
        ``NOT_A_CHECKPOINT``: there is no checkpoint. ``NEW_CHECKPOINT``: the target belongs to another
        query. ``LEDGER_LOST``: the target has no entry of the sink. ``REWIND_TOO_FAR``: the checkpoint
        does not have that micro-batch, or the state after it, any more.

    Examples
    --------
    >>> from streamops import sinks
    >>> sink = sinks.postgres("postgresql://host/db", "daily", key="page")
    >>> sinks.rewind("checkpoints/daily", sink)
    ['checkpoints/daily/state/0/0/10.delta', 'checkpoints/daily/commits/9', 'checkpoints/daily/offsets/9']
    """
    files, root, query = open_checkpoint(checkpoint)
    entry = sink.read_ledger()
    if entry is None:
        raise conditions.NO_LEDGER_ENTRY.error(query=query, got="no entry")
    if entry.query != query:
        raise conditions.OTHER_CHECKPOINT.error(query=entry.query, got=f"query {query}")
    if not dry_run:
        unload_state_stores()
    found = _list(files, root)
    commits, plans = (_numbered(found, name) for name in ("commits", "offsets"))
    lost = unreadable_stores(found, entry.batch)
    if lost or entry.batch not in commits or entry.batch not in plans:
        batches = f"micro-batches {sorted(commits)[:1]} to {sorted(commits)[-1:]}"
        raise conditions.REWIND_TOO_FAR.error(
            batch=entry.batch, got=f"{batches}, no state in {lost}" if lost else batches
        )
    removed = [f"{root}/{file}" for file in later_files(found, entry.batch)]
    for file in () if dry_run else removed:
        files.delete_file(file)
    return removed


def open_checkpoint(checkpoint: str) -> tuple[fs.FileSystem, str, str]:
    """Return the file system of a checkpoint, its path there, and the identifier of its query."""
    is_uri = "://" in checkpoint
    files, root = (
        fs.FileSystem.from_uri(checkpoint) if is_uri else (fs.LocalFileSystem(), checkpoint)
    )
    root = root.rstrip("/")
    try:
        with files.open_input_stream(f"{root}/metadata") as stream:
            return files, root, str(json.loads(stream.read())["id"])
    except (OSError, ValueError, KeyError) as error:
        raise conditions.NOT_A_CHECKPOINT.error(
            got=f"{public_path(checkpoint)}: {error}"
        ) from error


def _list(files: fs.FileSystem, root: str) -> list[str]:
    """All files below the checkpoint, as paths below it."""
    selector = fs.FileSelector(root, recursive=True)
    below = (info for info in files.get_file_info(selector) if info.type == fs.FileType.File)
    return [info.path.removeprefix(f"{root}/") for info in below]


def _numbered(files: Sequence[str], folder: str) -> set[int]:
    """The numbers among the names of the files of a folder."""
    paths = map(PurePosixPath, files)
    return {int(p.name) for p in paths if str(p.parent) == folder and p.name.isdecimal()}
