"""Rows packed before the shuffle, and results unpacked after it.

A stateless map turns the rows of a task into one binary row per shard, already aggregated
where the operator can. The shuffle, the sort and the state operator see a few dozen rows
instead of millions. Packed rows carry a null event time, so Spark's own late filter, which
would drop rows uncounted, never applies: the kernel sees and judges every row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from streamops.kernel.clocks import ClockCore, ClockSpec
from streamops.kernel.codec import ipc_read, ipc_write
from streamops.kernel.columns import concat, conform, take, timestamp_micros
from streamops.kernel.hashing import shard_of
from streamops.kernel.time import MAX_INSTANT, MIN_INSTANT
from streamops.spark.garbage_collection import freeze_imports

__all__ = ["NOTHING", "PACKED", "Packable", "packer", "summarizer", "unpacker"]

Batches = Iterator[pa.RecordBatch]

PACKED = "shard int, packed binary, event_time timestamp"
_PACKED = pa.schema(
    [("shard", pa.int32()), ("packed", pa.binary()), ("event_time", pa.timestamp("us", tz="UTC"))]
)
_NO_SHARD = -1
NOTHING = b""
"""The pack of a shard without rows: it is visited, and told the watermark."""

# Rows aggregated at once. Larger saves calls, and costs memory in every task.
_ROWS_AT_ONCE = 1 << 18


class Packable(Protocol):
    """What packing must know of an input: the spec of an operator that has one, a side of a pair."""

    @property
    def by(self) -> tuple[str, ...]:
        """Columns that say which shard a row goes to."""

    @property
    def time(self) -> str | None:
        """Event-time column, if there is one."""

    @property
    def input(self) -> pa.Schema:
        """Columns that are read."""


def packer(
    pack_rows: Callable[[pa.Table], pa.Table], of: Packable, shards: int, *, newest: bool
) -> Callable[[Batches], Batches]:
    """The map from rows to packed rows.

    Parameters
    ----------
    pack_rows : callable
        From rows of one shard to what the core's step takes of them.
    of : Packable
        The input.
    shards : int
        Every micro-batch visits every shard, so that each knows the watermark that the next
        micro-batch is judged by: the first task sends an empty pack where it has no rows.
    newest : bool
        Add a row per task that carries its greatest event time and nothing else, for the
        watermark that the operator defines.
    """
    replicate = getattr(of, "replicate", None)  # rows that every shard receives

    def pack(batches: Batches) -> Batches:
        from pyspark import TaskContext

        freeze_imports("pack")
        context = TaskContext.get()
        missing = set(range(shards)) if context is None or context.partitionId() == 0 else set()
        greatest: int | None = None
        for rows in _tables(batches):
            rows = conform(rows.rename_columns(of.input.names), of.input)  # by position
            if newest and of.time is not None:
                greatest = _greatest(greatest, rows.column(of.time))
            copies = None if replicate is None else replicate(rows)
            for number in range(shards) if copies is not None else ():
                yield _row(number, pack_rows(copies))
            # Here and not by Spark: every further column costs Spark more than the hash.
            shard = shard_of(rows, of.by, shards).astype(np.int16)  # NumPy sorts these by radix
            order = np.argsort(shard, kind="stable")
            present, starts = np.unique(shard[order], return_index=True)
            rows = take(rows, order)
            ends = np.append(starts[1:], len(order))
            for number, start, end in zip(present.tolist(), starts, ends, strict=True):
                yield _row(number, pack_rows(rows.slice(start, end - start)))
                missing.discard(number)
        for number in sorted(missing):
            yield _batch(number, NOTHING, None)
        if greatest is not None:
            yield _batch(_NO_SHARD, None, greatest)

    return pack


def summarizer(core: ClockCore, spec: ClockSpec) -> Callable[[Batches], Batches]:
    """The map from rows to what a clock wants of them: a pack per task, for one place.

    Every micro-batch visits that place, so that it tells how things are: the first task sends an
    empty pack where it has no rows.
    """

    def summarize(batches: Batches) -> Batches:
        from pyspark import TaskContext

        freeze_imports("summarize")
        context = TaskContext.get()
        is_first = context is None or context.partitionId() == 0
        for rows in _tables(batches):
            is_first = False
            rows = conform(rows.rename_columns(spec.input.names), spec.input)  # by position
            yield _row(0, core.pack(spec, rows))
        if is_first:
            yield _batch(0, NOTHING, None)

    return summarize


def unpacker(schema: pa.Schema) -> Callable[[Batches], Batches]:
    """The map from packed results to rows."""

    def unpack(batches: Batches) -> Batches:
        freeze_imports("unpack")
        for batch in batches:
            for packed in batch.column(0):
                if packed.is_valid:
                    yield from conform(ipc_read(packed.as_buffer()), schema).to_batches()

    return unpack


def _tables(batches: Batches) -> Iterator[pa.Table]:
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= _ROWS_AT_ONCE:
            yield concat([pa.Table.from_batches(waiting)]).combine_chunks()
            waiting, rows = [], 0
    if rows:
        yield pa.Table.from_batches(waiting).combine_chunks()


def _greatest(before: int | None, column: pa.ChunkedArray) -> int | None:
    times, valid = timestamp_micros(column)
    times = times[valid & (times >= MIN_INSTANT) & (times <= MAX_INSTANT)]
    if not len(times):
        return before
    newest = int(times.max())
    return newest if before is None else max(before, newest)


def _row(shard: int, packed: pa.Table) -> pa.RecordBatch:
    return _batch(shard, ipc_write(packed), None)


def _batch(shard: int, packed: bytes | None, event_time: int | None) -> pa.RecordBatch:
    columns: list[Any] = [[shard], [packed], [event_time]]
    return pa.RecordBatch.from_arrays(
        [pa.array(c, f.type) for c, f in zip(columns, _PACKED, strict=True)], schema=_PACKED
    )
