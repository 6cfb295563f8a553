"""Results of a step of an interval join: rows that meet, rows without a partner, retractions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamops.changelog.change_types import CHANGE_TYPE, DELETE, INSERT
from streamops.joins.core.interval_spec import IntervalSpec
from streamops.joins.core.sides import (
    EARLY,
    EXPIRED,
    LATE,
    MATCHED,
    NOTHING,
    Line,
    Rows,
    Status,
    expanded,
    same_keys,
)
from streamops.kernel.columns import combine_chunks
from streamops.kernel.core import SideName
from streamops.kernel.groups import Groups, Ids, Mask
from streamops.kernel.ordering import ranks
from streamops.kernel.time import Instants

__all__ = ["answered", "answers", "build_output", "joined", "settles"]

_STATUS = pa.array(["early", "expired", "matched", "late_match"])
_CHANGES = pa.array([DELETE, INSERT])
_FIRST = EARLY
assert (EARLY, EXPIRED, MATCHED, LATE) == (1, 2, 3, 4)


@dataclass(frozen=True, slots=True)
class Results:
    """Results to publish or to take back.

    Parameters
    ----------
    left, right : arrays of int64
        The row of either side; -1 where there is none.
    status : array of int8
    inserts : bool
        Whether they are published, or taken back.
    """

    left: Ids
    right: Ids
    status: Status
    inserts: bool = True

    def __len__(self) -> int:
        return len(self.left)


def lone(side: str, rows: Ids, status: Status, *, inserts: bool = True) -> Results:
    """Rows of one side by themselves."""
    nobody = np.full(len(rows), -1, np.int64)
    left, right = (rows, nobody) if side == "left" else (nobody, rows)
    return Results(left, right, status[rows], inserts)


def build_output(
    spec: IntervalSpec, left: Rows, right: Rows, results: Sequence[Results]
) -> pa.Table:
    """The rows of the output, in this order."""
    results = [result for result in results if len(result)]
    if not results:
        return spec.output.empty_table()
    ours = np.concatenate([result.left for result in results])
    theirs = np.concatenate([result.right for result in results])
    status = np.concatenate([result.status for result in results])
    mine, other = _index(ours), _index(theirs)
    columns = {
        name: combine_chunks(left.table.column(name)).take(mine) for name in spec.left.schema.names
    }
    if spec.joins:
        if (ours < 0).any():
            # Where there is no row of the left, the key is that of the right's.
            whole = np.where(ours >= 0, ours, len(left) + theirs)
            for name, own in zip(spec.left.by, spec.right.by, strict=True):
                both = [
                    combine_chunks(left.table.column(name)),
                    combine_chunks(right.table.column(own)),
                ]
                columns[name] = pa.concat_arrays(both).take(pa.array(whole))
        for own, name in spec.names.right:
            columns[name] = combine_chunks(right.table.column(own)).take(other)
    columns[spec.into] = _STATUS.take(pa.array(status - _FIRST))
    if spec.takes_back:
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


_EVER = -(1 << 62)


def pairs(spec: IntervalSpec, left: Rows, right: Rows) -> tuple[Ids, Ids]:
    """Rows that meet of which at least one came in this step: of the left, and of the right."""
    new = left.fresh[left.keyed[left.old :]]
    starts, ends = _spans(spec, left, new, right.line)
    which, positions = expanded(starts, ends)
    arrived = new[which], right.order[positions]

    new = right.fresh[right.keyed[right.old :]]
    which, positions = expanded(*_seen_by(spec, right, new, left.before))
    ours = np.concatenate([arrived[0], positions])
    theirs = np.concatenate([arrived[1], new[which]])
    same = _same(spec, left, ours, right, theirs)
    return (ours, theirs) if same.all() else (ours[same], theirs[same])


def partnered(spec: IntervalSpec, left: Rows, right: Rows, was_by: int) -> tuple[Mask, Mask]:
    """Rows of the left that have a partner since this step, and those that have one that is not late.

    The pairs themselves, of which there can be as many as rows times rows, are not made.
    """
    met, timely = np.zeros((2, len(left)), np.bool_)
    stored = np.flatnonzero(touched(spec, left, right) & left.keyed[: left.old])
    arrived = Line(right.hashes[right.old :], right.times[right.old :])
    met[stored] = _has(spec, left, stored, right, arrived, right.fresh)
    # A pair is late if one of its rows came when the other was final.
    timely[stored] = met[stored] & (left.times[stored] + spec.upper > was_by)

    new = left.fresh[left.keyed[left.old :]]
    met[new] = _has(spec, left, new, right, right.line, right.order)
    final = left.times[new] + spec.upper <= was_by
    for rows, line, order in (
        (new[~final], right.line, right.order),
        (new[final], right.before, np.arange(right.old)),
    ):
        timely[rows] = _has(spec, left, rows, right, line, order, since=was_by + spec.lower + 1)
    return met, timely


def touched(spec: IntervalSpec, left: Rows, right: Rows) -> Mask:
    """Kept rows of the left that a row which came on the right may meet."""
    new = right.fresh[right.keyed[right.old :]]
    starts, ends = _seen_by(spec, right, new, left.before)
    borders = np.zeros(left.old + 1, np.int64)
    np.add.at(borders, starts, 1)
    np.add.at(borders, ends, -1)
    reached: Mask = np.cumsum(borders[:-1]) > 0
    return reached


def answers(spec: IntervalSpec, left: Rows, rows: Ids, right: Rows, line: Line, order: Ids) -> Ids:
    """The first or last partner of each of these rows of the left; -1 where there is none.

    Parameters
    ----------
    rows : array of int64
        Rows of the left.
    line, order : Line, array of int64
        Where partners are looked for: all rows of the right, or those that were kept.
    """
    result = np.full(len(rows), -1, np.int64)
    keyed = np.flatnonzero(left.keyed[rows])
    starts, ends = _spans(spec, left, rows[keyed], line)
    some = ends > starts
    candidates, starts, ends = keyed[some], starts[some], ends[some]
    if not len(candidates):
        return result
    # The partners of one time, of which the tie-break says which it is: mostly a single one.
    best = line.times[starts] if spec.matches == "first" else line.times[ends - 1]
    lowest, highest = line.spans(left.hashes[rows[candidates]], best, best)

    def choose(candidates: Ids, starts: Ids, ends: Ids) -> None:
        which, positions = expanded(starts, ends)
        theirs = order[positions]
        same = np.flatnonzero(_same(spec, left, rows[candidates[which]], right, theirs))
        if len(same):
            which, theirs = which[same], theirs[same]
            best = _best(spec, right, theirs, Groups(which, len(candidates)))
            found = best >= 0
            result[candidates[found]] = theirs[best[found]]

    choose(candidates, lowest, highest)
    # Where these were rows of another key with the same hash, among all partners.
    missed = np.flatnonzero(result[candidates] < 0)
    if len(missed):
        choose(candidates[missed], starts[missed], ends[missed])
    return result


def _spans(spec: IntervalSpec, left: Rows, rows: Ids, line: Line) -> tuple[Ids, Ids]:
    """Where the partners of rows of the left stand."""
    times = left.times[rows]
    return line.spans(left.hashes[rows], times + spec.lower, times + spec.upper)


def _seen_by(spec: IntervalSpec, right: Rows, rows: Ids, line: Line) -> tuple[Ids, Ids]:
    """Where the rows of the left stand whose partners these rows of the right are."""
    times = right.times[rows]
    return line.spans(right.hashes[rows], times - spec.upper, times - spec.lower)


def _same(spec: IntervalSpec, left: Rows, ours: Ids, right: Rows, theirs: Ids) -> Mask:
    """Whether rows that have one hash have one key."""
    keys = left.keys(spec.left.by, ours), right.keys(spec.right.by, theirs)
    return same_keys(*keys, len(ours))


def _has(
    spec: IntervalSpec,
    left: Rows,
    rows: Ids,
    right: Rows,
    line: Line,
    order: Ids,
    since: int = _EVER,
) -> Mask:
    """Whether rows of the left have a partner among these of the right, not before an instant."""
    has = np.zeros(len(rows), np.bool_)
    times = left.times[rows]
    begin = np.maximum(times + spec.lower, since)
    starts, ends = line.spans(left.hashes[rows], begin, times + spec.upper)
    some = np.flatnonzero(ends > starts)
    has[some] = _same(spec, left, rows[some], right, order[starts[some]])
    # Where the first was a row of another key with the same hash, among all.
    missed = some[~has[some]]
    which, positions = expanded(starts[missed], ends[missed])
    same = _same(spec, left, rows[missed[which]], right, order[positions])
    has[missed[which[same]]] = True
    return has


def _best(spec: IntervalSpec, right: Rows, rows: Ids, groups: Groups) -> Ids:
    """Which of the partners in each group is the answer: by time, tie-break and then all values.

    So it is the same whichever came first. Where nothing differs it is the older one, as before.
    """
    assert spec.tie_break is not None
    flip: Callable[[Ids], Ids] = np.invert if spec.matches == "last" else np.asarray
    ties = ranks(combine_chunks(right.table.column(spec.tie_break)).take(pa.array(rows)))
    best = groups.first_by(flip(right.times[rows]), flip(ties))
    chosen = best[groups.ids]
    level = (right.times[rows] == right.times[rows[chosen]]) & (ties == ties[chosen])
    among = np.flatnonzero(level & (np.bincount(groups.ids, level, groups.count)[groups.ids] > 1))
    if len(among):
        index = pa.array(rows[among])
        values = (combine_chunks(column).take(index) for column in right.table.columns)
        decided = Groups(groups.ids[among], groups.count).first_by(*map(flip, map(ranks, values)))
        best = np.where(decided >= 0, among[decided], best)
    return best


Decision = tuple[list[Results], dict[SideName, Status]]
"""Results, those that are taken back first; and what every row of either side is published as."""


def joined(spec: IntervalSpec, left: Rows, right: Rows, was_by: int, now_by: int) -> Decision:
    """Every match: the pairs of this step, and what lone rows are now."""
    matches: list[Results] = []
    if spec.joins:
        ours, theirs = pairs(spec, left, right)
        late = _is_late(spec, left, ours, right, theirs, was_by)
        matches.append(Results(ours, theirs, np.where(late, LATE, MATCHED).astype(np.int8)))
    else:
        has, timely = partnered(spec, left, right, was_by)
        ours, theirs = np.flatnonzero(has), np.empty(0, np.int64)
        if spec.how == "semi":
            # Once, by its best partner; a row that had one before is not there any more.
            matches.append(lone("left", ours, np.where(timely, MATCHED, LATE).astype(np.int8)))
    results: list[Results] = []
    status: dict[SideName, Status] = {}
    sides: list[tuple[SideName, Rows, Ids]] = [("left", left, ours), ("right", right, theirs)]
    for side, rows, met in sides:
        status[side] = _final_status(spec, side, rows, met, now_by)
        if spec.preserves(side):
            differs = status[side] != rows.status
            back = np.flatnonzero(differs & ((rows.status == EARLY) | (rows.status == EXPIRED)))
            results.insert(0, lone(side, back, rows.status, inserts=False))
            anew = np.flatnonzero(differs & ((status[side] == EARLY) | (status[side] == EXPIRED)))
            results.append(lone(side, anew, status[side]))
    return [*results, *matches], status


def answered(spec: IntervalSpec, left: Rows, right: Rows, was_by: int, now_by: int) -> Decision:
    """One match for each left row: those whose answer may be another, or may be final now."""
    concerned = (left.status < EXPIRED) & (left.times + spec.lower <= now_by)
    concerned[: left.old] |= touched(spec, left, right)
    concerned[left.old :] = True
    rows = np.flatnonzero(concerned)
    status = left.status[rows]
    overdue = status < NOTHING
    before = np.where(overdue, ~status, status)
    # What was published is what the rows that were kept answer, and nothing but that.
    was = np.full(len(rows), -1, np.int64)
    known = np.flatnonzero(status != NOTHING)
    was[known] = answers(spec, left, rows[known], right, right.before, np.arange(right.old))
    now = answers(spec, left, rows, right, right.line, right.order)

    has = now >= 0
    # An answer that came late is so when it is published, in whichever step that is.
    late = (before >= EXPIRED) & (was != now) | overdue & (was == now)
    late[has] |= _is_late(spec, left, rows[has], right, now[has], was_by)
    stays = np.where((before >= MATCHED) & (was == now), before, MATCHED)
    alone = EXPIRED if spec.preserves("left") else NOTHING
    final = np.where(has, np.where(late, LATE, stays), alone)
    so_far = EARLY if spec.is_early else NOTHING
    open_ = np.where(has | spec.preserves("left"), so_far, NOTHING)
    is_final = settles(spec, left, rows, right, now) <= now_by
    after = np.where(is_final, final, open_).astype(np.int8)

    differs = (before != after) | (was != now) & (after != NOTHING)
    back = np.flatnonzero(differs & (before != NOTHING))
    anew = np.flatnonzero(differs & (after != NOTHING))
    status = left.status.copy()
    status[rows] = np.where(has & late & ~is_final, ~after, after)
    results = [
        Results(rows[back], was[back], before[back], inserts=False),
        Results(rows[anew], now[anew], after[anew]),
    ]
    return results, {"left": status, "right": right.status}


def settles(spec: IntervalSpec, left: Rows, rows: Ids, right: Rows, answer: Ids) -> Instants:
    """The watermark at which the answers of these rows of the left are final."""
    final: Instants = left.times[rows] + spec.upper
    if spec.matches == "first":
        has = answer >= 0
        final[has] = right.times[answer[has]]
    return final


def _final_status(spec: IntervalSpec, side: SideName, rows: Rows, met: Ids, now_by: int) -> Status:
    """What each row is published as by itself: MATCHED once it had a partner, then for good."""
    final = rows.times + spec.reach(side) <= now_by
    status = np.where(final, EXPIRED, EARLY if spec.is_early else NOTHING).astype(np.int8)
    status[rows.status == MATCHED] = MATCHED
    status[met] = MATCHED
    return status


def _is_late(
    spec: IntervalSpec, left: Rows, ours: Ids, right: Rows, theirs: Ids, was_by: int
) -> Mask:
    """Whether a row of each pair came when the other one was final."""
    arrived_right = (theirs >= right.old) & (left.times[ours] + spec.upper <= was_by)
    arrived_left = (ours >= left.old) & (right.times[theirs] - spec.lower <= was_by)
    late: Mask = arrived_right | arrived_left
    return late
