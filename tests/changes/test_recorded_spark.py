"""What Debezium's connectors wrote, as `python -m tests.debezium.record` recorded it, becomes the table that they read."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow.compute as pc
import pytest
from pyspark.sql import SparkSession

from streamops import changes
from streamops.testing import replay
from tests.debezium.columns import MODES, TYPES
from tests.debezium.mirror import Mirror, decoded, differences, parsed, schema_of
from tests.debezium.record import Recording, recorded

pytestmark = pytest.mark.spark
TABLES = dict(recorded("types-*"))


COMMON = ("i8", "f8", "te", "ch", "sz", "uu", "en")
"""Columns of both databases that all modes send in one form."""


@pytest.mark.smoke
def test_the_mirrors_equal_the_tables_in_columns_of_one_form(spark: SparkSession) -> None:
    columns = {c: [part for part in TYPES[c] if part.name in COMMON] for c in TYPES}
    assert {len(found) for found in columns.values()} == {len(COMMON)}
    schema = schema_of(columns["mariadb"], MODES["text"])
    mirrors = mirrors_of(spark, TABLES, schema)
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
    (mirror,) = mirrors_of(spark, {name: recording}, schema_of(columns, mode)).values()
    assert mirror.rejected == []
    expected = parsed(recording.about["table"], columns, mode)
    assert differences(decoded(mirror.rows.values(), columns, mode), expected) == []


def mirrors_of(
    spark: SparkSession, recordings: Mapping[str, Recording], schema: str
) -> dict[str, Mirror]:
    """The tables that the messages describe, in the order of the topics, with restarts."""
    messages = [
        (key, value, n, name)
        for name, recording in recordings.items()
        for n, (key, value) in enumerate(recording.messages)
    ]
    frame = spark.createDataFrame(messages, "key string, value string, n int, name string")
    reading = changes.from_debezium(schema, key="id", message_key="key", keep=["n", "name"])
    every = frame.transform(reading).toArrow().sort_by("n")
    table = changes.apply("id", sequence="_sequence", time="_changed_at", horizon="7 days")
    result = {}
    for name in recordings:
        rows = every.filter(pc.equal(every["name"], name)).drop(["n", "name"])
        mirror = result[name] = Mirror("id")
        batches = [rows.slice(start, 7) for start in range(0, rows.num_rows, 7)]
        for batch in replay(table, batches, restart=True):
            mirror.add(batch.rows)
    return result
