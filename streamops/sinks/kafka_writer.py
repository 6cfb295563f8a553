"""A transactional producer of a Kafka sink."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pyarrow as pa

from streamops.sinks.core.ledger import Entry
from streamops.sinks.kafka_ledger import require_client

_POLL_EVERY = 10_000


class Writer:
    """A producer of a run of a query, and what the ledger has after its last transaction.

    Parameters
    ----------
    query, run : str
        As in :class:`~streamops.sinks.core.ledger.Entry`.
    producer : confluent_kafka.Producer
        It has fenced all others of its identifier.
    """

    def __init__(self, query: str, run: str, producer: Any) -> None:
        self.query, self.run = query, run
        self.producer = producer
        self.entry: Entry | None = None
        self.others: dict[str, Entry] = {}
        self.partitions = 0
        """To how many partitions the next micro-batch is written one by one; 0: in one transaction."""
        self.offset: int | None = None
        """Where the last entry that this producer has written is in the ledger."""
        self.prepared = 0
        """How many partitions have a ledger."""
        self.parts: dict[int, Writer] = {}
        """Producers of single partitions."""
        self.failures: list[Any] = []
        self.is_open = False

    def begin(self) -> None:
        """Begin a transaction."""
        self.producer.begin_transaction()
        self.is_open = True

    def produce(self, topic: str, records: pa.Table, *, partition: int = -1) -> None:
        """Add records to the transaction."""
        for batch in records.to_batches(max_chunksize=_POLL_EVERY):
            keys, values = (
                batch.column(n).cast(pa.large_binary()).to_pylist() for n in ("key", "value")
            )
            for key, value in zip(keys, values, strict=True):
                self.produce_one(topic, value, key, partition=partition)
            self.producer.poll(0)

    def produce_one(
        self, topic: str, value: Any, key: Any, *, partition: int = -1, reported: Any = None
    ) -> None:
        """Add a record to the transaction."""
        reported = reported or self._remember
        while True:
            try:
                self.producer.produce(topic, value, key, partition, on_delivery=reported)
            except BufferError:  # the queue is full: wait until the broker has taken some
                self.producer.poll(0.1)
            else:
                return

    def finish(self, ledger: str, entry: bytes, name: str, partition: int = 0) -> None:
        """Add the entry to the transaction, and commit it.

        The other records are stored before. An open transaction delays the readers of its partitions: those
        of the ledger wait for the entry only.
        """
        with suppress(SystemError, require_client().KafkaException):  # the next call raises it, too
            self.producer.flush()
        if self.failures:
            raise require_client().KafkaException(self.failures[0])
        self.produce_one(ledger, entry, name.encode(), partition=partition, reported=self._note)
        self.commit()

    def _note(self, error: Any, message: Any) -> None:
        if error is None:
            self.offset = message.offset()
        self._remember(error, message)

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
                    self.is_open = False
                    return
        except client.KafkaException:
            with suppress(client.KafkaException, SystemError):  # the same again
                self.producer.poll(0.1)
            if self.failures:
                raise client.KafkaException(self.failures[0]) from None
            raise

    def close(self) -> None:
        """End the transaction without effect."""
        client = require_client()
        self.end_parts()
        self.producer.purge()
        # There may be none; and if this fails, the next producer of the query ends it.
        with suppress(client.KafkaException):
            self.producer.abort_transaction(5)

    def end_parts(self) -> None:
        """End the producers of single partitions."""
        while self.parts:
            self.parts.popitem()[1].close()


def is_fenced(error: BaseException, writer: Writer | None = None) -> bool:
    """Whether another producer has the identifier of this one.

    The client may raise another error first, and a SystemError from a callback. It repeats the cause when the
    transaction is ended.
    """
    client = require_client()
    codes = client.KafkaError
    if isinstance(error, client.KafkaException):
        code = code_of(error)
        if code in {codes._FENCED, codes.PRODUCER_FENCED, codes.INVALID_PRODUCER_EPOCH}:
            return True
        if code != codes._FATAL:
            return False
    elif not isinstance(error, SystemError):
        return False
    if writer is not None:
        try:
            writer.producer.abort_transaction(5)
        except client.KafkaException as cause:
            return is_fenced(cause)
    return False


def code_of(error: Any) -> Any:
    """The code of an error of the client, or None."""
    return error.args[0].code() if error.args and hasattr(error.args[0], "code") else None
