"""Readers that wait for their writes, on Spark: the offsets that sinks leave in their ledgers."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streamops import sinks
from tests.kafka.broker import Broker

pytestmark = pytest.mark.spark


@pytest.mark.smoke
def test_a_ledger_has_the_offsets_of_its_micro_batch(spark: SparkSession, tmp_path: Path) -> None:
    source, target, checkpoint = (tmp_path / name for name in ("in", "out", "checkpoint"))
    source.mkdir()
    rows = spark.readStream.schema("n bigint").option("maxFilesPerTrigger", 1).json(str(source))
    sink = sinks.parquet(str(target))
    for number in range(2):
        file = source / f"part {number}.json"
        file.write_text(json.dumps({"n": number}))
        writer = rows.writeStream.foreachBatch(sink).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(checkpoint)).start()
        query.awaitTermination()
        entry = sink.read_ledger()
        assert entry is not None
        plan = (checkpoint / f"offsets/{entry.batch}").read_text().splitlines()
        assert list(entry.offsets) == plan[2:]
        assert json.loads(entry.offsets[0]) == {"logOffset": number}
        sinks.wait_for(str(checkpoint), f"file:{file}", timeout="0 seconds")
        assert sinks.read_parquet(str(target)).count_rows() == number + 1


@pytest.mark.kafka
@pytest.mark.postgres
def test_a_writer_reads_its_own_records(
    spark: SparkSession, kafka: Broker, postgres: str, tmp_path: Path
) -> None:
    topic = kafka.create_topic(partitions=2)
    options = {"kafka.bootstrap.servers": kafka.bootstrap, "subscribe": topic}
    options["startingOffsets"] = "earliest"
    records = spark.readStream.format("kafka").options(**options).load()
    rows = records.select(F.col("value").cast("string").alias("value"))
    folder = postgres.split()[0].partition("=")[2]
    sink = sinks.postgres(f"postgresql://postgres@/postgres?host={folder}", "own writes")
    writer = rows.writeStream.foreachBatch(sink).trigger(processingTime="0 seconds")
    query = writer.option("checkpointLocation", str(tmp_path)).start()
    producer, written = kafka.producer(), list[Any]()

    def deliver(error: Any, message: Any) -> None:
        assert error is None
        written.append(message)

    reads = {True: "SELECT streamops_wait_for('own writes', %s, '2 minutes')", False: "SELECT %s"}
    try:
        with psycopg.connect(postgres, autocommit=True) as reader:
            for number in range(12):
                producer.produce(topic, str(number), on_delivery=deliver)
                producer.flush()
                token = f"kafka:{topic}:{written[-1].partition()}:{written[-1].offset()}"
                if number == 0:
                    sinks.wait_for(sink, token, timeout="2 minutes")
                    reader.execute(sinks.wait_for_sql().encode())
                elif number % 3 == 0:
                    sinks.wait_for(str(tmp_path), token, timeout="2 minutes")
                reader.execute(reads[number % 3 == 1].encode(), [token])
                if number % 3 == 2:
                    sinks.wait_for(sink, token, timeout="2 minutes")
                found = reader.execute('SELECT value FROM "own writes"').fetchall()
                assert {(str(value),) for value in range(number + 1)} == {*found}
                time.sleep(0.1 * (number % 2))
    finally:
        query.stop()
