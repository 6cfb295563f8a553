"""Timestamps: the event times of each key in order, and the aggregates of the windows that end there.

A table of timestamps is a state table with the column ``timestamp``, in microseconds. The window of a
timestamp is ``(timestamp - size, timestamp]``: a range of the timestamps of its key.

The state of a window is computed by ``merge`` alone, because merging cannot be undone. Short windows
merge their entries one by one. Longer windows merge blocks that many windows share: 1, 2, 4, 8, ...
cells of time, each block merged from two of half its length, at most two of each length per window (the
nodes of a segment tree; Bentley, "Solutions to Klee's rectangle problems", 1977), and single entries
where a cell is not covered at either end.

Cells have fixed borders, and each window chooses by its own entries only. So the same entries give the
same bits whatever else is in the table: a preimage that is computed again equals the published value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamops.kernel.columns import combine_chunks, take
from streamops.kernel.groups import Groups, Ids, Mask, ordered_pair_codes
from streamops.kernel.lateness import INSTANT
from streamops.kernel.time import Instants
from streamops.windows.core.spec import WindowSpec
from streamops.windows.core.tables import (
    estimate_values,
    keys_of,
    merge_states,
    state_schema,
    states_of,
    update_states,
)

_FEW = 16
"""Windows of up to so many entries merge their entries: blocks would cost more than they save."""

_CELLS = 10
"""A window has at least 2 to this power cells, if it has so many microseconds."""

States = Sequence[pa.Array]


@dataclass(frozen=True, slots=True)
class Ordered:
    """Entries in the order of (key, time): states of all aggregates, key numbers, event times."""

    states: States
    codes: Ids
    times: Instants


def timestamp_schema(spec: WindowSpec) -> pa.Schema:
    """Columns of a table of timestamps."""
    return state_schema(spec, ("timestamp", pa.int64()))


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """Rows with their key numbers and event times."""

    table: pa.Table
    codes: Ids
    times: Instants


@dataclass(frozen=True, slots=True)
class Timestamps:
    """Distinct timestamps of the keys of a shard, in the order of (key, time), with key numbers."""

    table: pa.Table
    codes: Ids
    times: Instants

    @staticmethod
    def of(spec: WindowSpec, stored: KeyedRows, rows: KeyedRows) -> tuple[Timestamps, Ids, Ids]:
        """Merge the stored timestamps with those of the rows.

        Returns
        -------
        timestamps : Timestamps
        was, arrived : arrays of int64
            The new position of each stored timestamp; the position of the timestamp of each row.
        """
        size = len(stored.codes)
        codes = np.concatenate([stored.codes, rows.codes])
        times = np.concatenate([stored.times, rows.times])
        codes_in_order = ordered_pair_codes(codes, times)
        # Rows among themselves first: the stored timestamps are mostly sorted, and merge fast.
        fresh, heads = _ordered(codes_in_order[size:])
        groups, first = _ordered(
            np.concatenate([codes_in_order[:size], codes_in_order[size:][heads]])
        )
        states = [
            pa.concat_arrays(pieces)
            for pieces in zip(
                states_of(stored.table, spec), update_states(spec, fresh, rows.table), strict=True
            )
        ]
        if groups.count == len(groups.ids):  # none is both stored and new
            states = [state.take(pa.array(first)) for state in states]
        else:
            states = merge_states(spec, groups, states)
        found = np.concatenate([np.arange(size), size + heads])[first]
        index = pa.array(found)
        keys = zip(
            keys_of(stored.table, spec), (rows.table.column(name) for name in spec.by), strict=True
        )
        columns = [pa.concat_arrays([a, combine_chunks(b)]).take(index) for a, b in keys]
        table = pa.table([*columns, pa.array(times[found]), *states], schema=timestamp_schema(spec))
        was, new = np.split(groups.ids, [size])
        return Timestamps(table, codes[found], times[found]), was, new[fresh.ids]

    def __len__(self) -> int:
        return len(self.times)

    def find(self, codes: Ids, times: Instants) -> Ids:
        """The number of timestamps before each of these pairs of key and instant."""
        if not len(codes):
            return codes
        everything = ordered_pair_codes(
            np.concatenate([self.codes, codes]), np.concatenate([self.times, times])
        )
        ours, theirs = np.split(everything, [len(self)])
        return np.searchsorted(ours, theirs)

    def oldest(self, size: int, rows: Ids) -> Ids:
        """The first timestamp in the window of each of these timestamps."""
        return self.find(self.codes[rows], self.times[rows] - size + 1)

    def seen_from(self, size: int, rows: Ids) -> Mask:
        """The timestamps whose windows contain at least one of these timestamps."""
        after = self.find(self.codes[rows], self.times[rows] + size)
        borders = np.bincount(rows, minlength=len(self) + 1)
        borders -= np.bincount(after, minlength=len(self) + 1)
        seen: Mask = np.cumsum(borders)[:-1] > 0
        return seen

    def about(self, spec: WindowSpec, rows: Ids) -> list[pa.Array]:
        """Key columns and event time of the results of these timestamps."""
        index = pa.array(rows)
        keys = [key.take(index) for key in keys_of(self.table, spec)]
        return [*keys, pa.array(self.times[rows]).cast(INSTANT)]

    def values(self, spec: WindowSpec, size: int, low: Ids, rows: Ids) -> list[pa.Array]:
        """The aggregates over the timestamps from ``low`` to ``rows``, both included."""
        entries = Ordered(states_of(self.table, spec), self.codes, self.times)
        return estimate_values(spec, merge_windows(spec, entries, low, rows, size))

    def values_before(
        self, spec: WindowSpec, size: int, stored: pa.Table, was: Ids, low: Ids, rows: Ids
    ) -> list[pa.Array]:
        """The aggregates over the stored timestamps among them; ``was`` has their new positions."""
        position = np.full(len(self) + 1, -1)
        position[was + 1] = np.arange(len(was))
        # The stored timestamps in order, and how many of them precede each timestamp.
        members = position[position >= 0]
        before: Ids = np.cumsum(position >= 0, dtype=np.int64)
        existed = np.flatnonzero(position[1:] >= 0)
        states = states_of(take(stored, members), spec)
        entries = Ordered(states, self.codes[existed], self.times[existed])
        return estimate_values(spec, merge_windows(spec, entries, before[low], before[rows], size))


def _ordered(codes_in_order: Ids) -> tuple[Groups, Ids]:
    """Group equal codes, numbered in ascending order, and find the first row of each group."""
    order = np.argsort(codes_in_order, kind="stable")
    ordered = codes_in_order[order]
    begins = np.ones(len(order), np.bool_)
    begins[1:] = ordered[1:] != ordered[:-1]
    ids = np.empty(len(order), np.int64)
    ids[order] = np.cumsum(begins) - 1
    first = order[begins]
    return Groups(ids, len(first)), first


def merge_windows(
    spec: WindowSpec, entries: Ordered, low: Ids, last: Ids, size: int
) -> list[pa.Array]:
    """Merge the states of windows, from entry ``low`` to entry ``last`` of each."""
    long = last - low >= _FEW
    if not long.any():
        return merge_entries(spec, entries, low, last)
    if long.all():
        return merge_blocks(spec, entries, low, last, size)
    some, others = np.flatnonzero(~long), np.flatnonzero(long)
    ways = zip(
        merge_entries(spec, entries, low[some], last[some]),
        merge_blocks(spec, entries, low[others], last[others], size),
        strict=True,
    )
    back = pa.array(np.argsort(np.concatenate([some, others])))
    return [pa.concat_arrays(pieces).take(back) for pieces in ways]


def merge_entries(spec: WindowSpec, entries: Ordered, low: Ids, last: Ids) -> list[pa.Array]:
    """Merge the states of windows entry by entry."""
    if np.array_equal(low, last):  # one entry per window
        return _take_states(entries.states, low)
    owners, rows = _members(low, last + 1)
    return merge_states(spec, Groups(owners, len(low)), _take_states(entries.states, rows))


def merge_blocks(
    spec: WindowSpec, entries: Ordered, low: Ids, last: Ids, size: int
) -> list[pa.Array]:
    """Merge the states of windows from blocks. Block ``b`` of level ``k`` starts at cell ``b << k``."""
    shift = max(size.bit_length() - 1 - _CELLS, 0)
    levels = [_Level.of(entries.codes, entries.times >> shift)]
    cells, begins = levels[0], np.append(levels[0].begins, len(entries.times))
    # Blocks cover the cells that lie in the window; the rest is merged entry by entry.
    end = entries.times[last]
    first, beyond = -((size - 1 - end) >> shift), (end + 1) >> shift
    start = cells.ids[low] + (cells.numbers[cells.ids[low]] < first)
    stop = cells.ids[last] + (cells.numbers[cells.ids[last]] < beyond)
    edges = [_members(low, begins[start]), _members(begins[stop], last + 1)]
    owners, pieces = map(list, zip(*edges, strict=True))
    pieces = [_take_states(entries.states, rows) for rows in pieces]

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

    merged = _merge_levels(spec, entries.states, levels, [blocks for blocks, _ in taken])
    members = [pa.concat_arrays(parts) for parts in zip(*pieces, *merged, strict=True)]
    owners += [ranges for _, ranges in taken]
    return merge_states(spec, Groups(np.concatenate(owners), len(low)), members)


@dataclass(frozen=True, slots=True)
class _Level:
    """The blocks of one length that have an entry, in order.

    Parameters
    ----------
    ids : array of int64
        The block of each block of the level below (of each entry, on the lowest level).
    begins : array of int64
        The first member of each block.
    codes, numbers : arrays of int64
        Key and number of each block.
    """

    ids: Ids
    begins: Ids
    codes: Ids
    numbers: Ids

    @staticmethod
    def of(codes: Ids, numbers: Ids) -> _Level:
        """Group members with the same key and number, which are sorted."""
        new = np.ones(len(codes), np.bool_)
        new[1:] = (codes[1:] != codes[:-1]) | (numbers[1:] != numbers[:-1])
        begins = np.flatnonzero(new)
        return _Level(np.cumsum(new) - 1, begins, codes[begins], numbers[begins])

    def above(self) -> _Level:
        """The blocks of twice the length."""
        return _Level.of(self.codes, self.numbers >> 1)


def _merge_levels(
    spec: WindowSpec, states: States, levels: list[_Level], taken: list[Ids]
) -> list[list[pa.Array]]:
    """The states of the taken blocks, level by level."""
    # Merge only blocks that a window uses: the sum of another one might overflow.
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
        states = merge_states(spec, groups, _take_states(states, below[rows]))
        pieces.append(_take_states(states, position[blocks]))
        below = position
    return pieces


def _members(low: Ids, high: Ids) -> tuple[Ids, Ids]:
    """All entries of the ranges ``[low, high)``: number of the range, and position of the entry."""
    sizes = high - low
    owners = np.repeat(np.arange(len(low)), sizes)
    within = np.arange(len(owners)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
    return owners, low[owners] + within


def _take_states(states: States, rows: Ids) -> list[pa.Array]:
    index = pa.array(rows)
    return [state.take(index) for state in states]
