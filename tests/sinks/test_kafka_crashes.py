"""The driver of a Kafka sink crashes at each step of a micro-batch, without Spark: records are there once."""

from __future__ import annotations

import gc
import uuid
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from streamops import sinks
from streamops.sinks.core.kafka_records import KEY, VALUE
from tests.kafka.broker import Broker
from tests.sinks.contract import RUN, run_of

pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")

STEPS = [("produce", "after"), ("commit", "before"), ("commit", "after")]
"""Functions of the writer: with the records, with the entry of the ledger, and with the commit of both."""


class Crash(Exception):
    """The driver ends here."""


def planted(function: Callable[..., Any], when: str) -> Callable[..., Any]:
    def crash(*arguments: Any, **named: Any) -> Any:
        if when == "after":
            function(*arguments, **named)
        raise Crash

    return crash


def leave_open(_: Any) -> None:
    """A driver that was killed does not end its transaction."""


@pytest.mark.smoke
def test_a_micro_batch_whose_driver_crashed_is_in_the_topic_once(kafka: Broker) -> None:
    from streamops.sinks.kafka_writer import Writer

    topic, ledger = kafka.create_topic(partitions=2), f"ledger-{uuid.uuid4().hex}"

    def deliver(batch: int, run: int) -> None:
        sink = sinks.kafka(topic, servers=kafka.bootstrap, key="k", ledger=ledger)
        names = [f"{batch} {row}" for row in range(3)]
        keys, values = ([f'{{"{c}": "{name}"}}' for name in names] for c in "kv")
        rows = pa.table({"k": names, "revision": [0] * 3, KEY: keys, VALUE: values})
        sink._deliver_rows(rows, batch, run_of(run))

    assert run_of(1) == RUN
    deliver(0, 1)
    for batch, (function, when) in enumerate(STEPS, start=1):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Writer, "close", leave_open)
            patch.setattr(Writer, function, planted(getattr(Writer, function), when))
            with pytest.raises(Crash):
                deliver(batch, 2 * batch)
        gc.collect()  # the producer of the crashed driver, which a traceback refers to
        found = [record.value().decode() for record in kafka.read(topic)]
        written = batch + ((function, when) == ("commit", "after"))
        assert len(found) == len(set(found)) == 3 * written, (function, when)
        deliver(batch, 2 * batch + 1)
        found = [record.value().decode() for record in kafka.read(topic)]
        assert sorted(found) == sorted(
            f'{{"v": "{number} {row}"}}' for number in range(batch + 1) for row in range(3)
        ), (function, when)
    entry = sinks.kafka(topic, servers=kafka.bootstrap, ledger=ledger).read_ledger()
    assert entry is not None
    assert entry.batch == len(STEPS)
