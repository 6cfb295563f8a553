"""Sketches on Spark: stored by windows, rolled up, asked in a column."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streamops import sketches, windows
from streamops.testing import at, stream
from tests.sketches.linear import count_items, linear_sketch

pytestmark = pytest.mark.spark

SHARDS = 2
SCHEMA = pa.schema(
    [("k", pa.string()), ("ts", pa.timestamp("us", "UTC")), ("v", pa.int64())],
)
SCRIPT = [
    [{"k": "a", "ts": at(second), "v": second % 7} for second in range(0, 50, 3)],
    [{"k": "b", "ts": at(61), "v": None}, {"k": "a", "ts": at(62), "v": 1}],
    [{"k": None, "ts": at(200), "v": 3}],
]
AGG = {"n": count_items("v"), "s": linear_sketch("v")}


def per_minute(agg: Any, **arguments: Any) -> Any:
    given: dict[str, Any] = {
        "by": "k",
        "time": "ts",
        "delay": "0 seconds",
    }
    return windows.tumbling("1 minute", agg=agg, **(given | arguments)).options(shards=SHARDS)


@pytest.mark.parametrize("api", ["transformWithStateInPandas", "applyInPandasWithState"])
def test_windows_store_sketches_and_larger_windows_merge_them(
    spark: SparkSession, tmp_path: Path, api: Any
) -> None:
    played = stream(
        spark, per_minute(AGG).options(state_api=api), SCRIPT, schema=SCHEMA, directory=tmp_path
    )
    rows = [row for batch in played for row in batch.rows]
    assert {(r["k"], r["window_start"]): r["n"]["estimate"] for r in rows} == {
        ("a", at(0)): 17,
        ("a", at(60)): 1,
        ("b", at(60)): 0,
    }
    assert all(row["s"][:4] == b"SOPS" for row in rows)
    schema = "k string, window_start timestamp, s binary"
    stored = spark.createDataFrame([(r["k"], r["window_start"], r["s"]) for r in rows], schema)
    requested = stored.select("k", sketches.estimate("s", like=linear_sketch("v"))["estimate"])
    assert sorted(requested.toArrow().column(1).to_pylist()) == [0, 1, 17]
    hourly = windows.tumbling(
        "1 hour",
        time="window_start",
        by="k",
        agg={"s": sketches.merge("s", like=linear_sketch("v"))},
    )
    merged = stored.transform(hourly).select("k", "s").toArrow().to_pylist()
    frame = spark.createDataFrame(
        [(r["k"], r["ts"], r["v"]) for batch in SCRIPT[:2] for r in batch],
        "k string, ts timestamp, v long",
    )
    whole = per_minute({"s": AGG["s"]}, delay=None).options(shards=1)
    direct = frame.withColumn("ts", F.date_trunc("hour", "ts")).transform(whole)
    expected = direct.select("k", "s").toArrow().to_pylist()
    assert sorted(merged, key=str) == sorted(expected, key=str)


def test_sketches_of_a_column_are_queried_and_errors_name_the_row(spark: SparkSession) -> None:
    frame = spark.createDataFrame([("a", None), ("b", b"nonsense")], "k string, `s.x` binary")
    question = sketches.estimate("s.x", like=count_items("v")).alias("said")
    none = frame.where("k = 'a'").select("k", question)
    assert none.schema["said"].dataType.simpleString() == (
        "struct<estimate:bigint,lower:bigint,upper:bigint>"
    )
    assert none.toArrow().to_pylist() == [{"k": "a", "said": None}]
    with pytest.raises(PythonException) as caught:
        frame.select(question).toArrow()
    assert "[SKETCH_CORRUPT] sketches.estimate('s.x', like=count_items('v', cells=4))" in str(
        caught.value
    )
