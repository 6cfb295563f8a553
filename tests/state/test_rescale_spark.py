"""A checkpoint is rewritten for another number of shards, and its query continues with equal results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyspark
import pytest
from pyspark.sql import SparkSession

from streamops import aggregates as agg
from streamops import state, windows
from streamops.environment.requirements import numbers
from streamops.state.checkpoint import MARKER, Checkpoint
from streamops.state.stores import TESTED
from streamops.testing import Replay, micro_batches
from streamops.testing.batches import to_table
from streamops.testing.streaming import run_query
from tests.state.histories import EVENT, events

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(
        numbers(pyspark.__version__)[:2] not in TESTED,
        reason="Spark that is refused: VERSION_NOT_SUPPORTED",
    ),
]

WINDOWS = windows.tumbling(
    "10 seconds", time="ts", by="k", agg={"n": agg.count(), "v": agg.sum("v")}, delay="5 seconds"
)
GROUPS, VARIABLES = "applyInPandasWithState", "transformWithStateInPandas"
RUNS = ((0, 2), (2, 4), (4, 6))


def run(spark: SparkSession, operator: Any, source: Path, folder: Path, number: int) -> list[Any]:
    """Run the query over two more micro-batches, from the checkpoint in the folder."""
    tables = [to_table(events(batch), EVENT) for batch in range(*RUNS[number])]
    frame = micro_batches(spark, tables, schema=EVENT, directory=source, source="files")
    return [in_order(rows) for _, rows, _ in run_query(frame.transform(operator), folder, 300)]


def in_order(table: Any) -> list[Any]:
    return sorted(table.to_pylist(), key=repr)


def uninterrupted(operator: Any = WINDOWS) -> list[list[Any]]:
    """The results of a query that restarts without another number of shards, without Spark."""
    query = Replay(operator, EVENT, shards=4)
    batches = [[to_table(events(batch), EVENT) for batch in range(*of)] for of in RUNS]
    return [in_order(result.table) for of_run in batches for result in query.run(of_run)]


def rescaled(spark: SparkSession, folder: Path, api: str, **options: Any) -> list[list[Any]]:
    """The results with 4 shards, then 16, then 4."""
    operator, found = WINDOWS.options(state_api=api), []
    for number, shards in enumerate((4, 16, 4)):
        here = folder / str(number)
        if number:
            before = folder / str(number - 1) / "checkpoint"
            stamp = Checkpoint(before).stamp()
            (done,) = state.rescale(
                before, here / "checkpoint", shards=shards, spark=spark, **options
            )
            assert (done.shards, done.name) == (shards, "windows.grid version 1")
            assert done.shards_before == 20 - shards
            assert Checkpoint(before).stamp() == stamp, "the original was changed"
            assert not (here / "checkpoint" / MARKER).exists()
        found += run(spark, operator.options(shards=shards), folder / "source", here, number)
    return found


def test_a_query_continues_on_other_numbers_of_shards(spark: SparkSession, tmp_path: Path) -> None:
    assert rescaled(spark, tmp_path, VARIABLES) == uninterrupted()


@pytest.mark.smoke
def test_so_does_the_state_of_groups(spark: SparkSession, tmp_path: Path) -> None:
    assert rescaled(spark, tmp_path, GROUPS) == uninterrupted()


def test_so_does_state_on_the_heap(hdfs: SparkSession, tmp_path: Path) -> None:
    assert rescaled(hdfs, tmp_path, GROUPS) == uninterrupted()


@pytest.mark.parametrize("api", [GROUPS, VARIABLES])
def test_the_number_of_partitions_changes_too(
    spark: SparkSession, tmp_path: Path, api: str
) -> None:
    assert rescaled(spark, tmp_path, api, partitions=3) == uninterrupted()
    for number, count in ((0, 2), (1, 3), (2, 3)):
        checkpoint = Checkpoint(tmp_path / str(number) / "checkpoint")
        assert checkpoint.partitions == count
        assert [of.partitions for of in checkpoint.operators] == [count]
        stores = (checkpoint.path / "state" / "0").iterdir()
        assert sum(folder.name.isdecimal() for folder in stores) == count
