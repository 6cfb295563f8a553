"""Readers that wait for their writes, on Spark: the offsets that sinks leave in their ledgers."""

from __future__ import annotations

import json
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import psycopg
import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from streamops import aggregates as agg
from streamops import sinks, windows
from streamops.errors import SinkError
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


@pytest.mark.parametrize("advances", [True, False])
def test_windows_that_a_write_closes_have_results(
    spark: SparkSession, tmp_path: Path, advances: bool
) -> None:
    """Without micro-batches that have no rows, the watermark is not in force before there are more."""
    source, target, checkpoint = (tmp_path / name for name in ("in", "out", "checkpoint"))
    source.mkdir()
    (file := source / "rows.json").write_text(
        '{"ts": "2026-01-01T00:00:00Z"}\n{"ts": "2026-01-01T01:00:00Z"}'
    )
    rows = spark.readStream.schema("ts timestamp").json(str(source))
    counts = windows.tumbling("1 minute", time="ts", agg={"n": agg.count()}, delay="1 minute")
    writer = rows.transform(counts).writeStream.foreachBatch(sinks.parquet(str(target)))
    writer = writer.option("checkpointLocation", str(checkpoint)).trigger(availableNow=True)
    setting = "spark.sql.streaming.noDataMicroBatches.enabled"
    spark.conf.set(setting, str(advances).lower())
    try:
        writer.start().awaitTermination()
    finally:
        spark.conf.unset(setting)
    sinks.wait_for(str(checkpoint), f"file:{file}", timeout="0 seconds")
    waits: AbstractContextManager[object] = nullcontext()
    if not advances:
        waits = pytest.raises(SinkError, match="WAIT_TIMEOUT")
    with waits:
        sinks.wait_for(str(checkpoint), f"file:{file}", timeout="0 seconds", watermark=True)
    assert sinks.read_parquet(str(target)).count_rows() == int(advances)


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
