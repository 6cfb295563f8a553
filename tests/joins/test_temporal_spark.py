"""Temporal joins on Spark: that they are wired, on both state APIs, in batches, in chains."""

from __future__ import annotations

import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streamops import aggregates as agg
from streamops import joins, windows
from streamops.spark.columns import spark_schema
from streamops.testing import assert_rows, at, fold, micro_batches, replay, stream
from streamops.testing.pairs import PairReplay
from streamops.testing.queries import run_query
from streamops.testing.results import records

pytestmark = pytest.mark.spark

INSTANT = pa.timestamp("us", tz="UTC")
TRADES = pa.schema(
    [
        ("symbol", pa.string()),
        ("ts", INSTANT),
        ("amount", pa.int64()),
        ("tags", pa.map_(pa.string(), pa.int64())),
    ]
)
PRICES = pa.schema(
    [
        ("ticker", pa.string()),
        ("since", INSTANT),
        ("seq", pa.int64()),
        ("price", pa.decimal128(10, 2)),
        ("tags", pa.list_(pa.struct([("local", pa.timestamp("us")), ("raw", pa.binary())]))),
        ("gone", pa.bool_()),
    ]
)
BOTH = (TRADES, PRICES)
SAID: dict[str, Any] = {
    "by": {"symbol": "ticker"},
    "time": "ts",
    "version": "since",
    "sequence": "seq",
    "deleted": "gone",
}


def trade(symbol: str | None, seconds: float | None, amount: int = 1) -> dict[str, Any]:
    when = None if seconds is None else at(seconds)
    return {"symbol": symbol, "ts": when, "amount": amount, "tags": {"n": amount}}


def price(
    ticker: str | None, seconds: float, seq: int | None, value: str | None, gone: bool = False
) -> dict[str, Any]:
    tags = [{"local": at(seconds).replace(tzinfo=None), "raw": b"\0"}, None]
    return {
        "ticker": ticker,
        "since": at(seconds),
        "seq": seq,
        "price": None if value is None else Decimal(value),
        "tags": tags if value else None,
        "gone": gone,
    }


SCRIPT: list[Any] = [
    ([trade("a", 12), trade("b", 15), trade(None, 13)], [price("a", 10, 1, "1.00")]),
    ([trade("a", 25, 2), trade("a", None)], [price("b", 14, 1, "5.00"), price("a", 20, 2, "2.00")]),
    ([trade("b", 70)], [price("b", 60, 2, None, gone=True), price("a", 60, 3, "3.00")]),
    # Two that contradict one another, and late ones: some are too late,
    ([trade("a", 45, 3)], [price("a", 22, 1, "2.50"), price("a", 22, 1, "2.40")]),
    ([trade("a", 90, 4), trade("c", 9)], [price("b", 95, 3, "6.00"), price("a", 11, 1, "1.10")]),
]
MORE: list[Any] = [
    # a straggler is answered, and an answer is revised.
    (
        [trade("b", 200), trade("a", 80, 5)],
        [price("a", 75, None, "9.00"), price("b", 65, 4, "5.50")],
    ),
    ([trade("c", 220)], [price("c", 210, 1, "7.00")]),
]


def same(actual: list[Any], expected: list[Any]) -> None:
    assert len(actual) == len(expected)
    for one, other in zip(actual, expected, strict=True):
        assert_rows(one.rows, other.rows)
        assert_rows(one.late_rows, other.late_rows)
        assert (one.watermark, one.counts, one.state_rows) == (
            other.watermark,
            other.counts,
            other.state_rows,
        )


def shuffled(script: list[Any], seed: int) -> list[Any]:
    dice = random.Random(seed)
    return [tuple(dice.sample(rows, len(rows)) for rows in batch) for batch in script]


