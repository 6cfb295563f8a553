"""A query that is restarted with other parameters is refused in the driver, before a task reads its state."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from streamops import aggregates as agg
from streamops import sinks, state, windows
from streamops.environment.settings import PROVIDER, ROCKSDB
from streamops.kernel.errors import StateFormatError
from streamops.kernel.versions import has_transform
from streamops.state.checkpoint import HDFS_STATE
from streamops.testing import at, micro_batches
from tests.settings import configured

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not has_transform(), reason="Spark cannot read state stores"),
]
HDFS = f"org.apache.spark.sql.execution.streaming.state.{HDFS_STATE}"
KEY = "a `key`: x.y"


def counts(
    spark: SparkSession, folder: Path, size: str, *, shards: int = 4, name: str = "n"
) -> DataFrame:
    events = micro_batches(spark, [[{"ts": at(0), KEY: "a"}]], directory=folder, source="files")
    counted = windows.tumbling(size, time="ts", by=KEY, agg={"n": agg.count()}, delay="1 minute")
    return events.transform(counted.options(shards=shards, name=name))


def deliver(frame: DataFrame, folder: Path) -> None:
    """Run a query into a sink, with a key that can be a column of a file."""
    query = (
        frame.withColumnRenamed(KEY, "k")
        .writeStream.option("checkpointLocation", str(folder / "checkpoint"))
        .foreachBatch(sinks.parquet(str(folder / "out")))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(300)


@pytest.mark.parametrize("store", [pytest.param(ROCKSDB, marks=pytest.mark.smoke), HDFS])
def test_a_sink_refuses_other_parameters_and_shards_in_the_driver(
    spark: SparkSession, tmp_path: Path, store: str
) -> None:
    with configured(spark, {PROVIDER: store}):
        deliver(counts(spark, tmp_path, "1 minute"), tmp_path)
        for changed, code in (({"size": "2 minutes"}, "PARAMETERS"), ({"shards": 5}, "SHARDS")):
            given: dict[str, Any] = {"size": "1 minute", **changed}
            with pytest.raises(StreamingQueryException) as error:
                deliver(counts(spark, tmp_path, **given), tmp_path)
            message = str(error.value)
            assert f"STATE_{code}" in message
            assert "in begin_run" in message
            assert "pyspark/worker.py" not in message
        deliver(counts(spark, tmp_path, "1 minute"), tmp_path)


def test_a_query_is_compared_before_it_starts(spark: SparkSession, tmp_path: Path) -> None:
    checkpoint = tmp_path / "checkpoint"
    same = counts(spark, tmp_path, "1 minute")
    state.check(same, checkpoint)  # there is none yet
    deliver(same, tmp_path)
    state.check(same, checkpoint)
    state.check(same.where("n > 1").groupBy("n").count(), checkpoint)
    state.check(spark.range(1), checkpoint)
    for frame, code in (
        (counts(spark, tmp_path, "2 minutes"), "STATE_PARAMETERS"),
        (counts(spark, tmp_path, "1 minute", shards=5), "STATE_SHARDS"),
    ):
        with pytest.raises(StateFormatError) as error:
            state.check(frame, checkpoint)
        assert error.value.code == code
        assert error.value.where == "windows.tumbling"


def test_operators_of_one_query_are_compared_by_their_numbers(
    spark: SparkSession, tmp_path: Path
) -> None:
    def both(first: str, second: str) -> DataFrame:
        sides = (("left", first), ("right", second))
        left, right = (counts(spark, tmp_path / of, size, name=of) for of, size in sides)
        return left.unionByName(right)

    deliver(both("1 minute", "2 minutes"), tmp_path)
    state.check(both("1 minute", "2 minutes"), tmp_path / "checkpoint")
    with pytest.raises(StateFormatError, match="size"):
        state.check(both("1 minute", "3 minutes"), tmp_path / "checkpoint")
    with pytest.raises(StateFormatError, match="size"):
        state.check(both("2 minutes", "1 minute"), tmp_path / "checkpoint")
