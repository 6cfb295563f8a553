"""What a sample says: the estimate, and how often the truth lies between the bounds."""

from __future__ import annotations

import datasketches
import numpy as np
import pyarrow as pa
import pytest

from streamops.kernel.groups import Ints
from streamops.sketches.core.samples import (
    NUMBER,
    SHARE,
    WHOLE,
    bounds,
    number,
    number_of,
    share_of,
)
from tests.sketches.core.theta_cases import apache

HALF, LITTLE = 2**62, 2**50


def one(found: int, theta: int) -> dict[str, float | None]:
    given = number_of(np.array([found]), np.array([theta]))
    assert given.type == NUMBER
    (only,) = given.to_pylist()
    return dict(only)


def share(found: int, among: int, theta: int) -> dict[str, float | None]:
    given = share_of(np.array([found]), np.array([among]), np.array([theta]))
    assert given.type == SHARE
    (only,) = given.to_pylist()
    return dict(only)


@pytest.mark.parametrize("found", [0, 1, 5_000])
def test_the_size_of_a_whole_set_is_exact(found: int) -> None:
    known = {"estimate": found, "lower": found, "upper": found, "relative_error": 0.0}
    assert one(found, WHOLE) == known


def test_without_hashes_there_is_an_upper_bound_and_no_relative_error() -> None:
    given = one(0, LITTLE)
    assert (given["estimate"], given["lower"], given["relative_error"]) == (0, 0, None)
    assert 3.78 * 2**13 < (given["upper"] or 0) < 5 * 2**13  # 3.78: of a Poisson number, exactly


def test_the_lower_bound_is_at_least_the_number_of_hashes() -> None:
    assert one(1, HALF)["lower"] == 1
    assert one(3, WHOLE - 1) == {"estimate": 3, "lower": 3, "upper": 4, "relative_error": 0.0}


@pytest.mark.parametrize("theta", [1, 2, 3])
def test_a_tiny_theta_does_not_overflow(theta: int) -> None:
    found = theta - 1
    given = one(found, theta)
    assert given["estimate"] == number(np.array([found]), np.array([theta]))[0]
    assert 0 <= (given["lower"] or 0) <= (given["estimate"] or 0) <= (given["upper"] or 0) < 2**63


@pytest.mark.parametrize("size", [200, 5_000, 100_000])
def test_bounds_equal_those_of_apache_in_closed_form(size: int) -> None:
    theirs = apache(range(size), 7)
    lower, upper = bounds(np.array([theirs.num_retained]), np.array([theirs.theta64]))
    assert lower[0] == pytest.approx(theirs.get_lower_bound(2), rel=2e-3, abs=1)
    assert upper[0] == pytest.approx(theirs.get_upper_bound(2), rel=2e-3, abs=1)


@pytest.mark.parametrize("size", [100, 3_000, 100_000])
@pytest.mark.parametrize("k", [16, 64, 1_024])
def test_the_bounds_hold_in_95_of_100(size: int, k: int) -> None:
    rng = np.random.default_rng(size + k)
    # Of so many uniform numbers, the one that has k below it.
    next_one = rng.beta(k + 1, size - k, 20_000) if size > k else np.ones(1)
    theta = (next_one * 2.0**63).astype(np.uint64).clip(max=WHOLE).astype(np.int64)
    lower, upper = bounds(np.full(len(theta), min(size, k)), theta)
    assert np.mean((lower <= size) & (size <= upper)) > 0.95


@pytest.mark.parametrize("size", [0, 1, 20, 1_000, 100_000])
@pytest.mark.parametrize("theta", [HALF, 2**58, LITTLE])
def test_bounds_of_differences_hold_in_95_of_100(size: int, theta: int) -> None:
    rng = np.random.default_rng(size)
    found: Ints = rng.binomial(size, theta / 2**63, 20_000).astype(np.int64)
    lower, upper = bounds(found, np.full(len(found), theta))
    assert np.mean((lower <= size) & (size <= upper)) > 0.95


@pytest.mark.parametrize("part", [0, 3, 300, 997, 1_000])
@pytest.mark.parametrize("theta", [HALF, 2**58])
def test_bounds_of_shares_hold_in_95_of_100(part: int, theta: int) -> None:
    rng = np.random.default_rng(part)
    found = rng.binomial(part, theta / 2**63, 20_000).astype(np.int64)
    rest = rng.binomial(1_000 - part, theta / 2**63, 20_000).astype(np.int64)
    given = share_of(found, found + rest, np.full(len(found), theta))
    lower, upper = (np.asarray(given.field(name)) for name in ("lower", "upper"))
    assert np.mean((lower <= part / 1_000) & (part / 1_000 <= upper)) > 0.95


def test_a_share_of_a_whole_set_is_exact() -> None:
    assert share(1, 4, WHOLE) == {"estimate": 0.25, "lower": 0.25, "upper": 0.25}


def test_an_empty_set_has_no_share() -> None:
    nothing = {"estimate": None, "lower": None, "upper": None}
    assert share(0, 0, WHOLE) == nothing
    assert share(0, 0, HALF) == {"estimate": None, "lower": 0.0, "upper": 1.0}


def test_shares_are_close_to_those_of_apache() -> None:
    left, right = apache(range(50_000), 10), apache(range(25_000, 75_000), 10)
    union, both = datasketches.theta_union(12), datasketches.theta_intersection()
    for item in (left, right):
        union.update(item)
        both.update(item)
    theta = min(left.theta64, right.theta64)
    among = sum(item < theta for item in union.get_result())
    given = share(both.get_result().num_retained, among, theta)
    lower, estimate, upper = datasketches.theta_jaccard_similarity.jaccard(left, right)
    assert given["estimate"] == pytest.approx(estimate, rel=0.05)
    assert (given["lower"], given["upper"]) == (
        pytest.approx(lower, rel=0.1),
        pytest.approx(upper, rel=0.1),
    )


def test_many_are_measured_at_once() -> None:
    given = number_of(np.array([3, 0, 8]), np.array([WHOLE, WHOLE, HALF]))
    assert given.field("estimate").equals(pa.array([3, 0, 16]))
