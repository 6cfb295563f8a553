"""Rows on a grid on Spark, with a comparison and a join behind them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamops import aggregates as agg
from streamops import joins, windows
from streamops.kernel.errors import WatermarkError
from streamops.testing import assert_rows, at, micro_batches
from streamops.testing.streaming import run_query

pytestmark = pytest.mark.spark

READINGS = pa.schema([("k", pa.string()), ("ts", pa.timestamp("us", "UTC")), ("v", pa.float64())])
BATCHES = [
    [{"k": "a", "ts": at(second), "v": float(second)} for second in seconds]
    for seconds in ([5, 65], [190, 125], [900])
]


def on_a_grid(readings: DataFrame) -> DataFrame:
    grid = windows.resample(
        "1 minute", time="ts", by="k", values={"v": "linear"}, max_gap="2 minutes", delay="1 second"
    )
    return readings.transform(grid.options(shards=2))


def rows_of(frame: DataFrame, folder: Path) -> list[dict[str, Any]]:
    return [row for _, table, _ in run_query(frame, folder, 200) for row in table.to_pylist()]


def test_an_instant_is_compared_with_the_one_before(spark: SparkSession, tmp_path: Path) -> None:
    """As a window that ends with it."""
    grid = on_a_grid(micro_batches(spark, BATCHES, schema=READINGS))
    named = grid.withColumnRenamed("ts", "window_end")
    start = F.col("window_end") - F.expr("INTERVAL 1 MINUTE")
    compared = named.withColumn("window_start", start).transform(
        windows.compare("1 minute", values="v", by="k").options(shards=2)
    )
    found = rows_of(compared.select("window_end", "v", "change_v"), tmp_path)
    values = [(60, 60.0, None), (120, 120.0, 60.0), (180, 180.0, 60.0), (240, None, None)]
    values.append((300, None, None))
    names = ("window_end", "v", "change_v")
    assert_rows(found, [dict(zip(names, (at(s), *of), strict=True)) for s, *of in values])


@pytest.mark.parametrize("operator", ["over", "resample"])
def test_the_start_of_a_window_is_no_event_time_of_a_stream(
    spark: SparkSession, operator: str
) -> None:
    """A window is published once the watermark has reached its end: each row would be late."""

    def behind(time: str) -> Any:
        if operator == "over":
            values = {"before": windows.lag("v")}
            return windows.over(time=time, by="k", values=values, within="1 hour")
        return windows.resample(
            "1 minute", time=time, by="k", values={"v": "previous"}, max_gap="2 minutes"
        )

    means = windows.tumbling(
        "1 minute", time="ts", by="k", agg={"v": agg.mean("v")}, delay="1 minute"
    )
    stream = micro_batches(spark, BATCHES, schema=READINGS).transform(means)
    with pytest.raises(WatermarkError, match="WATERMARK_MISSING") as caught:
        stream.transform(behind("window_start"))
    assert caught.value.fix == "pass time='window_end'"
    assert stream.transform(behind("window_end")).isStreaming
    batch = spark.createDataFrame([], "k string, ts timestamp, v double").transform(means)
    assert not batch.transform(behind("window_start")).isStreaming


def after_windows(readings: DataFrame, method: Any, **lateness: Any) -> DataFrame:
    """The mean of each minute, and of those without readings the value of the method."""
    means = windows.tumbling(
        "1 minute", time="ts", by="k", agg={"v": agg.mean("v")}, delay="1 minute", **lateness
    )
    filled = windows.resample(
        "1 minute", time="window_end", by="k", values={"v": method}, max_gap="2 minutes"
    )
    return readings.transform(means.options(shards=2)).transform(filled.options(shards=2))


@pytest.mark.parametrize(
    ("method", "lateness", "values"),
    [
        ("previous", {}, [5.0, 65.0, 65.0, 190.0, 190.0, 190.0]),
        ("linear", {"allowed_lateness": "2 minutes"}, [5.0, 65.0, 127.5, 190.0, None, None]),
    ],
)
def test_means_without_readings_are_filled_behind_windows(
    spark: SparkSession, tmp_path: Path, method: str, lateness: Any, values: list[float | None]
) -> None:
    batches = [[row for row in batch if row["v"] != 125] for batch in BATCHES]
    readings = micro_batches(spark, batches, schema=READINGS)
    frame = after_windows(readings, method, **lateness).select("window_end", "v")
    expected = [{"window_end": at(60 * n), "v": value} for n, value in enumerate(values, 1)]
    assert_rows(rows_of(frame, tmp_path), expected)


def test_interpolation_behind_windows_needs_their_lateness(spark: SparkSession) -> None:
    readings = micro_batches(spark, BATCHES, schema=READINGS)
    tight = after_windows(readings, "linear", allowed_lateness="1 minute")
    with pytest.raises(WatermarkError) as refused:
        tight.transform(windows.tumbling("1 hour", time="window_end", agg={"n": agg.count()}))
    assert refused.value.code == "WATERMARK_LOST"


def test_a_row_is_joined_with_the_instant_before(spark: SparkSession, tmp_path: Path) -> None:
    readings = micro_batches(spark, BATCHES, schema=READINGS)
    grid = on_a_grid(readings).withColumnRenamed("v", "smooth")
    rows = micro_batches(spark, BATCHES, schema=READINGS).withWatermark("ts", "1 second")
    join = joins.asof(grid, by="k", time="ts", version="ts", sequence="ts")
    found = rows_of(rows.transform(join.options(shards=2)).select("v", "smooth"), tmp_path)
    values = [(5.0, None), (65.0, 60.0), (125.0, 120.0), (190.0, 180.0)]
    assert_rows(found, [{"v": v, "smooth": smooth} for v, smooth in values])
