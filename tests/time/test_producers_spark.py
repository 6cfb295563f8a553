"""A watermark per producer on Spark: that it is wired, before every kind of operator.

What the clock decides is tested on the core; here a micro-batch on Spark must give what the
same micro-batch gives without it.
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
from streamops.kernel.errors import SpecError
from streamops.spark.settings import PROVIDER
from streamops.testing import Replay, assert_rows, at, micro_batches, replay, stream

pytestmark = pytest.mark.spark

TWS, AIPWS = "transformWithStateInPandas", "applyInPandasWithState"
SHARDS = 2
HDFS = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
INSTANT = pa.timestamp("us", "UTC")
SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("ts", INSTANT), ("at", INSTANT)])


def rows(*events: tuple[str | None, float | None, float]) -> list[dict[str, Any]]:
    return [
        {"k": k, "ts": None if s is None else at(s), "at": at(came), "v": number}
        for number, (k, s, came) in enumerate(events)
    ]


# a is slow, falls silent, comes back late and catches up; a null producer, a null time.
SCRIPT = [
    rows(("a", 1, 100), ("b", 2, 100), (None, 5, 100)),
    rows(("b", 31, 101), (None, 40, 102), ("b", None, 102)),
    rows(("a", 9, 103)),
    rows(("b", 45, 170), (None, 50, 170)),
    rows(("a", 20, 171), ("b", 60, 171)),
    rows(("a", 70, 172), ("b", 71, 172), (None, 81, 172)),
]
SAID: dict[str, Any] = {
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
    """The query's output, and its progress."""
    kept: list[dict[str, Any]] = []

    def keep(batch: DataFrame, number: int) -> None:
        kept.extend(batch.toArrow().to_pylist())

    query = (
        frame.writeStream.outputMode(mode)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .foreachBatch(keep)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(200)
    return kept, list(query.recentProgress)


@pytest.mark.parametrize(("before", "behind"), [(TWS, TWS), (TWS, AIPWS), (AIPWS, TWS)])
def test_windows_behind_it_give_what_their_replay_gives(
    spark: SparkSession, tmp_path: Path, before: Any, behind: Any
) -> None:
    chain = [
        time.producers("k", **SAID).options(state_api=before),
        windows.tumbling("10 seconds", **COMMON).options(state_api=behind, shards=SHARDS),
    ]
    played = Replay(chain, SCHEMA)
    for part in (SCRIPT[:4], SCRIPT[4:]):  # the second starts from the checkpoint of the first
        got = stream(spark, chain, part, schema=SCHEMA, directory=tmp_path)
        for one, other in zip(got, played.run(part), strict=True):
            assert_rows(one.rows, other.rows)
            assert_rows(one.late_rows, other.late_rows)
            assert one.watermark == other.watermark
            assert one.counts == other.counts
            assert one.state_rows == other.state_rows
            assert one.clock == other.clock
    if before == behind:
        others = [time.producers("v", **SAID), chain[1]]
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


def test_an_arrival_in_the_future_counts_as_the_present_and_none_as_no_row(
    spark: SparkSession, tmp_path: Path
) -> None:
    now = dt.datetime.now(dt.UTC)
    arrived = {"a": now - dt.timedelta(minutes=1), "b": now.replace(year=2999), "c": None}
    script = [
        [{"k": k, "ts": at(1), "at": came, "v": 0} for k, came in arrived.items()],
        [{"k": "a", "ts": at(2), "at": now, "v": 0}],
    ]
    chain = [
        time.producers("k", **SAID | {"idle": "1 hour"}),
        windows.tumbling("10 seconds", **COMMON).options(shards=SHARDS),
    ]
    for results in (stream(spark, chain, script, schema=SCHEMA), replay(chain, script)):
        told = [result.clock for result in results[:2]]
        assert [each and (each.active, each.rejected) for each in told] == [(2, 1), (2, 0)]
        assert [each and each.held_by for each in told] == ["a", "b"]


@pytest.fixture
def without_rocksdb(spark: SparkSession) -> Iterator[SparkSession]:
    before = spark.conf.get(PROVIDER)
    spark.conf.set(PROVIDER, HDFS)
    yield spark
    spark.conf.set(PROVIDER, str(before))


def everything(frame: DataFrame) -> DataFrame:
    """The frame with a column of every kind that a row may have."""
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


def test_a_guard_before_it_and_spark_s_own_windows_behind_it(
    without_rocksdb: SparkSession, tmp_path: Path
) -> None:
    # Neither RocksDB nor a column of arrivals; every kind of column passes as it was.
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
    # Nobody was silent for an hour, so the clock waits for a: 1, 1, 9, 9, 20, 70 s.
    found = [(row["window"]["start"], row["n"], row["free"], row["nested"]) for row in got]
    assert sorted(found) == [
        (at(0), 4, 4, 4),
        (at(20), 1, 1, 1),
        (at(30), 1, 1, 1),
        (at(40), 2, 2, 2),
        (at(50), 1, 1, 1),
    ]
    told = [each.observedMetrics for each in progress]
    assert [each["guard"]["rows"] for each in told[:6]] == [3, 3, 1, 2, 2, 3]
    assert [each["devices"]["rows"] for each in told[:6]] == [3, 3, 1, 2, 2, 3]
    assert [each["devices"]["rejected"] for each in told[:6]] == [0, 1, 0, 0, 0, 0]
    assert [each["devices"]["held_by"] for each in told[:6]] == ["a"] * 6
    assert told[4]["devices"]["led_by"] == "b"
    assert str(told[4]["devices"]["clock"]) == "2024-01-01 00:00:20"
    assert str(told[4]["devices"]["newest"]) == "2024-01-01 00:01:00"
    assert told[4]["devices"]["clock_micros"] == int(at(20).timestamp()) * 1_000_000
    assert told[4]["devices"]["newest_micros"] == int(at(60).timestamp()) * 1_000_000
    assert told[4]["devices"]["state_bytes"] > 0
    assert told[6]["devices"]["rows"] is None  # the micro-batch without data
    # Both branches read one source: the same rows, in the same micro-batch. And Spark leaves
    # out neither of them, also where there is no data.
    assert {len(each.sources) for each in progress} == {1}
    assert {len(each.stateOperators) for each in progress} == {2}


def test_rows_pass_as_they_are_and_any_native_operator_may_follow(
    spark: SparkSession, tmp_path: Path
) -> None:
    script = [*SCRIPT[:2], SCRIPT[1], SCRIPT[5], rows(("a", 100, 180)), rows(("b", 3, 181))]
    frame = everything(micro_batches(spark, script, schema=SCHEMA, directory=tmp_path))
    marked = frame.transform(time.producers("k", **SAID))
    unique = marked.where("ts IS NOT NULL").dropDuplicatesWithinWatermark(["k", "ts"])
    got, progress = run(unique.drop("free", "months"), tmp_path)  # these do not go to Python
    # What came twice is dropped by Spark, and so is the row that is late by the clock of then.
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


def test_a_batch_is_as_it_was(spark: SparkSession) -> None:
    frame = spark.createDataFrame([("a", at(1))], "k string, ts timestamp")
    by_producer = time.producers("k", time="ts", delay="10 seconds", idle="1 minute").options(
        name="told"
    )
    assert frame.transform(by_producer) is frame
