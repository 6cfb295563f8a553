"""Home timelines on Spark: streams on both state APIs, batches."""

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
from streamops import joins, windows
from streamops.kernel.errors import SchemaError
from streamops.testing import assert_rows, at, fold, replay, stream

pytestmark = pytest.mark.spark

APIS: Any = ("transformWithStateInPandas", "applyInPandasWithState")
POSTS = pa.schema(
    [
        ("user", pa.string()),
        ("post", pa.int64()),
        ("at", pa.timestamp("us", tz="UTC")),
        ("price", pa.decimal128(10, 2)),
        ("tags", pa.map_(pa.string(), pa.list_(pa.int64()))),
        ("_change_type", pa.string()),
    ]
)
FOLLOWS = pa.schema(
    [
        ("since", pa.timestamp("us", tz="UTC")),
        ("whom", pa.string()),
        ("User", pa.int32()),
        ("_change_type", pa.string()),
    ]
)
BOTH = (POSTS, FOLLOWS)
PLUS, MINUS, PRE, POST = "insert", "delete", "update_preimage", "update_postimage"


def posts(*rows: tuple[str | None, int, str]) -> list[dict[str, Any]]:
    return [
        {
            "user": author,
            "post": number,
            "at": at(number),
            "price": Decimal(number) / 4,
            "tags": {"n": [number, None]} if number % 2 else None,
            "_change_type": change,
        }
        for author, number, change in rows
    ]


def follows(*rows: tuple[int | None, str, str]) -> list[dict[str, Any]]:
    return [
        {"since": at(0), "whom": whom, "User": user, "_change_type": change}
        for user, whom, change in rows
    ]


# A full timeline, back-fill, a deleted post, one of nobody, an unfollow, what cannot be, nothing.
SCRIPT: list[Any] = [
    (posts(("bob", 1, PLUS), ("bob", 2, PLUS), (None, 3, PLUS)), follows((1, "bob", PLUS))),
    (posts(("cat", 4, PLUS), ("bob", 5, PLUS)), follows((1, "cat", PLUS), (None, "bob", PLUS))),
    (posts(("bob", 5, MINUS), ("cat", 6, "upsert")), follows((2, "bob", MINUS))),
    (None, None),
    (None, follows((1, "bob", PRE), (2, "bob", POST))),
    (posts(("cat", 4, MINUS)), follows((1, "cat", MINUS))),
]
ARGUMENTS: dict[str, Any] = {
    "by": {"user": "whom"},
    "user": "User",
    "key": "post",
    "ranked_by": "at",
}
COMMON: dict[str, Any] = ARGUMENTS | {"cap": 2, "rejected": "route"}


@pytest.mark.parametrize("api", APIS)
def test_a_stream_equals_its_replay_also_after_a_restart(
    spark: SparkSession, tmp_path: Path, api: Any
) -> None:
    home = joins.timeline(None, **COMMON).options(state_api=api, shards=2)
    got = [
        item
        for part in (SCRIPT[:3], SCRIPT[3:])
        for item in stream(spark, home, part, schema=BOTH, directory=tmp_path)
    ]
    expected = replay(home, SCRIPT, schema=BOTH, restart=True)
    for ours, theirs in zip(got, expected, strict=True):
        assert_rows(ours.table, theirs.table)
        assert_rows(ours.late, theirs.late)
        assert (ours.counts, ours.state_rows) == (theirs.counts, theirs.state_rows)
    late = [(row["side"], row["reason"]) for item in got for row in item.late.to_pylist()]
    assert sorted(late) == [("left", "bad_change"), ("right", "not_there")]
    folded = fold((row for item in got for row in item.rows), key=["User_right", "post"])
    formatted = sorted((row["User_right"] or 0, row["post"]) for row in folded)
    assert formatted == [(0, 1), (0, 2), (2, 1), (2, 2)]
    other = joins.timeline(None, **(COMMON | {"cap": 3})).options(state_api=api, shards=2)
    with pytest.raises(StreamingQueryException) as caught:
        stream(spark, other, [SCRIPT[0]], schema=BOTH, directory=tmp_path)
    assert "[STATE_PARAMETERS] joins.timeline" in str(caught.value)


def test_a_batch_is_the_timelines_of_the_tables_in_the_types_of_its_frames(
    spark: SparkSession,
) -> None:
    left = spark.createDataFrame(
        [("bob", 1, "a", PLUS), ("bob", 1, "a", PRE), ("bob", 1, "b", POST), ("bob", 2, "c", PLUS)],
        "author string, post int, text string, _change_type string",
    ).withColumn("text", F.col("text").alias("text", metadata={"comment": "as it is shown"}))
    right = spark.createDataFrame(
        [(7, "bob", PLUS), (8, "bob", PLUS), (8, "bob", MINUS)],
        "user int, whom string, _change_type string",
    ).select(
        F.col("user").alias("user", metadata={"comment": "who follows"}), "whom", "_change_type"
    )
    arguments: dict[str, Any] = ARGUMENTS | {
        "by": {"author": "whom"},
        "user": "user",
        "ranked_by": "post",
    }
    home = left.transform(joins.timeline(right, cap=1, **arguments))
    assert home.dtypes == [
        ("author", "string"),
        ("post", "int"),
        ("text", "string"),
        ("user", "int"),
        ("_change_type", "string"),
    ]
    assert home.schema["user"].metadata == {"comment": "who follows"}
    assert home.schema["text"].metadata == {"comment": "as it is shown"}
    both = home.unionByName(left.transform(joins.timeline(right, cap=9, **arguments)))
    assert sorted(map(tuple, both.collect())) == [
        ("bob", 1, "b", 7, PLUS),
        *[("bob", 2, "c", 7, PLUS)] * 2,
    ]
    per_minute = windows.tumbling("1 minute", time="at", agg={"n": agg.count()}, delay="1 second")
    with pytest.raises(SchemaError, match="ROWS_REVISED"):
        home.withColumn("at", F.current_timestamp()).transform(per_minute)
