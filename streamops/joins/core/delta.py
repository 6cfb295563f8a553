"""What changes in a join when both sides change at once: the product rule, by row positions.

d(L * R) = dL * R_old + L_new * dR. Each pair of entries is looked at once, so what is told of it
is already net: how often it is there now, less how often it was. An entry without a partner stands
beside nothing, in outer forms, as long as the other side has none: what counts is how many partners
it had before all changes, and how many it has after them.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamops.joins.core.line import expanded
from streamops.kernel.groups import Ids, Ints, Mask

__all__ = ["Delta", "Weighted", "delta", "matches"]

_NOBODY = -1


@dataclass(frozen=True, slots=True)
class Weighted:
    """Entries of one side.

    Parameters
    ----------
    join : array of int64
        Number of what they are joined on, from 0.
    joins : array of bool
        Whether they can match at all.
    before, after : array of int64
        How often each is there.
    outer : bool
        Whether they come out without a partner.
    """

    join: Ids
    joins: Mask
    before: Ints
    after: Ints
    outer: bool

    def present(self, count: int) -> tuple[Mask, Mask]:
        """Whether there is any entry of each number, before and after."""
        found = []
        for weight in (self.before, self.after):
            there = np.zeros(count, np.bool_)
            there[self.join[weight > 0]] = True
            found.append(there)
        return found[0], found[1]


@dataclass(frozen=True, slots=True)
class Delta:
    """Joined rows that are there more or less often than before.

    Parameters
    ----------
    left, right : array of int64
        Positions of the two entries; -1: there is none on this side.
    times : array of int64
        How much more often; not 0.
    """

    left: Ids
    right: Ids
    times: Ints


def delta(left: Weighted, right: Weighted, count: int) -> Delta:
    """The difference of the joins before and after, over numbers below ``count``."""
    moved, other = left.before != left.after, right.before != right.after
    # dL * R, and what of L did not change, * dR.
    pairs = [
        _pairs(left, right, moved & left.joins, right.joins),
        _pairs(left, right, ~moved & left.joins, other & right.joins),
    ]
    parts = [*pairs, _alone(left, right, count)]
    rights, lefts, times = _alone(right, left, count)
    parts.append((lefts, rights, times))
    one, two, how = (np.concatenate(column) for column in zip(*parts, strict=True))
    differs = how != 0
    return Delta(one[differs], two[differs], how[differs])


def _pairs(left: Weighted, right: Weighted, some: Mask, others: Mask) -> tuple[Ids, Ids, Ints]:
    these, those = np.flatnonzero(some), np.flatnonzero(others)
    one, two = matches(left.join[these], right.join[those])
    one, two = these[one], those[two]
    times = left.after[one] * right.after[two] - left.before[one] * right.before[two]
    return one, two, times


def _alone(side: Weighted, other: Weighted, count: int) -> tuple[Ids, Ids, Ints]:
    """Entries beside nothing."""
    if not side.outer:
        nothing = np.zeros(0, np.int64)
        return nothing, nothing, nothing
    was, is_ = other.present(count)
    before = side.before * ~(was[side.join] & side.joins)
    after = side.after * ~(is_[side.join] & side.joins)
    return np.arange(len(side.join)), np.full(len(side.join), _NOBODY), after - before


def matches(left: Ids, right: Ids) -> tuple[Ids, Ids]:
    """Positions of all pairs of equal numbers, those of one left number beside one another.

    Examples
    --------
    >>> one, two = matches(np.array([7, 8, 7]), np.array([7, 9, 7]))
    >>> one.tolist(), two.tolist()
    ([0, 0, 2, 2], [0, 2, 0, 2])
    """
    if not len(left) or not len(right):
        nothing = np.zeros(0, np.int64)
        return nothing, nothing
    order = np.argsort(right, kind="stable")
    ordered = right[order]
    starts = np.searchsorted(ordered, left, "left")
    one, places = expanded(starts, np.searchsorted(ordered, left, "right"))
    return one, order[places]
