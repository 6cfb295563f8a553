"""Spark's own windows, where they mean the same as ours."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from streamops.changelog.change_types import CHANGE_TYPE, INSERT, REVISION
from streamops.spark.columns import column
from streamops.spark.settings import effective
from streamops.windows.core.grid_spec import FixedSpec, GridSpec
from streamops.windows.core.session_spec import SessionSpec
from streamops.windows.core.sliding import SlidingSpec
from streamops.windows.core.spec import WindowSpec

__all__ = ["native"]

_ANSI = "spark.sql.ansi.enabled"


def native(frame: DataFrame, spec: WindowSpec, required: bool) -> DataFrame | None:
    """Compute the same result by Spark's own window; None where Spark cannot, or does worse.

    In a batch nothing is late, so only the delivery of rows without a usable event time is beyond
    Spark. On a stream, Spark drops late rows, counts them only after partial aggregation, and has
    no corrections; it is used where the user requires it. Where `spark.sql.ansi.enabled` is false,
    Spark's sums wrap around or turn null on overflow, and ours raise an error: the kernel then
    computes sums of integers and decimals, and means of decimals. Aggregates without a native
    equivalent, or whose native equivalent exceeds their bound on memory, and empty windows are
    always computed by the kernel.

    Parameters
    ----------
    frame : DataFrame
    spec : WindowSpec
    required : bool
        Whether the user asked for ``engine="native"``.
    """
    if not all(aggregation.native for _, aggregation in spec.agg):
        return None
    if isinstance(spec, GridSpec) and spec.empty_for is not None:
        return None
    if spec.routes or (_may_wrap(spec) and not _is_ansi(frame)):
        return None
    if isinstance(spec, SlidingSpec):
        return _over_range(frame, spec) if required else None
    window = _window(spec)
    if window is None:
        return None
    if frame.isStreaming:
        if spec.revises or spec.allowed_lateness or not required:
            return None
        if spec.delay is not None:
            frame = frame.withWatermark(spec.time, f"{spec.delay // 1_000} milliseconds")
    aggregates = [a.to_spark(time=spec.time).alias(name) for name, a in spec.agg]
    keys = [column(name) for name in spec.by]
    counted = frame.groupBy(window.alias("__streamops_window"), *keys).agg(*aggregates)
    return counted.select(
        *keys,
        F.col("__streamops_window.start").alias("window_start"),
        F.col("__streamops_window.end").alias("window_end"),
        *(column(name) for name, _ in spec.agg),
        *_extra(spec),
    )


def _over_range(frame: DataFrame, spec: SlidingSpec) -> DataFrame | None:
    """Sliding windows over a range of event times, which Spark has for batches.

    Only where the user requires it: for each row, Spark aggregates its whole window anew, so a batch
    takes as many steps as all its windows have rows.
    """
    if frame.isStreaming:
        return None
    keys = [column(name) for name in spec.by]
    ordered = Window.partitionBy(*keys).orderBy(F.unix_micros(column(spec.time)))
    window = ordered.rangeBetween(1 - spec.size, 0)
    values = [a.to_spark(time=spec.time).over(window).alias(name) for name, a in spec.agg]
    # Rows with the same event time have the same result: keep the first of them.
    before = F.lag(column(spec.time)).over(ordered)
    is_first = F.coalesce(before < column(spec.time), F.lit(True)).alias("__streamops_first")
    results = frame.select(*keys, column(spec.time), *values, is_first)
    names = [*spec.by, spec.time, *(name for name, _ in spec.agg)]
    return results.where(F.col("__streamops_first")).select(*map(column, names), *_extra(spec))


def _extra(spec: WindowSpec) -> list[Column]:
    """Columns that corrections add, for results that will not be corrected."""
    extra = []
    if spec.revises:
        extra.append(F.lit(0).cast("int").alias(REVISION))
    if spec.is_early:
        extra.append(F.lit("on_time").alias("timing"))
    if spec.retracts:
        extra.append(F.lit(INSERT).alias(CHANGE_TYPE))
    return extra


def _window(spec: WindowSpec) -> Column | None:
    """The window as a Spark expression; None where Spark has no native equivalent."""
    time = column(spec.time)
    match spec:
        case FixedSpec():
            size, hop, origin = (f"{n} microseconds" for n in (spec.size, spec.hop, spec.origin))
            return F.window(time, size, hop, origin)
        case SessionSpec(gap_column=None, cuts=False, gap=gap):
            return F.session_window(time, f"{gap} microseconds")
        case _:
            return None


def _may_wrap(spec: WindowSpec) -> bool:
    """Whether an aggregate keeps a sum that Spark checks for overflow in ANSI mode only."""
    parts = (part for summary in spec.summaries for part in summary.fields)
    return any(
        name == "sum" and (pa.types.is_integer(dtype) or pa.types.is_decimal(dtype))
        for name, dtype in parts
    )


def _is_ansi(frame: DataFrame) -> bool:
    # Where a platform hides the setting, assume the default of Spark 4.
    return (effective(frame.sparkSession, _ANSI) or "true").lower() == "true"
