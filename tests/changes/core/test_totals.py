"""Sums of doubles without rounding, against fractions."""

from __future__ import annotations

import math
import random
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

from streamops.changes.core import totals
from streamops.kernel.groups import Groups

BORDERS = [
    *(5e-324, 2.2250738585072014e-308, 2.225073858507201e-308, 1.7976931348623157e308, 0.0, -0.0),
    *(1.0, 2.0**53, 2.0**53 + 2, 2.0**-53, 2.0**32, 2.0**-1074 * 3, 0.1, 1 / 3),
]


def one(*values: float) -> float:
    groups = Groups(np.zeros(len(values), np.int64), 1)
    sums = totals.sum_weighted(groups, np.array(values, float), np.ones(len(values), np.int64))
    return float(totals.round_sums(sums)[0])


def nearest(values: list[float]) -> float:
    total = sum(map(Fraction, values), Fraction(0))
    try:
        return float(total)
    except OverflowError:
        return math.inf if total > 0 else -math.inf


@pytest.mark.parametrize("value", BORDERS, ids=repr)
def test_a_lone_value_is_itself(value: float) -> None:
    assert one(value) == value
    assert one(-value) == -value


@pytest.mark.parametrize(
    ("values", "total"),
    [
        ([2.0**53, 1.0], 2.0**53),  # halfway, to the even one below
        ([2.0**53 + 2, 1.0], 2.0**53 + 4),  # halfway, to the even one above
        ([2.0**53, 1.0, 5e-324], 2.0**53 + 2),  # slightly above halfway
        ([-(2.0**53), -1.0, -5e-324], -(2.0**53) - 2),
        ([2.0**53, 1.0, -5e-324], 2.0**53),
        ([1.7976931348623157e308] * 2, math.inf),
        ([1.7976931348623157e308, 1.7976931348623157e308, -1.7976931348623157e308], 1.7976931348623157e308),
        ([1e16, 1.0, -1e16], 1.0),
        ([], 0.0),
    ],
)  # fmt: skip
def test_sums_are_rounded_to_the_nearest_double_ties_to_even(
    values: list[float], total: float
) -> None:
    assert one(*values) == total


@pytest.mark.thorough
def test_random_sums_equal_fractions_and_are_retracted_exactly() -> None:
    dice = random.Random(7)
    for _ in range(400):
        size, count = dice.randint(0, 20), dice.randint(1, 3)
        values = [
            dice.choice([*BORDERS, dice.uniform(-1, 1) * 10.0 ** dice.randint(-320, 300)])
            * dice.choice([1, -1])
            for _ in range(size)
        ]
        groups = Groups(np.array([dice.randrange(count) for _ in values], np.int64), count)
        weights = np.ones(size, np.int64)
        sums = totals.sum_weighted(groups, np.array(values, float), weights)
        found = totals.round_sums(sums)
        for group in range(count):
            mine = [v for v, at in zip(values, groups.ids, strict=True) if at == group]
            assert found[group] == nearest(mine), mine
        back = totals.sum_weighted(groups, np.array(values, float), -weights)
        both = [pa.concat_arrays(pair) for pair in zip(sums, back, strict=True)]
        nothing = totals.merge_sums(Groups(np.tile(np.arange(count), 2), count), both)
        assert [state.to_pylist() for state in nothing] == [[0] * count, [[]] * count]


def test_a_sum_has_one_representation() -> None:
    values = np.array([1e300, -3.0, 0.1, -1e300, 5e-324, -0.1])
    whole = totals.sum_weighted(Groups(np.zeros(6, np.int64), 1), values, np.ones(6, np.int64))
    parts = totals.sum_weighted(Groups(np.arange(6), 6), values, np.ones(6, np.int64))
    merged = totals.merge_sums(Groups(np.zeros(6, np.int64), 1), parts)
    assert [state.to_pylist() for state in merged] == [state.to_pylist() for state in whole]
    signs = {np.sign(digit) for digit in whole[1].to_pylist()[0] if digit}
    assert signs == {-1}
