"""Kafka's topics on a real broker: parse, restart, replay, continue, and the lag of a query."""

from __future__ import annotations

import datetime as dt
import json
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamops import observe, sources, split_side_output
from streamops.errors import RequirementError, SpecError
from streamops.sources.kafka_replay import KafkaClient
from streamops.testing.streaming import run_query
from tests.kafka.broker import Broker

pytestmark = pytest.mark.spark

TIMEOUT = 120
SCHEMA = "id int NOT NULL"


def records(numbers: Any, **more: Any) -> Iterator[dict[str, Any]]:
    return ({"key": str(n), "value": json.dumps({"id": n}), **more} for n in numbers)


def ids(frame: DataFrame) -> list[int]:
    events = frame.transform(sources.kafka_events(SCHEMA))
    good, rejected = split_side_output(events)
    assert rejected.count() == 0
    return sorted(row["id"] for row in good.select("id").collect())


def stream_ids(frame: DataFrame, folder: Path) -> list[int]:
    """The ids of a stream up to the present end, of this run."""
    events = frame.transform(sources.kafka_events(SCHEMA))
    found = []
    for _, rows, _ in run_query(events, folder, TIMEOUT):
        assert rows.column("rejected").null_count == len(rows)
        found += rows.column("id").to_pylist()
    return sorted(found)


@pytest.mark.smoke
def test_a_stream_parses_a_topic_and_continues_after_a_restart(
    spark: SparkSession, kafka: Broker, tmp_path: Path
) -> None:
    topic = kafka.create_topic(partitions=2)
    plan = sources.replay(topic, servers=kafka.bootstrap, options={"maxOffsetsPerTrigger": "3"})
    operator = sources.kafka_events(SCHEMA, keep=["key"])
    broken = [{"key": "x", "value": "?"}, {"key": "y", "value": None}, {"value": '{"id": "3.5"}'}]
    found, metrics = [], Counter[str]()
    for written in ([*records(range(5)), *broken], list(records(range(5, 8)))):
        kafka.produce(topic, written)
        frame = plan.read_stream(spark).transform(operator)
        batches = run_query(frame, tmp_path, TIMEOUT)
        assert len(batches) > 1 or len(written) == 3
        for _, rows, progress in batches:
            found += rows.to_pylist()
            metrics.update(progress.observedMetrics["kafka_events"].asDict())
    assert sorted(row["id"] for row in found if row["rejected"] is None) == list(range(8))
    rejected = {
        row["rejected"]["value"]: row["rejected"]["reason"] for row in found if row["rejected"]
    }
    assert rejected == {
        b"?": "unparsable_json",
        None: "null_value",
        b'{"id": "3.5"}': "wrong_type",
    }
    assert (metrics["parsed"], metrics["rejected"], metrics["null_value"]) == (8, 3, 1)
    positions = {(row["_topic"], row["_partition"], row["_offset"]) for row in found}
    assert len(positions) == len(found) == 11
    assert positions == {(r.topic(), r.partition(), r.offset()) for r in kafka.read(topic)}
    batch = sources.replay(topic, servers=kafka.bootstrap).read(spark).transform(operator)
    key = F.concat_ws(":", "_partition", "_offset").alias("at")
    assert {row["at"] for row in batch.select(key).collect()} == {
        f"{p}:{o}" for _, p, o in positions
    }


def test_a_range_and_the_stream_after_it_have_each_committed_record_once(
    spark: SparkSession, kafka: Broker, tmp_path: Path
) -> None:
    topic = kafka.create_topic(partitions=3)
    committed: list[int] = []
    stop, halfway = threading.Event(), threading.Event()

    def write() -> None:
        """Transactions of twenty records; a third of them are aborted."""
        producer = kafka.producer(transactional_id=topic)
        producer.init_transactions()
        draw, number = random.Random(1), 0
        while not stop.is_set():
            numbers = range(number, number := number + 20)
            producer.begin_transaction()
            for record in records(numbers):
                # Also to partitions that are added while it runs.
                producer.produce(topic, **record)
            producer.flush()
            time.sleep(0.01)
            if draw.random() < 1 / 3:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
                committed.extend(numbers)
            if len(committed) > 600:
                halfway.set()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        assert halfway.wait(60)
        plan = sources.replay(topic, servers=kafka.bootstrap)
        kafka.add_partitions(topic, 5)
        history = ids(plan.read(spark))  # while the producer writes
        first = stream_ids(plan.read_stream(spark), tmp_path)
        time.sleep(1)
    finally:
        stop.set()
        writer.join()
    again = ids(plan.read(spark))
    # A restart continues from the checkpoint, whatever the options are now.
    second = stream_ids(plan.read_stream(spark), tmp_path)
    assert len(history) >= 500
    assert again == history
    assert min(len(first), len(second)) > 0
    assert Counter(history + first + second) == Counter(dict.fromkeys(committed, 1))
    all_at_once = stream_ids(plan.read_stream(spark, since="start"), tmp_path / "whole")
    assert all_at_once == sorted(committed)
    uncommitted = sources.replay(topic, servers=kafka.bootstrap, isolation="read_uncommitted")
    assert len(ids(uncommitted.read(spark))) > len(committed)  # aborted records, too


