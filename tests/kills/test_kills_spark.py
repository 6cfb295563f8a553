"""A driver is killed, and its successor finishes its work."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.kills.job import ALL_TARGETS, Settings, start
from tests.kills.rounds import ROWS, Round, State
from tests.kills.targets import ALL


@pytest.mark.smoke
def test_a_driver_is_killed_between_the_commit_of_the_sink_and_the_one_of_spark(
    spark: SparkSession, tmp_path: Path
) -> None:
    settings = Settings(
        folder=str(tmp_path), name="smoke", form="rows", targets=["parquet", "naive"]
    )
    round_ = Round(settings, batches=3, seed=1)
    driver = round_.start(hold=1, hold_at="after commit")
    try:
        assert round_.wait(driver, settings.marker(ALL_TARGETS).exists)
    finally:
        driver.kill()
    assert round_.state() == State(1, 0, {"parquet": 1, "naive": 1}, 0)
    start(spark, settings, ALL_TARGETS).awaitTermination()
    stored = {
        target: Counter(row["id"] for row in ALL[target].rows(settings.location, "results"))
        for target in settings.targets
    }
    once = Counter(id_ for table in round_.tables for id_ in table.column("id").to_pylist())
    assert stored["parquet"] == once
    entry = round_.sinks["parquet"].read_ledger()
    assert (entry.batch, entry.generation) == (round_.last, 2)
    # What has no ledger has the rows of the micro-batch twice.
    assert stored["naive"] - once == Counter(range(ROWS, 2 * ROWS))
