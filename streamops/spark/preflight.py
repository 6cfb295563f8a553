"""What an operator needs of a session and a frame, checked while the plan is built."""

from __future__ import annotations

import importlib.metadata

from pyspark.sql import DataFrame

from streamops.kernel.errors import EnvironmentError, SpecError, WatermarkError
from streamops.kernel.time import format_duration
from streamops.spark.transform import StateApi

__all__ = ["LATENESS", "METRICS", "STATE_API", "WATERMARK", "carried_watermark", "state_api"]

WATERMARK = "spark.watermarkDelayMs"
"""Key under which Spark shows a watermark in a column's metadata."""

STATE_API = "streamops.state_api"
"""Key under which an operator tells, in its output, which state API it uses."""

METRICS = "streamops.metrics"
"""Key under which an operator tells which names of counts are taken."""

LATENESS = "streamops.allowed_lateness"
"""Key under which an operator tells how late, in microseconds, its corrections may come."""

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_PROTOBUF = (6, 33, 5)


def carried_watermark(
    frame: DataFrame, delay: int | None, allowed_lateness: int, *, time: str, where: str
) -> int | None:
    """Delay, in microseconds, of the watermark that a streaming frame brings.

    None if it brings none and the operator defines its own.

    Raises
    ------
    WatermarkError
        ``WATERMARK_MISSING``, ``WATERMARK_TWICE`` or ``WATERMARK_TOO_TIGHT``.
    """
    marks = {f.name: f.metadata for f in frame.schema.fields if WATERMARK in (f.metadata or {})}
    if not marks:
        if delay is not None:
            return None
        raise WatermarkError(
            "WATERMARK_MISSING",
            "a streaming frame needs a watermark, or its state would grow for ever",
            where=where,
            got=f"a frame without a watermark, and no delay (event time {time!r})",
            expected="delay=..., or a frame with withWatermark(...)",
            fix='say how long results wait for late rows: delay="30 seconds"',
        )
    name, mark = next(iter(marks.items()))
    carried = int(mark[WATERMARK]) * 1_000
    if delay is not None:
        raise WatermarkError(
            "WATERMARK_TWICE",
            "the frame already has a watermark, and Spark does not allow a second one",
            where=where,
            got=f"delay={format_duration(delay)!r} on a frame with a watermark on {name!r}",
            expected="one of the two",
            fix="leave delay out; it is the frame's own delay less allowed_lateness",
        )
    # An operator before this one publishes as its own watermark passes: with more lateness than
    # it has, ours would be ahead of it, and find its results late.
    room = int(mark.get(LATENESS, carried))
    if allowed_lateness > room:
        raise WatermarkError(
            "WATERMARK_TOO_TIGHT",
            "the frame's watermark leaves no room for the allowed lateness",
            where=where,
            got=f"allowed_lateness={format_duration(allowed_lateness)!r}, watermark on {name!r} "
            f"with a delay of {format_duration(carried)!r}",
            expected=f"allowed_lateness up to {format_duration(room)!r}: the delay of the frame's "
            "watermark, or the allowed_lateness of the operator before",
            fix="call withWatermark with delay + allowed_lateness, or leave it to the operator: "
            "delay=...; in a chain, give the first operator the lateness",
        )
    return carried


def state_api(frame: DataFrame, wanted: StateApi, *, where: str) -> StateApi:
    """The state API to use; never "auto".

    Raises
    ------
    SpecError
        ``STATE_API_NOT_CHAINABLE``: the frame comes from an operator nothing may follow.
    EnvironmentError
        ``ROCKSDB_REQUIRED`` or ``PROTOBUF_REQUIRED``.
    """
    behind = {(field.metadata or {}).get(STATE_API) for field in frame.schema.fields}
    if "applyInPandasWithState" in behind:
        raise SpecError(
            "STATE_API_NOT_CHAINABLE",
            "no stateful operator may follow applyInPandasWithState in the same query",
            where=where,
            got="a frame from an operator with state_api='applyInPandasWithState'",
            expected="transformWithStateInPandas in the operator before",
            fix="leave state_api out there; it needs RocksDB",
        )
    if wanted == "applyInPandasWithState":
        return wanted
    provider = frame.sparkSession.conf.get(PROVIDER, "") or ""
    if "RocksDB" not in provider:
        raise EnvironmentError(
            "ROCKSDB_REQUIRED",
            "transformWithStateInPandas keeps its state in RocksDB, which is not configured",
            where=where,
            got=f"{PROVIDER}={provider}",
            expected=ROCKSDB,
            fix=f'spark.conf.set("{PROVIDER}", "{ROCKSDB}") before the query starts, or '
            'state_api="applyInPandasWithState" if this is the only stateful operator',
        )
    found = _version("protobuf")
    if found < _PROTOBUF:
        raise EnvironmentError(
            "PROTOBUF_REQUIRED",
            "transformWithStateInPandas needs protobuf",
            where=where,
            got=".".join(map(str, found)) or "no protobuf",
            expected=f"protobuf {'.'.join(map(str, _PROTOBUF))} or later",
            fix='pip install "protobuf>=6.33.5"',
        )
    return "transformWithStateInPandas"


def _version(package: str) -> tuple[int, ...]:
    try:
        text = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ()
    return tuple(int(part) for part in text.split(".") if part.isdigit())
