"""The ledgers of the Kafka sinks: compacted topics."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from streamops.kernel.parameters import require_package

_CONFIG = {"cleanup.policy": "compact", "segment.ms": "3600000"}


class Topic(NamedTuple):
    """The identifier of a topic, and the number of its partitions."""

    id: str
    partitions: int


class LedgerTopic:
    """A topic with the entries of sinks.

    Parameters
    ----------
    name : str
        Name of the topic.
    settings : mapping of str to str
        Settings of the client.
    timeout : float
        Seconds, for a request that has a deadline.
    """

    def __init__(self, name: str, settings: Mapping[str, Any], timeout: float) -> None:
        self.name, self._settings, self._timeout = name, settings, timeout

    def committed_records(self, *, wait: bool, partition: int = 0, start: int = 0) -> Iterator[Any]:
        """The committed records from an offset up to the present end.

        If a transaction is open: waits until it ends, or yields None at the end.
        """
        end = self._end(require_client().IsolationLevel.READ_UNCOMMITTED, partition)
        return self._records(start, end, partition, isolation="read_committed", wait=wait)

    def open_records(self) -> Iterator[Any]:
        """The records of transactions that are open, and those after the first of them."""
        levels = require_client().IsolationLevel
        start, end = self._end(levels.READ_COMMITTED), self._end(levels.READ_UNCOMMITTED)
        return self._records(start, end, 0, isolation="read_uncommitted", wait=True)

    def create(self, partitions: int = 1) -> None:
        """Create the topic, unless another sink does it at the same time."""
        admin_client = require_client("confluent_kafka.admin")
        new = admin_client.NewTopic(self.name, partitions, config=_CONFIG)
        client = require_client()
        try:
            with self._admin() as admin:
                admin.create_topics([new])[self.name].result(self._timeout)
        except client.KafkaException as error:
            if error.args[0].code() != client.KafkaError.TOPIC_ALREADY_EXISTS:
                raise

    def require_partitions(self, partitions: int) -> None:
        """Create the topic, or add partitions to it."""
        found = self.describe([self.name])
        if self.name not in found:
            self.create(partitions)
        elif found[self.name].partitions < partitions:
            new = require_client("confluent_kafka.admin").NewPartitions(self.name, partitions)
            with self._admin() as admin:
                admin.create_partitions([new])[self.name].result(self._timeout)

    def describe(self, topics: Sequence[str]) -> dict[str, Topic]:
        """The topics that exist. Asking for them does not create them."""
        client = require_client()
        wanted = client.TopicCollection(list(topics))
        existing = {}
        with self._admin() as admin:
            found = admin.describe_topics(wanted, request_timeout=self._timeout)
            for topic, future in found.items():
                try:
                    described = future.result(self._timeout)
                except client.KafkaException as error:
                    if error.args[0].code() != client.KafkaError.UNKNOWN_TOPIC_OR_PART:
                        raise
                else:
                    existing[topic] = Topic(str(described.topic_id), len(described.partitions))
        return existing

    def read_setting(self, name: str) -> str | None:
        """A setting of the topic; None if the user may not read it."""
        client, admins = require_client(), require_client("confluent_kafka.admin")
        resource = admins.ConfigResource(admins.ResourceType.TOPIC, self.name)
        with self._admin() as admin:
            found = admin.describe_configs([resource], request_timeout=self._timeout)[resource]
            try:
                return str(found.result(self._timeout)[name].value)
            except client.KafkaException as error:
                if error.args[0].code() != client.KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    raise
                return None

    @contextmanager
    def _admin(self) -> Iterator[Any]:
        admin = require_client("confluent_kafka.admin").AdminClient(self._settings)
        try:
            yield admin
        finally:
            admin.poll(0)  # writes what the client logged

    def _end(self, isolation: Any, number: int = 0) -> int:
        """The offset after all records, or of the first one that is not committed."""
        if self.name not in self.describe([self.name]):
            return 0
        partition = require_client().TopicPartition(self.name, number)
        latest = {partition: require_client("confluent_kafka.admin").OffsetSpec.latest()}
        options = {"request_timeout": self._timeout, "isolation_level": isolation}
        with self._admin() as admin:
            return int(admin.list_offsets(latest, **options)[partition].result().offset)

    def _records(
        self, start: int, end: int, partition: int, *, isolation: str, wait: bool
    ) -> Iterator[Any]:
        """The records between two offsets, as far as the isolation allows to read them."""
        if start >= end:
            return
        client = require_client()
        consumer = client.Consumer(
            {
                **self._settings,
                "group.id": "streamops",  # required, and not used
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 10,
                "isolation.level": isolation,
            }
        )
        try:
            # A client that knows the leader reads at once, and not half a second later.
            consumer.list_topics(self.name, self._timeout)
            start = start or client.OFFSET_BEGINNING  # the first one is higher after a compaction
            consumer.assign([client.TopicPartition(self.name, partition, start)])
            deadline = time.monotonic() + self._timeout
            while time.monotonic() < deadline:
                for message in consumer.consume(10_000, timeout=0.01):
                    error = message.error()
                    if error is None:
                        yield message
                    elif error.code() != client.KafkaError._PARTITION_EOF:
                        raise client.KafkaException(error)
                    elif message.offset() >= end:
                        return
                    elif not wait:
                        yield None
                        return
        finally:
            consumer.close()
        message = f"the transaction of another sink in {self.name!r} does not end"
        raise client.KafkaException(client.KafkaError(client.KafkaError._TIMED_OUT, message))


def require_client(module: str = "confluent_kafka") -> Any:
    """Import a module of the client, which is an extra."""
    return require_package(module, package="confluent-kafka", extra="kafka")
