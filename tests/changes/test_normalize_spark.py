"""Normalize upserts on Spark: after Debezium's reader, with a restart, and in a batch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streamops import changes
from streamops.testing import assert_rows, fold, micro_batches, replay, stream
from tests.changes.test_normalize import SCHEMA, delete, upsert

pytestmark = pytest.mark.spark

SCRIPT: list[list[dict[str, Any]]] = [
    [upsert("a", 5, 1), upsert("a", 6, 2), upsert(None, 1), upsert("b", 4, 1)],
    [],
    [delete("a", 7), upsert("b", 5, None, None, _unavailable=["w"]), upsert("b", 5, 9)],
    [upsert("a", 6, 2), upsert("b", 9, 3, "new"), upsert("c", 1, 0)],
]


@pytest.mark.parametrize("api", ["transformWithStateInPandas", "applyInPandasWithState"])
def test_a_stream_equals_the_replay_after_a_restart(
    spark: SparkSession, tmp_path: Path, api: Any
) -> None:
    upserts = changes.normalize("k", sequence="lsn", horizon=100).options(shards=2, state_api=api)
    got = [
        result
        for part in (SCRIPT[:2], SCRIPT[2:])
        for result in stream(spark, upserts, part, schema=SCHEMA, directory=tmp_path)
    ]
    expected = replay(upserts, SCRIPT, schema=SCHEMA, restart=True)
    for ours, theirs in zip(got, expected, strict=True):
        assert_rows(ours.table, theirs.table)
        assert (ours.counts, ours.state_rows) == (theirs.counts, theirs.state_rows)
    assert [result.counts.rejected for result in got if result.counts is not None] == [1, 0, 1, 0]


def test_records_are_read_and_normalized_in_one_query(spark: SparkSession, tmp_path: Path) -> None:
    def record(op: str, lsn: int, **images: Any) -> dict[str, Any]:
        source = {"connector": "postgresql", "lsn": lsn, "ts_ms": 1_700_000_000_000 + lsn}
        return {"value": json.dumps({"op": op, "source": source, **images})}

    row = {"id": 1, "name": "a", "tags": {"x": 1}}
    placeholder = "__debezium_unavailable_value"
    script = [
        [record("c", 5, after=row), record("r", 1, after={**row, "id": 2}), {"value": "?"}],
        [
            record("u", 9, after={**row, "name": "b", "tags": placeholder}),
            record("d", 7, before={"id": 2}),
        ],
        [record("u", 8, before=row, after={**row, "id": 3}), record("c", 6, after=row)],
    ]
    frame = micro_batches(
        spark, script, schema=pa.schema([("value", pa.string())]), directory=tmp_path
    )
    reading = changes.from_debezium("id int, name string, tags map<string,tinyint>", key="id")
    upserts = changes.normalize(
        "id",
        sequence="_sequence",
        time="_changed_at",
        horizon="1 day",
    ).options(shards=2)
    both = frame.transform(reading).transform(upserts)
    assert both.schema["tags"].dataType.simpleString() == "map<string,tinyint>"
    assert both.columns == ["id", "name", "tags", "revision", "_change_type", "rejected"]
    rows: list[dict[str, Any]] = []
    query = (
        both.writeStream.foreachBatch(
            lambda batch, number: rows.extend(batch.toArrow().to_pylist(maps_as_pydicts="strict"))
        )
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(150)
    rejected = [item["rejected"] for item in rows if item["rejected"] is not None]
    assert [(item["reason"], item["row"]["id"]) for item in rejected] == [("unparsable_json", None)]
    assert rejected[0]["row"]["rejected"]["value"] == "?"
    good = [
        {name: item[name] for name in ("id", "name", "tags", "revision", "_change_type")}
        for item in rows
        if item["rejected"] is None
    ]
    # The key change at 8 deletes the row before the update at 9, which arrived first.
    assert_rows(
        fold(good, key="id"),
        [
            {"id": 1, "name": "b", "tags": None, "revision": 2},
            {"id": 3, "name": "a", "tags": {"x": 1}, "revision": 0},
        ],
    )


def test_a_batch_emits_every_change_in_order(spark: SparkSession) -> None:
    rows = [row for batch in SCRIPT for row in batch]
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    comments = {"k": {"comment": "of a house"}, "v": {"comment": "its number"}}
    frame = spark.createDataFrame(table).withColumns(
        {name: F.col(name).alias(name, metadata=metadata) for name, metadata in comments.items()}
    )
    for publish, types in (
        ("every change", ["insert", "update_preimage", "update_postimage", "delete"]),
        ("last", []),
    ):
        upserts = changes.normalize("k", sequence="lsn", horizon=100, publish=publish)  # type: ignore[arg-type]
        result = frame.transform(upserts)
        assert {name: result.schema[name].metadata for name in comments} == comments
        rows = result.where("k = 'a'").select("_change_type").collect()
        assert [item["_change_type"] for item in rows] == types


def truncate(lsn: int | None) -> dict[str, Any]:
    return upsert(None, lsn, None, None, _change_type="truncate")


TRUNCATED: list[list[dict[str, Any]]] = [
    [upsert(key, lsn, lsn) for lsn, key in enumerate("abcdefgh")],
    [truncate(5), truncate(None), upsert("a", 9, None, "new")],
    [upsert("b", 4, 1), upsert("c", 6, None, "x"), truncate(3), truncate(5)],
    [upsert("a", 8, 7), truncate(7), upsert("h", 11, None, None)],
]


@pytest.mark.parametrize("api", ["transformWithStateInPandas", "applyInPandasWithState"])
def test_a_truncate_reaches_every_shard_and_is_stored_for_a_restart(
    spark: SparkSession, tmp_path: Path, api: Any
) -> None:
    upserts = changes.normalize(
        "k",
        sequence="lsn",
        horizon=100,
        ignore_nulls=True,
    ).options(shards=3, state_api=api)
    results = [
        result
        for part in (TRUNCATED[:2], TRUNCATED[2:])
        for result in stream(spark, upserts, part, schema=SCHEMA, directory=tmp_path)
    ]
    expected = replay(upserts, TRUNCATED, schema=SCHEMA, restart=True)
    for ours, theirs in zip(results, expected, strict=True):
        assert_rows(ours.table, theirs.table)
        assert (ours.counts, ours.state_rows) == (theirs.counts, theirs.state_rows)
    rows = [row for result in results for row in result.rows if row["rejected"] is None]
    names = ("k", "v", "w", "ts", "revision", "_change_type")
    table = fold([{name: row[name] for name in names} for row in rows], key="k")
    assert sorted((row["k"], row["v"], row["w"]) for row in table) == [
        ("a", 7, "new"),
        ("h", 7, "w"),
    ]


def test_a_batch_of_all_changes_has_the_rows_above_the_truncate(spark: SparkSession) -> None:
    rows = [row for batch in TRUNCATED for row in batch]
    frame = spark.createDataFrame(pa.Table.from_pylist(rows, schema=SCHEMA))
    table = changes.apply("k", sequence="lsn", horizon=100, ignore_nulls=True).options(shards=3)
    result = frame.repartition(4).transform(table).where("rejected is null")
    assert sorted((row["k"], row["v"], row["w"]) for row in result.collect()) == [
        ("a", 7, "new"),
        ("h", 7, "w"),
    ]
