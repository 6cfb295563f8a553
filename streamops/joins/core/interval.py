"""Interval join: rows of two streams with the same key whose times are close to one another.

A left row ``l`` and a right row ``r`` match if their keys are equal and ``r.time`` lies in
``[l.time + lower, l.time + upper]``, both ends included. A row is late if its time is not above the
watermark of the previous step. A straggler is a late row less than the allowed lateness behind that
watermark; it is joined only with ``retract``.

A row is *final* once the watermark has reached the last time at which it can have a partner,
``l.time + upper`` or ``r.time - lower``: all later rows on time lie above the watermark. If a final
row never had a partner, it is *expired*. It is evicted the allowed lateness later, when a straggler
cannot match it either. The status that a row was emitted with is stored with the row, not derived
from other rows in state.

With ``first`` or ``last`` a left row is joined with one of its partners, its *answer*. The first
is final once the watermark has reached its own time, the last when the left row is.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import pyarrow as pa

from streamops.changelog.change_types import CHANGE_TYPE, DELETE, INSERT
from streamops.joins.core.interval_spec import IntervalSpec
from streamops.joins.core.side_state import (
    EARLY,
    EXPIRED,
    LATE,
    MATCHED,
    NOTHING,
    SideRows,
    SortedIndex,
    Status,
    equal_keys,
    expand,
    state_schema,
    stored_times,
)
from streamops.kernel.adapting_rows import map_columns
from streamops.kernel.columns import combine_chunks, concat
from streamops.kernel.core import SIDES, Identity, Metrics, SideName, State, StateFormat, Step
from streamops.kernel.formatted import format_rows
from streamops.kernel.groups import Groups, Ids, Mask
from streamops.kernel.lag import note_lag
from streamops.kernel.lateness import Arrivals, Lateness
from streamops.kernel.operator import Core, Table
from streamops.kernel.ordering import ranks
from streamops.kernel.placement import ByKey, Placement
from streamops.kernel.time import AFTER_ALL, BEFORE_ALL, Instants, advance_watermark

_STATUS = pa.array(["early", "expired", "matched", "late_match"])
_CHANGES = pa.array([DELETE, INSERT])
_FIRST = EARLY
assert (EARLY, EXPIRED, MATCHED, LATE) == (1, 2, 3, 4)


@dataclass(frozen=True, slots=True)
class Results:
    """Results to insert or to delete: the row of either side, or -1 where there is none."""

    left: Ids
    right: Ids
    status: Status
    inserts: bool = True

    def __len__(self) -> int:
        return len(self.left)


Decision = tuple[list[Results], dict[SideName, Status]]
"""Results, with deletes first, and the status that every row of either side is emitted with."""


def _without_partner(side: SideName, rows: Ids, status: Status, *, inserts: bool = True) -> Results:
    none = np.full(len(rows), -1, np.int64)
    left, right = (rows, none) if side == "left" else (none, rows)
    return Results(left, right, status[rows], inserts)


def build_output(
    spec: IntervalSpec, left: SideRows, right: SideRows, results: Sequence[Results]
) -> pa.Table:
    """The rows of the output, in this order."""
    results = [result for result in results if len(result)]
    if not results:
        return spec.output.empty_table()
    ours = np.concatenate([result.left for result in results])
    theirs = np.concatenate([result.right for result in results])
    status = np.concatenate([result.status for result in results])
    left_index, right_index = _index(ours), _index(theirs)
    columns = {
        name: combine_chunks(left.table.column(name)).take(left_index)
        for name in spec.left.schema.names
    }
    if spec.joins:
        if (ours < 0).any():
            # Without a left row, the key columns have the values of the right row.
            either = pa.array(np.where(ours >= 0, ours, len(left) + theirs))
            for name, own in spec.by:
                pieces = left.table.column(name), right.table.column(own)
                columns[name] = pa.concat_arrays(list(map(combine_chunks, pieces))).take(either)
        for own, name in spec.names.right:
            columns[name] = combine_chunks(right.table.column(own)).take(right_index)
    columns[spec.into] = _STATUS.take(pa.array(status - _FIRST))
    if spec.is_change_stream:
        inserts = np.repeat(
            [result.inserts for result in results], [len(result) for result in results]
        )
        columns[CHANGE_TYPE] = _CHANGES.take(pa.array(inserts.astype(np.int8)))
    count = len(ours)
    return pa.table(
        [columns.get(f.name, pa.nulls(count, f.type)) for f in spec.output], schema=spec.output
    )


def _index(rows: Ids) -> pa.Array:
    missing = rows < 0
    return pa.array(rows, mask=missing) if missing.any() else pa.array(rows)


def emit_matches(
    spec: IntervalSpec, left: SideRows, right: SideRows, previous: int, current: int
) -> Decision:
    """Every match of this step, and the rows without a partner."""
    matches: list[Results] = []
    if spec.joins:
        ours, theirs = _find_pairs(spec, left, right)
        late = _is_late(spec, left, ours, right, theirs, previous)
        matches.append(Results(ours, theirs, np.where(late, LATE, MATCHED).astype(np.int8)))
    else:
        has, has_timely = _find_partnered(spec, left, right, previous)
        ours, theirs = np.flatnonzero(has), np.empty(0, np.int64)
        if spec.how == "semi":
            # A left row is emitted once: after its first partner it is not in state.
            status = np.where(has_timely, MATCHED, LATE).astype(np.int8)
            matches.append(_without_partner("left", ours, status))
    results: list[Results] = []
    decided: dict[SideName, Status] = {}
    sides: list[tuple[SideName, SideRows, Ids]] = [("left", left, ours), ("right", right, theirs)]
    for side, rows, matched in sides:
        status = _status_without_partner(spec, side, rows, matched, current)
        decided[side] = status
        if spec.preserves(side):
            differs = status != rows.status
            deleted = differs & ((rows.status == EARLY) | (rows.status == EXPIRED))
            inserted = differs & ((status == EARLY) | (status == EXPIRED))
            results.insert(
                0, _without_partner(side, np.flatnonzero(deleted), rows.status, inserts=False)
            )
            results.append(_without_partner(side, np.flatnonzero(inserted), status))
    return [*results, *matches], decided


def emit_answers(
    spec: IntervalSpec, left: SideRows, right: SideRows, previous: int, current: int
) -> Decision:
    """The answers of left rows: one match for each, where it changes or is final now."""
    concerned = (left.status < EXPIRED) & (left.times + spec.lower <= current)
    concerned |= spec.is_settled("left", left.times)
    concerned[: left.stored] |= _is_affected(spec, left, right)
    concerned[left.stored :] = True
    rows = np.flatnonzero(concerned)
    status = left.status[rows]
    overdue = status < NOTHING
    before = np.where(overdue, ~status, status)
    # What was emitted is the answer among the rows in state.
    old = np.full(len(rows), -1, np.int64)
    known = np.flatnonzero(status != NOTHING)
    in_state = right.stored_index, np.arange(right.stored)
    old[known] = find_answers(spec, left, rows[known], right, *in_state)
    new = find_answers(spec, left, rows, right, right.index, right.order)

    has = new >= 0
    # An answer that arrived late has the status "late_match" in whichever step it is emitted.
    late = (before >= EXPIRED) & (old != new) | overdue & (old == new)
    late[has] |= _is_late(spec, left, rows[has], right, new[has], previous)
    unchanged = np.where((before >= MATCHED) & (old == new), before, MATCHED)
    alone = EXPIRED if spec.preserves("left") else NOTHING
    final = np.where(has, np.where(late, LATE, unchanged), alone)
    early = EARLY if spec.is_early else NOTHING
    pending = np.where(has | spec.preserves("left"), early, NOTHING)
    is_final = final_at(spec, left, rows, right, new) <= current
    is_final |= spec.is_settled("left", left.times[rows])
    after = np.where(is_final, final, pending).astype(np.int8)

    differs = (before != after) | (old != new) & (after != NOTHING)
    deleted = np.flatnonzero(differs & (before != NOTHING))
    inserted = np.flatnonzero(differs & (after != NOTHING))
    status = left.status.copy()
    status[rows] = np.where(has & late & ~is_final, ~after, after)
    results = [
        Results(rows[deleted], old[deleted], before[deleted], inserts=False),
        Results(rows[inserted], new[inserted], after[inserted]),
    ]
    return results, {"left": status, "right": right.status}


def find_answers(
    spec: IntervalSpec, left: SideRows, rows: Ids, right: SideRows, index: SortedIndex, order: Ids
) -> Ids:
    """The first or last partner of each of these left rows; -1 if there is none.

    ``index`` and ``order`` select the right rows: all, or those in state.
    """
    result = np.full(len(rows), -1, np.int64)
    keyed = np.flatnonzero(left.has_key[rows])
    starts, ends = _spans(spec, left, rows[keyed], index)
    some = ends > starts
    candidates, starts, ends = keyed[some], starts[some], ends[some]
    if not len(candidates):
        return result
    # Only the partners at the first or last time, of which there is mostly one, are compared.
    best = index.times[starts] if spec.matches == "first" else index.times[ends - 1]
    lowest, highest = index.spans(left.hashes[rows[candidates]], best, best)

    def choose(candidates: Ids, starts: Ids, ends: Ids) -> None:
        which, positions = expand(starts, ends)
        theirs = order[positions]
        equal = np.flatnonzero(_has_same_key(spec, left, rows[candidates[which]], right, theirs))
        if len(equal):
            which, theirs = which[equal], theirs[equal]
            best = _choose_best(spec, right, theirs, Groups(which, len(candidates)))
            found = best >= 0
            result[candidates[found]] = theirs[best[found]]

    choose(candidates, lowest, highest)
    # If these were rows of another key with the same hash, all partners are compared.
    missed = np.flatnonzero(result[candidates] < 0)
    if len(missed):
        choose(candidates[missed], starts[missed], ends[missed])
    return result


def final_at(
    spec: IntervalSpec, left: SideRows, rows: Ids, right: SideRows, answer: Ids
) -> Instants:
    """The watermark at which the answers of these left rows are final."""
    final: Instants = left.times[rows] + spec.upper
    if spec.matches == "first":
        has = answer >= 0
        final[has] = right.times[answer[has]]
    return final


def _find_pairs(spec: IntervalSpec, left: SideRows, right: SideRows) -> tuple[Ids, Ids]:
    """The left and right rows of all matches of which at least one row arrived in this step."""
    new = left.arrived_with_key
    which, positions = expand(*_spans(spec, left, new, right.index))
    ours, theirs = [new[which]], [right.order[positions]]
    new = right.arrived_with_key
    which, positions = expand(*_spans_of_right(spec, right, new, left.stored_index))
    left_rows = np.concatenate([*ours, positions])
    right_rows = np.concatenate([*theirs, new[which]])
    same = _has_same_key(spec, left, left_rows, right, right_rows)
    return (left_rows, right_rows) if same.all() else (left_rows[same], right_rows[same])


def _find_partnered(
    spec: IntervalSpec, left: SideRows, right: SideRows, previous: int
) -> tuple[Mask, Mask]:
    """Which left rows have a partner since this step, and which one that is not late.

    It does not build the pairs, whose number can be the product of both numbers of rows.
    """
    has, has_timely = np.zeros((2, len(left)), np.bool_)
    stored = np.flatnonzero(_is_affected(spec, left, right) & left.has_key[: left.stored])
    arrived = SortedIndex(right.hashes[right.stored :], right.times[right.stored :])
    has[stored] = _has_partner(spec, left, stored, right, arrived, right.arrived)
    # A pair is late if one of its rows arrived after the other was final.
    has_timely[stored] = has[stored] & (left.times[stored] + spec.upper > previous)

    new = left.arrived_with_key
    has[new] = _has_partner(spec, left, new, right, right.index, right.order)
    is_final = left.times[new] + spec.upper <= previous
    for rows, index, order in (
        (new[~is_final], right.index, right.order),
        (new[is_final], right.stored_index, np.arange(right.stored)),
    ):
        since = previous + spec.lower + 1
        has_timely[rows] = _has_partner(spec, left, rows, right, index, order, since)
    return has, has_timely


def _is_affected(spec: IntervalSpec, left: SideRows, right: SideRows) -> Mask:
    """Which left rows in state may match a right row that arrived."""
    starts, ends = _spans_of_right(spec, right, right.arrived_with_key, left.stored_index)
    borders = np.zeros(left.stored + 1, np.int64)
    np.add.at(borders, starts, 1)
    np.add.at(borders, ends, -1)
    affected: Mask = np.cumsum(borders[:-1]) > 0
    return affected


def _spans(spec: IntervalSpec, left: SideRows, rows: Ids, index: SortedIndex) -> tuple[Ids, Ids]:
    """Positions of the partners of left rows."""
    times = left.times[rows]
    return index.spans(left.hashes[rows], times + spec.lower, times + spec.upper)


def _spans_of_right(
    spec: IntervalSpec, right: SideRows, rows: Ids, index: SortedIndex
) -> tuple[Ids, Ids]:
    """Positions of the partners of right rows."""
    times = right.times[rows]
    return index.spans(right.hashes[rows], times - spec.upper, times - spec.lower)


def _has_same_key(
    spec: IntervalSpec, left: SideRows, ours: Ids, right: SideRows, theirs: Ids
) -> Mask:
    """Which pairs of rows with the same hash have the same key."""
    keys = left.keys(spec.left.by, ours), right.keys(spec.right.by, theirs)
    return equal_keys(*keys, len(ours))


def _has_partner(
    spec: IntervalSpec,
    left: SideRows,
    rows: Ids,
    right: SideRows,
    index: SortedIndex,
    order: Ids,
    since: int = BEFORE_ALL,
) -> Mask:
    """Which left rows have a partner among these right rows, not before an instant."""
    has = np.zeros(len(rows), np.bool_)
    times = left.times[rows]
    begin = np.maximum(times + spec.lower, since)
    starts, ends = index.spans(left.hashes[rows], begin, times + spec.upper)
    some = np.flatnonzero(ends > starts)
    has[some] = _has_same_key(spec, left, rows[some], right, order[starts[some]])
    # If the first was a row of another key with the same hash, all are compared.
    missed = some[~has[some]]
    which, positions = expand(starts[missed], ends[missed])
    same = _has_same_key(spec, left, rows[missed[which]], right, order[positions])
    has[missed[which[same]]] = True
    return has


def _choose_best(spec: IntervalSpec, right: SideRows, rows: Ids, groups: Groups) -> Ids:
    """The answer in each group of partners: by time, tie-break, and all values.

    So the order of arrival does not matter. Of equal rows it is the older one, as before.
    """
    assert spec.tie_break is not None
    flip: Callable[[Ids], Ids] = np.invert if spec.matches == "last" else np.asarray
    ties = ranks(combine_chunks(right.table.column(spec.tie_break)).take(pa.array(rows)))
    best = groups.first_by(flip(right.times[rows]), flip(ties))
    chosen = best[groups.ids]
    is_tied = (right.times[rows] == right.times[rows[chosen]]) & (ties == ties[chosen])
    tied = np.bincount(groups.ids, is_tied, groups.count)[groups.ids] > 1
    among = np.flatnonzero(is_tied & tied)
    if len(among):
        index = pa.array(rows[among])
        values = (combine_chunks(column).take(index) for column in right.table.columns)
        decided = Groups(groups.ids[among], groups.count).first_by(*map(flip, map(ranks, values)))
        best = np.where(decided >= 0, among[decided], best)
    return best


def _status_without_partner(
    spec: IntervalSpec, side: SideName, rows: SideRows, matched: Ids, current: int
) -> Status:
    """The status of each row by itself; once a row was matched, it stays MATCHED."""
    is_final = spec.is_final(side, rows.times, current)
    pending = EARLY if spec.is_early else NOTHING
    status = np.where(is_final, EXPIRED, pending).astype(np.int8)
    status[rows.status == MATCHED] = MATCHED
    status[matched] = MATCHED
    return status


def _is_late(
    spec: IntervalSpec, left: SideRows, ours: Ids, right: SideRows, theirs: Ids, previous: int
) -> Mask:
    """Which pairs have a row that arrived after the other one was final."""
    late_right = (theirs >= right.stored) & (left.times[ours] + spec.upper <= previous)
    late_left = (ours >= left.stored) & (right.times[theirs] - spec.lower <= previous)
    late: Mask = late_right | late_left
    return late


def _table(side: SideName) -> Table:
    at = SIDES.index(side)
    placement = ByKey(
        columns=lambda identity: [name for name, _ in identity[side]],
        key=lambda identity: [pair[at] for pair in identity["by"]],
        is_sorted=True,
    )
    return Table(lambda spec: state_schema(spec, side), placement)


class IntervalCore(Core[IntervalSpec]):
    """Interval join: rows of two streams with the same key whose times are close to one another."""

    STATE = StateFormat("joins.interval", 1)
    TABLES: ClassVar = {side: _table(side) for side in SIDES}
    PLACEMENT = Placement(key=lambda identity: [left for left, _ in identity["by"]])

    def step(
        self, spec: IntervalSpec, state: State, inputs: Sequence[pa.Table], watermark: int | None
    ) -> Step:
        """One micro-batch: see the module's docstring."""
        previous_watermark = state.watermark
        watermark = advance_watermark(previous_watermark, watermark)
        previous = BEFORE_ALL if previous_watermark is None else previous_watermark
        current = BEFORE_ALL if watermark is None else watermark
        accepted = [
            _accept(spec, side, rows, previous_watermark)
            for side, rows in zip(SIDES, inputs, strict=True)
        ]
        left, right = (
            SideRows.of(spec, side, state.tables[side], arrivals.rows)
            for side, arrivals in zip(SIDES, accepted, strict=True)
        )
        emit = emit_answers if spec.attributes else emit_matches
        results, status = emit(spec, left, right, previous, current)
        inserted = [result.status for result in results if result.inserts]
        late = sum(int((status == LATE).sum()) for status in inserted)
        metrics = accepted[0].metrics + accepted[1].metrics
        metrics += Metrics(results=sum(map(len, inserted)) - late, corrections=late)
        tables: dict[str, pa.Table] = {
            side: _retain(spec, side, rows, status[side], current, state.tables[side])
            for side, rows in zip(SIDES, (left, right), strict=True)
        }
        return Step(
            State(watermark, tables),
            build_output(spec, left, right, results),
            concat([arrivals.late for arrivals in accepted]),
            metrics,
        )

    def adapt(
        self,
        spec: IntervalSpec,
        stored: Identity,
        tables: Mapping[str, pa.Table],
        watermark: int | None,
    ) -> dict[str, pa.Table]:
        """Map the columns by name. Rows that the parameters do not need any more leave in the next step."""
        mapped: dict[str, pa.Table] = {
            side: map_columns(
                spec.stored_columns(side),
                [name for name, _ in stored[side]],
                tables[side],
                state_schema(spec, side),
            )
            for side in SIDES
        }
        # The output of a full join has no event time, so its rows are final later.
        return note_lag(
            {**tables, **mapped},
            spec.lag - spec.lag_of(stored),
            final=stored["how"] != "full" and not spec.is_change_stream,
        )

    def finalize(self, spec: IntervalSpec, until: int) -> IntervalSpec:
        """Rows whose time is that of a result are final."""
        return replace(spec, final=until)

    def next_deadline(self, spec: IntervalSpec, state: State) -> int | None:
        """The next watermark at which a row is final or evicted."""
        watermark = BEFORE_ALL if state.watermark is None else state.watermark
        due = AFTER_ALL
        for side in SIDES:
            table = state.tables[side]
            times = stored_times(spec, side, table)
            due = min(due, int(times.min(initial=AFTER_ALL)) + spec.retention(side))
            if not spec.stores_status(side):
                continue
            status = combine_chunks(table.column("status")).to_numpy()
            waiting = np.flatnonzero(status < EXPIRED)
            final = times[waiting] + spec.reach(side)
            if spec.attributes:
                final = _answers_final_at(spec, state, waiting)
            due = min(due, int(final[final > watermark].min(initial=AFTER_ALL)))
        return due if state.rows else None

    def check(self, spec: IntervalSpec, state: State) -> None:
        """Rows are sorted, none is stored beyond its retention, and each status is possible."""
        watermark = BEFORE_ALL if state.watermark is None else state.watermark
        for side, nothing in zip(SIDES, _nothing(spec), strict=True):
            table = state.tables[side]
            rows = SideRows.of(spec, side, table, nothing)
            formatted = f"{side}, watermark {state.watermark}\n{format_rows(table)}"
            sequence = np.lexsort((rows.times, rows.hashes))
            hashes, times = rows.hashes[sequence], rows.times[sequence]
            ordered = (hashes == rows.hashes).all() and (times == rows.times).all()
            assert ordered, f"out of order: {formatted}"
            assert (rows.times + spec.retention(side) > watermark).all(), f"overdue: {formatted}"
            assert rows.has_key.all() or spec.preserves(side), f"cannot match: {formatted}"
            lowest = ~EARLY if side == "left" and spec.attributes else NOTHING
            assert ((rows.status >= lowest) & (rows.status <= LATE)).all(), f"unknown: {formatted}"
            final = rows.times + spec.reach(side) <= watermark
            if spec.preserves(side):
                assert not (final & (rows.status < EXPIRED)).any(), f"never expired: {formatted}"
            assert (final | (rows.status != EXPIRED)).all(), f"expired too soon: {formatted}"
            early = (rows.status == EARLY) | (rows.status == ~EARLY)
            assert spec.is_early or not early.any(), f"too early: {formatted}"


