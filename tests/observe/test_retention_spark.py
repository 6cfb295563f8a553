"""Kafka's brokers delete what a slow query has not read, when it was stated; Kafka's tools see its lag."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

pytest.importorskip("prometheus_client", reason="prometheus-client is not installed")
pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")

import prometheus_client

from streamops import observe, sources
from streamops.observe.core.progress import Loss, Progress, Source
from tests.kafka import broker as brokers
from tests.kafka.broker import Broker
from tests.servers.installed import skip

pytestmark = [pytest.mark.spark, pytest.mark.kafka]

PATIENCE = 120
GAUGE = "streamops_consumer_data_loss_timestamp_seconds"


@pytest.fixture(scope="module")
def quick() -> Iterator[Broker]:
    """A broker that looks for what to delete five times per second."""
    if not brokers.jars("broker"):
        skip("Kafka is not there: scripts/get-kafka")
    settings = {"log.retention.check.interval.ms": "200", "log.initial.task.delay.ms": "1000"}
    with brokers.running(settings=settings) as found:
        yield found


@contextmanager
def producing(broker: Broker, topic: str, *, rate: int, size: int) -> Iterator[None]:
    """Write this number of records per second, each at its time."""
    stop = threading.Event()

    def write() -> None:
        producer, started, sent = broker.producer(linger_ms=5), time.monotonic(), 0
        while not stop.wait(0.02):
            while sent < (time.monotonic() - started) * rate:
                producer.produce(topic, value=b"x" * size, partition=0)
                sent += 1
            producer.poll(0)
        producer.flush()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def first_offset(consumer: Any, topic: str) -> int:
    from confluent_kafka import TopicPartition

    return int(consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=10)[0])


@pytest.mark.parametrize(
    ("config", "rate", "size", "reason", "early", "late"),
    [
        # Segments of a second, so what is deleted is up to a second older.
        ({"retention.ms": "15000", "segment.ms": "1000"}, 100, 100, "retention.ms=15000", 1.5, 4.0),
        # A segment of a megabyte is deleted when what follows it has so many bytes.
        (
            {"retention.bytes": str(8 << 20), "segment.bytes": str(1 << 20)},
            50,
            20_000,
            f"retention.bytes={8 << 20}",
            1.5,
            5.0,
        ),
        # Nothing is stated about the age, but something deletes.
        (
            {"retention.ms": "15000", "segment.ms": "1000"},
            100,
            100,
            "the first offset advances",
            5.0,
            5.0,
        ),
    ],
    ids=["age", "size", "deletions"],
)
def test_data_is_deleted_at_the_time_of_the_forecast(
    quick: Broker,
    monkeypatch: pytest.MonkeyPatch,
    config: dict[str, str],
    rate: int,
    size: int,
    reason: str,
    early: float,
    late: float,
) -> None:
    """A reader with a third of the rate of the producer."""
    topic = quick.create_topic(config=config)
    retention = observe.KafkaRetention(quick.bootstrap, refresh="500 milliseconds")
    if "advances" in reason:
        monkeypatch.setattr(
            retention, "_retained", lambda topics: {topic: observe.kafka.Retention()}
        )
    consumer = quick.consumer()
    stated: list[tuple[float, Loss]] = []
    try:
        with producing(quick, topic, rate=rate, size=size):
            started = time.monotonic()
            while True:
                time.sleep(0.1)
                now = time.time()
                assert time.monotonic() - started < PATIENCE
                offset = int((time.monotonic() - started) * rate / 3)
                if first_offset(consumer, topic) > offset:
                    break
                source = Source("KafkaV2", 1, (), ((topic, 0, offset),))
                progress = Progress("q", "r", 0, int(now * 1e6), 1, sources=(source,))
                losses = retention.look_up(progress).losses
                stated += [(now, loss) for loss in losses]
    finally:
        consumer.close()
    lost = now
    assert reason in {loss.reason for _, loss in stated[-5:]}
    errors = [lost - loss.at / 1e6 for at, loss in stated if lost - 10 <= at <= lost - 2]
    print(f"{reason}: {min(errors):+.1f} to {max(errors):+.1f} s later than was stated")
    assert len(errors) >= 10
    assert min(errors) >= -early
    assert max(errors) <= late


@pytest.mark.slow
def test_a_query_that_is_too_slow_raises_an_alarm_before_it_fails(
    spark: SparkSession, quick: Broker, tmp_path: Path
) -> None:
    topic = quick.create_topic(config={"retention.ms": "40000", "segment.ms": "1000"})
    retention = observe.KafkaRetention(quick.bootstrap, refresh="1 second")
    registry = prometheus_client.CollectorRegistry()
    alarms: list[tuple[float, observe.Alarm]] = []
    listeners = [
        observe.AlarmListener(
            observe.DataLoss("25 seconds"),
            retention=retention,
            notify=lambda alarm: alarms.append((time.time(), alarm)),
        ),
        observe.PrometheusListener(registry, retention=retention),
    ]
    plan = sources.replay(
        topic, servers=quick.bootstrap, options={"maxOffsetsPerTrigger": "20"}
    ).read_stream(spark, since="start")
    for listener in listeners:
        spark.streams.addListener(listener)
    try:
        with producing(quick, topic, rate=100, size=100):
            query = (
                plan.writeStream.queryName("slow")
                .foreachBatch(lambda batch, number: batch.count() and None)
                .option("checkpointLocation", str(tmp_path))
                .trigger(processingTime="1 second")
                .start()
            )
            exported, consumer, lost = [], quick.consumer(), None
            try:
                end = time.monotonic() + PATIENCE
                while query.isActive and time.monotonic() < end:
                    time.sleep(0.2)
                    if query.lastProgress is None:
                        continue
                    # The query fails later: it has fetched some of the records that are deleted.
                    read = json.loads(query.lastProgress.sources[0].endOffset)
                    if lost is None and first_offset(consumer, topic) > read[topic]["0"]:
                        lost = time.time()
                    at = registry.get_sample_value(GAUGE, {"query": "slow"})
                    exported.append((time.time(), at))
                failed, error = time.time(), str(query.exception())
                micro_batch = (
                    max(p.durationMs["triggerExecution"] for p in query.recentProgress) / 1e3
                )
            finally:
                query.stop()
                consumer.close()
    finally:
        for listener in listeners:
            spark.streams.removeListener(listener)
    assert "Some data may have been lost" in error, error
    raised, alarm = alarms[0]
    assert (alarm.code, alarm.query) == ("DATA_LOSS", "slow")
    assert "retention.ms=40000" in alarm.culprits[0]
    assert lost is not None
    assert 5 <= lost - raised <= 40
    errors = [lost - at for now, at in exported if at is not None and lost - 10 < now < lost]
    print(
        f"raised {lost - raised:.1f} s before data was lost, {failed - raised:.1f} s before the query failed"
    )
    print(f"lost {min(errors):+.1f} to {max(errors):+.1f} s later than was stated")
    # On a busy machine the query proceeds in steps of some seconds.
    assert min(errors) >= -3 - micro_batch
    assert max(errors) <= 5 + micro_batch


def test_tools_of_kafka_see_the_lag_of_a_query(
    spark: SparkSession, kafka: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    topic = kafka.create_topic(partitions=2)
    kafka.produce(topic, [{"value": str(n), "partition": n % 2} for n in range(30)])
    plan = sources.replay(topic, servers=kafka.bootstrap, options={"maxOffsetsPerTrigger": "10"})
    frame = plan.read_stream(spark, since="start")
    groups = {"views": f"group of {topic}"}
    listener = observe.ConsumerGroupListener(kafka.bootstrap, groups)
    seen: list[dict[int, tuple[int, int]]] = []

    def write(batch: DataFrame, number: int) -> None:
        """What Kafka knows when the micro-batch after it is written."""
        if number == 1:
            end = time.monotonic() + PATIENCE
            while not (found := describe(kafka, groups["views"])) and time.monotonic() < end:
                time.sleep(0.5)
            seen.append(found)

    spark.streams.addListener(listener)
    try:
        query = (
            frame.writeStream.queryName("views")
            .foreachBatch(write)
            .option("checkpointLocation", str(tmp_path))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(PATIENCE)
        end = time.monotonic() + PATIENCE
        while seen[-1] != {0: (15, 0), 1: (15, 0)} and time.monotonic() < end:
            seen.append(describe(kafka, groups["views"]))
    finally:
        spark.streams.removeListener(listener)
    assert seen[0] == {0: (5, 10), 1: (5, 10)}
    assert seen[-1] == {0: (15, 0), 1: (15, 0)}
    assert not caplog.text


def describe(kafka: Broker, group: str) -> dict[int, tuple[int, int]]:
    """Offset and lag by partition: `kafka-consumer-groups.sh --describe`."""
    tool = brokers._java("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand")
    command = [*tool, "--bootstrap-server", kafka.bootstrap, "--describe", "--group", group]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    rows = [line.split() for line in done.stdout.splitlines() if "topic-" in line]
    # The name of the group has spaces: count from the topic on.
    found = {}
    for row in rows:
        at = next(
            n for n, word in enumerate(row) if word.startswith("topic-") and row[n + 1].isdigit()
        )
        found[int(row[at + 1])] = int(row[at + 2]), int(row[at + 4])
    return found
