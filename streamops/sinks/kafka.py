"""Write micro-batches to a topic of Kafka, each exactly once."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, NamedTuple, cast

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DoubleType, FloatType, StructType

from streamops.changelog.change_types import CHANGE_TYPE
from streamops.kernel.errors import SinkError
from streamops.kernel.parameters import require_servers, require_topic
from streamops.sinks import conditions
from streamops.sinks.core.kafka_records import (
    KEY,
    VALUE,
    Envelope,
    decode_entry,
    encode_entry,
    make_records,
)
from streamops.sinks.core.ledger import (
    Action,
    Decision,
    Delivery,
    Entry,
    Location,
    NewCheckpoint,
    Repeated,
    fenced,
)
from streamops.sinks.core.net import form_of
from streamops.sinks.kafka_ledger import LedgerTopic, require_client
from streamops.sinks.kafka_partitions import PartitionedWrite, ProjectionByPartition
from streamops.sinks.kafka_writer import Writer, code_of, is_fenced
from streamops.sinks.protocol import Attempt, Content, Found, Reduced
from streamops.sinks.sink import KeyedSink, hide, parse_key, refused, unavailable
from streamops.sinks.tasks import Deliver, Projection
from streamops.spark.columns import column
from streamops.spark.json_columns import refuse_invalid_text, to_checked_json

Atomic = Literal["batch", "partition"]

_LOG = logging.getLogger("streamops.sinks")
_WHERE = "sinks.kafka"
_TIMEOUT = 60  # seconds, for a request that has a deadline
# Settings of the client that the protocol of this sink depends on.
_OWN_SETTINGS = {"bootstrap.servers", "transactional.id", "enable.idempotence", "isolation.level"}
_SECRET = re.compile(
    r"passw|passphrase|secret|key\.pem|private|token|oauthbearer\.(config|ext)|jaas"
)


def kafka(
    topic: str,
    *,
    servers: str,
    key: str | Sequence[str] | None = None,
    sequence: str | Sequence[str] | None = None,
    records: Envelope = "json",
    atomic: Atomic = "batch",
    name: str | None = None,
    ledger: str = "streamops_ledger",
    client: Mapping[str, Any] | None = None,
    new_checkpoint: Literal["refuse", "continue"] = "refuse",
    repeated: Repeated = "fail",
    checkpoint: str | None = None,
) -> KafkaSink:
    """Write micro-batches to a topic of Kafka, each exactly once.

    The records of a micro-batch and an entry in the topic `ledger` are written in one transaction of
    Kafka. Consumers that read committed records (``isolation.level=read_committed``) see each micro-batch
    once, and never a part of it.

    Input        the output of any operator: appended rows; revisions, of which the latest of a key is
                 written; change streams with a key; change streams without a key, whose rows are a
                 multiset
    Output       records with JSON in UTF-8. Key: an object with the columns of `key`. Value: an object
                 with the columns of the row, or a tombstone (null) for a key that was deleted. See
                 `records` for Debezium's envelope. Change streams without a key: rows with
                 ``_change_type`` "insert" or "delete", without a message key
    Output mode  append or update
    Watermark    none
    State        none in Spark
    Order        records of a key are in the order of micro-batches; they have the same partition
    Batch        ``sink.write(frame, query=...)``

    Parameters
    ----------
    topic : str
        Name of the topic, which must exist.
    servers : str
        Addresses of brokers, such as ``"host1:9092,host2:9092"``.
    key : str or sequence of str, optional
        Columns that identify a row. Omit it for appended rows and for multisets.
    sequence : str or sequence of str, optional
        Columns that order the rows of a key, as in ``changes.fold``. Default: "revision", if the frame has
        that column.
    records : "json" or "debezium"
        "debezium": values are envelopes with ``before``, ``after``, ``source`` and ``op``, as its JSON
        converter writes them without schemas, and a tombstone follows each delete.
    atomic : "batch" or "partition"
        What becomes visible at once. "batch": the micro-batch; one process writes it. "partition": its
        records of one partition; tasks write them, so that nothing passes through the driver.
    name : str, optional
        Name of the sink in the ledger. Default: `topic`.
    ledger : str
        A compacted topic with one partition. It is created if it does not exist.
    client : mapping of str to str, optional
        Settings of the client (librdkafka), such as ``security.protocol``, ``sasl.password``,
        ``compression.type`` or ``transaction.timeout.ms``. They are not in the ``repr``. The client logs to
        the logger "streamops.sinks" of Python's ``logging``, and not to standard error.
    new_checkpoint : "refuse" or "continue"
        What a query with another checkpoint may do. A topic cannot be emptied in a transaction, so there
        is no "replace".
    repeated : "fail" or "skip"
        What happens if a micro-batch that the topic already has arrives again with other rows. With the
        same rows it is always skipped.
    checkpoint : str, optional
        The checkpoint location of the query. Only Spark Connect needs it.

    Returns
    -------
    KafkaSink
        For use with ``DataStreamWriter.foreachBatch``.

    Raises
    ------
    SpecError
        A parameter has the wrong type or value.
    RequirementError
        ``PACKAGE_MISSING``: the extra ``kafka`` is not installed.

    Examples
    --------
    >>> from streamops import sinks
    >>> daily = sinks.kafka("daily", servers="localhost:9092", key=["page", "window_start"])
    >>> views.writeStream.foreachBatch(daily).option("checkpointLocation", path)

    Notes
    -----
    Errors while the query runs. ``SinkError``: another run, query or checkpoint writes to this topic, see
    docs/sinks.md; ``TARGET_MISSING``; ``TARGET_REFUSED``, such as for a record that is larger than the
    topic allows; ``TARGET_UNAVAILABLE``. ``ChangeStreamError``: the changes of a micro-batch contradict
    each other. In all cases no record of the micro-batch becomes visible.

    A topic is a log, which the sink does not read: unlike in tables, a change is not compared with the row
    before it in an earlier micro-batch, and of revisions in different micro-batches the last one counts.

    With ``atomic="batch"`` a micro-batch passes through the memory of the driver. A transaction must end within
    ``transaction.timeout.ms`` (default here: 5 minutes; brokers allow up to 15).

    References
    ----------
    Kleppmann: "Designing Data-Intensive Applications", chapter 11, "Atomic commit revisited".
    """
    require_client()
    return KafkaSink(
        topic=topic,
        servers=servers,
        key=parse_key(key, parameter="key"),
        sequence=parse_key(sequence, parameter="sequence"),
        records=records,
        atomic=atomic,
        name=topic if name is None else name,
        ledger=ledger,
        client=dict(client or {}),
        new_checkpoint=cast(NewCheckpoint, new_checkpoint),
        repeated=repeated,
        checkpoint=checkpoint,
    )


@dataclass(frozen=True, kw_only=True, repr=False)
class KafkaSink(KeyedSink):
    """A function that writes micro-batches, for use with ``DataStreamWriter.foreachBatch``."""

    where = _WHERE

    topic: str
    servers: str
    records: Envelope
    atomic: Atomic
    ledger: str
    client: Mapping[str, Any] = field(metadata={"shown": lambda client: repr(sorted(client))})

    def __post_init__(self) -> None:
        """Validate the parameters."""
        for parameter in ("topic", "ledger"):
            require_topic(getattr(self, parameter), parameter=parameter)
        require_servers(self.servers)
        super().__post_init__()
        if self.atomic == "partition":
            require_topic(self._partition_ledger.name, parameter="ledger")
        own = sorted(_OWN_SETTINGS & set(self.client))
        if own:
            raise conditions.OPTION_RESERVED.error(got=f"client with {', '.join(own)}")

    def _read_ledger(self) -> Entry | None:
        with self._errors():
            return _completed(self._read_entries().entry)

    def _inspect(self) -> tuple[str, Sequence[str], Entry | None]:
        with self._errors():
            entry = _completed(self._read_entries(wait=False).entry)
            self._require_location(entry, self._locate()[0])
            return f"topic {self.topic!r}", self._require_topics(create=False), entry

    def _project(self, batch: DataFrame) -> Projection:
        taken = {KEY, VALUE} & set(batch.columns)
        if taken:
            raise conditions.NAME_TAKEN.error(got=f"columns {', '.join(sorted(taken))}")
        names = [name for name in batch.columns if name != CHANGE_TYPE]
        needed = batch.columns
        if form_of(batch.columns, self.key) in {"append", "upsert"}:
            needed = [*(self.key or ()), *self._sequence_of(batch.columns)]
        as_json = {VALUE: self._to_json(batch, {name: column(name) for name in names})}
        if self.key is not None:
            self._sequence_of(batch.columns)  # refuses a key that is not there
            # Equal keys have equal text, so they are records of one key.
            dtypes = {name: batch.schema[name].dataType for name in self.key}
            keys = {name: _with_one_zero(column(name), dtypes[name]) for name in self.key}
            as_json[KEY] = self._to_json(batch, keys)
        texts = [text.alias(name) for name, text in as_json.items()]
        frame = batch.select(*map(column, dict.fromkeys(needed)), *texts)
        projection = Projection if self.atomic == "batch" else ProjectionByPartition
        return projection(frame, partial(_checked, tuple(as_json)))

    def _to_json(self, batch: DataFrame, values: Mapping[str, Column]) -> Column:
        dtype = StructType([batch.schema[name] for name in values])
        row = F.struct(*(value.alias(name) for name, value in values.items()))
        return to_checked_json(row, dtype)

    @property
    def _is_distributed(self) -> bool:
        return self.atomic == "partition"

    def _reduce(self, content: Content) -> _Content:
        # The rows of each partition have a net effect of their own.
        is_whole = self.atomic == "batch" and isinstance(content, pa.Table)
        return _Content(content, self._reduced(content) if is_whole else None)

    @contextmanager
    def _attempt(self, content: _Content, delivery: Delivery) -> Iterator[_Attempt]:
        with self._errors(delivery):
            writer, (location, partitions) = self._open(delivery), self._locate()
            yield _Attempt(self, writer, content, location, partitions)

    def _prepare(self, schema: pa.Schema, batch_id: int, action: Action) -> Deliver:
        writer = cast("Writer", self.session.connection)
        delivery = Delivery(writer.query, writer.run, batch_id, 0, 0, is_first=True)
        with self._errors(delivery):
            writer.end_parts()  # tasks fence them
            location, partitions = self._locate()
            return self._take_over(writer, delivery, location, partitions)

    def _take_over(
        self, writer: Writer, delivery: Delivery, location: Location, existing: int
    ) -> PartitionedWrite:
        """Prepare a micro-batch that is written partition by partition.

        The first one of a run takes the sink over before: a record says so to all who may still write
        for the run before, and their open transactions end.
        """
        partitions = self._partitions(writer, location, existing)
        if writer.prepared < partitions:
            self._partition_ledger.require_partitions(partitions)
            writer.prepared = partitions
        if writer.offset is None:
            before = writer.entry
            decision = self._decide(Found(before, location, writer.others), delivery)
            taken = replace(decision.entry.at(location), batch=delivery.batch - 1)
            if before is not None and before.query == delivery.query:
                taken = replace(taken, rows=before.rows, digest=before.digest)
            self._write_entry(writer, taken, partitions)
            with ThreadPoolExecutor(8) as threads:
                numbers = range(max(existing, partitions))
                list(threads.map(lambda n: self._start_producer(self._id_of_part(n)), numbers))
        assert writer.entry is not None
        assert writer.offset is not None
        return PartitionedWrite(
            sink=self,
            taken=writer.entry,
            offset=writer.offset,
            batch=delivery.batch,
            partitions=partitions,
        )

    def _partitions(self, writer: Writer, location: Location, existing: int) -> int:
        """To how many partitions a micro-batch is written one by one; 0: in one transaction.

        A part of it may be there already. So the record of the micro-batch before decides, and partitions that
        were added, or another value of `atomic`, count from the next micro-batch on.
        """
        entry = writer.entry
        found = None if entry is None else (entry.query, entry.target_id)
        if writer.partitions and found == (writer.query, location.id):
            return writer.partitions
        return self._next_partitions(existing)

    def _next_partitions(self, existing: int) -> int:
        return existing if self.atomic == "partition" else 0

    def _write_entry(self, writer: Writer, entry: Entry, partitions: int) -> None:
        """Commit an entry, in the transaction that is open or in a new one."""
        if not writer.is_open:
            writer.begin()
        writer.finish(self.ledger, encode_entry(entry, partitions), self.name)
        writer.entry, writer.partitions = entry, partitions

    def _open(self, delivery: Delivery) -> Writer:
        """Return the producer of this run. No other producer of the run writes at the same time."""
        writer = cast("Writer | None", self.session.connection)
        if writer is not None and (writer.query, writer.run) == (delivery.query, delivery.run):
            return writer
        self.session.close()
        found = self._read_entries(wait=False)
        before = found.entry
        # A delivery that is refused must not fence the run that writes. An open transaction may hide a
        # newer entry; then the decision is made below only.
        if found.is_complete:
            known = delivery
            if before is not None and self._is_distributed:  # the rows may not be computed yet
                known = replace(delivery, rows=before.rows, digest=before.digest)
            self._decide(Found(before, self._locate()[0], found.others), known)
        else:
            self._end_left_over_transactions(delivery)
        self._require_topics()
        if before is not None:
            self._fence_writer(before, unless=delivery.query)
        # All queries that find no entry have one identifier: the last one of them ends the others.
        identifier = self._id(None if before is None else delivery.query)
        writer = Writer(delivery.query, delivery.run, self._start_producer(identifier))
        self.session.connection = writer
        # What another run has committed in the meantime counts. From now on, none can.
        found = self._read_entries()
        writer.entry, writer.others, writer.partitions = found[:3]
        if before is None and writer.entry is not None:
            self.session.close()
            return self._open(delivery)
        return writer

    def _end_left_over_transactions(self, delivery: Delivery) -> None:
        """End the open transactions of other runs of this query, also those of its other sinks.

        A driver that crashed in the transaction of one sink would otherwise delay all sinks that share the
        ledger until the transaction times out.
        """
        left_over = {}
        for message in self._ledger.open_records():
            with suppress(ValueError):  # what somebody else writes
                entry, _ = decode_entry(message.value() or b"")
                if entry.query == delivery.query and entry.run != delivery.run:
                    left_over[(message.key() or b"").decode()] = entry
        for name, entry in left_over.items():
            self._fence_writer(entry, name)

    def _id(self, query: str | None, name: str | None = None) -> str:
        """The identifier of the producers of a sink and query. The first run of a sink has no query in it."""
        return f"streamops sink {name or self.name}" + (f" of {query}" if query else "")

    def _id_of_part(self, partition: int) -> str:
        """The identifier of the producers of a partition, of all queries."""
        return f"streamops partition {partition} of sink {self.name}"

    def _start_producer(self, identifier: str) -> Any:
        """A producer that fences all others of its identifier, and ends their transactions."""
        settings = {**self._producer_settings, "transactional.id": identifier}
        producer = require_client().Producer(settings)
        producer.init_transactions(_TIMEOUT)
        return producer

    @property
    def _producer_settings(self) -> dict[str, Any]:
        return {
            "transaction.timeout.ms": 300_000,
            "linger.ms": 50,
            "compression.type": "lz4",
            "partitioner": "murmur2_random",  # as Java's clients, so that topics can be joined
            **self._settings,
        }

    def _fence_writer(
        self, entry: Entry, name: str | None = None, *, unless: str | None = None
    ) -> None:
        """End the producers that may have written an entry, except for one of the query `unless`."""
        queries = [None] if entry.generation == 1 else []
        for query in [*queries, *({entry.query} - {unless})]:
            producer = self._start_producer(self._id(query, name))
            del producer

    def _read_entries(self, *, wait: bool = True) -> _Entries:
        """The last committed entries of this sink and of others with its topic.

        An open transaction may hide a newer one. With `wait`, such transactions are waited for.
        """
        found, is_complete = {}, True
        for message in self._ledger.committed_records(wait=wait):
            if message is None:
                is_complete = False
            elif message.value() is not None:
                found[message.key()] = message.value()
        own, partitions, others = None, 0, {}
        for key, value in found.items():
            with suppress(ValueError):  # what somebody else writes
                name, (entry, number) = (key or b"").decode(), self._decode_entry(key, value)
                if name == self.name:
                    own, partitions = entry, number
                elif entry.target == self.topic:
                    others[name] = entry
        return _Entries(own, others, partitions, is_complete)

    def _decode_entry(self, key: bytes, value: bytes) -> tuple[Entry, int]:
        try:
            return decode_entry(value)
        except ValueError as error:
            if key != self.name.encode():
                raise
            raise conditions.LEDGER_INVALID.error(ledger=self.ledger, got=str(error)) from error

    def _locate(self) -> tuple[Location, int]:
        """Return the topic with its id, which a topic that was created again does not share; and its partitions."""
        found = self._ledger.describe([self.topic]).get(self.topic)
        if found is None:
            return Location(self.topic, ""), 0
        return Location(self.topic, found.id), found.partitions

    def _require_topics(self, *, create: bool = True) -> list[str]:
        """Refuse a topic that does not exist; create the ledger. Returns what did not exist."""
        ledgers = [self._ledger] + [self._partition_ledger] * (self.atomic == "partition")
        existing = self._ledger.describe([self.topic, *(ledger.name for ledger in ledgers)])
        if self.topic not in existing:
            raise conditions.TOPIC_MISSING.error(topic=self.topic, got=repr(self.topic))
        missing = [ledger for ledger in ledgers if ledger.name not in existing]
        for ledger in ledgers:
            policy = "compact" if ledger in missing else ledger.read_setting("cleanup.policy")
            if policy not in {None, "compact"}:
                got = f"cleanup.policy={policy} of {ledger.name!r}"
                raise conditions.LEDGER_EXPIRES.error(ledger=ledger.name, got=got)
        if create and self.ledger not in existing:
            self._ledger.create()
        return [f"topic {ledger.name!r}" for ledger in missing]

    @property
    def _ledger(self) -> LedgerTopic:
        return LedgerTopic(self.ledger, self._settings, _TIMEOUT)

    @property
    def _partition_ledger(self) -> LedgerTopic:
        """The entries of the partitions, each in a partition of its number.

        They are not in the topic that all sinks share: a crashed transaction delays those who read an entry.
        """
        return LedgerTopic(f"{self.ledger}-{self.topic}", self._settings, _TIMEOUT)

    @property
    def _settings(self) -> dict[str, Any]:
        return {"logger": _LOG, **self.client, "bootstrap.servers": self.servers}

    @contextmanager
    def _errors(self, delivery: Delivery | None = None) -> Iterator[None]:
        """Turn errors of the client into those of sinks. The transaction ends without effect."""
        client = require_client()
        secrets = [str(v) for n, v in self.client.items() if _SECRET.search(n)]
        with hide(*secrets):
            try:
                yield
            except BaseException as error:
                is_replaced = is_fenced(error, self.session.connection)
                self.session.close()
                if is_replaced and delivery is not None:
                    newer = self._read_entries(wait=False).entry
                    raise fenced(newer, delivery) from error
                if not isinstance(error, client.KafkaException | BufferError | TimeoutError):
                    raise
                raise self._failure(error) from error

    def _failure(self, error: Any) -> SinkError:
        codes, code = require_client().KafkaError, code_of(error)
        if code in {
            codes.MSG_SIZE_TOO_LARGE,
            codes.INVALID_MSG_SIZE,
            codes.RECORD_LIST_TOO_LARGE,
            codes.INVALID_RECORD,
            codes.TOPIC_EXCEPTION,
            codes.TOPIC_AUTHORIZATION_FAILED,
            codes.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        }:
            return refused("Kafka", error)
        return unavailable("Kafka", error)


class _Entries(NamedTuple):
    """What the ledger has: the entry of a sink, those of others, and whether these are all."""

    entry: Entry | None
    others: dict[str, Entry]
    partitions: int
    is_complete: bool


class _Content(NamedTuple):
    """A micro-batch, and its net effect if one transaction writes it."""

    content: Content
    reduced: Reduced | None


class _Attempt(Attempt):
    """A producer that has fenced all others."""

    def __init__(
        self, sink: KafkaSink, writer: Writer, content: _Content, location: Location, existing: int
    ) -> None:
        self.found = Found(writer.entry, location, writer.others)
        self.sink, self.writer, self.content = sink, writer, content
        self.location, self.existing = location, existing

    def write(self, decision: Decision) -> None:
        sink, writer, (content, reduced) = self.sink, self.writer, self.content
        partitions = sink._partitions(writer, self.location, self.existing)
        entry = decision.entry
        if decision.action != "skip":
            if partitions and isinstance(content, pa.Table):
                delivery = Delivery(writer.query, writer.run, entry.batch, 0, 0, is_first=True)
                written = sink._take_over(writer, delivery, self.location, self.existing)
                replace(written, writers=writer.parts).write_all(content)
            elif not partitions:
                assert reduced is not None
                form = form_of(reduced.names, sink.key)
                position = {"connector": "streamops", "name": sink.name, "batch": entry.batch}
                writer.begin()
                records = make_records(reduced.net, form, sink.records, json.dumps(position))
                writer.produce(sink.topic, records)
            partitions = sink._next_partitions(self.existing)
        sink._write_entry(writer, entry.at(self.location), partitions)


def _completed(entry: Entry | None) -> Entry | None:
    """The entry of a sink that has completed a micro-batch."""
    return None if entry is None or entry.batch < 0 else entry


def _checked(names: tuple[str, ...], rows: pa.Table) -> pa.Table:
    refuse_invalid_text(rows, list(names))
    return rows


def _with_one_zero(value: Column, dtype: DataType) -> Column:
    """A column with 0.0 for -0.0, at any depth. NaN has one text."""
    if isinstance(dtype, FloatType | DoubleType):
        return value + F.lit(0.0).cast(dtype)
    if isinstance(dtype, ArrayType):
        return F.transform(value, lambda item: _with_one_zero(item, dtype.elementType))
    if isinstance(dtype, StructType):
        parts = [
            _with_one_zero(value.getField(part.name), part.dataType).alias(part.name)
            for part in dtype.fields
        ]
        return F.when(value.isNotNull(), F.struct(*parts))
    return value
