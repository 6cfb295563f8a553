"""Panes: partial aggregates per key and piece of the grid, and their union into windows.

A table of panes is one of entries, with the column ``pane``: its start, in microseconds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamops.kernel.columns import combine_chunks, concat, key_codes, null_table, take
from streamops.kernel.grids import expand_ranges
from streamops.kernel.groups import Groups, Ids, pair_codes
from streamops.kernel.time import Instants
from streamops.windows.core.empty_windows import with_empties
from streamops.windows.core.grid_spec import FixedSpec
from streamops.windows.core.state_rows import (
    estimates,
    is_order_sensitive,
    keys_of,
    merge_states,
    micros,
    state_schema,
    states_of,
    update_states,
    usable_times,
)

__all__ = ["Windows", "members", "pane_schema", "partial", "settle", "unite"]


def pane_schema(spec: FixedSpec) -> pa.Schema:
    """Columns of a table of panes."""
    return state_schema(spec, ("pane", pa.int64()))


def partial(spec: FixedSpec, rows: pa.Table) -> pa.Table:
    """Panes of raw rows, with their number in the column ``rows``.

    Rows without a usable event time are only counted: together, under a pane that is null.
    """
    times, valid = usable_times(spec, rows)
    unplaced = len(valid) - int(np.count_nonzero(valid))
    if unplaced:
        good = np.flatnonzero(valid)
        rows, times = take(rows, good), times[good]
    panes = spec.grid.pane_of(times)
    codes = key_codes([rows.column(name) for name in spec.by], len(rows))
    groups, firsts = Groups.of(pair_codes(codes, panes))
    index = pa.array(firsts)
    keys = [combine_chunks(rows.column(name)).take(index) for name in spec.by]
    number = pa.field("rows", pa.int64())
    table = pa.table(
        [
            *keys,
            pa.array(panes[firsts]),
            *update_states(spec, groups, rows),
            pa.array(groups.sizes()),
        ],
        schema=pane_schema(spec).append(number),
    )
    if not unplaced:
        return table
    return concat([table, null_table(pane_schema(spec), 1).append_column(number, [[unplaced]])])


def unite(spec: FixedSpec, stored: pa.Table, codes: Ids, table: pa.Table) -> tuple[pa.Table, Ids]:
    """Panes of one key and one start become one.

    Parameters
    ----------
    stored : Table
        The panes of before: each of them once. They keep their position.
    codes : array of int64
        The key of each row of ``table``.
    table : Table
        ``stored``, and below it what is new.

    Returns
    -------
    panes : Table
    codes : array of int64
        The key of each of its rows.
    """
    if len(table) == len(stored):
        return stored, codes
    return _one_per_key(spec, table, codes, micros(table, "pane"))


def settle(
    spec: FixedSpec, panes: pa.Table, codes: Ids, published: tuple[int, int], closed: int
) -> tuple[pa.Table, Ids]:
    """Panes become one that lie in the same of the windows that can still change.

    Parameters
    ----------
    panes, codes : table of panes, and the key of each
    published : (int, int)
        The windows that this step publishes. Panes in none of them are left as they are: so
        nothing changes in a step in which nothing happens to them.
    closed : int
        The newest window that cannot change any more.

    Returns
    -------
    panes : Table
    codes : array of int64
        The key of each of its rows.
    """
    pane = micros(panes, "pane")
    becomes = spec.grid.settled(pane, closed)
    if becomes is pane or is_order_sensitive(spec):
        return panes, codes
    first, last = spec.grid.windows_of(pane)
    is_published = np.maximum(first, published[0]) <= np.minimum(last, published[1])
    becomes = np.where(is_published, becomes, pane)
    if np.array_equal(becomes, pane):
        return panes, codes
    return _one_per_key(spec, panes, codes, becomes)


def members(
    spec: FixedSpec,
    panes: pa.Table,
    codes: Ids,
    lowest: int,
    highest: int,
    *,
    filled: int | None = None,
) -> tuple[pa.Table, Ids, npt.NDArray[np.intp], Instants]:
    """What the windows numbered from ``lowest`` to ``highest`` are made of.

    Parameters
    ----------
    filled : int, optional
        The newest window that is published though it is empty; ``highest`` if not given.

    Returns
    -------
    panes : Table
        The panes, or unions of them.
    codes : array of int64
        The key of each of them.
    rows, windows : arrays of int
        Pairs of a row of ``panes`` and the number of a window.
    """
    if spec.grid.is_nested:
        found = running(spec, panes, codes, lowest, highest)
    else:
        found = panes, codes, *spec.grid.explode(micros(panes, "pane"), lowest, highest)
    if spec.empty_for is None:
        return found
    filled = highest if filled is None else min(filled, highest)
    return with_empties(spec, panes, codes, found, lowest, filled)


def _one_per_key(
    spec: FixedSpec, table: pa.Table, codes: Ids, pane: Instants
) -> tuple[pa.Table, Ids]:
    """One pane per key and start, and the key of each."""
    groups, firsts = Groups.of(pair_codes(codes, pane))
    keys = take(table.select([f"key.{i}" for i in range(len(spec.by))]), firsts)
    columns = [pa.array(pane[firsts]), *merge_states(spec, groups, states_of(table, spec))]
    return pa.table([*keys.columns, *columns], schema=pane_schema(spec)), codes[firsts]


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows of one shard, each made of the panes of its key that lie in it.

    Parameters
    ----------
    keys : list of Array
        Key columns, one entry per window.
    codes, numbers, start, end : arrays of int64
        Key, number on the grid, and interval, one entry per window.
    values : list of Array
        The aggregates.
    """

    keys: list[pa.Array]
    codes: Ids
    numbers: Instants
    start: Instants
    end: Instants
    values: list[pa.Array]

    @staticmethod
    def of(spec: FixedSpec, panes: pa.Table, codes: Ids, lowest: int, highest: int) -> Windows:
        """All windows numbered from ``lowest`` to ``highest`` that have a pane."""
        return Windows.over(spec, *members(spec, panes, codes, lowest, highest))

    @staticmethod
    def over(
        spec: FixedSpec,
        panes: pa.Table,
        codes: Ids,
        rows: npt.NDArray[np.intp],
        numbers: Instants,
    ) -> Windows:
        """The windows of these pairs (row of ``panes``, number of a window): see ``members``."""
        entries, codes = take(panes, rows), codes[rows]
        if not (spec.grid.is_disjoint or spec.grid.is_nested):  # there, each has one member
            entries, codes = _one_per_key(spec, entries, codes, numbers)
            numbers = micros(entries, "pane")
        return Windows(
            keys=keys_of(entries, spec),
            codes=codes,
            numbers=numbers,
            start=spec.grid.start_of(numbers),
            end=spec.grid.end_of(numbers),
            values=estimates(spec, states_of(entries, spec)),
        )

    def __len__(self) -> int:
        return len(self.numbers)

    def take(self, rows: npt.NDArray[np.intp]) -> Windows:
        """The windows at these positions."""
        index = pa.array(rows)
        return Windows(
            [key.take(index) for key in self.keys],
            self.codes[rows],
            self.numbers[rows],
            self.start[rows],
            self.end[rows],
            [value.take(index) for value in self.values],
        )


