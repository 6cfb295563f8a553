"""The wire format between Spark and the steps of shards: packs of rows in, packed results and
metrics out.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from streamops.kernel.codec import ipc_read, ipc_write
from streamops.kernel.columns import concat
from streamops.kernel.core import SIDES, SideName
from streamops.kernel.operator import Core, S

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
