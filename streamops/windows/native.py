"""Spark's own windows, where they mean the same as ours."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streamops.spark.columns import column
from streamops.spark.settings import effective
from streamops.windows.core.spec import Spec
from streamops.windows.settings import FixedWindows

__all__ = ["native"]

_ANSI = "spark.sql.ansi.enabled"


def native(settings: FixedWindows, frame: DataFrame, spec: Spec, insists: bool) -> DataFrame | None:
    """The same result by Spark's ``window``; None where it cannot, or where ours is better.

    In a batch nothing is late, so only rows that must be delivered are beyond it. On a stream
    it drops late rows, counts what is left of them after partial aggregation, and knows no
    corrections; it is used where the user insists. Where `spark.sql.ansi.enabled` is false,
    Spark's sums wrap around or turn null where they overflow, and ours raise an error: sums of
    integers and decimals and means of decimals are ours then.
    """
    if spec.routes or (_may_wrap(spec) and not _is_ansi(frame)):
        return None
    if frame.isStreaming:
        if spec.stragglers != "drop" or spec.allowed_lateness or not insists:
            return None
        if spec.delay is not None:
            frame = frame.withWatermark(spec.time, f"{spec.delay // 1_000} milliseconds")
    grid = spec.grid
    size, hop, origin = (f"{n} microseconds" for n in (grid.size, grid.hop, grid.origin))
    window = F.window(column(spec.time), size, hop, origin).alias("__streamops_window")
    aggregates = [a.to_spark(time=spec.time).alias(name) for name, a in settings.agg]
    keys = [column(name) for name in spec.by]
    counted = frame.groupBy(window, *keys).agg(*aggregates)
    extra = []
    if spec.corrects:
        extra.append(F.lit(0).cast("int").alias("revision"))
    if spec.stragglers == "retract":
        extra.append(F.lit("insert").alias("_change_type"))
    return counted.select(
        *keys,
        F.col("__streamops_window.start").alias("window_start"),
        F.col("__streamops_window.end").alias("window_end"),
        *(column(name) for name, _ in settings.agg),
        *extra,
    )


def _may_wrap(spec: Spec) -> bool:
    """Whether an aggregate keeps a sum that Spark checks for overflow in ANSI mode only."""
    parts = (part for summary in spec.summaries for part in summary.fields)
    return any(
        name == "sum" and (pa.types.is_integer(kind) or pa.types.is_decimal(kind))
        for name, kind in parts
    )


def _is_ansi(frame: DataFrame) -> bool:
    # A platform that does not tell is taken to be as Spark 4 is unless told otherwise.
    return (effective(frame.sparkSession, _ANSI) or "true").lower() == "true"
