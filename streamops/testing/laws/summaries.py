"""The laws of a summary: what is kept per group, and how two of them become one."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streamops.kernel.aggregation import Summary
from streamops.kernel.groups import Groups, Ids
from streamops.testing.laws.comparing import rows_of
from streamops.testing.values import comparable

__all__ = ["SUMMARY", "Members"]

States = list[pa.Array]


@dataclass(frozen=True, slots=True)
class Members:
    """Rows in groups, and a summary of them.

    Parameters
    ----------
    summary : Summary
    rows : Table
        With the columns that the summary reads.
    groups : Groups
        Of the rows. A group may be empty.
    tolerance : float
        0 demands equal states; else estimates may differ by this part of their value, or by
        this much.
    seed : int
        For how the rows are dealt out.
    """

    summary: Summary
    rows: pa.Table
    groups: Groups
    tolerance: float = 0.0
    seed: int = 0


def merging_parts_is_the_whole(case: Members) -> None:
    """Rows dealt out to several states, and these merged, are the rows in one state."""
    _same(case, _whole(case), _merged(case, _parts(case)), "the whole, and its parts merged")


def merging_is_commutative(case: Members) -> None:
    """States may be merged in any order."""
    parts = _parts(case)
    order = np.random.default_rng(case.seed).permutation(len(parts))
    shuffled = [parts[i] for i in order]
    _same(case, _merged(case, parts), _merged(case, shuffled), "in another order")


def merging_is_associative(case: Members) -> None:
    """States may be merged in any number of rounds."""
    parts = _parts(case)
    middle = len(parts) // 2
    halves = [_merged(case, parts[:middle]), _merged(case, parts[middle:])]
    stepwise = parts[0]
    for part in parts[1:]:
        stepwise = _merged(case, [stepwise, part])
    _same(case, _merged(case, parts), _merged(case, halves), "merged by halves")
    _same(case, _merged(case, parts), stepwise, "merged one by one")


def nothing_is_neutral(case: Members) -> None:
    """A state merged with empty ones, or alone, stays what it is, to the last bit."""
    whole, empty = _whole(case), _empty(case)
    for members in ([whole], [whole, empty], [empty, whole, empty]):
        assert _bits(_merged(case, members)) == _bits(whole), "merged with nothing"
    estimates = case.summary.estimate(_merged(case, [empty, empty]))
    assert comparable(_values(estimates)) == comparable(_values(case.summary.estimate(empty)))


def a_group_may_have_no_member(case: Members) -> None:
    """Groups without a state, when states are merged, are as those without a row."""
    none = [state[:0] for state in _whole(case)]
    groups = Groups(np.empty(0, np.int64), case.groups.count)
    assert _bits(case.summary.merge(groups, none)) == _bits(_empty(case)), "without a member"


def groups_do_not_mix(case: Members) -> None:
    """The state of a group is that of its rows alone."""
    together = _bits(_whole(case))
    for group in range(case.groups.count):
        mine = np.flatnonzero(case.groups.ids == group)
        alone = case.summary.update(
            Groups(np.zeros(len(mine), np.int64), 1), case.rows.take(pa.array(mine))
        )
        assert _bits(alone)[0] == together[group], f"group {group}, alone and among others"


def states_are_as_declared(case: Members) -> None:
    """One entry per group, of the types that ``fields`` and ``result`` name."""
    for states in (_whole(case), _merged(case, _parts(case)), _empty(case)):
        assert [state.type for state in states] == [kind for _, kind in case.summary.fields]
        assert {len(state) for state in states} == {case.groups.count}
        estimate = case.summary.estimate(states)
        assert (estimate.type, len(estimate)) == (case.summary.result, case.groups.count)


SUMMARY: tuple[Callable[[Members], None], ...] = (
    merging_parts_is_the_whole,
    merging_is_commutative,
    merging_is_associative,
    nothing_is_neutral,
    a_group_may_have_no_member,
    groups_do_not_mix,
    states_are_as_declared,
)
"""Every law of a summary."""


def _whole(case: Members) -> States:
    return case.summary.update(case.groups, case.rows)


def _empty(case: Members) -> States:
    return case.summary.update(Groups(np.empty(0, np.int64), case.groups.count), case.rows[:0])


def _parts(case: Members) -> list[States]:
    """States over the rows, dealt out to two to five of them; one more saw nothing."""
    rng = np.random.default_rng(case.seed)
    count = int(rng.integers(2, 6))
    dealt = rng.integers(0, count, len(case.rows))
    parts = [
        case.summary.update(case.groups.where(dealt == part), case.rows.filter(dealt == part))
        for part in range(count)
    ]
    return [*parts, _empty(case)]


def _merged(case: Members, parts: Sequence[States]) -> States:
    ids: Ids = np.tile(np.arange(case.groups.count), len(parts))
    states = [pa.concat_arrays(pieces) for pieces in zip(*parts, strict=True)]
    return case.summary.merge(Groups(ids, case.groups.count), states)


def _same(case: Members, left: States, right: States, what: str) -> None:
    if not case.tolerance:
        assert _bits(left) == _bits(right), what
        return
    pairs = zip(*(_values(case.summary.estimate(states)) for states in (left, right)), strict=True)
    for one, other in pairs:
        assert (one is None) == (other is None), f"{what}: {one} and {other}"
        if one is None or (math.isnan(one) and math.isnan(other)):
            continue
        close = math.isclose(one, other, rel_tol=case.tolerance, abs_tol=case.tolerance)
        assert close, f"{what}: {one} and {other}"


def _bits(states: States) -> list[Any]:
    """The states of each group, comparable."""
    return list(zip(*(map(comparable, _values(state)) for state in states), strict=True))


def _values(array: pa.Array) -> list[Any]:
    return [row["value"] for row in rows_of(pa.table({"value": array}))]