def running(
    spec: FixedSpec, panes: pa.Table, codes: Ids, lowest: int, highest: int
) -> tuple[pa.Table, Ids, npt.NDArray[np.intp], Instants]:
    """The windows numbered from ``lowest`` to ``highest`` that have a pane.

    Returns
    -------
    totals : Table
        Entries: of each pane, united with those before it of its key and period.
    codes : array of int64
        The key of each of its rows.
    rows, windows : arrays of int
        The row of ``totals`` that a window is, and its number.
    """
    first, last = spec.grid.windows_of(micros(panes, "pane"))
    # Panes that count from the same of these windows on are one, unless rounding would tell.
    if not is_order_sensitive(spec):
        first = np.maximum(first, lowest)
    last = np.minimum(last, highest)
    inside = np.flatnonzero(np.maximum(first, lowest) <= last)
    panes, codes, first, last = take(panes, inside), codes[inside], first[inside], last[inside]
    # In order, per key and period.
    groups, heads = Groups.of(pair_codes(codes, first))
    order = np.lexsort((first[heads], codes[heads]))
    index = pa.array(order)
    states = [state.take(index) for state in merge_states(spec, groups, states_of(panes, spec))]
    heads = heads[order]
    codes, first, last = codes[heads], first[heads], last[heads]

    goes_on = (codes[1:] == codes[:-1]) & (last[1:] == last[:-1])
    begins = np.concatenate([np.ones(min(len(heads), 1), np.bool_), ~goes_on])
    position = np.arange(len(heads)) - np.flatnonzero(begins)[np.cumsum(begins) - 1]
    totals = pa.table(
        [*keys_of(take(panes, heads), spec), *_united(spec, states, position)],
        schema=state_schema(spec),
    )
    # A total stands until the next one of its period takes over.
    until = last.copy()
    until[:-1][goes_on] = first[1:][goes_on] - 1
    return totals, codes, *expand_ranges(np.maximum(first, lowest), until)


def _united(spec: FixedSpec, states: list[pa.Array], position: Ids) -> list[pa.Array]:
    """Each state united with all before it; ``position`` is its position in its period, from 0."""
    width = 1  # each is the union of so many, up to itself
    while width <= position.max(initial=0):
        rows = np.flatnonzero(position >= width)
        groups = Groups(np.concatenate([np.arange(len(position)), rows]), len(position))
        before = pa.array(rows - width)
        both = [pa.concat_arrays([state, state.take(before)]) for state in states]
        states = merge_states(spec, groups, both)
        width *= 2
    return states
