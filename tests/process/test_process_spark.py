"""What only Spark can show of functions per key and operators of one's own."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streamops import split_side_output
from streamops.errors import SchemaError
from tests.process.functions import quotients, sums, window_totals

pytestmark = pytest.mark.spark


def test_an_exception_of_a_worker_has_the_code_and_no_value(spark: SparkSession) -> None:
    frame = spark.createDataFrame([("secret", 0)], "k string, v long")
    operator = sums(output="n bigint, total string")
    with pytest.raises(Exception, match="VALUE_TYPE") as caught:
        frame.transform(operator).collect()
    assert "secret" not in str(caught.value)


def test_failing_rows_are_split_from_results(spark: SparkSession) -> None:
    rows = [("a", 2), ("a", 0), ("b", 3)]
    frame = spark.createDataFrame(rows, "k string, v long").transform(quotients())
    good, rejected = split_side_output(frame)
    assert {row.quotient for row in good.collect()} == {30, 20}
    (row,) = rejected.collect()
    assert row.reason.startswith("ZeroDivisionError")
    assert row.row.v == 0
    timed = spark.createDataFrame(rows, "k string, v long").withColumn(
        "ts", F.timestamp_seconds("v")
    )
    results, late = split_side_output(
        timed.transform(quotients(time="ts", delay="0 seconds")), time="ts"
    )
    assert results.count() == 2
    assert [row.row.v for row in late.collect()] == [0]


def test_revised_rows_are_refused(spark: SparkSession) -> None:
    frame = spark.readStream.format("rate").load()
    frame = frame.select(
        F.col("timestamp").alias("window_end"),
        F.lit("a").alias("k"),
        F.col("value").alias("n"),
    )
    revision = F.lit(0).alias("revision", metadata={"streamops.revised": True})
    revised = frame.select("*", revision)
    with pytest.raises(SchemaError, match="ROWS_REVISED"):
        revised.transform(window_totals(delay="1 second"))
