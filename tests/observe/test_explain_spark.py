"""A key of a query on Spark, explained from the checkpoint and the files that Spark wrote."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from pyspark.sql import DataFrame, SparkSession

from streamops import aggregates as agg
from streamops import observe, sinks, windows
from streamops.kernel.errors import SpecError
from streamops.testing import at
from tests.observe import planted
from tests.observe.planted import SUBJECTS, plant
from tests.observe.test_explain import history, table, tumbling

pytestmark = pytest.mark.spark


def test_the_results_of_a_query_over_files_are_those_of_its_checkpoint(
    spark: SparkSession, tmp_path: Path
) -> None:
    operator = tumbling(allowed_lateness="1 minute", stragglers="update")
    folder, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    folder.mkdir()
    written: list[tuple[int, dict[str, object]]] = []

    def write(batch: DataFrame, number: int) -> None:
        written.extend((number, row) for row in batch.toArrow().to_pylist())

    def run() -> None:  # a restart, as the checkpoint is the same
        frame = spark.readStream.schema("k string, ts timestamp, v long").parquet(str(folder))
        query = (
            frame.transform(operator)
            .writeStream.foreachBatch(write)
            .option("checkpointLocation", str(checkpoint))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    batches = [rows for rows in history(3, batches=4) if len(rows)] or [table()]
    for number, rows in enumerate(batches):
        if number == 1:  # as Spark writes it, with INT96
            frame = spark.createDataFrame(rows.to_pandas(), "k string, ts timestamp, v long")
            frame.coalesce(1).write.mode("append").parquet(str(folder))
        else:
            pq.write_table(rows, folder / f"{number}.parquet")
        run()
    assert written
    for key in ("a", "b", "c", None):
        found = observe.explain(checkpoint, operator, observe.files(), where={"k": key})
        expected = [(number, row) for number, row in written if row["k"] == key]
        assert [(of.batch, of.row) for of in found.key_results] == expected


def test_planted_causes_in_a_query_on_spark(spark: SparkSession, tmp_path: Path) -> None:
    rng, subject = random.Random(5), SUBJECTS["tumbling"]
    questions = plant("tumbling", 100, rng)
    simulated, folder, checkpoint = tmp_path / "simulated", tmp_path / "in", tmp_path / "checkpoint"
    planted.write(simulated, "tumbling", questions, rng)
    folder.mkdir()
    target = sinks.parquet(str(tmp_path / "target"))
    for path in sorted(tmp_path.glob("*.parquet")):  # a run per micro-batch
        path.rename(folder / path.name)
        frame = spark.readStream.schema("k string, ts timestamp, v long").parquet(str(folder))
        query = frame.transform(subject.operator).writeStream.foreachBatch(target)
        query = query.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        query.start().awaitTermination()
    written = sinks.read_parquet(str(tmp_path / "target")).to_table().to_pylist()
    for one in questions:
        found = observe.explain(
            checkpoint, subject.operator, observe.files(), where={"k": one.key}, window=one.window,
            sink=target,
        )  # fmt: skip
        assert planted.wrong("tumbling", one, found) == "", f"{one}\n{found}"
        for of in found.key_results:
            assert of.is_written
            assert of.row in written


def test_a_shard_without_rows_since_a_change_is_no_other_query(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Its state has the parameters of before the restart, as nothing has stepped it."""
    folder, checkpoint = tmp_path / "in", tmp_path / "checkpoint"
    folder.mkdir()
    keys = [chr(97 + number) for number in range(8)]
    before = windows.tumbling(
        "1 minute", time="ts", by="k", agg={"n": agg.count()}, delay="1 hour"
    ).options(shards=4)
    after = windows.tumbling(
        "1 minute", time="ts", by="k", agg={"n": agg.count(), "total": agg.sum("v")}, delay="1 hour"
    ).options(shards=4)
    for number, (operator, of) in enumerate([(before, keys), (after, ["a"])]):
        pq.write_table(table(*((key, at(5), 1) for key in of)), folder / f"{number}.parquet")
        frame = spark.readStream.schema("k string, ts timestamp, v long").parquet(str(folder))
        query = frame.transform(operator).writeStream.format("noop").outputMode("append")
        query = query.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
        query.start().awaitTermination()
    for key in keys:
        found = observe.explain(
            checkpoint, after, observe.files(), where={"k": key}, earlier={1: before}
        )
        assert found.reason == "open"
        assert not found.notes
    other = windows.tumbling("2 minutes", time="ts", by="k", agg={"n": agg.count()}, delay="1 hour")
    with pytest.raises(SpecError, match="not that of the query"):
        observe.explain(checkpoint, other, observe.files(), where={"k": "a"})
