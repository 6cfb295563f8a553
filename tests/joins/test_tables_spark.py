"""Table-table joins on Spark: streams on both state APIs, batches, chains."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streamops import aggregates as agg
from streamops import changes, joins, split_side_output
from streamops.testing import assert_rows, fold, replay, stream

pytestmark = pytest.mark.spark

APIS: Any = ("transformWithStateInPandas", "applyInPandasWithState")
POSITION = pa.struct([("x", pa.int32()), ("tags", pa.list_(pa.string()))])
ORDERS = pa.schema(
    [
        ("order", pa.int64()),
        ("customer", pa.string()),
        ("price", pa.decimal128(10, 2)),
        ("place", POSITION),
        ("local", pa.timestamp("us")),
        ("_change_type", pa.string()),
    ]
)
CUSTOMERS = pa.schema(
    [
        ("id", pa.string()),
        ("Price", pa.int32()),
        ("codes", pa.map_(pa.string(), pa.int64())),
        ("raw", pa.binary()),
        ("_change_type", pa.string()),
    ]
)
BOTH = (ORDERS, CUSTOMERS)
PLUS, MINUS, PRE, POST = "insert", "delete", "update_preimage", "update_postimage"


def orders(*rows: tuple[int, str | None, str]) -> list[dict[str, Any]]:
    return [
        {
            "order": order,
            "customer": customer,
            "price": Decimal(order) / 4,
            "place": {"x": order, "tags": ["a", None]} if order % 2 else None,
            "local": None,
            "_change_type": change,
        }
        for order, customer, change in rows
    ]


def customers(*rows: tuple[str | None, int, str]) -> list[dict[str, Any]]:
    return [
        {
            "id": customer,
            "Price": level,
            "codes": {"level": level},
            "raw": None if customer is None else customer.encode(),
            "_change_type": change,
        }
        for customer, level, change in rows
    ]


# Both sides at once, moved keys, null keys, a row that was never there, nothing at all.
SCRIPT: list[Any] = [
    (orders((1, "a", PLUS), (2, "b", PLUS), (3, None, PLUS)), customers(("a", 1, PLUS))),
    (orders((2, "b", PRE), (2, "a", POST)), customers(("b", 1, PLUS), ("a", 1, PRE), ("a", 2, POST))),
    (None, customers(("b", 1, MINUS), ("z", 1, MINUS), (None, 1, PLUS))),
    (orders((1, "a", MINUS), (4, "c", "upsert")), None),
    (None, None),
    (orders((5, "c", PLUS)), customers(("c", 3, PLUS), ("a", 2, MINUS))),
]  # fmt: skip
COMMON: dict[str, Any] = {"how": "full", "key": ("order", "id"), "rejected": "route"}


@pytest.mark.parametrize("api", APIS)
def test_a_stream_equals_its_replay_also_after_a_restart(
    spark: SparkSession, tmp_path: Path, api: Any
) -> None:
    joined = joins.tables(None, by={"customer": "id"}, **COMMON).options(state_api=api, shards=3)
    got = [
        item
        for part in (SCRIPT[:3], SCRIPT[3:])
        for item in stream(spark, joined, part, schema=BOTH, directory=tmp_path)
    ]
    expected = replay(joined, SCRIPT, schema=BOTH, restart=True)
    for ours, theirs in zip(got, expected, strict=True):
        assert_rows(ours.table, theirs.table)
        assert_rows(ours.late, theirs.late)
        assert (ours.counts, ours.state_rows) == (theirs.counts, theirs.state_rows)
    late = [row for item in expected for row in item.late.to_pylist()]
    assert {(row["side"], row["reason"]) for row in late} == {
        ("left", "bad_change"),
        ("right", "not_there"),
    }
    folded = fold((row for item in got for row in item.rows), key=["order", "customer", "raw"])
    assert sorted((row["order"] or 0, row["customer"], row["Price_right"]) for row in folded) == [
        *((0, None, 1), (2, "a", None)),
        *((3, None, None), (5, "c", 3)),
    ]
    other = joins.tables(None, by={"customer": "id"}, **(COMMON | {"how": "left"})).options(
        state_api=api, shards=3
    )
    with pytest.raises(StreamingQueryException) as caught:
        stream(spark, other, [SCRIPT[0]], schema=BOTH, directory=tmp_path)
    assert "[STATE_PARAMETERS] joins.tables" in str(caught.value)


def test_a_batch_is_the_join_of_the_tables_in_the_types_of_its_frames(spark: SparkSession) -> None:
    left = spark.createDataFrame(
        [(1, "a", PLUS), (1, "a", PRE), (1, "b", POST), (2, "b", PLUS), (2, "b", MINUS)],
        "id int, k string, _change_type string",
    ).select("id", F.col("k").alias("k", metadata={"comment": "of a house"}), "_change_type")
    right = spark.createDataFrame(
        [("b", "2020-01-01 00:00:00", PLUS), ("c", None, PLUS)], "key string, at string, _change_type string"
    ).select("key", F.col("at").cast("timestamp_ntz").alias("ID"), "_change_type")  # fmt: skip
    result = left.transform(joins.tables(right, by={"k": "key"}, how="full"))
    assert result.dtypes == [
        ("id", "int"),
        ("k", "string"),
        ("ID_right", "timestamp_ntz"),
        ("_change_type", "string"),
    ]
    assert result.schema["k"].metadata == {"comment": "of a house"}
    rows = [(*tuple(row)[:2], row["_change_type"]) for row in result.collect()]
    assert sorted(rows, key=str) == [(1, "b", PLUS), (None, "c", PLUS)]


@pytest.mark.parametrize("api", APIS)
def test_aggregates_of_changes_equal_their_replay_after_a_restart(
    spark: SparkSession, tmp_path: Path, api: Any
) -> None:
    aggregates_ = {"orders": agg.count(), "paid": agg.sum("price"), "last": agg.max("order")}
    totals = changes.aggregate(by="customer", agg=aggregates_).options(shards=3, state_api=api)
    script = [left or [] for left, _ in SCRIPT]
    got = [
        item
        for part in (script[:2], script[2:])
        for item in stream(spark, totals, part, schema=ORDERS, directory=tmp_path)
    ]
    expected = replay(totals, script, schema=ORDERS, restart=True)
    for ours, theirs in zip(got, expected, strict=True):
        assert_rows(ours.table, theirs.table)
        assert (ours.counts, ours.state_rows) == (theirs.counts, theirs.state_rows)
    assert sum(item.counts.rejected for item in got) == 1
    folded = fold((row for item in got for row in item.rows), key="customer")
    assert {(row["customer"], row["orders"], row["paid"]) for row in folded} == {
        ("a", 1, Decimal("0.50")),
        (None, 1, Decimal("0.75")),
        ("c", 1, Decimal("1.25")),
    }


@pytest.mark.parametrize("api", APIS)
def test_rows_rejected_by_aggregates_are_routed_unchanged(
    spark: SparkSession, tmp_path: Path, api: Any
) -> None:
    aggregates_ = {"paid": agg.sum("price"), "last": agg.max("order")}
    totals = changes.aggregate(
        by="customer",
        agg=aggregates_,
        rejected="route",
    ).options(shards=2, state_api=api, name="totals")
    script = [left or [] for left, _ in SCRIPT[2:]]
    got = stream(spark, totals, script, schema=ORDERS, directory=tmp_path)
    for ours, theirs in zip(got, replay(totals, script, schema=ORDERS), strict=True):
        assert_rows(ours.table, theirs.table)
        assert (ours.counts, ours.state_rows) == (theirs.counts, theirs.state_rows)
    aside = [row["rejected"] for item in got for row in item.rows if row["rejected"] is not None]
    assert aside == [{"reason": "unknown_operation", "row": orders((4, "c", "upsert"))[0]}]
    assert sum(item.counts.rejected for item in got) == 1


def test_changes_and_side_output_of_a_batch_are_split(spark: SparkSession) -> None:
    rows = [("a", "x", PLUS), ("a", "y", "upsert"), (None, "z", None)]
    frame = spark.createDataFrame(rows, "k string, note string, _change_type string")
    frame = frame.withColumn("at", F.lit("2020-01-01 00:00:00").cast("timestamp_ntz"))
    totals = changes.aggregate(by="k", agg={"n": agg.count()}, rejected="route")
    good, rejected = split_side_output(frame.transform(totals))
    assert [tuple(row) for row in good.collect()] == [("a", 1, PLUS)]
    assert rejected.select("rejected.row.*").dtypes == frame.dtypes
    emitted = {
        (row["reason"], row["note"])
        for row in rejected.select("rejected.reason", "rejected.row.note").collect()
    }
    assert emitted == {("unknown_operation", "y"), ("unknown_operation", "z")}


def test_a_join_of_tables_and_its_aggregates_in_one_query(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Customers that move take the totals of their orders with them."""
    from streamops.testing import micro_batches

    cut = [(left or [], right or []) for left, right in SCRIPT]
    left = micro_batches(spark, [a for a, _ in cut], schema=ORDERS, directory=tmp_path / "left")
    right = micro_batches(
        spark, [b for _, b in cut], schema=CUSTOMERS, directory=tmp_path / "right"
    )
    totals = changes.aggregate(by="Price_right", agg={"paid": agg.sum("price")}).options(shards=2)
    joined = left.transform(
        joins.tables(right, by={"customer": "id"}, key=("order", "id")).options(shards=2)
    )
    stored: list[dict[str, Any]] = []
    query = (
        joined.transform(totals)
        .writeStream.outputMode("append")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .foreachBatch(lambda batch, number: stored.extend(batch.toArrow().to_pylist()))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(240)
    assert fold(stored, key="Price_right") == [{"Price_right": 3, "paid": Decimal("1.25")}]
    names = {name for progress in query.recentProgress for name in progress.observedMetrics}
    assert names == {"tables", "aggregate"}
