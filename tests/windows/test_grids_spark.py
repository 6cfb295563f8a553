"""Calendar and cumulative windows on Spark: that they are wired, in streams and in batches."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streamops import aggregates as agg
from streamops import split_side_output, windows
from streamops.testing import assert_rows, fold, micro_batches, replay, stream
from tests.windows.test_windows_spark import APIS, folded, same

pytestmark = pytest.mark.spark

SHARDS = 3
ZONE = "America/New_York"
SCHEMA = pa.schema([("k", pa.string()), ("v", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])
# Midnight of 2 November 2013 in New York; the clock is put back in the night that follows.
START = dt.datetime(2013, 11, 2, 4, tzinfo=dt.UTC)


def rows(*events: tuple[str | None, float | None, int]) -> list[dict[str, Any]]:
    """Rows of (key, hours after the start, value)."""
    return [
        {"k": k, "ts": None if h is None else START + dt.timedelta(hours=h), "v": v}
        for k, h, v in events
    ]


# On three days, the second of 25 hours; a straggler, one too late, a null key, a null time.
SCRIPT = [
    rows(("a", 1, 1), ("b", 20, 2), (None, 3, 3)),
    rows(("a", 25.5, 4), ("b", 48.9, 5)),
    rows(("a", 23, 6), ("c", 22, 7), ("a", None, 8)),
    rows(("a", 50, 9)),
    rows(("a", 48.5, 10), ("b", 80, 11), ("b", 2, 12)),
    rows(("b", 100, 13)),
]
AGG = {"n": agg.count(), "total": agg.sum("v"), "newest": agg.last("v", tie_break="v")}
COMMON: dict[str, Any] = {
    "time": "ts",
    "by": "k",
    "agg": AGG,
}
POLICIES: list[dict[str, Any]] = [
    {"stragglers": "drop"},
    {"stragglers": "route", "allowed_lateness": "24 hours"},
    {"stragglers": "update", "allowed_lateness": "24 hours"},
    {"stragglers": "retract", "allowed_lateness": "24 hours", "too_late": "route"},
]


def day(**arguments: Any) -> Any:
    return windows.calendar("day", ZONE, **(COMMON | {"delay": "1 hour"} | arguments)).options(
        shards=SHARDS
    )


def so_far(**arguments: Any) -> Any:
    return windows.cumulative(
        "day", "7 hours", zone=ZONE, **(COMMON | {"delay": "1 hour"} | arguments)
    ).options(shards=SHARDS)


@pytest.mark.parametrize("policy", POLICIES, ids=lambda p: p["stragglers"])
def test_a_stream_on_spark_gives_what_its_replay_gives(
    spark: SparkSession, policy: dict[str, Any]
) -> None:
    turn = POLICIES.index(policy)
    for number, make in enumerate((day, so_far)):
        # Each API serves two of the policies under each kind of window.
        transform = make(**policy).options(state_api=APIS[(turn + number) % 2])
        replayed = replay(transform, SCRIPT, schema=SCHEMA)
        same(stream(spark, transform, SCRIPT, schema=SCHEMA), replayed)
        assert sum(result.counts.results for result in replayed) > 5


def test_a_batch_of_days_is_what_spark_computes_by_local_date(spark: SparkSession) -> None:
    hourly = (
        spark.range(24 * 366)
        .select(F.timestamp_seconds(F.lit(1_356_998_400) + F.col("id") * 3_600).alias("ts"), "id")
        .withColumn("k", F.col("id") % 3)
    )
    frame = hourly.withColumn("local", F.from_utc_timestamp("ts", ZONE))
    for unit in ("day", "week", "month", "quarter", "year"):
        windowed = windows.calendar(unit, ZONE, time="ts", by="k", agg={"n": agg.count()}).options(
            shards=2
        )
        ours = frame.transform(windowed).select(
            "k", F.from_utc_timestamp("window_start", ZONE).alias("start"), "n"
        )
        theirs = frame.groupBy("k", F.date_trunc(unit, "local").alias("start")).agg(
            F.count("*").alias("n")
        )
        assert_rows(ours, theirs)


def test_a_batch_equals_a_stream_without_late_rows(spark: SparkSession) -> None:
    frame = spark.createDataFrame(
        [tuple(row[name] for name in SCHEMA.names) for batch in SCRIPT for row in batch],
        "k string, v long, ts timestamp",
    )
    everything = [[row for batch in SCRIPT for row in batch]]
    for make in (day, so_far):
        replayed = replay(make(), everything, schema=SCHEMA, flush=True)
        assert_rows(frame.transform(make()), fold(replayed))
        routed, late = split_side_output(frame.transform(make(stragglers="route")))
        assert_rows(routed, fold(replayed))
        assert [row["reason"] for row in late.collect()] == ["null_time"]


def test_the_session_time_zone_changes_nothing(spark: SparkSession) -> None:
    expected = replay(day(), SCRIPT, schema=SCHEMA)
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kolkata")
    try:
        same(stream(spark, day(), SCRIPT, schema=SCHEMA), expected)
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_they_chain_after_other_windows_and_continue_after_a_restart(
    spark: SparkSession, tmp_path: Any
) -> None:
    script = [rows(*((k, 24 * b + h, 1) for k in "ab" for h in range(24))) for b in range(4)]
    hourly = windows.tumbling(
        "1 hour",
        time="ts",
        by="k",
        agg={"n": agg.count()},
        delay="0 seconds",
    ).options(shards=2)
    summed: dict[str, Any] = {"time": "window_start", "by": "k", "agg": {"n": agg.sum("n")}}
    daily = windows.calendar("day", ZONE, **summed).options(shards=2)
    half = windows.cumulative("day", "12 hours", zone=ZONE, **summed).options(shards=2)
    local = (START + dt.timedelta(hours=h) for h in (0, 24, 49))
    first, second, third = (item.replace(tzinfo=None) for item in local)
    for name, transform, expected in (
        ("daily", daily, {(first, 24), (second, 25), (third, 24)}),
        ("half", half, {(first, 12), (first, 24), (second, 12), (second, 24), (second, 25),
                        (third, 12), (third, 24)}),
    ):  # fmt: skip
        folder = tmp_path / name
        folder.mkdir()
        for there in (script[:2], script):
            frame = micro_batches(spark, there, schema=SCHEMA).transform(hourly)
            got = folded(spark, frame.transform(transform), folder)
        found = [(row["k"], row["window_start"], row["n"]) for row in got]
        wanted = {(k, *item) for k in "ab" for item in expected}
        assert len(found) == len(set(found))
        assert wanted <= set(found)


def test_a_restart_continues_and_refuses_another_calendar(
    spark: SparkSession, tmp_path: Any
) -> None:
    policy = POLICIES[3]
    whole = replay(so_far(**policy), SCRIPT, schema=SCHEMA)
    first = stream(spark, so_far(**policy), SCRIPT[:3], schema=SCHEMA, directory=tmp_path)
    rest = stream(spark, so_far(**policy), SCRIPT[3:], schema=SCHEMA, directory=tmp_path)
    assert_rows(fold([*first, *rest]), fold(whole))
    other = windows.cumulative(
        "day", "7 hours", zone="UTC", delay="1 hour", **policy, **COMMON
    ).options(shards=SHARDS)
    with pytest.raises(StreamingQueryException) as caught:
        stream(spark, other, [rows(("a", 200, 1))], schema=SCHEMA, directory=tmp_path)
    assert "[STATE_PARAMETERS]" in str(caught.value)
    assert "zone='America/New_York'" in str(caught.value)
