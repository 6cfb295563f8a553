"""Theta sketches on Spark: stored, set against each other, exchanged with Spark's own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streamops import sketches, windows
from streamops.aggregates import approx_count_distinct_theta, approx_overlap
from streamops.kernel.errors import SpecError
from streamops.sketches import StoredTheta, theta_sketch_agg
from streamops.testing import assert_rows, replay, stream
from tests.oracles import theta as oracle
from tests.sketches.core.theta_cases import items
from tests.sketches.linear import linear_sketch
from tests.sketches.test_overlapping import SCHEMA, estimates, visits

pytestmark = pytest.mark.spark

# By name: users of the left side, and of the right one. None: no sketch.
USERS: dict[str, tuple[range | None, range | None]] = {
    "few": (range(10), range(5, 20)),
    "many": (range(3_000), range(2_000, 6_000)),
    "apart": (range(900), range(900, 1_800)),
    "one": (range(1), range(1)),
    "nobody": (range(0), range(5)),
    "no left": (None, range(5)),
    "no right": (range(5), None),
}
K, LG_K = 32, 5
LIKE = theta_sketch_agg("user", k=K)


@pytest.fixture(scope="module")
def stored(spark: SparkSession) -> Any:
    """A row per name, with a sketch of ours and one of Spark's on each side."""
    rows = [
        (name, side, user)
        for name, sides in USERS.items()
        for side, users in zip(("left", "right"), sides, strict=True)
        for user in ([None] if users is not None and not users else users or [])
    ]
    visits = spark.createDataFrame(rows, "name string, side string, user bigint").withColumn(
        "ts", F.timestamp_seconds(F.lit(0))
    )
    window = windows.tumbling("1 hour", time="ts", by=["name", "side"], agg={"ours": LIKE})
    ours = visits.transform(window).select("name", "side", "ours")
    number = approx_count_distinct_theta("user", k=K)
    theirs = visits.groupBy("name", "side").agg(
        LIKE.to_spark().alias("theirs"), number.to_spark().alias("number")
    )
    sides = ours.join(theirs, ["name", "side"]).groupBy("name").pivot("side", ["left", "right"])
    frame = sides.agg(
        F.first("ours").alias("ours"),
        F.first("theirs").alias("theirs"),
        F.first("number").alias("number"),
    )
    frame = frame.localCheckpoint()
    yield frame
    frame.unpersist()


def by_name(frame: Any, *columns: Any) -> dict[str, dict[str, Any]]:
    table: pa.Table = frame.select("name", *columns).toArrow()
    return {row.pop("name"): row for row in table.to_pylist()}


def test_sketches_of_two_columns_are_compared(stored: Any) -> None:
    ours = ("left_ours", "right_ours")
    arguments = by_name(
        stored,
        sketches.union(*ours, like=LIKE).alias("union"),
        sketches.intersection(*ours, like=LIKE).alias("intersection"),
        sketches.difference(*ours, like=LIKE).alias("difference"),
        sketches.overlap(*ours, like=LIKE).alias("overlap"),
        *ours,
    )
    for name, (left, right) in USERS.items():
        row = arguments[name]
        if left is None or right is None:
            assert [row[key] for key in ("union", "intersection", "difference", "overlap")] == [
                None
            ] * 4
            continue
        a, b = sketches.read(row["left_ours"]), sketches.read(row["right_ours"])
        assert isinstance(a, StoredTheta)
        assert sketches.read(row["union"]) == a.merge(b)
        assert sketches.read(row["intersection"]) == a.intersection(b)
        assert sketches.read(row["difference"]) == a.difference(b)
        assert row["overlap"] == a.overlap(b)
        _, pairs = oracle.overlaps({"a": items(left), "b": items(right)}, K)
        assert {key: part["estimate"] for key, part in row["overlap"].items()} == pairs["a", "b"]


def test_spark_and_streamops_make_and_read_the_same_sketches(stored: Any) -> None:
    to, back = sketches.to_datasketches, sketches.from_datasketches
    left, right = (to(f"{side}_ours", like=LIKE) for side in ("left", "right"))
    ours = ("left_ours", "right_ours")
    arguments = by_name(
        stored,
        *ours,
        "left_number",
        back("left_theirs", like=LIKE).alias("left_back"),
        back("right_theirs", like=LIKE).alias("right_back"),
        F.theta_sketch_estimate(left).alias("estimate"),
        F.theta_sketch_estimate(F.theta_union(left, "right_theirs", LG_K)).alias("union"),
        F.theta_sketch_estimate(F.theta_intersection(left, right)).alias("intersection"),
        F.theta_sketch_estimate(F.theta_difference(left, right)).alias("difference"),
    )
    for name, row in arguments.items():
        assert (row["left_back"], row["right_back"]) == (row["left_ours"], row["right_ours"]), name
        if None in USERS[name]:
            continue
        a, b = (sketches.read(row[column]) for column in ours)
        assert isinstance(a, StoredTheta)
        assert row["left_number"] == row["estimate"] == a.estimate()["estimate"]
        assert row["union"] == a.merge(b).estimate()["estimate"]
        assert row["intersection"] == a.intersection(b).estimate()["estimate"]
        assert row["difference"] == a.difference(b).estimate()["estimate"]


