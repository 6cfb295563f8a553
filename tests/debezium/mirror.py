"""A mirror of a table: a query reads its topic, and applies the changes; and the table in its database."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession

from streamops import changes
from streamops.testing import replay
from tests.debezium.columns import Column, Mode, text_expression
from tests.debezium.systems import Database
from tests.kafka.broker import Broker

Row = dict[str, Any]
Message = tuple[str | None, str | None]
"""Its key and its value."""


@dataclass
class Mirror:
    """A table that a query maintains, in memory; and what the query rejected.

    Parameters
    ----------
    key : str
    rows : dict
        By key.
    """

    key: str
    rows: dict[Any, Row] = field(default_factory=dict)
    rejected: list[Row] = field(default_factory=list)

    def add(self, batch: Iterable[Row]) -> None:
        """Apply the output of `changes.apply`: deletes and preimages before what replaces them."""
        found = list(batch)
        self.rejected += [row for row in found if row["rejected"] is not None]
        changed = [row for row in found if row["rejected"] is None]
        for row in changed:
            if row["_change_type"] in {"delete", "update_preimage"}:
                del self.rows[row[self.key]]
        for row in changed:
            if row["_change_type"] in {"insert", "update_postimage"}:
                assert row[self.key] not in self.rows
                self.rows[row[self.key]] = row


def read_stream(spark: SparkSession, broker: Broker, topic: str, *, most: int) -> DataFrame:
    """A topic as a stream, with at most so many records per micro-batch."""
    reader = spark.readStream.format("kafka").option("kafka.bootstrap.servers", broker.bootstrap)
    reader = reader.option("subscribe", topic).option("startingOffsets", "earliest")
    return reader.option("maxOffsetsPerTrigger", most).load()


def follow(
    records: DataFrame, mirror: Mirror, checkpoint: Path, schema: str, **parameters: Any
) -> None:
    """Apply the records that are there to a mirror, from where the last call ended."""
    reading = changes.from_debezium(schema, key=mirror.key, message_key="key", **parameters)
    table = changes.apply(mirror.key, sequence="_sequence", time="_changed_at", horizon="7 days")
    result = records.transform(reading).transform(table.options(shards=2))

    def add(batch: DataFrame, _: int) -> None:
        mirror.add(batch.toArrow().to_pylist())

    writer = result.writeStream.foreachBatch(add).option("checkpointLocation", str(checkpoint))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()


def mirrors_of(
    spark: SparkSession, topics: Mapping[str, Sequence[Message]], schema: str
) -> dict[str, Mirror]:
    """The tables that the messages describe, in the order of the topics, with restarts."""
    messages = [
        (key, value, n, name)
        for name, found in topics.items()
        for n, (key, value) in enumerate(found)
    ]
    frame = spark.createDataFrame(messages, "key string, value string, number int, topic string")
    reading = changes.from_debezium(schema, key="id", message_key="key", keep=["number", "topic"])
    every = frame.transform(reading).toArrow().sort_by("number")
    table = changes.apply("id", sequence="_sequence", time="_changed_at", horizon="7 days")
    result = {}
    for name in topics:
        rows = every.filter(pc.equal(every["topic"], name)).drop(["number", "topic"])
        mirror = result[name] = Mirror("id")
        batches = [rows.slice(start, 7) for start in range(0, rows.num_rows, 7)]
        for batch in replay(table, batches, restart=True):
            mirror.add(batch.rows)
    return result


def schema_of(columns: Sequence[Column], mode: Mode) -> str:
    """The schema of a row for a query."""
    return ", ".join(["id bigint", *(f"{c.name} {c.read_by(mode).type}" for c in columns)])


def decoded(rows: Iterable[Mapping[str, Any]], columns: Sequence[Column], mode: Mode) -> list[Row]:
    """The rows of a mirror, by their key, with values that compare."""
    readings = {column.name: column.read_by(mode) for column in columns}
    result = [
        {
            "id": row["id"],
            **{n: None if row[n] is None else r.decode(row[n]) for n, r in readings.items()},
        }
        for row in rows
    ]
    return sorted(result, key=lambda row: row["id"])


def texts_of(database: Database, table: str, columns: Sequence[Column]) -> list[list[Any]]:
    """The rows of a table in its database, by their key, as text."""
    names = ", ".join(["id", *(text_expression(column, database.connector) for column in columns)])
    return [list(row) for row in database.fetch(f"SELECT {names} FROM {table} ORDER BY id")]


def parsed(texts: Iterable[Sequence[Any]], columns: Sequence[Column], mode: Mode) -> list[Row]:
    """The rows of a table as text, with values that compare."""
    readings = [(column.name, column.read_by(mode).parse) for column in columns]
    return [
        {
            "id": number,
            **{
                name: None if text is None else parse(text)
                for (name, parse), text in zip(readings, row, strict=True)
            },
        }
        for number, *row in texts
    ]


def differences(found: Sequence[Row], expected: Sequence[Row]) -> list[tuple[Any, ...]]:
    """Keys that one of two tables lacks, and values that differ: key, column, found, expected."""
    tables = [{row["id"]: row for row in rows} for rows in (found, expected)]
    mine, theirs = tables
    result: list[tuple[Any, ...]] = [
        (key, mine.get(key), theirs.get(key)) for key in sorted(mine.keys() ^ theirs.keys())
    ]
    for key in sorted(mine.keys() & theirs.keys()):
        result += [
            (key, name, mine[key][name], value)
            for name, value in theirs[key].items()
            if mine[key][name] != value
        ]
    return result


def await_end(database: Database, prefixes: Iterable[str], table: str, number: int) -> None:
    """Write a last row into a table, and wait until it is in the topic of each connector."""
    database.execute(f"INSERT INTO {table} (id) VALUES ({number})")
    end, mark = time.monotonic() + 120, f'"id":{number}'.encode()
    for prefix in prefixes:
        topic = database.topic(prefix, table)
        while not any(mark in (record.key() or b"") for record in database.broker.read(topic)):
            assert time.monotonic() < end, f"the row is not in {topic}"
            time.sleep(0.3)
