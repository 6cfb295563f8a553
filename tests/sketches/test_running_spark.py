"""Running values of keys on Spark: as replayed, through restarts, in batches, in chains."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streamops import windows
from streamops.testing import assert_rows, at, fold, micro_batches, replay, stream
from tests.sketches.linear import linear_sketch
from tests.sketches.operators import counted, merging

pytestmark = pytest.mark.spark

SCHEMA = pa.schema(
    [("k", pa.string()), ("ts", pa.timestamp("us", "UTC")), ("v", pa.int64())],
)


def row(key: str | None, value: int | None, second: int = 0) -> dict[str, Any]:
    return {"k": key, "ts": at(second), "v": value}


SCRIPT = [
    [row("a", 1), row("b", None), row("a", 2), row(None, 5)],
    [],
    [row("b", None), row("c", 1)],
    [row("a", 2), row("b", 7), row("a", None)],
]


@pytest.mark.parametrize("api", ["transformWithStateInPandas", "applyInPandasWithState"])
def test_a_stream_tells_what_is_replayed_also_after_a_restart(
    spark: SparkSession, tmp_path: Path, api: Any
) -> None:
    counting = counted(by="k", changes="retract", shards=3, state_api=api)
    parts = (SCRIPT[:2], SCRIPT[2:])
    got = [
        each
        for part in parts
        for each in stream(spark, counting, part, schema=SCHEMA, directory=tmp_path)
    ]
    expected = replay(counting, SCRIPT, schema=SCHEMA, restart=True)
    assert [each.batch for each in got] == [0, 1, 2, 3]
    for ours, theirs in zip(got, expected, strict=True):
        assert_rows(ours.table, theirs.table)
        assert (ours.counts, ours.state_rows) == (theirs.counts, theirs.state_rows)
        assert ours.state_bytes == theirs.state_bytes
    assert [each.state_rows for each in got] == [3, 3, 4, 4]
    folded = fold((each for batch in got for each in batch.rows), key=["k"])
    assert {each["k"]: each["n"]["estimate"] for each in folded} == {
        "a": 3,
        "b": 1,
        "c": 1,
        None: 1,
    }
    more = counted(by="k", changes="update", shards=3, state_api=api)
    with pytest.raises(StreamingQueryException) as caught:
        stream(spark, more, [SCRIPT[0]], schema=SCHEMA, directory=tmp_path)
    assert "[STATE_PARAMETERS] sketches.counted" in str(caught.value)


def test_a_batch_says_the_end_of_the_stream_in_the_types_of_its_frame(spark: SparkSession) -> None:
    rows = [(None if r["k"] is None else ord(r["k"]), r["v"]) for b in SCRIPT for r in b]
    frame = spark.createDataFrame(rows, "k int, v long")
    frame = frame.select(F.col("k").alias("k", metadata={"comment": "of a house"}), "v")
    result = frame.transform(counted(by="k"))
    assert result.schema["k"].dataType.simpleString() == "int"
    assert result.schema["k"].metadata == {"comment": "of a house"}
    assert result.columns == ["k", "n", "revision"]
    said = {r["k"]: (r["n"]["estimate"], r["revision"]) for r in result.toArrow().to_pylist()}
    assert said == {97: (3, 0), 98: (1, 0), 99: (1, 0), None: (1, 0)}
    # Two of them meet without a name, and are counted only where there is one.
    assert result.union(frame.transform(counted(by="k", name="counts"))).count() == 8
    with pytest.raises(Exception, match=r"\[KEYS_FULL\] sketches.counted"):
        frame.transform(counted(by="k", max_keys=1, shards=1)).toArrow()


def test_windows_before_and_a_running_value_behind_it(spark: SparkSession, tmp_path: Path) -> None:
    per_minute = windows.tumbling(
        "1 minute", time="ts", by="k", agg={"s": linear_sketch("v")}, delay="0 seconds", shards=2
    )
    script = [
        [row("a", 1, 1), row("a", 2, 30), row("b", 1, 2)],
        [row("a", 3, 61), row("b", None, 65)],
        [row("a", 4, 150)],
    ]
    frame = micro_batches(spark, script, schema=SCHEMA, directory=tmp_path)
    both = frame.transform(per_minute).transform(merging("s", by="k", shards=2))
    kept: list[dict[str, Any]] = []
    query = (
        both.writeStream.outputMode("append")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .foreachBatch(lambda batch, number: kept.extend(batch.toArrow().to_pylist()))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(150)
    told = {(each["k"], each["revision"]): each["n"]["estimate"] for each in kept}
    assert told == {("a", 0): 2, ("b", 0): 1, ("a", 1): 3}
    (newest,) = (each["all"] for each in kept if (each["k"], each["revision"]) == ("a", 1))
    assert newest[:4] == b"SOSK"
    names = {name for progress in query.recentProgress for name in progress.observedMetrics}
    assert names == {"tumbling", "merging"}
