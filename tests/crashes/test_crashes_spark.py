"""A query is rolled back to every durable state that a crash leaves, and started again.

Every target then has the batch result, row by row, and its ledger has the last micro-batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tests.crashes.cases import LAST
from tests.crashes.figures import PROPERTY, Point
from tests.crashes.planted import Crashing
from tests.crashes.queries import ON_HDFS, ON_ROCKSDB, Query, settings
from tests.crashes.rollback import STAGES, WITHOUT_ROWS, Recording, Stage, reachable
from tests.crashes.servers import SERVERS

pytestmark = [pytest.mark.spark]

NUMBERS = {"rocksdb": (0, 1, LAST, WITHOUT_ROWS), "hdfs": (0, LAST)}
"""The micro-batches in which a query crashes, by state store: on one of them, each operator is a query."""
SOME = {
    "before the offset",
    "offset written",
    "state written, sink not",
    "torn state",
    "torn sink write",
    "sink committed, batch not",
}


def roll_back(
    spark: SparkSession, folder: Path, query: Query, stages: Sequence[tuple[int, Stage]]
) -> dict[str, Any]:
    points: list[Point] = []
    differences: list[str] = []
    restarts = 0
    with settings(spark, query.store):
        recording = Recording(spark, query, folder)
        recording.record()
        stages = [(n, stage) for n, stage in stages if n <= recording.number]
        for number, stage in stages:
            try:
                passed = recording.restart(number, stage)
            except (AssertionError, StreamingQueryException) as error:
                text = f"{query}, micro-batch {number}, {stage.name}: {error}"
                differences.append(text[:2_000])
                passed = []
            if passed is not None:
                restarts += 1
                points += passed
    return {"points": [*map(list, points)], "restarts": restarts, "differences": differences}


@pytest.mark.smoke
def test_some_operators_at_some_points(
    spark: SparkSession, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    query = Query("rocksdb", ("tumbling_corrections", "apply", "interval"))
    stages = [(2, stage) for stage in STAGES if stage.name in SOME]
    found = roll_back(spark, tmp_path, query, stages)
    record_property(PROPERTY, found)
    assert not found["differences"]
    assert len({tuple(point) for point in found["points"]}) == 54


@pytest.mark.smoke
@pytest.mark.parametrize("name", [pytest.param(n, marks=getattr(pytest.mark, n)) for n in SERVERS])
def test_some_operators_at_every_step_of_a_server(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path, name: str
) -> None:
    query = Query("rocksdb", ("tumbling_corrections", "apply"))
    crash(request, spark, tmp_path, query, name, numbers=[2])


@pytest.mark.crashes
@pytest.mark.parametrize("query", ON_ROCKSDB, ids=str)
@pytest.mark.parametrize("name", [pytest.param(n, marks=getattr(pytest.mark, n)) for n in SERVERS])
def test_every_step_of_a_server(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path, query: Query, name: str
) -> None:
    crash(request, spark, tmp_path, query, name)


def crash(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    folder: Path,
    query: Query,
    name: str,
    **options: Any,
) -> None:
    table = f"rows_{abs(hash(folder)):x}"
    server = SERVERS[name](request.getfixturevalue(name), table, query.key)
    with settings(spark, query.store):
        crashing = Crashing(spark, query, folder, server, **options)
        crashing.run_to_the_end()
    points = [*map(list, crashing.points(name))]
    found = {"points": points, "restarts": len(crashing.crashes), "differences": []}
    request.node.user_properties.append((PROPERTY, found))


@pytest.mark.crashes
@pytest.mark.parametrize("query", [*ON_ROCKSDB, *ON_HDFS], ids=str)
def test_every_point(
    spark: SparkSession,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
    query: Query,
) -> None:
    numbers = NUMBERS["rocksdb" if len(query.names) > 1 else query.store]
    stages = [(n, stage) for n in numbers for stage in STAGES if reachable(stage, n)]
    found = roll_back(spark, tmp_path, query, stages)
    record_property(PROPERTY, found)
    assert not found["differences"]
