"""Bits and probes: their formula, and the resulting rate of false positives."""

from __future__ import annotations

import math

import numpy as np
import pyarrow as pa
import pytest

from streamops.kernel.hashing import xxhash64
from streamops.sketches.core.bloom import Shape, contained, filled, positions
from tests.sketches.bloom_accuracy import RATES, measured


@pytest.mark.parametrize("capacity", [1, 2, 10, 63, 64, 1_000, 10**6])
@pytest.mark.parametrize("rate", [0.5, 0.3, 1e-2, 1e-3, 1e-4, 1e-9])
def test_a_shape_has_its_rate_with_few_bits(capacity: int, rate: float) -> None:
    shape = Shape.of(capacity, rate)
    assert shape.bits % 64 == 0
    assert shape.bits == 64 * shape.length
    assert shape.rate(capacity) <= rate
    assert shape.rate(0) == 0
    ideal = capacity * math.log2(1 / rate) / math.log(2)
    assert shape.bits <= ideal * 1.05 + shape.probes + 64


def test_probes_are_halves_of_hashes_that_sql_computes() -> None:
    shape, queries = Shape(bits=640, probes=3), np.array([7, -7, 2**62])
    column = pa.array(queries)
    numbers = [pa.array([n] * 3, pa.int32()) for n in (0, 1)]
    first, second = (xxhash64([number, column]).view(np.uint64).tolist() for number in numbers)
    expected = [
        [(word >> 32) * 640 >> 32 for word in first],
        [(word & 0xFFFFFFFF) * 640 >> 32 for word in first],
        [(word >> 32) * 640 >> 32 for word in second],
    ]
    assert positions(shape, queries).tolist() == expected
    assert positions(shape, queries[:0]).shape == (3, 0)


@pytest.mark.parametrize("count", [0, 1, 3, 500])
def test_few_and_many_bits_are_set_in_the_same_way(count: int) -> None:
    shape = Shape.of(1_000, 0.01)
    probes = positions(shape, np.arange(count))
    before = np.full(shape.length, 1 << 63, np.uint64)
    after = filled(before, probes)
    assert (before == 1 << 63).all()
    numbers = {*probes.ravel().tolist(), *range(63, shape.bits, 64)}
    bits = np.unpackbits(after.view(np.uint8), bitorder="little")
    assert set(np.flatnonzero(bits).tolist()) == numbers
    assert contained(after, probes, np.arange(count)).tolist() == list(range(count))


def test_only_queried_items_are_returned() -> None:
    shape = Shape.of(100, 1e-6)
    texts = filled(np.zeros(shape.length, np.uint64), positions(shape, np.arange(50)))
    probes = positions(shape, np.arange(100))
    assert contained(texts, probes, np.array([7, 40, 60, 99])).tolist() == [7, 40]
    assert contained(texts, probes, np.array([60])).tolist() == []


@pytest.mark.thorough
@pytest.mark.parametrize("rate", RATES)
def test_the_measured_rate_is_the_stated_one(rate: float) -> None:
    """So many are asked that the measured rate errs by 6 % (standard deviation), at a fixed seed."""
    for capacity in (10**3, 10**5):
        found = measured(capacity, rate, requested=round(300 / rate))
        assert 0.9 * rate <= found <= 1.1 * rate, capacity
