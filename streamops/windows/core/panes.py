"""Panes, their union into windows, and windows without rows.

A pane is the partial aggregate of a key over a piece of the grid. A table of panes is a state table with
the column ``pane``: the start of the pane in microseconds.

A window of a key is *empty* if the key has no row in it. It is published if it ends at most
``spec.empty_for`` after a preceding window of the key that has rows. So the empty windows of a key
depend on its own rows only, and they end. Of the panes whose windows cannot change any more, the newest
one of each key is stored until the last empty window after it is final.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamops.kernel.columns import combine_chunks, concat, integers, key_codes, null_table, take
from streamops.kernel.grids import expand_ranges
from streamops.kernel.groups import Groups, Ids, Mask, pair_codes
from streamops.kernel.hashing import digests
from streamops.kernel.lateness import Lateness
from streamops.kernel.segments import Segment, Segments
from streamops.kernel.time import AFTER_ALL, MAX_INSTANT, Instants
from streamops.windows.core.grid_spec import GridSpec
from streamops.windows.core.tables import (
    Results,
    estimate_values,
    is_order_sensitive,
    keys_of,
    merge_states,
    state_schema,
    states_of,
    update_states,
)

Members = tuple[pa.Table, Ids, npt.NDArray[np.intp], Instants]
"""A state table, the key number of each of its rows, and pairs of a row and the number of a window."""


def pane_schema(spec: GridSpec) -> pa.Schema:
    """Columns of a table of panes."""
    return state_schema(spec, ("pane", pa.int64()))


def aggregate_rows(spec: GridSpec, rows: pa.Table) -> pa.Table:
    """Aggregate rows to panes, with the number of rows in the column ``rows``.

    Rows without a usable event time are counted in one pane that is null.
    """
    lateness = Lateness.of(rows.column(spec.time), None)
    times, valid = lateness.times, lateness.on_time
    rejected = len(valid) - int(np.count_nonzero(valid))
    if rejected:
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
    if not rejected:
        return table
    return concat([table, null_table(pane_schema(spec), 1).append_column(number, [[rejected]])])


def merge_panes(
    spec: GridSpec, stored: pa.Table, codes: Ids, table: pa.Table
) -> tuple[pa.Table, Ids]:
    """Merge panes of the same key and start.

    Parameters
    ----------
    stored : Table
        The stored panes, which are distinct. They stay first.
    codes : array of int64
        Key number of each row of ``table``.
    table : Table
        The stored panes, followed by the new ones.

    Returns
    -------
    panes : Table
    codes : array of int64
        Key number of each pane.
    """
    if len(table) == len(stored):
        return stored, codes
    return _one_per_key(spec, table, codes, integers(table, "pane"))


def add_panes(spec: GridSpec, stored: pa.Table, panes: pa.Table) -> pa.Table:
    """Merge panes into the stored ones, as :func:`merge_panes` does.

    Only the stored panes of the same keys are numbered and merged. In a large state, which a micro-batch
    changes in few places, the others are copied, which takes a tenth of the time.
    """
    if not len(panes):
        return stored
    touched = _find_candidates(spec, stored, panes)
    table = concat([take(stored, touched), panes])
    codes = key_codes(keys_of(table, spec), len(table))
    merged, _ = _one_per_key(spec, table, codes, integers(table, "pane"))
    # The touched ones are the first ones of these, in their order. The others are new.
    new = merged.slice(len(touched))
    position = np.arange(len(stored) + len(new))
    position[len(stored) :] += len(touched)
    position[touched] = len(stored) + np.arange(len(touched))
    own = stored.column_names[: len(spec.by) + 1]
    states = [name for name in stored.column_names if name not in own]
    identified = concat([stored.select(own), new.select(own)])
    updated = take(concat([stored.select(states), merged.select(states)]), position)
    return pa.table([*identified.columns, *updated.columns], schema=stored.schema)


def _find_candidates(spec: GridSpec, stored: pa.Table, panes: pa.Table) -> Ids:
    """The positions of stored panes that may be equal to one of these, and of some others."""
    starts, new = integers(stored, "pane"), integers(panes, "pane")
    found = (starts >= new.min()) & (starts <= new.max())
    return np.flatnonzero(found & find_keys(spec, stored, panes))


def find_keys(spec: GridSpec, stored: pa.Table, panes: pa.Table) -> Mask:
    """Which of the stored panes may be of the keys of these, and some others."""
    keys, new_keys = (_comparable(keys_of(table, spec)) for table in (stored, panes))
    if keys is None:
        return np.ones(len(stored), np.bool_)
    found: Mask = np.asarray(pc.is_in(keys, value_set=new_keys))
    return found


def _comparable(keys: list[pa.Array]) -> pa.Array | None:
    """A column that is equal where the keys are, and seldom elsewhere."""
    if len(keys) == 1 and (pa.types.is_integer(keys[0].type) or pa.types.is_string(keys[0].type)):
        return keys[0]
    return pa.array(digests(keys)) if keys else None


def merge_settled(
    spec: GridSpec, panes: pa.Table, codes: Ids, published: tuple[int, int], final: int
) -> tuple[pa.Table, Ids]:
    """Merge panes that lie in the same of the windows that can still change.

    Parameters
    ----------
    published : (int, int)
        The first and last window that this step publishes. Other panes stay as they are, so a step
        that does not concern them writes the same state.
    final : int
        The last window that cannot change any more.
    """
    pane = integers(panes, "pane")
    merged_pane = spec.grid.settled(pane, final)
    if merged_pane is pane or is_order_sensitive(spec):
        return panes, codes
    first, last = spec.grid.windows_of(pane)
    is_published = np.maximum(first, published[0]) <= np.minimum(last, published[1])
    merged_pane = np.where(is_published, merged_pane, pane)
    if np.array_equal(merged_pane, pane):
        return panes, codes
    return _one_per_key(spec, panes, codes, merged_pane)


def windows_of_panes(
    spec: GridSpec,
    panes: pa.Table,
    codes: Ids,
    lowest: int,
    highest: int,
    *,
    last_empty: int | None = None,
) -> Members:
    """The windows from ``lowest`` to ``highest``, and the panes or prefix sums that they consist of.

    ``last_empty`` is the last window that is published if it is empty, by default ``highest``.
    """
    if spec.grid.is_nested:
        found = _accumulate(spec, panes, codes, lowest, highest)
    else:
        found = panes, codes, *spec.grid.explode(integers(panes, "pane"), lowest, highest)
    if spec.empty_for is None:
        return found
    last_empty = highest if last_empty is None else min(last_empty, highest)
    return _add_empty_windows(spec, panes, codes, found, lowest, last_empty)


def _one_per_key(
    spec: GridSpec, table: pa.Table, codes: Ids, pane: Instants
) -> tuple[pa.Table, Ids]:
    """Merge to one pane per key and start; return the key number of each."""
    groups, firsts = Groups.of(pair_codes(codes, pane))
    keys = take(table.select([f"key.{i}" for i in range(len(spec.by))]), firsts)
    columns = [pa.array(pane[firsts]), *merge_states(spec, groups, states_of(table, spec))]
    return pa.table([*keys.columns, *columns], schema=pane_schema(spec)), codes[firsts]


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows of one shard: their key numbers, their numbers on the grid, and their results."""

    codes: Ids
    numbers: Instants
    results: Results

    @staticmethod
    def of(spec: GridSpec, panes: pa.Table, codes: Ids, lowest: int, highest: int) -> Windows:
        """The windows from ``lowest`` to ``highest`` that have a pane or are published empty."""
        return Windows.over(spec, *windows_of_panes(spec, panes, codes, lowest, highest))

    @staticmethod
    def over(
        spec: GridSpec,
        panes: pa.Table,
        codes: Ids,
        rows: npt.NDArray[np.intp],
        numbers: Instants,
    ) -> Windows:
        """Merge the panes of each window. See :func:`windows_of_panes`."""
        entries, codes = take(panes, rows), codes[rows]
        if not (spec.grid.is_disjoint or spec.grid.is_nested):  # these have one row per window
            entries, codes = _one_per_key(spec, entries, codes, numbers)
            numbers = integers(entries, "pane")
        results = Results(
            keys_of(entries, spec),
            spec.grid.start_of(numbers),
            spec.grid.end_of(numbers),
            estimate_values(spec, states_of(entries, spec)),
        )
        return Windows(codes, numbers, results)


