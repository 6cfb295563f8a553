"""Sliding windows: for each event at ``t``, the aggregate over ``(t - size, t]`` of its key.

There is one result per key and event time: events at the same instant have the same window. It is
published on time, once the operator's watermark reaches ``t``. A row is a *straggler* if its event time
is at or below the watermark of the step before, and *too late* if it is below by the allowed lateness
or more. A straggler at ``s`` creates or changes the result at ``s``, and changes the results of its key
in ``[s, s + size)``.

A timestamp ``t`` is stored as long as a window that contains it can change: its last window ends at
``t + size - 1``, and can change until the watermark is ``retention`` past its end.

With early results, a result is published in every step that changes it, and again once it is on time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamops.changelog.change_types import DELETE, INSERT, POSTIMAGE, PREIMAGE
from streamops.kernel.columns import combine_chunks, concat, integers, key_codes, rows_differ, take
from streamops.kernel.core import Identity, Metrics, State, StateFormat, Step
from streamops.kernel.formatted import format_rows
from streamops.kernel.groups import Groups, Ids, Mask, ordered_pair_codes, pair_codes
from streamops.kernel.lateness import INSTANT
from streamops.kernel.operator import Table
from streamops.kernel.time import BEFORE_ALL, Instants, advance_watermark
from streamops.windows.core.aggregating import WindowCore
from streamops.windows.core.sliding_spec import SlidingSpec
from streamops.windows.core.spec import WindowSpec
from streamops.windows.core.tables import (
    EARLY,
    LATE,
    ON_TIME,
    classify_lateness,
    convert_revisions,
    estimate_values,
    find_usable,
    keys_of,
    merge_states,
    number_keys,
    result_rows,
    revision_schema,
    state_schema,
    states_of,
    take_back_revisions,
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
    spec: WindowSpec, entries: Ordered, low: Ids, last: Ids, size: int | None
) -> list[pa.Array]:
    """Merge the states of windows, from entry ``low`` to entry ``last`` of each.

    Without a ``size``, times are whole numbers, and each window ends with its entries: which states are
    merged in which order depends on the times of its entries only.
    """
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
    spec: WindowSpec, entries: Ordered, low: Ids, last: Ids, size: int | None
) -> list[pa.Array]:
    """Merge the states of windows from blocks. Block ``b`` of level ``k`` starts at cell ``b << k``."""
    shift = 0 if size is None else max(size.bit_length() - 1 - _CELLS, 0)
    levels = [_Level.of(entries.codes, entries.times >> shift)]
    cells, begins = levels[0], np.append(levels[0].begins, len(entries.times))
    # Blocks cover the cells that lie in the window; the rest is merged entry by entry.
    end = entries.times[last]
    begin = entries.times[low] if size is None else end - size + 1
    first, beyond = -(-begin >> shift), (end + 1) >> shift
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
        states = _take_states(states, below[rows])
        if len(rows) > groups.count:  # otherwise each block has one member
            states = merge_states(spec, groups, states)
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


Revisions = npt.NDArray[np.int32]


class SlidingCore(WindowCore[SlidingSpec]):
    """Sliding windows: for each event at ``t``, the aggregate over ``(t - size, t]`` of its key."""

    STATE = StateFormat("windows.sliding", 1)
    TABLES: ClassVar = {
        "timestamps": Table(timestamp_schema),
        "revisions": Table(
            lambda spec: revision_schema(spec, "timestamp") if spec.revises else None
        ),
    }

    def step(
        self, spec: SlidingSpec, state: State, inputs: Sequence[pa.Table], watermark: int | None
    ) -> Step:
        """Process one micro-batch. See the docstring of the module."""
        (packed,) = inputs
        previous_watermark = state.watermark
        watermark = advance_watermark(previous_watermark, watermark)
        rows, times, late, counts = _classify(spec, packed, previous_watermark)

        stored = state.tables["timestamps"]
        revisions = state.tables.get("revisions", revision_schema(spec, "timestamp").empty_table())
        # Number the keys of all tables of this step together.
        keys = [
            keys_of(stored, spec),
            [combine_chunks(rows.column(name)) for name in spec.by],
            keys_of(revisions, spec),
        ]
        codes = number_keys(keys, [len(stored), len(rows), len(revisions)])
        timestamps, was, arrived = Timestamps.of(
            spec,
            KeyedRows(stored, codes[0], integers(stored, "timestamp")),
            KeyedRows(rows, codes[1], times),
        )
        was_by = BEFORE_ALL if previous_watermark is None else previous_watermark
        now_by = BEFORE_ALL if watermark is None else watermark
        number, timing = np.zeros(len(timestamps), np.int32), np.full(len(timestamps), ON_TIME)
        known = timestamps.find(codes[2], integers(revisions, "timestamp"))
        number[known] = integers(revisions, "revision")
        prompt = (timestamps.times > was_by) & (timestamps.times <= now_by)
        stale = np.unique(arrived[times <= was_by])
        touched = timestamps.seen_from(spec.size, stale) & (timestamps.times <= was_by)
        now = np.full(len(timestamps), LATE)  # the timing of what this step publishes
        if spec.is_early:
            timing[known] = integers(revisions, "timing")
            timing[timestamps.times > was_by] = EARLY
            now[timestamps.times > was_by] = ON_TIME
            now[timestamps.times > now_by] = EARLY
            # Also open results, and early results that are on time now.
            if spec.turned == "on":
                touched |= timestamps.times > was_by
            touched |= prompt | (now == EARLY) & timestamps.seen_from(spec.size, np.unique(arrived))
        before = _Published(number, timing)
        is_out = np.zeros(len(timestamps), np.bool_)
        is_out[was] = True
        if spec.turned == "on":  # open results were not published
            is_out &= timestamps.times <= was_by
        update = _publish(
            spec,
            timestamps,
            stored,
            was,
            prompt=prompt,
            touched=touched,
            is_out=is_out,
            before=before,
            now=now,
        )
        counts += update.counts
        emitted = update.emitted
        if spec.turned == "off" and spec.retracts:
            early = was[timestamps.times[was] > was_by]
            emitted = concat([_take_back(spec, timestamps, stored, was, early, number), emitted])

        tables = {"timestamps": timestamps.table}
        if spec.revises:
            tables["revisions"] = _revisions(spec, timestamps, update.published, now_by)
        alive = timestamps.times + spec.size - 1 > spec.final_by(now_by)
        if not alive.all():
            tables["timestamps"] = timestamps.table.filter(pa.array(alive)).combine_chunks()
        return Step(State(watermark, tables), emitted, late, counts)

    def convert(
        self,
        spec: SlidingSpec,
        stored: Identity,
        tables: Mapping[str, pa.Table],
        watermark: int | None,
    ) -> dict[str, pa.Table]:
        """The tables in the layout of the parameters."""
        found = dict(tables)
        convert_revisions(spec, "timestamp", found)
        if spec.turned == "off" and spec.corrects:
            first = BEFORE_ALL if watermark is None else watermark + 1
            results = found["timestamps"].select(range(len(spec.by) + 1))
            results = results.filter(pa.array(integers(results, "timestamp") >= first))
            found["revisions"] = take_back_revisions(
                spec, "timestamp", results, found["revisions"], first
            )
        return found

    def next_deadline(self, spec: SlidingSpec, state: State) -> int | None:
        """When the next result is on time, or the next row of state can be evicted."""
        timestamp = integers(state.tables["timestamps"], "timestamp")
        is_open = timestamp > (BEFORE_ALL if state.watermark is None else state.watermark)
        due = np.where(is_open, timestamp, timestamp + spec.event_retention)
        if spec.revises:
            revised = integers(state.tables["revisions"], "timestamp")
            due = np.concatenate([due, revised + spec.retention])
        return int(due.min()) if len(due) else None

    def check(self, spec: SlidingSpec, state: State) -> None:
        """Timestamps are unique per key, and none is stored for too long."""
        table = state.tables["timestamps"]
        timestamp = integers(table, "timestamp")
        codes = key_codes(keys_of(table, spec), len(table))
        details = f"watermark {state.watermark}\n{format_rows(table)}"
        assert Groups.of(pair_codes(codes, timestamp))[0].count == len(table), (
            f"a timestamp twice: {details}"
        )
        watermark = BEFORE_ALL if state.watermark is None else state.watermark
        assert (timestamp + spec.size - 1 > spec.final_by(watermark)).all(), f"overdue: {details}"
        if spec.revises:
            revisions = state.tables["revisions"]
            revised = integers(revisions, "timestamp")
            details = f"watermark {state.watermark}\n{format_rows(revisions)}"
            assert (integers(revisions, "revision") > 0).all(), f"a revision below 1: {details}"
            assert (revised > spec.final_by(watermark)).all(), f"overdue: {details}"


@dataclass(frozen=True, slots=True)
class _Published:
    """Revision and timing of the last publication of each timestamp."""

    number: Revisions
    timing: Ids


@dataclass(frozen=True, slots=True)
class _Update:
    """Rows to publish, the publications after them, and metrics."""

    emitted: pa.Table
    published: _Published
    counts: Metrics


def _publish(
    spec: SlidingSpec,
    timestamps: Timestamps,
    stored: pa.Table,
    was: Ids,
    *,
    prompt: Mask,
    touched: Mask,
    is_out: Mask,
    before: _Published,
    now: Ids,
) -> _Update:
    """Publish results that are on time now, and changes of published results.

    The published value is not stored. It is computed from the timestamps before the step, because
    every change to a published result is published.

    Parameters
    ----------
    was : array of int64
        The new position of each stored timestamp.
    prompt, touched : arrays of bool
        Timestamps whose results are on time now; whose published results may have changed, or have
        been early until now.
    is_out : array of bool
        Timestamps whose stored results have been published, if they are touched.
    now : array of int64
        The timing of a result that is published now.
    """
    chosen = np.flatnonzero(prompt | touched)
    low = timestamps.oldest(spec.size, chosen)
    columns = timestamps.values(spec, spec.size, low, chosen)
    about = timestamps.about(spec, chosen)
    after = _Published(before.number.copy(), before.timing.copy())
    if not touched.any():
        emitted = result_rows(spec, [*about, *columns], after.number[chosen])
        return _Update(emitted, after, Metrics(results=len(chosen)))

    old = np.flatnonzero((touched & is_out)[chosen])  # positions in `chosen`, as below
    values = timestamps.values_before(spec, spec.size, stored, was, low[old], chosen[old])
    differs = rows_differ(values, [column.take(pa.array(old)) for column in columns])
    differs |= prompt[chosen[old]]  # re-emit an unchanged value: its timing changed to on time
    again, back = old[differs], np.flatnonzero(differs)
    first = np.flatnonzero((touched & ~is_out)[chosen])
    # 1 if only stragglers made it; if early results were taken back, the next one is stored.
    after.number[chosen[first]] = np.maximum(
        before.number[chosen[first]], now[chosen[first]] == LATE
    )
    after.number[chosen[again]] += 1
    for anew in (chosen[first], chosen[again]):
        after.timing[anew] = now[anew]

    def rows(
        positions: Ids, values: list[pa.Array], which: Ids, at: _Published, change: str
    ) -> pa.Table:
        index, position, found = pa.array(which), pa.array(positions), chosen[positions]
        filled = [*(a.take(position) for a in about), *(v.take(index) for v in values)]
        return result_rows(spec, filled, at.number[found], change, at.timing[found])

    emitted = [rows(first, columns, first, after, INSERT)]
    if spec.retracts:
        emitted.append(rows(again, values, back, before, PREIMAGE))
    emitted.append(rows(again, columns, again, after, POSTIMAGE))
    ready = np.flatnonzero((prompt & ~touched)[chosen])
    emitted.append(rows(ready, columns, ready, after, INSERT))
    counts = Metrics(results=len(first) + len(ready), corrections=len(again))
    return _Update(concat(emitted), after, counts)


def _take_back(
    spec: SlidingSpec,
    timestamps: Timestamps,
    stored: pa.Table,
    was: Ids,
    rows: Ids,
    number: Revisions,
) -> pa.Table:
    """Deletes of the early results at these timestamps; ``number`` has the next revisions."""
    low = timestamps.oldest(spec.size, rows)
    values = timestamps.values_before(spec, spec.size, stored, was, low, rows)
    return result_rows(spec, [*timestamps.about(spec, rows), *values], number[rows] - 1, DELETE)


def _classify(
    spec: SlidingSpec, packed: pa.Table, previous_watermark: int | None
) -> tuple[pa.Table, Ids, pa.Table, Metrics]:
    """The accepted rows and their event times, the side output, and metrics."""
    arrived = find_usable(spec, packed)
    found = classify_lateness(spec, arrived, (arrived.times,), previous_watermark)
    arrived = arrived.where(found.accepted)
    return arrived.rows, arrived.times, found.late, found.counts


def _revisions(
    spec: SlidingSpec, timestamps: Timestamps, published: _Published, watermark: int
) -> pa.Table:
    """Revisions above 0 of results that can still change."""
    alive = timestamps.times > spec.final_by(watermark)
    rows = np.flatnonzero((published.number > 0) & alive)
    results = take(timestamps.table.select(range(len(spec.by) + 1)), rows)
    columns = [*results.columns, pa.array(published.number[rows])]
    if spec.is_early:
        columns.append(pa.array(published.timing[rows]).cast(pa.int8()))
    return pa.table(columns, schema=revision_schema(spec, "timestamp"))
