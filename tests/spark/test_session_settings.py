"""Every operator in sessions that other people configured: the results are those of the default session.

A session has several settings at a time, because a query of all operators takes long. No two of them
concern the same mechanism, so that a difference shows which one made it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streamops import sinks
from streamops.spark.json_columns import to_checked_json
from tests.settings import configured
from tests.spark.test_every_operator import (
    CAN_CHAIN,
    CASES,
    GROUPS,
    NOT_IN_A_BATCH,
    check_batch,
    check_stream,
)

pytestmark = [
    pytest.mark.spark,
    pytest.mark.skipif(not CAN_CHAIN, reason="one stateful operator per query"),
]

PARTITIONS = "spark.sql.shuffle.partitions"
SESSIONS: dict[str, Mapping[str, str]] = {
    "east": {
        "spark.sql.session.timeZone": "Asia/Kolkata",
        "spark.sql.ansi.enabled": "false",
        "spark.sql.execution.arrow.useLargeVarTypes": "true",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "1",
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
        PARTITIONS: "1",
    },
    "west": {
        "spark.sql.session.timeZone": "America/New_York",
        "spark.sql.ansi.enabled": "true",
        "spark.sql.timestampType": "TIMESTAMP_NTZ",
        "spark.sql.caseSensitive": "true",
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.adaptive.coalescePartitions.enabled": "true",
        "spark.sql.legacy.timeParserPolicy": "EXCEPTION",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "3",
        "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "false",
        PARTITIONS: "1",
    },
}
ONE_PER_MECHANISM = ("tumbling", "interval", "per_key_timers", "normalize")


@pytest.fixture(params=SESSIONS)
def session(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[SparkSession]:
    with configured(spark, SESSIONS[request.param]) as changed:
        yield changed


@pytest.mark.parametrize("group", GROUPS)
def test_results_do_not_depend_on_the_settings_of_a_session(
    session: SparkSession, tmp_path: Path, group: str
) -> None:
    check_stream(session, GROUPS[group], tmp_path)


def test_a_batch_does_not_depend_on_the_settings_of_a_session(session: SparkSession) -> None:
    check_batch(
        session,
        {n: c for n, c in CASES.items() if c.has_replay and n not in NOT_IN_A_BATCH},
    )


@pytest.mark.parametrize("group", GROUPS)
def test_settings_may_change_between_restarts(
    spark: SparkSession, tmp_path: Path, group: str
) -> None:
    check_between(spark, tmp_path, ("west", "east"), list(GROUPS[group]))


@pytest.mark.smoke
def test_settings_of_some_operators_may_change_between_restarts(
    spark: SparkSession, tmp_path: Path
) -> None:
    check_between(spark, tmp_path, ("east", "west"), ONE_PER_MECHANISM)


def check_between(
    spark: SparkSession, folder: Path, starts: tuple[str, str], names: list[str] | tuple[str, ...]
) -> None:
    """Run operators in one session, and continue in the other."""

    def configure(run: int) -> None:
        for setting, value in SESSIONS[starts[run]].items():
            spark.conf.set(setting, value)

    with configured(spark, {**SESSIONS[starts[1]], **SESSIONS[starts[0]]}):
        check_stream(spark, {name: CASES[name] for name in names}, folder, configure)


def test_the_json_of_sinks_does_not_depend_on_the_policy_of_parsers(spark: SparkSession) -> None:
    frame = spark.sql(
        "SELECT TIMESTAMP_MICROS(-1) ts, TIMESTAMP_NTZ '2024-03-10 02:30:00.000001' local, DATE '0001-01-01' day"
    )

    def text() -> str:
        (row,) = frame.select(to_checked_json(F.struct("*"), frame.schema)).collect()
        return str(row[0])

    expected = text()
    for policy in ("LEGACY", "CORRECTED", "EXCEPTION"):
        with configured(spark, {"spark.sql.legacy.timeParserPolicy": policy}):
            assert text() == expected, policy


def test_spark_refuses_asynchronous_progress_into_sinks(
    spark: SparkSession, tmp_path: Path
) -> None:
    stream = spark.readStream.format("rate").load()
    query = (
        stream.writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        .option("asyncProgressTrackingEnabled", "true")
        .foreachBatch(sinks.parquet(str(tmp_path / "out")))
    )
    with pytest.raises(Exception, match="does not support async progress tracking"):
        query.start().awaitTermination(60)
