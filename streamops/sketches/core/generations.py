"""Generations of filters: what was seen, and when, so that the oldest can be forgotten."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamops.kernel.columns import combine_chunks
from streamops.kernel.groups import Ids
from streamops.sketches.core.filters import Positions, Shape, Words, contained, filled

__all__ = ["LAYOUT", "NEVER", "Generation", "Keeping", "newest_cells", "read", "written"]

LAYOUT = pa.schema([("cell", pa.int64()), ("items", pa.int64()), ("filter", pa.binary())])

NEVER = -(1 << 62)
"""The cell of what was never seen."""

_ALMOST = 1 + 1e-9  # a sum of shares of a rate is that rate, but for what floats round off


@dataclass(frozen=True, slots=True)
class Generation:
    """What was seen first in one cell of event time.

    Parameters
    ----------
    cell : int
    items : int
        How many items were put into the filter, exactly.
    words : array of uint64
        The filter.
    """

    cell: int
    items: int
    words: Words


@dataclass(frozen=True, slots=True)
class Keeping:
    """The rules by which generations are filled, followed by others, and forgotten.

    Parameters
    ----------
    shape : Shape
        Of every filter.
    room : int
        Items that a generation is meant for. The next one goes to another of the same cell.
    rate : float
        What the rates of all generations together may come to.
    most : int
        Generations, beyond which the last one of a cell takes what comes.
    """

    shape: Shape
    room: int
    rate: float
    most: int

    def is_full(self, generations: Sequence[Generation]) -> bool:
        """Whether a new item is told to have been seen more often than promised.

        The rate of several filters is at most the sum of theirs.
        """
        rates = (self.shape.rate(each.items) for each in generations)
        return sum(rates) > self.rate * _ALMOST

    def added(
        self, generations: Sequence[Generation], cell: int, probes: Positions
    ) -> list[Generation]:
        """Generations in the order of their cells, with new items in this one."""
        result = list(generations)
        done, count = 0, probes.shape[1]
        while done < count:
            place = sum(each.cell <= cell for each in result)  # behind the last one of the cell
            last = result[place - 1] if place else None
            if last is None or last.cell != cell or self._is_closed(last, len(result)):
                last = Generation(cell, 0, np.zeros(self.shape.words, np.uint64))
                result.insert(place, last)
                place += 1
            free = self.room - last.items
            stop = min(count, done + free) if free > 0 else count
            words = filled(last.words, probes[:, done:stop])
            result[place - 1] = Generation(cell, last.items + stop - done, words)
            done = stop
        return result

    def _is_closed(self, last: Generation, count: int) -> bool:
        return last.items >= self.room and count < self.most


def newest_cells(generations: Sequence[Generation], probes: Positions) -> Ids:
    """The newest cell in which each item, given by its column, may have been seen."""
    count = probes.shape[1]
    found, rest = np.full(count, NEVER), np.arange(count)
    for each in reversed(generations):
        there = contained(each.words, probes, rest)
        if len(there):
            found[there] = each.cell
            rest = np.flatnonzero(found == NEVER)
    return found


def written(generations: Sequence[Generation]) -> pa.Table:
    """As a table of the state."""
    columns = [
        [each.cell for each in generations],
        [each.items for each in generations],
        [each.words.tobytes() for each in generations],
    ]
    pairs = zip(columns, LAYOUT.types, strict=True)
    return pa.table([pa.array(column, kind) for column, kind in pairs], schema=LAYOUT)


def read(table: pa.Table) -> list[Generation]:
    """What was written."""
    cells, items = (table.column(i).to_pylist() for i in (0, 1))
    filters = combine_chunks(table.column(2))
    words = [np.frombuffer(filters[i].as_buffer(), np.uint64) for i in range(len(filters))]
    return [Generation(*each) for each in zip(cells, items, words, strict=True)]
