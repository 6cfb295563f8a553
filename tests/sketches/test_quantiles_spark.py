"""Quantiles on Spark: by windows on streams, and the same sketches by Spark's own functions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streamops import aggregates, sketches, windows
from streamops.errors import SketchFormatError
from streamops.testing import assert_rows, at, replay, stream
from tests.docs.test_readme import ROOT, examples

pytestmark = pytest.mark.spark

SHARDS = 2
SCHEMA = pa.schema(
    [("k", pa.string()), ("ts", pa.timestamp("us", "UTC")), ("ms", pa.float64())],
)
RNG = np.random.default_rng(11)
MANY = [
    {"k": "ab"[i % 2], "ts": at(int(RNG.integers(60))), "ms": float(item)}
    for i, item in enumerate(RNG.lognormal(4, 1, 2_000))
]
SCRIPT = [
    MANY[:900],
    [*MANY[900:], {"k": "c", "ts": at(59), "ms": None}],
    [],
    [MANY[0] | {"ts": at(150)}],
]
SHARES = [0.1, 0.5, 0.99]
AGG = {"ms": aggregates.approx_percentile("ms", SHARES), "s": sketches.kll_sketch_agg("ms")}


def per_minute(**arguments: Any) -> Any:
    given: dict[str, Any] = {
        "by": "k",
        "time": "ts",
        "delay": "1 minute",
    }
    return windows.tumbling("1 minute", agg=AGG, **(given | arguments)).options(shards=SHARDS)


@pytest.mark.parametrize("api", ["transformWithStateInPandas", "applyInPandasWithState"])
def test_windows_on_a_stream_that_was_restarted_have_quantiles_within_the_stated_error(
    spark: SparkSession, tmp_path: Path, api: Any
) -> None:
    given: dict[str, Any] = {"schema": SCHEMA, "directory": tmp_path}
    minutes = per_minute().options(state_api=api)
    played = [
        item for part in (SCRIPT[:1], SCRIPT[1:]) for item in stream(spark, minutes, part, **given)
    ]
    rows = {row["k"]: row for batch in played for row in batch.rows}
    assert rows.keys() == {"a", "b", "c"}
    assert rows["c"]["ms"]["estimate"] is None
    assert sketches.read(rows["c"]["s"]).estimate()["count"] == 0
    for k in "ab":
        arguments, mine = rows[k]["ms"], np.sort([row["ms"] for row in MANY if row["k"] == k])
        assert arguments["count"] == 1_000
        assert arguments == sketches.read(rows[k]["s"]).quantiles(SHARES)  # type: ignore[attr-defined]
        for share, value in zip(SHARES, arguments["estimate"], strict=True):
            rank = np.searchsorted(mine, value, "right") / 1_000
            assert abs(rank - share) <= arguments["rank_error"] + 0.001


def test_batches_compute_the_same_sketches_as_spark(
    spark: SparkSession,
) -> None:
    rows = [(row["k"], row["ts"], row["ms"]) for row in MANY]
    frame = spark.createDataFrame(rows, "k string, ts timestamp, ms double").repartition(3)
    minutes = frame.transform(per_minute(delay=None))
    assert minutes.schema["ms"].dataType.simpleString() == (
        "struct<estimate:array<double>,lower:array<double>,upper:array<double>,"
        "rank_error:double,count:bigint>"
    )
    requested = sketches.estimate("s", like=aggregates.approx_percentile("any", SHARES))
    ours = (
        minutes.select("k", "ms", "s", requested.alias("again")).orderBy("k").toArrow().to_pylist()
    )
    assert [row["k"] for row in ours] == ["a", "b"]
    assert all(row["ms"] == row["again"] for row in ours)

    like = sketches.kll_sketch_agg("ms")
    images = sketches.to_datasketches("s", like=like)
    given = minutes.orderBy("k").select(images.alias("s"))
    ranks = F.array(*map(F.lit, SHARES))
    theirs = given.select(
        F.kll_sketch_get_quantile_double("s", ranks).alias("quantiles"),
        F.kll_sketch_get_n_double("s").alias("count"),
    ).collect()
    for row, read in zip(ours, theirs, strict=True):
        assert (read["quantiles"], read["count"]) == (row["ms"]["estimate"], row["ms"]["count"])
    (union,) = given.agg(F.kll_merge_agg_double("s").alias("s")).collect()
    both = sketches.StoredKll.from_datasketches(bytes(union["s"]))
    assert both.count == 2_000

    mine = np.sort([row["ms"] for row in MANY])
    spoken = frame.agg(
        like.to_spark().alias("sketch"),
        aggregates.approx_percentile("ms", SHARES).to_spark().alias("quantiles"),
    )
    whole = frame.agg(
        F.kll_sketch_agg_bigint(F.ceil("ms")).alias("bigint"),
        F.kll_sketch_agg_float(F.ceil("ms").cast("float")).alias("float"),
    )
    (images,) = whole.collect()
    read = [
        sketches.StoredKll.from_datasketches(bytes(images[n]), dtype=n) for n in images.asDict()
    ]
    assert [of.count for of in read] == [2_000, 2_000]
    greatest = np.ceil([row["ms"] for row in MANY]).max()
    assert [of.quantile(1) for of in read] == [greatest, greatest]
    for name in images.asDict():
        with pytest.raises(SketchFormatError):
            sketches.StoredKll.from_datasketches(bytes(images[name]))
    column = sketches.from_datasketches("bigint", like=like, dtype="bigint").alias("sketch")
    stored = spark.createDataFrame([(images["bigint"],)], "bigint binary")
    (of_column,) = stored.select(column).collect()
    assert sketches.read(of_column["sketch"]) == read[0]
    adopted = sketches.from_datasketches("sketch", like=like).alias("sketch")
    (arguments,) = spoken.select("quantiles", adopted).collect()
    taken = sketches.read(arguments["sketch"]).quantiles(SHARES)  # type: ignore[attr-defined]
    assert taken["count"] == 2_000
    found = [*arguments["quantiles"], *taken["estimate"]]
    for share, value in zip([*SHARES, *SHARES], found, strict=True):
        assert abs(np.searchsorted(mine, value, "right") / 2_000 - share) < 0.0133 + 0.001


def test_running_quantiles_of_a_stream_are_those_that_are_replayed(
    spark: SparkSession, tmp_path: Path
) -> None:
    agg = {"quantiles": aggregates.approx_percentile("ms", SHARES)}
    running = windows.running(by="k", agg=agg, changes="retract").options(shards=3)
    script = [MANY[:150], [], [*MANY[150:300], {"k": None, "ts": at(0), "ms": None}]]
    given: dict[str, Any] = {"schema": SCHEMA, "directory": tmp_path}
    got = [
        item for part in (script[:1], script[1:]) for item in stream(spark, running, part, **given)
    ]
    expected = replay(running, script, schema=SCHEMA, restart=True)
    for ours, theirs in zip(got, expected, strict=True):
        assert_rows(ours.table, theirs.table)
        assert ours.counts == theirs.counts
    assert {row["revision"] for row in got[-1].rows} == {0, 1}


def test_the_example_of_the_document_prints_what_it_shows(spark: SparkSession) -> None:
    (example,) = (
        item
        for item in examples(ROOT / "docs" / "sketches.md")
        if item.spark and "kll_sketch_agg_double" in item.source
    )
    assert example.run({"spark": spark, "sketches": sketches, "agg": aggregates}) == example.output
