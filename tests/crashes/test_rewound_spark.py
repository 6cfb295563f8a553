"""A rewound query has the batch result, on every state store, from every micro-batch on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from streamops import sinks
from tests.crashes.figures import PROPERTY, Point
from tests.crashes.queries import APPLY, TRANSFORM, run
from tests.crashes.rewound import QUERIES, History, Rewound, write_inputs

pytestmark = [pytest.mark.spark]

MICRO_BATCHES = 4


@pytest.mark.smoke
def test_no_file_of_the_former_state_is_read(spark: SparkSession, tmp_path: Path) -> None:
    history = History(spark, QUERIES[0], tmp_path, micro_batches=2)
    history.record()
    assert history.differences([0]) == []


@pytest.mark.smoke
def test_a_stopped_query_writes_no_snapshot_afterwards(spark: SparkSession, tmp_path: Path) -> None:
    """Otherwise it writes one within the interval of its maintenance."""
    query, checkpoint = QUERIES[0], tmp_path / "checkpoint"
    sink = sinks.parquet(str(tmp_path / "target"))
    write_inputs(tmp_path / "inputs", 0, 1)
    stores: Any = spark._jvm.org.apache.spark.sql.execution.streaming.state.StateStore  # type: ignore[union-attr]
    with query.settings(spark, "1h"):
        run(query.frame(spark, tmp_path / "inputs", 2), sink, checkpoint)
    assert stores.isMaintenanceRunning()
    sinks.rewind(str(checkpoint), sink)
    assert stores.isMaintenanceRunning()
    sinks.rewind(str(checkpoint), sink, dry_run=False)
    assert not stores.isMaintenanceRunning()


@pytest.mark.crashes
@pytest.mark.parametrize("query", QUERIES, ids=str)
def test_every_micro_batch(
    spark: SparkSession,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
    query: Rewound,
) -> None:
    history = History(spark, query, tmp_path, micro_batches=MICRO_BATCHES)
    history.record()
    numbers = range(MICRO_BATCHES)
    differences = history.differences(numbers)
    restarts = 2 * len(numbers)
    if query.engine in (APPLY, TRANSFORM) and query.format == 1:
        differences += history.differences((0, MICRO_BATCHES - 2), shards=3)
        restarts += 4
    points = [Point(query.engine, str(query), "parquet", number, "rewound") for number in numbers]
    found = {"points": [*map(list, points)], "restarts": restarts, "differences": differences}
    record_property(PROPERTY, found)
    assert not differences
