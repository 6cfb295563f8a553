"""A watermark per producer on Spark, before kernel and native operators.

The clock is tested on the core; here a micro-batch on Spark must equal its replay.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamops import aggregates as agg
from streamops import time, windows
from streamops.environment.settings import PROVIDER
from streamops.kernel.errors import SpecError
from streamops.testing import Replay, assert_rows, at, micro_batches, replay, stream

pytestmark = pytest.mark.spark

TWS, AIPWS = "transformWithStateInPandas", "applyInPandasWithState"
SHARDS = 2
HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
INSTANT = pa.timestamp("us", "UTC")
SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("ts", INSTANT), ("at", INSTANT)])


def rows(*events: tuple[str | None, float | None, float]) -> list[dict[str, Any]]:
    return [
        {"k": k, "ts": None if s is None else at(s), "at": at(arrival), "v": number}
        for number, (k, s, arrival) in enumerate(events)
    ]


# Producer a is slow, becomes silent, returns late and catches up; a null producer, a null time.
SCRIPT = [
    rows(("a", 1, 100), ("b", 2, 100), (None, 5, 100)),
    rows(("b", 31, 101), (None, 40, 102), ("b", None, 102)),
    rows(("a", 9, 103)),
    rows(("b", 45, 170), (None, 50, 170)),
    rows(("a", 20, 171), ("b", 60, 171)),
    rows(("a", 70, 172), ("b", 71, 172), (None, 81, 172)),
]
ARGUMENTS: dict[str, Any] = {
    "time": "ts",
    "delay": "10 seconds",
    "idle": "1 minute",
    "arrival": "at",
}
COMMON: dict[str, Any] = {
    "time": "ts",
    "by": "k",
    "agg": {"n": agg.count(), "total": agg.sum("v")},
    "allowed_lateness": "5 seconds",
    "stragglers": "route",
}


def run(frame: DataFrame, folder: Path, mode: str = "append") -> tuple[list[Any], list[Any]]:
    """Run a query, and return its output and its progress."""
    output: list[dict[str, Any]] = []

    def collect(batch: DataFrame, number: int) -> None:
        output.extend(batch.toArrow().to_pylist())

    query = (
        frame.writeStream.outputMode(mode)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .foreachBatch(collect)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(200)
    return output, list(query.recentProgress)


@pytest.mark.parametrize(("upstream", "downstream"), [(TWS, TWS), (TWS, AIPWS), (AIPWS, TWS)])
def test_downstream_windows_equal_their_replay(
    spark: SparkSession, tmp_path: Path, upstream: Any, downstream: Any
) -> None:
    chain = [
        time.producers("k", **ARGUMENTS).options(state_api=upstream),
        windows.tumbling("10 seconds", **COMMON).options(state_api=downstream, shards=SHARDS),
    ]
    played = Replay(chain, SCHEMA)
    for part in (SCRIPT[:4], SCRIPT[4:]):  # the second part starts from the checkpoint of the first
        got = stream(spark, chain, part, schema=SCHEMA, directory=tmp_path)
        for one, other in zip(got, played.run(part), strict=True):
            assert_rows(one.rows, other.rows)
            assert_rows(one.late_rows, other.late_rows)
            assert one.watermark == other.watermark
            assert one.counts == other.counts
            assert one.state_rows == other.state_rows
            assert one.clock == other.clock
    if upstream == downstream:
        others = [time.producers("v", **ARGUMENTS), chain[1]]
        with pytest.raises(StreamingQueryException) as caught:
            stream(spark, others, SCRIPT[:1], schema=SCHEMA, directory=tmp_path)
        text = str(caught.value)
        assert "[STATE_PARAMETERS] time.producers: this checkpoint was written with other" in text
        assert "got:       producer=['v', 'int64']" in text
        assert "expected:  producer=['k', 'string'], as written" in text
        assert (
            "fix:       pass the parameters of the checkpoint, or start from a new checkpoint"
            in text
        )


def test_punctuation_brings_the_watermark_of_a_producer_to_its_value(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A file that has ended, a producer without traffic, and one that breaks its promise."""
    schema = SCHEMA.append(pa.field("until", INSTANT))

    def until(k: str, s: float | None, event: float | None = None) -> dict[str, Any]:
        mark = None if s is None else at(s)
        return {
            "k": k,
            "v": 1,
            "ts": None if event is None else at(event),
            "at": at(100),
            "until": mark,
        }

    script = [
        [until("a", None, 1), until("b", None, 2)],
        [until("a", 30), until("b", None, 35)],  # b holds it: 35 - 10
        [until("b", 30)],
        [until("a", 20, 29)],  # late, and says nothing new
        [until("a", 300), until("b", 50, 3)],
    ]
    chain = [
        time.producers("k", **ARGUMENTS, punctuation="until").options(state_api=TWS),
        windows.tumbling("10 seconds", **COMMON).options(state_api=TWS, shards=SHARDS),
    ]
    script[4][0]["until"] = dt.datetime(9999, 12, 31, 23, 59, 59, tzinfo=dt.UTC)
    played = Replay(chain, schema).run(script)
    got = stream(spark, chain, script, schema=schema, directory=tmp_path)
    assert [r.clock and r.clock.clock for r in got] == [r.clock and r.clock.clock for r in played]
    for one, other in zip(got, played, strict=True):
        assert_rows(one.rows, other.rows)
        assert_rows(one.late_rows, other.late_rows)
        assert one.watermark == other.watermark
    clocks = [r.clock.clock for r in played if r.clock]
    assert clocks == [int(at(s).timestamp() * 1e6) for s in (1, 35, 40, 40, 60)]
    # The rows at 29 and 3 seconds are late; rows without an event time are rejected by the windows.
    reasons = [row["reason"] for result in played for row in result.late_rows]
    assert sorted(reasons) == [*["null_time"] * 3, "straggler", "too_late"]


