"""The table of a count-min sketch: how large it is, and where an item is counted."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from streamops.kernel.groups import Groups, Ids, Ints
from streamops.sketches.core.hashes import SEED, murmur3
from streamops.sketches.core.sorting import argsort_groups, run_starts

__all__ = ["MOST_CELLS", "Table", "cells_of", "depth_for", "summed", "width_for"]

Table = npt.NDArray[np.int64]

MOST_CELLS = 1 << 24
"""128 MiB of counts."""


def width_for(relative_error: float) -> int:
    """Cells in a row.

    Examples
    --------
    >>> width_for(0.01), width_for(0.001)
    (272, 2719)
    """
    return math.ceil(math.e / relative_error)


def depth_for(confidence: float) -> int:
    """Rows.

    Examples
    --------
    >>> depth_for(0.99), depth_for(0.5)
    (5, 1)
    """
    # Rounded first: 1 - 0.99 is a little more than 0.01.
    return max(math.ceil(round(-math.log(1 - confidence), 9)), 1)


def cells_of(hashes: Ints, width: int, depth: int) -> Iterator[Ids]:
    """Where each item is counted, in one row after the other.

    Examples
    --------
    >>> [cells.tolist() for cells in cells_of(np.array([1, 2]), 100, 3)]
    [[4, 23], [190, 121], [264, 273]]
    """
    for row in range(depth):
        if row % 2 == 0:
            halves = murmur3(hashes, seed=SEED + row // 2)
        # The upper 32 bits say how far along the row, as a share of it.
        share = (halves[row % 2] >> np.uint64(32)) * np.uint64(width)
        yield row * width + (share >> np.uint64(32)).astype(np.int64)


def summed(groups: Groups, tables: Table) -> Table:
    """The tables of each group, added up."""
    result = np.zeros((groups.count, tables.shape[1]), np.int64)
    order = argsort_groups(groups.ids, groups.count)
    starts = run_starts(groups.ids[order])
    if len(starts):
        result[groups.ids[order[starts]]] = np.add.reduceat(tables[order], starts, axis=0)
    return result