def _accept(
    spec: IntervalSpec, side: SideName, rows: pa.Table, previous_watermark: int | None
) -> Arrivals:
    """The rows that are joined; the others are emitted as side output or counted."""
    time = spec.side(side).time
    assert time is not None
    lateness = Lateness.of(rows.column(time), previous_watermark, spec.allowed_lateness)
    arrivals = Arrivals.classify(spec.output, rows, lateness, side=side)
    lateness = arrivals.lateness
    return arrivals.accept(~lateness.too_late if spec.corrects else lateness.on_time)


def _answers_final_at(spec: IntervalSpec, state: State, waiting: Ids) -> Instants:
    """The watermarks at which these left rows in state are emitted, if no partner arrives."""
    left, right = (
        SideRows.of(spec, side, state.tables[side], arrived)
        for side, arrived in zip(SIDES, _nothing(spec), strict=True)
    )
    answer = find_answers(spec, left, waiting, right, right.index, right.order)
    final = final_at(spec, left, waiting, right, answer)
    return final if spec.preserves("left") else final[answer >= 0]


def _retain(
    spec: IntervalSpec,
    side: SideName,
    rows: SideRows,
    status: Status,
    current: int,
    before: pa.Table,
) -> pa.Table:
    """The state table: rows that can still match others, or that are still to be emitted."""
    alive = (rows.times + spec.retention(side) > current) & ~spec.is_settled(side, rows.times)
    if not spec.preserves(side):
        alive &= rows.has_key
    if side == "left":
        if not spec.joins:
            alive &= status != MATCHED  # one partner is enough
        elif spec.attributes and not spec.corrects:
            alive &= status < EXPIRED
    unchanged = not spec.stores_status(side) or (status == rows.status).all()
    if rows.stored == len(rows) and alive.all() and unchanged:
        return before
    return rows.to_state(spec, side, status, alive)


def _nothing(spec: IntervalSpec) -> tuple[pa.Table, pa.Table]:
    return spec.left.schema.empty_table(), spec.right.schema.empty_table()
