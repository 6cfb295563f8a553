"""HyperLogLog is as accurate as it says, merged or not, from no item to ten million."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tests.sketches.hll_accuracy import (
    PRECISIONS,
    SEEDS,
    compared,
    errors,
    in_parts,
    promised,
    sketched,
)


def check(distinct: int, p: int, seeds: int | None = None) -> None:
    """One in 370 is more than three standard errors off: here no more than two of a hundred."""
    found = np.array(errors(distinct, p, seeds))
    assert abs(found[0]) <= 3.1 * promised(p)
    assert np.count_nonzero(np.abs(found) > 3 * promised(p)) <= (2 if len(found) == 100 else 1)
    if len(found) >= 40:
        assert np.sqrt(np.mean(found**2)) <= 1.25 * promised(p)


@pytest.mark.parametrize("p", [4, 8, 12, 16])
@pytest.mark.parametrize("distinct", [0, 1, 10, 10**2, 10**3, 10**4])
def test_errors_of_a_few_sketches_are_below_the_stated_one(distinct: int, p: int) -> None:
    check(distinct, p, 10)
    assert bits(in_parts(distinct, 0, p)) == bits(sketched(distinct, 0, p))


@pytest.mark.parametrize("p", [4, 6, 8, 11, 14])
@pytest.mark.parametrize("distinct", [1, *(10**n for n in range(1, 8))])
def test_a_dense_sketch_is_as_accurate_as_hyperloglog_plus_plus(distinct: int, p: int) -> None:
    ours, theirs = compared(distinct, p, min(1000, 1 << 22 >> p))
    assert ours <= 1.15
    assert ours <= max(1.06 * theirs, 0.15)


@pytest.mark.exhaustive
@pytest.mark.parametrize("p", PRECISIONS)
@pytest.mark.parametrize("distinct", SEEDS)
def test_errors_of_sketches_are_below_the_stated_one(distinct: int, p: int) -> None:
    check(distinct, p)


@pytest.mark.exhaustive
@pytest.mark.parametrize("p", PRECISIONS)
@pytest.mark.parametrize("distinct", SEEDS)
def test_a_sketch_merged_from_parts_is_identical(distinct: int, p: int) -> None:
    assert bits(in_parts(distinct, 1, p)) == bits(sketched(distinct, 1, p))


def bits(state: list[pa.Array]) -> list[object]:
    return [column.to_pylist() for column in state]
