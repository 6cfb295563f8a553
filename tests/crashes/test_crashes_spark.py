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
from tests.crashes.queries import NATIVE, ON_HDFS, ON_ROCKSDB, ON_SERVERS, Query, settings
from tests.crashes.rollback import STAGES, Recording, Stage, reachable
from tests.crashes.servers import SERVERS

pytestmark = [pytest.mark.spark]

SOME = {
    "state written, sink not",
    "torn state",
    "torn sink write",
    "sink committed, batch not",
}


def stages_of(query: Query) -> list[tuple[int, Stage]]:
    """The micro-batches in which a query crashes, each with its stages."""
    return [
        (number, stage)
        for number in (*query.numbers, *query.some)
        for stage in STAGES
        if reachable(stage, number) and (number in query.numbers or stage.name in SOME)
    ]


def roll_back(
    spark: SparkSession, folder: Path, query: Query, stages: Sequence[tuple[int, Stage]]
) -> dict[str, Any]:
    points: list[Point] = []
    differences: list[str] = []
    restarts = 0
    with settings(spark, query.store):
        recording = Recording(spark, query, folder)
        recording.record()
        assert max(number for number, _ in stages) <= recording.number
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


@pytest.mark.parametrize(
    ("query", "names", "points"),
    [
        pytest.param(
            Query("hdfs", NATIVE, "native", numbers=(), some=(LAST,)),
            SOME,
            36,
            id="windows of Spark",
        ),
        pytest.param(
            Query("rocksdb", ("apply",), numbers=(), some=(LAST,)),
            SOME - {"state written, sink not"},
            9,
            id="a core",
            marks=pytest.mark.smoke,
        ),
    ],
)
def test_some_points(
    spark: SparkSession,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
    query: Query,
    names: set[str],
    points: int,
) -> None:
    stages = [(number, stage) for number, stage in stages_of(query) if stage.name in names]
    found = roll_back(spark, tmp_path, query, stages)
    record_property(PROPERTY, found)
    assert not found["differences"]
    assert len({tuple(point) for point in found["points"]}) == points


@pytest.mark.crashes
@pytest.mark.parametrize(
    ("name", "query"),
    [
        pytest.param(
            name, query, id=f"{name}, {query}", marks=getattr(pytest.mark, SERVERS[name][0])
        )
        for name, queries in ON_SERVERS.items()
        for query in queries
    ],
)
def test_every_step_of_a_server(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path, name: str, query: Query
) -> None:
    table = f"rows_{abs(hash(tmp_path)):x}"
    fixture, server_of = SERVERS[name]
    server = server_of(request.getfixturevalue(fixture), table, query.key)
    with settings(spark, query.store):
        crashing = Crashing(spark, query, tmp_path, server)
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
    found = roll_back(spark, tmp_path, query, stages_of(query))
    record_property(PROPERTY, found)
    assert not found["differences"]
