"""What the brokers of Kafka retain of the topics of a query, and progress as a consumer group."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from streamops.kernel.calls import explain_call
from streamops.kernel.parameters import require_package, require_servers
from streamops.kernel.time import Duration, parse_duration
from streamops.observe import conditions
from streamops.observe.core.progress import Loss, Progress
from streamops.observe.core.retention import Partition, Retention, Standing
from streamops.observe.progress import read_progress

_LOG = logging.getLogger("streamops.observe")
_TIMEOUT = 10  # seconds
_QUERIES = 100
_SAMPLE = 100  # records
# Of a record in the log, besides its key, its value and its headers; of its batch nothing.
_RECORD_BYTES = 10

Positions = Mapping[tuple[str, int], int]
"""The next offset of a query, by topic and partition."""


def _open(servers: str, client: Mapping[str, Any] | None) -> tuple[Any, Any, dict[str, Any]]:
    """The module for admin clients, one of these, and its settings.

    Raises
    ------
    SpecError
        ``INVALID_PARAMETER``.
    RequirementError
        ``PACKAGE_MISSING``.
    """
    require_servers(servers)
    kafka = require_package("confluent_kafka.admin", package="confluent-kafka", extra="kafka")
    settings = {**dict(client or {}), "bootstrap.servers": servers, "logger": _LOG}
    try:
        return kafka, kafka.AdminClient(settings), settings
    # Its text may have a value.
    except Exception as error:
        raise conditions.NOT_A_CLIENT_SETTING.error(
            got=f"settings {', '.join(client or {})} ({type(error).__name__})"
        ) from None


def _name(error: Exception) -> str:
    """An error without its text, which may contain settings."""
    from confluent_kafka import KafkaException

    return str(error.args[0].name()) if isinstance(error, KafkaException) else type(error).__name__


def _positions(progress: Progress) -> dict[tuple[str, int], int]:
    """The least next offset of each partition: a query may read a topic twice."""
    found: dict[tuple[str, int], int] = {}
    for topic, partition, offset in (at for source in progress.sources for at in source.offsets):
        found[topic, partition] = min(offset, found.get((topic, partition), offset))
    return found


class KafkaRetention:
    """What the brokers delete of the topics of a query, compared with where the query is.

    Pass it to `AlarmListener`, with the rule `DataLoss`, and to `PrometheusListener` or
    `OpenTelemetryListener`, one object for all. From two observations on it computes when a partition loses
    records that the query has not read, if the query and the producers go on as in the last 60
    observations. It is the earliest of three instants: when the next record is older than
    ``retention.ms``; when the lag is more than ``retention.bytes``; and when the first offset, as it
    advances, reaches the query.

    Parameters
    ----------
    servers : str
        Addresses of brokers, as in ``kafka.bootstrap.servers``.
    client : mapping, optional
        Further settings of the client, by the names of librdkafka, such as ``sasl.username``. The user
        may describe and read the topics.
    refresh : duration
        How often the brokers are asked for a query, at most.

    Raises
    ------
    SpecError
        ``INVALID_PARAMETER``, or a duration that is not one.
    RequirementError
        ``PACKAGE_MISSING``: ``pip install 'streamops[kafka]'``.

    Examples
    --------
    >>> from streamops import observe
    >>> retention = observe.KafkaRetention("localhost:9092")
    >>> alarms = observe.AlarmListener(observe.DataLoss("3 hours"), retention=retention)
    >>> spark.streams.addListener(alarms)

    Notes
    -----
    The brokers are asked in the thread that delivers the progress, for ten seconds at most. If they do
    not answer, this is logged, and the last answer counts.

    See Also
    --------
    ConsumerLag : alarm if a query falls behind, without asking the brokers.
    """

    @explain_call("observe.KafkaRetention")
    def __init__(
        self,
        servers: str,
        *,
        client: Mapping[str, Any] | None = None,
        refresh: Duration = "10 seconds",
    ) -> None:
        self._refresh = parse_duration(refresh, parameter="refresh") / 1e6
        self._servers = servers
        self._kafka, self._admin, self._settings = _open(servers, client)
        self._lock = threading.Lock()
        self._answers: dict[str, tuple[float, tuple[Loss, ...]]] = {}  # the latest query last
        self._partitions: dict[str, dict[tuple[str, int], Partition]] = {}

    def __repr__(self) -> str:
        return f"observe.KafkaRetention({self._servers!r})"

    def look_up(self, progress: Progress) -> Progress:
        """The progress, with the losses that are to be expected."""
        positions = _positions(progress)
        if not positions:
            return progress
        with self._lock:
            answered, losses = self._answers.get(progress.query, (None, ()))
            if answered is None or time.monotonic() - answered >= self._refresh:
                try:
                    losses = self._forecast(progress.query, positions)
                except Exception as error:
                    _LOG.warning("the retention of topics could not be read: %s", _name(error))
                self._answers.pop(progress.query, None)
                self._answers[progress.query] = time.monotonic(), losses
                if len(self._answers) > _QUERIES:
                    oldest = next(iter(self._answers))
                    del self._answers[oldest]
                    self._partitions.pop(oldest, None)
        return replace(progress, losses=losses)

    def _forecast(self, query: str, positions: Positions) -> tuple[Loss, ...]:
        standings = self._standings(positions)
        retained = self._retained({topic for topic, _ in positions})
        before = self._partitions.get(query, {})
        found = self._partitions[query] = {at: before.get(at) or Partition() for at in standings}
        losses = []
        for (topic, number), partition in found.items():
            partition.add(standings[topic, number])
            forecast = partition.forecast(retained[topic])
            if forecast is not None:
                losses.append(Loss(topic, number, *forecast))
        return tuple(losses)

    def _retained(self, topics: set[str]) -> dict[str, Retention]:
        resource = self._kafka.ConfigResource
        wanted = [resource(resource.Type.TOPIC, topic) for topic in topics]
        found = {}
        futures = self._admin.describe_configs(wanted, request_timeout=_TIMEOUT)
        for described, future in futures.items():
            config = {name: entry.value for name, entry in future.result().items()}
            millis, size = int(config["retention.ms"]), int(config["retention.bytes"])
            if "delete" not in config["cleanup.policy"]:
                millis = size = -1
            found[described.name] = Retention(
                millis * 1_000 if millis >= 0 else None, size if size >= 0 else None
            )
        return found

    def _standings(self, positions: Positions) -> dict[tuple[str, int], Standing]:
        from confluent_kafka import TopicPartition

        edges, spec = [], self._kafka.OffsetSpec
        for edge in (spec.earliest(), spec.latest()):
            wanted = {TopicPartition(*at): edge for at in positions}
            futures = self._admin.list_offsets(wanted, request_timeout=_TIMEOUT)
            edges.append({(at.topic, at.partition): f.result().offset for at, f in futures.items()})
        earliest, latest = edges
        behind = {at: n for at, n in positions.items() if earliest[at] <= n < latest[at]}
        sampled = self._sample(behind) if behind else {}
        now = time.time_ns() // 1_000
        return {
            at: Standing(now, n, earliest[at], latest[at], *sampled.get(at, ()))
            for at, n in positions.items()
        }

    def _sample(self, positions: Positions) -> dict[tuple[str, int], tuple[int | None, float]]:
        """The timestamp of the next record of each partition, and the mean size of the next ones."""
        from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Consumer, TopicPartition

        own = {"group.id": "streamops-observe", "enable.auto.commit": False}
        own["auto.offset.reset"] = "error"
        consumer = Consumer({**self._settings, **own})
        records: dict[Any, list[Any]] = {}
        end = time.monotonic() + _TIMEOUT
        try:
            consumer.assign([TopicPartition(*at, offset) for at, offset in positions.items()])
            while len(records) < len(positions) and time.monotonic() < end:
                for record in consumer.consume(_SAMPLE, timeout=0.2):
                    if record.error() is None:
                        records.setdefault((record.topic(), record.partition()), []).append(record)
        finally:
            consumer.close()
        found = {}
        for at, (first, *rest) in records.items():
            clock, millis = first.timestamp()
            written = None if clock == TIMESTAMP_NOT_AVAILABLE else millis * 1_000
            sizes = [_size(record) for record in (first, *rest)]
            found[at] = written, sum(sizes) / len(sizes)
        return found


def _size(record: Any) -> int:
    parts = [record.key(), record.value()]
    parts += [part for header in record.headers() or () for part in header]
    return _RECORD_BYTES + sum(len(part) for part in parts if part is not None)


def require_retention(value: object) -> None:
    """Raise an error if the value is not a retention, nor None.

    Raises
    ------
    SpecError
        ``PARAMETER_TYPE``.
    """
    if not isinstance(value, KafkaRetention | None):
        raise conditions.NOT_A_RETENTION.error(got=f"an object of type {type(value).__name__}")


class ConsumerGroupListener(StreamingQueryListener):
    """Commits the progress of queries to consumer groups of Kafka, for Kafka's own tools.

    Spark has its offsets in its checkpoint, so the tools of Kafka see no lag. This listener commits the
    next offset of each partition to a group after each micro-batch, when the micro-batch is committed.
    Nothing reads it back: the query continues from its checkpoint.

    Parameters
    ----------
    servers : str
        Addresses of brokers, as in ``kafka.bootstrap.servers``.
    groups : mapping of str to str
        The group of each query, by the name of the query or its id. A group that no consumer has joined, and
        that no other query uses. Other queries are not committed.
    client : mapping, optional
        Further settings of the client, by the names of librdkafka. The user may read the group.

    Raises
    ------
    SpecError
        ``INVALID_PARAMETER`` or ``PARAMETER_TYPE``.
    RequirementError
        ``PACKAGE_MISSING``: ``pip install 'streamops[kafka]'``.

    Examples
    --------
    >>> from streamops import observe
    >>> listener = observe.ConsumerGroupListener("localhost:9092", {"views": "views-query"})
    >>> spark.streams.addListener(listener)

    Notes
    -----
    A commit that fails is logged, and the next micro-batch commits again. On Spark Connect the listener
    runs in the client.

    See Also
    --------
    consumer_lag : the lag of a query, from its progress.
    """

    @explain_call("observe.ConsumerGroupListener")
    def __init__(
        self, servers: str, groups: Mapping[str, str], *, client: Mapping[str, Any] | None = None
    ) -> None:
        given: Any = groups
        names = [*given.values()] if isinstance(given, Mapping) else [None]
        if not all(type(name) is str and name for name in names) or len({*names}) < len(names):
            raise conditions.NOT_GROUPS.error(got=f"groups={groups!r}")
        self._groups = dict(groups)
        _, self._admin, _ = _open(servers, client)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing: there is no progress yet."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Commit the offsets of a micro-batch."""
        # An error here would be logged by the JVM only; on Connect, it would end all listeners.
        try:
            progress = read_progress(event.progress)
            group = self._groups.get(progress.query) or self._groups.get(str(event.progress.id))
            if group is not None:
                self._commit(group, _positions(progress))
        except Exception as error:
            _LOG.warning("the progress could not be committed to its group: %s", _name(error))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing: there are no rows."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Do nothing: the group keeps its offsets."""

    def _commit(self, group: str, positions: Positions) -> None:
        from confluent_kafka import ConsumerGroupTopicPartitions, KafkaException, TopicPartition

        if not positions:
            return
        offsets = [TopicPartition(*at, offset) for at, offset in positions.items()]
        request = [ConsumerGroupTopicPartitions(group, offsets)]
        futures = self._admin.alter_consumer_group_offsets(request, request_timeout=_TIMEOUT)
        for at in futures[group].result().topic_partitions:
            if at.error is not None:
                raise KafkaException(at.error)
