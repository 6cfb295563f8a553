"""Samples: sorted, distinct, cut to the lowest; and compared."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamops.kernel.groups import Groups
from streamops.sketches.core.buffers import argsort_rows
from streamops.sketches.core.samples import (
    WHOLE,
    Samples,
    beside,
    compared,
    lowest,
    united,
)
from tests.oracles import theta as oracle
from tests.sketches.core.theta_cases import sample


def flat(*sets: tuple[list[int], int]) -> Samples:
    """These sets: hashes, and theta."""
    hashes = np.array([item for found, _ in sets for item in found], np.int64)
    sizes = np.array([len(found) for found, _ in sets], np.int64)
    return Samples(hashes, sizes, np.array([theta for _, theta in sets], np.int64))


def test_hashes_that_differ_in_their_last_bits_only_are_put_in_order() -> None:
    # Seven groups cost three bits of the key: these hashes are equal without them.
    ids = np.array([6, 6, 6, 0, 6])
    hashes = np.array([2**62 + 3, 2**62 + 1, 2**62 + 2, 5, 2**62 + 1])
    rows = argsort_rows(ids, hashes, 7)
    assert ids[rows].tolist() == [0, 6, 6, 6, 6]
    assert hashes[rows].tolist() == [5, 2**62 + 1, 2**62 + 1, 2**62 + 2, 2**62 + 3]


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 30)), max_size=40),
    st.integers(1, 8),
    st.sampled_from([1, 9, 31, WHOLE]),
)
def test_the_lowest_hashes_of_each_group_are_stored(
    pairs: list[tuple[int, int]], k: int, theta: int
) -> None:
    groups = Groups(np.array([group for group, _ in pairs], np.int64), 5)
    hashes = np.array([item for _, item in pairs], np.int64)
    found = lowest(groups, hashes, np.full(5, theta), k)
    for group in range(5):
        mine = frozenset(item for owner, item in pairs if owner == group)
        expected = oracle.union([oracle.Sample(mine, theta)], k)
        assert sample(found, group) == expected


def test_a_union_has_the_smallest_theta() -> None:
    three = flat(([1, 5, 9], 10), ([2, 5], 6), ([7], WHOLE))
    found = united(Groups(np.array([0, 0, 2]), 3), three, 16)
    assert [sample(found, row) for row in range(3)] == [
        (frozenset([1, 2, 5]), 6),
        (frozenset(), WHOLE),
        (frozenset([7]), WHOLE),
    ]


def test_sets_are_compared_below_the_lesser_theta() -> None:
    in_turn = compared(flat(([1, 5, 9], 10), ([2, 5], 6), ([], 4), ([3], WHOLE)), 2)
    split = beside(flat(([1, 5, 9], 10), ([], 4)), flat(([2, 5], 6), ([3], WHOLE)))
    for found in (in_turn, split):
        both, only_left, only_right, theta = (item.tolist() for item in found.pair(0, 1))
        assert (both, only_left, only_right, theta) == ([1, 0], [1, 0], [1, 1], [6, 4])
        assert sample(found.where([0], [1])) == (frozenset([1]), 6)
        assert sample(found.where([0])) == (frozenset([1, 5, 9]), 10)
        assert sample(found.where([0, 1])) == (frozenset([5]), 6)
        assert sample(found.either(2)) == (frozenset([1, 2]), 5)
        assert sample(found.either(3)) == (frozenset([1, 2, 5]), 6)


@pytest.mark.parametrize("width", [1, 2])
def test_empty_samples_are_compared(width: int) -> None:
    nothing = compared(flat(), width)
    assert [len(found) for found in nothing.pair(0, width - 1)] == [0, 0, 0, 0]


def test_samples_round_trip_through_columns() -> None:
    before = flat(([1, 5], 10), ([], WHOLE), ([2], 3))
    hashes, theta = before.columns()
    assert sample(Samples.of(hashes[1:], theta[1:]), 1) == (frozenset([2]), 3)
    assert Samples.of(hashes, theta).owners.tolist() == [0, 0, 2]
