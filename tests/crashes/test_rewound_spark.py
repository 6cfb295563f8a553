"""A rewound query has the batch result, on every state store, from every micro-batch on."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streamops import sinks
from streamops.sinks.core.rewinding import later_files
from streamops.spark.identity import unload_state_stores
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
    """Without an end of its maintenance, it would: a second later."""
    query, checkpoint, sink = (
        QUERIES[0],
        tmp_path / "checkpoint",
        sinks.parquet(str(tmp_path / "t")),
    )
    write_inputs(tmp_path / "inputs", 0, 3)
    unload_state_stores()

    def deliver(batch: object, number: int) -> None:
        if number == 0:
            sink(batch, number)  # the target has this one only
        else:
            batch.count()  # type: ignore[attr-defined]

    with query.settings(spark, "1s"):
        run(query.frame(spark, tmp_path / "inputs", 2), deliver, checkpoint)
    assert sinks.rewind(str(checkpoint), sink, dry_run=False)
    time.sleep(1.5)
    there = [str(file.relative_to(checkpoint)) for file in checkpoint.rglob("*")]
    assert later_files(there, 0) == []


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