def _accumulate(spec: GridSpec, panes: pa.Table, codes: Ids, lowest: int, highest: int) -> Members:
    """The windows of nested grids: prefix sums of the panes of each key and period."""
    first, last = spec.grid.windows_of(integers(panes, "pane"))
    # Merge panes that start to count in the same window, unless it would change the rounding.
    if not is_order_sensitive(spec):
        first = np.maximum(first, lowest)
    last = np.minimum(last, highest)
    inside = np.flatnonzero(np.maximum(first, lowest) <= last)
    panes, codes, first, last = take(panes, inside), codes[inside], first[inside], last[inside]
    # Sort by key and period.
    groups, heads = Groups.of(pair_codes(codes, first))
    order = np.lexsort((first[heads], codes[heads]))
    index = pa.array(order)
    states = [state.take(index) for state in merge_states(spec, groups, states_of(panes, spec))]
    heads = heads[order]
    codes, first, last = codes[heads], first[heads], last[heads]

    continues = (codes[1:] == codes[:-1]) & (last[1:] == last[:-1])
    begins = np.concatenate([np.ones(min(len(heads), 1), np.bool_), ~continues])
    position = np.arange(len(heads)) - np.flatnonzero(begins)[np.cumsum(begins) - 1]
    totals = pa.table(
        [*keys_of(take(panes, heads), spec), *_merge_prefixes(spec, states, position)],
        schema=state_schema(spec),
    )
    # A total is the value of all windows up to the next total of its period.
    until = last.copy()
    until[:-1][continues] = first[1:][continues] - 1
    return totals, codes, *expand_ranges(np.maximum(first, lowest), until)


