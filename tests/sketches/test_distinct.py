"""Approximate counts of distinct values: running per key, and per window."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from streamops import aggregates, windows
from streamops.spark.operator import Operator
from streamops.testing import assert_rows, at, fold, replay, stream

SCHEMA = pa.schema([("k", pa.string()), ("ts", pa.timestamp("us", "UTC")), ("v", pa.string())])


def running(into: str = "distinct", *, p: int = 12, **parameters: Any) -> Operator:
    """About how many distinct values each key has."""
    agg = {into: aggregates.approx_count_distinct("v", p=p)}
    return windows.running(by="k", agg=agg, **parameters)


def rows(key: str | None, values: range, second: int = 0) -> list[dict[str, Any]]:
    return [{"k": key, "ts": at(second), "v": f"user {i}"} for i in values]


SCRIPT = [
    [*rows("a", range(5)), *rows("b", range(300), 1), {"k": None, "ts": at(2), "v": None}],
    [*rows("a", range(3)), *rows("b", range(100), 30)],  # nobody new
    [],
    [*rows("a", range(4, 60), 61), *rows("b", range(200, 400), 5)],
]


@pytest.mark.parametrize("restart", [False, True])
@pytest.mark.parametrize("shards", [1, 3])
def test_a_key_emits_changed_values(restart: bool, shards: int) -> None:
    emitted = running("users", p=8).options(shards=shards)
    played = replay(emitted, SCRIPT, schema=SCHEMA, restart=restart)
    assert [len(batch.rows) for batch in played] == [3, 0, 0, 2]
    arguments = {(r["k"], r["revision"]): r["users"] for batch in played for r in batch.rows}
    few = {"estimate": 5, "lower": 5, "upper": 5}
    assert arguments["a", 0].items() >= few.items()
    assert arguments[None, 0]["estimate"] == 0
    for key, distinct in ((("b", 0), 300), (("b", 1), 400), (("a", 1), 60)):
        assert arguments[key]["relative_error"] == 1.04 / 16
        assert arguments[key]["lower"] <= distinct <= arguments[key]["upper"]


def test_retracted_results_were_published() -> None:
    emitted = running(changes="retract")
    played = replay(emitted, SCRIPT, schema=SCHEMA)
    folded = fold((row for batch in played for row in batch.rows), key=["k"])
    assert {row["k"]: row["distinct"]["estimate"] for row in folded}.keys() == {"a", "b", None}


@pytest.mark.parametrize("hop", [None, "20 seconds"])
def test_windows_are_corrected_by_late_rows(hop: str | None) -> None:
    given: dict[str, Any] = {
        "by": "k",
        "time": "ts",
        "delay": "0 seconds",
        "allowed_lateness": "1 hour",
        "stragglers": "update",
        "agg": {"distinct": aggregates.approx_count_distinct("v", p=8)},
    }
    window: Any = (
        windows.tumbling("1 minute", **given)
        if hop is None
        else windows.hopping("1 minute", hop, **given)
    )
    played = replay(window, SCRIPT, schema=SCHEMA, flush=True)
    latest = {
        (row["k"], row["window_start"]): row["distinct"] for batch in played for row in batch.rows
    }
    assert latest["a", at(0)]["estimate"] == 5
    both = latest["b", at(0)]  # 300 values, 200 of them again, and 100 new ones from a late row
    assert both["lower"] <= 400 <= both["upper"]


@pytest.mark.spark
@pytest.mark.parametrize("api", ["transformWithStateInPandas", "applyInPandasWithState"])
def test_spark_equals_the_replay_also_after_a_restart(
    spark: SparkSession, tmp_path: Path, api: Any
) -> None:
    emitted = running(p=8).options(shards=2, state_api=api)
    got = [
        batch
        for part in (SCRIPT[:2], SCRIPT[2:])
        for batch in stream(spark, emitted, part, schema=SCHEMA, directory=tmp_path)
    ]
    for ours, theirs in zip(got, replay(emitted, SCRIPT, schema=SCHEMA), strict=True):
        assert_rows(ours.table, theirs.table)
        assert ours.counts == theirs.counts
    flat = [row for batch in SCRIPT for row in batch]
    frame = spark.createDataFrame([(r["k"], r["v"]) for r in flat], "k string, v string")
    batch = frame.transform(running(p=8)).toArrow().to_pylist()
    folded = fold((row for item in got for row in item.rows), key=["k"])
    assert {r["k"]: r["distinct"] for r in batch} == {r["k"]: r["distinct"] for r in folded}
