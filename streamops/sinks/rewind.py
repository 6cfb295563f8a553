"""Set the checkpoint of a query back to what its target has."""

from __future__ import annotations

import json
from pathlib import PurePosixPath

from pyarrow import fs

from streamops.kernel.errors import SinkError
from streamops.sinks.sink import Sink

__all__ = ["rewind"]

_WHERE = "sinks.rewind"


def rewind(checkpoint: str, sink: Sink, *, dry_run: bool = True) -> list[str]:
    """Set the checkpoint of a stopped query back to the last micro-batch that its target has.

    Use it when the target was restored from an older copy, and the sink refuses the next micro-batch with
    ``BATCH_GAP``. The query then repeats the micro-batches that the target lacks. Spark keeps 100
    micro-batches by default (``spark.sql.streaming.minBatchesToRetain``), and the source must still have
    their rows.

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
        The removed files: plans (``offsets``) and commits (``commits``) of later micro-batches. The state
        of later micro-batches stays, and is overwritten.

    Raises
    ------
    SinkError
        ``NOT_A_CHECKPOINT``: there is no checkpoint. ``NEW_CHECKPOINT``: the target belongs to another
        query. ``LEDGER_LOST``: the target has no entry of the sink. ``REWIND_TOO_FAR``: the checkpoint
        does not have that micro-batch any more.

    Examples
    --------
    >>> from streamops import sinks
    >>> sink = sinks.postgres("postgresql://host/db", "daily", key="page")
    >>> sinks.rewind("checkpoints/daily", sink)  # doctest: +SKIP
    ['checkpoints/daily/commits/9', 'checkpoints/daily/offsets/9']
    """
    files, root = fs.FileSystem.from_uri(checkpoint) if "://" in checkpoint else _local(checkpoint)
    query = _read_query(files, root, checkpoint)
    entry = sink.read_ledger()
    if entry is None:
        raise SinkError(
            "LEDGER_LOST",
            "the target has no ledger entry of this sink",
            where=_WHERE,
            got="no entry",
            expected=f"the entry of query {query}",
            fix="restore the ledger together with the table, or start from a new checkpoint",
        )
    if entry.query != query:
        raise SinkError(
            "NEW_CHECKPOINT",
            "the target belongs to a query with another checkpoint",
            where=_WHERE,
            got=f"query {query}",
            expected=f"query {entry.query}",
            fix="use the checkpoint of that query",
        )
    commits, plans = (_numbered(files, f"{root}/{name}") for name in ("commits", "offsets"))
    if entry.batch not in commits or entry.batch not in plans:
        raise SinkError(
            "REWIND_TOO_FAR",
            "the checkpoint does not have the last micro-batch of the target",
            where=_WHERE,
            got=f"micro-batches {sorted(commits)[:1]} to {sorted(commits)[-1:]}",
            expected=f"micro-batch {entry.batch}",
            fix="restore a newer copy of the target, or start from a new checkpoint",
        )
    # A commit without a plan would be an error, a plan without a commit is a micro-batch to repeat.
    removed = [
        f"{root}/{name}/{number}"
        for name, numbers in (("commits", commits), ("offsets", plans))
        for number in sorted(numbers, reverse=True)
        if number > entry.batch
    ]
    if not dry_run:
        for path in removed:
            parent, name = PurePosixPath(path).parent, PurePosixPath(path).name
            checksum = f"{parent}/.{name}.crc"
            if files.get_file_info(checksum).type != fs.FileType.NotFound:
                files.delete_file(checksum)
            files.delete_file(path)
    return removed


def _local(path: str) -> tuple[fs.FileSystem, str]:
    return fs.LocalFileSystem(), path.rstrip("/")


def _read_query(files: fs.FileSystem, root: str, checkpoint: str) -> str:
    try:
        with files.open_input_stream(f"{root}/metadata") as stream:
            return str(json.loads(stream.read())["id"])
    except (OSError, ValueError, KeyError) as error:
        raise SinkError(
            "NOT_A_CHECKPOINT",
            "there is no checkpoint",
            where=_WHERE,
            got=f"{checkpoint}: {error}",
            expected="the checkpoint location of a query, with a file `metadata`",
            fix="pass what the query has as option checkpointLocation",
        ) from error


def _numbered(files: fs.FileSystem, folder: str) -> set[int]:
    """The numbers of the files of a folder that have one as a name."""
    selector = fs.FileSelector(folder, allow_not_found=True)
    names = [info.base_name for info in files.get_file_info(selector)]
    return {int(name) for name in names if name.isdigit()}
