"""Set the checkpoint of a query back to what its target has."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import PurePosixPath

from pyarrow import fs

from streamops.kernel.conninfo import public_path
from streamops.sinks import conditions
from streamops.sinks.core.rewinding import later_files, unreadable_stores
from streamops.sinks.sink import Sink
from streamops.spark.identity import unload_state_stores

__all__ = ["rewind"]


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
    files, root = fs.FileSystem.from_uri(checkpoint) if "://" in checkpoint else _local(checkpoint)
    query = _read_query(files, root, checkpoint)
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


def _local(path: str) -> tuple[fs.FileSystem, str]:
    return fs.LocalFileSystem(), path.rstrip("/")


def _read_query(files: fs.FileSystem, root: str, checkpoint: str) -> str:
    try:
        with files.open_input_stream(f"{root}/metadata") as stream:
            return str(json.loads(stream.read())["id"])
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
