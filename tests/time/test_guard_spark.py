"""A guard on Spark: boundary cases compared with an oracle, the policies, and downstream operators.

A guard consists of Spark expressions, so only its parameters can be tested without Spark.
"""

from __future__ import annotations

import datetime as dt
import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException, StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamops import aggregates as agg
from streamops import split_side_output, time, windows
from streamops.kernel.time import MAX_INSTANT, MIN_INSTANT, parse_instant
from streamops.testing import START, assert_rows, at, micro_batches, stream
from tests.oracles import clocks

pytestmark = pytest.mark.spark

SHARDS = 2
DAY = 86_400_000_000
NOON = parse_instant(dt.datetime(2024, 3, 9, 12, tzinfo=dt.UTC), parameter="")
YEAR_2999 = parse_instant(dt.datetime(2999, 1, 1, tzinfo=dt.UTC), parameter="")
YEAR_2020 = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)

# Instants near every boundary: years 1 and 9999, 1970, the bounds, 64 bits.
ARRIVALS = [None, NOON, 5, MIN_INSTANT, MIN_INSTANT - 1, MAX_INSTANT, MAX_INSTANT + 1, YEAR_2999]
BASES = [*(a for a in ARRIVALS if a is not None), 0, NOON + 2 * DAY, NOON - 3 * DAY]
TIMES = [
    None,
    *sorted({base + off for base in BASES for off in (-1, 0, 1)}),
    *(parse_instant(YEAR_2020, parameter="") + off for off in (-1, 0, 1)),
    -(2**63) + 1,
    2**63 - 1,
]
PAIRS = list(itertools.product(TIMES, ARRIVALS))

SCHEMA = pa.schema([("ts", pa.timestamp("us", "UTC")), ("v", pa.int64())])


def instants(spark: SparkSession, pairs: list[Any]) -> DataFrame:
    """Return timestamps. They are created in the JVM: Python cannot represent all of them."""
    rows = [(number, *pair) for number, pair in enumerate(pairs)]
    frame = spark.createDataFrame(rows, "number long, ts long, arrived long")
    return frame.select(
        "number",
        F.timestamp_micros("ts").alias("ts"),
        F.timestamp_micros("arrived").alias("arrived"),
    )


@pytest.mark.parametrize(
    ("arguments", "expected_of"),
    [
        ({}, {"ahead": 300_000_000}),
        (
            # In New York, the day that starts at noon of 9 March 2024 has 23 hours.
            {"ahead": "2 days", "before": "3 days", "past": "clamp"},
            {"ahead": 2 * DAY, "behind": 3 * DAY, "clamped": ("past",)},
        ),
        (
            {"ahead": "0 seconds", "before": "0 seconds", "future": "clamp"},
            {"ahead": 0, "behind": 0, "clamped": ("future",)},
        ),
        pytest.param(
            {"before": YEAR_2020, "future": "clamp", "past": "clamp", "ahead": "1 microsecond"},
            {
                "ahead": 1,
                "earliest": parse_instant(YEAR_2020, parameter=""),
                "clamped": ("future", "past"),
            },
            marks=pytest.mark.smoke,
        ),
    ],
    ids=repr,
)
def test_boundary_cases_equal_the_oracle(
    spark: SparkSession, arguments: dict[str, Any], expected_of: dict[str, Any]
) -> None:
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        guarded = instants(spark, PAIRS).transform(time.guard("ts", arrival="arrived", **arguments))
        assert guarded.columns == ["number", "ts", "arrived", "guarded"]
        got = (
            guarded.select(
                "number",
                F.unix_micros("ts").alias("time"),
                F.col("guarded").isNull().alias("is_good"),
                "guarded.reason",
                "guarded.outcome",
                F.unix_micros("guarded.bound").alias("bound"),
                F.unix_micros("guarded.original").alias("original"),
                F.unix_micros(F.current_timestamp()).alias("now"),
            )
            .orderBy("number")
            .collect()
        )
        again = guarded.drop("guarded").transform(time.guard("ts", arrival="arrived", **arguments))
        assert again.where("guarded.reason <> 'null_time'").count() == 0
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert len(got) == len(PAIRS)
    assert {row["reason"] for row in got} == {None, "null_time", "future", "past"}
    for row, (instant, arrival) in zip(got, PAIRS, strict=True):
        expected = clocks.guard(instant, arrival, row["now"], **expected_of)
        found = (row["time"], row["reason"], row["outcome"], row["bound"])
        assert found == expected, (instant, arrival)
        assert row["is_good"] == (expected.reason is None)
        assert row["original"] == (None if row["is_good"] else instant)


