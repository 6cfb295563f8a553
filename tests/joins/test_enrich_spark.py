"""Enrichment on Spark: streams on both state APIs, snapshots, batches, chains."""

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
from streamops import changes, joins, windows
from streamops.kernel.errors import ColumnNotFound, SchemaError, SpecError
from streamops.spark.columns import spark_schema
from streamops.testing import assert_rows, at, micro_batches, replay, stream
from streamops.testing.results import records
from streamops.testing.streaming import run_query

pytestmark = pytest.mark.spark

APIS: Any = ("transformWithStateInPandas", "applyInPandasWithState")
INSTANT = pa.timestamp("us", tz="UTC")
ORDERS = pa.schema(
    [
        ("customer", pa.string()),
        ("ts", INSTANT),
        ("n", pa.int64()),
        ("tags", pa.map_(pa.string(), pa.int64())),
    ]
)
CUSTOMERS = pa.schema(
    [
        ("id", pa.string()),
        ("lsn", pa.int64()),
        ("limit", pa.decimal128(10, 2)),
        ("tags", pa.list_(pa.struct([("local", pa.timestamp("us")), ("raw", pa.binary())]))),
        ("_change_type", pa.string()),
        ("_unavailable", pa.list_(pa.string())),
    ]
)
BOTH = (ORDERS, CUSTOMERS)
ARGUMENTS: dict[str, Any] = {"by": {"customer": "id"}, "sequence": "lsn", "horizon": 100}
TAGS = [{"local": at(1).replace(tzinfo=None), "raw": b"\0"}, None]


def orders(*names: str | None, second: float = 0) -> list[dict[str, Any]]:
    return [{"customer": name, "ts": at(second), "n": 1, "tags": {"n": 1}} for name in names]


def customer(
    id: str | None, lsn: int | None, limit: str | None, change: str = "insert"
) -> dict[str, Any]:
    value = None if limit is None else Decimal(limit)
    row = {"id": id, "lsn": lsn, "limit": value, "tags": TAGS if value else None}
    return {**row, "_change_type": change, "_unavailable": ["tags"] if limit == "7.00" else None}


SCRIPT: list[Any] = [
    (orders("a", "b", None), [customer("a", 5, "1.00"), customer("c", 1, "4.00")]),
    (orders("a", "c"), [customer("a", 4, "9.00"), customer("c", 6, None, "delete")]),
    (orders("a"), None),
    (None, None),
]
MORE: list[Any] = [
    # Late, in conflict, without a part; a value that was not sent.
    (orders("c"), [customer("c", 5, "5.00"), customer(None, 9, "1.00"), customer("a", 7, "7.00")]),
    (orders("a", "c"), [customer("a", 7, "6.00"), customer("c", None, "1.00")]),
]


def same(actual: list[Any], expected: list[Any]) -> None:
    for one, other in zip(actual, expected, strict=True):
        assert_rows(one.table, other.table)
        assert_rows(one.late, other.late)
        assert (one.counts, one.state_rows) == (other.counts, other.state_rows)


@pytest.mark.parametrize("api", APIS)
def test_a_stream_equals_its_replay_also_after_a_restart(
    spark: SparkSession, api: Any, tmp_path: Path
) -> None:
    join = joins.enrich(None, **ARGUMENTS, rejected="route").options(shards=3, state_api=api)
    got = [
        result
        for part in (SCRIPT, MORE)
        for result in stream(spark, join, part, schema=BOTH, directory=tmp_path)
    ]
    same(got, replay(join, [*SCRIPT, *MORE], schema=BOTH, restart=True))
    found = [[(row["customer"], row["limit"]) for row in result.rows] for result in got]
    one, seven = Decimal("1.00"), Decimal("7.00")
    assert sorted(found[1]) == [("a", one), ("c", None)]
    assert sorted(found[5]) == [("a", seven), ("c", None)]
    assert [row["tags_right"] for row in got[5].rows if row["customer"] == "a"] == [TAGS]
    reasons = sorted(row["reason"] for result in got for row in result.late_rows)
    assert reasons == ["conflict", "no_sequence", "null_key"]
    single = ARGUMENTS | {"sequence": ["lsn"], "by": {"customer": "id"}}
    other = joins.enrich(None, **single).options(shards=4, state_api=api)
    with pytest.raises(StreamingQueryException) as caught:
        stream(spark, other, [SCRIPT[0]], schema=BOTH, directory=tmp_path)
    assert "joins.enrich" in str(caught.value)


def snapshot_of(spark: SparkSession, rows: list[dict[str, Any]]) -> DataFrame:
    """As in a table: without columns about changes, with an additional column."""
    table = pa.Table.from_pylist(rows, schema=CUSTOMERS)
    frame = spark.createDataFrame(table, spark_schema(CUSTOMERS))
    return frame.drop("_change_type", "_unavailable").withColumn("more", F.lit(1))


