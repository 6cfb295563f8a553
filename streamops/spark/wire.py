"""What crosses the border to the steps of shards: packs of rows in, cells of packed results and
counts out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from streamops.kernel.codec import ipc_read, ipc_write
from streamops.kernel.columns import concat
from streamops.kernel.pairs import PairCore, PairSpec, SideName

if TYPE_CHECKING:
    import pandas as pd

__all__ = [
    "EMITTED",
    "Opener",
    "cells_of",
    "framed",
    "opened",
    "opened_pair",
    "packing",
    "packs_in",
    "totals",
]

EMITTED = "emitted binary, counts array<bigint>"
"""One row per cell of packed results. The counts stand in the first row of a step only: one
column, since each costs every shard a conversion in every micro-batch."""

Opener = Callable[[Any, Any, "Iterable[bytes | pa.Buffer]"], tuple[pa.Table, ...]]
"""From a core, its spec and the packs of a shard to what the core's step takes of them."""

# A binary cell is copied several times on its way: keep them moderate.
_ROWS_PER_CELL = 1 << 18

_SIDE = b"side"


def opened(core: Any, spec: Any, packs: Iterable[bytes | pa.Buffer]) -> tuple[pa.Table]:
    """The packed rows of the one input. Empty packs, of shards that were merely visited, say nothing."""
    rows = [ipc_read(pack) for pack in packs if len(pack)]
    return (concat(rows or [core.pack(spec, spec.input.empty_table())]),)


def packing(core: PairCore, spec: PairSpec, side: SideName) -> Callable[[pa.Table], pa.Table]:
    """``core.pack`` for one of two inputs; its packs tell which one."""

    def pack(rows: pa.Table) -> pa.Table:
        return core.pack(spec, side, rows).replace_schema_metadata({_SIDE: side.encode()})

    return pack


def opened_pair(
    core: PairCore, spec: PairSpec, packs: Iterable[bytes | pa.Buffer]
) -> tuple[pa.Table, pa.Table]:
    """The packed rows of both inputs, left and right."""
    read = [ipc_read(pack) for pack in packs if len(pack)]

    def of(side: SideName, rows: pa.Schema) -> pa.Table:
        found = [each for each in read if each.schema.metadata[_SIDE] == side.encode()]
        whole = concat(found or [core.pack(spec, side, rows.empty_table())])
        return whole.replace_schema_metadata(None)

    return of("left", spec.left.input), of("right", spec.right.input)


def packs_in(table: pa.Table) -> list[pa.Buffer]:
    """The packs of a shard of a batch, empty ones among them."""
    return [pack.as_buffer() for pack in table.column("packed")]


def cells_of(table: pa.Table) -> Iterator[bytes]:
    """The table in packed pieces, each for one cell."""
    for start in range(0, len(table), _ROWS_PER_CELL):
        yield ipc_write(table.slice(start, _ROWS_PER_CELL))


def framed(cells: Iterable[bytes], counts: Sequence[int | None]) -> pd.DataFrame:
    """Rows of :data:`EMITTED`: all cells of a step, at least one row, and its counts."""
    import pandas as pd

    shown: list[bytes | None] = [*cells] or [None]
    told = [[*counts], *[None] * (len(shown) - 1)]
    return pd.DataFrame({"emitted": shown, "counts": told}, dtype=object)


def totals(names: Sequence[str]) -> list[Column]:
    """The counts, in the order in which steps tell them, over all shards of a micro-batch."""
    return [F.sum(F.col("counts")[at]).alias(name) for at, name in enumerate(names)]
