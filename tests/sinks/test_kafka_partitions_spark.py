"""The Kafka sink with a transaction per partition, in tasks of Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streamops import sinks
from tests.kafka.broker import Broker

pytest.importorskip("confluent_kafka")


def read(kafka: Broker, topic: str) -> list[Any]:
    return [json.loads(record.value())["id"] for record in kafka.read(topic)]


@pytest.mark.parametrize("key", ["id", None])
def test_a_query_writes_each_row_once(
    spark: SparkSession, kafka: Broker, tmp_path: Path, key: str | None
) -> None:
    topic = kafka.create_topic(partitions=3)
    for part in range(2):
        frame = spark.range(part * 300, (part + 1) * 300).withColumn("text", F.lit("x"))
        frame.coalesce(1).write.mode("append").json(str(tmp_path / "in"))
    for _ in range(2):
        sink = sinks.kafka(topic, servers=kafka.bootstrap, key=key, atomic="partition", ledger=f"l-{topic}")  # fmt: skip
        source = spark.readStream.schema("id long, text string").option("maxFilesPerTrigger", 1)
        writing = source.json(str(tmp_path / "in")).writeStream.foreachBatch(sink)
        writing = writing.option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writing.trigger(availableNow=True).start()
        assert query.awaitTermination(120)
    assert sorted(read(kafka, topic)) == list(range(600))
    assert {record.partition() for record in kafka.read(topic)} == {0, 1, 2}
    assert sink.read_ledger().batch == 1  # type: ignore[union-attr]
