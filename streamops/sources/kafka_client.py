"""Requests about the partitions and offsets of Kafka topics."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from streamops.kernel.errors import RequirementError
from streamops.sources import conditions

__all__ = ["Edges", "Isolation", "KafkaClient", "Offsets", "open_client"]

Isolation = Literal["read_committed", "read_uncommitted"]
Offsets = Mapping[str, Mapping[int, int]]
"""An offset for each partition of each topic."""

Edges = dict[str, dict[int, tuple[int, int]]]
"""By topic and partition: the first offset, and the end of the committed records."""

_LOG = logging.getLogger("streamops.sources")
"""The public function that asks."""

_TIMEOUT = 30  # seconds
# A partition, such as one of a topic that was just created, has no leader until one is elected.
_WITHOUT_LEADER = {
    *("NOT_LEADER_FOR_PARTITION", "LEADER_NOT_AVAILABLE", "OFFSET_NOT_AVAILABLE"),
    *("FENCED_LEADER_EPOCH", "UNKNOWN_LEADER_EPOCH"),
}
_PAUSE = 0.1  # seconds until a partition without a leader is asked again


@dataclass(frozen=True, slots=True)
class KafkaClient:
    """Requests to Kafka. Errors have no text of the client, which may contain settings."""

    consumer: Any

    def partitions(self, topics: Sequence[str]) -> dict[str, list[int]]:
        """The partitions of each topic."""
        found = {}
        for topic in topics:
            described = self._ask(partial(self._describe, topic))
            if described.error is not None:
                raise conditions.TOPIC_NOT_FOUND.error(topic=topic, got=topic)
            found[topic] = sorted(described.partitions)
        return found

    def edges(self, partitions: Mapping[str, Sequence[int]]) -> Edges:
        """The first offset of each partition, and the end of its committed records."""
        from confluent_kafka import TopicPartition

        ask, edges = self._ask, self.consumer.get_watermark_offsets
        return {
            topic: {n: ask(partial(edges, TopicPartition(topic, n))) for n in numbers}
            for topic, numbers in partitions.items()
        }

    def at_time(self, edges: Edges, micros: int) -> Offsets:
        """The first offset of each partition with this timestamp or a later one."""
        from confluent_kafka import TopicPartition

        millis = -(-micros // 1_000)  # Kafka's timestamps have whole milliseconds
        wanted = [TopicPartition(t, number, millis) for t in edges for number in edges[t]]
        found: dict[str, dict[int, int]] = {topic: {} for topic in edges}
        for at in self._ask(partial(self._look_up, wanted)):
            _, latest = edges[at.topic][at.partition]
            found[at.topic][at.partition] = latest if at.offset < 0 else min(at.offset, latest)
        return found

    def _describe(self, topic: str, *, timeout: float) -> Any:
        """What is known about a topic, which has an error only where there is no such topic."""
        from confluent_kafka import KafkaError, KafkaException

        found = self.consumer.list_topics(topic, timeout=timeout).topics[topic]
        errors = [found.error, *(described.error for described in found.partitions.values())]
        for error in errors:
            if error is not None and error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise KafkaException(error)
        return found

    def _look_up(self, wanted: Sequence[Any], *, timeout: float) -> Any:
        """An offset for each partition and timestamp."""
        from confluent_kafka import KafkaException

        found = self.consumer.offsets_for_times(wanted, timeout=timeout)
        for at in found:
            if at.error is not None:
                raise KafkaException(at.error)
        return found

    def _ask(self, request: Callable[..., Any]) -> Any:
        """The answer to a request, which waits for the election of leaders."""
        from confluent_kafka import KafkaException

        deadline = time.monotonic() + _TIMEOUT
        while True:
            try:
                answer = request(timeout=_TIMEOUT)
            except KafkaException as error:
                refused = error.args[0]
                if refused.name() not in _WITHOUT_LEADER or time.monotonic() > deadline:
                    raise _failed(refused) from None
                time.sleep(_PAUSE)
                continue
            if answer is None:
                raise _failed(None)
            return answer


@contextmanager
def open_client(servers: str, isolation: Isolation, settings: Mapping[str, Any]) -> Iterator[Any]:
    """A client that reads no records and commits no offsets."""
    try:
        from confluent_kafka import Consumer, KafkaException
    except ImportError as error:
        raise conditions.KAFKA_CLIENT_REQUIRED.error(got="no package confluent-kafka") from error
    own = {
        "bootstrap.servers": servers,
        "isolation.level": isolation,
        "enable.auto.commit": False,
    }
    try:
        consumer = Consumer({"group.id": "streamops-replay", "logger": _LOG, **settings, **own})
    except KafkaException as error:
        raise conditions.NOT_A_CLIENT_SETTING.error(
            got=f"settings {', '.join(settings)} ({error.args[0].name()})"
        ) from None
    try:
        yield KafkaClient(consumer)
    finally:
        consumer.close()


def _failed(error: Any) -> RequirementError:
    return conditions.KAFKA_REQUEST_FAILED.error(
        got="no answer in time" if error is None else error.name()
    )
