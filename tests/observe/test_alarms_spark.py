"""Alarms of running queries: late rows, a silent source, a row of the year 2999."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamops import aggregates as agg
from streamops import observe, windows
from streamops import time as times
from streamops.testing import at, micro_batches, stream

pytestmark = pytest.mark.spark

SCHEMA = pa.schema([("device", pa.string()), ("ts", pa.timestamp("us", "UTC"))])
YEAR_2999 = dt.datetime(2999, 1, 1, tzinfo=dt.UTC)


@contextmanager
def listening(spark: SparkSession, *rules: Any) -> Iterator[list[observe.Alarm]]:
    """Collect the alarms that are raised within the block."""
    alarms: list[observe.Alarm] = []
    listener = observe.AlarmListener(*rules, notify=alarms.append)
    spark.streams.addListener(listener)
    try:
        yield alarms
    finally:
        spark.streams.removeListener(listener)


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait: a listener is called some time after the micro-batch."""
    until = time.monotonic() + 30
    while not condition() and time.monotonic() < until:
        time.sleep(0.05)
    time.sleep(0.2)  # for alarms that should not be raised


def run(frame: DataFrame, folder: Path) -> None:
    query = (
        frame.writeStream.format("noop")
        .queryName("watched")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)


def seconds(*times: Any, device: str = "a") -> list[dict[str, Any]]:
    return [{"device": device, "ts": at(t) if isinstance(t, int) else t} for t in times]


def test_the_culprit_of_a_stuck_watermark_is_the_silent_source(
    spark: SparkSession, tmp_path: Path
) -> None:
    busy = [seconds(10 * n, 10 * n + 5) for n in range(1, 7)]
    silent = [seconds(11), *[[] for _ in busy[1:]]]

    def source(script: Any, name: str) -> DataFrame:
        frame = micro_batches(
            spark, script, schema=SCHEMA, directory=tmp_path / name, source="files"
        )
        return frame.withWatermark("ts", "5 seconds")

    with listening(spark, observe.StuckWatermark(batches=4)) as alarms:
        run(source(busy, "busy").union(source(silent, "silent")), tmp_path)
        wait_for(lambda: bool(alarms))
    (alarm,) = alarms
    assert (alarm.code, alarm.query) == ("STUCK_WATERMARK", "watched")
    assert [culprit.endswith(": no rows") for culprit in alarm.culprits] == [True]
    assert f"{tmp_path}/silent/input" in alarm.culprits[0]
    assert alarm.numbers.startswith("watermark 2024-01-01 00:00:06Z in 4 micro-batches")


def test_the_culprits_are_the_slowest_and_the_leading_producer(
    spark: SparkSession, tmp_path: Path
) -> None:
    script = [seconds(10, device="slow") + seconds(10, device="fast")]
    script += [seconds(10 * n, device="fast") for n in range(2, 6)]
    # The clock advances to the year 2999 when no producer holds it back.
    script += [seconds(YEAR_2999, device="fast"), seconds(YEAR_2999, device="slow")]
    by_device = times.producers("device", time="ts", delay="5 seconds", idle="1 hour")
    frame = micro_batches(spark, script, schema=SCHEMA, directory=tmp_path).transform(by_device)
    rules = observe.StuckWatermark(batches=4), observe.PoisonedWatermark("1 day")
    with listening(spark, *rules) as alarms:
        run(frame, tmp_path)
        wait_for(lambda: len(alarms) > 2)
    watermark, fast = "the watermark of the query", ("producer 'fast': the newest event time",)
    assert [(alarm.code, alarm.operator, alarm.culprits) for alarm in alarms] == [
        ("STUCK_WATERMARK", watermark, ("producer 'slow': the slowest clock",)),
        ("POISONED_WATERMARK", "producers", fast),
        ("POISONED_WATERMARK", watermark, fast),
    ]
    # Independent of the time zone of the session.
    assert alarms[0].numbers.endswith("with 4 rows; newest event time 2024-01-01 00:00:50Z")
    assert alarms[1].numbers.startswith("newest event time 2999-01-01 00:00:00Z: 35")


def test_a_healthy_stream_raises_no_alarm(spark: SparkSession, tmp_path: Path) -> None:
    script = [seconds(10 * n, 10 * n + 5) for n in range(1, 7)]
    rules = (observe.StuckWatermark(batches=3), observe.PoisonedWatermark(), observe.LateRows(1))
    per_ten = windows.tumbling(
        "10 seconds",
        time="ts",
        agg={"n": agg.count()},
        delay="5 seconds",
    ).options(shards=2)
    terminated: list[int] = []

    class Terminated(observe.AlarmListener):
        def onQueryTerminated(self, event: Any) -> None:
            terminated.append(1)

    with listening(spark, *rules) as alarms:
        last = Terminated(observe.LateRows(1))
        spark.streams.addListener(last)
        stream(spark, per_ten, script, schema=SCHEMA, directory=tmp_path)
        wait_for(lambda: bool(terminated))
        spark.streams.removeListener(last)
    assert terminated
    assert alarms == []


