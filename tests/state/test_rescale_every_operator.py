"""Every operator on Spark: 4 shards, 16 in the middle of a random history, then 4 again.

As in ``tests/spark/test_every_operator.py``, many operators run in one query with one checkpoint. The
results of each micro-batch are those of a replay without another number of shards. One partition is
enough here, and takes half the time. A query has ``applyInPandasWithState`` once, so some of the operators that
can run on it have a query of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from streamops import sketches, state
from streamops.environment.settings import PARTITIONS
from streamops.state.checkpoint import Checkpoint
from streamops.testing.streaming import run_query
from tests.spark.test_every_operator import (
    CASES,
    STATELESS,
    Case,
    inputs,
    replay_together,
    split,
    tag,
    through,
)
from tests.state.histories import batches_for

pytestmark = [pytest.mark.spark, pytest.mark.slow]

RUNS = ((0, 1), (2,), (3,))
UNKNOWN = {
    "silences",
    "silences_in_a_chain",
}  # state.rescale knows the library's own operators only
AS_THEY_ARE = {"decide"}  # commands, not events
ALL = {
    name: case if name in AS_THEY_ARE else replace(case, batches=batches_for(case.schemas, 4))
    for name, case in CASES.items()
    if name not in STATELESS | UNKNOWN
} | {
    # So many items that a false positive is all but impossible.
    "seen": replace(
        CASES["seen"],
        operator=sketches.seen(
            "v", capacity=10_000, false_positive_rate=1e-9, time="ts", horizon="10 minutes"
        ),
        batches=batches_for(CASES["seen"].schemas, 4),
    )
}
NAMES = [*ALL]
GROUPS = "applyInPandasWithState"
ON_GROUPS = ("interval", "apply", "seen")
QUERIES = {part: {name: ALL[name] for name in NAMES[part::2]} for part in range(2)}


@pytest.fixture(autouse=True)
def one_partition(spark: SparkSession) -> Iterator[None]:
    before = spark.conf.get(PARTITIONS)
    spark.conf.set(PARTITIONS, "1")
    yield
    spark.conf.set(PARTITIONS, str(before))


@pytest.mark.parametrize("part", QUERIES)
def test_every_operator_continues_on_other_numbers_of_shards(
    spark: SparkSession, tmp_path: Path, part: int
) -> None:
    check_other_numbers_of_shards(spark, QUERIES[part], tmp_path)


@pytest.mark.parametrize("name", ON_GROUPS)
def test_so_does_an_operator_with_the_state_of_groups(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    case = replace(ALL[name], operator=ALL[name].operator.options(state_api=GROUPS))
    check_other_numbers_of_shards(spark, {name: case}, tmp_path)
    assert [of.api for of in Checkpoint(tmp_path / "2" / "checkpoint").operators] == [GROUPS]


def check_other_numbers_of_shards(
    spark: SparkSession, cases: dict[str, Case], tmp_path: Path
) -> None:
    """Run the cases in one query, on three numbers of shards, and compare each micro-batch."""
    emitted: dict[str, list[list[str]]] = {name: [] for name in cases}
    for number, (run, shards) in enumerate(zip(RUNS, (4, 16, 4), strict=True)):
        folder = tmp_path / str(number)
        if number:
            before = tmp_path / str(number - 1) / "checkpoint"
            stamp = Checkpoint(before).stamp()
            done = state.rescale(before, folder / "checkpoint", shards=shards, spark=spark)
            assert Checkpoint(before).stamp() == stamp
            assert {of.shards for of in done if "producers" not in of.name} == {shards}
            assert {of.shards for of in done if "producers" in of.name} <= {1}
            assert len(done) == len(Checkpoint(before).operators)
        for _, table, _ in run_query(build(spark, cases, tmp_path, run, shards), folder, 500):
            for name, rows in split(table, cases).items():
                emitted[name].append(rows)
    expected = replay_together(cases, RUNS)
    for name, found in emitted.items():
        # A day has no end in this history. The state of its windows is that of others.
        is_there = name == "calendar" or any(found[3:])
        assert is_there, f"{name} emitted nothing on another number of shards"
        assert found == expected[name], name


def build(
    spark: SparkSession, cases: dict[str, Case], folder: Path, run: tuple[int, ...], shards: int
) -> DataFrame:
    """The query over these micro-batches."""
    frames = {
        name: through(
            case, inputs(spark, case, folder / "sources" / name, run), name, shards=shards
        )
        for name, case in cases.items()
    }
    return tag(frames)
