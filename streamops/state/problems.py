"""What is wrong with a checkpoint, or prevents that it is rewritten, and how to fix it."""

from __future__ import annotations

from collections.abc import Iterator

from streamops.environment.settings import PROVIDER
from streamops.kernel.errors import CheckpointError
from streamops.state import conditions
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
        yield conditions.CHECKPOINT_UNFINISHED.error(where=where, got=f"the file {MARKER}")
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
        yield conditions.FIRST_PLAN_TORN.error(
            where=where, got="a temporary file in `offsets`, and no plan"
        )
        return
    if not checkpoint.commits:
        yield conditions.NOTHING_COMMITTED.error(where=where, got="no file in `commits`")
        return
    for problem in (*_batch_problems(checkpoint), *_format_problems(checkpoint)):
        problem.locate(where)
        yield problem


def _batch_problems(checkpoint: Checkpoint) -> Iterator[CheckpointError]:
    last = checkpoint.last
    if checkpoint.offsets[-1:] > [last]:
        yield conditions.BATCH_UNFINISHED.error(
            got=f"offsets of micro-batch {checkpoint.offsets[-1]}, commits up to {last}"
        )
    if last not in checkpoint.offsets:
        yield conditions.OFFSETS_MISSING.error(
            last=last, got=f"commits up to {last}, offsets {checkpoint.offsets[-3:]}"
        )


def _format_problems(checkpoint: Checkpoint) -> Iterator[CheckpointError]:
    if checkpoint.last not in checkpoint.offsets:
        return
    settings = checkpoint.settings
    versions = {log: checkpoint.read_log(log, checkpoint.last)[0] for log in ("offsets", "commits")}
    if settings.get(_FORMAT, "1") != "1" or set(versions.values()) != {"v1"}:
        yield conditions.CHECKPOINT_FORMAT.error(
            got=f"{_FORMAT}={settings.get(_FORMAT, '1')}, "
            + ", ".join(f"{log} {version}" for log, version in versions.items())
        )
    if checkpoint.provider not in (ROCKSDB_STATE, HDFS_STATE):
        yield conditions.STATE_STORE_UNKNOWN.error(got=settings[PROVIDER])
    if settings.get(_CHECKSUM, "false") != "false":
        yield conditions.ROW_CHECKSUMS.error(got=_CHECKSUM)
    if settings.get(_ENCODING, "unsaferow") != "unsaferow":
        yield conditions.STATE_ENCODING.error(got=f"{_ENCODING}={settings[_ENCODING]}")
    if not (checkpoint.path / METADATA).is_file():
        yield conditions.QUERY_ID_MISSING.error(got=f"no file {METADATA}")
