"""Delta's change data feed on Spark."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from streamops import aggregates as agg
from streamops import changes, joins, split_side_output
from streamops.kernel.errors import ColumnNotFound, SchemaError, SpecError

pytestmark = pytest.mark.spark

FEED = "id int, v int, _change_type string, _commit_version long, _commit_timestamp timestamp"
AT = dt.datetime(2024, 3, 9, 12)  # noqa: DTZ001 (the session is in UTC)
ROWS = [
    (1, 1, "insert", 0, AT),
    (1, 1, "update_preimage", 1, AT),
    (1, 2, "update_postimage", 1, AT),
    (1, 2, "delete", 2, AT),
    (1, 3, "insert", 2, AT),
    (2, 9, "upsert", 3, AT),
    (2, 9, None, 3, AT),
    (None, 9, "insert", 3, AT),
    (2, 9, "insert", None, None),
]


def test_a_feed_has_a_sequence_for_each_change_and_emits_rejected_rows(
    spark: SparkSession,
) -> None:
    feed = spark.createDataFrame(ROWS, FEED)
    result = feed.transform(changes.from_delta("id").options(name="feed"))
    assert result.columns == [
        "id",
        "v",
        "_change_type",
        "_sequence",
        "_changed_at",
        "rejected",
    ]
    rows = result.toArrow().to_pylist()
    good = [row for row in rows if row["rejected"] is None]
    assert [(row["v"], row["_change_type"], *row["_sequence"].values()) for row in good] == [
        (1, "insert", 0, 1),
        (1, "delete", 1, 0),
        (2, "insert", 1, 1),
        (2, "delete", 2, 0),
        (3, "insert", 2, 1),
    ]
    assert [row["rejected"] for row in rows if row["rejected"] is not None] == [
        {"reason": "unknown_operation", "change_type": "upsert"},
        {"reason": "unknown_operation", "change_type": None},
        {"reason": "null_key", "change_type": "insert"},
        {"reason": "no_sequence", "change_type": "insert"},
    ]
    assert all(row["_change_type"] is None for row in rows if row["rejected"] is not None)
    without = feed.transform(changes.from_delta("id", preimages="drop"))
    types = [row["_change_type"] for row in without.collect()]
    assert [word for word in types if word] == ["insert", "update_postimage", "delete", "insert"]
    assert len(types) == len(ROWS) - 1


def test_a_key_that_changes_leaves_no_row(spark: SparkSession) -> None:
    rows = [
        (1, 7, "insert", 1, AT),
        (1, 7, "update_preimage", 2, AT),
        (2, 7, "update_postimage", 2, AT),
        (5, 1, "insert", 1, AT),
        (5, 1, "update_preimage", 2, AT),
        (5, 2, "update_postimage", 2, AT),
    ]
    raw = spark.createDataFrame(rows, FEED)
    feed = raw.transform(changes.from_delta("id")).localCheckpoint()
    settings: dict[str, Any] = {"sequence": "_sequence", "time": "_changed_at"}
    normal = feed.transform(changes.normalize("id", horizon="1 day", **settings))
    rows = [tuple(row) for row in normal.drop("revision", "rejected").collect()]
    assert sorted(rows) == [
        (1, 7, "delete"),
        (1, 7, "insert"),
        (2, 7, "insert"),
        (5, 1, "insert"),
        (5, 1, "update_preimage"),
        (5, 2, "update_postimage"),
    ]
    table = [(2, 7), (5, 2)]
    folded = feed.transform(changes.fold("id", sequence="_sequence")).select("id", "v")
    assert sorted(map(tuple, folded.collect())) == table
    (row,) = feed.transform(changes.aggregate(agg={"v": agg.sum("v"), "n": agg.count()})).collect()
    assert (row["v"], row["n"]) == (9, 2)
    left = feed.transform(changes.compact("id", retention="1 day", **settings)).localCheckpoint()
    retained = [(row["id"], row["v"], row["_change_type"]) for row in left.collect()]
    assert sorted(retained) == [(1, 7, "delete"), (2, 7, "insert"), (5, 2, "insert")]
    still = raw.where("id = 5")
    for folding in (changes.fold("id", sequence="_commit_version"), changes.fold(rows="multiset")):
        (row,) = still.transform(folding).collect()  # the feed without from_delta
        assert (row["id"], row["v"]) == (5, 2)
    shifting = raw.withColumnRenamed("_commit_version", "_sequence").drop("_commit_timestamp")
    with pytest.raises(PySparkException, match=r"POSTIMAGE_ALONE|PREIMAGE_ALONE") as caught:
        shifting.transform(changes.fold("id", sequence="_sequence")).collect()
    assert "changes.from_delta" in str(caught.value)


def test_frames_that_are_not_a_feed_are_refused(spark: SparkSession) -> None:
    feed = spark.createDataFrame(ROWS, FEED)
    with pytest.raises(SchemaError, match=r"\[FRAME_TYPE\].*\n.*_commit_version string"):
        feed.withColumn("_commit_version", feed["id"].cast("string")).transform(
            changes.from_delta("id")
        )
    with pytest.raises(SchemaError, match=r"no _change_type"):
        feed.drop("_change_type").transform(changes.from_delta("id"))
    for name in ("_change_type", "_commit_version"):
        with pytest.raises(SpecError, match=r"\[NAME_TAKEN\]"):
            changes.from_delta(["id", name])
    for other in ("feed", None):
        with pytest.raises(SpecError, match=r"\[NOT_A_FRAME\]"):
            split_side_output(other)  # type: ignore[arg-type]
    with pytest.raises(ColumnNotFound, match="did you mean 'id'"):
        feed.transform(changes.from_delta("ID"))
    with pytest.raises(SchemaError, match=r"\[NAME_TAKEN\]"):
        feed.withColumn("rejected", feed["id"]).transform(changes.from_delta("id"))


def test_operators_that_retract_rows_refuse_upserts_until_they_are_normalized(
    spark: SparkSession,
) -> None:
    feed = spark.createDataFrame(ROWS[:5], FEED)
    log = spark.createDataFrame([("{}", 1)], "value string, offset long")
    read = changes.from_debezium("id int, v int", key="id", sequence=["offset"])
    upserts = [
        log.transform(read),
        feed.transform(changes.from_delta("id", preimages="drop")),
        feed.transform(changes.compact("id", sequence="_commit_version", retention=0)),
    ]
    whole = feed.transform(changes.from_delta("id"))
    totals = changes.aggregate(agg={"n": agg.count(), "v": agg.sum("v")})
    for frame in upserts:
        with pytest.raises(SchemaError, match=r"CHANGE_STREAM_INPUT\] changes\.aggregate"):
            frame.where("id > 0").transform(totals)
        with pytest.raises(SchemaError, match=r"CHANGE_STREAM_INPUT\] joins\.tables, right frame"):
            whole.transform(joins.tables(frame, by="id"))
    with pytest.raises(SchemaError, match=r"CHANGE_STREAM_INPUT\] joins\.tables, left frame"):
        upserts[0].transform(joins.tables(whole, by="id"))
    normal = changes.normalize("id", sequence="_sequence", horizon="1 day", time="_changed_at")
    for frame in (whole, upserts[1].transform(normal)):
        (row,) = frame.transform(totals).collect()
        assert (row["n"], row["v"]) == (1, 3)
    publishing = changes.from_debezium(
        "id int, v int", key="id", sequence=["offset"], preimages="publish"
    )
    assert log.transform(publishing).transform(totals).columns == ["n", "v", "_change_type"]
