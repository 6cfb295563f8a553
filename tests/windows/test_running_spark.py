"""Running aggregates on Spark: as replayed, through restarts, in batches, in chains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streamops import aggregates as agg
from streamops import windows
from streamops.kernel.errors import SchemaError
from streamops.testing import assert_rows, at, fold, micro_batches, replay, stream
from tests.sketches.linear import linear_sketch
from tests.windows.running_operators import running_count, running_merge

pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    [("k", pa.string()), ("ts", pa.timestamp("us", "UTC")), ("v", pa.int64())],
)


def row(key: str | None, value: int | None, second: int = 0) -> dict[str, Any]:
    return {"k": key, "ts": at(second), "v": value}


EXACT = {
    "rows": agg.count(),
    "sum": agg.sum("v"),
    "mean": agg.mean("v"),
    "least": agg.min("v"),
    "distinct": agg.count_distinct("v", at_most=10),
    "median": agg.percentile("v", 0.5, at_most=10),
    "latest": agg.top(2, "v", ranked_by="ts", tie_break="v"),
    "users": agg.approx_count_distinct("v"),
}

SCRIPT = [
    [row("a", 1), row("b", None), row("a", 2), row(None, 5)],
    [],
    [row("b", None), row("c", 1)],
    [row("a", 2), row("b", 7), row("a", None)],
]


@pytest.mark.parametrize("api", ["transformWithStateInPandas", "applyInPandasWithState"])
def test_a_stream_emits_what_is_replayed_also_after_a_restart(
    spark: SparkSession, tmp_path: Path, api: Any
) -> None:
    counting = running_count(by="k", changes="retract").options(shards=3, state_api=api)
    parts = (SCRIPT[:2], SCRIPT[2:])
    got = [
        item
        for part in parts
        for item in stream(spark, counting, part, schema=SCHEMA, directory=tmp_path)
    ]
    expected = replay(counting, SCRIPT, schema=SCHEMA, restart=True)
    assert [item.batch for item in got] == [0, 1, 2, 3]
    for ours, theirs in zip(got, expected, strict=True):
        assert_rows(ours.table, theirs.table)
        assert (ours.counts, ours.state_rows) == (theirs.counts, theirs.state_rows)
        assert ours.state_bytes == theirs.state_bytes
    assert [item.state_rows for item in got] == [3, 3, 4, 4]
    folded = fold((item for batch in got for item in batch.rows), key=["k"])
    assert {item["k"]: item["n"]["estimate"] for item in folded} == {
        "a": 3,
        "b": 1,
        "c": 1,
        None: 1,
    }
    more = running_count(by="v", changes="retract").options(shards=3, state_api=api)
    with pytest.raises(StreamingQueryException) as caught:
        stream(spark, more, [SCRIPT[0]], schema=SCHEMA, directory=tmp_path)
    assert "[STATE_PARAMETERS] windows.running" in str(caught.value)


def test_a_batch_has_the_final_values_in_the_types_of_its_frame(spark: SparkSession) -> None:
    rows = [(None if r["k"] is None else ord(r["k"]), r["v"]) for b in SCRIPT for r in b]
    frame = spark.createDataFrame(rows, "k int, v long")
    frame = frame.select(F.col("k").alias("k", metadata={"comment": "of a house"}), "v")
    result = frame.transform(running_count(by="k"))
    assert result.schema["k"].dataType.simpleString() == "int"
    assert result.schema["k"].metadata == {"comment": "of a house"}
    assert result.columns == ["k", "n", "revision"]
    arguments = {r["k"]: (r["n"]["estimate"], r["revision"]) for r in result.toArrow().to_pylist()}
    assert arguments == {97: (3, 0), 98: (1, 0), 99: (1, 0), None: (1, 0)}
    # Two operators without a name; metrics are observed only for one with a name.
    assert result.union(frame.transform(running_count(by="k").options(name="counts"))).count() == 8
    with pytest.raises(Exception, match=r"\[STATE_FULL\] windows.running"):
        frame.transform(running_count(by="k", max_keys=1).options(shards=1)).toArrow()


def test_a_running_aggregate_reads_the_results_of_windows(
    spark: SparkSession, tmp_path: Path
) -> None:
    per_minute = windows.tumbling(
        "1 minute",
        time="ts",
        by="k",
        agg={"s": linear_sketch("v")},
        delay="0 seconds",
    ).options(shards=2)
    script = [
        [row("a", 1, 1), row("a", 2, 30), row("b", 1, 2)],
        [row("a", 3, 61), row("b", None, 65)],
        [row("a", 4, 150)],
    ]
    frame = micro_batches(spark, script, schema=SCHEMA, directory=tmp_path)
    both = frame.transform(per_minute).transform(running_merge("s", by="k").options(shards=2))
    stored_items: list[dict[str, Any]] = []
    query = (
        both.writeStream.outputMode("append")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .foreachBatch(lambda batch, number: stored_items.extend(batch.toArrow().to_pylist()))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(150)
    emitted = {(item["k"], item["revision"]): item["n"]["estimate"] for item in stored_items}
    assert emitted == {("a", 0): 2, ("b", 0): 1, ("a", 1): 3}
    (newest,) = (item["all"] for item in stored_items if (item["k"], item["revision"]) == ("a", 1))
    assert newest[:4] == b"SOPS"
    names = {name for progress in query.recentProgress for name in progress.observedMetrics}
    assert names == {"tumbling", "running"}


@pytest.mark.parametrize("api", ["transformWithStateInPandas", "applyInPandasWithState"])
def test_exact_aggregates_of_a_stream_are_those_of_a_batch_also_after_a_restart(
    spark: SparkSession, tmp_path: Path, api: Any
) -> None:
    totals = windows.running(by="k", agg=EXACT).options(shards=2, state_api=api)
    streamed = [
        item
        for part in (SCRIPT[:2], SCRIPT[2:])
        for item in stream(spark, totals, part, schema=SCHEMA, directory=tmp_path)
    ]
    for ours, theirs in zip(streamed, replay(totals, SCRIPT, schema=SCHEMA), strict=True):
        assert_rows(ours.table, theirs.table)
        assert ours.counts == theirs.counts
    final = {row["k"]: row for item in streamed for row in item.rows}
    assert {key: row["revision"] for key, row in final.items()} == {None: 0, "a": 1, "b": 2, "c": 0}
    rows = [tuple(row.values()) for batch in SCRIPT for row in batch]
    frame = spark.createDataFrame(rows, "k string, ts timestamp, v bigint")
    batch = frame.transform(windows.running(by="k", agg=EXACT)).toArrow().to_pylist()
    assert_rows(
        [{**row, "revision": 0} for row in final.values()],
        batch,
    )


def test_a_change_stream_is_refused_and_the_remedy_is_named(
    spark: SparkSession,
) -> None:
    changes = spark.createDataFrame([("a", 1, "insert")], "k string, v long, _change_type string")
    with pytest.raises(SchemaError) as caught:
        changes.transform(windows.running(by="k", agg={"n": agg.count()}))
    assert caught.value.code == "CHANGE_STREAM_INPUT"
    assert "changes.aggregate" in caught.value.fix
