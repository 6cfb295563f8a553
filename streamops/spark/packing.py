"""Pack rows before the shuffle, and unpack results after it.

A stateless map turns the rows of a task into one binary row per shard, already aggregated
where the operator can. The shuffle, the sort and the state operator see a few dozen rows
instead of millions. Packed rows have a null event time, so Spark's own late filter, which
would drop rows uncounted, never applies: the kernel sees every row and decides whether it is late.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streamops.changelog.chains import WATERMARK
from streamops.kernel.codec import ipc_read, ipc_write
from streamops.kernel.columns import concat, conform, take, timestamp_micros
from streamops.kernel.core import SIDES, Input, SideName, mark_owned
from streamops.kernel.errors import located
from streamops.kernel.hashing import shard_of
from streamops.kernel.operator import Core, S
from streamops.kernel.prompt import prompt
from streamops.kernel.time import MAX_INSTANT, MIN_INSTANT
from streamops.spark.columns import column

if TYPE_CHECKING:
    import pandas as pd

EMITTED = "emitted binary, metrics array<bigint>"
"""One row per cell of packed results. Only the first row of a step has the metrics. They are one
column, because each column costs every shard a conversion in every micro-batch."""

EMITTED_ARROW = pa.schema([("emitted", pa.binary()), ("metrics", pa.list_(pa.int64()))])
"""The same as an Arrow schema."""

NOTHING = b""
"""The pack of a shard without rows: the shard is visited, to learn the watermark."""

# A binary cell is copied several times on its way: keep them moderate.
_ROWS_PER_CELL = 1 << 18

_SIDE = b"side"
_frozen: set[str] = set()


def pack_rows(core: Core[S], spec: S, side: SideName, rows: pa.Table) -> pa.Table:
    """Pack rows of one input. With two inputs, the pack names the side that its rows belong to."""
    packed = core.pack(spec, rows, side)
    if len(spec.inputs) == 1:
        return packed
    return packed.replace_schema_metadata({_SIDE: side.encode()})


def read_packs(core: Core[S], spec: S, packs: Iterable[bytes | pa.Buffer]) -> tuple[pa.Table, ...]:
    """Read the packed rows of a shard: one table per input."""
    tables = [ipc_read(pack) for pack in packs if len(pack)]
    sides = SIDES[: len(spec.inputs)]
    if len(sides) == 1:
        found = [tables]
    else:
        found = [[t for t in tables if t.schema.metadata[_SIDE] == s.encode()] for s in sides]
    return tuple(
        concat(mine or [core.pack(spec, of.schema.empty_table(), side)]).replace_schema_metadata(
            None
        )
        for mine, of, side in zip(found, spec.inputs, sides, strict=True)
    )


def group_packs(table: pa.Table) -> list[pa.Buffer]:
    """The packs of a shard of a batch frame, empty ones included."""
    return [pack.as_buffer() for pack in table.column("packed")]


def write_cells(table: pa.Table) -> Iterator[bytes]:
    """Write the table in packed pieces, one per cell."""
    for start in range(0, len(table), _ROWS_PER_CELL):
        yield ipc_write(table.slice(start, _ROWS_PER_CELL))


def emit_frame(cells: Iterable[bytes], metrics: Sequence[int | None]) -> pd.DataFrame:
    """Build rows of :data:`EMITTED`: all cells of a step, at least one row, and its metrics."""
    import pandas as pd

    emitted: list[bytes | None] = [*cells] or [None]
    column = [[*metrics], *[None] * (len(emitted) - 1)]
    return pd.DataFrame({"emitted": emitted, "metrics": column}, dtype=object)


def sum_metrics(names: Sequence[str], *, watermark: bool) -> list[Column]:
    """Aggregate the metrics of all shards of a micro-batch: sums, and the greatest watermark."""
    *sums, last = names
    assert last == "watermark"
    columns = [F.sum(F.col("metrics")[at]).alias(name) for at, name in enumerate(sums)]
    if watermark:
        columns.append(F.timestamp_micros(F.max(F.col("metrics")[len(sums)])).alias(last))
    return columns


def freeze_imports(task: str) -> None:
    """Exclude the imported modules of this worker from garbage collection, once.

    A reused worker collects garbage after every task. With pandas and Arrow imported it visits
    some 75,000 objects, none of them garbage: about 40 ms for each task of each micro-batch, more
    than a task itself takes in small micro-batches. A frozen object is still freed when its last
    reference is removed.

    Parameters
    ----------
    task : str
        Type of the task. Types of tasks import different modules.
    """
    from pyspark import TaskContext

    if task not in _frozen and TaskContext.get() is not None:
        _frozen.add(task)
        gc.collect()
        gc.freeze()


Batches = Iterator[pa.RecordBatch]

PACKED = "shard int, packed binary, event_time timestamp_ltz"
PACKED_ARROW = pa.schema(
    [("shard", pa.int32()), ("packed", pa.binary()), ("event_time", pa.timestamp("us", tz="UTC"))]
)
_NO_SHARD = -1
# Rows aggregated at once. Larger saves calls, and costs memory in every task.
_ROWS_AT_ONCE = 1 << 18


def pack_input(
    frame: DataFrame,
    core: Core[S],
    spec: S,
    index: int,
    shards: int,
    *,
    operator: str = "",
    spark_delay: int | None = None,
) -> DataFrame:
    """Pack the rows of one input: columns ``shard``, ``packed``, and ``event_time``, always null.

    Parameters
    ----------
    frame : DataFrame
        The input.
    core, spec
        The operator.
    index : int
        Which input of the spec it is.
    shards : int
        Number of shards.
    operator : str
        Its public name, for errors.
    spark_delay : int, optional
        Delay of the Spark watermark to define, in microseconds. The watermark is defined on the
        packed rows: the packer adds a row per task with the greatest event time.
    """
    # By position: PySpark's Python maps fail on names with dots or backticks in them.
    names = spec.inputs[index].schema.names
    renamed = [column(name).alias(f"c{i}") for i, name in enumerate(names)]
    pack = packer(core, spec, index, shards, newest=spark_delay is not None, operator=operator)
    packs = frame.select(*renamed).mapInArrow(pack, PACKED)
    if spark_delay is None:
        return packs
    packs = packs.withWatermark("event_time", f"{spark_delay // 1_000} milliseconds")
    # The rows with the greatest event times were for the watermark only.
    return packs.where(F.col("event_time").isNull())


def mark_watermark(packs: DataFrame, spark_delay: int) -> DataFrame:
    """Mark the column of packed rows whose watermark is already defined upstream.

    A Python map, or a union with other rows, loses the mark on the column, and nothing else.
    """
    mark = F.col("event_time").alias("event_time", metadata={WATERMARK: spark_delay // 1_000})
    return packs.select("shard", "packed", mark)


def packer(
    core: Core[S], spec: S, index: int, shards: int, *, newest: bool, operator: str = ""
) -> Callable[[Batches], Batches]:
    """Return the map from rows to packed rows.

    Parameters
    ----------
    core, spec
        The operator.
    index : int
        Which input of the spec the rows are from.
    shards : int
        Every micro-batch visits every shard, so that each knows the watermark by which the rows of the
        next micro-batch are late: the first task sends an empty pack to shards without rows.
    newest : bool
        Add a row per task with its greatest event time and nothing else, for the watermark that the
        operator defines.
    operator : str
        Its public name, for errors.
    """
    of, side = spec.inputs[index], SIDES[index]

    def pack(batches: Batches) -> Batches:
        from pyspark import TaskContext

        freeze_imports("pack")
        context = TaskContext.get()
        missing = set(range(shards)) if context is None or context.partitionId() == 0 else set()
        greatest: int | None = None
        with located(operator):
            for rows in _tables(batches):
                rows = conform(rows.rename_columns(of.schema.names), of.schema)  # by position
                if newest and of.time is not None:
                    greatest = _greatest(greatest, rows.column(of.time))
                copies = None if of.replicate is None else of.replicate(rows)
                if copies is not None and copies.num_rows:
                    packed = pack_rows(core, spec, side, copies)
                    for number in range(shards):
                        yield _row(number, packed)
                        missing.discard(number)
                if of.is_broadcast:
                    yield from _copy(pack_rows(core, spec, side, rows), rows, of, shards)
                    missing.clear()
                    continue
                # Here and not by Spark: every further column costs Spark more than the hash.
                shard = shard_of(rows, of.by, shards).astype(np.int16)  # NumPy sorts these by radix
                order = np.argsort(shard, kind="stable")
                present, starts = np.unique(shard[order], return_index=True)
                rows = take(rows, order)
                ends = np.append(starts[1:], len(order))
                for number, start, end in zip(present.tolist(), starts, ends, strict=True):
                    yield _row(number, pack_rows(core, spec, side, rows.slice(start, end - start)))
                    missing.discard(number)
        for number in sorted(missing):
            yield _batch(number, NOTHING, None)
        if greatest is not None:
            yield _batch(_NO_SHARD, None, greatest)

    return prompt(pack)


def _copy(packed: pa.Table, rows: pa.Table, of: Input, shards: int) -> Batches:
    """Packed rows for every shard."""
    if not of.by:
        copy = ipc_write(packed)
        yield from (_batch(number, copy, None) for number in range(shards))
        return
    shard = shard_of(rows, of.by, shards)
    for number in range(shards):
        yield _row(number, mark_owned(packed, pa.array(shard == number)))


def unpacker(schema: pa.Schema, metrics: Sequence[str] = ()) -> Callable[[Batches], Batches]:
    """Return the map from packed results to rows.

    Parameters
    ----------
    schema : Schema
        Columns of the results.
    metrics : sequence of str
        Names of the metrics of a step, if they are in the second column: columns of the schema that the
        packed results do not have are taken from there.
    """
    added = [(at, name) for at, name in enumerate(metrics) if name in schema.names]

    def unpack(batches: Batches) -> Batches:
        freeze_imports("unpack")
        for batch in batches:
            for row, packed in enumerate(batch.column(0)):
                if not packed.is_valid:
                    continue
                table = ipc_read(packed.as_buffer())
                for at, name in added:
                    if name not in table.column_names:
                        value = batch.column(1)[row].values[at]
                        table = table.append_column(name, pa.repeat(value, len(table)))
                yield from conform(table, schema).to_batches()

    return prompt(unpack)


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


def _greatest(before: int | None, times: pa.ChunkedArray) -> int | None:
    micros, valid = timestamp_micros(times)
    micros = micros[valid & (micros >= MIN_INSTANT) & (micros <= MAX_INSTANT)]
    if not len(micros):
        return before
    newest = int(micros.max())
    return newest if before is None else max(before, newest)


def _row(shard: int, packed: pa.Table) -> pa.RecordBatch:
    return _batch(shard, ipc_write(packed), None)


def _batch(shard: int, packed: bytes | None, event_time: int | None) -> pa.RecordBatch:
    columns: list[Any] = [[shard], [packed], [event_time]]
    return pa.RecordBatch.from_arrays(
        [pa.array(c, f.type) for c, f in zip(columns, PACKED_ARROW, strict=True)],
        schema=PACKED_ARROW,
    )
