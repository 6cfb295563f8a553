"""Rows of groups in order: permutations, runs of equal rows, ranges of positions.

NumPy sorts numbers of 16 bits by radix, and runs that are sorted already by merging. Both take a
fraction of the time of its sort for arbitrary numbers. Rows of sketches are either grouped, or
consist of the sorted rows of several states.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from streamops.kernel.groups import Ids, Ints

__all__ = ["argsort_groups", "argsort_rows", "ranges", "run_starts"]

_BITS = 63
_RUN = 32  # rows of a run, on average, from which on runs are merged as they are


def argsort_groups(ids: Ids, count: int) -> Ids:
    """Positions by group, in their order within each.

    Examples
    --------
    >>> argsort_groups(np.array([1, 0, 1, 0]), 2).tolist()
    [1, 3, 0, 2]
    """
    order = np.argsort((ids & 0xFFFF).astype(np.uint16), kind="stable")
    for bit in range(16, count.bit_length(), 16):
        digit = (ids[order] >> bit).astype(np.uint16)
        order = order[np.argsort(digit, kind="stable")]
    return order


def argsort_rows(ids: Ids, values: Ints, count: int) -> Ids:
    """Positions by group, then by value, then by position.

    Parameters
    ----------
    ids : array of int64
        Group of each row, from 0 to ``count``.
    values : array of int64

    Examples
    --------
    >>> argsort_rows(np.array([1, 0, 1]), np.array([7, 9, -7]), 2).tolist()
    [1, 2, 0]
    """
    if not len(ids):
        return np.empty(0, np.int64)
    # One key: the group, and as many leading bits of the value as there is room for.
    room = _BITS - max(count - 1, 0).bit_length()
    least = int(values.min())
    width = (int(values.max()) - least).bit_length()
    shift = max(width - room, 0)
    above = (values.view(np.uint64) - np.uint64(least % (1 << 64))) >> np.uint64(shift)
    keys = (ids << min(width, room)) | above.view(np.int64)
    if np.count_nonzero(ids[1:] < ids[:-1]) * _RUN > len(ids):
        order = argsort_groups(ids, count)
        order = order[np.argsort(keys[order], kind="stable")]
    else:
        order = np.argsort(keys, kind="stable")
    if shift:
        keys, sorted_ = keys[order], values[order]
        if np.any((keys[1:] == keys[:-1]) & (sorted_[1:] < sorted_[:-1])):
            # Values of a group that differ in the other bits alone, which hashes hardly ever do.
            return np.lexsort((values, ids))
    return order


def run_starts(*columns: npt.NDArray[Any]) -> Ids:
    """Positions, in sorted columns, of the rows that differ from the one before.

    Examples
    --------
    >>> run_starts(np.array([0, 0, 1]), np.array([7, 7, 7])).tolist()
    [0, 2]
    """
    new = np.ones(len(columns[0]), np.bool_)
    new[1:] = False
    for column in columns:
        new[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(new)


def ranges(starts: Ids, sizes: Ints, step: int = 1) -> Ids:
    """Positions from each start on: as many as its size, ``step`` apart.

    Examples
    --------
    >>> ranges(np.array([10, 50]), np.array([2, 3]), 8).tolist()
    [10, 18, 50, 58, 66]
    """
    offsets = starts - step * (np.cumsum(sizes) - sizes)
    return np.repeat(offsets, sizes) + step * np.arange(int(sizes.sum()))
