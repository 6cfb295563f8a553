"""The broker of the tests: transactions, and a crash."""

from __future__ import annotations

import pytest

from tests.kafka.broker import Broker, running


@pytest.mark.smoke
def test_records_of_an_aborted_transaction_are_not_committed(kafka: Broker) -> None:
    topic = kafka.create_topic(partitions=2)
    producer = kafka.producer(transactional_id=topic)
    producer.init_transactions()
    for value, is_committed in (("1", True), ("2", False), ("3", True)):
        producer.begin_transaction()
        producer.produce(topic, key="k", value=value)
        producer.flush()  # or an abort would drop it before it is sent
        producer.commit_transaction() if is_committed else producer.abort_transaction()
    assert [record.value() for record in kafka.read(topic)] == [b"1", b"3"]
    uncommitted = kafka.read(topic, isolation_level="read_uncommitted")
    assert [record.value() for record in uncommitted] == [b"1", b"2", b"3"]


def test_a_killed_broker_starts_again_on_the_same_data(kafka: Broker) -> None:
    with running() as broker:
        topic = broker.create_topic(partitions=2)
        broker.produce(topic, [{"value": "before", "partition": 1}])
        first = broker.pid
        broker.kill()
        broker.start()
        broker.produce(topic, [{"value": "after", "partition": 1}])
        assert broker.pid != first
        found = [(r.partition(), r.offset(), r.value()) for r in broker.read(topic)]
        assert found == [(1, 0, b"before"), (1, 1, b"after")]
