"""Compact logs on Spark: the retained changes, and the tables that readers compute from them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamops import changes
from streamops.kernel.errors import StreamopsError
from streamops.kernel.values import comparable
from streamops.testing import micro_batches
from tests.oracles.latest import LatestOracle

pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("k", pa.string()),
        ("v", pa.int64()),
        ("w", pa.map_(pa.string(), pa.int64())),
        ("seq", pa.int64()),
        ("_change_type", pa.string()),
        ("_snapshot", pa.bool_()),
        ("_unavailable", pa.list_(pa.string())),
    ]
)
NEWEST, RETENTION = 40, 20


def log() -> list[dict[str, Any]]:
    """Sixty keys with some changes out of order, and a key with the latest sequence."""
    dice, rows = random.Random(3), []
    for key in range(60):
        for seq in dice.sample(range(NEWEST), k=dice.randrange(1, 8)):
            snapshot = dice.random() < 0.15
            lacks = [] if snapshot else dice.choice([[], [], ["v"], ["w"], ["v", "w"]])
            word = "insert" if snapshot else dice.choice(["update_postimage"] * 3 + ["delete"])
            rows.append(
                {
                    "k": f"k{key}",
                    "seq": seq,
                    "_change_type": word,
                    "_snapshot": snapshot,
                    "_unavailable": lacks if word != "delete" else None,
                    "v": None if "v" in lacks else dice.randrange(3),
                    "w": None if "w" in lacks else [("p", dice.randrange(3))],
                }
            )
    rows += [dict(row) for row in rows[::7]]  # delivered twice
    newest = {"k": "new", "seq": NEWEST, "_change_type": "insert", "v": 1, "w": None}
    odd = [
        {"k": None, "seq": 1, "_change_type": "insert"},
        {"k": "k1", "seq": None, "_change_type": "insert"},
        {"k": "k1", "seq": 1, "_change_type": "upsert"},
    ]
    preimage = {"k": "k1", "seq": 39, "_change_type": "update_preimage"}
    rows += [newest, preimage, *odd]
    dice.shuffle(rows)
    empty = dict.fromkeys(SCHEMA.names)
    return [{**empty, **row, "id": number} for number, row in enumerate(rows)]


LOG = log()


def frame_of(spark: SparkSession) -> DataFrame:
    return spark.createDataFrame(pa.Table.from_pylist(LOG, schema=SCHEMA))


def table(rows: list[dict[str, Any]], snapshots: str, ignore_nulls: bool = False) -> Any:
    oracle = LatestOracle(("k",), ("v", "w"), "last", snapshots, ignore_nulls=ignore_nulls)
    oracle.step(rows)
    return comparable(sorted((row["k"], row["v"], str(row["w"])) for row in oracle.table.values()))


@pytest.mark.parametrize("snapshots", ["below_log", "by_sequence"])
def test_a_compacted_log_normalizes_to_the_same_table(spark: SparkSession, snapshots: Any) -> None:
    compacting = changes.compact("k", sequence="seq", retention=RETENTION, snapshots=snapshots)
    frame = frame_of(spark)
    once = frame.transform(compacting).localCheckpoint()
    columns = [[(f.name, f.dataType, f.nullable) for f in item.schema] for item in (once, frame)]
    assert columns[0] == columns[1]
    retained = {row["id"] for row in once.select("id").collect()}
    again = {row["id"] for row in once.transform(compacting).select("id").collect()}
    assert retained == again  # a second pass removes nothing
    rest = [row for row in LOG if row["id"] in retained]
    assert len(rest) < 0.7 * len(LOG)
    assert table(rest, snapshots) == table(LOG, snapshots)

    oracle = LatestOracle(("k",), (), "last", snapshots)
    oracle.step(LOG)
    for (key,), taken in oracle.taken.items():
        last = taken[max(taken)][-1]
        ids = {
            row["id"]
            for row in LOG
            if row["k"] == key
            and row["seq"] == last["seq"]
            and bool(row["_snapshot"]) == bool(last["_snapshot"])
            and row["_change_type"] == last["_change_type"]
        }
        newest = max(
            row["seq"]
            for row in LOG
            if row["k"] == key and row["seq"] is not None and row["_change_type"] != "upsert"
        )
        expired = last["_change_type"] == "delete" and newest < NEWEST - RETENTION
        assert ids <= retained if not expired else not ids & retained
    odd = {row["id"] for row in LOG if row["k"] is None or row["seq"] is None}
    odd |= {row["id"] for row in LOG if row["_change_type"] == "upsert"}
    assert odd <= retained
    assert not {row["id"] for row in LOG if row["_change_type"] == "update_preimage"} & retained


def test_a_compacted_log_with_truncates_and_ignored_nulls_gives_the_same_table(
    spark: SparkSession,
) -> None:
    dice = random.Random(5)
    log = [{**row, "_unavailable": None} for row in LOG if row["_change_type"] != "delete"]
    log = [{**row, "w": dice.choice([None, row["w"]])} for row in log]
    empty = dict.fromkeys(SCHEMA.names)
    truncate = {**empty, "id": -1, "seq": 9, "_change_type": "truncate", "_snapshot": False}
    log.append(truncate)
    frame = spark.createDataFrame(pa.Table.from_pylist(log, schema=SCHEMA))
    compacting = changes.compact(
        "k", sequence="seq", retention=RETENTION, snapshots="by_sequence", ignore_nulls=True
    )
    retained = {row["id"] for row in frame.transform(compacting).select("id").collect()}
    rest = [row for row in log if row["id"] in retained]
    assert truncate in rest
    assert len(rest) < 0.8 * len(log)
    assert table(rest, "by_sequence", True) == table(log, "by_sequence", True)


def test_the_head_of_a_log_is_retained(spark: SparkSession) -> None:
    compacting = changes.compact("k", sequence="seq", retention=5, head=10)
    retained = {row["id"] for row in frame_of(spark).transform(compacting).select("id").collect()}
    assert {row["id"] for row in LOG if row["seq"] is not None and row["seq"] >= 30} <= retained


def test_a_change_with_a_null_in_its_sequence_is_retained_and_replaces_nothing(
    spark: SparkSession,
) -> None:
    rows = [
        (1, "a", (1, 1), "insert"),
        (2, "a", (1, 2), "insert"),
        (3, "a", (2, None), "insert"),
    ]
    dtypes = "id long, k string, pos struct<log:int,n:int>, _change_type string"
    frame = spark.createDataFrame(rows, dtypes).withColumn("ts", F.timestamp_seconds("id"))
    left = frame.transform(changes.compact("k", sequence="pos", retention="1 day", time="ts"))
    assert sorted(row["id"] for row in left.collect()) == [2, 3]


def test_below_a_delete_only_one_that_a_later_change_needs_is_retained(spark: SparkSession) -> None:
    rows = [
        (1, "a", "insert", None),
        (2, "a", "delete", None),  # the last one, within retention: nothing is read from below it
        (3, "b", "insert", None),
        (4, "b", "delete", None),  # `v` of the update is what this says: none
        (5, "b", "update_postimage", ["v"]),
        (6, "c", "delete", None),
        (7, "c", "insert", None),  # has all values
        (8, "c", "update_postimage", ["v"]),
        (9, "d", "insert", None),
        (100, "d", "insert", None),
    ]
    frame = spark.createDataFrame(
        [(*row, 1) for row in rows],
        "id long, k string, _change_type string, _unavailable array<string>, v int",
    )
    for retention, expected in ((100, [2, 4, 5, 7, 8, 100]), (1, [4, 5, 7, 8, 100])):
        compacting = changes.compact("k", sequence="id", retention=retention)
        retained = [row["id"] for row in frame.transform(compacting).orderBy("id").collect()]
        assert retained == expected


def test_tombstones_are_removed_with_their_delete(spark: SparkSession) -> None:
    rows = [
        (1, "a", "insert", 1, None),
        (2, "a", "delete", 2, None),
        (3, "a", None, None, True),
        (4, "b", "delete", 80, None),
        (5, "b", None, None, True),
        (6, "c", "delete", 85, None),
        (7, "c", None, None, True),
        (8, "c", "insert", 90, None),
        (9, "d", None, None, True),
        (10, "e", "insert", 100, None),
        (11, "f", "insert", 95, None),  # from a clock that was ahead
        (12, "f", "delete", 10, None),
    ]
    frame = spark.createDataFrame(
        rows, "id int, k string, _change_type string, second long, _tombstone boolean"
    ).withColumn("ts", F.timestamp_seconds("second"))
    compacting = changes.compact("k", sequence="id", retention="20 seconds", time="ts")
    retained = [row["id"] for row in frame.transform(compacting).orderBy("id").collect()]
    assert retained == [4, 5, 8, 10, 12]


def test_a_topic_of_keys_and_values_is_compacted_by_its_offsets(spark: SparkSession) -> None:
    rows = [("a", "1", 0), ("b", "1", 1), ("a", None, 2), ("b", "2", 3), ("c", None, 4)]
    topic = spark.createDataFrame(rows, "key string, value string, offset long")
    for retention, offsets in ((2, [2, 3, 4]), (1, [3, 4])):
        compacting = changes.compact("key", sequence="offset", retention=retention, value="value")
        rest = topic.transform(compacting).orderBy("offset").collect()
        assert [row["offset"] for row in rest] == offsets


def test_a_log_may_have_the_least_and_the_greatest_sequence(spark: SparkSession) -> None:
    least, most = -(2**63), 2**63 - 1
    rows = [
        ("a", least, "delete"),
        ("b", most, "insert"),
        ("c", -2, "delete"),
        ("d", most, "delete"),
    ]
    log = spark.createDataFrame(rows, "k string, seq bigint, _change_type string")
    for retention, head, left in ((5, None, "bd"), (most, None, "bd"), (5, most, "bd")):
        compacting = changes.compact("k", sequence="seq", retention=retention, head=head)
        assert sorted(row["k"] for row in log.transform(compacting).collect()) == list(left)
    near = log.where("k in ('a', 'c')").transform(compacting)
    assert near.count() == 2  # within the head


def test_what_cannot_be_compacted_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    frame = frame_of(spark)
    settings: dict[str, Any] = {"key": "k", "sequence": "seq", "retention": 5}
    timed, local = frame.withColumn("ts", F.current_timestamp()), F.localtimestamp()
    stream = micro_batches(spark, [[]], schema=SCHEMA, directory=tmp_path)
    cases: list[tuple[str, dict[str, Any], DataFrame]] = [
        ("STREAMING_FRAME", {}, stream),
        ("PARAMETER_MISSING", {"retention": "5 days"}, frame),
        ("PARAMETER_MISSING", {"head": "5 days"}, frame),
        ("UNKNOWN_CHOICE", {"snapshots": "first"}, frame),
        ("PARAMETER_MISSING", {"key": []}, frame),
        ("NAME_TAKEN", {"key": ["k", "_change_type"]}, frame),
        ("COLUMN_TYPE", {"key": "g"}, frame.withColumn("g", F.make_interval(F.lit(1)))),
        (
            "SEQUENCE_TYPE",
            {"sequence": "g", "time": "ts", "retention": "5 days"},
            timed.withColumn("g", F.parse_json("k")),
        ),
        ("COLUMN_NOT_FOUND", {"key": "K"}, frame),
        ("COLUMN_NOT_FOUND", {"sequence": "lsn"}, frame),
        ("COLUMN_NOT_FOUND", {"time": "ts", "retention": "5 days"}, frame),
        ("COLUMN_TYPE", {"time": "seq", "retention": "5 days"}, frame),
        ("SEQUENCE_TYPE", {"sequence": "k"}, frame),
        ("COLUMN_TYPE", {"sequence": ["seq", "v"]}, frame),
        ("SEQUENCE_TYPE", {"sequence": "w", "time": "ts", "retention": "5 days"}, timed),
        ("SEQUENCE_TYPE", {"sequence": ["seq", "w"], "time": "ts", "retention": "5 days"}, timed),
        ("COLUMN_TYPE", {"time": "ts", "retention": "5 days"}, timed.withColumn("ts", local)),
        ("COLUMN_TYPE", {}, frame.withColumn("_change_type", F.lit(1))),
        ("COLUMN_TYPE", {}, frame.withColumn("_snapshot", F.lit("yes"))),
        ("COLUMN_TYPE", {}, frame.withColumn("rejected", F.lit(False))),
        ("PARAMETER_MISSING", {"value": "v"}, frame),
        ("PARAMETER_MISSING", {}, frame.drop("_change_type")),
    ]
    for code, changed, given in cases:
        with pytest.raises(StreamopsError) as caught:
            given.transform(changes.compact(**{**settings, **changed}))
        assert caught.value.code == code, changed
