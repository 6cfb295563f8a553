"""Variance and standard deviation against exact fractions."""

from __future__ import annotations

import math
import statistics
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamops import aggregates as agg
from streamops.kernel.values import comparable
from tests.aggregates.samples import (
    INFINITY,
    LARGEST,
    NAN,
    bind,
    column,
    one_group,
    over,
    over_parts,
)


def exact(values: list[Any]) -> float:
    return float(statistics.variance([Fraction(value) for value in values]))


def close(found: float, expected: float, tolerance: float = 1e-9) -> bool:
    return math.isclose(found, expected, rel_tol=tolerance, abs_tol=1e-12)


@pytest.mark.parametrize("function", [agg.variance, agg.stddev])
def test_fewer_than_two_values_have_no_variance(function: Any) -> None:
    assert over(function("double"), []) is None
    assert over(function("double"), [1.5, None]) is None
    assert over_parts(function("double"), [], [None], [1.5]) is None


def test_two_values_have_the_sample_variance() -> None:
    assert over(agg.variance("double"), [1.0, None, 4.0]) == 4.5
    assert over(agg.stddev("double"), [1.0, 5.0, 3.0]) == 2.0


@pytest.mark.parametrize("name", ["byte", "long", "float", "money"])
def test_numbers_of_every_type_have_a_variance(name: str) -> None:
    dtype = Decimal if name == "money" else int
    assert over(agg.variance(name), [dtype(1), dtype(2), dtype(4)]) == pytest.approx(7 / 3)


def test_a_constant_has_no_spread() -> None:
    assert over(agg.variance("double"), [1e9 + 0.1] * 7) == 0.0
    assert over_parts(agg.variance("double"), [0.25] * 3, [0.25], [0.25]) == 0.0


@pytest.mark.parametrize("values", [[1.0, NAN], [NAN, NAN], [1.0, INFINITY], [INFINITY, -INFINITY]])
def test_a_nan_or_an_infinity_makes_the_variance_nan(values: list[float]) -> None:
    assert math.isnan(over(agg.variance("double"), values))
    assert math.isnan(over_parts(agg.variance("double"), values[:1], values[1:]))
    assert math.isnan(over(agg.stddev("double"), values))


def test_far_from_zero_no_digit_is_lost_to_cancellation() -> None:
    """The sum of the squares less the square of the sum would give 0, or less than 0."""
    values = [1e9 + offset for offset in (4.0, 7.0, 13.0, 16.0)]
    assert over(agg.variance("double"), values) == 30.0
    assert close(over_parts(agg.variance("double"), values[:1], values[1:]), 30.0)


@given(st.lists(st.integers(-1_000, 1_000), min_size=2, max_size=30), st.data())
def test_near_a_billion_the_variance_keeps_nine_digits(steps: list[int], data: Any) -> None:
    values = [1e9 + step / 8 for step in steps]
    cut = data.draw(st.integers(0, len(values)))
    again = data.draw(st.integers(cut, len(values)))
    expected = exact(values)
    assert close(over(agg.variance("double"), values), expected)
    # The mean of a part is a double near 1e9, rounded by up to 6e-8: as Spark's, when it merges
    # partial aggregates. What that costs grows as the spread shrinks.
    parts = values[:cut], values[cut:again], values[again:]
    rounded = 1e-9 + 4e-7 / math.sqrt(expected) if expected else 0.0
    found = over_parts(agg.variance("double"), *parts)
    assert math.isclose(found, expected, rel_tol=rounded, abs_tol=1e-13)
    found = over_parts(agg.stddev("double"), *parts)
    assert math.isclose(found, math.sqrt(expected), rel_tol=rounded, abs_tol=1e-6)


@given(st.lists(st.floats(-1e6, 1e6), min_size=2, max_size=30))
def test_the_variance_is_that_of_exact_fractions(values: list[float]) -> None:
    largest = max(map(abs, values))
    found, expected = over(agg.variance("double"), values), exact(values)
    assert math.isclose(found, expected, rel_tol=1e-9, abs_tol=1e-15 * largest**2)


@pytest.mark.parametrize("values", [[2**53 + 1, 2**53 + 3], [LARGEST, -LARGEST, 0]])
def test_integers_too_long_for_a_double_have_a_variance(values: list[int]) -> None:
    found = over(agg.variance("long"), values)
    assert found == pytest.approx(exact([float(value) for value in values]))


def test_a_variance_too_large_for_a_double_is_infinite_and_nobody_is_warned() -> None:
    assert over(agg.variance("double"), [1e200, -1e200]) == INFINITY
    assert over_parts(agg.variance("double"), [1e200], [-1e200]) == INFINITY


@pytest.mark.parametrize("values", [[1.0, INFINITY], [INFINITY], [-INFINITY, NAN], [1e308, -1e308]])
def test_a_state_without_a_finite_mean_merged_with_nothing_stays_itself(
    values: list[float],
) -> None:
    summary, rows = bind(agg.variance("double")), column("double", values)
    alone = summary.update(one_group(len(values)), rows)
    nothing = summary.update(one_group(0), rows[:0])
    states = [pa.concat_arrays(pieces) for pieces in zip(alone, nothing, strict=True)]
    merged = summary.merge(one_group(2), states)
    assert comparable([s[0].as_py() for s in merged]) == comparable([s[0].as_py() for s in alone])
