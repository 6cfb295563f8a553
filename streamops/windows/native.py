"""Spark's own windows, where they mean the same as ours."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streamops.spark.columns import column, spark_schema
from streamops.windows.core.spec import Spec
from streamops.windows.settings import FixedWindows

__all__ = ["native"]


def native(settings: FixedWindows, frame: DataFrame, spec: Spec, insists: bool) -> DataFrame | None:
    """The same result by Spark's ``window``; None where it cannot, or where ours is better.

    In a batch nothing is late, so only rows that must be delivered are beyond it. On a stream
    it drops late rows, counts what is left of them after partial aggregation, and knows no
    corrections; it is used where the user insists.
    """
    if spec.routes:
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
    types = {f.name: f.dataType for f in spark_schema(spec.output).fields}
    return counted.select(
        *keys,
        F.col("__streamops_window.start").alias("window_start"),
        F.col("__streamops_window.end").alias("window_end"),
        *(column(name).cast(types[name]).alias(name) for name, _ in settings.agg),
        *extra,
    )