def test_strings_are_cast_and_strings_that_cannot_be_cast_are_routed(
    spark: SparkSession,
) -> None:
    texts = {
        "2024-01-01 00:00:00.123456Z": at(0, 123_456),
        "2024-01-01T02:00:00+02:00": at(0),
        " 2023-12-31 19:00:00 ": at(0),  # in the time zone of the session, New York
        "2999-01-01 00:00:00Z": "future",
        "+12345-01-01 00:00:00Z": "future",
        "nonsense": "unparsable_time",
        "2024-02-30 00:00:00Z": "unparsable_time",
        "": "unparsable_time",
        None: "null_time",
    }
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        frame = spark.createDataFrame([(text,) for text in texts], "`a.t``s` string")
        reasons: dict[str, Any] = {}
        guarded = frame.transform(time.guard("a.t`s"))
        rows = guarded.select(
            F.unix_micros("`a.t``s`"), "guarded.original", "guarded.reason"
        ).collect()
        for micros, original, reason in rows:
            reasons[original] = reason
            assert (micros is None) == (reason is not None)
        good = sorted(micros for micros, _, reason in rows if reason is None)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    zero = parse_instant(START, parameter="")
    assert good == [zero, zero, zero + 123_456]
    bad = {text: what for text, what in texts.items() if isinstance(what, str)}
    assert {k: v for k, v in reasons.items() if v is not None} == bad
    assert guarded.schema["a.t`s"].dataType.simpleString() == "timestamp"
    assert guarded.schema["guarded"].dataType.simpleString() == (
        "struct<reason:string,outcome:string,original:string,bound:timestamp>"
    )


@pytest.mark.parametrize(
    ("arguments", "value", "limit"),
    [
        ({"future": "fail"}, "2999-01-01 00:00:00", "at most 5 minutes ahead of its arrival"),
        ({"past": "fail", "before": YEAR_2020}, "2019-01-01", "2020-01-01 00:00:00Z or later"),
        ({"past": "fail", "before": "1 day"}, "2019-01-01", "at most 1 day behind its arrival"),
        ({"past": "fail"}, "-0001-01-01", "0001-01-01 00:00:00Z or later"),
        ({"unusable": "fail"}, None, "not null"),
        ({"unusable": "fail"}, "nonsense", "a timestamp in ISO 8601"),
    ],
    ids=repr,
)
def test_the_error_of_a_failing_query_shows_value_and_limit(
    spark: SparkSession, arguments: dict[str, Any], value: str | None, limit: str
) -> None:
    good = spark.createDataFrame([("2024-06-01 00:00:00",)], "ts string")
    bad = spark.createDataFrame([(value,)], "ts string")
    if arguments.get("before") != "1 day":
        assert good.transform(time.guard("ts", **arguments)).count() == 1
    with pytest.raises(PySparkException) as caught:
        # The query fails although no column is read.
        bad.transform(time.guard("ts", **arguments)).count()
    text = str(caught.value)
    assert "[ROW_REJECTED] time.guard: a row has an invalid event time: " in text
    assert f"got:       'ts' is {value or 'null'}" in text
    assert f"expected:  {limit}" in text
    policy = next(iter(arguments))
    assert f'fix:       use {policy}="route" to mark the row' in text
    assert ("the bound " in text) == (policy != "unusable")
    # The other policies retain such a row.
    others = {"future": "route", "past": "clamp", "unusable": "route"}
    lenient = {**arguments, policy: others[policy]}
    assert bad.transform(time.guard("ts", **lenient)).count() == 1


def rows(*events: tuple[Any, int]) -> list[dict[str, Any]]:
    return [{"ts": at(s) if isinstance(s, int) else s, "v": v} for s, v in events]


POISON = at(0, since=dt.datetime(2999, 1, 1, tzinfo=dt.UTC))
SCRIPT = [
    rows((1, 1), (12, 2)),
    rows((POISON, 99), (14, 3), (None, 4)),
    rows((21, 5)),
    rows((23, 6), (34, 7)),
    rows((60, 8)),
]
PER_TEN: dict[str, Any] = {
    "time": "ts",
    "agg": {"n": agg.count(), "total": agg.sum("v")},
    "delay": "5 seconds",
}


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


def window(start: int, n: int, total: int) -> dict[str, Any]:
    return {"window_start": at(start), "window_end": at(start + 10), "n": n, "total": total}


@pytest.mark.parametrize("engine", ["kernel", "native"])
def test_a_row_of_the_year_2999_does_not_advance_the_watermark(
    spark: SparkSession, tmp_path: Path, engine: str
) -> None:
    per_ten = windows.tumbling("10 seconds", **PER_TEN).options(engine=engine, shards=SHARDS)
    # Without a guard, all later rows are late.
    poisoned = stream(spark, per_ten, SCRIPT, schema=SCHEMA, directory=tmp_path)
    assert poisoned[-1].watermark == POISON - dt.timedelta(seconds=5)
    assert sum(row["n"] for result in poisoned for row in result.rows if row["n"]) < 7

    folder = tmp_path / "guarded"
    folder.mkdir()
    total: list[Any] = []
    results: list[Any] = []
    # The query starts without a guard, restarts with one, and restarts again.
    for start, part in enumerate((SCRIPT[:1], SCRIPT[1:3], SCRIPT[3:])):
        frame = micro_batches(spark, part, schema=SCHEMA, directory=folder)
        if start:
            frame = frame.transform(time.guard("ts"))
        got, metrics = run(frame.transform(per_ten), folder)
        results += got
        total += metrics
    assert_rows(results, [window(0, 1, 1), window(10, 2, 5), window(20, 2, 11), window(30, 1, 7)])

    def counted(name: str, count: str) -> int:
        return sum(m[name][count] or 0 for m in total if name in m)

    assert counted("guard", "rows") + 2 == counted("tumbling", "rows") == 9
    assert counted("guard", "routed") == counted("tumbling", "rejected") == 2
    assert [counted("guard", r) for r in ("future", "null_time", "past", "clamped")] == [1, 1, 0, 0]


