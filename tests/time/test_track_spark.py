"""Tracked clocks on Spark: compared with an oracle, with restarts, and before windows."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamops import aggregates as agg
from streamops import time, windows
from streamops.testing import at, micro_batches
from streamops.testing.laws import to_rows
from tests.oracles.tracking import TrackOracle

pytestmark = pytest.mark.spark

SHARDS = 3
APIS = ("transformWithStateInPandas", "applyInPandasWithState")
UTC = pa.timestamp("us", "UTC")
SCHEMA = pa.schema(
    [("device", pa.string()), ("ts", UTC), ("sent", UTC), ("received", UTC), ("n", pa.int64())]
)
SECOND = 1_000_000
MICRO = dt.timedelta(microseconds=1)


def message(
    device: str | None, second: int, ahead: int, delay: float, wait: int | None = 10
) -> dict[str, Any]:
    """A message that is received at this second; the clock of the device is `ahead` seconds ahead."""
    sent = at(second) - delay * SECOND * MICRO + ahead * SECOND * MICRO
    stamped = None if wait is None else sent - wait * SECOND * MICRO
    return {"device": device, "ts": stamped, "sent": sent, "received": at(second)}


# A slow message, a clock that is set, a null device, a clock from 1970, an event without a time, and
# a message without the time of sending.
SCRIPT = [
    [message("a", 0, 300, 2), message("a", 5, 300, 30), message(None, 6, -7, 1)],
    [],
    [message("a", 20, 300, 1), message("a", 25, 300, 3), message(None, 26, -7, 0.5)],
    [message("a", 30, -200, 2), message("b", 31, -(10**9), 2), message("a", 31, -200, 9)],
    [message("a", 40, -200, 1, wait=None), {**message("a", 41, -200, 1), "sent": None}],
    [message("a", 42, -200, 20), message("b", 42, -(10**9), 8, wait=-1), message("a", 60, -200, 5)],
]
for number, row in enumerate(row for batch in SCRIPT for row in batch):
    row["n"] = number
ARGUMENTS: dict[str, Any] = {
    "by": "device",
    "sent": "sent",
    "received": "received",
}


def track(**changed: Any) -> Any:
    return time.track_clock("ts", **(ARGUMENTS | changed)).options(shards=SHARDS)


def run(frame: DataFrame, folder: Path) -> tuple[list[dict[str, Any]], list[Any]]:
    """Run a query, and return its output and observed metrics."""
    output: list[dict[str, Any]] = []

    def collect(batch: DataFrame, number: int) -> None:
        output.extend(batch.toArrow().to_pylist())

    query = (
        frame.writeStream.outputMode("append")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .foreachBatch(collect)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(200)
    return output, [progress.observedMetrics for progress in query.recentProgress]


def expected() -> dict[int, tuple[Any, str]]:
    """Return the corrected time and the quality of each message."""
    oracle = TrackOracle(("device",), 3_600 * SECOND, 60 * SECOND)
    found = {}
    for batch in SCRIPT:
        rows = to_rows(pa.Table.from_pylist(batch, SCHEMA))
        for row, micros, (offset, how) in zip(batch, rows, oracle.estimate(rows), strict=True):
            if micros["ts"] is None:
                found[row["n"]] = (row["received"], "no_event_time")
            elif offset is None or how is None:
                found[row["n"]] = (row["received"], "no_sent_time")
            elif micros["sent"] < micros["ts"]:
                found[row["n"]] = (row["received"], "sent_before_event")
            else:
                found[row["n"]] = (row["ts"] + offset * MICRO, how)
    return found


@pytest.mark.parametrize("api", APIS)
def test_a_stream_with_a_restart_equals_the_oracle(
    spark: SparkSession, tmp_path: Path, api: Any
) -> None:
    got, metrics = [], []
    for part in (SCRIPT[:3], SCRIPT[3:]):
        frame = micro_batches(spark, part, schema=SCHEMA, directory=tmp_path)
        comment = F.col("n").alias("n", metadata={"comment": "its number"})
        frame = frame.select("device", "ts", "sent", "received", comment.cast("int").alias("n"))
        result = frame.transform(track().options(state_api=api, name="clocks"))
        rows, counts = run(result, tmp_path)
        got += rows
        metrics += counts
    assert result.columns == [*SCHEMA.names, "corrected_time", "clock_offset", "clock_quality"]
    assert result.schema["n"].dataType.simpleString() == "int"
    wanted = expected()
    assert {r["n"]: (r["corrected_time"], r["clock_quality"]) for r in got} == wanted
    assert len(got) == len(wanted)
    # The previous message corrects the slow one; the error of both is at most 2 s.
    by_number = {row["n"]: row for row in got}
    assert by_number[1]["clock_offset"] == dt.timedelta(seconds=-298)
    assert by_number[6]["clock_quality"] == "stepped"
    counts = {
        name: sum(m["clocks"][name] for m in metrics) for name in metrics[0]["clocks"].asDict()
    }
    assert counts.pop("rows") == len(wanted) == sum(counts.values())
    assert (counts["estimated"], counts["stepped"], counts["no_event_time"]) == (7, 1, 1)
    more = micro_batches(spark, [[SCRIPT[0][0]]], schema=SCHEMA, directory=tmp_path)
    other = more.withColumn("n", F.col("n").cast("int")).transform(
        track(horizon="2 hours").options(state_api=api, name="clocks")
    )
    with pytest.raises(StreamingQueryException) as caught:
        run(other, tmp_path)
    assert "[STATE_PARAMETERS]" in str(caught.value)
    assert "horizon=3600000000" in str(caught.value)


def test_a_batch_is_processed_in_the_order_of_receipt(spark: SparkSession) -> None:
    rows = [tuple(row[name] for name in SCHEMA.names) for batch in SCRIPT for row in batch]
    frame = spark.createDataFrame(
        rows[::-1], "device string, ts timestamp, sent timestamp, received timestamp, n long"
    )
    got = frame.transform(track()).toArrow().to_pylist()
    assert {r["n"]: (r["corrected_time"], r["clock_quality"]) for r in got} == expected()
    # Batches have no metrics by default, so two frames can be combined.
    assert frame.transform(track()).union(frame.transform(track())).count() == 2 * len(rows)


def test_a_guard_and_a_window_may_follow(spark: SparkSession, tmp_path: Path) -> None:
    per_ten = windows.tumbling(
        "10 seconds", time="corrected_time", by="device", agg={"n": agg.count()},
        delay="5 seconds", ).options(shards=2)  # fmt: skip
    got, metrics = [], []
    for part in (SCRIPT[:4], SCRIPT[4:]):
        frame = micro_batches(spark, part, schema=SCHEMA, directory=tmp_path)
        guarded = frame.transform(track()).transform(
            time.guard("corrected_time", arrival="received")
        )
        rows, counts = run(guarded.transform(per_ten), tmp_path)
        got += rows
        metrics += counts
    times: dict[tuple[Any, Any], int] = {}
    for row in (row for batch in SCRIPT for row in batch):
        second = (expected()[row["n"]][0] - at(0)) // dt.timedelta(seconds=10)
        times[row["device"], second] = times.get((row["device"], second), 0) + 1
    closed = {
        (device, at(10 * second)): n
        for (device, second), n in times.items()
        if at(10 * second + 10) <= at(44)
    }
    assert {(row["device"], row["window_start"]): row["n"] for row in got} == closed
    assert sum(m["tumbling"]["rows"] for m in metrics if "tumbling" in m) == sum(times.values())
    assert not any(m["tumbling"]["too_late"] for m in metrics if "tumbling" in m)
