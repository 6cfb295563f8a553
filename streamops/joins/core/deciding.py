"""What is published in a step: matches, lone rows, answers, and what is taken back for them."""

from __future__ import annotations

import numpy as np

from streamops.joins.core.interval_spec import IntervalSpec
from streamops.joins.core.partners import answers, pairs, partnered, touched
from streamops.joins.core.results import Told, lone
from streamops.joins.core.sides import EARLY, EXPIRED, LATE, MATCHED, NOTHING, Rows, Said
from streamops.kernel.groups import Ids, Mask
from streamops.kernel.pairs import SideName
from streamops.kernel.time import Instants

__all__ = ["answered", "joined", "settles"]

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
