"""Spark's own windows, where they mean the same as ours."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from streamops.changelog.change_types import CHANGE_TYPE, INSERT, REVISION
from streamops.environment.settings import effective
from streamops.spark.columns import column
from streamops.spark.definition import KeyLimit, Native
from streamops.windows.core.grid_spec import FixedSpec, GridSpec
from streamops.windows.core.session_spec import SessionSpec
from streamops.windows.core.sliding_spec import SlidingSpec
from streamops.windows.core.spec import WindowSpec

_ANSI = "spark.sql.ansi.enabled"

# Up to how many keys Spark's own windows are chosen for a stream. Measured on 2026-11-21, a count and a sum
# per minute, CPU seconds per million rows of Spark and the kernel, on the same state store, in micro-batches
# of 500,000, 60,000 and 1,000 rows (benchmarks/results/README.md):
#
#     1,000 keys     HDFS-backed   1.20 and 2.04   7.73 and 9.57   503 and 626
#                    RocksDB       2.13 and 2.29   10.2 and 13.8   537 and 812
#     100,000 keys   HDFS-backed   6.21 and 3.21   12.2 and 11.8   506 and 630
#                    RocksDB       20.7 and 3.79   25.2 and 14.2   540 and 704
_TUMBLING = KeyLimit(1_000)
# Five minutes every minute, on the HDFS-backed store: 100,000 keys, 2026-11-22: 24.2 and 5.51, 41.1 and 20.6;
# 1,000 keys, 2026-11-26, two runs: 2.4 and 1.9 to 2.4, 11 to 14 and 11 to 15; on RocksDB 2.8 and 2.6, 14 and 14.
_HOPPING = KeyLimit(0, "Spark repeats each row for every window in which it lies")
_SESSION = KeyLimit(0, "Spark begins a second session where a late row would extend an emitted one")
_BATCH = KeyLimit(None, "the frame is a batch")
_ANEW = KeyLimit(0, "Spark aggregates the whole window of each row anew")


def _limit(frame: DataFrame, spec: WindowSpec) -> KeyLimit | None:
    """Up to how many keys Spark's own window is the better engine; None where it is not equivalent.

    In a batch nothing is late, so only the delivery of rows without a usable event time is beyond
    Spark. On a stream, Spark drops late rows, counts them only after partial aggregation, and has
    no corrections. Where `spark.sql.ansi.enabled` is false, Spark's sums wrap around or turn null on
    overflow, and ours raise an error: the kernel then computes sums of integers and decimals, and
    means of decimals. Aggregates without a native equivalent, or whose native equivalent exceeds their
    bound on memory, and empty windows are always computed by the kernel.
    """
    if not all(aggregation.native for _, aggregation in spec.agg):
        return None
    if isinstance(spec, GridSpec) and spec.empty_for is not None:
        return None
    if spec.routes or (_may_wrap(spec) and not _is_ansi(frame)):
        return None
    match spec:
        case SlidingSpec():
            return None if frame.isStreaming else _ANEW
        case FixedSpec():
            on_streams = _TUMBLING if spec.hop == spec.size else _HOPPING
        case SessionSpec(gap_column=None, cuts=False):
            on_streams = _SESSION
        case _:
            return None
    if not frame.isStreaming:
        return _BATCH
    return None if spec.revises or spec.allowed_lateness else on_streams


def _build(frame: DataFrame, spec: WindowSpec) -> DataFrame:
    """The same result by Spark's own window."""
    if isinstance(spec, SlidingSpec):
        return _over_range(frame, spec)
    if frame.isStreaming and spec.delay is not None:
        frame = frame.withWatermark(spec.time, f"{spec.delay // 1_000} milliseconds")
    aggregates = [a.to_spark(time=spec.time).alias(name) for name, a in spec.agg]
    keys = [column(name) for name in spec.by]
    counted = frame.groupBy(_window(spec).alias("__streamops_window"), *keys).agg(*aggregates)
    return counted.select(
        *keys,
        F.col("__streamops_window.start").alias("window_start"),
        F.col("__streamops_window.end").alias("window_end"),
        *(column(name) for name, _ in spec.agg),
        *_extra(spec),
    )


def _over_range(frame: DataFrame, spec: SlidingSpec) -> DataFrame:
    """Sliding windows over a range of event times, which Spark has for batches."""
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


def _window(spec: WindowSpec) -> Column:
    """The window as a Spark expression."""
    time = column(spec.time)
    if isinstance(spec, FixedSpec):
        size, hop, origin = (f"{n} microseconds" for n in (spec.size, spec.hop, spec.origin))
        return F.window(time, size, hop, origin)
    assert isinstance(spec, SessionSpec)
    return F.session_window(time, f"{spec.gap} microseconds")


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


NATIVE = Native(_limit, _build)
"""Spark's own windows."""
