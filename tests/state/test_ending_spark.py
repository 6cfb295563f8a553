"""The end of a bounded stream: what is pending in a checkpoint, and how it is published once."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from streamops import aggregates as agg
from streamops import sinks, sketches, state, windows
from streamops.errors import CheckpointError, StateFormatError
from streamops.testing import at, micro_batches

pytestmark = pytest.mark.spark

COMMON: dict[str, Any] = {
    "time": "ts",
    "by": "k",
    "agg": {"n": agg.count(), "v": agg.sum("v")},
    "delay": "5 seconds",
}
OPERATORS = {
    "tumbling": windows.tumbling("10 seconds", **COMMON),
    "session": windows.session("7 seconds", **COMMON),
    "retract": windows.tumbling(
        "10 seconds", **COMMON, stragglers="retract", allowed_lateness="1 minute"
    ),
}


def script(batches: int = 4) -> list[list[dict[str, Any]]]:
    draw = random.Random(3)
    return [
        [
            {"k": draw.choice("abcdef"), "ts": at(8 * batch + draw.randrange(12)), "v": number}
            for number in range(40)
        ]
        for batch in range(batches)
    ]


def run(frame: DataFrame, folder: Path) -> None:
    sink = sinks.parquet(str(folder / "output"))
    query = frame.writeStream.foreachBatch(sink).trigger(availableNow=True)
    query.outputMode("append").option(
        "checkpointLocation", str(folder / "checkpoint")
    ).start().awaitTermination()


def written(spark: SparkSession, folder: Path, columns: list[str]) -> list[tuple[Any, ...]]:
    rows = sinks.read_parquet(str(folder / "output"), spark=spark).select(*columns)
    return sorted(map(tuple, rows.collect()), key=repr)


def publish(rest: DataFrame, folder: Path) -> None:
    end = sinks.parquet(str(folder / "output"), new_checkpoint="continue")
    end.write(rest, query="the end")


@pytest.mark.parametrize("api", ["applyInPandasWithState", "transformWithStateInPandas"])
@pytest.mark.parametrize("name", ["tumbling", "session"])
def test_what_a_stream_emitted_and_what_is_pending_is_the_batch_result(
    spark: SparkSession, tmp_path: Path, name: str, api: str
) -> None:
    operator = OPERATORS[name].options(state_api=api)
    stream = micro_batches(spark, script(), directory=tmp_path, source="files")
    run(stream.transform(operator), tmp_path)
    batch = spark.createDataFrame([row for rows in script() for row in rows])
    expected = sorted(map(tuple, batch.transform(OPERATORS[name]).collect()), key=repr)
    columns = stream.transform(operator).columns
    before = written(spark, tmp_path, columns)
    rest = state.pending(tmp_path / "checkpoint", operator, stream)
    assert rest.dtypes == stream.transform(operator).dtypes
    assert len(before) < len(expected)
    assert before or name == "session"  # the sessions of this script are open at its end
    for _ in range(2):  # the second one is skipped
        publish(rest, tmp_path)
        assert written(spark, tmp_path, columns) == expected


def test_a_query_whose_end_was_published_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    operator = OPERATORS["tumbling"]
    stream = micro_batches(spark, script(), directory=tmp_path, source="files")
    run(stream.transform(operator), tmp_path)
    publish(state.pending(tmp_path / "checkpoint", operator, stream), tmp_path)
    before = written(spark, tmp_path, ["k", "n"])
    more = micro_batches(spark, script(6)[4:], directory=tmp_path, source="files")
    with pytest.raises(
        StreamingQueryException, match=r"\[FENCED\]|\[NEW_CHECKPOINT\]|\[CHECKPOINT_BEHIND\]"
    ):
        run(more.transform(operator), tmp_path)
    assert written(spark, tmp_path, ["k", "n"]) == before


def test_other_parameters_and_operators_without_results_are_refused(
    spark: SparkSession, tmp_path: Path
) -> None:
    stream = micro_batches(spark, script(), directory=tmp_path, source="files")
    run(stream.transform(OPERATORS["tumbling"]), tmp_path)
    checkpoint = tmp_path / "checkpoint"
    other = windows.tumbling("20 seconds", **COMMON)
    with pytest.raises(Exception, match=r"\[STATE_PARAMETERS\]"):
        state.pending(checkpoint, other, stream).collect()
    with pytest.raises(Exception, match=r"\[STATE_SHARDS\]"):
        state.pending(checkpoint, OPERATORS["tumbling"].options(shards=3), stream).collect()
    with pytest.raises(CheckpointError, match=r"\[UNKNOWN_OPERATOR\] "):
        state.pending(checkpoint, OPERATORS["session"], stream)
    with pytest.raises((CheckpointError, StateFormatError), match=r"\[CHECKPOINT_UNSUPPORTED\]"):
        state.pending(checkpoint, sketches.seen("v", time="ts", capacity=10), stream)
