"""Payloads that were cut, flipped or made up: only what a sketch may have written is read."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamops.kernel.errors import SketchFormatError
from streamops.kernel.groups import Groups
from streamops.kernel.values import comparable
from streamops.sketches.core.countmin import CountingSketch, CountMin
from streamops.sketches.core.frequent import Frequent
from streamops.sketches.core.sketch import are_valid, pack_frames

pytestmark = pytest.mark.thorough

SKETCHES: dict[str, tuple[Any, ...]] = {
    "strings": (Frequent("c", pa.string(), counters=6), pa.string()),
    "binary": (Frequent("c", pa.binary(), counters=6), pa.string()),
    "doubles": (Frequent("c", pa.float64(), counters=6), pa.float64()),
    "booleans": (Frequent("c", pa.bool_(), counters=6), pa.bool_()),
    "decimals": (Frequent("c", pa.decimal128(5, 1), counters=6), pa.int8()),
    "tables": (CountMin("c", pa.int64(), width=4, depth=2), pa.int64()),
}


def payloads_of(sketch: Any, through: pa.DataType) -> list[bytes]:
    """Of states that are empty, small, and full."""
    rng = np.random.default_rng(4)
    ids = np.repeat([1, 2, 3], [3, 12, 60])
    values = rng.integers(0, [2] * 3 + [5] * 12 + [30] * 60)
    if pa.types.is_boolean(through):
        values %= 2
    column = pa.array(values).cast(through).cast(sketch.type)
    states = sketch.update(Groups(ids, 4), pa.table({"c": column}))
    found: list[bytes] = sketch.payload(states).to_pylist()
    return found


def mutated(payload: bytes, rng: np.random.Generator) -> bytes:
    match rng.integers(5):
        case 0:
            return payload[: rng.integers(len(payload) + 1)]
        case 1:
            return payload + rng.bytes(int(rng.integers(1, 9)))
        case 2:
            return rng.bytes(int(rng.integers(80)))
        case 3:  # a number that is a little different
            damaged = bytearray(payload)
            at = int(rng.integers(len(damaged)))
            damaged[at] = (damaged[at] + int(rng.integers(-2, 3))) % 256
            return bytes(damaged)
        case _:
            damaged = bytearray(payload)
            for at in rng.integers(0, len(damaged), rng.integers(1, 9)):
                damaged[at] ^= 1 << int(rng.integers(8))
            return bytes(damaged)


def survive(name: str, tries: int) -> None:
    """Mutate so often; what is read must be a state that leaves as the same bytes."""
    sketch, through = SKETCHES[name]
    sound = payloads_of(sketch, through)
    rng, refused = np.random.default_rng(6), 0
    for number in range(tries):
        blob = mutated(sound[number % len(sound)], rng)
        try:
            states = sketch.revive(pa.array([blob], pa.binary()))
        except SketchFormatError:
            refused += 1
            continue
        for state, (_, dtype) in zip(states, sketch.fields, strict=True):
            state.validate(full=True)
            assert (state.type, len(state)) == (dtype, 1)
        assert sketch.payload(states).to_pylist() == [blob]
        groups = Groups(np.zeros(2, np.int64), 1)
        twice = [pa.concat_arrays([state, state]) for state in states]
        if states[-1][0].as_py() < 2**62:
            sketch.merge(groups, twice)
        assert comparable(sketch.estimate(states).to_pylist())
    assert refused > tries // 2


@pytest.mark.parametrize("name", SKETCHES)
def test_invalid_payloads_are_never_read(name: str) -> None:
    survive(name, 400)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["binary", "tables"])
def test_a_hundred_thousand_damaged_payloads_are_never_read(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sketch, through = SKETCHES[name]
    sound = payloads_of(sketch, through)
    rng = np.random.default_rng(8)
    blobs = np.array([mutated(sound[n % len(sound)], rng) for n in range(100_000)], object)
    masks: list[Any] = []

    original = CountingSketch.require

    def require(sketch: CountingSketch, valid: Any, expected: str) -> None:
        masks.append(valid)
        original(sketch, valid, expected)

    # Payloads that a check refuses are removed until the others pass all checks.
    monkeypatch.setattr(CountingSketch, "require", require)
    states, rounds = None, 0
    while states is None:
        rounds += 1
        try:
            states = sketch.revive(pa.array(blobs, pa.binary()))
        except SketchFormatError:
            blobs = blobs[masks[-1]]
    assert rounds > 4
    assert len(blobs) < 50_000
    for state in states:
        state.validate(full=True)
    assert sketch.payload(states).to_pylist() == blobs.tolist()
    merged = sketch.merge(Groups(np.arange(len(blobs)) // 2, len(blobs)), states)
    assert len(sketch.estimate(merged)) == len(blobs)


@pytest.mark.exhaustive
@pytest.mark.parametrize("name", ["strings", "tables"])
def test_none_of_a_hundred_thousand_damaged_frames_is_valid(name: str) -> None:
    sketch, through = SKETCHES[name]
    payloads = pa.array(payloads_of(sketch, through), pa.binary())
    whole = pack_frames(sketch.format, sketch.parameters, payloads).to_pylist()
    rng = np.random.default_rng(9)
    blobs = [mutated(whole[n % len(whole)], rng) for n in range(100_000)]
    fine = are_valid(pa.array(blobs, pa.binary()), sketch.format, sketch.parameters)
    untouched = np.array([blob in whole for blob in blobs])
    assert np.array_equal(fine, untouched)
    assert untouched.sum() < 10_000
