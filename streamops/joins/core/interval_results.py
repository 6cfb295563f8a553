"""Results of a step of an interval join: rows that meet, rows without a partner, retractions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamops.changelog.change_types import CHANGE_TYPE, DELETE, INSERT
from streamops.joins.core.interval_spec import IntervalSpec
from streamops.joins.core.line import Line, expanded, same_keys
from streamops.joins.core.sides import EARLY, EXPIRED, LATE, MATCHED, NOTHING, Rows, Said
from streamops.kernel.columns import combine_chunks
from streamops.kernel.core import SideName
from streamops.kernel.groups import Groups, Ids, Mask
from streamops.kernel.ordering import ranks
from streamops.kernel.time import Instants

__all__ = ["answered", "answers", "joined", "settles", "told"]

_STATUS = pa.array(["early", "expired", "matched", "late_match"])
_CHANGES = pa.array([DELETE, INSERT])
_FIRST = EARLY
assert (EARLY, EXPIRED, MATCHED, LATE) == (1, 2, 3, 4)


@dataclass(frozen=True, slots=True)
class Told:
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
    status: Said
    inserts: bool = True

    def __len__(self) -> int:
        return len(self.left)


def lone(side: str, rows: Ids, status: Said, *, inserts: bool = True) -> Told:
    """Rows of one side by themselves."""
    nobody = np.full(len(rows), -1, np.int64)
    left, right = (rows, nobody) if side == "left" else (nobody, rows)
    return Told(left, right, status[rows], inserts)


def told(spec: IntervalSpec, left: Rows, right: Rows, results: Sequence[Told]) -> pa.Table:
    """The rows of the output, in this order."""
    results = [each for each in results if len(each)]
    if not results:
        return spec.output.empty_table()
    ours = np.concatenate([each.left for each in results])
    theirs = np.concatenate([each.right for each in results])
    status = np.concatenate([each.status for each in results])
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
        inserts = np.repeat([each.inserts for each in results], [len(each) for each in results])
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
    which, places = expanded(starts, ends)
    came = new[which], right.order[places]

    new = right.fresh[right.keyed[right.old :]]
    which, places = expanded(*_seen_by(spec, right, new, left.before))
    ours = np.concatenate([came[0], places])
    theirs = np.concatenate([came[1], new[which]])
    same = _same(spec, left, ours, right, theirs)
    return (ours, theirs) if same.all() else (ours[same], theirs[same])


def partnered(spec: IntervalSpec, left: Rows, right: Rows, was_by: int) -> tuple[Mask, Mask]:
    """Rows of the left that have a partner since this step, and those that have one that is not late.

    The pairs themselves, of which there can be as many as rows times rows, are not made.
    """
    met, timely = np.zeros((2, len(left)), np.bool_)
    kept = np.flatnonzero(touched(spec, left, right) & left.keyed[: left.old])
    came = Line(right.hashes[right.old :], right.times[right.old :])
    met[kept] = _has(spec, left, kept, right, came, right.fresh)
    # A pair is late if one of its rows came when the other was final.
    timely[kept] = met[kept] & (left.times[kept] + spec.upper > was_by)

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
    asked, starts, ends = keyed[some], starts[some], ends[some]
    if not len(asked):
        return result
    # The partners of one time, of which the tie-break says which it is: mostly a single one.
    best = line.times[starts] if spec.matches == "first" else line.times[ends - 1]
    lowest, highest = line.spans(left.hashes[rows[asked]], best, best)

    def choose(asked: Ids, starts: Ids, ends: Ids) -> None:
        which, places = expanded(starts, ends)
        theirs = order[places]
        same = np.flatnonzero(_same(spec, left, rows[asked[which]], right, theirs))
        if len(same):
            which, theirs = which[same], theirs[same]
            best = _best(spec, right, theirs, Groups(which, len(asked)))
            found = best >= 0
            result[asked[found]] = theirs[best[found]]

    choose(asked, lowest, highest)
    # Where these were rows of another key with the same hash, among all partners.
    missed = np.flatnonzero(result[asked] < 0)
    if len(missed):
        choose(asked[missed], starts[missed], ends[missed])
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
    which, places = expanded(starts[missed], ends[missed])
    same = _same(spec, left, rows[missed[which]], right, order[places])
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


Decision = tuple[list[Told], dict[SideName, Said]]
"""Results, those that are taken back first; and what every row of either side is published as."""


def joined(spec: IntervalSpec, left: Rows, right: Rows, was_by: int, now_by: int) -> Decision:
    """Every match: the pairs of this step, and what lone rows are now."""
    matches: list[Told] = []
    if spec.joins:
        ours, theirs = pairs(spec, left, right)
        late = _is_late(spec, left, ours, right, theirs, was_by)
        matches.append(Told(ours, theirs, np.where(late, LATE, MATCHED).astype(np.int8)))
    else:
        has, timely = partnered(spec, left, right, was_by)
        ours, theirs = np.flatnonzero(has), np.empty(0, np.int64)
        if spec.how == "semi":
            # Once, by its best partner; a row that had one before is not there any more.
            matches.append(lone("left", ours, np.where(timely, MATCHED, LATE).astype(np.int8)))
    results: list[Told] = []
    said: dict[SideName, Said] = {}
    sides: list[tuple[SideName, Rows, Ids]] = [("left", left, ours), ("right", right, theirs)]
    for side, rows, met in sides:
        said[side] = _standing(spec, side, rows, met, now_by)
        if spec.preserves(side):
            differs = said[side] != rows.said
            back = np.flatnonzero(differs & ((rows.said == EARLY) | (rows.said == EXPIRED)))
            results.insert(0, lone(side, back, rows.said, inserts=False))
            anew = np.flatnonzero(differs & ((said[side] == EARLY) | (said[side] == EXPIRED)))
            results.append(lone(side, anew, said[side]))
    return [*results, *matches], said


def answered(spec: IntervalSpec, left: Rows, right: Rows, was_by: int, now_by: int) -> Decision:
    """One match for each left row: those whose answer may be another, or may be final now."""
    concerned = (left.said < EXPIRED) & (left.times + spec.lower <= now_by)
    concerned[: left.old] |= touched(spec, left, right)
    concerned[left.old :] = True
    rows = np.flatnonzero(concerned)
    said = left.said[rows]
    overdue = said < NOTHING
    before = np.where(overdue, ~said, said)
    # What was published is what the rows that were kept answer, and nothing but that.
    was = np.full(len(rows), -1, np.int64)
    known = np.flatnonzero(said != NOTHING)
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
    standing = left.said.copy()
    standing[rows] = np.where(has & late & ~is_final, ~after, after)
    results = [
        Told(rows[back], was[back], before[back], inserts=False),
        Told(rows[anew], now[anew], after[anew]),
    ]
    return results, {"left": standing, "right": right.said}


def settles(spec: IntervalSpec, left: Rows, rows: Ids, right: Rows, answer: Ids) -> Instants:
    """The watermark at which the answers of these rows of the left are final."""
    final: Instants = left.times[rows] + spec.upper
    if spec.matches == "first":
        has = answer >= 0
        final[has] = right.times[answer[has]]
    return final


def _standing(spec: IntervalSpec, side: SideName, rows: Rows, met: Ids, now_by: int) -> Said:
    """What each row is published as by itself: MATCHED once it had a partner, then for good."""
    final = rows.times + spec.reach(side) <= now_by
    said = np.where(final, EXPIRED, EARLY if spec.is_early else NOTHING).astype(np.int8)
    said[rows.said == MATCHED] = MATCHED
    said[met] = MATCHED
    return said


def _is_late(
    spec: IntervalSpec, left: Rows, ours: Ids, right: Rows, theirs: Ids, was_by: int
) -> Mask:
    """Whether a row of each pair came when the other one was final."""
    came_right = (theirs >= right.old) & (left.times[ours] + spec.upper <= was_by)
    came_left = (ours >= left.old) & (right.times[theirs] - spec.lower <= was_by)
    late: Mask = came_right | came_left
    return late
