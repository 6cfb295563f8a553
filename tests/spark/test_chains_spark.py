"""Spark refuses the chains that a replay refuses, with the same code, while the plan is built."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from streamops.spark.columns import arrow_schema, spark_schema
from streamops.testing import Replay, assert_rows, replay, stream
from tests.spark.chain_operators import FIRST, JOINS, REFUSED, SECOND, TABLE, given, outcome
from tests.testing.test_chains import MISTAKES, SAMPLE, replayed, schema_of

pytestmark = pytest.mark.spark


def empty(spark: SparkSession, schema: pa.Schema, folder: Any) -> DataFrame:
    """A stream of files that never come."""
    folder.mkdir(exist_ok=True)
    return spark.readStream.schema(spark_schema(schema)).json(str(folder))


def first_of(spark: SparkSession, name: str, folder: Any) -> DataFrame:
    of = FIRST[name]
    frame = empty(spark, of.schema, folder)
    right = [] if of.right is None else [empty(spark, of.right, folder)]
    return frame.transform(of.make(*right))


def chained(frame: DataFrame, *operators: Any) -> None:
    for operator in operators:
        frame = frame.transform(operator)


@pytest.mark.smoke
def test_mistakes_of_a_replay_are_mistakes_on_spark(spark: SparkSession, tmp_path: Any) -> None:
    for name, (chain, code) in MISTAKES.items():
        schema = pa.schema([("page", pa.string()), ("ts", pa.timestamp("us", "UTC"))])
        if name == "late rows that passed a clock":
            schema = schema.append(pa.field("_change_type", pa.string()))
        frame = empty(spark, schema, tmp_path / "in")

        assert outcome(chained, frame, *chain) == code, name


def follow(frame: DataFrame, make: Any, columns: Any, *right: DataFrame) -> DataFrame:
    return frame.transform(make(columns, *right))


def compared(spark: SparkSession, folder: Any, firsts: list[str]) -> int:
    """Build every pair in both ways, and return how many."""
    count = 0
    for first in firsts:
        of, frame = FIRST[first], first_of(spark, first, folder)
        output = Replay(of.make(), schema_of(first))._stages[-1].output.columns
        columns = given(output)
        assert arrow_schema(frame).names == output.names, first
        for second, make in SECOND.items():
            built = outcome(follow, frame, make, columns)
            assert built == outcome(replayed, first, second, columns), (first, second)
            count += 1
    return count


def test_a_sample_of_pairs_is_refused_alike(spark: SparkSession, tmp_path: Any) -> None:
    assert compared(spark, tmp_path / "in", ["windows.tumbling", "joins.asof"]) > 50


@pytest.mark.exhaustive
@pytest.mark.slow
def test_all_pairs_are_refused_alike(spark: SparkSession, tmp_path: Any) -> None:
    assert compared(spark, tmp_path / "in", [*FIRST]) > 1_000


@pytest.mark.exhaustive
@pytest.mark.slow
def test_joins_follow_every_operator_or_are_refused(spark: SparkSession, tmp_path: Any) -> None:
    found = {}
    right = empty(spark, TABLE, tmp_path / "in")
    for first, (second, make) in itertools.product(FIRST, JOINS.items()):
        frame = first_of(spark, first, tmp_path / "in")
        columns = given(arrow_schema(frame))
        found[first, second] = outcome(follow, frame, make, columns, right)
    assert {*found.values()} <= {"", *REFUSED}
    assert sum(code == "" for code in found.values()) > 60


@pytest.mark.slow
@pytest.mark.parametrize(("first", "second"), SAMPLE)
def test_a_chain_on_spark_is_as_replayed(spark: SparkSession, first: str, second: str) -> None:
    of = FIRST[first]
    columns = given(Replay(of.make(), schema_of(first))._stages[-1].output.columns)
    rows = of.rows()
    batches = [rows[n : n + 4] for n in range(0, len(rows), 4)]
    chain = [of.make().options(shards=2), SECOND[second](columns).options(shards=2)]
    actual = stream(spark, chain, batches, schema=of.schema)
    expected = replay(chain, batches, schema=of.schema)
    assert [row for result in actual for row in result.rows]
    for one, other in zip(actual, expected, strict=True):
        assert_rows(one.rows, other.rows)
