"""HyperLogLog is as accurate as it says, merged or not, from a hundred items to ten million."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tests.sketches.hll_accuracy import (
    PRECISIONS,
    SEEDS,
    errors,
    in_parts,
    promised,
    sketched,
)


def check(distinct: int, p: int, seeds: int | None = None) -> None:
    """One in 370 is more than three standard errors off: here no more than one at all."""
    found = np.array(errors(distinct, p, seeds))
    assert abs(found[0]) <= 3 * promised(p)
    assert np.count_nonzero(np.abs(found) > 3 * promised(p)) <= 1
    if len(found) >= 40:
        assert np.sqrt(np.mean(found**2)) <= 1.25 * promised(p)


@pytest.mark.parametrize("p", [10, 12, 16])
@pytest.mark.parametrize("distinct", [10**2, 10**3, 10**4])
def test_errors_of_a_few_sketches_are_below_the_stated_one(distinct: int, p: int) -> None:
    check(distinct, p, 10)
    assert bits(in_parts(distinct, 0, p)) == bits(sketched(distinct, 0, p))


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
