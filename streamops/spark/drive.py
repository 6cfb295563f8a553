"""The drive: a core over a streaming or a batch frame.

Streaming: pack, shuffle by shard, step behind a state API, unpack. Batch: pack, shuffle by
shard, run. The drive knows no operator; it calls whatever satisfies the contract.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streamops.kernel.contract import Core, Spec
from streamops.kernel.errors import SpecError
from streamops.kernel.time import MAX_INSTANT, MIN_INSTANT
from streamops.spark.checks import (
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
from streamops.spark.columns import arrow_schema, column, refuse_collated, spark_schema
from streamops.spark.inputs import marked, packed
from streamops.spark.metadata import drop_stale_metadata
from streamops.spark.packing import unpacker
from streamops.spark.results import declared, refuse_revised
from streamops.spark.runners import COUNTS, Advance, timed
from streamops.spark.transform import Transform, is_named
from streamops.spark.wire import opened, packs_in, totals

__all__ = ["drive", "observed", "told", "usable"]


def drive(transform: Transform, frame: DataFrame) -> DataFrame:
    """The frame that the transform makes of this one."""
    where, frame = transform.operator, drop_stale_metadata(frame)
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
    if not settings.of_results:
        refuse_revised(frame, where=where)
    name, names = metric_name(frame, transform.options.name)
    if transform.options.engine != "kernel":
        if frame.isStreaming and _insists(transform):
            refuse_unchainable(frame, "native", where=where)
        placeable = _observed(transform, frame, spec, name).where(usable(spec.time))
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
    emitted = timed(_packed(transform, frame, spec), advance, api).observe(name, *told())
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


def told() -> list[Column]:
    """What is told of a micro-batch: the counts of all shards, and the watermark of all."""
    *sums, watermark = COUNTS
    newest = F.timestamp_micros(F.max(F.col("counts")[len(sums)]))
    return [*totals(sums), newest.alias(watermark)]


def _packed(transform: Transform, frame: DataFrame, spec: Spec) -> DataFrame:
    """Packed rows: a shard, its pack, and an event time that is always null."""
    pack, shards = partial(transform.core.pack, spec), transform.options.shards
    if not frame.isStreaming:
        return packed(frame, pack, spec, shards)
    delay = _spark_delay(frame, spec)
    if spec.delay is not None:
        return packed(frame, pack, spec, shards, defined=delay)
    return marked(packed(frame, pack, spec, shards), delay)


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
        return core.run(spec, *opened(core, spec, packs_in(table)))

    return run


def usable(time: str) -> Column:
    """Whether the row's event time can be placed; null where it is null."""
    bounds = (F.timestamp_micros(F.lit(micros)) for micros in (MIN_INSTANT, MAX_INSTANT))
    return column(time).between(*bounds)


def _observed(transform: Transform, frame: DataFrame, spec: Spec, name: str) -> DataFrame:
    """Count what a native operator, or a batch, would leave out without a word."""
    if not frame.isStreaming and not is_named(transform.options, transform.operator):
        return frame
    return observed(frame, name, spec.time)


def observed(frame: DataFrame, name: str, time: str | None) -> DataFrame:
    """The rows counted, and those among them whose event time cannot be placed."""
    rejected = F.lit(0) if time is None else F.count_if(~F.coalesce(usable(time), F.lit(False)))
    return frame.observe(name, F.count(F.lit(1)).alias("rows"), rejected.alias("rejected"))


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
