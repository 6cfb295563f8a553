"""The laws of a summary: the state per group of an aggregate, and how states are merged."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streamops.kernel.aggregation import Summary
from streamops.kernel.groups import Groups, Ids
from streamops.kernel.values import comparable
from streamops.testing.laws.cases import to_rows

__tracebackhide__ = True

States = list[pa.Array]


@dataclass(frozen=True, slots=True)
class SummaryCase:
    """Rows in groups, and a summary of them.

    Parameters
    ----------
    summary : Summary
    rows : Table
        The columns that the summary reads.
    groups : Groups
        Groups of the rows. A group may be empty.
    tolerance : float
        0 requires equal states. Otherwise, estimates may differ by this relative or absolute error.
    seed : int
        For the random split of the rows.
    """

    summary: Summary
    rows: pa.Table
    groups: Groups
    tolerance: float = 0.0
    seed: int = 0


def merging_parts_is_the_whole(case: SummaryCase) -> None:
    """The merged states of parts of the rows equal the state of all rows."""
    _same(case, _whole(case), _merge(case, _parts(case)), "the whole, and its merged parts")


def merging_is_commutative(case: SummaryCase) -> None:
    """States may be merged in any order."""
    parts = _parts(case)
    order = np.random.default_rng(case.seed).permutation(len(parts))
    shuffled = [parts[i] for i in order]
    _same(case, _merge(case, parts), _merge(case, shuffled), "in another order")


def merging_is_associative(case: SummaryCase) -> None:
    """States may be merged in any number of rounds."""
    parts = _parts(case)
    middle = len(parts) // 2
    halves = [_merge(case, parts[:middle]), _merge(case, parts[middle:])]
    stepwise = parts[0]
    for part in parts[1:]:
        stepwise = _merge(case, [stepwise, part])
    _same(case, _merge(case, parts), _merge(case, halves), "merged by halves")
    _same(case, _merge(case, parts), stepwise, "merged one by one")


def an_empty_state_is_neutral(case: SummaryCase) -> None:
    """Merging a state with empty ones, or alone, does not change it."""
    whole, empty = _whole(case), _empty(case)
    for states in ([whole], [whole, empty], [empty, whole, empty]):
        assert _bits(_merge(case, states)) == _bits(whole), "merged with empty states"
    estimates = case.summary.estimate(_merge(case, [empty, empty]))
    assert comparable(_values(estimates)) == comparable(_values(case.summary.estimate(empty)))


def a_group_may_have_no_states(case: SummaryCase) -> None:
    """Merging no states gives the state of a group without rows."""
    none = [state[:0] for state in _whole(case)]
    groups = Groups(np.empty(0, np.int64), case.groups.count)
    assert _bits(case.summary.merge(groups, none)) == _bits(_empty(case)), "without states"


def groups_do_not_mix(case: SummaryCase) -> None:
    """The state of a group depends on the rows of this group only."""
    together = _bits(_whole(case))
    for group in range(case.groups.count):
        own = np.flatnonzero(case.groups.ids == group)
        alone = case.summary.update(
            Groups(np.zeros(len(own), np.int64), 1), case.rows.take(pa.array(own))
        )
        assert _bits(alone)[0] == together[group], f"group {group}, alone and with others"


def states_are_as_declared(case: SummaryCase) -> None:
    """One state per group, of the types in ``fields`` and ``result``."""
    for states in (_whole(case), _merge(case, _parts(case)), _empty(case)):
        assert [state.type for state in states] == [type_ for _, type_ in case.summary.fields]
        assert {len(state) for state in states} == {case.groups.count}
        estimate = case.summary.estimate(states)
        assert (estimate.type, len(estimate)) == (case.summary.result, case.groups.count)


SUMMARY: tuple[Callable[[SummaryCase], None], ...] = (
    merging_parts_is_the_whole,
    merging_is_commutative,
    merging_is_associative,
    an_empty_state_is_neutral,
    a_group_may_have_no_states,
    groups_do_not_mix,
    states_are_as_declared,
)
"""Every law of a summary."""


def _whole(case: SummaryCase) -> States:
    return case.summary.update(case.groups, case.rows)


def _empty(case: SummaryCase) -> States:
    return case.summary.update(Groups(np.empty(0, np.int64), case.groups.count), case.rows[:0])


def _parts(case: SummaryCase) -> list[States]:
    """States of two to five random parts of the rows, and an empty one."""
    rng = np.random.default_rng(case.seed)
    count = int(rng.integers(2, 6))
    part_of = rng.integers(0, count, len(case.rows))
    parts = [
        case.summary.update(case.groups.where(part_of == part), case.rows.filter(part_of == part))
        for part in range(count)
    ]
    return [*parts, _empty(case)]


def _merge(case: SummaryCase, parts: Sequence[States]) -> States:
    ids: Ids = np.tile(np.arange(case.groups.count), len(parts))
    states = [pa.concat_arrays(pieces) for pieces in zip(*parts, strict=True)]
    return case.summary.merge(Groups(ids, case.groups.count), states)


def _same(case: SummaryCase, left: States, right: States, what: str) -> None:
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
    """The states of each group as comparable values."""
    return list(zip(*(map(comparable, _values(state)) for state in states), strict=True))


def _values(array: pa.Array) -> list[Any]:
    return [row["value"] for row in to_rows(pa.table({"value": array}))]
