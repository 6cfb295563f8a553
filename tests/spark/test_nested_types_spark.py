"""Every operator with nested columns that are never null, and with large Arrow types."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from streamops import joins, sketches
from streamops.spark.columns import spark_schema
from streamops.testing import at
from tests.settings import configured
from tests.spark.test_every_operator import (
    CASES,
    GROUPS,
    NOT_IN_A_BATCH,
    Case,
    check_batch,
    check_stream,
    through,
)

pytestmark = [pytest.mark.spark]

LARGE = "spark.sql.execution.arrow.useLargeVarTypes"


def strict_frame(spark: SparkSession, schema: pa.Schema, name: str) -> DataFrame:
    """Rows without nulls, and with a nested column that has NOT NULL parts."""
    fields = [StructField(f.name, f.dataType, False) for f in spark_schema(schema)]
    row = spark.createDataFrame([], StructType(fields))
    inner = "named_struct('a', 1, 'b', array(named_struct('c', 'x')), 'm', map('y', 2))"
    return row.withColumn(name, F.expr(inner))


@pytest.mark.smoke
@pytest.mark.parametrize("name", [name for name in CASES if name not in NOT_IN_A_BATCH])
def test_nested_columns_that_are_never_null_pass(spark: SparkSession, name: str) -> None:
    """Only the plan is built: Spark refuses a cast to a type with NOT NULL parts there."""
    case = CASES[name]
    frames = [
        strict_frame(spark, schema, f"nested_{side}") for side, schema in enumerate(case.schemas)
    ]
    assert not frames[0].schema["nested_0"].dataType["a"].nullable  # type: ignore[index]
    assert through(case, frames, name).columns


@pytest.mark.smoke
def test_they_pass_with_their_values(spark: SparkSession) -> None:
    rows = [(f"k{n % 2}", at(n), n) for n in range(3)]
    plain = spark.createDataFrame(rows, "k string, ts timestamp, n long")
    inner = "named_struct('a', int(n), 'b', array(named_struct('c', k)), 'm', map('y', int(n)))"
    frame = plain.withColumn("nested", F.expr(inner))
    expected = sorted(row["nested"]["a"] for row in frame.collect())
    seen = sketches.seen("n", capacity=100)
    table = spark.createDataFrame([("k0", 1), ("k1", 2)], "k string, v long")
    for result in (
        frame.transform(seen.options(shards=2)),
        frame.transform(joins.lookup(table, by="k")),
    ):
        found = [row["nested"] for row in result.collect()]
        assert sorted(of["a"] for of in found) == expected
        assert {of["b"][0]["c"] for of in found} == {"k0", "k1"}


@pytest.fixture
def large(spark: SparkSession) -> Iterator[SparkSession]:
    with configured(spark, {LARGE: "true", "spark.sql.shuffle.partitions": "1"}) as session:
        yield session


def in_a_batch() -> dict[str, Case]:
    return {n: c for n, c in CASES.items() if c.has_replay and n not in NOT_IN_A_BATCH}


def test_every_operator_as_a_batch_with_large_types(large: SparkSession) -> None:
    check_batch(large, in_a_batch())


@pytest.mark.parametrize("group", GROUPS)
def test_every_operator_as_a_stream_with_large_types(
    large: SparkSession, tmp_path: Path, group: str
) -> None:
    check_stream(large, GROUPS[group], tmp_path)
