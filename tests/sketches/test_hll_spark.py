"""HyperLogLog on Spark: its own sketches and ours are each made of the other."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streamops import sketches, windows
from streamops.aggregates import approx_count_distinct
from streamops.sketches import hll_sketch_agg
from tests.docs.test_readme import ROOT, examples

pytestmark = pytest.mark.spark

P = 9
SIZES = {"few": 5, "some": 40, "many": 3000}


def test_sketches_of_spark_are_identical_to_the_bit(spark: SparkSession) -> None:
    rows = [(k, f"user {i}") for k, size in SIZES.items() for i in range(size)]
    rows += [("few", None), ("none", None), *rows[:7]]
    frame = spark.createDataFrame(rows, "k string, `a user` string")
    frame = frame.withColumn("ts", F.timestamp_seconds(F.lit(0)))
    like = hll_sketch_agg("a user", p=P)
    agg = {"ours": like, "n": approx_count_distinct("a user", p=P)}
    ours = frame.transform(windows.tumbling("1 day", time="ts", by="k", agg=agg))
    theirs = frame.groupBy("k").agg(
        like.to_spark().alias("theirs"),
        approx_count_distinct("a user", p=P).to_spark().alias("told"),
        F.hll_sketch_agg(F.xxhash64("a user"), P).alias("with null"),
    )
    image = sketches.to_datasketches("ours", like=like)
    found = (
        ours.join(theirs, "k")
        .withColumn("image", image)
        .withColumn("united", F.hll_union("image", "theirs"))
        .withColumn("estimate", F.hll_sketch_estimate("image"))
        .withColumn("estimate united", F.hll_sketch_estimate("united"))
        .withColumn("back", sketches.from_datasketches("theirs", like=like))
        .withColumn("again", sketches.from_datasketches("united", like=like))
        .withColumn("nulls", sketches.from_datasketches("with null", like=like))
    )
    arguments = {row["k"]: row for row in found.toArrow().to_pylist()}
    assert arguments.keys() == {*SIZES, "none"}
    for k, row in arguments.items():
        size = SIZES.get(k, 0)
        assert row["ours"] == row["back"] == row["again"]
        assert row["estimate"] == row["estimate united"]
        for estimate in (row["n"]["estimate"], row["estimate"], row["told"]):
            assert abs(estimate - size) <= 3 * 1.04 / 2 ** (P / 2) * size
        extra = sketches.read(row["nulls"]).estimate()["estimate"] - row["n"]["estimate"]
        assert extra == (k in ("few", "none"))


def test_columns_of_images_may_have_nulls_and_errors_name_the_column(spark: SparkSession) -> None:
    like = hll_sketch_agg("v", p=P)
    frame = spark.createDataFrame([("a", None), ("b", b"nonsense")], "k string, `s.x` binary")
    back, out = (
        function("s.x", like=like).alias("said")
        for function in (sketches.from_datasketches, sketches.to_datasketches)
    )
    none: Any = frame.where("k = 'a'").select(back, out.alias("out"))
    assert none.toArrow().to_pylist() == [{"said": None, "out": None}]
    assert [field.type for field in none.toArrow().schema] == [pa.binary()] * 2
    with pytest.raises(PythonException) as caught:
        frame.select(back).toArrow()
    location = "sketches.from_datasketches('s.x', like=hll_sketch_agg('v', p=9))"
    assert f"[SKETCH_CORRUPT] {location}: this sketch is damaged" in str(caught.value)


def test_the_example_of_the_document_prints_what_it_shows(spark: SparkSession) -> None:
    (example,) = (
        item
        for item in examples(ROOT / "docs" / "sketches.md")
        if item.spark and "hll_sketch_agg" in item.source
    )
    assert example.run({"spark": spark}) == example.output
