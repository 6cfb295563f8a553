"""Aggregates over ranges of entries that overlap, by nothing but ``merge``.

A state cannot give back what was merged into it, so the state of a range is never got from that
of its neighbour: ranges are united from entries, or from blocks of entries that many of them
share. Ranges of a few entries are listed entry by entry. Long ones are cut into blocks of 1, 2,
4, 8, ... entries, each made of two of half its length: no more than two of each length for a
range (the nodes of a segment tree; Bentley, "Solutions to Klee's rectangle problems", 1977).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from streamops.kernel.groups import Groups, Ids
from streamops.windows.core.entries import merged
from streamops.windows.core.spec import WindowSpec

__all__ = ["in_blocks", "listed", "over_ranges"]

_FEW = 8
"""Up to so many times the entries are listed: below it, blocks cost more than they save."""

States = Sequence[pa.Array]


def over_ranges(spec: WindowSpec, states: States, low: Ids, high: Ids) -> list[pa.Array]:
    """The states of ranges of entries.

    Parameters
    ----------
    states : sequence of Array
        Those of the entries, of all aggregates in one row.
    low, high : arrays of int64
        Each range is ``[low, high)``; none is empty.
    """
    members = int((high - low).sum())
    if members == len(low):  # an entry each
        return _picked(states, low)
    if members <= _FEW * len(states[0]):
        return listed(spec, states, low, high)
    return in_blocks(spec, states, low, high)


def listed(spec: WindowSpec, states: States, low: Ids, high: Ids) -> list[pa.Array]:
    """The same, entry by entry."""
    sizes = high - low
    owners = np.repeat(np.arange(len(low)), sizes)
    within = np.arange(len(owners)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return merged(spec, Groups(owners, len(low)), _picked(states, low[owners] + within))


def in_blocks(spec: WindowSpec, states: States, low: Ids, high: Ids) -> list[pa.Array]:
    """The same, by blocks: block ``b`` of level ``k`` is the entries from ``b << k`` on."""
    taken = _blocks(low, high)
    # Only blocks that lie in a range are made: a sum over others could overflow for nothing.
    wanted = [np.zeros((len(states[0]) >> level) + 2, np.bool_) for level in range(len(taken))]
    for level in range(len(taken) - 1, -1, -1):
        wanted[level][taken[level][0]] = True
        if level:
            left = 2 * np.flatnonzero(wanted[level])
            wanted[level - 1][left] = wanted[level - 1][left + 1] = True

    owners, pieces = [], []
    made, place = _picked(states, np.flatnonzero(wanted[0])), np.cumsum(wanted[0]) - 1
    for level, (blocks, ranges) in enumerate(taken):
        if level:
            halves = place[2 * np.flatnonzero(wanted[level])]
            both = np.stack([halves, halves + 1], axis=1).ravel()
            pairs = Groups(np.repeat(np.arange(len(halves)), 2), len(halves))
            made, place = merged(spec, pairs, _picked(made, both)), np.cumsum(wanted[level]) - 1
        owners.append(ranges)
        pieces.append(_picked(made, place[blocks]))
    together = [pa.concat_arrays(parts) for parts in zip(*pieces, strict=True)]
    return merged(spec, Groups(np.concatenate(owners), len(low)), together)


def _blocks(low: Ids, high: Ids) -> list[tuple[Ids, Ids]]:
    """The blocks that make up each range, level by level: their numbers, and whose they are."""
    ranges, found = np.arange(len(low)), []
    while len(ranges):
        left, right = (low & 1) == 1, (high & 1) == 1
        blocks = np.concatenate([low[left], high[right] - 1])
        found.append((blocks, np.concatenate([ranges[left], ranges[right]])))
        low, high = (low + left) >> 1, (high - right) >> 1
        rest = low < high
        low, high, ranges = low[rest], high[rest], ranges[rest]
    return found


def _picked(states: States, rows: Ids) -> list[pa.Array]:
    index = pa.array(rows)
    return [state.take(index) for state in states]
