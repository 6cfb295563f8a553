"""Bad rows on Spark: ``sinks.side_outputs`` writes each row to one of its two targets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from streamops import changes, sinks, time
from streamops.environment.settings import PARTITIONS
from streamops.testing import at, micro_batches
from tests.bad_input.fates import ACCEPTED, Played, amount
from tests.bad_input.test_conservation import TABLE

pytestmark = pytest.mark.spark

NAMES = ["tumbling", "session", "interval, full", "asof", "normalize", "aggregate", "tables, left"]


@pytest.fixture(autouse=True)
def one_partition(spark: SparkSession) -> Iterator[None]:
    before = spark.conf.get(PARTITIONS)
    spark.conf.set(PARTITIONS, "1")
    yield
    spark.conf.set(PARTITIONS, str(before))


def deliver(frame: DataFrame, folder: Path) -> tuple[Any, Any]:
    """Write results and side output to two folders, and read both."""
    results, rejected = str(folder / "results"), str(folder / "rejected")
    sink = sinks.side_outputs(
        results=sinks.parquet(results), rejected=sinks.parquet(rejected), operator="tested"
    )
    query = (
        frame.writeStream.foreachBatch(sink)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(120)
    finally:
        query.stop()
    return sinks.read_parquet(results).to_table(), sinks.read_parquet(rejected).to_table()


@pytest.mark.parametrize("name", NAMES)
def test_a_row_is_in_one_of_two_targets(spark: SparkSession, tmp_path: Path, name: str) -> None:
    case = TABLE[name]
    frames = [
        micro_batches(
            spark,
            [side.table(number) for number in range(len(side.batches))],
            schema=side.schema,
            directory=tmp_path / str(position),
            source="files",
        )
        for position, side in enumerate(case.sides)
    ]
    operator = case.operator.options(shards=2)
    if len(frames) > 1:
        operator = replace(operator, right=frames[1])
    results, rejected = deliver(frames[0].transform(operator), tmp_path)
    reasons = Counter(rejected.column("reason").to_pylist())
    counted = {ACCEPTED, *case.counted}
    assert reasons == Counter({f: n for f, n in case.fates.items() if f not in counted})
    assert set(rejected.column("operator").to_pylist()) == {"tested"}
    assert rejected.column("row").null_count == 0
    played = Played.of(case.operator, case.sides)
    assert amount([results]) == played.rows(pending=False)


def test_rows_of_a_guard_and_records_of_debezium(spark: SparkSession, tmp_path: Path) -> None:
    times = [at(1), None, at(10**9), at(2)]
    rows = [{"ts": ts, "received": at(3), "v": v} for v, ts in enumerate(times)]
    frame = micro_batches(spark, [rows], directory=tmp_path / "guard", source="files")
    results, rejected = deliver(
        frame.transform(time.guard("ts", arrival="received")), tmp_path / "guard"
    )
    assert sorted(results.column("v").to_pylist()) == [0, 3]
    assert len(rejected) == 2
    source = '"source": {"connector": "postgresql", "lsn": 1}'
    good = f'{{"op": "c", "before": null, "after": {{"id": 1}}, {source}}}'
    unknown = f'{{"op": "x", "after": {{"id": 2}}, {source}}}'
    no_sequence = '{"op": "c", "before": null, "after": {"id": 1}, "source": {"lsn": 1}}'
    tombstone = None  # follows a delete, and is not a change
    records = [good, "no json", unknown, no_sequence, tombstone]
    frame = micro_batches(
        spark, [[{"value": value} for value in records]], directory=tmp_path / "d", source="files"
    )
    results, rejected = deliver(
        frame.transform(changes.from_debezium("id bigint", key="id")), tmp_path / "d"
    )
    assert results.column("id").to_pylist() == [1]
    reasons = sorted(rejected.column("reason").to_pylist())
    assert reasons == ["no_sequence", "unknown_operation", "unparsable_json"]
