"""Tests of the home timelines: their logic without Spark, then the job once on Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from chispa import assert_df_equality
from pyspark.sql import SparkSession

from examples.feed import Row, at, write
from examples.home_timelines import collect, followed, sign, start
from streamops import changes, sinks
from streamops.testing import fold, replay

_CHANGE = {"log": pa.int32(), "_change_type": pa.string()}
_POST = {"post": pa.int32(), "author": pa.string(), "posted_at": pa.timestamp("us", tz="UTC")}
POSTS, AUTHORS = (
    pa.schema({**columns, **_CHANGE})
    for columns in (_POST, {"author": pa.string(), "name": pa.string()})
)
FOLLOWS = pa.schema({"user": pa.string(), "whom": pa.string(), **_CHANGE})


def post(number: int, change: str = "insert", author: str = "ben") -> Row:
    row: Row = {
        "post": number,
        "author": author,
        "posted_at": at(9, number),
        "_change_type": change,
    }
    return {**row, "log": 2 * number + (change == "delete")}


def author(log: int, name: str, change: str = "insert") -> Row:
    return {"author": "ben", "name": name, "log": log, "_change_type": change}


def follow(user: str, whom: str, change: str = "insert", log: int = 0) -> Row:
    return {"user": user, "whom": whom, "log": log, "_change_type": change}


def posts(*batches: tuple[list[Row] | None, list[Row] | None]) -> dict[int, str]:
    """The posts with names after changes of posts and authors."""
    results = replay(sign(None), batches, schema=(POSTS, AUTHORS))
    return {row["post"]: row["name"] for row in fold(results, rows="multiset")}


def timelines(*batches: tuple[list[Row] | None, list[Row] | None]) -> dict[str, list[int]]:
    """The posts in each user's timeline, newest first, after changes of posts and follows."""
    found = dict[str, list[int]]()
    # As in the job, `log` is not a part of the rows any more.
    changed = [([{**row, "log": 0} for row in left or []], right) for left, right in batches]
    table = fold(replay(collect(None), changed, schema=(POSTS, FOLLOWS)), rows="multiset")
    for row in sorted(table, key=lambda row: -row["post"]):
        found.setdefault(row["user"], []).append(row["post"])
    return found


def test_a_new_name_changes_all_posts_of_the_author() -> None:
    renamed = [author(1, "Ben", "update_preimage"), author(1, "Benjamin", "update_postimage")]
    before = ([post(1), post(2)], [author(0, "Ben")])
    assert posts(before) == {1: "Ben", 2: "Ben"}
    assert posts(before, (None, renamed)) == {1: "Benjamin", 2: "Benjamin"}


def test_a_post_that_is_delivered_after_its_delete_stays_deleted() -> None:
    assert posts((None, [author(0, "Ben")]), ([post(1, "delete")], None), ([post(1)], None)) == {}


def test_a_timeline_has_the_three_newest_posts() -> None:
    script = ([post(n) for n in (4, 1, 3, 2)], [follow("uma", "ben")])
    assert timelines(script) == {"uma": [4, 3, 2]}
    assert timelines(script, ([post(3, "delete")], None)) == {"uma": [4, 2, 1]}


def test_who_follows_gets_earlier_posts_and_who_unfollows_loses_them() -> None:
    written = ([post(1), post(2, author="ann")], [follow("uma", "ben")])
    assert timelines(written, (None, [follow("uma", "ann")])) == {"uma": [2, 1]}
    unfollowed = (None, [follow("uma", "ben", "delete")])
    assert timelines(written, unfollowed) == {}


def test_an_old_follow_that_arrives_again_has_no_effect() -> None:
    script = [[follow("uma", "ben", log=0)], [follow("uma", "ben", "delete", 1)]]
    results = replay(followed, [*script, script[0]])
    assert [row["_change_type"] for r in results for row in r.rows] == ["insert", "delete"]


def test_the_job_writes_timelines(spark: SparkSession, tmp_path: Path) -> None:
    write(
        [[{**post(n), "text": f"{n}"} for n in (2, 1, 2)], [{**post(2, "delete"), "text": "2"}]],
        tmp_path / "posts",
    )
    write([[author(0, "Ben")]], tmp_path / "authors")
    write([[follow("uma", "ben")], [], [follow("uma", "ben")]], tmp_path / "follows")
    start(spark, tmp_path).awaitTermination()
    published = sinks.read_parquet(f"{tmp_path}/timelines", spark=spark)
    actual = published.transform(changes.fold(rows="multiset")).select("user", "post", "name")
    expected = spark.createDataFrame([("uma", 1, "Ben")], actual.schema)
    assert_df_equality(actual, expected, ignore_nullable=True, ignore_row_order=True)
