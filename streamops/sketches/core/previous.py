"""Filters that were filled on another number of shards.

The bits of a filter cannot be split by key. So every new shard that may have items of an old shard gets
a copy of its filters. An item is looked up in those of its own old shard only, so copies do not add
false positives. They are dropped as other filters are, when their cell is behind the horizon, or when
the oldest have to make room. New items go to new filters, whose shape is that of the new number of shards.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streamops.kernel.columns import combine_chunks
from streamops.kernel.groups import Ids, Ints
from streamops.sketches.core.filters import (
    NEVER,
    FilterBits,
    Shape,
    contained,
    positions,
)

PREVIOUS = "previous"
"""Name of the table. It exists only after a change of the number of shards."""

LAYOUT = pa.schema(
    [
        ("cell", pa.int64()),
        ("items", pa.int64()),
        ("filter", pa.binary()),
        ("probes", pa.int32()),
        ("shards", pa.int32()),
        ("shard", pa.int32()),
    ]
)
"""The columns of a filter; its probes; and the shard that filled it, out of how many."""

_DEVIATIONS = 3


@dataclass(frozen=True, slots=True)
class PreviousFilter:
    """A filter of the items of one cell and one shard, out of another number of shards.

    ``segment`` is the number of the segment with the filter; 0 if there is none.
    """

    cell: int
    items: int
    bits: FilterBits
    probes: int
    shards: int
    shard: int
    segment: int = 0

    @property
    def shape(self) -> Shape:
        """Bits and probes."""
        return Shape(len(self.bits) * 64, self.probes)

    def rate(self, shards: int) -> float:
        """Expected share of false positives among the items of one of these shards.

        It contains a part of them, if there are fewer shards now.
        """
        return self.shape.rate(self.items) * math.gcd(shards, self.shards) / self.shards


def newest_cells(filters: Sequence[PreviousFilter], items: Ints) -> Ids:
    """The newest cell of a filter that contains each item, or ``NEVER``."""
    found = np.full(len(items), NEVER)
    probes: dict[Shape, Any] = {}
    for of in sorted(filters, key=lambda of: of.cell, reverse=True):
        among = np.flatnonzero((found == NEVER) & (items % of.shards == of.shard))
        if not len(among):
            continue
        if of.shape not in probes:
            probes[of.shape] = positions(of.shape, items)
        found[contained(of.bits, probes[of.shape], among)] = of.cell
    return found


def decode_filters(table: pa.Table) -> list[PreviousFilter]:
    """The filters of a table of the state."""
    columns = [table.column(name).to_pylist() for name in LAYOUT.names if name != "filter"]
    filters = combine_chunks(table.column("filter"))
    bits = [np.frombuffer(filters[i].as_buffer(), np.uint64) for i in range(len(filters))]
    cell, items, *rest = columns
    return [PreviousFilter(*values) for values in zip(cell, items, bits, *rest, strict=True)]


def encode_filters(filters: Sequence[PreviousFilter]) -> pa.Table:
    """The filters as a table of the state."""
    rows = [(f.cell, f.items, f.bits.tobytes(), f.probes, f.shards, f.shard) for f in filters]
    columns = zip(*rows, strict=True) if rows else [()] * len(LAYOUT)
    arrays = [pa.array(c, dtype) for c, dtype in zip(columns, LAYOUT.types, strict=True)]
    return pa.table(arrays, schema=LAYOUT)


def room_of(capacity: int, generations: int, shards: int) -> int:
    """Items of a generation in one shard: the mean, and three standard deviations.

    Shards are chosen by hash, so the number of items in a shard is binomial.
    """
    mean = capacity / generations / shards
    return math.ceil(mean + _DEVIATIONS * math.sqrt(mean * (1 - 1 / shards)))


def shape_of(capacity: int, generations: int, rate: float, shards: int) -> Shape:
    """Shape of every filter. One more than a horizon has are live and share the rate."""
    return Shape.of(room_of(capacity, generations, shards), rate / (generations + 1))
