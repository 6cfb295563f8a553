"""What is wrong with a checkpoint, or prevents that it is rewritten, and how to fix it."""

from __future__ import annotations

from collections.abc import Iterator

from streamops.environment.settings import PROVIDER
from streamops.kernel.errors import CheckpointError
from streamops.state.checkpoint import (
    HDFS_STATE,
    MARKER,
    METADATA,
    ROCKSDB_STATE,
    Checkpoint,
)

_FORMAT = "spark.sql.streaming.stateStore.checkpointFormatVersion"
_CHECKSUM = "spark.sql.streaming.stateStore.rowChecksum.enabled"
_ENCODING = "spark.sql.streaming.stateStore.encodingFormat"


def find_problems(checkpoint: Checkpoint) -> Iterator[CheckpointError]:
    """Yield each problem of the files. If the newest entries are torn, it is the last one.

    Raises
    ------
    CheckpointError
        ``CHECKPOINT_PATH``, or ``CHECKPOINT_UNSUPPORTED``.
    """
    where = str(checkpoint.path)
    if checkpoint.is_unfinished:
        yield CheckpointError(
            "CHECKPOINT_UNFINISHED",
            "a rewrite into this directory did not end",
            where=where,
            got=f"the file {MARKER}",
            expected="a checkpoint that was verified",
            fix="delete the directory, and rewrite the original again: it is unchanged",
        )
        return
    *_, _last = [*checkpoint.files(), None]
    try:
        for log in ("offsets", "commits"):
            for batch in getattr(checkpoint, log)[-2:]:
                checkpoint.read_log(log, batch)
    except CheckpointError as torn:
        yield torn
        return
    if checkpoint.is_cut_off:
        yield CheckpointError(
            "CHECKPOINT_TORN",
            "the driver crashed while it wrote the plan of the first micro-batch, and Spark refuses to start from "
            "this checkpoint with STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY",
            where=where,
            got="a temporary file in `offsets`, and no plan",
            expected="an empty directory, or at least one planned micro-batch",
            fix="delete the directory, and start the query again: nothing has been processed or written yet",
        )
        return
    if not checkpoint.commits:
        yield CheckpointError(
            "CHECKPOINT_EMPTY",
            "no micro-batch of the query was committed, so there is no state",
            where=where,
            got="no file in `commits`",
            expected="at least one committed micro-batch",
            fix="start the query, which finishes its first micro-batch",
        )
        return
    yield from _batch_problems(checkpoint, where)
    yield from _format_problems(checkpoint, where)


def _batch_problems(checkpoint: Checkpoint, where: str) -> Iterator[CheckpointError]:
    last = checkpoint.last
    if checkpoint.offsets[-1:] > [last]:
        yield CheckpointError(
            "BATCH_UNFINISHED",
            "the newest micro-batch was started, but not committed",
            where=where,
            got=f"offsets of micro-batch {checkpoint.offsets[-1]}, commits up to {last}",
            expected="a query that was stopped between two micro-batches",
            fix="start the query once, which repeats the micro-batch, and stop it after that; with the "
            "trigger availableNow it stops by itself",
        )
    if last not in checkpoint.offsets:
        yield CheckpointError(
            "CHECKPOINT_TORN",
            "a committed micro-batch has no offsets",
            where=where,
            got=f"commits up to {last}, offsets {checkpoint.offsets[-3:]}",
            expected=f"a file offsets/{last}",
            fix="restore the checkpoint from a copy",
        )


def _format_problems(checkpoint: Checkpoint, where: str) -> Iterator[CheckpointError]:
    if checkpoint.last not in checkpoint.offsets:
        return
    settings = checkpoint.settings
    versions = {log: checkpoint.read_log(log, checkpoint.last)[0] for log in ("offsets", "commits")}
    if settings.get(_FORMAT, "1") != "1" or set(versions.values()) != {"v1"}:
        yield CheckpointError(
            "CHECKPOINT_FORMAT",
            "the checkpoint has a format in which micro-batches refer to files of the state by id",
            where=where,
            got=f"{_FORMAT}={settings.get(_FORMAT, '1')}, "
            + ", ".join(f"{log} {version}" for log, version in versions.items()),
            expected="format 1, and logs of version v1",
            fix=f"start from a new checkpoint with {_FORMAT}=1; rewriting format 2 is not supported",
        )
    if checkpoint.provider not in (ROCKSDB_STATE, HDFS_STATE):
        yield _unsupported(
            "CHECKPOINT_UNSUPPORTED",
            "the state is in a state store that streamops cannot write",
            settings[PROVIDER],
            f"{ROCKSDB_STATE} or {HDFS_STATE}",
            where,
        )
    if settings.get(_CHECKSUM, "false") != "false":
        yield _unsupported(
            "CHECKPOINT_UNSUPPORTED",
            "the rows of the state have checksums",
            _CHECKSUM,
            "false",
            where,
        )
    if settings.get(_ENCODING, "unsaferow") != "unsaferow":
        yield _unsupported(
            "CHECKPOINT_UNSUPPORTED",
            "the rows of the state are not in Spark's own encoding",
            f"{_ENCODING}={settings[_ENCODING]}",
            "unsaferow",
            where,
        )
    if not (checkpoint.path / METADATA).is_file():
        yield CheckpointError(
            "CHECKPOINT_INCONSISTENT",
            "the file with the id of the query is missing",
            where=where,
            got=f"no file {METADATA}",
            expected="a checkpoint as Spark wrote it",
            fix="restore the checkpoint from a copy",
        )


def _unsupported(code: str, what: str, got: str, expected: str, where: str) -> CheckpointError:
    return CheckpointError(
        code,
        what,
        where=where,
        got=got,
        expected=expected,
        fix="start from a new checkpoint to change the number of shards; the query itself is not affected",
    )
