"""Heavy hitters and frequencies on Spark: in windows, stored, asked in a column."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streamops import sketches, windows
from streamops.aggregates import approx_top_k, count_min
from streamops.sketches import count_min_sketch, top_k_sketch_agg
from streamops.testing import at, stream
from tests.docs.test_readme import ROOT, examples

pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    [
        ("k", pa.string()),
        ("ts", pa.timestamp("us", "UTC")),
        ("page", pa.string()),
        ("route", pa.struct([("from", pa.string()), ("to", pa.int64())])),
        ("n", pa.int32()),
    ]
)
PAGES = ["a", "b", "a", "c", None, "a", "b"]


def row(second: int) -> dict[str, Any]:
    page = PAGES[second % 7]
    route = {"from": page, "to": second % 2}
    return {"k": "xy"[second % 2], "ts": at(second), "page": page, "route": route, "n": second % 7}


SCRIPT = [[row(s) for s in range(0, 42)], [row(s) for s in range(42, 60)], [row(200)]]
AGG = {
    "heavy": approx_top_k("page", at_least=0.2),
    "routes": approx_top_k("route", counters=20, top=1),
    "of": count_min("page", of=["b", "z"], weight="n"),
    "h": top_k_sketch_agg("n", counters=9),
    "f": count_min_sketch("page"),
}


def truth(key: str, page: str | None) -> int:
    rows = [item for batch in SCRIPT[:2] for item in batch if item["k"] == key]
    return sum(item["page"] == page for item in rows)


@pytest.mark.parametrize("api", ["transformWithStateInPandas", "applyInPandasWithState"])
def test_windows_tell_and_store_them_and_columns_are_asked(
    spark: SparkSession, tmp_path: Path, api: Any
) -> None:
    transform = windows.tumbling(
        "1 minute",
        time="ts",
        by="k",
        agg=AGG,
        delay="0 seconds",
    ).options(shards=2, state_api=api)
    played = stream(spark, transform, SCRIPT, schema=SCHEMA, directory=tmp_path)
    rows = {item["k"]: item for batch in played for item in batch.rows}
    assert rows.keys() == {"x", "y"}
    for key, item in rows.items():
        assert {i["item"]: (i["lower"], i["upper"]) for i in item["heavy"]["items"]} == {
            page: (truth(key, page),) * 2 for page in "ab"
        }
        assert item["heavy"]["count"] == 30 - truth(key, None)
        (route,) = item["routes"]["items"]
        assert route["item"]["from"] in ("a", "b", None)
        assert [i["item"] for i in item["of"]["items"]] == ["b", "z"]
        assert item["of"]["items"][1]["upper"] == 0
        assert sketches.read(item["f"]).estimate_counts(["a"]) == [(truth(key, "a"),) * 2]  # type: ignore[attr-defined]
    like = count_min_sketch("page", item_type="string")
    numbers = top_k_sketch_agg("n", counters=9, item_type="int")
    frame = spark.createDataFrame(
        [(k, page, item["f"], item["h"]) for k, item in rows.items() for page in ("a", "c", None)],
        "k string, page string, f binary, `h.h` binary",
    )
    requested = frame.select(
        "k",
        "page",
        sketches.estimate_count("f", "page", like=like).alias("pages"),
        sketches.estimate_count("h.h", F.lit(3), like=numbers)["lower"].alias("threes"),
        sketches.estimate_count("h.h", F.lit(3.5), like=numbers).alias("nothing"),
        sketches.estimate_count("h.h", F.lit(3_000_000_000), like=numbers).alias("too_large"),
        sketches.estimate("h.h", like=numbers)["count"].alias("count"),
    )
    assert (
        requested.schema["pages"].dataType.simpleString()
        == "struct<estimate:bigint,lower:bigint,upper:bigint>"
    )
    for found in requested.toArrow().to_pylist():
        page, key = found["page"], found["k"]
        expected = dict.fromkeys(("estimate", "lower", "upper"), truth(key, page))
        assert found["pages"] == (None if page is None else expected)
        assert found["threes"] == truth(key, "c")
        assert (found["nothing"], found["too_large"]) == (None, None)
        assert found["count"] == 30


def test_batches_are_equal_and_can_be_rolled_up(spark: SparkSession) -> None:
    values = [(r["k"], r["ts"], r["page"], r["n"]) for batch in SCRIPT[:2] for r in batch]
    frame = spark.createDataFrame(values, "k string, ts timestamp, page string, n int")
    agg = {"f": count_min_sketch("page", weight="n"), "h": top_k_sketch_agg("page", counters=3)}
    stored = frame.transform(windows.tumbling("10 seconds", time="ts", by="k", agg=agg))
    like = {"item_type": "string"}
    day = {
        "f": sketches.merge("f", like=count_min("page", of=["a", "b"], weight="n", **like)),
        "h": sketches.merge("h", like=approx_top_k("page", counters=3, top=1, **like)),
    }
    merged = stored.transform(windows.tumbling("1 day", time="window_start", agg=day))
    (found,) = merged.toArrow().to_pylist()
    weights = {page: 0 for page in "ab"}
    for _, _, page, n in values:
        if page in weights:
            weights[page] += n
    assert {i["item"]: i["upper"] for i in found["f"]["items"]} == weights
    (most,) = found["h"]["items"]
    assert (most["item"], most["lower"]) == ("a", truth("x", "a") + truth("y", "a"))


@pytest.mark.parametrize("api", ["transformWithStateInPandas", "applyInPandasWithState"])
def test_per_key_changes_are_emitted_also_after_a_restart(
    spark: SparkSession, tmp_path: Path, api: Any
) -> None:
    agg = {"heavy_hitters": approx_top_k("page", at_least=0.2, top=1)}
    operator = windows.running(by="k", agg=agg).options(shards=2, state_api=api)
    played = [
        batch
        for script in (SCRIPT[:1], SCRIPT[1:2])
        for batch in stream(spark, operator, script, schema=SCHEMA, directory=tmp_path)
    ]
    emitted = {item["k"]: item for batch in played for item in batch.rows}
    assert {key: item["revision"] for key, item in emitted.items()} == {"x": 1, "y": 1}
    for key, item in emitted.items():
        (most,) = item["heavy_hitters"]["items"]
        assert (most["item"], most["upper"]) == ("a", truth(key, "a"))


def test_sketches_of_spark_are_read_and_written(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(f"w{i * i % 7}",) for i in range(100)], "w string")
    like = top_k_sketch_agg("w", counters=20, item_type="string")
    theirs = frame.agg(F.expr("approx_top_k_accumulate(w, 100)").alias("s"))
    # Behind the image Spark counts nulls.
    image = theirs.select(F.expr("substring(s.sketch, 1, length(s.sketch) - 8)").alias("image"))
    back = image.select(sketches.from_datasketches("image", like=like).alias("ours")).select(
        sketches.estimate("ours", like=like).alias("said"),
        sketches.to_datasketches("ours", like=like).alias("image"),
    )
    (row,) = back.toArrow().to_pylist()
    emitted = {item["item"]: (item["lower"], item["upper"]) for item in row["said"]["items"]}
    assert emitted == {f"w{m}": (n, n) for m, n in {0: 15, 1: 29, 2: 28, 4: 28}.items()}
    value = sketches.StoredCounts.from_datasketches(row["image"], counters=20)
    assert value.estimate() == row["said"]
    assert value.to_datasketches() == row["image"]


def test_the_example_of_the_document_runs(spark: SparkSession) -> None:
    (example,) = (
        item
        for item in examples(ROOT / "docs" / "sketches.md")
        if item.spark and "estimate_count" in item.source
    )
    namespace: dict[str, Any] = {"spark": spark, "sketches": sketches, "windows": windows}
    example.run(namespace)
    assert namespace["asked"].toArrow().column(0).to_pylist() == [3]
