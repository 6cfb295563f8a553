"""Checkpoints with segments: written, read, rewritten, and continued from one without any, on Spark."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession
from pyspark.sql.streaming.stateful_processor import StatefulProcessorHandle

from streamops import sketches, state
from streamops.kernel import segments
from streamops.spark import shard_processor
from streamops.spark.shard_processor import ShardProcessor
from streamops.spark.state_rows import SEGMENTS, STATE_SCHEMA
from streamops.state.checkpoint import Checkpoint
from streamops.state.stores import read_segments
from streamops.testing import micro_batches
from tests.state.test_rescale_spark import (
    GROUPS,
    VARIABLES,
    WINDOWS,
    rescaled,
    run,
    uninterrupted,
)

pytestmark = pytest.mark.spark

OPERATOR = WINDOWS.options(state_api=VARIABLES, shards=4)


@pytest.fixture(autouse=True)
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each shard has segments, except those of three panes and fewer."""
    monkeypatch.setattr(segments, "LIMIT", 3)


def count_segments(spark: SparkSession, checkpoint: Path) -> int:
    found = read_segments(spark, str(checkpoint), 0, None)
    return 0 if found is None else found.count()


def counts(spark: SparkSession, checkpoint: Path) -> Counter[Any]:
    """Rows by key and pane, from the state."""
    found: Counter[Any] = Counter()
    for row in state.read(checkpoint, 0, spark=spark).collect():
        for pane in row["panes"]:
            found[row["k"], pane["pane"]] += pane["n.count"]
    return found


@pytest.mark.smoke
def test_a_query_continues_with_its_segments(spark: SparkSession, tmp_path: Path) -> None:
    source, folder = tmp_path / "source", tmp_path / "query"
    found = run(spark, OPERATOR, source, folder, 0)
    checkpoint = folder / "checkpoint"
    assert count_segments(spark, checkpoint) > 4
    (report,) = state.describe(checkpoint, spark=spark).operators
    assert (report.version, report.segments > 0) == (1, True)
    assert f"{report.segments} B" in str(state.describe(checkpoint, spark=spark))
    assert not state.describe(checkpoint, spark=spark).hints
    found += run(spark, OPERATOR, source, folder, 1)
    found += run(spark, OPERATOR, source, folder, 2)
    assert found == uninterrupted()


def test_segments_are_read_with_the_panes(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(spark, OPERATOR, tmp_path / "source", tmp_path / "segmented", 0)
    monkeypatch.setattr(segments, "LIMIT", 1_000)
    run(spark, OPERATOR, tmp_path / "source2", tmp_path / "together", 0)
    segmented, together = (
        counts(spark, tmp_path / n / "checkpoint") for n in ("segmented", "together")
    )
    assert count_segments(spark, tmp_path / "together" / "checkpoint") == 0
    watermark = (
        state.describe(tmp_path / "segmented" / "checkpoint", spark=spark).operators[0].watermark
    )
    assert watermark is not None
    # Closed panes may be stored until all windows of their segment are closed.
    closed = int(watermark.timestamp() * 1_000_000) - 10_000_000
    assert {k: n for k, n in segmented.items() if k[1] > closed} == dict(together)


def test_a_query_with_segments_continues_on_other_numbers_of_shards(
    spark: SparkSession, tmp_path: Path
) -> None:
    assert rescaled(spark, tmp_path, VARIABLES) == uninterrupted()
    for number in range(3):
        assert count_segments(spark, tmp_path / str(number) / "checkpoint")


def test_a_checkpoint_of_a_release_without_segments_continues(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, folder = tmp_path / "source", tmp_path / "query"

    class Before(ShardProcessor):  # defined here, so that workers receive it as it is
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.handle, self.store = handle, None
            self.stored = handle.getValueState("stored", STATE_SCHEMA)

    with monkeypatch.context() as patched:
        patched.setattr(shard_processor, "ShardProcessor", Before)
        found = run(spark, OPERATOR, source, folder, 0)
    (operator,) = Checkpoint(folder / "checkpoint").operators
    assert SEGMENTS not in operator.variables
    found += run(spark, OPERATOR, source, folder, 1)
    assert count_segments(spark, folder / "checkpoint") > 0
    found += run(spark, OPERATOR, source, folder, 2)
    assert found == uninterrupted()


def test_filters_continue_from_a_release_without_segments_and_on_other_shards(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = pa.schema([("k", pa.int64())])

    def new_keys(checkpoint: Path, keys: range, shards: int) -> list[int]:
        batches = [[{"k": key} for key in keys], [{"k": key} for key in keys]]
        frame = micro_batches(spark, batches, schema=schema, directory=tmp_path)
        operator = sketches.seen("k", capacity=1_000, false_positive_rate=1e-9)
        result = frame.transform(operator.options(state_api=VARIABLES, shards=shards))
        rows: list[int] = []
        query = (
            result.writeStream.foreachBatch(lambda of, _: rows.extend(r.k for r in of.collect()))
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(200)
        return sorted(rows)

    class Before(ShardProcessor):  # defined here, so that workers receive it as it is
        def init(self, handle: StatefulProcessorHandle) -> None:
            self.handle, self.store = handle, None
            self.stored = handle.getValueState("stored", STATE_SCHEMA)

    one, other = tmp_path / "one", tmp_path / "other"
    with monkeypatch.context() as patched:
        patched.setattr(shard_processor, "ShardProcessor", Before)
        assert new_keys(one, range(20), 2) == [*range(20)]
    assert SEGMENTS not in Checkpoint(one).operators[0].variables
    assert new_keys(one, range(10, 30), 2) == [*range(20, 30)]
    assert count_segments(spark, one) > 0
    state.rescale(one, other, shards=3, spark=spark)
    assert count_segments(spark, other) == 0
    assert new_keys(other, range(35), 3) == [*range(30, 35)]
    assert count_segments(spark, other) > 0
    assert new_keys(other, range(36), 3) == [35]


def test_groups_have_no_segments(spark: SparkSession, tmp_path: Path) -> None:
    operator = OPERATOR.options(state_api=GROUPS)
    found = run(spark, operator, tmp_path / "source", tmp_path / "query", 0)
    (report,) = state.describe(tmp_path / "query" / "checkpoint", spark=spark).operators
    assert (report.version, report.segments) == (1, 0)
    assert found == uninterrupted()[: len(found)]
