"""Debezium's connectors send every type in every mode: each value of the mirror equals that of the database."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.debezium.columns import MODES, TYPES
from tests.debezium.mirror import (
    Mirror,
    decoded,
    differences,
    follow,
    parsed,
    read_stream,
    schema_of,
    texts_of,
)
from tests.debezium.scripts import write_values
from tests.debezium.systems import Systems, is_installed, running
from tests.servers.installed import skip

pytestmark = [pytest.mark.spark, pytest.mark.debezium]
END = 999_999


@pytest.fixture(scope="module")
def systems() -> Iterator[Systems]:
    if not is_installed():
        skip("Debezium, Kafka, PostgreSQL or MariaDB is not there: scripts/get-debezium")
    with running() as systems:
        for connector in TYPES:
            write_values(systems, connector)
        yield systems


@pytest.mark.parametrize("connector", TYPES)
@pytest.mark.parametrize("name", MODES)
def test_every_value_of_every_type_is_that_of_the_database(
    spark: SparkSession, systems: Systems, tmp_path: Path, connector: str, name: str
) -> None:
    database, columns = systems.databases[connector], TYPES[connector]
    mode = MODES[name].of(connector)
    topic = database.topic(f"{connector}-{name}", "types")
    records = read_stream(spark, systems.broker, topic, most=15)
    mirror = Mirror("id")
    follow(records, mirror, tmp_path, schema_of(columns, mode))
    assert mirror.rejected == []
    expected = parsed(texts_of(database, "types", columns), columns, mode)
    assert differences(decoded(mirror.rows.values(), columns, mode), expected) == []
    assert len(expected) >= 10
