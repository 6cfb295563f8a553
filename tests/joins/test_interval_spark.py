"""Interval joins on Spark: streams on both state APIs, both engines, batches, chains."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamops import aggregates as agg
from streamops import joins, split_side_output, windows
from streamops.kernel.errors import SchemaError, SpecError, WatermarkError
from streamops.testing import assert_rows, at, micro_batches, replay, stream
from streamops.testing.replaying import Replay

pytestmark = pytest.mark.spark

APIS: Any = ("transformWithStateInPandas", "applyInPandasWithState")
TIME = pa.timestamp("us", tz="UTC")
POSITION = pa.struct([("x", pa.int32()), ("tags", pa.list_(pa.string()))])
SEARCHES = pa.schema(
    [
        ("query", pa.string()),
        ("ts", TIME),
        ("price", pa.decimal128(10, 2)),
        ("place", POSITION),
        ("local", pa.timestamp("us")),
    ]
)
CLICKS = pa.schema(
    [
        ("search", pa.string()),
        ("at", TIME),
        ("n", pa.int64()),
        ("codes", pa.map_(pa.string(), pa.int64())),
    ]
)
BOTH = (SEARCHES, CLICKS)


def searches(*rows: tuple[str | None, float | None]) -> list[dict[str, Any]]:
    return [
        {
            "query": query,
            "ts": None if second is None else at(second),
            "price": None if query is None else Decimal(f"{second or 0:.2f}"),
            "place": {"x": 1, "tags": ["a", None]} if query == "a" else None,
            "local": None if second is None else at(second).replace(tzinfo=None),
        }
        for query, second in rows
    ]


def clicks(*rows: tuple[str | None, float | None, int]) -> list[dict[str, Any]]:
    return [
        {
            "search": search,
            "at": None if second is None else at(second),
            "n": n,
            "codes": {"n": n} if n % 2 else None,
        }
        for search, second, n in rows
    ]


# Equal rows, null keys, null times, a tie; then stragglers that find what has expired (x at 20 s) or
# comes with them (b at 9 s).
SCRIPT: list[Any] = [
    (
        searches(("a", 10), ("b", 11), (None, 12), ("x", 15)),
        clicks(("b", 13, 1), ("b", 13, 0), ("z", 14, 2)),
    ),
    (searches(("d", 38), ("d", 38), ("a", None)), clicks(("e", 41, 3), (None, 40, 4))),
    (searches(("e", 40)), clicks(("a", 13, 5), ("d", 39, 6), ("c", None, 7))),
    (searches(("b", 9), ("g", 200)), clicks(("d", 40, 8), ("x", 20, 9), ("g", 201, 10))),
    (None, clicks(("g", 196, 11), ("g", 240, 12))),
    (searches(("h", 250)), None),
]
COMMON: dict[str, Any] = {"by": {"query": "search"}, "time": ("ts", "at")}
RETRACT: dict[str, Any] = {"stragglers": "retract", "allowed_lateness": "1 minute"}
POLICIES: list[dict[str, Any]] = [
    {"how": "full", "too_late": "route", **RETRACT},
    {"how": "left", "matches": "first", "tie_break": "n", "early": "every batch"},
    {"how": "anti", **RETRACT},
    {"how": "inner", "stragglers": "route"},
]


def frames_of(spark: SparkSession) -> tuple[DataFrame, DataFrame]:
    left = [tuple(row.values()) for batch, _ in SCRIPT for row in batch or ()]
    right = [tuple(row.values()) for _, batch in SCRIPT for row in batch or ()]
    return (
        spark.createDataFrame(
            left,
            "query string, ts timestamp, price decimal(10, 2), "
            "place struct<x: int, tags: array<string>>, local timestamp_ntz",
        ),
        spark.createDataFrame(
            right, "search string, at timestamp, n long, codes map<string, bigint>"
        ),
    )


def same(actual: list[Any], expected: list[Any]) -> None:
    assert len(actual) == len(expected)
    for one, other in zip(actual, expected, strict=True):
        assert_rows(one.rows, other.rows)
        assert_rows(one.late_rows, other.late_rows)
        assert (one.watermark, one.counts) == (other.watermark, other.counts)
        assert one.state_rows == other.state_rows


@pytest.mark.parametrize("number", range(len(POLICIES)))
def test_a_stream_equals_its_replay_also_after_a_restart(
    spark: SparkSession, number: int, tmp_path: Path
) -> None:
    policy, api = POLICIES[number], APIS[number % 2]
    join = joins.interval(
        None, "-5 seconds", "10 seconds", delay=("2 seconds", "3 seconds"), **policy, **COMMON,
    ).options(state_api=api, shards=3)  # fmt: skip
    played = Replay(join, BOTH)
    for part in (SCRIPT[:3], SCRIPT[3:]):
        expected = played.run(part)
        assert any(result.rows for result in expected)
        same(stream(spark, join, part, schema=BOTH, directory=tmp_path), expected)


def test_a_checkpoint_without_rows_without_a_partner_is_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    hows: list[Any] = ["inner", "full"]
    for how in hows:
        join = joins.interval(
            None, "0 seconds", "10 seconds", delay="2 seconds", **(COMMON | {"how": how})
        ).options(shards=3)
        if how == "inner":
            stream(spark, join, SCRIPT[:1], schema=BOTH, directory=tmp_path)
            continue
        with pytest.raises(StreamingQueryException) as caught:
            stream(spark, join, SCRIPT[1:2], schema=BOTH, directory=tmp_path)
        assert "[STATE_PARAMETERS]" in str(caught.value)
        assert "how='inner'" in str(caught.value)


@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "semi", "anti"])
def test_a_batch_has_the_same_result_on_both_engines(spark: SparkSession, how: str) -> None:
    left, right = frames_of(spark)
    kernel, native = (
        left.transform(
            joins.interval(right, "-5 seconds", "10 seconds", how=how, **COMMON).options(
                engine=engine
            )  # type: ignore[arg-type]
        )
        for engine in ("kernel", "native")
    )
    assert kernel.schema == native.schema
    assert_rows(kernel, native)
    assert kernel.count() > 1


def test_both_engines_agree_on_odd_keys(spark: SparkSession) -> None:
    frame = spark.sql(
        """
        select timestamp_micros(id * id * 500000 - 90000000) as ts, id,
            cast(if(id % 3 = 0, 'nan', if(id % 3 = 1, '-0.0', '0.0')) as double) as gate,
            if(id % 4 = 0, null, id % 2 = 0) as flag, named_struct('x', id % 2) as pair
        from (select explode(sequence(0, 40)) as id union all select explode(sequence(10, 20)))
        """
    )
    kernel, native = (
        frame.transform(
            joins.interval(
                frame,
                "-1 minute",
                "-1 second",
                by=["gate", "flag", "pair"],
                time="ts",
                how="full",
            ).options(engine=engine)
        )
        for engine in ("kernel", "native")
    )
    assert kernel.columns == ["ts", "id", "gate", "flag", "pair", "ts_right", "id_right", "status"]
    assert kernel.schema == native.schema
    assert_rows(kernel, native)
    assert {row["status"] for row in kernel.collect()} == {"matched", "expired"}


@pytest.mark.parametrize("how", ["inner", "left", "right", "full", "semi"])
def test_a_stream_has_the_same_result_on_both_engines(spark: SparkSession, how: str) -> None:
    script = [*SCRIPT, (searches(("y", 400)), clicks(("y", 400, 13)))]
    rows = []
    for engine in ("kernel", "native"):
        join = joins.interval(
            None, "-5 seconds", "10 seconds", delay="5 seconds", how=how, **COMMON,
        ).options(engine=engine, shards=3)  # fmt: skip
        rows.append([row for item in stream(spark, join, script, schema=BOTH) for row in item.rows])
    # Both have emitted all that lies far behind the last rows.
    kernel, native = ([row for row in item if row["query"] not in ("y", "h")] for item in rows)
    assert_rows(kernel, native)
    assert len(kernel) > 1


def test_the_native_engine_supports_neither_corrections_nor_first_matches(
    spark: SparkSession,
) -> None:
    left, right = frames_of(spark)
    for arguments in (RETRACT, {"stragglers": "route"}, {"matches": "first", "tie_break": "n"}):
        join = joins.interval(right, "0 seconds", "1 hour", **arguments, **COMMON).options(
            engine="native"
        )
        with pytest.raises(SpecError, match="PARAMETERS_CONTRADICT"):
            left.transform(join)


def test_late_rows_of_both_sides_are_split_from_results(spark: SparkSession) -> None:
    left, right = frames_of(spark)
    join = joins.interval(right, "0 seconds", "5 seconds", stragglers="route", **COMMON)
    results, late_left, late_right = split_side_output(left.transform(join))
    assert results.columns[-1] == "status"
    assert {row["status"] for row in results.collect()} == {"matched"}
    assert late_left.columns == ["reason", "lateness", "watermark", "row"]
    assert [(r["reason"], r["row"]["query"]) for r in late_left.collect()] == [("null_time", "a")]
    (row,) = late_right.collect()
    assert (row["row"]["search"], row["row"]["codes"]) == ("c", {"n": 7})
    with pytest.raises(SchemaError, match="FRAME_TYPE"):
        split_side_output(results)
    with pytest.raises(SpecError, match="NOT_A_FRAME"):
        split_side_output("results")  # type: ignore[arg-type]
    # A column of a frame of that name is another than a field of the column.
    called = left.withColumn("side", F.lit("right")).transform(join).alias("late")
    assert [part.count() for part in split_side_output(called)[1:]] == [1, 1]


def published(spark: SparkSession, frame: DataFrame, directory: Path) -> list[dict[str, Any]]:
    query = (
        frame.writeStream.outputMode("append")
        .option("checkpointLocation", str(directory / "checkpoint"))
        .format("parquet")
        .option("path", str(directory / "out"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(300)
    return [row.asDict() for row in spark.read.parquet(str(directory / "out")).collect()]


def test_click_through_rate_per_hour_by_a_window_after_the_join(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Searches that expire lie an hour behind the watermark, and are counted all the same; those
    that are clicked twice, once.
    """
    minutes, batches = range(0, 300, 10), []
    for part in range(5):
        mine = [m for m in minutes if m // 60 == part]
        ours = searches(*((f"q{m}", m * 60) for m in mine))
        found = [m for m in mine if m % 30 == 0]
        again = ((f"q{m}", m * 60 + 1_900, m + 1) for m in found)
        theirs = clicks(*((f"q{m}", m * 60 + 1_800, m) for m in found), *again)
        batches.append((ours, theirs))
    left, right = (
        micro_batches(spark, [pair[i] for pair in batches], schema=BOTH[i]) for i in (0, 1)
    )
    once: dict[str, Any] = {"matches": "first", "tie_break": "n", **COMMON}
    clicked = joins.interval(right, "0 seconds", "1 hour", how="left", delay="1 minute", **once)
    rate = windows.tumbling(
        "1 hour",
        time="ts",
        agg={"searches": agg.count(), "rate": agg.mean("clicked")},
    ).options(shards=2)
    is_click = F.when(F.col("status") == "matched", 1.0).otherwise(0.0)
    hours = left.transform(clicked).withColumn("clicked", is_click).transform(rate)
    got = published(spark, hours, tmp_path)
    assert [(row["searches"], round(row["rate"], 6)) for row in got] == [(6, 0.333333)] * len(got)
    assert len(got) >= 2


def test_the_next_operator_cannot_allow_more_lateness_than_the_join(spark: SparkSession) -> None:
    """A search that expires an hour behind the watermark would be late for a less patient one."""
    left, right = (micro_batches(spark, [], schema=schema) for schema in BOTH)
    join = joins.interval(right, "0 seconds", "1 hour", how="left", delay="1 minute", **COMMON)
    counted: Any = {"time": "ts", "agg": {"n": agg.count()}, "allowed_lateness": "10 minutes"}
    with pytest.raises(WatermarkError, match="WATERMARK_TOO_TIGHT"):
        left.transform(join).transform(windows.tumbling("1 hour", **counted))


def test_a_stream_joined_with_itself(spark: SparkSession, tmp_path: Path) -> None:
    frame = micro_batches(
        spark, [clicks(("a", 1, 1), ("a", 3, 2)), clicks(("a", 9, 3), ("b", 60, 4))], schema=CLICKS
    )
    join = joins.interval(
        frame,
        "1 second",
        "6 seconds",
        by="search",
        time="at",
        delay="2 seconds",
    ).options(shards=2)
    found = published(spark, frame.transform(join), tmp_path)
    assert sorted((row["n"], row["n_right"]) for row in found) == [(1, 2), (2, 3)]


def test_watermarks_of_frames_are_used_and_passed_on_where_possible(
    spark: SparkSession,
) -> None:
    back = joins.interval(None, "-10 seconds", "0 seconds", how="left", **COMMON)
    brought = stream(spark, back, SCRIPT, schema=BOTH, watermark="5 seconds")
    own = joins.interval(None, "-10 seconds", "0 seconds", how="left", delay="5 seconds", **COMMON)
    expected = replay(own, SCRIPT, schema=BOTH)
    rows = ([row for item in results for row in item.rows] for results in (brought, expected))
    assert_rows(*rows)
    left, right = (
        micro_batches(spark, [], schema=schema).withWatermark(time, "5 seconds")
        for schema, time in zip(BOTH, ("ts", "at"), strict=True)
    )
    ahead = joins.interval(right, "0 seconds", "10 seconds", how="left", **COMMON)
    with pytest.raises(WatermarkError, match="WATERMARK_LOST"):
        left.transform(ahead).transform(
            windows.tumbling("1 hour", time="ts", agg={"n": agg.count()})
        )


def test_results_that_are_revised_are_refused(
    spark: SparkSession,
) -> None:
    rows = spark.createDataFrame([], "k string, ts timestamp, n int")
    arguments: Any = {"by": "k", "time": "ts", "delay": "0 seconds", "allowed_lateness": "1 minute"}
    followed = joins.interval(rows, "0 seconds", "1 second", stragglers="retract", **arguments)
    emitted = rows.transform(followed).select("k", "ts", "n", "_change_type")
    of: Any = {"by": "k", "time": "ts", "version": "ts", "sequence": "n"}
    refused = {
        "joins.interval, left frame": lambda: emitted.transform(followed),
        "joins.interval, right frame": lambda: rows.transform(
            joins.interval(emitted, "0 seconds", "1 second", **arguments)
        ),
        "joins.asof, left frame": lambda: emitted.transform(joins.asof(rows, **of)),
    }
    for where, act in refused.items():
        with pytest.raises(SchemaError, match="ROWS_REVISED") as caught:
            act()
        assert caught.value.where == where
    # Without the change type every row counts; and an operator that reads changes takes them.
    assert "n_right" in emitted.drop("_change_type").transform(followed).columns
    assert "n_right" in rows.transform(joins.asof(emitted, **of)).columns
    assert emitted.transform(joins.tables(emitted, by="k")).columns[-1] == "_change_type"