def test_a_range_ends_before_the_first_open_transaction(spark: SparkSession, kafka: Broker) -> None:
    topic = kafka.create_topic()
    kafka.produce(topic, records([1]))
    producer = kafka.producer(transactional_id=topic)
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, value='{"id": 2}')
    producer.flush()
    kafka.produce(topic, records([3]))
    plan = sources.replay(topic, servers=kafka.bootstrap)
    assert plan.end == {topic: {0: 1}}
    assert ids(plan.read(spark)) == [1]
    producer.abort_transaction()
    assert sources.replay(topic, servers=kafka.bootstrap).end == {topic: {0: 4}}
    later = sources.replay(topic, servers=kafka.bootstrap, start=plan.end)
    assert ids(later.read(spark)) == [3]


def test_timestamps_are_looked_up_once_in_each_partition(
    spark: SparkSession, kafka: Broker
) -> None:
    topic, millis = kafka.create_topic(partitions=3), 1_767_225_600_000
    for n in range(6):
        kafka.produce(topic, records([n], partition=n % 2, timestamp=millis + n))
    start = dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=1_001)
    end = dt.datetime(2026, 1, 1, 0, 0, 0, 4_000, tzinfo=dt.UTC)
    plan = sources.replay(topic, servers=kafka.bootstrap, start=start, end=end)
    assert ids(plan.read(spark)) == [2, 3]
    assert (plan.start, plan.end) == ({topic: {0: 1, 1: 1, 2: 0}}, {topic: {0: 2, 1: 2, 2: 0}})
    after = sources.replay(topic, servers=kafka.bootstrap, start=end + dt.timedelta(days=1))
    assert after.start == after.end == {topic: {0: 3, 1: 3, 2: 0}}
    assert ids(after.read(spark)) == []


def test_offsets_of_other_partitions_or_out_of_range_are_refused(kafka: Broker) -> None:
    topic = kafka.create_topic(partitions=2)
    for start, code in [
        ({topic: {0: 0}}, "INVALID_PARAMETER"),
        ({"other": {0: 0, 1: 0}}, "INVALID_PARAMETER"),
        ({topic: {0: 0, 1: 1}}, "PARAMETER_OUT_OF_RANGE"),
        ({topic: {0: 0, 1: -2}}, "PARAMETER_OUT_OF_RANGE"),
    ]:
        with pytest.raises(SpecError, match=code):
            sources.replay(topic, servers=kafka.bootstrap, start=start)
    with pytest.raises(SpecError, match="SOURCE_MISSING"):
        sources.replay("missing", servers=kafka.bootstrap)


def test_the_lag_of_a_query_is_reported_by_partition(
    spark: SparkSession, kafka: Broker, tmp_path: Path
) -> None:
    topic = kafka.create_topic(partitions=2)
    kafka.produce(topic, records(range(30), partition=1))
    plan = sources.replay(
        topic, servers=kafka.bootstrap, end="earliest", options={"maxOffsetsPerTrigger": "10"}
    )
    alarms: list[observe.Alarm] = []
    listener = observe.AlarmListener(observe.ConsumerLag(20, batches=1), notify=alarms.append)
    spark.streams.addListener(listener)
    try:
        batches = run_query(plan.read_stream(spark), tmp_path, TIMEOUT)
        end = time.monotonic() + 30
        while not alarms and time.monotonic() < end:
            time.sleep(0.1)
    finally:
        spark.streams.removeListener(listener)
    lags = [observe.consumer_lag(progress) for _, _, progress in batches]
    assert [{lag.partition: lag.behind for lag in found} for found in lags] == [
        {0: 0, 1: 20},
        {0: 0, 1: 10},
        {0: 0, 1: 0},
    ]
    assert [(alarm.batch, alarm.code) for alarm in alarms] == [(0, "CONSUMER_LAG")]
    assert alarms[0].culprits == (f"partition 1 of {topic}: 20 behind",)


def test_an_unreachable_broker_is_an_error(kafka: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamops.sources.kafka_replay._TIMEOUT", 0.5)
    with pytest.raises(RequirementError, match="SOURCE_UNAVAILABLE"):
        sources.replay("views", servers="127.0.0.1:1")


class _Electing:
    """A client of a real broker whose partition 0 has no leader at the first requests."""

    def __init__(self, consumer: Consumer, name: str) -> None:
        self._consumer = consumer
        self._code = getattr(KafkaError, name)
        self.requests = 0

    def get_watermark_offsets(self, partition: TopicPartition, timeout: float) -> tuple[int, int]:
        if partition.partition == 0:
            self.requests += 1
            if self.requests < 3:
                raise KafkaException(KafkaError(self._code))
        return cast("tuple[int, int]", self._consumer.get_watermark_offsets(partition, timeout))


@pytest.mark.parametrize("name", ["NOT_LEADER_FOR_PARTITION", "TOPIC_AUTHORIZATION_FAILED"])
def test_a_partition_whose_leader_is_being_elected_is_asked_again(kafka: Broker, name: str) -> None:
    topic = kafka.create_topic(partitions=2)
    kafka.produce(topic, records(range(3)))
    consumer = kafka.consumer()
    electing = _Electing(consumer, name)
    try:
        if name == "NOT_LEADER_FOR_PARTITION":
            edges = KafkaClient(electing).edges({topic: [0, 1]})
            assert sum(end for _, end in edges[topic].values()) == 3
            assert electing.requests == 3
        else:
            with pytest.raises(RequirementError, match=name):
                KafkaClient(electing).edges({topic: [0, 1]})
            assert electing.requests == 1
    finally:
        consumer.close()
