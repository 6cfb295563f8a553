"""Transcripts as queries on Spark: every fifth of a file, with alternating state APIs.

All transcripts are tested without Spark. These tests check the integration with Spark. ``make test`` runs
every operator on the default state API in one query; of the transcripts, it runs the first of an operator
where the turn is with the other state API.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from streamops.spark.definition import StateApi
from streamops.testing.transcripts import Transcript, assert_streams, load

FILES = sorted(Path(__file__).parent.glob("*.yaml"))
TRANSCRIPTS = [item for file in FILES for item in load(file)]
CHOSEN = {item.name for file in FILES for item in load(file)[::5]}
APIS: tuple[StateApi, ...] = ("transformWithStateInPandas", "applyInPandasWithState")

# These test timers and restarts, which differ between the state APIs.
BOTH = {
    "a watermark that moved by a millisecond wakes every key",
    "the micro-batch without data publishes",
    "the frame brings its own watermark",
    "windows before 1970 come out once the watermark has passed 1970",
    "a timer fires between two rows of a micro-batch",
    "a silence ends with the next event, also after a restart",
}
FIRST = {
    item.operator.name: item.name for item in reversed(TRANSCRIPTS) if item.name in CHOSEN
}.values()


def apis(transcript: Transcript, turn: StateApi) -> tuple[StateApi, ...]:
    """The state APIs that run a transcript."""
    if transcript.operator.follow_up is not None:
        return APIS[:1]  # applyInPandasWithState must be the last operator of a query
    return APIS if transcript.name in BOTH else (turn,)


SCENARIOS = [
    pytest.param(
        transcript,
        api,
        id=f"{transcript.name}-{api}",
        marks=[pytest.mark.smoke] if transcript.name in FIRST and api == APIS[1] else [],
    )
    for transcript, turn in zip(
        (item for item in TRANSCRIPTS if item.name in CHOSEN | BOTH), cycle(APIS), strict=False
    )
    for api in apis(transcript, turn)
]


@pytest.fixture
def one_partition(spark: SparkSession) -> Iterator[SparkSession]:
    """A session with one partition: for a few rows, more tasks only take time."""
    before = spark.conf.get("spark.sql.shuffle.partitions")
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    yield spark
    spark.conf.set("spark.sql.shuffle.partitions", str(before))


@pytest.mark.spark
@pytest.mark.parametrize(("transcript", "state_api"), SCENARIOS)
def test_on_spark(one_partition: SparkSession, transcript: Transcript, state_api: StateApi) -> None:
    assert_streams(one_partition, transcript, state_api=state_api, shards=2, source="files")


def test_the_scenarios_for_both_state_apis_exist() -> None:
    assert {transcript.name for transcript in TRANSCRIPTS} >= BOTH