def test_a_clamped_row_advances_the_watermark_to_its_arrival_and_no_further(
    spark: SparkSession, tmp_path: Path
) -> None:
    script = [
        [{**row, "arrived": at(10 * number)} for row in batch]
        for number, batch in enumerate(SCRIPT, start=2)
    ]
    schema = SCHEMA.append(pa.field("arrived", pa.timestamp("us", "UTC")))
    # The side output of the window has rejected rows, with the outcome of the guard.
    per_ten = windows.tumbling("10 seconds", stragglers="route", **PER_TEN).options(shards=SHARDS)
    guard = time.guard("ts", arrival="arrived", ahead="2 seconds", future="clamp").options(
        name="ingest"
    )
    frame = micro_batches(spark, script, schema=schema, directory=tmp_path)
    got, metrics = run(frame.transform(guard).transform(per_ten), tmp_path)
    # The row of 2999 arrived at 30 s, so it is clamped to 32 s, and the watermark is 27 s. The row
    # at 23 s is still on time, because its window is not closed.
    results = [{k: v for k, v in row.items() if k != "late"} for row in got if not row["late"]]
    assert_rows(results, [window(0, 1, 1), window(10, 2, 5), window(20, 2, 11), window(30, 2, 106)])
    (late,) = (row["late"] for row in got if row["late"])
    assert late["reason"] == "null_time"
    assert late["row"]["guarded"]["reason"] == "null_time"
    assert sum(m["ingest"]["clamped"] for m in metrics if "ingest" in m) == 1
    assert max(m["tumbling"]["watermark"] or "" for m in metrics) == "2024-01-01 00:00:55"


def test_two_guards_of_a_query_have_separate_metrics(spark: SparkSession, tmp_path: Path) -> None:
    def both(frame: DataFrame) -> DataFrame:
        first = frame.withColumn("created", F.col("ts")).transform(time.guard("ts"))
        return first.withColumnRenamed("guarded", "was").transform(time.guard("created"))

    got, metrics = run(
        both(micro_batches(spark, SCRIPT[1:2], schema=SCHEMA, directory=tmp_path)), tmp_path
    )
    counts = {
        "rows": 3,
        "clamped": 0,
        "routed": 2,
        "side_output": 2,
        "null_time": 1,
        "unparsable_time": 0,
        "future": 1,
        "past": 0,
    }
    assert metrics[0]["guard"].asDict() == metrics[0]["guard-2"].asDict() == counts
    assert [row["was"] == row["guarded"] for row in got] == [True, True, True]
    # Batches have no metrics by default: Spark refuses two observations of the same name.
    frame = spark.createDataFrame([(at(1),), (POISON,)], "ts timestamp")
    guarded = frame.transform(time.guard("ts"))
    assert guarded.union(frame.transform(time.guard("ts"))).count() == 4


def test_valid_and_routed_rows_are_split(spark: SparkSession) -> None:
    old = dt.datetime(1999, 1, 1, tzinfo=dt.UTC)
    frame = spark.createDataFrame([(at(1),), (POISON,), (None,), (old,)], "ts timestamp")
    guard = time.guard("ts", before=YEAR_2020, past="clamp")
    good, routed = split_side_output(frame.transform(guard))
    naive = at(1).replace(tzinfo=None)
    assert sorted((row["ts"], row["guarded"] is None) for row in good.collect()) == [
        (YEAR_2020.replace(tzinfo=None), False),
        (naive, True),
    ]
    rest = [row["guarded"].asDict() for row in routed.collect()]
    assert sorted(outcome["reason"] for outcome in rest) == ["future", "null_time"]
    assert {outcome["original"] for outcome in rest} == {None, POISON.replace(tzinfo=None)}
    assert good.columns == routed.columns == ["ts", "guarded"]


def test_a_guard_preserves_column_comments_and_fails_a_stream(
    spark: SparkSession, tmp_path: Path
) -> None:
    commented = F.col("ts").alias("ts", metadata={"comment": "when it happened"})
    frame = micro_batches(spark, SCRIPT[:2], schema=SCHEMA, directory=tmp_path).select(
        commented, "v"
    )
    guarded = frame.transform(time.guard("ts", future="fail"))
    assert guarded.schema["ts"].metadata["comment"] == "when it happened"
    with pytest.raises(StreamingQueryException, match="ROW_REJECTED"):
        run(guarded, tmp_path)
