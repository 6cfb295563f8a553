"""Processing time on Spark: its values, repeated micro-batches, and windows."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from streamops import aggregates as agg
from streamops import time, windows
from streamops.testing import at, micro_batches

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("ts", pa.timestamp("us", "UTC")), ("v", pa.int64())])
# Event times are out of order; only the number of rows matters.
SCRIPT = [
    [{"ts": at(1_000 - 100 * batch), "v": v} for v in range(size)]
    for batch, size in enumerate([3, 1, 0, 4, 1, 5])
]


class Broken(Exception):
    """The sink failed."""


def run(frame: DataFrame, folder: Path, *, fails_in: int = -1) -> tuple[dict[int, Any], list[Any]]:
    """Run a query, and return the rows of each micro-batch and the observed metrics."""
    output: dict[int, Any] = {}

    def collect(batch: DataFrame, number: int) -> None:
        output[number] = batch.toArrow().to_pylist()
        if number == fails_in:
            raise Broken

    query = (
        frame.writeStream.outputMode("append")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .foreachBatch(collect)
        .trigger(availableNow=True)
        .start()
    )
    try:
        query.awaitTermination(200)
    except StreamingQueryException:
        assert fails_in >= 0
    return output, [progress.observedMetrics for progress in query.recentProgress]


def test_all_rows_of_a_micro_batch_have_its_start_also_if_it_is_repeated(
    spark: SparkSession, tmp_path: Path
) -> None:
    began = dt.datetime.now(dt.UTC)
    frame = micro_batches(spark, SCRIPT, schema=SCHEMA, directory=tmp_path)
    taken = frame.transform(time.processing_time("a.t`s").options(name="clock"))
    assert taken.columns == ["ts", "v", "a.t`s"]
    assert taken.schema["a.t`s"].dataType.simpleString() == "timestamp"
    before, _ = run(taken, tmp_path, fails_in=3)
    after, metrics = run(taken, tmp_path)
    assert sorted(before) == [0, 1, 2, 3]
    assert sorted(after) == [3, 4, 5]
    assert after[3] == before[3]
    times = [{row["a.t`s"] for row in batch} for batch in (before | after).values() if batch]
    assert [len(values) for values in times] == [1] * 5
    ordered = [values.pop() for values in times]
    assert ordered == sorted(set(ordered))
    assert all(began - dt.timedelta(milliseconds=1) <= start for start in ordered)
    assert [m["clock"]["rows"] for m in metrics] == [4, 1, 5]


@pytest.mark.parametrize("api", ["transformWithStateInPandas", "applyInPandasWithState"])
def test_windows_by_processing_time_are_emitted_and_no_row_is_late(
    spark: SparkSession, tmp_path: Path, api: Any
) -> None:
    # No two micro-batches start within a millisecond, so each micro-batch has its own window.
    per_batch = windows.tumbling(
        "1 millisecond",
        time="processed_at",
        agg={"rows": agg.count(), "started": agg.max("processed_at")},
        delay="0 seconds",
    ).options(shards=1, state_api=api)
    results: list[dict[str, Any]] = []
    metrics: list[Any] = []
    for part in (SCRIPT[:3], SCRIPT[3:]):  # with a restart
        frame = micro_batches(spark, part, schema=SCHEMA, directory=tmp_path)
        got, counts = run(frame.transform(time.processing_time()).transform(per_batch), tmp_path)
        results += [row for batch in got.values() for row in batch]
        metrics += counts
    # The last window is still open.
    assert [row["rows"] for row in results] == [3, 1, 4, 1]
    assert all(row["window_start"] == row["started"] for row in results)
    counted = [m["tumbling"] for m in metrics if "tumbling" in m]
    assert sum(m["on_time"] for m in counted) == 14
    assert sum(m["stragglers"] + m["too_late"] + m["rejected"] for m in counted) == 0


def test_a_batch_has_one_processing_time(spark: SparkSession) -> None:
    frame = spark.range(5).transform(time.processing_time())
    per_day = windows.tumbling("1 hour", time="processed_at", agg={"rows": agg.count()})
    (row,) = frame.transform(per_day).collect()
    assert row["rows"] == 5
    assert len({row["processed_at"] for row in frame.collect()}) == 1
