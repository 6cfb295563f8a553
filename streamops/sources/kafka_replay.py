"""Plan to read a range of Kafka topics, and to go on with the records that follow it."""

from __future__ import annotations

import datetime as dt
import json
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, Literal

from pyspark.sql import DataFrame, SparkSession

from streamops.kernel.calls import explain_call
from streamops.kernel.errors import RequirementError, located_methods
from streamops.kernel.parameters import parse_distinct_names, require_servers, require_topic
from streamops.kernel.time import parse_instant
from streamops.sources import conditions

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


Since = Literal["end", "start"]
Edge = Literal["earliest", "latest"]

_EARLIEST = -2  # Spark's number for the first offset of a partition
_OWN_OPTIONS = {
    *("subscribe", "subscribepattern", "assign", "kafka.bootstrap.servers"),
    *("kafka.isolation.level", "startingoffsets", "endingoffsets", "startingtimestamp"),
    *("endingtimestamp", "startingoffsetsbytimestamp", "endingoffsetsbytimestamp"),
}


@located_methods("sources.KafkaReplay")
@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaReplay:
    """A range of Kafka topics, and Spark's options to read it and what follows it.

    :func:`replay` creates it. The offsets are fixed: every reader of the range, and of what follows
    it, gets the same records, whenever it starts.

    Parameters
    ----------
    servers : str
        Addresses of brokers.
    start, end : mapping of str to mapping of int to int
        By topic and partition: the first offset of the range, and the first one after it.
    isolation : "read_committed" or "read_uncommitted"
        Whether records of transactions are read only after their commit.
    options, client : mapping of str to str
        Further options of Spark, and settings of the client that looks up partitions. Not in the
        ``repr``: they may contain credentials.

    Examples
    --------
    >>> plan = KafkaReplay(
    ...     servers="localhost:9092", start={"views": {0: 0}}, end={"views": {0: 7}}
    ... )
    >>> plan.batch_options()["endingOffsets"]
    '{"views": {"0": 7}}'
    """

    servers: str
    start: Offsets
    end: Offsets
    isolation: Isolation = "read_committed"
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    client: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        """Refuse a range that cannot be one, such as one whose numbers were stored as text."""
        started, ended = _partitions(self.start), _partitions(self.end)
        numbers = [
            n for of in (self.start, self.end) for at in of.values() for n in chain(*at.items())
        ]
        if not started or started != ended or not all(type(n) is int and n >= 0 for n in numbers):
            raise conditions.PARTITIONS_DIFFER.error(got=f"start={self.start!r}, end={self.end!r}")

    @property
    def topics(self) -> tuple[str, ...]:
        """Names of the topics."""
        return tuple(self.start)

    def batch_options(self) -> dict[str, str]:
        """The options of ``spark.read.format("kafka")`` for the range.

        They name the partitions, so a partition that was added since is not part of the range.
        """
        return {
            **self._common_options(),
            "assign": json.dumps(_partitions(self.start)),
            "startingOffsets": _to_json(self.start),
            "endingOffsets": _to_json(self.end),
        }

    @explain_call("KafkaReplay.stream_options")
    def stream_options(self, *, since: Since = "end") -> dict[str, str]:
        """The options of ``spark.readStream.format("kafka")`` for the records that follow.

        A partition that was added since the plan is read from its beginning. Spark uses the offsets
        in the first micro-batch of a new checkpoint only.

        Parameters
        ----------
        since : "end" or "start"
            "end": the stream continues where the range ends. "start": the stream reads the range, too,
            and then continues; use it for operators with state, whose state is that of the query.

        Raises
        ------
        SpecError
            ``UNKNOWN_CHOICE``, or ``SOURCE_MISSING``.
        RequirementError
            ``PACKAGE_MISSING`` or ``SOURCE_UNAVAILABLE``.
        """
        known = self.start if since == "start" else self.end
        with open_client(self.servers, self.isolation, self.client) as client:
            partitions = client.partitions(self.topics)
        starting = {
            topic: {number: known[topic].get(number, _EARLIEST) for number in numbers}
            for topic, numbers in partitions.items()
        }
        return {
            **self._common_options(),
            "subscribe": ",".join(self.topics),
            "startingOffsets": _to_json(starting),
        }

    def read(self, spark: SparkSession) -> DataFrame:
        """The records of the range, as a batch frame of Spark's Kafka source."""
        return spark.read.format("kafka").options(**self.batch_options()).load()

    def read_stream(self, spark: SparkSession, *, since: Since = "end") -> DataFrame:
        """The records that follow, as a streaming frame; see :meth:`stream_options`."""
        options = self.stream_options(since=since)
        return spark.readStream.format("kafka").options(**options).load()

    def _common_options(self) -> dict[str, str]:
        servers = {"kafka.bootstrap.servers": self.servers, "kafka.isolation.level": self.isolation}
        return {**self.options, **servers}


