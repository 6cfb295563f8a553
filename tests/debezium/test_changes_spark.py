"""Special changes of tables, captured by Debezium's connectors, which are killed: the mirrors equal the tables."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from tests.debezium.mirror import mirrors_of
from tests.debezium.record import messages_of
from tests.debezium.scenarios import SCENARIOS, SCHEMA, found_in, play, rows_of
from tests.debezium.systems import Systems, is_installed, running
from tests.servers.installed import skip

pytestmark = [pytest.mark.spark, pytest.mark.debezium]


@pytest.fixture(scope="module")
def systems() -> Iterator[Systems]:
    if not is_installed():
        skip("Debezium, Kafka, PostgreSQL or MariaDB is not there: scripts/get-debezium")
    with running() as systems:
        for connector in SCENARIOS:
            play(systems, connector)
        yield systems


@pytest.mark.parametrize("connector", SCENARIOS)
def test_the_mirrors_equal_the_tables(
    spark: SparkSession, systems: Systems, connector: str
) -> None:
    database = systems.databases[connector]
    topics = {
        name: messages_of(systems.broker, database.topic(connector, name))
        for name in SCENARIOS[connector]
    }
    mirrors = mirrors_of(spark, topics, SCHEMA)
    found = {
        name: found_in(mirrors[name], scenario, rows_of(database, scenario))
        for name, scenario in SCENARIOS[connector].items()
    }
    assert found == {name: ([], [*s.reasons]) for name, s in SCENARIOS[connector].items()}
