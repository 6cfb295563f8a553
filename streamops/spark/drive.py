"""The drive: a core over a streaming or a batch frame.

Streaming: pack, shuffle by shard, step behind a state API, unpack. Batch: pack, shuffle by
shard, run. The drive knows no operator; it calls whatever satisfies the contract.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming.state import GroupStateTimeout

from streamops.kernel.codec import ipc_read
from streamops.kernel.columns import concat
from streamops.kernel.contract import Core, Spec
from streamops.kernel.errors import SpecError
from streamops.kernel.time import MAX_INSTANT, MIN_INSTANT
from streamops.spark.columns import arrow_schema, column, refuse_collated, spark_schema
from streamops.spark.packing import PACKED, packer, unpacker
from streamops.spark.preflight import (
    INSTANT,
    LATENESS,
    METRICS,
    ONCE,
    STATE_API,
    WATERMARK,
    carried_watermark,
    metric_name,
    refuse_unchainable,
    state_api,
)
from streamops.spark.results import declared
from streamops.spark.runners import (
    COUNTS,
    EMITTED,
    STORED,
    Advance,
    ShardProcessor,
    by_group_state,
)
from streamops.spark.transform import Transform

__all__ = ["drive"]


def drive(transform: Transform, frame: DataFrame) -> DataFrame:
    """The frame that the transform makes of this one."""
    where = transform.operator
    schema = arrow_schema(frame, where=where)
    settings = transform.settings
    refuse_collated(frame, settings.reads, where=where)
    carried = None
    if frame.isStreaming:
        carried = carried_watermark(
            frame,
            settings.delay,
            settings.lag,
            time=settings.time,
            where=where,
            of_results=settings.of_results,
        )
    spec = settings.bind(schema, carried=carried)
    name, names = metric_name(frame, transform.options.name)
    if transform.options.engine != "kernel":
        if frame.isStreaming and _insists(transform):
            refuse_unchainable(frame, "native", where=where)
        placeable = _observed(transform, frame, spec, name).where(_usable(spec))
        native = transform.native(placeable, spec, _insists(transform))
        if native is not None:
            return declared(native, frame, spec, _mark(frame, spec, names, "native"))
        if _insists(transform):
            raise _no_native(transform, frame)
    if not frame.isStreaming:
        batch = _batch(transform, _observed(transform, frame, spec, name), spec)
        return declared(batch, frame, spec, None)
    return _stream(transform, frame, spec, name, names)


def _insists(transform: Transform) -> bool:
    return transform.options.engine == "native"


def _stream(
    transform: Transform, frame: DataFrame, spec: Spec, name: str, names: list[str]
) -> DataFrame:
    options = transform.options
    api = state_api(frame, options.state_api, where=transform.operator)
    advance = Advance(transform.operator, transform.core, spec, options.shards)
    shards = _packed(transform, frame, spec).groupBy("shard")
    if api == "applyInPandasWithState":
        emitted = shards.applyInPandasWithState(
            by_group_state(advance),
            EMITTED,
            STORED,
            "append",
            GroupStateTimeout.EventTimeTimeout,
        )
    else:
        emitted = shards.transformWithStateInPandas(
            ShardProcessor(advance), EMITTED, "append", "EventTime"
        )
    emitted = emitted.observe(name, *_totals())
    rows = emitted.select("emitted").mapInArrow(unpacker(spec.output), spark_schema(spec.output))
    return declared(rows, frame, spec, _mark(frame, spec, names, api))


def _mark(frame: DataFrame, spec: Spec, names: list[str], api: str) -> dict[str, Any] | None:
    """What the next operator must know, for the event-time column of the result.

    A Python map, or taking a field of a window, loses the watermark's mark on the column; the
    watermark itself goes on.
    """
    if not frame.isStreaming:
        return None
    fields = frame.schema.fields
    once = next((f.metadata[ONCE] for f in fields if ONCE in (f.metadata or {})), None)
    return {
        WATERMARK: _spark_delay(frame, spec) // 1_000,
        LATENESS: spec.lag,
        METRICS: ",".join(names),
        STATE_API: api,
        **({} if "window_start" in spec.output.names else {INSTANT: True}),
        **({} if once is None else {ONCE: once}),
    }


def _totals() -> list[Column]:
    """The counts over all shards of a micro-batch."""
    told = {count: F.col("counts")[position] for position, count in enumerate(COUNTS)}
    watermark = F.timestamp_micros(F.max(told.pop("watermark")))
    sums = [F.sum(each).alias(count) for count, each in told.items()]
    return [*sums, watermark.alias("watermark")]


def _packed(transform: Transform, frame: DataFrame, spec: Spec) -> DataFrame:
    """Packed rows: a shard, its pack, and an event time that is always null."""
    shards = transform.options.shards
    # By position: PySpark's Python maps fail on names with dots or backticks in them.
    inputs = [column(name).alias(f"c{i}") for i, name in enumerate(spec.input.names)]
    rows = frame.select(*inputs)
    define = frame.isStreaming and spec.delay is not None
    pack = packer(transform.core, spec, shards, newest=define)
    packed = rows.mapInArrow(pack, PACKED)
    if not frame.isStreaming:
        return packed
    delay = _spark_delay(frame, spec)
    if define:
        milliseconds = f"{delay // 1_000} milliseconds"
        # The rows that carried the greatest event times have done their work.
        return packed.withWatermark("event_time", milliseconds).where(F.col("event_time").isNull())
    # The frame's watermark is still in force below; only its mark on the column was lost.
    marked = F.col("event_time").alias("event_time", metadata={WATERMARK: delay // 1_000})
    return packed.select("shard", "packed", marked)


def _spark_delay(frame: DataFrame, spec: Spec) -> int:
    if spec.delay is not None:
        return spec.delay + spec.lag
    carried = carried_watermark(frame, None, 0, time=spec.time, where="")
    assert carried is not None, "a frame without a watermark was refused before"
    return carried


def _batch(transform: Transform, frame: DataFrame, spec: Spec) -> DataFrame:
    return (
        _packed(transform, frame, spec)
        .groupBy("shard")
        .applyInArrow(_runner(transform.core, spec), spark_schema(spec.output))
    )


def _runner(core: Core, spec: Any) -> Any:
    def run(table: pa.Table) -> pa.Table:
        return core.run(spec, _unpacked(core, spec, table))

    return run


def _unpacked(core: Core, spec: Any, table: pa.Table) -> pa.Table:
    packs = [pack.as_buffer() for pack in table.column("packed")]
    packed = [ipc_read(pack) for pack in packs if pack.size]
    return concat(packed or [core.pack(spec, spec.input.empty_table())])


def _usable(spec: Spec) -> Column:
    """Whether the row's event time can be placed; null where it is null."""
    bounds = (F.timestamp_micros(F.lit(micros)) for micros in (MIN_INSTANT, MAX_INSTANT))
    return column(spec.time).between(*bounds)