def replay(
    topics: str | Sequence[str],
    *,
    servers: str,
    start: Edge | dt.datetime | Offsets = "earliest",
    end: Edge | dt.datetime | Offsets = "latest",
    isolation: Isolation = "read_committed",
    options: Mapping[str, str] | None = None,
    client: Mapping[str, Any] | None = None,
) -> KafkaReplay:
    """Plan to read a range of Kafka topics, and to go on with the records that follow it.

    Offsets are looked up once. The range is ``[start, end)`` in each partition, and the stream that
    follows starts at `end`: together they have every record from `start` on exactly once, while
    producers write, and if partitions are added. Use it to backfill a table from the history of a topic.

    Parameters
    ----------
    topics : str or sequence of str
        Names of topics.
    servers : str
        Addresses of brokers, as in ``kafka.bootstrap.servers``.
    start, end : "earliest", "latest", aware datetime, or mapping
        A timestamp is the first offset whose record has this timestamp or a later one, in each
        partition. A mapping has the offset of every partition by topic: ``{"views": {0: 17, 1: 4}}``.
        "latest" is the end of the committed records: before the first transaction that is open.
    isolation : "read_committed" or "read_uncommitted"
        Whether records of transactions are read only after their commit. Spark's default is
        "read_uncommitted", with which records of aborted transactions count.
    options : mapping of str to str, optional
        Further options of Spark's Kafka source, such as ``kafka.security.protocol`` or
        ``maxOffsetsPerTrigger``.
    client : mapping, optional
        Further settings of the client that looks up the offsets, by the names of librdkafka, such as
        ``sasl.username``.

    Returns
    -------
    KafkaReplay
        The range, with Spark's options and frames.

    Raises
    ------
    SpecError
        A parameter is out of range; ``SOURCE_MISSING``; ``INVALID_PARAMETER`` or
        ``PARAMETER_OUT_OF_RANGE``: a mapping does not suit the topic.
    RequirementError
        ``PACKAGE_MISSING``: ``pip install 'streamops[kafka]'``. ``SOURCE_UNAVAILABLE``: no broker
        answers, or it refuses.

    Examples
    --------
    >>> from streamops import sources
    >>> plan = sources.replay("views", servers="localhost:9092")
    >>> history, live = plan.read(spark), plan.read_stream(spark)

    Notes
    -----
    Timestamps of records need not ascend: a range by timestamps is a range of offsets, and may contain
    records with other timestamps.

    See Also
    --------
    kafka_events : parse the records.
    streamops.observe.ConsumerLag : alarm if a query falls behind.

    References
    ----------
    Kreps: "Questioning the Lambda Architecture", 2014: reprocess by a second reader of the log.
    """
    names = parse_distinct_names(topics, parameter="topics")
    for name in names:
        require_topic(name, parameter="topics")
    require_servers(servers)
    further = dict(options or {})
    taken = sorted(name for name in further if name.lower() in _OWN_OPTIONS)
    if taken:
        raise conditions.OPTION_TAKEN.error(got=", ".join(taken))
    bounds = [_parse_bound(start, "start"), _parse_bound(end, "end")]
    with open_client(servers, isolation, client or {}) as found:
        edges = found.edges(found.partitions(names))
        starting, ending = (bound(found, edges) for bound in bounds)
    # With timestamps and without records between them, both are the same offset.
    clipped = {
        topic: {number: min(offset, ending[topic][number]) for number, offset in offsets.items()}
        for topic, offsets in starting.items()
    }
    return KafkaReplay(
        servers=servers,
        start=clipped,
        end=ending,
        isolation=isolation,
        options=further,
        client=dict(client or {}),
    )


def _parse_bound(value: Any, parameter: str) -> Callable[[KafkaClient, Edges], Offsets]:
    """A function that looks up the offset of a bound in each partition."""
    if isinstance(value, dt.datetime):
        micros = parse_instant(value, parameter=parameter)
        return lambda client, edges: client.at_time(edges, micros)
    if isinstance(value, Mapping):
        return lambda client, edges: _check_offsets(value, edges, parameter)
    if value not in ("earliest", "latest"):
        raise conditions.NOT_A_BOUND.error(parameter=parameter, got=f"{parameter}={value!r}")
    side = ("earliest", "latest").index(value)
    return lambda client, edges: {
        topic: {number: pair[side] for number, pair in found.items()}
        for topic, found in edges.items()
    }


def _check_offsets(given: Mapping[Any, Any], edges: Edges, parameter: str) -> Offsets:
    """The offsets, if there is one for each partition, within the partition."""
    wanted = {topic: sorted(found) for topic, found in edges.items()}
    partitions = {t: sorted(of) if isinstance(of, Mapping) else of for t, of in given.items()}
    if partitions != wanted:
        raise conditions.OFFSETS_INCOMPLETE.error(
            parameter=parameter, partitions=wanted, got=partitions
        )
    for topic, offsets in given.items():
        for number, offset in offsets.items():
            first, latest = edges[topic][number]
            if type(offset) is not int or not first <= offset <= latest:
                raise conditions.OFFSET_OUT_OF_RANGE.error(
                    parameter=parameter,
                    partition=number,
                    topic=topic,
                    first=first,
                    latest=latest,
                    got=offset,
                )
    return {topic: dict(offsets) for topic, offsets in given.items()}


def _partitions(offsets: Offsets) -> dict[str, list[int]]:
    """The partitions of each topic."""
    return {topic: sorted(of) for topic, of in offsets.items()}


def _to_json(offsets: Offsets) -> str:
    return json.dumps({t: {str(n): o for n, o in sorted(of.items())} for t, of in offsets.items()})
