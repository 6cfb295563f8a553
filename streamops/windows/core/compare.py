"""Comparison of window results with those of earlier periods.

The input has one row per key and window, and its event time is the end of the window. A comparison is
published on time, once the operator's watermark reaches that end. A row is a *straggler* if the end of
its window is at or below the watermark of the step before, and *too late* if it is below by the allowed
lateness or more. With corrections, a straggler changes the comparison of its own window, and of the
windows that are compared with it: of the next period, or of the next ones if there are several.

The published comparisons are a view of the stored windows: the view before the step is compared with
the view after it. A window is stored until no window that is compared with it can arrive or change.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamops.changelog.change_types import (
    CHANGE_TYPE,
    DELETE,
    INSERT,
    POSTIMAGE,
    PREIMAGE,
    is_change_type,
)
from streamops.kernel.columns import (
    combine_chunks,
    concat,
    integers,
    key_codes,
    rows_differ,
    take,
    timestamp_micros,
    to_floats,
    type_name,
)
from streamops.kernel.core import Metrics, State, StateFormat, Step
from streamops.kernel.errors import CapacityError
from streamops.kernel.formatted import format_row, format_rows, python_rows, python_value
from streamops.kernel.groups import Groups, Ids, Mask, first_of, pair_codes
from streamops.kernel.lateness import INSTANT
from streamops.kernel.operator import Core, Table
from streamops.kernel.time import (
    BEFORE_ALL,
    MIN_INSTANT,
    Instants,
    advance_watermark,
    format_instant,
)
from streamops.windows import conditions
from streamops.windows.core.bands import find_bands
from streamops.windows.core.compare_spec import WIDEST_DECIMAL, CompareSpec, difference_type
from streamops.windows.core.tables import (
    classify_lateness,
    find_usable,
    key_fields,
    keys_of,
    result_rows,
)


def window_schema(spec: CompareSpec) -> pa.Schema:
    """Columns of a table of windows."""
    values = [(f"value.{i}", spec.input.field(name).type) for i, name in enumerate(spec.values)]
    own: list[tuple[str, pa.DataType]] = [("start", pa.int64()), ("end", pa.int64())]
    if spec.corrects:
        values += [("revision", pa.int32()), ("source", pa.int64()), ("is_there", pa.bool_())]
    return pa.schema([*key_fields(spec), *own, *values])


def read_windows(spec: CompareSpec, rows: pa.Table) -> pa.Table:
    """Convert input rows to a table of windows."""
    count = len(rows)
    window = [pa.array(timestamp_micros(rows.column(name))[0]) for name in spec.time_columns]
    columns = [*(rows.column(name) for name in spec.by), *window]
    columns += [_unsigned(rows.column(name)) for name in spec.values]
    if spec.corrects:
        source = pa.array(np.zeros(count, np.int64))
        if spec.revised != "never":
            source = rows.column("revision").cast(pa.int64())
        is_there = np.ones(count, np.bool_)
        if spec.revised == "changes":
            is_there = np.asarray(combine_chunks(rows.column(CHANGE_TYPE))) != DELETE
        columns += [pa.array(np.full(count, -1, np.int32)), source, pa.array(is_there)]
    return pa.table(columns, schema=window_schema(spec))


def _unsigned(values: pa.ChunkedArray) -> pa.ChunkedArray:
    """Replace -0.0 by 0.0. They are equal, so a preimage might have the other sign."""
    if not pa.types.is_floating(values.type):
        return values
    return pc.add(values, pa.scalar(0.0, values.type))


@dataclass(frozen=True, slots=True)
class WindowTable:
    """The distinct windows of a shard, the stored ones first.

    Parameters
    ----------
    spec : CompareSpec
    table : Table
        The stored rows, followed by the new ones.
    codes, start, end : arrays of int64
        Key number and interval of each window.
    old, new : arrays of int64
        The row of each window before and after the step; -1 if it does not exist or is deleted.
    latest : array of int64
        The row with the highest revision, which may be a delete.
    stored : int
        Number of stored rows, each of which is one window.
    """

    spec: CompareSpec
    table: pa.Table
    codes: Ids
    start: Instants
    end: Instants
    old: Ids
    new: Ids
    latest: Ids
    stored: int

    @staticmethod
    def of(spec: CompareSpec, stored: pa.Table, arrived: pa.Table) -> WindowTable:
        """Merge new windows into the stored ones."""
        table = concat([stored, arrived]) if len(arrived) else stored
        keys = key_codes(keys_of(table, spec), len(table))
        start, end = integers(table, "start"), integers(table, "end")
        groups, _ = Groups.of(pair_codes(pair_codes(keys, start), end))
        source, is_there = np.zeros(len(table), np.int64), np.ones(len(table), np.bool_)
        if spec.corrects:
            source, is_there = (
                integers(table, "source"),
                np.asarray(combine_chunks(table.column("is_there"))),
            )
        latest = first_of(groups.ids, groups.count)
        if groups.count < len(table):
            latest = groups.first_by(~source, is_there.astype(np.int64))
            several = np.flatnonzero(is_there & (groups.sizes() > 1)[groups.ids])
            _refuse_conflicts(spec, table, several, groups.ids[several], source[several])
        old = np.full(groups.count, -1)
        old[: len(stored)] = np.where(is_there[: len(stored)], np.arange(len(stored)), -1)
        new = np.where(is_there[latest], latest, -1)
        return WindowTable(
            spec, table, keys[latest], start[latest], end[latest], old, new, latest, len(stored)
        )

    def __len__(self) -> int:
        return len(self.latest)

    @property
    def touched(self) -> Mask:
        """A mask of the windows that have changed."""
        return self.latest >= self.stored

    @property
    def revision(self) -> npt.NDArray[np.int32]:
        """The last published revision of each window, -1 for none."""
        revision = np.full(len(self), -1, np.int32)
        if self.spec.corrects:
            revision[: self.stored] = integers(self.table, "revision")[: self.stored]
        return revision

    def earlier(self, chosen: Ids) -> list[list[Ids]]:
        """Candidates for the earlier windows of each of these windows, by period: positions, or -1."""
        start, end = self.start[chosen], self.end[chosen]
        back = [
            self.spec.back(number).before(start, end) for number in range(1, self.spec.periods + 1)
        ]
        wanted = [candidate for candidates in back for candidate in candidates]
        starts, ends = (np.concatenate(edges) for edges in zip(*wanted, strict=True))
        found = self._find(np.tile(self.codes[chosen], len(wanted)), starts, ends)
        positions = iter(found.reshape(len(wanted), len(chosen)))
        return [[next(positions) for _ in candidates] for candidates in back]

    def _find(self, codes: Ids, start: Instants, end: Instants) -> Ids:
        stored, wanted = (self.codes, self.start, self.end), (codes, start, end)
        columns = (np.concatenate(pieces) for pieces in zip(stored, wanted, strict=True))
        key, begin, stop = columns
        # Groups are numbered in order of first appearance, and those of the table come first.
        found = Groups.of(pair_codes(pair_codes(key, begin), stop))[0].ids[len(self) :]
        return np.where(found < len(self), found, -1)

    def about(self, chosen: Ids) -> list[pa.Array]:
        """Key and window columns of the output."""
        index = pa.array(self.latest[chosen])
        keys = [key.take(index) for key in keys_of(self.table, self.spec)]
        window = (self.start[chosen], self.end[chosen])
        return [*keys, *(pa.array(edge).cast(INSTANT) for edge in window)]

    def results(self, rows: Ids, chosen: Ids, earlier: Sequence[Sequence[Ids]]) -> list[pa.Array]:
        """The values of windows and their comparisons with earlier windows.

        Parameters
        ----------
        rows : array of int64
            ``old`` or ``new``.
        earlier : sequence of sequences of arrays
            Candidates for the earlier windows, by period. The first one that exists is used.
        """
        before = np.full((len(earlier), len(chosen)), -1)
        for period, candidates in zip(before, earlier, strict=True):
            for found in reversed(candidates):
                at = np.where(found < 0, -1, rows[found])
                period[:] = np.where(at < 0, period, at)
        own, count = rows[chosen], len(self.spec.values)
        columns = [combine_chunks(self.table.column(f"value.{i}")) for i in range(count)]
        values, previous = (
            [column.take(pa.array(which, mask=which < 0)) for column in columns]
            for which in (own, before.ravel())
        )
        return compare_values(self.spec, self.about(chosen), values, previous)

    def retain(self, alive: Mask, revision: npt.NDArray[np.int32]) -> pa.Table:
        """The state table with these windows and revisions."""
        if alive.all() and not self.touched.any():
            table = self.table.slice(0, self.stored)
        else:
            table = take(self.table, self.latest[alive])
        if self.spec.corrects:
            position = table.schema.get_field_index("revision")
            table = table.set_column(
                position, table.schema.field(position), pa.array(revision[alive])
            )
        return table


def _refuse_conflicts(spec: CompareSpec, table: pa.Table, rows: Ids, ids: Ids, source: Ids) -> None:
    """Refuse two different rows of the same window and revision.

    ``rows`` are positions in the table, with the ids of their windows and their revisions.
    """
    groups, firsts = Groups.of(pair_codes(ids, source))
    first = rows[firsts][groups.ids]
    columns = [combine_chunks(table.column(f"value.{i}")) for i in range(len(spec.values))]
    second_index, first_index = pa.array(rows), pa.array(first)
    differs = rows_differ(
        [c.take(first_index) for c in columns], [c.take(second_index) for c in columns]
    )
    if not differs.any():
        return
    row = int(rows[differs][0])
    keys = format_row(pa.table(keys_of(table, spec), names=list(spec.by)), row)
    found = pa.array([int(first[differs][0]), row])
    pairs = [
        [*of.values()]
        for of in python_rows(
            table.select([f"value.{i}" for i in range(len(spec.values))]).take(found)
        )
    ]
    begin = int(integers(table, "start")[row])
    raise conditions.WINDOW_TWICE.error(
        got=f"values {pairs[0]} and {pairs[1]} of {keys}, window of {format_instant(begin)}"
    )


Revisions = npt.NDArray[np.int32]


class CompareCore(Core[CompareSpec]):
    """Comparison of window results with those of the previous period."""

    STATE = StateFormat("windows.compare", 1)
    TABLES: ClassVar = {"windows": Table(window_schema)}

    def step(
        self, spec: CompareSpec, state: State, inputs: Sequence[pa.Table], watermark: int | None
    ) -> Step:
        """Process one micro-batch. See the docstring of the module."""
        (packed,) = inputs
        previous_watermark = state.watermark
        watermark = advance_watermark(previous_watermark, watermark)
        was_by = BEFORE_ALL if previous_watermark is None else previous_watermark
        now_by = BEFORE_ALL if watermark is None else watermark
        rows, late, counts = _classify(spec, packed, previous_watermark)
        windows = WindowTable.of(spec, state.tables["windows"], read_windows(spec, rows))

        revision = windows.revision
        emitted, corrected = _correct(spec, windows, revision, was_by)
        prompt = np.flatnonzero(
            (windows.new >= 0) & (windows.end > was_by) & (windows.end <= now_by)
        )
        revision[prompt] = 0
        values = windows.results(windows.new, prompt, windows.earlier(prompt))
        columns = [*windows.about(prompt), *values]
        emitted.append(result_rows(spec, columns, revision[prompt], INSERT))
        counts += corrected + Metrics(results=len(prompt))

        alive = _alive(spec, windows.start, windows.end, now_by)
        tables = {"windows": windows.retain(alive, revision)}
        return Step(State(watermark, tables), concat(emitted), late, counts)

    def next_deadline(self, spec: CompareSpec, state: State) -> int | None:
        """When the next comparison is on time, or the next window can be evicted."""
        table = state.tables["windows"]
        start, end = integers(table, "start"), integers(table, "end")
        is_open = end > (BEFORE_ALL if state.watermark is None else state.watermark)
        if spec.corrects:
            is_open &= np.asarray(combine_chunks(table.column("is_there")))
        if not len(table):
            return None
        lasts = spec.longest.at_least + spec.retention  # a lower bound
        due = np.where(is_open, end, end + lasts)
        first = int(np.argmin(due))
        if is_open[first]:
            return int(due[first])
        until = int(spec.longest.over(start[[first]], end[[first]])[0]) + spec.retention
        near = np.flatnonzero(~is_open & (due < until))
        due[near] = spec.longest.over(start[near], end[near]) + spec.retention
        return min(until, int(due.min()))

    def check(self, spec: CompareSpec, state: State) -> None:
        """Windows are unique per key, and none is stored for too long."""
        table = state.tables["windows"]
        start, end = integers(table, "start"), integers(table, "end")
        codes = key_codes(keys_of(table, spec), len(table))
        watermark = BEFORE_ALL if state.watermark is None else state.watermark
        details = f"watermark {state.watermark}\n{format_rows(table)}"
        assert Groups.of(pair_codes(pair_codes(codes, start), end))[0].count == len(table), (
            f"twice: {details}"
        )
        assert (start < end).all(), f"an empty window: {details}"
        assert (spec.longest.over(start, end) + spec.retention > watermark).all(), (
            f"overdue: {details}"
        )
        if spec.corrects:
            is_published = integers(table, "revision") >= 0
            is_there = np.asarray(combine_chunks(table.column("is_there")))
            assert (is_published >= (is_there & (end <= watermark))).all(), (
                f"not published: {details}"
            )
            assert (end[is_published] <= watermark).all(), f"published too early: {details}"


def _alive(spec: CompareSpec, start: Instants, end: Instants, by: int) -> Mask:
    """A mask of the windows that are still needed.

    The exact period is computed only for windows near their eviction: calendar arithmetic is slow.
    """
    alive = end + (spec.longest.at_least + spec.retention) > by
    old = np.flatnonzero(~alive)
    alive[old] = spec.longest.over(start[old], end[old]) + spec.retention > by
    return alive


def _correct(
    spec: CompareSpec, windows: WindowTable, revision: Revisions, was_by: int
) -> tuple[list[pa.Table], Metrics]:
    """Publish the comparisons that stragglers change; raise their revisions in place."""
    stale = windows.touched & (windows.end <= was_by)
    if not stale.any():  # no window that ended before the step has changed
        return [], Metrics()
    chosen = np.flatnonzero((windows.end <= was_by) & np.isin(windows.codes, windows.codes[stale]))
    earlier = windows.earlier(chosen)
    hit = stale[chosen]
    for found in itertools.chain.from_iterable(earlier):
        hit |= (found >= 0) & stale[found]
    chosen, earlier = chosen[hit], [[found[hit] for found in period] for period in earlier]

    existed, exists = windows.old[chosen] >= 0, windows.new[chosen] >= 0
    was, now = (windows.results(rows, chosen, earlier) for rows in (windows.old, windows.new))
    again = np.flatnonzero(existed & exists & rows_differ(was, now))
    deleted, first = np.flatnonzero(existed & ~exists), np.flatnonzero(~existed & exists)
    anew = int((revision[chosen[first]] >= 0).sum())
    number = revision.copy()
    revision[chosen[first]] = np.maximum(
        number[chosen[first]] + 1, 1
    )  # it consists of stragglers only
    revision[chosen[again]] += 1

    def rows_of_change(
        positions: Ids, values: list[pa.Array], at: Revisions, change: str
    ) -> pa.Table:
        where, index = chosen[positions], pa.array(positions)
        columns = [*windows.about(where), *(column.take(index) for column in values)]
        return result_rows(spec, columns, at[where], change)

    emitted = [
        rows_of_change(deleted, was, number, DELETE),
        rows_of_change(first, now, revision, INSERT),
    ]
    if spec.retracts:
        emitted.append(rows_of_change(again, was, number, PREIMAGE))
    emitted.append(rows_of_change(again, now, revision, POSTIMAGE))
    counts = Metrics(results=len(first) - anew, corrections=len(again) + anew)
    return emitted, counts


def _classify(
    spec: CompareSpec, packed: pa.Table, previous_watermark: int | None
) -> tuple[pa.Table, pa.Table, Metrics]:
    """The accepted rows, the side output, and metrics."""
    arrived = find_usable(spec, packed, _invalid(spec, packed))
    rows = arrived.rows
    (start, _), (end, _) = (timestamp_micros(rows.column(name)) for name in spec.time_columns)
    found = classify_lateness(spec, arrived, (start, end), previous_watermark)
    accepted = found.accepted
    if spec.revised == "changes":  # a postimage replaces the whole row
        accepted = accepted & (np.asarray(combine_chunks(rows.column(CHANGE_TYPE))) != PREIMAGE)
    return arrived.where(accepted).rows, found.late, found.counts


def _invalid(spec: CompareSpec, rows: pa.Table) -> list[tuple[str, Mask]]:
    """Reasons for which rows are rejected besides their event time, and the rows of each."""
    start, is_known = timestamp_micros(rows.column("window_start"))
    end, _ = timestamp_micros(rows.column("window_end"))
    is_window: Mask = is_known & (start >= MIN_INSTANT) & (start < end)
    is_change = np.ones(len(rows), np.bool_)
    if spec.revised != "never":
        is_change &= np.asarray(combine_chunks(rows.column("revision")).is_valid())
    if spec.revised == "changes":
        is_change &= is_change_type(rows.column(CHANGE_TYPE))
    return [("bad_window", ~is_window), ("bad_change", ~is_change)]


def compare_values(
    spec: CompareSpec,
    about: Sequence[pa.Array],
    values: Sequence[pa.Array],
    earlier: Sequence[pa.Array],
) -> list[pa.Array]:
    """Values, previous values, changes and rates, and bands if there are any, in the order of the output.

    ``about`` has the key and window columns, for errors. Of each value, ``earlier`` has those of one
    period before, then those of two periods before, and so on.
    """
    columns = []
    for name, value, all_before in zip(spec.values, values, earlier, strict=True):
        before = all_before.slice(0, len(value))
        try:
            change = subtract(value, before)
        except pa.ArrowInvalid:
            raise _overflow(spec, about, name, value, before) from None
        base = to_floats(before)
        known = np.asarray(change.is_valid()) & (base != 0)
        with np.errstate(invalid="ignore", over="ignore"):  # infinities, as IEEE 754 has them
            rate = np.divide(to_floats(change), base, out=np.zeros(len(base)), where=known)
        columns += [value, before, change, pa.array(rate, mask=~known)]
        if spec.has_band:
            columns += find_bands(
                value, all_before, spec.periods, threshold=spec.threshold, fewest=spec.fewest
            )
    return columns


def subtract(value: pa.Array, before: pa.Array) -> pa.Array:
    """Subtract numbers exactly; an overflow is an ``ArrowInvalid``."""
    dtype = difference_type(value.type)
    wide = pa.decimal256(WIDEST_DECIMAL + 1, dtype.scale) if pa.types.is_decimal(dtype) else dtype
    return pc.subtract_checked(value.cast(wide), before.cast(wide)).cast(dtype)


def _overflow(
    spec: CompareSpec, about: Sequence[pa.Array], name: str, value: pa.Array, before: pa.Array
) -> CapacityError:
    """The error for the first change that does not fit."""

    def fails(row: int) -> bool:
        try:
            subtract(value[: row + 1], before[: row + 1])
        except pa.ArrowInvalid:
            return True
        return False

    row = bisect.bisect_left(range(len(value)), True, key=fails)
    keys = format_row(pa.table(list(about)[: len(spec.by)], names=list(spec.by)), row)
    begin = about[len(spec.by)].cast(pa.int64())[row].as_py()
    return conditions.CHANGE_OVERFLOW.error(
        name=name,
        difference_type=type_name(difference_type(value.type)),
        got=f"{python_value(value[row])} after {python_value(before[row])} in {name!r} of {keys}, "
        f"window of {format_instant(begin)}",
    )