def _observed(transform: Transform, frame: DataFrame, spec: Spec, name: str) -> DataFrame:
    """Count what a native operator, or a batch, would leave out without a word.

    Spark refuses two observations of one name in a query. Nobody listens to those of a batch
    unasked, and two operators in the branches of a union or a join would be refused for them.
    """
    if not frame.isStreaming and not _is_named(transform):
        return frame
    rejected = F.count_if(~F.coalesce(_usable(spec), F.lit(False)))
    return frame.observe(name, F.count(F.lit(1)).alias("rows"), rejected.alias("rejected"))


def _is_named(transform: Transform) -> bool:
    """Whether the user gave a name; else it is the operator's own."""
    return transform.options.name != transform.operator.rpartition(".")[2]


def _no_native(transform: Transform, frame: DataFrame) -> SpecError:
    return SpecError(
        "NO_NATIVE_ENGINE",
        "Spark's own operators cannot say this",
        where=transform.operator,
        got=f"engine='native' in {transform!r}",
        expected="a window that Spark has there (docs/windows.md); "
        "stragglers='drop', allowed_lateness=0 and early='never' on a streaming frame; no routing; "
        "empty='skip'; no aggregate with a bound or without a word in Spark; "
        "spark.sql.ansi.enabled=true for sums of integers and decimals and means of decimals",
        fix="leave engine out, or write engine='kernel'",
    )
