"""The rows of Kafka sources: the ranges of offsets that the micro-batches of a checkpoint planned."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamops.kernel.calls import explain_call
from streamops.kernel.parameters import require_package, require_servers
from streamops.kernel.time import Duration
from streamops.observe import conditions
from streamops.observe.plan import Piece, Prepare, Recorded, RecordedSource

_LOG = logging.getLogger("streamops.observe")
_TIMEOUT = 30  # seconds
_RECORDS = 10_000  # in a table
_WAIT = 0.05  # seconds: a call returns after it, unless it has that many records
_INSTANT = pa.timestamp("us", tz="UTC")
_COLUMNS = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", _INSTANT),
        ("timestampType", pa.int32()),
    ]
)
# Number of the type in confluent-kafka, and in Spark.
_TIMESTAMP_TYPES = {0: -1, 1: 0, 2: 1}

_NEWER = (
    "records of micro-batch {} are newer than its plan: the topic was created again, or the clock of a"
    " producer is ahead"
)

Partition = tuple[str, int]


@dataclass(frozen=True, kw_only=True)
class TopicSource(RecordedSource):
    """The topics that a Kafka source of a query read. See :func:`topics`."""

    servers: str
    client: Mapping[str, Any] = field(default_factory=dict, repr=False)

    def scan(self, recorded: Recorded, wanted: Mapping[str, Any] | None) -> Iterator[Piece]:
        """Yield the records of each micro-batch."""
        yield 0, _COLUMNS.empty_table()
        # The offset at which each micro-batch ends, by partition; the first one is where the query began.
        bounds: dict[Partition, list[int]] = {}
        for at, (start, end) in enumerate(recorded.ranges):
            first = _read_offsets(start) if start else _initial_offsets(recorded.log / "0")
            for partition, offset in _read_offsets(end).items() if end else ():
                # A partition that was added later is read from its beginning.
                ends = bounds.setdefault(partition, [first.get(partition, 0)] * (at + 1))
                ends += [offset] * (at + 2 - len(ends))
            for ends in bounds.values():
                ends += [ends[-1]] * (at + 2 - len(ends))
        unread = {partition: ends for partition, ends in bounds.items() if ends[0] < ends[-1]}
        if not unread:
            return
        consumer = self._open()
        try:
            newer = dict[str, None]()
            for at, rows in _consume(consumer, unread, recorded.notes):
                planned = pa.scalar((recorded.plan[at].planned + 1) * 1_000, _INSTANT)
                if pc.any(pc.greater(rows.column("timestamp"), planned)).as_py():
                    newer[str(recorded.plan[at].number)] = None
                yield at, rows
            recorded.note([*newer], _NEWER)
        # Its text may contain a setting.
        except _kafka().KafkaException as error:
            names = ", ".join(sorted({topic for topic, _ in unread}))
            got = f"{error.args[0].name()} ({names})"
            raise conditions.TOPIC_UNREADABLE.error(got=got) from None
        finally:
            consumer.close()

    def _open(self) -> Any:
        own = {
            "bootstrap.servers": self.servers,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
        # Spark's default.
        defaults = {
            "group.id": "streamops-explain",
            "isolation.level": "read_uncommitted",
            "logger": _LOG,
        }
        try:
            return _kafka().Consumer({**defaults, **self.client, **own})
        except _kafka().KafkaException as error:
            raise conditions.NOT_A_CLIENT_SETTING.error(
                got=f"settings {', '.join(self.client)} ({error.args[0].name()})"
            ) from None


@explain_call("observe.topics")
def topics(
    servers: str,
    *,
    client: Mapping[str, Any] | None = None,
    prepare: Prepare | None = None,
    watermark: Duration | None = None,
    number: int | None = None,
) -> RecordedSource:
    """The topics that a Kafka source of a query read: the offsets of each micro-batch in its checkpoint.

    Only these ranges are read, and nothing is committed. A note names the offsets that the brokers have
    deleted since.

    Parameters
    ----------
    servers : str
        Addresses of brokers, as in ``kafka.bootstrap.servers``.
    client : mapping, optional
        Further settings of the client, by the names of librdkafka, such as ``sasl.username``; and
        ``isolation.level``, if that of the query is not Spark's default "read_uncommitted".
    prepare : callable, optional
        From a Table with the columns of Spark's Kafka source to the input of the operator: what the query
        does between the source and the operator, row by row.
    watermark : duration, optional
        The delay of ``withWatermark`` on the frame before the operator, if it has one.
    number : int, optional
        Number of the source in the query. By default, inputs of the operator are sources 0 and 1.

    Returns
    -------
    RecordedSource

    Raises
    ------
    SpecError
        ``INVALID_PARAMETER`` or ``PARAMETER_TYPE``.
    RequirementError
        ``PACKAGE_MISSING``: ``pip install 'streamops[kafka]'``.

    Examples
    --------
    >>> from streamops import observe
    >>> views = observe.topics("localhost:9092")

    See Also
    --------
    explain : replay one key of a query.
    """
    require_servers(servers)
    _kafka()
    return TopicSource(
        servers=servers, client=dict(client or {}), prepare=prepare, watermark=watermark, number=number
    )  # fmt: skip


def _kafka() -> Any:
    return require_package("confluent_kafka", package="confluent-kafka", extra="kafka")


def _read_offsets(offset: str) -> dict[Partition, int]:
    return {
        (topic, int(number)): int(at)
        for topic, partitions in json.loads(offset).items()
        for number, at in partitions.items()
    }


def _initial_offsets(file: Path) -> dict[Partition, int]:
    """Where a query began; empty if the checkpoint does not have that any more."""
    # A byte before it lets Spark 2.1 refuse the file.
    content = file.read_bytes().lstrip(b"\0").decode() if file.is_file() else ""
    return _read_offsets(content.partition("\n")[2] or "{}")


def _consume(
    consumer: Any, bounds: Mapping[Partition, list[int]], notes: list[str]
) -> Iterator[Piece]:
    kafka, starts = _kafka(), []
    unfinished = set(bounds)
    for topic, partition in sorted(bounds):
        first, last = bounds[topic, partition][0], bounds[topic, partition][-1]
        edges = consumer.get_watermark_offsets(
            kafka.TopicPartition(topic, partition), timeout=_TIMEOUT
        )
        earliest, end = edges if edges is not None else (first, last)
        removed = [(first, min(earliest, last))] if earliest > first else []
        removed += [(max(first, end), last)] if end < last else []
        for since, until in removed:
            why = ": it was created again, or has lost them" if until > end else ""
            notes.append(f"the topic {topic} does not have offsets {since} to {until - 1} of partition {partition}"
                         f" any more{why}")  # fmt: skip
        if earliest >= last or end <= first:
            unfinished.discard((topic, partition))
        else:
            starts.append(kafka.TopicPartition(topic, partition, max(first, earliest)))
    consumer.assign(starts)
    deadline = time.monotonic() + _TIMEOUT
    while unfinished:
        found = list[Any]()
        for message in consumer.consume(_RECORDS, timeout=_WAIT):
            deadline = time.monotonic() + _TIMEOUT
            at, error = (message.topic(), message.partition()), message.error()
            if error is not None and error.code() != kafka.KafkaError._PARTITION_EOF:
                raise kafka.KafkaException(error)
            if error is not None or message.offset() >= bounds[at][-1] - 1:
                unfinished.discard(at)
            if error is None and message.offset() < bounds[at][-1]:
                found.append(message)
        yield from _split(found, bounds)
        if time.monotonic() > deadline:
            raise conditions.TOPIC_UNREADABLE.error(got="no answer in time")


def _split(found: Sequence[Any], bounds: Mapping[Partition, list[int]]) -> Iterator[Piece]:
    """The records as tables by micro-batch."""
    by_partition: dict[Partition, list[Any]] = {}
    for message in found:
        by_partition.setdefault((message.topic(), message.partition()), []).append(message)
    for (topic, partition), messages in by_partition.items():
        stamps = [message.timestamp() for message in messages]
        offsets = np.array([message.offset() for message in messages], np.int64)
        millis = pa.array([stamp for _, stamp in stamps], pa.int64())
        columns = [
            pa.array([message.key() for message in messages], pa.binary()),
            pa.array([message.value() for message in messages], pa.binary()),
            pa.array([topic] * len(messages)),
            pa.array(np.full(len(messages), partition, np.int32)),
            pa.array(offsets),
            millis.cast(pa.timestamp("ms")).cast(_INSTANT),
            pa.array([_TIMESTAMP_TYPES[type_] for type_, _ in stamps], pa.int32()),
        ]
        table = pa.table(columns, schema=_COLUMNS)
        numbers = np.searchsorted(bounds[topic, partition][1:], offsets, side="right")
        for number in np.unique(numbers):
            yield int(number), table.filter(pa.array(numbers == number))