def test_an_arrival_in_the_future_is_replaced_by_now_and_a_null_arrival_is_rejected(
    spark: SparkSession, tmp_path: Path
) -> None:
    now = dt.datetime.now(dt.UTC)
    arrived = {"a": now - dt.timedelta(minutes=1), "b": now.replace(year=2999), "c": None}
    script = [
        [{"k": k, "ts": at(1), "at": arrival, "v": 0} for k, arrival in arrived.items()],
        [{"k": "a", "ts": at(2), "at": now, "v": 0}],
    ]
    chain = [
        time.producers("k", **ARGUMENTS | {"idle": "1 hour"}),
        windows.tumbling("10 seconds", **COMMON).options(shards=SHARDS),
    ]
    for results in (stream(spark, chain, script, schema=SCHEMA), replay(chain, script)):
        clocks = [result.clock for result in results[:2]]
        assert [c and (c.active, c.rejected) for c in clocks] == [(2, 1), (2, 0)]
        assert [c and c.held_by for c in clocks] == ["a", "b"]


@pytest.fixture
def without_rocksdb(spark: SparkSession) -> Iterator[SparkSession]:
    before = spark.conf.get(PROVIDER)
    spark.conf.set(PROVIDER, HDFS)
    yield spark
    spark.conf.set(PROVIDER, str(before))


def everything(frame: DataFrame) -> DataFrame:
    """Add columns of many types."""
    return frame.select(
        "*",
        F.lit(Decimal("1.50")).alias("d"),
        F.array(F.struct("k", "v")).alias("nested"),
        F.create_map("v", "at").alias("m"),
        F.parse_json(F.lit('{"a": 1}')).alias("free"),
        F.lit(dt.timedelta(seconds=1)).alias("lasts"),
        F.col("ts").cast("timestamp_ntz").alias("local"),
        F.expr("make_ym_interval(1, 2)").alias("months"),
        F.col("k").cast("binary").alias("a.b`c"),
        F.lit("x").cast("string collate UTF8_LCASE").alias("folded"),
    )