@pytest.mark.parametrize("api", ["transformWithStateInPandas", "applyInPandasWithState"])
def test_a_stream_gives_what_its_replay_gives_also_after_a_restart(
    spark: SparkSession, api: Any, tmp_path: Path
) -> None:
    join = joins.temporal(
        None,
        **SAID,
        delay=("5 seconds", "2 seconds"),
        allowed_lateness="40 seconds",
        stragglers="answer",
        late_versions="retract",
        too_late="route",
        shards=3,
        state_api=api,
    )
    played = PairReplay(join, BOTH)
    first = stream(spark, join, shuffled(SCRIPT, 1), schema=BOTH, directory=tmp_path)
    same(first, played.run(SCRIPT))
    again = stream(spark, join, shuffled(MORE, 2), schema=BOTH, directory=tmp_path)
    same(again, played.run(MORE))
    # Everything that the script is about did happen.
    results = [*first, *again]
    said = {row["_change_type"] for each in results for row in each.rows}
    assert said == {"insert", "update_preimage", "update_postimage"}
    reasons = {row["reason"] for each in results for row in each.late_rows}
    assert reasons == {"null_time", "null_sequence", "too_late", "clashing_version"}
    table = fold([row for each in results for row in each.rows], rows="bag")
    prices = {(row["symbol"], row["amount"], row["ts"]): row["price"] for row in table}
    assert prices["a", 2, at(25)] == Decimal("2.50")
    assert prices["a", 5, at(80)] == Decimal("3.00")
    assert prices["b", 1, at(70)] == Decimal("5.50")


def test_facts_alone_lead_the_watermark_if_they_are_to(spark: SparkSession) -> None:
    join = joins.temporal(
        None, **SAID, waits_for="facts", delay="5 seconds", stragglers="route", shards=2
    )
    script: list[Any] = [
        ([trade("a", 12)], [price("a", 10, 1, "1.00")]),
        ([trade("a", 50)], None),
        ([trade("a", 80)], None),
        ([trade("a", 90)], [price("a", 40, 2, "2.00")]),
    ]
    results = stream(spark, join, script, schema=BOTH)
    same(results, replay(join, script, schema=BOTH))
    assert [each.watermark for each in results] == [None, at(7), at(45), at(75), at(85)]
    answers = {row["ts"]: row["price"] for each in results for row in each.rows}
    assert answers == {at(12): Decimal("1.00"), at(50): Decimal("2.00"), at(80): Decimal("2.00")}
    assert [row["reason"] for row in results[3].late_rows] == ["too_late"]


def test_a_batch_has_the_same_rows_and_types_are_as_they_were(spark: SparkSession) -> None:
    left, right = (
        spark.createDataFrame(
            pa.Table.from_pylist([r for batch in SCRIPT for r in batch[at_]], schema=schema),
            spark_schema(schema),
        )
        for at_, schema in enumerate(BOTH)
    )
    result = left.transform(joins.temporal(right, **SAID, shards=2))
    (*_, whole) = replay(
        joins.temporal(None, **SAID, delay="1 hour"), SCRIPT, schema=BOTH, flush=True
    )
    assert_rows(records(result.toArrow()), whole.rows)
    kinds = {field.name: field.dataType for field in result.schema.fields}
    assert kinds["tags"] == left.schema["tags"].dataType
    assert kinds["tags_right"] == right.schema["tags"].dataType
    assert kinds["price"] == right.schema["price"].dataType


def test_windows_follow_a_temporal_join_in_one_query(spark: SparkSession, tmp_path: Path) -> None:
    script: list[Any] = [
        ([trade("a", s, s)], [price("a", s, s, f"{s}.00")]) for s in (5, 15, 47, 95)
    ]
    left, right = (
        micro_batches(
            spark, [batch[at_] for batch in script], schema=schema, directory=tmp_path / str(at_)
        )
        for at_, schema in enumerate(BOTH)
    )
    answered = left.transform(joins.temporal(right, **SAID, delay="10 seconds", shards=2))
    per_minute = windows.tumbling(
        "30 seconds", time="ts", by="symbol", agg={"total": agg.sum("price")}, shards=2
    )
    result = answered.transform(per_minute).withColumn("total", F.col("total").cast("int"))
    found = run_query(result, tmp_path, 200)
    rows = [row for _, table, _ in found for row in table.to_pylist()]
    assert {row["window_start"]: row["total"] for row in rows} == {at(0): 20, at(30): 47}