def _merge_prefixes(spec: GridSpec, states: list[pa.Array], position: Ids) -> list[pa.Array]:
    """Merge each state with all before it in its period; ``position`` counts from 0."""
    width = 1  # the number of states merged into each so far
    while width <= position.max(initial=0):
        rows = np.flatnonzero(position >= width)
        groups = Groups(np.concatenate([np.arange(len(position)), rows]), len(position))
        before = pa.array(rows - width)
        both = [pa.concat_arrays([state, state.take(before)]) for state in states]
        states = merge_states(spec, groups, both)
        width *= 2
    return states


@dataclass(frozen=True, slots=True)
class _Gaps:
    """The windows between each pane of a key and its next pane, as numbers.

    Parameters
    ----------
    order : array of int64
        Positions of the panes, sorted by key and time. The other arrays are in this order.
    first, last : arrays of int64
        The first and last window of the pane.
    until : array of int64
        The last window that is published empty because of this pane.
    next_first, next_last : arrays of int64
        The first and last window of the next pane of the key; ``AFTER_ALL`` if there is none.
    """

    order: Ids
    first: Instants
    last: Instants
    until: Instants
    next_first: Instants
    next_last: Instants

    @staticmethod
    def of(spec: GridSpec, panes: pa.Table, codes: Ids) -> _Gaps:
        pane = integers(panes, "pane")
        order = np.lexsort((pane, codes))
        first, last = spec.grid.windows_of(pane[order])
        next_first, next_last = (np.full(len(order), AFTER_ALL) for _ in range(2))
        follows = np.flatnonzero(codes[order][1:] == codes[order][:-1])
        next_first[follows], next_last[follows] = first[follows + 1], last[follows + 1]
        assert spec.empty_for is not None, "empty windows are not published"
        limit = np.minimum(spec.grid.end_of(last) + spec.empty_for, MAX_INSTANT)
        until = np.maximum(spec.grid.windows_of(limit)[0] - 1, last)
        return _Gaps(order, first, last, until, next_first, next_last)

    @property
    def ends(self) -> Instants:
        """The last window, empty or not, before those of the next pane that is published."""
        return np.maximum(self.last, np.minimum(self.until, self.next_first - 1))


def empty_states(spec: GridSpec, count: int) -> list[pa.Array]:
    """States of the aggregates over no rows, ``count`` times."""
    return update_states(spec, Groups(np.empty(0, np.int64), count), spec.input.empty_table())


def _add_empty_windows(
    spec: GridSpec, panes: pa.Table, codes: Ids, found: Members, lowest: int, highest: int
) -> Members:
    """Add the empty windows from ``lowest`` to ``highest``. ``panes`` are all panes of the keys."""
    gaps = _Gaps.of(spec, panes, codes)
    low = np.maximum(gaps.last + 1, lowest)
    which, numbers = expand_ranges(low, np.minimum(gaps.ends, highest))
    exists = spec.grid.exist(numbers)
    which, numbers = which[exists], numbers[exists]
    if not len(numbers):
        return found
    # One row of empty states for all empty windows after a pane.
    gap, position = np.unique(which, return_inverse=True)
    owners = gaps.order[gap]
    table, keys, rows, windows = found
    blank = _blank(spec, take(panes, owners)).select(table.column_names)
    return (
        concat([table, blank]),
        np.concatenate([keys, codes[owners]]),
        np.concatenate([rows, len(table) + position]),
        np.concatenate([windows, numbers]),
    )


