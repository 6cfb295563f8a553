"""Generations of filters: items by the cell of event time in which they were first seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamops.kernel.columns import combine_chunks
from streamops.kernel.groups import Ids
from streamops.sketches.core.filters import FilterBits, Positions, Shape, contained, filled

__all__ = [
    "LAYOUT",
    "NEVER",
    "Generation",
    "Rotation",
    "decode_generations",
    "encode_generations",
    "newest_cells",
]

LAYOUT = pa.schema([("cell", pa.int64()), ("items", pa.int64()), ("filter", pa.binary())])

NEVER = -(1 << 62)
"""The cell of an item that was never seen."""

_ALMOST = 1 + 1e-9  # tolerance for the rounding of a sum of rates


@dataclass(frozen=True, slots=True)
class Generation:
    """A filter of the items that were first seen in one cell, and how many they are."""

    cell: int
    items: int
    bits: FilterBits


@dataclass(frozen=True, slots=True)
class Rotation:
    """Rules by which generations are filled, and new ones begin.

    Parameters
    ----------
    shape : Shape
        Shape of every filter.
    room : int
        Items that a generation is meant for. The next item begins another one of the same cell.
    rate : float
        Limit of the false positive rate of all generations together.
    most : int
        Number of generations from which on a full one takes further items.
    """

    shape: Shape
    room: int
    rate: float
    most: int

    def is_full(self, generations: Sequence[Generation]) -> bool:
        """Whether the rate is exceeded. The rate of several filters is at most the sum of theirs."""
        rates = (self.shape.rate(generation.items) for generation in generations)
        return sum(rates) > self.rate * _ALMOST

    def add(
        self, generations: Sequence[Generation], cell: int, probes: Positions
    ) -> list[Generation]:
        """Add items to a cell. The result is sorted by cell."""
        result = list(generations)
        done, count = 0, probes.shape[1]
        while done < count:
            end = sum(other.cell <= cell for other in result)  # behind the last one of the cell
            last = result[end - 1] if end else None
            if last is None or last.cell != cell or self._is_closed(last, len(result)):
                last = Generation(cell, 0, np.zeros(self.shape.length, np.uint64))
                result.insert(end, last)
                end += 1
            free = self.room - last.items
            stop = min(count, done + free) if free > 0 else count
            bits = filled(last.bits, probes[:, done:stop])
            result[end - 1] = Generation(cell, last.items + stop - done, bits)
            done = stop
        return result

    def _is_closed(self, last: Generation, count: int) -> bool:
        return last.items >= self.room and count < self.most


def newest_cells(generations: Sequence[Generation], probes: Positions) -> Ids:
    """The newest cell of a generation that contains each item, or ``NEVER``."""
    count = probes.shape[1]
    found, rest = np.full(count, NEVER), np.arange(count)
    for generation in reversed(generations):
        there = contained(generation.bits, probes, rest)
        if len(there):
            found[there] = generation.cell
            rest = np.flatnonzero(found == NEVER)
    return found


def encode_generations(generations: Sequence[Generation]) -> pa.Table:
    """The generations as a table of the state."""
    columns = [
        [generation.cell for generation in generations],
        [generation.items for generation in generations],
        [generation.bits.tobytes() for generation in generations],
    ]
    arrays = [pa.array(c, dtype) for c, dtype in zip(columns, LAYOUT.types, strict=True)]
    return pa.table(arrays, schema=LAYOUT)


def decode_generations(table: pa.Table) -> list[Generation]:
    """The generations of a table of the state."""
    cells, items = (table.column(i).to_pylist() for i in (0, 1))
    filters = combine_chunks(table.column(2))
    arrays = [np.frombuffer(filters[i].as_buffer(), np.uint64) for i in range(len(filters))]
    return [Generation(*values) for values in zip(cells, items, arrays, strict=True)]