@pytest.mark.parametrize("engine", ["kernel", "native"])
def test_a_row_of_the_year_2999_raises_an_alarm_and_so_do_the_late_rows_it_causes(
    spark: SparkSession, tmp_path: Path, engine: str
) -> None:
    script = [
        seconds(1, 12),
        seconds(14, YEAR_2999),
        seconds(*range(20, 28), device="b"),
        seconds(*range(30, 38), device="c"),
        seconds(*range(40, 48), device="d"),
    ]
    per_ten = windows.tumbling(
        "10 seconds",
        time="ts",
        agg={"n": agg.count()},
        delay="5 seconds",
    ).options(engine=engine, shards=2)
    rules = (
        observe.PoisonedWatermark("30 days"),
        observe.LateRows(16, batches=2),
        observe.LateShare(0.5, batches=2, at_least=8),
        observe.StuckWatermark(batches=3),
    )
    with listening(spark, *rules) as alarms:
        stream(spark, per_ten, script[:4], schema=SCHEMA, directory=tmp_path)
        wait_for(lambda: len(alarms) >= (2 if engine == "kernel" else 1))
        first = list(alarms)
        stream(spark, per_ten, script[4:], schema=SCHEMA, directory=tmp_path)
        wait_for(lambda: len(alarms) > len(first))
    # Spark drops after partial aggregation: it counts one or two for eight rows of a window.
    share = ["LATE_SHARE"] if engine == "kernel" else []
    assert [alarm.code for alarm in first] == ["POISONED_WATERMARK", *share]
    poisoned = first[0]
    assert poisoned.numbers.startswith("newest event time 2999-01-01 00:00:00Z: 35")
    assert poisoned.what.startswith("an event time is ahead of the current time")
    # The checkpoint contains the watermark, so the next run raises another alarm.
    again = alarms[len(first)]
    assert (again.code, again.run == poisoned.run) == ("POISONED_WATERMARK", False)
    assert "watermark 2998-12-31 23:59:55Z" in again.numbers
    if engine == "kernel":
        assert (first[1].operator, first[1].numbers) == (
            "tumbling",
            "50 % of 16 rows in the last 2 micro-batches with rows: stragglers 0, too_late 8",
        )


def test_rows_dropped_by_a_native_operator_are_counted(spark: SparkSession, tmp_path: Path) -> None:
    script = [seconds(100), seconds(200), seconds(50, 60, 201)]
    frame = micro_batches(spark, script, schema=SCHEMA, directory=tmp_path)
    distinct = frame.withWatermark("ts", "5 seconds").dropDuplicatesWithinWatermark(["ts"])
    with listening(spark, observe.LateRows(2)) as alarms:
        run(distinct, tmp_path)
        wait_for(lambda: bool(alarms))
    (alarm,) = alarms
    assert alarm.operator.startswith("stateOperators[0] (dedupe")
    assert alarm.numbers == "2 rows in the last 1 micro-batch with rows: dropped 2"


def test_furthest_ahead_finds_producers_in_a_batch(spark: SparkSession) -> None:
    now = dt.datetime.now(dt.UTC).replace(microsecond=0)

    def row(device: str | None, days: int | None) -> tuple[Any, ...]:
        return device, None if days is None else now + dt.timedelta(days=days)

    rows = [row("a", -1), row("a", 2), row("b", 1), row("b", 9), row(None, 3), row("c", -5)]
    rows += [row("c", None), ("d", YEAR_2999)]
    frame = spark.createDataFrame(rows, "`de.vice` string, `t``s` timestamp")
    by_device = frame.transform(observe.furthest_ahead("t`s", by="de.vice"))
    assert by_device.columns == ["de.vice", "newest", "ahead", "rows"]
    found = by_device.toArrow().to_pylist()
    assert [(row["de.vice"], row["rows"]) for row in found] == [
        ("d", 1),
        ("b", 2),
        (None, 1),
        ("a", 1),
    ]
    assert found[0]["newest"] == YEAR_2999
    nine = dt.timedelta(days=9)
    assert nine - dt.timedelta(minutes=30) < found[1]["ahead"] <= nine
    (one,) = frame.transform(observe.furthest_ahead("t`s", most=1)).toArrow().to_pylist()
    assert (one["newest"], one["rows"]) == (YEAR_2999, 5)
    assert frame.where("`t``s` < now()").transform(observe.furthest_ahead("t`s")).count() == 0
    # An event time that Python cannot represent.
    beyond = frame.select(F.timestamp_seconds(F.lit(10**12)).alias("ts"))
    text = beyond.transform(observe.furthest_ahead("ts")).selectExpr("string(newest) s").first()
    assert text is not None
    assert text["s"].startswith("+33658-")
