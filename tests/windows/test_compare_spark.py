"""Comparisons on Spark: on both state APIs, in batches, and after windows."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamops import aggregates as agg
from streamops import windows
from streamops.kernel.errors import WatermarkError
from streamops.testing import assert_rows, at, fold, micro_batches, replay, stream
from streamops.testing.replaying import Replay

pytestmark = pytest.mark.spark

SHARDS = 2
APIS = ("transformWithStateInPandas", "applyInPandasWithState")
UTC = pa.timestamp("us", "UTC")
RESULTS = pa.schema(
    [
        ("k", pa.string()),
        ("window_start", UTC),
        ("window_end", UTC),
        ("n", pa.int32()),
        ("price", pa.decimal128(8, 2)),
        ("revision", pa.int32()),
        ("_change_type", pa.string()),
    ]
)


def result(
    k: str | None, second: int, n: int | None, revision: int = 0, change: str = "insert"
) -> dict[str, Any]:
    price = None if n is None else Decimal(n) / 4
    row = {"k": k, "window_start": at(second), "window_end": at(second + 10), "n": n}
    return row | {"price": price, "revision": revision, "_change_type": change}


# A null key, a null value, a window without a previous one, corrections of both windows of a
# comparison, a delete, a row without a window, and one that is too late.
SCRIPT = [
    [result("a", 0, 4), result(None, 0, 1), result("b", 10, None)],
    [result("a", 20, 6), result(None, 20, 0), result("c", 20, 5)],
    [result("a", 40, 1), {**result("a", 40, 1), "window_end": None}],
    [result("b", 30, 2)],
    [
        result("a", 0, 4, 0, "update_preimage"),
        result("a", 0, 3, 1, "update_postimage"),
        result("c", 20, 5, 0, "delete"),
        result("a", 20, 7, 3, "update_postimage"),
    ],
    [result("a", 60, 8), result("a", 80, 9), result("b", 10, 2, 1, "update_postimage")],
]
COMMON: dict[str, Any] = {
    "values": ["n", "price"],
    "by": "k",
}
CASES: list[tuple[str, dict[str, Any], int]] = [
    (APIS[0], {"stragglers": "retract", "allowed_lateness": "1 minute", "too_late": "route"}, 2),
    (APIS[1], {"stragglers": "route"}, 0),
]


def script(columns: int) -> tuple[list[list[dict[str, Any]]], pa.Schema]:
    """The script, or its unrevised windows without the columns of revisions."""
    if columns == 2:
        return SCRIPT, RESULTS
    plain = pa.schema(list(RESULTS)[:5])
    collected = [
        [
            {name: row[name] for name in plain.names}
            for row in batch
            if row["_change_type"] == "insert" or row["k"] == "b"  # which comes too late
        ]
        for batch in SCRIPT
    ]
    return collected, plain


@pytest.mark.parametrize(("api", "policy", "columns"), CASES, ids=APIS)
def test_a_stream_on_spark_gives_what_its_replay_gives(
    spark: SparkSession, api: Any, policy: dict[str, Any], columns: int
) -> None:
    batches, schema = script(columns)
    transform = windows.compare("20 seconds", delay="5 seconds", **policy, **COMMON).options(
        state_api=api, shards=SHARDS
    )
    actual = stream(spark, transform, batches, schema=schema)
    expected = replay(transform, batches, schema=schema)
    assert sum(item.counts.results for item in expected) >= 5
    assert sum(item.counts.rejected for item in expected) == 1
    if columns:
        assert sum(item.counts.corrections for item in expected) >= 3
    assert len(actual) == len(expected)
    for one, other in zip(actual, expected, strict=True):
        assert_rows(one.rows, other.rows)
        assert_rows(one.late_rows, other.late_rows)
        assert one.watermark == other.watermark
        assert one.counts == other.counts
        assert one.state_rows == other.state_rows


def test_a_restart_continues_and_refuses_other_parameters(
    spark: SparkSession, tmp_path: Any
) -> None:
    def operator(period: str = "20 seconds") -> Any:
        return windows.compare(
            period,
            periods=3,
            min_periods=1,
            delay="5 seconds",
            stragglers="retract",
            allowed_lateness="1 minute",
            **COMMON,
        ).options(shards=SHARDS)

    played = Replay(operator(), RESULTS)
    whole = [*played.run(SCRIPT[:3]), *played.run(SCRIPT[3:])]
    first = stream(spark, operator(), SCRIPT[:3], schema=RESULTS, directory=tmp_path)
    rest = stream(spark, operator(), SCRIPT[3:], schema=RESULTS, directory=tmp_path)
    for one, other in zip([*first, *rest], whole, strict=True):
        assert_rows(one.rows, other.rows)
        assert one.counts == other.counts
    assert sum(item.counts.corrections for item in whole) >= 3
    assert {row["anomaly_n"] for item in whole for row in item.rows} == {None, False, True}
    more = [[result("a", 200, 1)]]
    with pytest.raises(StreamingQueryException) as caught:
        stream(spark, operator("10 seconds"), more, schema=RESULTS, directory=tmp_path)
    assert "[STATE_PARAMETERS]" in str(caught.value)
    assert "period=20000000" in str(caught.value)


EVENTS = pa.schema([("k", pa.string()), ("ts", UTC), ("v", pa.int64())])


def events(*seconds: int) -> list[dict[str, Any]]:
    return [{"k": k, "ts": at(s), "v": s} for k in "ab" for s in seconds]


# A straggler of 3 s corrects 0-10, and so the comparison of 20-30, which was published.
STREAM = [
    events(1, 12, 15, 22), events(23, 31, 45), events(46), events(3), events(90), events(91)
]  # fmt: skip


def published(spark: SparkSession, frame: DataFrame, directory: Any) -> list[dict[str, Any]]:
    """What the query puts out, in the order of its micro-batches."""
    collected: list[dict[str, Any]] = []

    def keep(batch: DataFrame, number: int) -> None:
        collected.extend(batch.toArrow().to_pylist())

    query = (
        frame.writeStream.outputMode("append")
        .option("checkpointLocation", str(directory / "checkpoint"))
        .foreachBatch(keep)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(200)
    return collected


def by_join(counted: DataFrame, seconds: int) -> list[dict[str, Any]]:
    """The comparison of a table of windows in SQL."""
    length = F.expr("interval 1 second") * seconds
    before = counted.select(
        F.col("k").alias("other"),
        (F.col("window_start") + length).alias("at"),
        F.col("n").alias("previous_n"),
    )
    here = F.col("k").eqNullSafe(F.col("other")) & (F.col("window_start") == F.col("at"))
    change = F.col("n") - F.col("previous_n")
    joined = counted.join(before, here, "left").select(
        "k",
        "window_start",
        "window_end",
        "n",
        "previous_n",
        change.alias("change_n"),
        (change / F.nullif("previous_n", F.lit(0))).alias("rate_n"),
    )
    return joined.toArrow().to_pylist()


def table_of(spark: SparkSession) -> DataFrame:
    rows = [tuple(row.values()) for batch in STREAM for row in batch]
    return spark.createDataFrame(rows, "k string, ts timestamp, v long")


def corrected(frame: DataFrame) -> DataFrame:
    """Windows with corrections, compared, in one query."""
    policy: dict[str, Any] = {
        "stragglers": "retract",
        "allowed_lateness": "1 hour",
    }
    per_ten = windows.tumbling(
        "10 seconds", time="ts", by="k", agg={"n": agg.count()}, delay="1 second", **policy
    ).options(shards=SHARDS)
    return frame.transform(per_ten).transform(
        windows.compare("20 seconds", values="n", by="k", **policy).options(shards=SHARDS)
    )


def test_corrections_of_a_window_run_through_the_comparison_behind_it(
    spark: SparkSession, tmp_path: Any
) -> None:
    got = published(
        spark,
        corrected(micro_batches(spark, STREAM[:4], schema=EVENTS, directory=tmp_path)),
        tmp_path,
    )
    assert sum(row["_change_type"] == "update_postimage" for row in got) == 4
    got += published(
        spark,
        corrected(micro_batches(spark, STREAM[4:], schema=EVENTS, directory=tmp_path)),
        tmp_path,
    )
    per_ten = windows.tumbling("10 seconds", time="ts", by="k", agg={"n": agg.count()})
    wanted = by_join(table_of(spark).transform(per_ten), 20)
    folded = [{k: v for k, v in row.items() if k != "revision"} for row in fold(got)]
    closed = [row for row in wanted if row["window_end"] <= at(90)]
    assert len(closed) == 10
    assert_rows(folded, closed)
    batch = corrected(table_of(spark)).toArrow().to_pylist()
    assert_rows([{k: v for k, v in row.items() if k in wanted[0]} for row in batch], wanted)


@pytest.mark.parametrize("calendar", [False, True])
def test_a_comparison_follows_a_window_of_sparks_own(
    spark: SparkSession, tmp_path: Any, calendar: bool
) -> None:
    period: dict[str, Any] = {"period": "20 seconds"}
    if calendar:  # a UTC day has no change of the clock, and no previous window here
        period = {"period": "day", "zone": "UTC"}
    compared = windows.compare(values="n", by="k", **period).options(shards=2)

    def native(frame: DataFrame) -> DataFrame:
        counted = frame.groupBy("k", F.window("ts", "10 seconds")).agg(F.count("*").alias("n"))
        start, end = (F.col(f"window.{edge}").alias(f"window_{edge}") for edge in ("start", "end"))
        return counted.select("k", "window", start, end, "n")

    frame = micro_batches(spark, STREAM, schema=EVENTS).withWatermark("ts", "1 second")
    lenient = {**period, "allowed_lateness": "1 second", "stragglers": "retract"}
    with pytest.raises(WatermarkError) as refused:
        native(frame).transform(
            windows.compare(values="n", by="k", **lenient).options(shards=SHARDS)
        )
    assert refused.value.code == "WATERMARK_TOO_TIGHT"
    assert "leave allowed_lateness out" in refused.value.fix
    got = published(spark, native(frame).transform(compared), tmp_path)
    # The straggler is dropped by Spark: its window was closed by 44 s.
    collected = table_of(spark).where("v <> 3")
    wanted = [row for row in by_join(native(collected), 20) if row["window_end"] <= at(90)]
    if calendar:
        assert [row["previous_n"] for row in got] == [None] * len(wanted)
    else:
        assert_rows(got, wanted)
        assert any(row["previous_n"] for row in got)


def test_the_hours_of_two_days_are_compared_across_a_change_of_the_clock(
    spark: SparkSession,
) -> None:
    spark.conf.set("spark.sql.session.timeZone", "Asia/Kathmandu")  # does not matter
    try:
        hours = spark.sql(
            "select timestamp'2013-03-30 00:00:00 UTC' + make_dt_interval(0, id, 30) as ts, id "
            "from range(72)"
        )
        per_hour = windows.tumbling("1 hour", time="ts", agg={"n": agg.max("id")})
        day = windows.compare("day", zone="Europe/Berlin", values="n")
        rows = hours.transform(per_hour).transform(day).orderBy("window_start").collect()
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    # Until the clock is put forward an hour is 24 hours after that of the day before; on the day of
    # the change 23; on the day after, the hour that was skipped has no previous one.
    before = {row["n"]: row["change_n"] for row in rows}
    assert [before[n] for n in (0, 22, 24, 25, 46)] == [None, None, 24, 23, 23]
    assert [before[n] for n in (47, 48, 49, 71)] == [23, None, 24, 24]
    assert rows[0].asDict().keys() == {
        "window_start", "window_end", "n", "previous_n", "change_n", "rate_n"
    }  # fmt: skip


def test_types_and_comments_are_those_of_the_frame(spark: SparkSession) -> None:
    comment: Callable[[str], Any] = lambda text: {"metadata": {"comment": text}}  # noqa: E731
    frame = spark.sql(
        "select 'x' as `a.b`, timestamp'2024-01-01' as window_start, "
        "timestamp'2024-01-02' as window_end, cast(1 as short) as s, cast(1 as float) as f, "
        "cast(1 as decimal(5, 2)) as d"
    )
    named = F.col("`a.b`").alias("a.b", **comment("who"))
    counted = F.col("s").alias("s", **comment("how many"))
    rest = (c for c in frame.columns if c not in ("a.b", "s"))
    result = frame.select(named, counted, *rest).transform(
        windows.compare("1 day", values=["s", "f", "d"], by="a.b")
    )
    assert result.schema["a.b"].metadata == {"comment": "who"}
    assert result.schema["s"].metadata == {"comment": "how many"}
    assert result.schema["previous_s"].metadata == {}
    types = {field.name: field.dataType.simpleString() for field in result.schema.fields}
    assert [types[f"{word}{v}"] for v in "sfd" for word in ("", "previous_", "change_", "rate_")] == [
        "smallint", "smallint", "bigint", "double",
        "float", "float", "double", "double",
        "decimal(5,2)", "decimal(5,2)", "decimal(6,2)", "double",
    ]  # fmt: skip
    assert result.count() == 1
    band = frame.transform(windows.compare("1 day", values=["s", "d"], by="a.b", periods=2))
    names = [f"{word}_{v}" for v in "sd" for word in ("median", "deviation", "count", "anomaly")]
    types = {field.name: field.dataType.simpleString() for field in band.schema.fields}
    assert [types[name] for name in names] == ["double", "double", "int", "boolean"] * 2
    (row,) = band.select(*names).collect()
    assert tuple(row) == (None, None, 0, None) * 2
