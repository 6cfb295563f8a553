"""Filters that were filled on another number of shards, and how a state is placed on a new one.

The bits of a filter cannot be split by key. So every new shard that may have items of an old shard gets
a copy of its filters. An item is looked up in those of its own old shard only, so copies do not add
false positives. They are dropped as other filters are, when their cell is behind the horizon, or when
the oldest have to make room. New items go to new filters, whose shape is that of the new number of shards.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streamops.kernel.columns import combine_chunks, concat, key_codes, take
from streamops.kernel.groups import Groups, Ids, Ints
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
    """A filter of the items of one cell and one shard, out of another number of shards."""

    cell: int
    items: int
    bits: FilterBits
    probes: int
    shards: int
    shard: int

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


def decode(table: pa.Table | None) -> list[PreviousFilter]:
    """The filters of a table of the state."""
    if table is None:
        return []
    columns = [table.column(name).to_pylist() for name in LAYOUT.names if name != "filter"]
    filters = combine_chunks(table.column("filter"))
    bits = [np.frombuffer(filters[i].as_buffer(), np.uint64) for i in range(len(filters))]
    cell, items, *rest = columns
    return [PreviousFilter(*values) for values in zip(cell, items, bits, *rest, strict=True)]


def encode(filters: Sequence[PreviousFilter]) -> dict[str, pa.Table]:
    """The table with the filters, by its name; nothing without any."""
    if not filters:
        return {}
    rows = [(f.cell, f.items, f.bits.tobytes(), f.probes, f.shards, f.shard) for f in filters]
    columns = zip(*rows, strict=True)
    arrays = [pa.array(c, dtype) for c, dtype in zip(columns, LAYOUT.types, strict=True)]
    return {PREVIOUS: pa.table(arrays, schema=LAYOUT)}


def room_of(capacity: int, generations: int, shards: int) -> int:
    """Items of a generation in one shard: the mean, and three standard deviations.

    Shards are chosen by hash, so the number of items in a shard is binomial.
    """
    mean = capacity / generations / shards
    return math.ceil(mean + _DEVIATIONS * math.sqrt(mean * (1 - 1 / shards)))


def shape_of(capacity: int, generations: int, rate: float, shards: int) -> Shape:
    """Shape of every filter. One more than a horizon has are live and share the rate."""
    return Shape.of(room_of(capacity, generations, shards), rate / (generations + 1))


def redistribute(
    identity: Mapping[str, Any],
    states: Mapping[int, Mapping[str, pa.Table]],
    before: int,
    shards: int,
) -> tuple[Mapping[str, Any], list[Mapping[str, pa.Table]]]:
    """Redistribute the state of shards on another number of them.

    Parameters
    ----------
    identity : mapping
        The parameters, with the shape of the filters.
    states : mapping of int to tables
        By shard.
    before, shards : int
        Number of shards, before and after.

    Returns
    -------
    identity : mapping
        With the shape of the new filters.
    tables : list of tables
        One per new shard.
    """
    filters = [LAYOUT.empty_table()]
    empty = None
    for shard, tables in states.items():
        own = tables["generations"]
        empty = own.slice(0, 0)
        for value, name in ((identity["probes"], "probes"), (before, "shards"), (shard, "shard")):
            own = own.append_column(name, pa.array(np.full(len(own), value, np.int32)))
        filters += [own, *([tables[PREVIOUS]] if PREVIOUS in tables else [])]
    everything = concat(filters)
    # Copies of one filter come together again.
    codes = key_codes([combine_chunks(column) for column in everything.columns], len(everything))
    everything = take(everything, np.sort(Groups.of(codes)[1]))
    of, residue = (np.asarray(everything.column(name)) for name in ("shards", "shard"))
    common = np.gcd(of, shards)
    placed: list[Mapping[str, pa.Table]] = []
    for number in range(shards):
        chosen = np.flatnonzero((residue - number) % common == 0)
        tables = {"generations": empty}
        placed.append(tables | ({PREVIOUS: take(everything, chosen)} if len(chosen) else {}))
    shape = shape_of(
        identity["capacity"], identity["generations"], identity["false_positive_rate"], shards
    )
    return {**identity, "bits": shape.bits, "probes": shape.probes}, placed
