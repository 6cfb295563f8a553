"""Groups of rows, and the reductions over them."""

from __future__ import annotations

from collections import defaultdict
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamops.kernel.groups import Groups, ordered_pair_codes, pair_codes, running_max

LARGEST = 2**63 - 1

members = st.lists(st.tuples(st.integers(0, 4), st.integers(-(2**63), LARGEST)), max_size=12)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


def by_group(rows: list[tuple[int, int]]) -> dict[int, list[int]]:
    groups = defaultdict(list)
    for group, value in rows:
        groups[group].append(value)
    return groups


def test_groups_are_numbered_in_order_of_first_appearance() -> None:
    groups, firsts = Groups.of(ints(7, -3, 7, 2**62, -3))
    assert groups.ids.tolist() == [0, 1, 0, 2, 1]
    assert groups.count == 3
    assert firsts.tolist() == [0, 1, 3]


def test_without_rows_there_are_no_groups() -> None:
    groups, firsts = Groups.of(ints())
    assert (groups.count, len(groups.ids), len(firsts)) == (0, 0, 0)
    assert groups.sizes().tolist() == []


def test_a_group_without_rows_is_preserved() -> None:
    groups = Groups(ints(0, 1, 0), 2).where(np.array([True, False, True]))
    assert groups.sizes().tolist() == [2, 0]
    assert groups.sum_ints(ints(5, 6)).tolist() == [11, 0]
    assert groups.sum_floats(np.array([0.5, 0.25])).tolist() == [0.75, 0.0]
    assert groups.first_by(ints(3, 2)).tolist() == [1, -1]


def test_the_largest_sum_that_fits_is_exact() -> None:
    groups = Groups(ints(0, 0, 1, 1), 2)
    assert groups.sum_ints(ints(LARGEST - 1, 1, -LARGEST, -1)).tolist() == [LARGEST, -(2**63)]


@pytest.mark.parametrize("values", [(LARGEST, 1), (-(2**63), -1), (LARGEST, LARGEST)])
def test_an_overflowing_sum_is_refused_not_wrapped_around(values: tuple[int, int]) -> None:
    with pytest.raises(OverflowError, match="64 bits"):
        Groups(ints(0, 0), 1).sum_ints(ints(*values))


def test_a_sum_may_exceed_the_limit_on_the_way() -> None:
    groups = Groups(ints(0, 0, 0), 1)
    assert groups.sum_ints(ints(LARGEST, LARGEST, -LARGEST)).tolist() == [LARGEST]


def test_values_of_other_groups_do_not_make_a_sum_overflow() -> None:
    groups = Groups(ints(0, 1, 2), 3)
    assert groups.sum_ints(ints(LARGEST, LARGEST, -(2**63))).tolist() == [
        LARGEST,
        LARGEST,
        -(2**63),
    ]


@given(members)
def test_sums_are_exact_or_refused(rows: list[tuple[int, int]]) -> None:
    groups = Groups(ints(*(group for group, _ in rows)), 5)
    sums = [sum(by_group(rows)[group]) for group in range(5)]
    values = ints(*(value for _, value in rows))
    if all(-(2**63) <= total <= LARGEST for total in sums):
        assert groups.sum_ints(values).tolist() == sums
    else:
        with pytest.raises(OverflowError):
            groups.sum_ints(values)


@given(members)
def test_sizes_are_the_numbers_of_rows(rows: list[tuple[int, int]]) -> None:
    groups = Groups(ints(*(group for group, _ in rows)), 5)
    assert groups.sizes().tolist() == [len(by_group(rows)[group]) for group in range(5)]


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.integers(0, 2)), max_size=12))
def test_the_first_row_is_that_of_a_stable_sort(rows: list[tuple[int, int, int]]) -> None:
    ids, major, minor = (ints(*(row[i] for row in rows)) for i in range(3))
    found = Groups(ids, 3).first_by(major, minor)
    for group in range(3):
        mine = [i for i, row in enumerate(rows) if row[0] == group]
        expected = min(mine, key=lambda i: rows[i][1:], default=-1)
        assert found[group] == expected


def test_the_maximum_key_can_be_first() -> None:
    assert Groups(ints(0, 1, 0), 2).first_by(ints(LARGEST, LARGEST, LARGEST)).tolist() == [0, 1]


@given(st.lists(st.tuples(st.integers(-(2**63), LARGEST), st.integers(-3, 3)), max_size=12))
def test_pairs_are_equal_if_both_parts_are_equal(rows: list[tuple[int, int]]) -> None:
    codes = pair_codes(ints(*(a for a, _ in rows)), ints(*(b for _, b in rows)))
    for i, left in enumerate(rows):
        for j, right in enumerate(rows):
            assert (codes[i] == codes[j]) == (left == right)


def test_pairs_of_codes_from_a_wide_range_are_distinct() -> None:
    """The product of the two ranges does not fit into 64 bits."""
    left, right = ints(-(2**63), LARGEST, LARGEST, -(2**63)), ints(0, LARGEST, 0, 0)
    groups, _ = Groups.of(pair_codes(left, right))
    assert groups.ids.tolist() == [0, 1, 2, 0]


@pytest.mark.parametrize("far", [10, 2**40, 2**61])
def test_ordered_codes_sort_as_their_pairs(far: int) -> None:
    rng = np.random.default_rng(3)
    left, right = rng.integers(-4, 5, 200) * far, rng.integers(-4, 4, 200) * far
    order = np.lexsort((right, left))
    codes = ordered_pair_codes(left, right)[order]
    steps = np.diff(codes)
    same = (np.diff(left[order]) == 0) & (np.diff(right[order]) == 0)
    assert (steps[same] == 0).all()
    assert (steps[~same] > 0).all()


@pytest.mark.parametrize("far", [10, 2**40, 2**59])
def test_a_running_maximum_restarts_in_each_segment(far: int) -> None:
    rng = np.random.default_rng(4)
    values = rng.integers(-8, 8, 300) * far
    begins = rng.random(300) < 0.1
    begins[0] = True
    expected: list[int] = []
    for value, begin in zip(values.tolist(), begins.tolist(), strict=True):
        expected.append(value if begin else max(value, expected[-1]))
    assert running_max(values, begins).tolist() == expected


def test_empty_input_has_no_order_and_no_maximum() -> None:
    none = np.empty(0, np.int64)
    assert len(ordered_pair_codes(none, none)) == len(running_max(none, none.astype(bool))) == 0


def test_decimals_are_summed_per_group_and_null_in_empty_groups() -> None:
    values = pa.array([Decimal("1.10"), None, Decimal("2.20")], pa.decimal256(20, 2))
    groups = Groups(np.array([2, 1, 2]), 4)
    assert groups.sum_decimals(values).to_pylist() == [None, None, Decimal("3.30"), None]
    assert Groups(np.zeros(0, np.int64), 1).sum_decimals(values[:0]).to_pylist() == [None]
