"""What Debezium's connectors wrote, as `python -m tests.debezium.record` recorded it, becomes the table that they read."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from tests.debezium.columns import MODES, TYPES
from tests.debezium.mirror import decoded, differences, mirrors_of, parsed, schema_of
from tests.debezium.record import recorded
from tests.debezium.scenarios import SCENARIOS, SCHEMA, found_in

pytestmark = pytest.mark.spark
TABLES = dict(recorded("types-*"))


COMMON = ("i8", "f8", "te", "ch", "sz", "uu", "en")
"""Columns of both databases that all modes send in one form."""


@pytest.mark.smoke
def test_the_mirrors_equal_the_tables_in_columns_of_one_form(spark: SparkSession) -> None:
    columns = {c: [part for part in TYPES[c] if part.name in COMMON] for c in TYPES}
    assert {len(found) for found in columns.values()} == {len(COMMON)}
    schema = schema_of(columns["mariadb"], MODES["text"])
    mirrors = mirrors_of(spark, {name: found.messages for name, found in TABLES.items()}, schema)
    assert len(mirrors) == len(MODES) * len(TYPES)
    for name, mirror in mirrors.items():
        about = TABLES[name].about
        connector, mode = about["connector"], MODES[about["mode"]]
        assert mirror.rejected == []
        expected = parsed(about["table"], TYPES[connector], mode.of(connector))
        found = decoded(mirror.rows.values(), columns[connector], mode)
        names = ["id", *COMMON]
        assert differences(found, [{n: row[n] for n in names} for row in expected]) == []


@pytest.mark.parametrize("name", TABLES)
def test_the_mirror_equals_the_table(spark: SparkSession, name: str) -> None:
    recording = TABLES[name]
    connector = recording.about["connector"]
    columns, mode = TYPES[connector], MODES[recording.about["mode"]].of(connector)
    (mirror,) = mirrors_of(spark, {name: recording.messages}, schema_of(columns, mode)).values()
    assert mirror.rejected == []
    expected = parsed(recording.about["table"], columns, mode)
    assert differences(decoded(mirror.rows.values(), columns, mode), expected) == []


@pytest.mark.smoke
def test_special_changes_make_mirrors_that_equal_the_tables(spark: SparkSession) -> None:
    recordings = dict(recorded("changes-*"))
    mirrors = mirrors_of(spark, {n: found.messages for n, found in recordings.items()}, SCHEMA)
    found, expected = {}, {}
    for name, recording in recordings.items():
        _, connector, table = name.split("-")
        scenario = SCENARIOS[connector][table]
        found[name] = found_in(mirrors[name], scenario, recording.about["table"])
        expected[name] = [], [*scenario.reasons]
    assert found == expected
    assert len(mirrors) == sum(map(len, SCENARIOS.values()))