def evict_with_empty_windows(
    spec: GridSpec, panes: pa.Table, codes: Ids, published: tuple[int, int], final: int
) -> pa.Table:
    """Evict panes after whose rows neither a window nor an empty window can change.

    A pane that is stored only for empty windows loses its aggregates when the next window because of it
    is published, so a step that does not concern it writes the same state.

    Parameters
    ----------
    published : (int, int)
        The first and last window that this step publishes.
    final : int
        The last window that cannot change any more.
    """
    gaps = _Gaps.of(spec, panes, codes)
    alive = gaps.last > final
    is_last = ~alive & (gaps.until > final) & (gaps.next_last > final)
    is_published = np.maximum(gaps.first, published[0]) <= np.minimum(gaps.ends, published[1])
    emptied = is_last & is_published
    if (alive | is_last).all() and not emptied.any():
        return panes
    retained = np.sort(gaps.order[(alive | is_last) & ~emptied])
    fresh = _blank(spec, take(panes, np.sort(gaps.order[emptied])))
    return concat([take(panes, retained), fresh])


def deadlines(spec: GridSpec, panes: pa.Table, codes: Ids, first_open: int) -> Instants:
    """When the next window of each pane ends, empty or not, or else when the pane can be evicted."""
    gaps = _Gaps.of(spec, panes, codes)
    opens = np.maximum(gaps.first, first_open)
    last = np.minimum(gaps.until, gaps.next_last)
    return np.where(
        opens <= gaps.ends,
        spec.grid.end_of(np.minimum(opens, gaps.ends)),
        spec.grid.end_of(last) + spec.retention,
    )


def _blank(spec: GridSpec, panes: pa.Table) -> pa.Table:
    """The same panes with empty states."""
    own = panes.columns[: len(spec.by) + 1]
    return pa.table([*own, *empty_states(spec, len(panes))], schema=panes.schema)


_MERGED = 4
"""How many segments are merged, and by how many times the numbers of rows of similar ones differ."""

_INTERVALS = 8
"""Intervals that panes are moved to, at most."""


def read_closing(segments: Segments | None, last: int) -> list[pa.Table]:
    """The rows of all segments with windows up to ``last``."""
    if segments is None:
        return []
    return [segments.read(of) for of in segments.index if of.first <= last]


def evict_segments(segments: Segments, last: int) -> Segments:
    """Remove the segments all of whose windows are closed; ``last`` is the last closed one."""
    closed = [of for of in segments.index if of.last <= last]
    return segments.remove(closed) if closed else segments


def move_panes(spec: GridSpec, panes: pa.Table, segments: Segments) -> Segments:
    """Move panes to segments, and merge segments."""
    first, last = spec.grid.windows_of(integers(panes, "pane"))
    distinct, scale = np.unique(first), 0
    while len(np.unique(distinct >> scale)) > _INTERVALS:
        scale += 1
    for interval in np.unique(distinct >> scale):
        found = np.flatnonzero(first >> scale == interval)
        rows = panes if len(found) == len(panes) else take(panes, found)
        limits = int(first[found].min()), int(last[found].max())
        segments = segments.add(rows, first=limits[0], last=limits[1], scale=scale)
    return _merge_similar(spec, segments)


def merge_duplicates(spec: GridSpec, panes: pa.Table) -> pa.Table:
    """Merge panes of the same key and start."""
    codes = key_codes(keys_of(panes, spec), len(panes))
    return merge_panes(spec, panes.slice(0, 0), codes, panes)[0]


def merge_tables(spec: GridSpec, tables: Sequence[pa.Table]) -> pa.Table:
    """Merge panes of several tables, each of which has a pane at most once."""
    largest, *others = sorted(tables, key=len, reverse=True)
    # Only rows of the others, and those that are equal to them, are numbered.
    return add_panes(spec, largest, merge_duplicates(spec, concat(others))) if others else largest


def _merge_similar(spec: GridSpec, segments: Segments) -> Segments:
    groups = defaultdict[tuple[int, int, int], list[Segment]](list)
    for of in segments.index:
        groups[of.scale, of.first >> of.scale, _level(of.rows, segments.limit)].append(of)
    full = [group for group in groups.values() if len(group) >= _MERGED]
    if not full:
        return segments
    for group in full:
        rows = merge_duplicates(spec, concat([segments.read(of) for of in group]))
        first, last = min(of.first for of in group), max(of.last for of in group)
        segments = segments.remove(group).add(rows, first=first, last=last, scale=group[0].scale)
    return _merge_similar(spec, segments)  # the merged ones may be similar to others


def _level(rows: int, limit: int) -> int:
    """The power of four by which a number of rows exceeds the limit, rounded."""
    return max(0, round(math.log(max(rows, 1) / max(limit, 1), _MERGED)))
