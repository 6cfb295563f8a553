"""Panes: partial aggregates per key and piece of the grid, and their union into windows.

A table of panes is one of entries, with the column ``pane``: its start, in microseconds.

Windows without rows, published for keys that had some not long ago.

A window of a key is *empty* if the key has no row in it. It is published if it ends at most
``spec.empty_for`` after a window of the key that has rows and comes before it. So what is
published of a key depends on its own rows alone, and ends by itself.

What has to be known of the rows is where the panes lie. Of the panes in which no window can change
any more, the newest of each key is therefore retained, as long as an empty window after it can.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamops.kernel.columns import combine_chunks, concat, key_codes, null_table, take
from streamops.kernel.grids import expand_ranges
from streamops.kernel.groups import Groups, Ids, pair_codes
from streamops.kernel.time import MAX_INSTANT, Instants
from streamops.windows.core.grid_spec import FixedSpec
from streamops.windows.core.rows import (
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

__all__ = [
    "Windows",
    "deadlines",
    "known",
    "members",
    "nothing",
    "pane_schema",
    "partial",
    "settle",
    "unite",
    "with_empties",
]

Members = tuple[pa.Table, Ids, npt.NDArray[np.intp], Instants]
"""Entries, the key of each, and pairs of one of them and the number of a window."""

_NEVER = 1 << 62


@dataclass(frozen=True, slots=True)
class _Silences:
    """What comes after each pane of a key, up to the next. Windows are numbers.

    Parameters
    ----------
    order : array of int64
        The panes by key, and then by time. All else is in this order.
    first, last : arrays of int64
        The windows that the pane lies in.
    until : array of int64
        The newest window that is published though it is empty, for the sake of this pane.
    then, end : arrays of int64
        The first and the last window that the next pane of its key lies in; never, if there is
        none.
    """

    order: Ids
    first: Instants
    last: Instants
    until: Instants
    then: Instants
    end: Instants

    @staticmethod
    def of(spec: FixedSpec, panes: pa.Table, codes: Ids) -> _Silences:
        pane = micros(panes, "pane")
        order = np.lexsort((pane, codes))
        first, last = spec.grid.windows_of(pane[order])
        then, end = np.full(len(order), _NEVER), np.full(len(order), _NEVER)
        follows = np.flatnonzero(codes[order][1:] == codes[order][:-1])
        then[follows], end[follows] = first[follows + 1], last[follows + 1]
        assert spec.empty_for is not None, "only asked where empty windows are published"
        # Not beyond the calendar.
        limit = np.minimum(spec.grid.end_of(last) + spec.empty_for, MAX_INSTANT)
        until = np.maximum(spec.grid.windows_of(limit)[0] - 1, last)
        return _Silences(order, first, last, until, then, end)

    @property
    def ends(self) -> Instants:
        """The last of the windows, empty ones included, that are published of this pane."""
        return np.maximum(self.last, np.minimum(self.until, self.then - 1))


def nothing(spec: FixedSpec, count: int) -> list[pa.Array]:
    """So many states of the aggregates over no rows."""
    return update_states(spec, Groups(np.empty(0, np.int64), count), spec.input.empty_table())


def with_empties(
    spec: FixedSpec, panes: pa.Table, codes: Ids, found: Members, lowest: int, highest: int
) -> Members:
    """Windows that have panes, and with them the empty ones from ``lowest`` to ``highest``.

    Parameters
    ----------
    panes, codes : table of panes, and the key of each
        All that there are of these keys.
    found : Members
        The windows that have panes.
    """
    silences = _Silences.of(spec, panes, codes)
    low = np.maximum(silences.last + 1, lowest)
    which, numbers = expand_ranges(low, np.minimum(silences.ends, highest))
    there = spec.grid.exist(numbers)
    which, numbers = which[there], numbers[there]
    if not len(numbers):
        return found
    # One entry without rows for all that follow a pane.
    quiet, position = np.unique(which, return_inverse=True)
    owners = silences.order[quiet]
    table, keys, rows, windows = found
    blank = _blank(spec, take(panes, owners)).select(table.column_names)
    return (
        concat([table, blank]),
        np.concatenate([keys, codes[owners]]),
        np.concatenate([rows, len(table) + position]),
        np.concatenate([windows, numbers]),
    )


def known(
    spec: FixedSpec, panes: pa.Table, codes: Ids, published: tuple[int, int], final: int
) -> pa.Table:
    """The panes in which a window can still change, and those that a key is known by.

    The latter lose their aggregates, with the next window that is published for their sake: so
    nothing changes in a step in which nothing happens to them.

    Parameters
    ----------
    published : (int, int)
        The windows that this step publishes.
    final : int
        The newest window that cannot change any more.
    """
    silences = _Silences.of(spec, panes, codes)
    alive = silences.last > final
    stays = ~alive & (silences.until > final) & (silences.end > final)
    is_published = np.maximum(silences.first, published[0]) <= np.minimum(
        silences.ends, published[1]
    )
    emptied = stays & is_published
    if (alive | stays).all() and not emptied.any():
        return panes
    retained = np.sort(silences.order[(alive | stays) & ~emptied])
    fresh = _blank(spec, take(panes, np.sort(silences.order[emptied])))
    return concat([take(panes, retained), fresh])


def deadlines(spec: FixedSpec, panes: pa.Table, codes: Ids, first_open: int) -> Instants:
    """When each pane makes a window end, empty or not, or else when it can be forgotten."""
    silences = _Silences.of(spec, panes, codes)
    opens = np.maximum(silences.first, first_open)
    last = np.minimum(silences.until, silences.end)
    return np.where(
        opens <= silences.ends,
        spec.grid.end_of(np.minimum(opens, silences.ends)),
        spec.grid.end_of(last) + spec.retention,
    )


def _blank(spec: FixedSpec, panes: pa.Table) -> pa.Table:
    """The same panes without what was aggregated."""
    own = panes.columns[: len(spec.by) + 1]
    return pa.table([*own, *nothing(spec, len(panes))], schema=panes.schema)


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