def test_a_stream_starts_with_a_snapshot_and_reads_it_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    rows = [customer("a", 99, "0.50"), customer("b", 0, "2.00"), customer("d", 0, "3.00")]
    bad = [customer(None, 0, "1.00"), customer("x", 0, "1.00"), customer("x", 0, "2.00")]

    def joined(snapshot: DataFrame | None) -> Any:
        join = joins.enrich(None, **ARGUMENTS, rejected="route", snapshot=snapshot)
        return join.options(shards=3)

    join = joined(snapshot_of(spark, [*rows, *bad]))
    first = stream(spark, join, [(orders("a", "b", "d", "x"), [customer("a", 5, "1.00")]), (None, None)],
                   schema=BOTH, directory=tmp_path)  # fmt: skip
    found = {row["customer"]: row["limit"] for row in first[0].rows}
    limits = [found[name] for name in "abdx"]
    assert limits == [Decimal("1.00"), Decimal("2.00"), Decimal("3.00"), Decimal("2.00")]
    assert sorted(row["reason"] for row in first[0].late_rows) == [
        "conflict",
        "null_key",
    ]
    assert first[0].counts is not None
    assert (first[0].counts.rows, first[0].counts.rejected) == (11, 2)
    assert first[1].state_rows == 4

    # Started again with none, and with another, which is not looked at.
    without = joined(None)
    script: list[Any] = [(orders("b", "d"), [customer("b", 6, None, "delete")])]
    (second,) = stream(spark, without, script, schema=BOTH, directory=tmp_path)
    assert {row["customer"]: row["limit"] for row in second.rows} == {
        "b": None,
        "d": Decimal("3.00"),
    }
    other = joined(snapshot_of(spark, [customer("b", 999, "6.00")]))
    (third,) = stream(spark, other, [(orders("b", "a"), None)], schema=BOTH, directory=tmp_path)
    assert {row["customer"]: row["limit"] for row in third.rows} == {
        "b": None,
        "a": Decimal("1.00"),
    }


def frame_of(spark: SparkSession, rows: list[dict[str, Any]], schema: pa.Schema) -> DataFrame:
    table = pa.Table.from_pylist(rows, schema=schema)
    return spark.createDataFrame(table, spark_schema(schema))


def test_a_batch_is_joined_with_the_final_table_and_a_snapshot(
    spark: SparkSession,
) -> None:
    facts = frame_of(spark, orders("a", "b", "c", None), ORDERS)
    log = frame_of(
        spark,
        [customer("a", 5, "1.00"), customer("a", 4, "9.00"), customer("c", 6, None, "delete")],
        CUSTOMERS,
    )
    snapshot = snapshot_of(spark, [customer(id, 50, "2.00") for id in "abc"])
    for given, b in ((None, None), (snapshot, Decimal("2.00"))):
        result = facts.transform(joins.enrich(log, **ARGUMENTS, snapshot=given))
        assert result.columns == ["customer", "ts", "n", "tags", "limit", "tags_right", "status"]
        assert result.schema["limit"].dataType.simpleString() == "decimal(10,2)"
        found = {row.customer: row.limit for row in result.collect()}
        assert found == {"a": Decimal("1.00"), "b": b, "c": None, None: None}


def test_an_invalid_snapshot_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    facts = micro_batches(spark, [orders("a")], schema=ORDERS, directory=tmp_path / "facts")
    log = micro_batches(spark, [[]], schema=CUSTOMERS, directory=tmp_path / "log")
    good = snapshot_of(spark, [customer("a", 1, "1.00")])

    def refused(snapshot: DataFrame, **options: Any) -> Any:
        with pytest.raises((SpecError, SchemaError)) as caught:
            facts.transform(joins.enrich(log, **ARGUMENTS, snapshot=snapshot).options(**options))
        return caught.value

    assert refused(log).code == "STREAMING_FRAME"
    assert refused(good, state_api="applyInPandasWithState").code == "PARAMETERS_CONTRADICT"
    missing = refused(good.drop("limit"))
    assert isinstance(missing, ColumnNotFound)
    assert missing.where == "joins.enrich, snapshot"
    other = refused(good.withColumn("limit", F.lit("much")))
    assert (other.code, other.expected) == ("COLUMN_TYPE", "decimal(10,2), as in the changes")
    with pytest.raises(SpecError) as caught:
        facts.transform(joins.enrich(good, **ARGUMENTS))
    assert caught.value.code == "STREAMING_FRAME"


def test_a_chain_with_a_normalized_table_and_windows_in_one_query(
    spark: SparkSession, tmp_path: Path
) -> None:
    upserts = [
        [{"id": "a", "limit": 1, "lsn": 1}, {"id": "b", "limit": 2, "lsn": 2}],
        [{"id": "b", "limit": None, "lsn": 4}, {"id": "a", "limit": 5, "lsn": 3}],
        [],
    ]
    log = micro_batches(spark, upserts, directory=tmp_path / "log").withColumn(
        "_change_type", F.when(F.col("limit").isNull(), "delete").otherwise("insert")
    )
    script = [orders("a", "b", second=1), orders("a", "b", second=2), orders("z", second=100)]
    facts = micro_batches(spark, script, schema=ORDERS, directory=tmp_path / "facts")
    table = log.transform(changes.normalize("id", sequence="lsn", horizon=100).options(shards=2))
    is_delete = (F.col("_change_type") == "delete").cast("bigint")
    placed = table.withColumn("place", F.col("revision").cast("bigint") * 2 + is_delete)
    join = joins.enrich(
        placed.drop("revision"),
        by={"customer": "id"},
        sequence="place",
        horizon=10**12,
    ).options(shards=2)
    totals = windows.tumbling(
        "10 seconds", time="ts", by="customer", agg={"limits": agg.sum("limit")}, delay="0 seconds"
    )
    query = facts.transform(join).transform(totals)
    tables = [rows for _, rows, _ in run_query(query, tmp_path / "query", 240)]
    found = {row["customer"]: row["limits"] for table in tables for row in records(table)}
    assert {"a": found["a"], "b": found["b"]} == {"a": 6, "b": 2}
