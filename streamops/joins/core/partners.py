"""Which rows meet: all pairs of a step; whether a left row has a partner; the one it is joined with."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from streamops.joins.core.interval_spec import IntervalSpec
from streamops.joins.core.line import Line, expanded, same_keys
from streamops.joins.core.sides import Rows
from streamops.kernel.columns import combine_chunks
from streamops.kernel.groups import Groups, Ids, Mask
from streamops.kernel.ordering import ranks

__all__ = ["answers", "pairs", "partnered", "touched"]

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
