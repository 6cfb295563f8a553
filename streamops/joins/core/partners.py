"""Which rows meet: all pairs of a step, or for a left row the one partner it is joined with."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa

from streamops.joins.core.interval_spec import IntervalSpec
from streamops.joins.core.line import Line, expanded, same_keys
from streamops.joins.core.sides import Rows
from streamops.kernel.columns import one
from streamops.kernel.groups import Groups, Ids, Mask
from streamops.kernel.ordering import ranks

__all__ = ["answers", "pairs", "touched"]


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
            best = Groups(which, len(asked)).first_by(*_order(spec, right, theirs))
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


def _order(spec: IntervalSpec, right: Rows, rows: Ids) -> tuple[Ids, Ids]:
    """By what one of several partners is chosen: time, then tie-break."""
    assert spec.tie_break is not None
    ties = ranks(one(right.table.column(spec.tie_break)).take(pa.array(rows)))
    flip: Callable[[Ids], Ids] = np.invert if spec.matches == "last" else np.asarray
    return flip(right.times[rows]), flip(ties)
