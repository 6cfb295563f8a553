"""As-of joins on Spark: streams on both state APIs, restarts, batches, chains."""

from __future__ import annotations

import json
import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from streamops import aggregates as agg
from streamops import changes, joins, windows
from streamops.kernel.errors import SchemaError, WatermarkError
from streamops.spark.columns import spark_schema
from streamops.testing import assert_rows, at, fold, micro_batches, replay, stream
from streamops.testing.replaying import Replay
from streamops.testing.results import records
from streamops.testing.streaming import run_query
from tests.docs.test_readme import ROOT, examples

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
ARGUMENTS: dict[str, Any] = {
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
    ticker: str | None, seconds: float, seq: int | None, value: str | None, deleted: bool = False
) -> dict[str, Any]:
    tags = [{"local": at(seconds).replace(tzinfo=None), "raw": b"\0"}, None]
    return {
        "ticker": ticker,
        "since": at(seconds),
        "seq": seq,
        "price": None if value is None else Decimal(value),
        "tags": tags if value else None,
        "gone": deleted,
    }


SCRIPT: list[Any] = [
    ([trade("a", 12), trade("b", 15), trade(None, 13)], [price("a", 10, 1, "1.00")]),
    ([trade("a", 25, 2), trade("a", None)], [price("b", 14, 1, "5.00"), price("a", 20, 2, "2.00")]),
    ([trade("b", 70)], [price("b", 60, 2, None, deleted=True), price("a", 60, 3, "3.00")]),
    # Conflicting and late versions: some are too late,
    ([trade("a", 45, 3)], [price("a", 22, 1, "2.50"), price("a", 22, 1, "2.40")]),
    ([trade("a", 90, 4), trade("c", 9)], [price("b", 95, 3, "6.00"), price("a", 11, 1, "1.10")]),
]
MORE: list[Any] = [
    # a straggler is joined, and a result is revised.
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
def test_a_stream_equals_its_replay_also_after_a_restart(
    spark: SparkSession, api: Any, tmp_path: Path
) -> None:
    join = joins.asof(
        None,
        **ARGUMENTS,
        delay=("5 seconds", "2 seconds"),
        allowed_lateness="40 seconds",
        stragglers="answer",
        late_versions="retract",
        too_late="route",
    ).options(shards=3, state_api=api)
    played = Replay(join, BOTH)
    first = stream(spark, join, shuffled(SCRIPT, 1), schema=BOTH, directory=tmp_path)
    same(first, played.run(SCRIPT))
    again = stream(spark, join, shuffled(MORE, 2), schema=BOTH, directory=tmp_path)
    same(again, played.run(MORE))
    # The script covers every case.
    results = [*first, *again]
    change_types = {row["_change_type"] for result in results for row in result.rows}
    assert change_types == {"insert", "update_preimage", "update_postimage"}
    reasons = {row["reason"] for result in results for row in result.late_rows}
    assert reasons == {"null_time", "null_sequence", "too_late", "conflicting_version"}
    table = fold([row for result in results for row in result.rows], rows="multiset")
    prices = {(row["symbol"], row["amount"], row["ts"]): row["price"] for row in table}
    assert prices["a", 2, at(25)] == Decimal("2.50")
    assert prices["a", 5, at(80)] == Decimal("3.00")
    assert prices["b", 1, at(70)] == Decimal("5.50")


def test_the_facts_alone_can_define_the_watermark(spark: SparkSession) -> None:
    join = joins.asof(
        None,
        **ARGUMENTS,
        waits_for="facts",
        delay="5 seconds",
        stragglers="route",
    ).options(shards=2)
    script: list[Any] = [
        ([trade("a", 12)], [price("a", 10, 1, "1.00")]),
        ([trade("a", 50)], None),
        ([trade("a", 80)], None),
        ([trade("a", 90)], [price("a", 40, 2, "2.00")]),
    ]
    results = stream(spark, join, script, schema=BOTH)
    same(results, replay(join, script, schema=BOTH))
    assert [result.watermark for result in results] == [None, at(7), at(45), at(75), at(85)]
    answers = {row["ts"]: row["price"] for result in results for row in result.rows}
    assert answers == {at(12): Decimal("1.00"), at(50): Decimal("2.00"), at(80): Decimal("2.00")}
    assert [row["reason"] for row in results[3].late_rows] == ["too_late"]


def test_a_batch_has_the_same_rows_and_types_are_unchanged(spark: SparkSession) -> None:
    left, right = (
        spark.createDataFrame(
            pa.Table.from_pylist([r for batch in SCRIPT for r in batch[at_]], schema=schema),
            spark_schema(schema),
        )
        for at_, schema in enumerate(BOTH)
    )
    result = left.transform(joins.asof(right, **ARGUMENTS).options(shards=2))
    (*_, whole) = replay(
        joins.asof(None, **ARGUMENTS, delay="1 hour"), SCRIPT, schema=BOTH, flush=True
    )
    assert_rows(records(result.toArrow()), whole.rows)
    types = {field.name: field.dataType for field in result.schema.fields}
    assert types["tags"] == left.schema["tags"].dataType
    assert types["tags_right"] == right.schema["tags"].dataType
    assert types["price"] == right.schema["price"].dataType


@pytest.mark.parametrize("direction", ["forward", "nearest"])
def test_forward_and_nearest_equal_their_replay_in_streams_restarts_and_batches(
    spark: SparkSession, direction: Any, tmp_path: Path
) -> None:
    settings: dict[str, Any] = ARGUMENTS | {"direction": direction, "tolerance": "30 seconds"}
    join = joins.asof(None, **settings, delay="5 seconds").options(shards=2)
    more: list[Any] = [([trade("b", 120)], [price("a", 95, 9, "9.00"), price("b", 119, 5, "5.50")])]
    played = Replay(join, BOTH)
    first = stream(spark, join, SCRIPT, schema=BOTH, directory=tmp_path)
    same(first, played.run(SCRIPT))
    # Facts at 90 wait in the checkpoint for versions up to 120.
    again = stream(spark, join, more, schema=BOTH, directory=tmp_path)
    same(again, played.run(more))

    frames = [
        spark.createDataFrame(
            pa.Table.from_pylist(
                [row for batch in [*SCRIPT, *more] for row in batch[side]], schema=schema
            ),
            spark_schema(schema),
        )
        for side, schema in enumerate(BOTH)
    ]
    batch = joins.asof(frames[1], **settings).options(shards=2)
    found = records(frames[0].transform(batch).toArrow())
    (*_, whole) = replay(
        joins.asof(None, **settings, delay="1 hour"), [*SCRIPT, *more], schema=BOTH, flush=True
    )
    assert_rows(found, whole.rows)
    prices = {row["ts"]: row["price"] for row in found if row["symbol"] == "a"}
    assert prices[at(25)] == (Decimal("2.50") if direction == "nearest" else None)
    assert prices[at(45)] == Decimal("3.00")
    assert prices[at(90)] == Decimal("9.00")


def test_windows_after_an_asof_join_in_one_query(spark: SparkSession, tmp_path: Path) -> None:
    script: list[Any] = [
        ([trade("a", s, s)], [price("a", s, s, f"{s}.00")]) for s in (5, 15, 47, 95)
    ]
    left, right = (
        micro_batches(
            spark, [batch[at_] for batch in script], schema=schema, directory=tmp_path / str(at_)
        )
        for at_, schema in enumerate(BOTH)
    )
    answered = left.transform(joins.asof(right, **ARGUMENTS, delay="10 seconds").options(shards=2))
    per_minute = windows.tumbling(
        "30 seconds",
        time="ts",
        by="symbol",
        agg={"total": agg.sum("price")},
    ).options(shards=2)
    result = answered.transform(per_minute).withColumn("total", F.col("total").cast("int"))
    found = run_query(result, tmp_path, 200)
    rows = [row for _, table, _ in found for row in table.to_pylist()]
    assert {row["window_start"]: row["total"] for row in rows} == {at(0): 20, at(30): 47}


def test_versions_with_a_watermark_are_refused_if_results_do_not_wait_for_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    left, right = (
        micro_batches(spark, [], schema=schema, directory=tmp_path / str(at_))
        for at_, schema in enumerate(BOTH)
    )
    marked = right.withWatermark("since", "5 seconds")
    with pytest.raises(WatermarkError) as caught:
        left.transform(joins.asof(marked, **ARGUMENTS, waits_for="facts", delay="5 seconds"))
    assert caught.value.code == "WATERMARK_NOT_WAITED_FOR"
    # A join without event time ignores watermarks, and its output has none.
    latest = joins.enrich(marked, by=ARGUMENTS["by"], sequence="seq", horizon=10)
    assert left.transform(latest).isStreaming


TOPIC = pa.schema([("key", pa.string()), ("value", pa.string())])
VISITS = pa.schema([("account", pa.int64()), ("ts", INSTANT)])
LARGE = "__debezium_unavailable_value"


def debezium_record(op: str, second: int, lsn: int, before: Any, after: Any) -> dict[str, Any]:
    millis = round(at(second).timestamp() * 1_000)
    source = {"connector": "postgresql", "lsn": lsn, "ts_ms": millis}
    record = {"op": op, "before": before, "after": after, "source": source, "ts_ms": millis}
    return {"key": json.dumps({"id": 1}), "value": json.dumps(record)}


def accounts(topic: DataFrame) -> DataFrame:
    """As docs/joins.md reads them: complete rows, with a flag for deletes."""
    is_delete: Column = F.col("_change_type") == "delete"
    values = {
        "since": F.col("_changed_at"),
        "lsn": F.col("_sequence"),
        "gone": is_delete,
        "_change_type": F.when(is_delete, "update_postimage").otherwise(F.col("_change_type")),
    }
    reading = changes.from_debezium(
        "id bigint, plan string, note string", key="id", message_key="key", tombstones="keep"
    )
    whole = changes.normalize("id", sequence="_sequence", horizon="7 days", time="_changed_at")
    return topic.transform(reading).withColumns(values).transform(whole)


def test_a_captured_table_is_normalized_and_joined_as_of_event_time(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A value that was not sent is carried forward; a delete is in effect from its own time on."""
    free, pro, back = (
        {"id": 1, "plan": plan, "note": note}
        for plan, note in (("free", "a large text"), ("pro", LARGE), ("new", "another"))
    )
    topic = [
        [debezium_record("c", 1, 10, None, free), debezium_record("u", 5, 20, None, pro)],
        [debezium_record("d", 9, 30, {"id": 1, "plan": None, "note": None}, None)],
        [{"key": json.dumps({"id": 1}), "value": None}, debezium_record("c", 12, 40, None, back)],
    ]
    visits = [[{"account": 1, "ts": at(second)} for second in (0, 3, 7, 10, 14)]]
    join: dict[str, Any] = {"by": {"account": "id"}, "time": "ts", "version": "since"}
    join |= {"sequence": "lsn", "deleted": "gone"}
    expected = {
        at(0): (None, None),
        at(3): ("free", "a large text"),
        at(7): ("pro", "a large text"),
        at(10): (None, None),
        at(14): ("new", "another"),
    }

    def answers(rows: list[dict[str, Any]]) -> dict[Any, Any]:
        return {row["ts"]: (row["plan"], row["note"]) for row in rows}

    def batch(batches: list[Any], schema: pa.Schema) -> DataFrame:
        rows = pa.Table.from_pylist([row for rows in batches for row in rows], schema=schema)
        return spark.createDataFrame(rows, spark_schema(schema))

    log, facts = batch(topic, TOPIC), batch(visits, VISITS)
    found = facts.transform(joins.asof(accounts(log), **join).options(shards=2))
    assert answers(records(found.toArrow())) == expected
    reading = changes.from_debezium("id bigint, plan string", key="id")
    as_it_is = {"version": "_changed_at", "sequence": "_sequence"}
    upserts = joins.asof(log.transform(reading), by={"account": "id"}, time="ts", **as_it_is)
    with pytest.raises(SchemaError, match="FRAME_TYPE"):
        facts.transform(upserts)

    heartbeat = debezium_record("c", 100, 50, None, {"id": 2, "plan": "x", "note": "x"})
    feeds = (
        ([*visits, [{"account": 2, "ts": at(100)}]], VISITS),
        ([*topic, [heartbeat]], TOPIC),
    )
    left, right = (
        micro_batches(spark, batches, schema=schema, directory=tmp_path / str(at_))
        for at_, (batches, schema) in enumerate(feeds)
    )
    joined = joins.asof(accounts(right), **join, delay="20 seconds").options(shards=2)
    streamed = left.transform(joined)
    ran = run_query(streamed, tmp_path, 300)
    rows = [row for _, table, _ in ran for row in table.to_pylist()]
    assert answers([row for row in rows if row["account"] == 1]) == expected


def test_the_example_of_the_document_prints_its_output(spark: SparkSession) -> None:
    (example,) = (
        found
        for found in examples(ROOT / "docs" / "joins.md")
        if found.spark and "as_a_row" in found.source
    )
    assert example.run({"spark": spark}) == example.output