def test_bytes_that_are_no_sketch_fail_the_query_with_their_row(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(b"nonsense", None)], "a binary, b binary")
    assert frame.select(sketches.union("a", "b", like=LIKE).alias("u")).toArrow().to_pylist() == [
        {"u": None}
    ]
    for question, code, where in (
        (
            sketches.intersection("a", "a", like=LIKE),
            "SKETCH_CORRUPT",
            "sketches.intersection('a', 'a'",
        ),
        (
            sketches.from_datasketches("a", like=LIKE),
            "SKETCH_CORRUPT",
            "sketches.from_datasketches('a'",
        ),
    ):
        with pytest.raises(PythonException) as caught:
            frame.select(question).toArrow()
        assert f"[{code}] {where}" in str(caught.value)


def test_like_must_be_an_aggregate_of_the_sketches(spark: SparkSession) -> None:
    other = linear_sketch("v")
    overlap = approx_overlap("user", of="page", between=["a", "b"])
    for like in (other, overlap, None):
        with pytest.raises(SpecError, match="PARAMETER_TYPE"):
            sketches.union("a", "b", like=like)  # type: ignore[arg-type]
        with pytest.raises(SpecError, match="SKETCH_UNSUPPORTED"):
            sketches.to_datasketches("a", like=like)  # type: ignore[arg-type]
    with pytest.raises(SpecError, match="PARAMETER_TYPE"):
        sketches.difference("a", F.col("b"), like=LIKE)  # type: ignore[arg-type]


SCRIPT = [
    [*visits(1, "a", range(60)), *visits(2, "b", range(40, 90))],
    [*visits(70, "b", range(7)), *visits(3, None, [1])],
    [*visits(30, "b", range(50, 95)), *visits(150, "a", [3])],
    visits(31, "b", range(95, 140)),
]


AUDIENCES = {"overlap": approx_overlap("user", of="page", between=["a", "b"], k=K)}


@pytest.mark.parametrize("api", ["transformWithStateInPandas", "applyInPandasWithState"])
def test_overlaps_on_a_stream_equal_a_replay_with_a_restart(
    spark: SparkSession, tmp_path: Path, api: Any
) -> None:
    running = windows.running(agg=AUDIENCES, changes="retract").options(shards=2, state_api=api)
    got = [
        item
        for part in (SCRIPT[:1], SCRIPT[1:])
        for item in stream(spark, running, part, schema=SCHEMA, directory=tmp_path)
    ]
    expected = replay(running, SCRIPT, schema=SCHEMA, restart=True)
    for ours, theirs in zip(got, expected, strict=True):
        assert_rows(ours.table, theirs.table)
        assert (ours.state_rows, ours.state_bytes) == (theirs.state_rows, theirs.state_bytes)
    assert got[-1].rows
    users = {"a": items([*range(60), 3]), "b": items([*range(40, 140), *range(7)])}
    (final,) = (row for row in got[-1].rows if row["_change_type"] == "update_postimage")
    assert estimates(final["overlap"]) == oracle.overlaps(users, K)


def test_windows_of_audiences_are_corrected_as_they_are_replayed(spark: SparkSession) -> None:
    corrected = windows.tumbling(
        "1 minute",
        time="ts",
        agg=AUDIENCES,
        delay="0 seconds",
        allowed_lateness="1 hour",
        stragglers="update",
    ).options(shards=2)
    got = stream(spark, corrected, SCRIPT, schema=SCHEMA)
    for ours, theirs in zip(got, replay(corrected, SCRIPT, schema=SCHEMA), strict=True):
        assert_rows(ours.table, theirs.table)
    assert {row["revision"] for item in got for row in item.rows} == {0, 1}
    rows = [tuple(row.values()) for batch in SCRIPT for row in batch]
    frame = spark.createDataFrame(rows, "ts timestamp, page string, user bigint")
    (whole,) = frame.transform(windows.running(agg=AUDIENCES)).toArrow().to_pylist()
    assert whole["revision"] == 0
    (pair,) = whole["overlap"]["pairs"]
    assert pair["either"]["lower"] <= 140 <= pair["either"]["upper"]
