"""Aggregates over windows that overlap without a grid, by nothing but ``merge``.

A state cannot give back what was merged into it, so the state of a window is never got from that
of its neighbour. Windows of a few entries are listed entry by entry. Longer ones are made of
blocks that many of them share: pieces of time of 1, 2, 4, 8, ... cells, each made of two of half
its length, no more than two of each length for a window (the nodes of a segment tree; Bentley,
"Solutions to Klee's rectangle problems", 1977); what does not fill a cell at either end is listed.

Cells lie at fixed times, and the way is chosen for each window by its own entries. So the same
entries give the same bits, whatever else is in the table: a value that is computed once more, to
be taken back, is the value that was published.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamops.kernel.groups import Groups, Ids, Mask
from streamops.kernel.time import Instants
from streamops.windows.core.sliding_spec import SlidingSpec
from streamops.windows.core.state_rows import merge_states

__all__ = ["Ordered", "in_blocks", "listed", "over_windows"]

_FEW = 16
"""Windows of up to so many entries are listed: for them, blocks cost more than they save."""

_CELLS = 10
"""A window is at least 2 to this power cells long, if it is so many microseconds."""

States = Sequence[pa.Array]


@dataclass(frozen=True, slots=True)
class Ordered:
    """Entries in the order of (key, time).

    Parameters
    ----------
    states : sequence of Array
        Of all aggregates in one row.
    codes, times : arrays of int64
        The key of each, as a number; its instant.
    """

    states: States
    codes: Ids
    times: Instants


def over_windows(spec: SlidingSpec, entries: Ordered, low: Ids, last: Ids) -> list[pa.Array]:
    """The states of windows.

    Parameters
    ----------
    low, last : arrays of int64
        The first entry of each window, and the entry that it ends with.
    """
    long = last - low >= _FEW
    if not long.any():
        return listed(spec, entries, low, last)
    if long.all():
        return in_blocks(spec, entries, low, last)
    some, others = np.flatnonzero(~long), np.flatnonzero(long)
    ways = zip(
        listed(spec, entries, low[some], last[some]),
        in_blocks(spec, entries, low[others], last[others]),
        strict=True,
    )
    back = pa.array(np.argsort(np.concatenate([some, others])))
    return [pa.concat_arrays(pieces).take(back) for pieces in ways]


def listed(spec: SlidingSpec, entries: Ordered, low: Ids, last: Ids) -> list[pa.Array]:
    """The same, entry by entry."""
    if np.array_equal(low, last):  # an entry each
        return _picked(entries.states, low)
    owners, rows = _members(low, last + 1)
    return merge_states(spec, Groups(owners, len(low)), _picked(entries.states, rows))


def in_blocks(spec: SlidingSpec, entries: Ordered, low: Ids, last: Ids) -> list[pa.Array]:
    """The same, by blocks; block ``b`` of level ``k`` is the cells from ``b << k`` on."""
    shift = max(spec.size.bit_length() - 1 - _CELLS, 0)
    levels = [_Level.of(entries.codes, entries.times >> shift)]
    cells, begins = levels[0], np.append(levels[0].begins, len(entries.times))
    # Cells that lie in the window, and the blocks that stand for them; the rest is listed.
    end = entries.times[last]
    first, beyond = -((spec.size - 1 - end) >> shift), (end + 1) >> shift
    start = cells.ids[low] + (cells.numbers[cells.ids[low]] < first)
    stop = cells.ids[last] + (cells.numbers[cells.ids[last]] < beyond)
    edges = [_members(low, begins[start]), _members(begins[stop], last + 1)]
    owners, pieces = map(list, zip(*edges, strict=True))
    pieces = [_picked(entries.states, rows) for rows in pieces]

    taken: list[tuple[Ids, Ids]] = []
    ranges = np.arange(len(low))
    while True:
        rest = start < stop
        ranges, start, stop = ranges[rest], start[rest], stop[rest]
        first, beyond = first[rest], beyond[rest]
        if not len(ranges):
            break
        if taken:
            levels.append(levels[-1].above())
            start, stop = levels[-1].ids[start], levels[-1].ids[stop - 1] + 1
        numbers = levels[-1].numbers
        left, right = (first & 1) == 1, (beyond & 1) == 1
        begun = left & (numbers[start] == first)
        ended = right & (numbers[stop - 1] == beyond - 1) & (start + begun < stop)
        blocks = np.concatenate([start[begun], stop[ended] - 1])
        taken.append((blocks, np.concatenate([ranges[begun], ranges[ended]])))
        start, stop = start + begun, stop - ended
        first, beyond = (first + left) >> 1, (beyond - right) >> 1

    made = _blocks(spec, entries.states, levels, [blocks for blocks, _ in taken])
    together = [pa.concat_arrays(parts) for parts in zip(*pieces, *made, strict=True)]
    owners += [ranges for _, ranges in taken]
    return merge_states(spec, Groups(np.concatenate(owners), len(low)), together)


@dataclass(frozen=True, slots=True)
class _Level:
    """The blocks of one length in which there is an entry, in their order.

    Parameters
    ----------
    ids : array of int64
        For each block of the level below (for each entry, on the lowest), the block it is in.
    begins : array of int64
        The first of them in each block.
    codes, numbers : arrays of int64
        Key and number of each block.
    """

    ids: Ids
    begins: Ids
    codes: Ids
    numbers: Ids

    @staticmethod
    def of(codes: Ids, numbers: Ids) -> _Level:
        """Blocks of what lies in the same one."""
        new = np.ones(len(codes), np.bool_)
        new[1:] = (codes[1:] != codes[:-1]) | (numbers[1:] != numbers[:-1])
        begins = np.flatnonzero(new)
        return _Level(np.cumsum(new) - 1, begins, codes[begins], numbers[begins])

    def above(self) -> _Level:
        """The blocks twice as long."""
        return _Level.of(self.codes, self.numbers >> 1)


def _blocks(
    spec: SlidingSpec, states: States, levels: list[_Level], taken: list[Ids]
) -> list[list[pa.Array]]:
    """The states of the blocks that are taken, level by level."""
    # Only blocks that lie in a window are made: a sum over others could overflow for nothing.
    wanted: list[Mask] = [np.zeros(len(level.codes), np.bool_) for level in levels]
    for number in range(len(taken) - 1, -1, -1):
        wanted[number][taken[number]] = True
        if number:
            wanted[number - 1] |= wanted[number][levels[number].ids]
    pieces, below = [], np.arange(len(levels[0].ids))
    for level, which, blocks in zip(levels, wanted, taken, strict=False):
        position = np.cumsum(which) - 1
        rows = np.flatnonzero(which[level.ids])
        groups = Groups(position[level.ids[rows]], int(which.sum()))
        states = merge_states(spec, groups, _picked(states, below[rows]))
        pieces.append(_picked(states, position[blocks]))
        below = position
    return pieces


def _members(low: Ids, high: Ids) -> tuple[Ids, Ids]:
    """All entries of the ranges ``[low, high)``: whose each is, and where it stands."""
    sizes = high - low
    owners = np.repeat(np.arange(len(low)), sizes)
    within = np.arange(len(owners)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return owners, low[owners] + within


def _picked(states: States, rows: Ids) -> list[pa.Array]:
    index = pa.array(rows)
    return [state.take(index) for state in states]