def test_a_guard_upstream_and_native_windows_downstream(
    without_rocksdb: SparkSession, tmp_path: Path
) -> None:
    # Without RocksDB and arrivals; columns of all types are unchanged.
    spark = without_rocksdb
    frame = everything(micro_batches(spark, SCRIPT, schema=SCHEMA, directory=tmp_path))
    by_producer = time.producers(
        "k",
        time="ts",
        delay="10 seconds",
        idle="1 hour",
    ).options(state_api=AIPWS, name="devices")
    marked = frame.transform(time.guard("ts")).transform(by_producer)
    assert [f.dataType for f in marked.schema][:-1] == [f.dataType for f in frame.schema]
    assert marked.columns == [*frame.columns, "guarded"]
    with pytest.raises(SpecError, match="STATE_API_NOT_CHAINABLE"):
        marked.drop("months").transform(
            windows.tumbling("10 seconds", **COMMON).options(state_api=AIPWS, shards=SHARDS)
        )
    per_ten = marked.groupBy(F.window("ts", "10 seconds")).agg(
        F.count("*").alias("n"),
        F.count("free").alias("free"),
        F.count("nested").alias("nested"),
    )
    got, progress = run(per_ten, tmp_path)
    # No producer was silent for an hour, so the clock waits for a: 1, 1, 9, 9, 20, 70 s.
    found = [(row["window"]["start"], row["n"], row["free"], row["nested"]) for row in got]
    assert sorted(found) == [
        (at(0), 4, 4, 4),
        (at(20), 1, 1, 1),
        (at(30), 1, 1, 1),
        (at(40), 2, 2, 2),
        (at(50), 1, 1, 1),
    ]
    metrics = [p.observedMetrics for p in progress]
    assert [m["guard"]["rows"] for m in metrics[:6]] == [3, 3, 1, 2, 2, 3]
    assert [m["devices"]["rows"] for m in metrics[:6]] == [3, 3, 1, 2, 2, 3]
    assert [m["devices"]["rejected"] for m in metrics[:6]] == [0, 1, 0, 0, 0, 0]
    assert [m["devices"]["held_by"] for m in metrics[:6]] == ["a"] * 6
    assert metrics[4]["devices"]["led_by"] == "b"
    assert str(metrics[4]["devices"]["clock"]) == "2024-01-01 00:00:20"
    assert str(metrics[4]["devices"]["newest"]) == "2024-01-01 00:01:00"
    assert metrics[4]["devices"]["clock_micros"] == int(at(20).timestamp()) * 1_000_000
    assert metrics[4]["devices"]["newest_micros"] == int(at(60).timestamp()) * 1_000_000
    assert metrics[4]["devices"]["state_bytes"] > 0
    assert metrics[6]["devices"]["rows"] is None  # the micro-batch without data
    # Both branches read the same rows in the same micro-batch, and Spark runs both also without
    # new data.
    assert {len(p.sources) for p in progress} == {1}
    assert {len(p.stateOperators) for p in progress} == {2}


def test_rows_are_unchanged_and_any_native_operator_may_follow(
    spark: SparkSession, tmp_path: Path
) -> None:
    script = [*SCRIPT[:2], SCRIPT[1], SCRIPT[5], rows(("a", 100, 180)), rows(("b", 3, 181))]
    frame = everything(micro_batches(spark, script, schema=SCHEMA, directory=tmp_path))
    marked = frame.transform(time.producers("k", **ARGUMENTS))
    unique = marked.where("ts IS NOT NULL").dropDuplicatesWithinWatermark(["k", "ts"])
    got, progress = run(
        unique.drop("free", "months"), tmp_path
    )  # Spark cannot pass these to Python
    # Spark drops the duplicates, and one late row.
    assert len(got) == 3 + 2 + 0 + 3 + 1
    first = next(row for row in got if row["ts"] == at(1))
    assert first["nested"] == [{"k": "a", "v": 0}]
    assert first["m"] == [(0, at(100))]
    assert first["d"] == Decimal("1.50")
    assert first["a.b`c"] == b"a"
    assert first["lasts"] == dt.timedelta(seconds=1)
    assert sum(op.numRowsDroppedByWatermark for p in progress for op in p.stateOperators) == 1
    updates = tmp_path / "updates"
    updates.mkdir()
    counted = marked.groupBy(F.window("ts", "1 hour"), "k").count()
    got, _ = run(counted, updates, mode="update")
    assert {(row["k"], row["count"]) for row in got} >= {("a", 1), ("b", 2), (None, 1)}


def test_a_batch_frame_is_unchanged(spark: SparkSession) -> None:
    frame = spark.createDataFrame([("a", at(1))], "k string, ts timestamp")
    by_producer = time.producers("k", time="ts", delay="10 seconds", idle="1 minute").options(
        name="clock"
    )
    assert frame.transform(by_producer) is frame
