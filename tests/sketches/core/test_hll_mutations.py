"""Bytes that were damaged: what is revived is a sketch, and anything else is an error."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import datasketches
import numpy as np
import pyarrow as pa
import pytest

from streamops.kernel.errors import SketchFormatError
from streamops.kernel.groups import Groups
from streamops.sketches.core.hyperloglog import (
    HyperLogLog,
    from_images,
    from_serialized,
    highest,
    most_coupons,
    to_images,
)

pytestmark = pytest.mark.thorough

P = 8
SIZES = [0, 1, 5, 7, 8, 24, 25, 300, 5000]


def sketches() -> list[pa.Array]:
    ids = np.repeat(np.arange(len(SIZES)), SIZES)
    values = pa.array(np.concatenate([np.arange(size) for size in SIZES]))
    return HyperLogLog("v", P).update(Groups(ids, len(SIZES)), pa.table({"v": values}))


def mutated(blobs: list[bytes], count: int, seed: int) -> Iterator[bytes]:
    """Cut short or long, up to eight bytes changed, or bytes of no meaning behind a true start."""
    rng = np.random.default_rng(seed)
    for number in range(count):
        blob = bytearray(blobs[rng.integers(len(blobs))])
        if number % 3 == 0:
            yield bytes((blob + rng.bytes(9))[: rng.integers(len(blob) + 9)])
        elif number % 3 == 1:
            for position in rng.integers(0, max(len(blob), 1), rng.integers(1, 9))[: len(blob)]:
                blob[position] = rng.integers(256)
            yield bytes(blob)
        else:
            stored = int(rng.integers(0, 13))
            yield bytes(blob[:stored]) + rng.bytes(int(rng.integers(0, 300)))


def require_valid(states: list[pa.Array]) -> None:
    """It has what every sketch has."""
    (coupons,), (registers,) = (column.to_pylist() for column in states)
    if registers is None:
        assert coupons == sorted(set(coupons))
        assert all(coupon >> 26 for coupon in coupons)
        assert len(coupons) <= most_coupons(P)
    else:
        assert coupons is None
        assert len(registers) == 1 << P
        assert 0 < max(registers) <= highest(P)
    HyperLogLog("v", P).estimate(states)


def payloads_survive(count: int) -> None:
    sketch = HyperLogLog("v", P)
    revived = 0
    for blob in mutated(sketch.payload(sketches()).to_pylist(), count, 1):
        try:
            states = sketch.revive(pa.array([blob], pa.binary()))
        except SketchFormatError:
            continue
        revived += 1
        require_valid(states)
        assert sketch.payload(states).to_pylist() == [blob]  # nothing of it was ignored
    assert 0 < revived < count


def images_survive(count: int) -> None:
    union, images = datasketches.hll_union(P), to_images(sketches(), P).to_pylist()
    for image in images[:]:
        union.update(datasketches.hll_sketch.deserialize(image))
        for dtype in (datasketches.HLL_4, datasketches.HLL_6, datasketches.HLL_8):
            result = union.get_result(dtype)
            images += [result.serialize_compact(), result.serialize_updatable()]
    read = 0
    for blob in mutated(images, count, 2):
        try:
            states = from_images(pa.array([blob], pa.binary()), P)
        except SketchFormatError:
            continue
        read += 1
        require_valid(states)
    assert 0 < read < count


def serialized_survive(count: int) -> None:
    registers = HyperLogLog("v", P).registers(sketches())
    read = 0
    for blob in mutated([bytes([P, *row]) for row in registers.tolist()], count, 3):
        try:
            states = from_serialized(pa.array([blob], pa.binary()), P)
        except SketchFormatError:
            continue
        read += 1
        require_valid(states)
    assert 0 < read < count


@pytest.mark.parametrize("survive", [payloads_survive, images_survive, serialized_survive])
def test_a_thousand_damaged_payloads_are_refused(survive: Callable[[int], None]) -> None:
    survive(1_000)


@pytest.mark.exhaustive
def test_a_hundred_thousand_damaged_payloads() -> None:
    payloads_survive(100_000)


@pytest.mark.exhaustive
@pytest.mark.parametrize("survive", [images_survive, serialized_survive])
def test_twenty_thousand_damaged_images_are_refused(survive: Callable[[int], None]) -> None:
    survive(20_000)
