"""What a step of an interval join emits: pairs, or the answers of left rows, and rows without partner."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

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
)
from streamops.kernel.columns import combine_chunks
from streamops.kernel.core import SideName
from streamops.kernel.groups import Groups, Ids, Mask
from streamops.kernel.ordering import ranks
from streamops.kernel.time import BEFORE_ALL, Instants

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
    is_final = rows.times + spec.reach(side) <= current
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
