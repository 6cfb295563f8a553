"""Planted rows that queries on Spark read, from files or from topics: a run for each micro-batch."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import streamops
from streamops import observe
from streamops.spark.columns import spark_schema
from tests.observe.planted import SUBJECTS, Question, Source, Write, micro_batches, schemas


@dataclass(frozen=True)
class Files:
    """The inputs of a query are folders of Parquet files."""

    spark: SparkSession
    folder: Path
    schemas: Sequence[pa.Schema]

    source = property(lambda self: (observe.files(),) * len(self.schemas))

    def frames(self) -> list[DataFrame]:
        """The inputs as streams."""
        reader = self.spark.readStream
        return [
            reader.schema(spark_schema(schema)).parquet(str(self._side(side)))
            for side, schema in enumerate(self.schemas)
        ]

    def append(self, number: int, tables: Sequence[pa.Table]) -> None:
        """Write the rows of a micro-batch."""
        for side, table in enumerate(tables):
            self._side(side).mkdir(parents=True, exist_ok=True)
            pq.write_table(table, self._side(side) / f"{number}.parquet")

    def _side(self, side: int) -> Path:
        return self.folder / f"input {side}"


@dataclass(frozen=True)
class Topics:
    """The inputs of a query are topics with JSON."""

    spark: SparkSession
    broker: Any
    topics: Sequence[str]
    schemas: Sequence[pa.Schema]

    @property
    def source(self) -> Source:
        return tuple(
            observe.topics(self.broker.bootstrap, prepare=partial(parse, schema=schema))
            for schema in self.schemas
        )

    def frames(self) -> list[DataFrame]:
        """The inputs as streams."""
        found = []
        for topic, schema in zip(self.topics, self.schemas, strict=True):
            reader = self.spark.readStream.format("kafka").option("subscribe", topic)
            reader = reader.option("kafka.bootstrap.servers", self.broker.bootstrap)
            records = reader.option("startingOffsets", "earliest").load()
            row = F.from_json(F.col("value").cast("string"), spark_schema(schema))
            found.append(records.select(row.alias("row")).select("row.*"))
        return found

    def append(self, number: int, tables: Sequence[pa.Table]) -> None:
        """Write the rows of a micro-batch."""
        for topic, table in zip(self.topics, tables, strict=True):
            rows = [json.dumps(row, default=str) for row in table.to_pylist()]
            self.broker.produce(
                topic, [{"key": str(n), "value": row} for n, row in enumerate(rows)]
            )


def parse(records: pa.Table, *, schema: pa.Schema) -> pa.Table:
    """The rows in the values of records, as the query parses them."""
    rows = [json.loads(value) for value in records.column("value").to_pylist()]
    columns = []
    for field in schema:
        values = pa.array([row[field.name] for row in rows])
        columns.append(values.cast(field.type))
    return pa.table(columns, schema=schema)


def run(
    inputs: Callable[[Path, Sequence[pa.Schema]], Files | Topics],
    checkpoint: Path,
    name: str,
    questions: Sequence[Question],
    rng: random.Random,
) -> Source:
    """Run the query of a subject over all planted rows. Returns what explains read."""
    of = SUBJECTS[name]
    source = inputs(checkpoint.parent, schemas(name))
    for number, tables in enumerate(micro_batches(name, questions, rng)):
        source.append(number, tables)
        frame, *others = source.frames()
        for operator in of.operator if isinstance(of.operator, list) else [of.operator]:
            if others:
                operator, others = replace(operator, right=others[0]), []
            frame = frame.transform(operator)
        query = frame.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
        query.trigger(availableNow=True).start().awaitTermination()
    return source.source


@contextlib.contextmanager
def writer(name: str) -> Iterator[Write]:
    """What writes with a session of its own, and for ``kafka`` with a broker of its own."""
    with contextlib.ExitStack() as stack:
        if name == "kafka":
            from tests.kafka.broker import jars, running

            broker = stack.enter_context(running())
            conf = {"spark.jars": ",".join(map(str, jars("connector")))}
            spark = streamops.local_session(conf=conf)
            inputs: Any = partial(topics, spark, broker)
        else:
            spark = streamops.local_session()
            inputs = partial(Files, spark)
        stack.callback(spark.stop)
        yield partial(run, inputs)


def topics(spark: SparkSession, broker: Any, folder: Path, schemas: Sequence[pa.Schema]) -> Topics:
    """A new topic for each input."""
    return Topics(spark, broker, [broker.create_topic(partitions=2) for _ in schemas], schemas)
