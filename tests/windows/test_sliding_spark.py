"""Sliding windows on Spark: that they are wired, on both state APIs, in batches, in chains."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamops import aggregates as agg
from streamops import split_side_output, windows
from streamops.kernel.errors import SpecError, WatermarkError
from streamops.testing import assert_rows, at, micro_batches, replay, stream
from streamops.testing.replaying import Replay

pytestmark = pytest.mark.spark

SHARDS = 3
APIS = ("transformWithStateInPandas", "applyInPandasWithState")
SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])


def rows(*events: tuple[str | None, float | None, int | None]) -> list[dict[str, Any]]:
    return [{"k": k, "ts": None if s is None else at(s), "v": v} for k, s, v in events]


# Two events at one instant, a null key, a null time and a null value; stragglers that change
# results (5 s, 12 s in batch 2), and one that is too late (batch 4).
SCRIPT = [
    rows(("a", 1, 1), ("a", 1, 2), ("b", 2, 2), (None, 3, 3)),
    rows(("a", 14, 4), ("b", 31, 5), ("a", 9, None)),
    rows(("a", 5, 6), ("c", 12, 7), ("a", None, 8)),
    rows(("a", 45, 9)),
    rows(("a", 13, 10), ("b", 90, 11), ("b", 20, 12)),
    rows(("b", 100, 13)),
]
AGG = {
    "n": agg.count(),
    "values": agg.count("v"),
    "total": agg.sum("v"),
    "mean": agg.mean("v"),
    "least": agg.min("v"),
    "most": agg.max("v"),
    "spread": agg.variance("v"),
    "deviation": agg.stddev("v"),
    "oldest": agg.first("v", tie_break="v"),
    "newest": agg.last("v", tie_break="v"),
}
COMMON: dict[str, Any] = {
    "time": "ts",
    "by": "k",
    "agg": AGG,
}
POLICIES: list[dict[str, Any]] = [
    {"stragglers": "drop"},
    {"stragglers": "route", "allowed_lateness": "20 seconds"},
    {"stragglers": "update", "allowed_lateness": "20 seconds"},
    {"stragglers": "retract", "allowed_lateness": "20 seconds", "too_late": "route"},
]


def frame_of(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(
        [tuple(row[name] for name in SCHEMA.names) for batch in SCRIPT for row in batch],
        "k string, v long, ts timestamp",
    )


@pytest.mark.parametrize("policy", POLICIES, ids=lambda p: p["stragglers"])
def test_a_stream_on_spark_gives_what_its_replay_gives(
    spark: SparkSession, policy: dict[str, Any]
) -> None:
    api = APIS[POLICIES.index(policy) // 2]  # each serves a policy without corrections and one with
    transform = windows.sliding("10 seconds", delay="5 seconds", **policy, **COMMON).options(
        state_api=api, shards=SHARDS
    )
    actual = stream(spark, transform, SCRIPT, schema=SCHEMA)
    expected = replay(transform, SCRIPT, schema=SCHEMA)
    assert any(result.rows for result in expected)
    assert len(actual) == len(expected)
    for one, other in zip(actual, expected, strict=True):
        assert_rows(one.rows, other.rows)
        assert_rows(one.late_rows, other.late_rows)
        assert one.watermark == other.watermark
        assert one.counts == other.counts
        assert one.state_rows == other.state_rows


def test_a_batch_gives_the_same_on_both_engines_and_under_every_policy(
    spark: SparkSession,
) -> None:
    frame = frame_of(spark)
    for policy in POLICIES:
        kernel = frame.transform(
            windows.sliding("10 seconds", **policy, **COMMON).options(shards=SHARDS)
        )
        if "route" in policy.values():
            results, late = split_side_output(kernel, time="ts")
            assert late.columns == [
                *("k", "ts", "side", "reason", "lateness", "watermark", "window", "row")
            ]
            assert [(r["ts"], r["reason"]) for r in late.collect()] == [(None, "null_time")]
            kernel = results
        plain = {k: v for k, v in policy.items() if v != "route" and k != "too_late"}
        native = frame.transform(
            windows.sliding("10 seconds", **plain, **COMMON).options(engine="native", shards=SHARDS)
        )
        assert kernel.dtypes == native.dtypes
        assert_rows(kernel, native)


@pytest.mark.parametrize("size", ["1 microsecond", "7 seconds", "1000 days"])
def test_both_engines_agree_on_odd_keys_borders_and_types(spark: SparkSession, size: str) -> None:
    frame = spark.sql(
        """
        select timestamp_micros(id * id * 500000 - 90000000) as ts, id as seq,
            cast(if(id % 3 = 0, 'nan', if(id % 3 = 1, '-0.0', '0.0')) as double) as gate,
            if(id % 4 = 0, null, id % 2 = 0) as flag,
            if(id % 5 = 0, null, cast(id / 8 as decimal(10, 2))) as price,
            if(id % 7 = 0, double('infinity'), id / 4) as ratio,
            if(id % 3 = 0, null, cast(concat('word', id % 6) as string)) as word,
            cast(make_dt_interval(0, id % 5) as interval day to hour) as length
        from (select explode(sequence(0, 40)) as id union all select explode(sequence(10, 20)))
        """
    )
    transforms = [
        windows.sliding(
            size,
            time="ts",
            by=("gate", "flag"),
            agg={
                "n": agg.count(),
                "prices": agg.sum("price"),
                "price": agg.mean("price"),
                "ratio": agg.max("ratio"),
                "low": agg.min("word"),
                "first": agg.first("word", tie_break="seq"),
                "last": agg.last("length", tie_break="seq"),
                "length": agg.sum("length"),
            },
        ).options(engine=engine)
        for engine in ("kernel", "native")
    ]
    kernel, native = (frame.transform(transform) for transform in transforms)
    assert [(f.name, f.dataType, f.nullable) for f in kernel.schema.fields] == [
        (f.name, f.dataType, f.nullable) for f in native.schema.fields
    ]
    assert kernel.schema["last"].dataType.simpleString() == "interval day to hour"
    assert kernel.exceptAll(native).count() == native.exceptAll(kernel).count() == 0
    assert native.count() > 20


def test_spark_has_no_sliding_windows_on_streams(spark: SparkSession) -> None:
    frame = micro_batches(spark, SCRIPT[:1], schema=SCHEMA)
    with pytest.raises(SpecError, match="PARAMETERS_CONTRADICT") as caught:
        frame.transform(
            windows.sliding("1 hour", delay="1 second", **COMMON).options(
                engine="native", shards=SHARDS
            )
        )
    assert caught.value.where == "windows.sliding"


def test_the_watermark_of_the_results_is_that_of_their_event_time_alone(
    spark: SparkSession,
) -> None:
    latest = {"latest": agg.max("ts")}
    slide = windows.sliding("1 hour", time="ts", by="k", agg=latest, delay="1 second")
    frame = micro_batches(spark, SCRIPT[:1], schema=SCHEMA).transform(slide)
    with pytest.raises(WatermarkError, match="on 'ts', and not on 'latest'"):
        frame.transform(windows.tumbling("1 hour", time="latest", agg={"n": agg.count()}))


def test_results_are_joined_back_to_their_events(spark: SparkSession) -> None:
    frame = frame_of(spark).where("k is not null and ts is not null")
    results = frame.transform(windows.sliding("10 seconds", **COMMON).options(shards=SHARDS))
    joined = frame.join(results, ["k", "ts"]).where(
        "k = 'a' and ts = timestamp'2024-01-01 00:00:01Z'"
    )
    assert sorted((r["v"], r["n"], r["total"]) for r in joined.collect()) == [(1, 2, 3), (2, 2, 3)]


def test_a_restart_continues_and_refuses_other_parameters(
    spark: SparkSession, tmp_path: Any
) -> None:
    def operator(**changed: Any) -> Any:
        arguments = {**COMMON, "delay": "5 seconds", "stragglers": "retract", **changed}
        return windows.sliding(
            arguments.pop("size", "10 seconds"), allowed_lateness="20 seconds", **arguments
        ).options(shards=SHARDS)

    played = Replay(operator(), SCHEMA)
    for part in (SCRIPT[:3], SCRIPT[3:]):
        got = stream(spark, operator(), part, schema=SCHEMA, directory=tmp_path)
        for one, other in zip(got, played.run(part), strict=True):
            assert_rows(one.rows, other.rows)
            assert one.counts == other.counts
    other, more = operator(size="20 seconds"), [rows(("a", 200, 1))]
    with pytest.raises(StreamingQueryException) as caught:
        stream(spark, other, more, schema=SCHEMA, directory=tmp_path)
    assert "[STATE_PARAMETERS]" in str(caught.value)
    assert "size=10000000" in str(caught.value)


def published(spark: SparkSession, frame: DataFrame, directory: Any) -> list[dict[str, Any]]:
    query = (
        frame.writeStream.outputMode("append")
        .option("checkpointLocation", str(directory / "checkpoint"))
        .format("parquet")
        .option("path", str(directory / "out"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(200)
    return [row.asDict() for row in spark.read.parquet(str(directory / "out")).collect()]


def second(number: int) -> Any:
    return at(number).replace(tzinfo=None)


EVERY_SECOND = [rows(*((k, s + b * 20, 1) for k in "ab" for s in range(20))) for b in range(6)]


def test_windows_follow_sliding_windows_through_a_restart(
    spark: SparkSession, tmp_path: Any
) -> None:
    slide = windows.sliding(
        "10 seconds",
        time="ts",
        by="k",
        agg={"n": agg.count()},
        delay="2 seconds",
    ).options(shards=2)
    fixed = windows.tumbling(
        "20 seconds",
        time="ts",
        by="k",
        agg={"all": agg.count(), "n": agg.sum("n")},
    ).options(shards=2)
    for there in (EVERY_SECOND[:3], EVERY_SECOND):
        frame = micro_batches(spark, there, schema=SCHEMA).transform(slide).transform(fixed)
        got = published(spark, frame, tmp_path)
    expected = {(k, second(20 * i), 20, 200 if i else 155) for k in "ab" for i in range(5)}
    assert {(r["k"], r["window_start"], r["all"], r["n"]) for r in got} == expected
    assert len(got) == len(expected)


def test_sliding_windows_follow_windows_and_sparks_follow_them(
    spark: SparkSession, tmp_path: Any
) -> None:
    fixed = windows.tumbling(
        "5 seconds",
        time="ts",
        by="k",
        agg={"n": agg.count()},
        delay="2 seconds",
    ).options(shards=2)
    slide = windows.sliding(
        "10 seconds",
        time="window_end",
        by="k",
        agg={"n": agg.sum("n")},
    ).options(shards=2)
    both = micro_batches(spark, EVERY_SECOND, schema=SCHEMA).transform(fixed).transform(slide)
    native = both.groupBy("k", F.window("window_end", "20 seconds", startTime="1 second")).agg(
        F.sum("n").alias("n")
    )
    got = published(spark, native.select("k", "window.start", "n"), tmp_path)
    # Ends 5, 10, 15, 20 | 25, 30, ...: each sums two windows of 5, but the first.
    expected = {(k, second(1 + 20 * i), 40 if i else 35) for k in "ab" for i in range(5)}
    assert {(r["k"], r["start"], r["n"]) for r in got} == expected
    assert len(got) == len(expected)
