"""Write a micro-batch to each partition of a topic in a transaction of its own.

A transaction has the records of one partition and an entry of this partition in a second ledger. So a
repeated micro-batch is skipped where it is, and is written where it is not. The record of the sink in the
ledger of all sinks says which run may write, and which micro-batch is complete:

1. The driver takes the sink over with a record of its run, and fences the producers of all partitions.
2. A producer of a partition looks whether the run still has the sink, after it has fenced the producers
   before it. So one of a run that was replaced writes nothing, however late it starts.
3. When all partitions have the micro-batch, the driver writes its number to the record of the sink.

Spark may run a task twice. The later attempt fences the earlier one, which waits for it.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streamops.kernel.columns import combine_chunks
from streamops.kernel.hashing import murmur2, shard_of
from streamops.kernel.versions import arrow_udf
from streamops.sinks.core.kafka_records import KEY, VALUE, decode_entry, encode_entry, make_records
from streamops.sinks.core.ledger import Delivery, Entry, Location, decide, fenced
from streamops.sinks.core.net import form_of
from streamops.sinks.kafka_writer import Writer, is_fenced
from streamops.sinks.tasks import (
    Counted,
    Part,
    Projection,
    Receipts,
    in_groups,
    in_pieces,
    run_tasks,
)
from streamops.spark.columns import arrow_schema

_ROWS_PER_PIECE, _BYTES_PER_PIECE, _BYTES_PER_GROUP = 1 << 17, 32 << 20, 256 << 20
_NUMBER = "streamops_partition"


def partitions_of(keys: pa.Array, partitions: int) -> npt.NDArray[np.int32]:
    """The partition of each message key, as Java's clients and librdkafka choose it.

    Examples
    --------
    >>> partitions_of(pa.array(["21", "foobar"]), 10).tolist()
    [0, 6]
    """
    return ((murmur2(keys) & 0x7FFFFFFF) % partitions).astype(np.int32)


@dataclass(frozen=True, kw_only=True)
class PartitionedWrite:
    """A micro-batch that is written to each partition in a transaction of its own. Spark pickles it.

    Parameters
    ----------
    sink : KafkaSink
        The sink.
    taken : Entry
        The record of the sink, with the run that writes.
    offset : int
        Where it is in the ledger.
    batch : int
        The micro-batch.
    partitions : int
        The number of partitions.
    writers : dict of int to Writer
        Producers that are kept for the next micro-batch.
    """

    sink: Any  # a KafkaSink, whose module imports this one
    taken: Entry
    offset: int
    batch: int
    partitions: int
    writers: dict[int, Writer] | None = field(default=None, repr=False)

    def arrange(self, frame: DataFrame) -> DataFrame:
        """The frame with the rows of each partition in a task of its own."""
        frame = frame.select("*", self._number(frame).alias(_NUMBER))
        return frame.repartitionById(self.partitions, _NUMBER).drop(_NUMBER)

    def _number(self, frame: DataFrame) -> Column:
        partitions = self.partitions
        if KEY not in frame.columns:  # equal rows have equal partitions
            return F.pmod(F.xxhash64(VALUE), F.lit(partitions)).cast("int")

        def number(keys: pa.Array) -> pa.Array:
            return pa.array(partitions_of(keys, partitions))

        dtype = arrow_schema(frame, only=[KEY]).field(KEY).type
        found: Column = arrow_udf(number, "int", [dtype])(F.col(KEY))
        return found

    def _numbers(self, rows: pa.Table) -> npt.NDArray[np.int32]:
        if KEY not in rows.column_names:
            return shard_of(rows, [VALUE], self.partitions)
        return partitions_of(combine_chunks(rows.column(KEY)), self.partitions)

    def __call__(self, tables: Iterator[pa.Table]) -> Iterator[Part]:
        """Write the rows of a task, which has one partition."""
        first = next(tables)
        (number,) = np.unique(self._numbers(first))
        self.write(int(number), chain([first], tables))
        yield {"partition": int(number)}

    def write_all(self, rows: pa.Table) -> None:
        """Write all rows of the micro-batch, one partition after the other."""
        numbers = self._numbers(rows)
        for number in np.unique(numbers):
            self.write(int(number), iter([rows.filter(pa.array(numbers == number))]))

    def write(self, partition: int, tables: Iterator[pa.Table]) -> None:
        """Write the rows of a partition, unless it has the micro-batch.

        Raises
        ------
        SinkError
            ``FENCED``: another run has the sink. ``BATCH_DIFFERS``: the partition has other rows.
        """
        sink, writers = self.sink, {} if self.writers is None else self.writers
        counted = Counted(tables)
        with sink._errors(self._delivery()):
            writer = writers.pop(partition, None)
            try:
                if writer is None:
                    writer = self._open(partition)
                if not self._has_batch(writer.entry):
                    self._write(writer, partition, counted)
                entry = writer.entry
                writers[partition] = writer
            except BaseException as error:
                is_replaced = is_fenced(error, writer)
                if writer is not None:
                    writer.close()
                if not is_replaced:
                    raise
                entry = self._await(partition)
            for _ in counted:
                pass
            delivery = self._delivery(counted, is_first=True)
            decide(entry, delivery, repeated=sink.repeated)

    def _write(self, writer: Writer, partition: int, counted: Counted) -> None:
        sink = self.sink
        position = {"connector": "streamops", "name": sink.name, "batch": self.batch}
        writer.begin()
        for rows in self._pieces(counted):
            form = form_of(rows.column_names, sink.key)
            net = sink._reduced(rows).net
            records = make_records(net, form, sink.records, json.dumps(position))
            writer.produce(sink.topic, records, partition=partition)
        location = Location(self.taken.target, self.taken.target_id)
        entry = self._delivery(counted).entry(self.taken.generation).at(location)
        writer.finish(sink._partition_ledger.name, encode_entry(entry), sink.name, partition)
        writer.entry = entry

    def _pieces(self, counted: Counted) -> Iterable[pa.Table]:
        """The rows in pieces. Those that have a net effect together are in one of them."""
        first = next(counted)
        tables = chain([first], counted)
        if form_of(first.column_names, self.sink.key) == "append":
            return in_pieces(tables, rows=_ROWS_PER_PIECE, size=_BYTES_PER_PIECE)
        names = [KEY if KEY in first.column_names else VALUE]
        return in_groups(tables, names, size=_BYTES_PER_GROUP)

    def _delivery(self, counted: Counted | None = None, *, is_first: bool = False) -> Delivery:
        rows, digests = (0, [0, 0]) if counted is None else (counted.rows, counted.digests.tolist())
        identity = self.taken.query, self.taken.run
        return Delivery(*identity, self.batch, rows, digests[0], is_first, (), digests[1])

    def _has_batch(self, entry: Entry | None) -> bool:
        """Whether the partition has the micro-batch. Gaps are normal: not each one has rows for it."""
        target = self.taken.query, self.taken.target_id, self.batch
        return entry is not None and (entry.query, entry.target_id, entry.batch) == target

    def _open(self, partition: int) -> Writer:
        """Return a producer that has fenced the others of this partition."""
        self._require_run()  # a run that was replaced does not disturb the new one
        sink = self.sink
        producer = sink._start_producer(sink._id_of_part(partition))
        writer = Writer(self.taken.query, self.taken.run, producer)
        self._require_run()
        writer.entry = self._read_entry(partition)
        return writer

    def _require_run(self) -> None:
        """Refuse to write for a run that another one has replaced."""
        # Behind the record of this run are the marker of its transaction, and then others.
        records = self.sink._ledger.committed_records(wait=True, start=self.offset + 2)
        for message in records:
            if message.key() == self.sink.name.encode() and message.value() is not None:
                entry, _ = decode_entry(message.value())
                if (entry.query, entry.run) != (self.taken.query, self.taken.run):
                    raise fenced(entry, self._delivery())

    def _read_entry(self, partition: int) -> Entry | None:
        found = None
        for message in self.sink._partition_ledger.committed_records(
            wait=True, partition=partition
        ):
            if message.key() == self.sink.name.encode() and message.value() is not None:
                found, _ = decode_entry(message.value())
        return found

    def _await(self, partition: int) -> Entry:
        """Wait until the attempt of the same task that fenced this one has written the partition."""
        timeout = int(self.sink._producer_settings["transaction.timeout.ms"]) / 1000
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            self._require_run()
            entry = self._read_entry(partition)
            if entry is not None and self._has_batch(entry):
                return entry
            time.sleep(0.2)
        message = f"another attempt of this task has not written partition {partition}"
        raise RuntimeError(message)  # Spark repeats this one


@dataclass(frozen=True)
class ProjectionByPartition(Projection):
    """The rows of a micro-batch, which tasks write to each partition in a transaction of its own."""

    def run_tasks(self, deliver: Any, together: tuple[str, ...] = ()) -> Receipts:
        """Let tasks deliver the rows, or count them."""
        if isinstance(deliver, PartitionedWrite):
            return run_tasks(deliver.arrange(self.frame), deliver, self.schema, self.finish)
        return super().run_tasks(deliver, together)
