"""Spark's own windows, where they mean the same as ours."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from streamops.changelog.change_types import CHANGE_TYPE, INSERT, REVISION
from streamops.kernel.grids import FixedGrid
from streamops.spark.columns import column
from streamops.spark.settings import effective
from streamops.windows.core.spec import FixedSpec, SessionSpec, SlidingSpec, WindowSpec
from streamops.windows.settings import WindowSettings

__all__ = ["native"]

_ANSI = "spark.sql.ansi.enabled"


def native(
    settings: WindowSettings, frame: DataFrame, spec: WindowSpec, insists: bool
) -> DataFrame | None:
    """The same result by Spark's own window; None where it cannot, or where ours is better.

    In a batch nothing is late, so only rows that must be delivered are beyond it. On a stream
    it drops late rows, counts what is left of them after partial aggregation, and knows no
    corrections; it is used where the user insists. Where `spark.sql.ansi.enabled` is false,
    Spark's sums wrap around or turn null where they overflow, and ours raise an error: sums of
    integers and decimals and means of decimals are ours then. An aggregate that Spark has no
    word for, or that would keep more in Spark than it is told to, is always ours. So are empty
    windows.
    """
    if not all(aggregation.native for _, aggregation in settings.agg):
        return None
    if isinstance(spec, FixedSpec) and spec.empty_for is not None:
        return None
    if spec.routes or (_may_wrap(spec) and not _is_ansi(frame)):
        return None
    if isinstance(spec, SlidingSpec):
        return _over_range(settings, frame, spec) if insists else None
    said = _window(spec)
    if said is None:
        return None
    if frame.isStreaming:
        if spec.revises or spec.allowed_lateness or not insists:
            return None
        if spec.delay is not None:
            frame = frame.withWatermark(spec.time, f"{spec.delay // 1_000} milliseconds")
    window = said.alias("__streamops_window")
    aggregates = [a.to_spark(time=spec.time).alias(name) for name, a in settings.agg]
    keys = [column(name) for name in spec.by]
    counted = frame.groupBy(window, *keys).agg(*aggregates)
    return counted.select(
        *keys,
        F.col("__streamops_window.start").alias("window_start"),
        F.col("__streamops_window.end").alias("window_end"),
        *(column(name) for name, _ in settings.agg),
        *_extra(spec),
    )


def _over_range(settings: WindowSettings, frame: DataFrame, spec: SlidingSpec) -> DataFrame | None:
    """Sliding windows over a range of event times, which Spark has for batches.

    Only where the user insists: for each row, Spark aggregates its whole window anew, so a batch
    takes as many steps as all its windows have rows.
    """
    if frame.isStreaming:
        return None
    keys = [column(name) for name in spec.by]
    ordered = Window.partitionBy(*keys).orderBy(F.unix_micros(column(spec.time)))
    window = ordered.rangeBetween(1 - spec.size, 0)
    said = [a.to_spark(time=spec.time).over(window).alias(name) for name, a in settings.agg]
    # Rows of one instant have the same result: the first of them stands for all.
    before = F.lag(column(spec.time)).over(ordered)
    is_first = F.coalesce(before < column(spec.time), F.lit(True)).alias("__streamops_first")
    results = frame.select(*keys, column(spec.time), *said, is_first)
    names = [*spec.by, spec.time, *(name for name, _ in settings.agg)]
    return results.where(F.col("__streamops_first")).select(*map(column, names), *_extra(spec))


def _extra(spec: WindowSpec) -> list[Column]:
    """What corrections add to a result that none will change."""
    extra = []
    if spec.revises:
        extra.append(F.lit(0).cast("int").alias(REVISION))
    if spec.is_early:
        extra.append(F.lit("on_time").alias("timing"))
    if spec.takes_back:
        extra.append(F.lit(INSERT).alias(CHANGE_TYPE))
    return extra


def _window(spec: WindowSpec) -> Column | None:
    """The window as Spark says it; None where it has no word for it."""
    time = column(spec.time)
    match spec:
        case FixedSpec(grid=FixedGrid() as grid):
            size, hop, origin = (f"{n} microseconds" for n in (grid.size, grid.hop, grid.origin))
            return F.window(time, size, hop, origin)
        case SessionSpec(gap_column=None, cuts=False, gap=gap):
            return F.session_window(time, f"{gap} microseconds")
        case _:
            return None


def _may_wrap(spec: WindowSpec) -> bool:
    """Whether an aggregate keeps a sum that Spark checks for overflow in ANSI mode only."""
    parts = (part for summary in spec.summaries for part in summary.fields)
    return any(
        name == "sum" and (pa.types.is_integer(kind) or pa.types.is_decimal(kind))
        for name, kind in parts
    )


def _is_ansi(frame: DataFrame) -> bool:
    # A platform that does not tell is taken to be as Spark 4 is unless told otherwise.
    return (effective(frame.sparkSession, _ANSI) or "true").lower() == "true"
