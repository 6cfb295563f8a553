"""Write micro-batches to a topic of Kafka, each exactly once."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, cast

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
from streamops.sinks.protocol import Attempt, Found, Reduced
from streamops.sinks.sink import KeyedSink, hide, parse_key, refused, unavailable
from streamops.sinks.tasks import Projection
from streamops.spark.columns import column
from streamops.spark.json_columns import refuse_invalid_text, to_checked_json

_LOG = logging.getLogger("streamops.sinks")
_WHERE = "sinks.kafka"
_TIMEOUT = 60  # seconds, for a request that has a deadline
_POLL_EVERY = 10_000
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

    A micro-batch passes through the memory of the driver, and must be written within
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
    ledger: str
    client: Mapping[str, Any] = field(metadata={"shown": lambda client: repr(sorted(client))})

    def __post_init__(self) -> None:
        """Validate the parameters."""
        for parameter in ("topic", "ledger"):
            require_topic(getattr(self, parameter), parameter=parameter)
        require_servers(self.servers)
        super().__post_init__()
        own = sorted(_OWN_SETTINGS & set(self.client))
        if own:
            raise conditions.OPTION_RESERVED.error(got=f"client with {', '.join(own)}")

    def _read_ledger(self) -> Entry | None:
        with self._errors():
            return self._read_entries()[0].get(self.name)

    def _inspect(self) -> tuple[str, Sequence[str], Entry | None]:
        with self._errors():
            entry = self._read_entries(wait=False)[0].get(self.name)
            self._require_location(entry, self._locate())
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
        return Projection(frame, partial(_checked, tuple(as_json)))

    def _to_json(self, batch: DataFrame, values: Mapping[str, Column]) -> Column:
        dtype = StructType([batch.schema[name] for name in values])
        row = F.struct(*(value.alias(name) for name, value in values.items()))
        return to_checked_json(row, dtype)

    @contextmanager
    def _attempt(self, content: Reduced, delivery: Delivery) -> Iterator[_Attempt]:
        with self._errors(delivery):
            writer, location = self._open(delivery), self._locate()
            yield _Attempt(self, writer, content, location)

    def _open(self, delivery: Delivery) -> _Writer:
        """Return the producer of this run. No other producer of the run writes at the same time."""
        writer = cast("_Writer | None", self.session.connection)
        if writer is not None and writer.query == delivery.query and not delivery.is_first:
            return writer
        self.session.close()
        others, is_complete = self._read_entries(wait=False)
        before = others.pop(self.name, None)
        # A delivery that is refused must not fence the run that writes. An open transaction may hide a
        # newer entry; then the decision is made below only.
        if is_complete:
            self._decide(Found(before, self._locate(), others), delivery)
        else:
            self._end_left_over_transactions(delivery)
        self._require_topics()
        if before is not None:
            self._fence_writer(before, unless=delivery.query)
        # All queries that find no entry have one identifier: the last one of them ends the others.
        query = None if before is None else delivery.query
        writer = _Writer(delivery.query, self._start_producer(query))
        self.session.connection = writer
        # What another run has committed in the meantime counts. From now on, none can.
        writer.others, _ = self._read_entries()
        writer.entry = writer.others.pop(self.name, None)
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
                entry = decode_entry(message.value() or b"")
                if entry.query == delivery.query and entry.run != delivery.run:
                    left_over[(message.key() or b"").decode()] = entry
        for name, entry in left_over.items():
            self._fence_writer(entry, name)

    def _start_producer(self, query: str | None, name: str | None = None) -> Any:
        """A producer that fences all others of this sink and query, and ends their transactions.

        The first run of a sink has no query in its identifier.
        """
        settings = {
            "transaction.timeout.ms": 300_000,
            "linger.ms": 50,
            "compression.type": "lz4",
            "partitioner": "murmur2_random",  # as Java's clients, so that topics can be joined
            **self._settings,
            "transactional.id": f"streamops sink {name or self.name}"
            + (f" of {query}" if query else ""),
        }
        producer = require_client().Producer(settings)
        producer.init_transactions(_TIMEOUT)
        return producer

    def _fence_writer(
        self, entry: Entry, name: str | None = None, *, unless: str | None = None
    ) -> None:
        """End the producers that may have written an entry, except for one of the query `unless`."""
        queries = [None] if entry.generation == 1 else []
        for query in [*queries, *({entry.query} - {unless})]:
            producer = self._start_producer(query, name)
            del producer

    def _read_entries(self, *, wait: bool = True) -> tuple[dict[str, Entry], bool]:
        """The last committed entries of this sink and of others with its topic, and whether these are all.

        An open transaction may hide a newer one. With `wait`, such transactions are waited for.
        """
        found, is_complete = {}, True
        for message in self._ledger.committed_records(wait=wait):
            if message is None:
                is_complete = False
            elif message.value() is not None:
                found[message.key()] = message.value()
        entries = {}
        for key, value in found.items():
            with suppress(ValueError):  # what somebody else writes
                name, entry = (key or b"").decode(), self._decode_entry(key, value)
                if name == self.name or entry.target == self.topic:
                    entries[name] = entry
        return entries, is_complete

    def _decode_entry(self, key: bytes, value: bytes) -> Entry:
        try:
            return decode_entry(value)
        except ValueError as error:
            if key != self.name.encode():
                raise
            raise conditions.LEDGER_INVALID.error(ledger=self.ledger, got=str(error)) from error

    def _locate(self) -> Location:
        """Return the topic and its id, which a topic that was created again does not share."""
        return Location(self.topic, self._ledger.ids([self.topic]).get(self.topic, ""))

    def _require_topics(self, *, create: bool = True) -> list[str]:
        """Refuse a topic that does not exist; create the ledger. Returns what did not exist."""
        existing = self._ledger.ids([self.topic, self.ledger])
        if self.topic not in existing:
            raise conditions.TOPIC_MISSING.error(topic=self.topic, got=repr(self.topic))
        if self.ledger in existing:
            return []
        if create:
            self._ledger.create()
        return [f"topic {self.ledger!r}"]

    @property
    def _ledger(self) -> LedgerTopic:
        return LedgerTopic(self.ledger, self._settings, _TIMEOUT)

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
                self.session.close()
                if not isinstance(error, client.KafkaException | BufferError | TimeoutError):
                    raise
                raise self._failure(error, delivery) from error

    def _failure(self, error: Any, delivery: Delivery | None) -> SinkError:
        codes = require_client().KafkaError
        code = error.args[0].code() if error.args and hasattr(error.args[0], "code") else None
        if code in {codes._FENCED, codes.PRODUCER_FENCED, codes.INVALID_PRODUCER_EPOCH}:
            assert delivery is not None
            return fenced(self._read_entries(wait=False)[0].get(self.name), delivery)
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


class _Attempt(Attempt):
    """A producer that has fenced all others."""

    def __init__(
        self, sink: KafkaSink, writer: _Writer, content: Reduced, location: Location
    ) -> None:
        self.found = Found(writer.entry, location, writer.others)
        self.sink, self.writer, self.content = sink, writer, content

    def write(self, decision: Decision) -> None:
        sink, writer = self.sink, self.writer
        assert self.found.location is not None
        form = form_of(self.content.names, sink.key)
        position = {"connector": "streamops", "name": sink.name, "batch": decision.entry.batch}
        writer.producer.begin_transaction()
        if decision.action != "skip":
            records = make_records(self.content.net, form, sink.records, json.dumps(position))
            writer.produce(sink.topic, records)
        written = decision.entry.at(self.found.location)
        writer.produce_one(sink.ledger, encode_entry(written), sink.name.encode(), partition=0)
        writer.commit()
        writer.entry = written


def _checked(names: tuple[str, ...], rows: pa.Table) -> pa.Table:
    refuse_invalid_text(rows, list(names))
    return rows


class _Writer:
    """A producer of a run of a query, and what the ledger has after its last transaction."""

    def __init__(self, query: str, producer: Any) -> None:
        self.query = query
        self.producer = producer
        self.entry: Entry | None = None
        self.others: dict[str, Entry] = {}
        self.failures: list[Any] = []

    def produce(self, topic: str, records: pa.Table) -> None:
        """Add records to the transaction."""
        for batch in records.to_batches(max_chunksize=_POLL_EVERY):
            keys, values = (
                batch.column(n).cast(pa.large_binary()).to_pylist() for n in ("key", "value")
            )
            for key, value in zip(keys, values, strict=True):
                self.produce_one(topic, value, key)
            self.producer.poll(0)

    def produce_one(self, topic: str, value: Any, key: Any, *, partition: int = -1) -> None:
        """Add a record to the transaction."""
        while True:
            try:
                self.producer.produce(topic, value, key, partition, on_delivery=self._remember)
            except BufferError:  # the queue is full: wait until the broker has taken some
                self.producer.poll(0.1)
            else:
                return

    def _remember(self, error: Any, _: Any) -> None:
        if error is None or self.failures:
            return
        codes = require_client().KafkaError
        # Behind a record that failed, the client drops all others, and may report them first.
        if error.code() not in {codes._PURGE_QUEUE, codes._PURGE_INFLIGHT}:
            self.failures.append(error)

    def commit(self) -> None:
        """Commit the transaction, or raise the first error of its records."""
        client = require_client()
        try:
            while True:
                try:
                    self.producer.commit_transaction()
                except client.KafkaException as error:
                    if not error.args[0].retriable():
                        raise
                else:
                    return
        except client.KafkaException:
            self.producer.poll(0.1)
            if self.failures:
                raise client.KafkaException(self.failures[0]) from None
            raise

    def close(self) -> None:
        """End the transaction without effect."""
        client = require_client()
        self.producer.purge()
        # There may be none; and if this fails, the next producer of the query ends it.
        with suppress(client.KafkaException):
            self.producer.abort_transaction(5)


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
