"""Bloom filters of groups: how few and how many items are kept, estimated, and read again."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamops.kernel.errors import CapacityError, SketchFormatError
from streamops.kernel.groups import Groups
from streamops.sketches.core import bloom
from streamops.sketches.core.bloom import Bloom, Shape
from streamops.sketches.core.items import items
from streamops.sketches.core.sketch import Framed, are_valid
from tests.sketches.bloom_accuracy import measured

SMALL = Bloom.of("v", "bigint", 100, 0.01)  # 1,024 bits: 16 words


def states_of(sketch: Bloom, *groups: Any) -> list[pa.Array]:
    sizes = [len(group) for group in groups]
    rows = pa.table({"v": pa.array(np.concatenate([*groups, []]), pa.int64())})
    return sketch.update(Groups(np.repeat(np.arange(len(groups)), sizes), len(groups)), rows)


def estimates(sketch: Bloom, *groups: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = sketch.estimate(states_of(sketch, *groups)).to_pylist()
    return found


def test_few_items_are_stored_as_hashes_and_many_as_bits() -> None:
    (state,) = states_of(SMALL, [], [7, 7], np.arange(15), np.arange(16), np.arange(1_000))
    assert [len(item) for item in state.to_pylist()] == [0, 8, 120, 128, 128]
    found, _ = items(pa.array(np.arange(15)))
    assert state[2].as_py() == np.sort(found).astype("<i8").tobytes()


def test_few_items_are_counted_and_many_estimated() -> None:
    nothing, one, some = estimates(SMALL, [], [7, 7], np.arange(15))
    assert nothing == {
        "estimate": 0, "lower": 0, "upper": 0, "relative_error": 0.0,
        "false_positive_rate": 0.0, "full": False,
    }  # fmt: skip
    assert (one["estimate"], some["lower"], some["upper"]) == (1, 15, 15)
    assert some["false_positive_rate"] == pytest.approx(SMALL.shape.rate(15))
    sketch = Bloom.of("v", "bigint", 10_000, 0.01)
    for count in (2_000, 10_000, 30_000):
        (found,) = estimates(sketch, np.arange(count))
        assert found["lower"] <= count <= found["upper"]
        assert found["upper"] - found["lower"] < 0.04 * count
        error = (found["upper"] - found["lower"]) / 4 / found["estimate"]
        assert found["relative_error"] == pytest.approx(error, rel=0.05)
        rate = sketch.shape.rate(count)
        assert found["false_positive_rate"] == pytest.approx(rate, rel=0.2)
        assert found["full"] == (count > 10_000)


def test_a_full_filter_has_no_upper_bound() -> None:
    sketch = Bloom("v", "bigint", 1, 0.5, Shape(64, 1))
    (found,) = estimates(sketch, np.arange(10_000))
    assert found["estimate"] == round(64 * np.log(64))
    assert found["false_positive_rate"] == 1
    assert found["upper"] == 2**63 - 1
    assert found["full"]
    lower, upper = sketch.bounds(states_of(sketch, np.arange(10_000)))
    assert (lower[0].as_py(), upper[0].as_py()) == (found["lower"], found["upper"])


def test_a_sparse_sketch_answers_like_its_filter() -> None:
    sketch = Bloom.of("v", "bigint", 100, 0.5)
    queries, _ = items(pa.array(np.arange(100_000)))
    (few,) = states_of(sketch, [5])
    bits = sketch.filter([few])
    given = sketch.contains([few], queries)
    again = sketch.contains([pa.array([bits.tobytes()], pa.binary())], queries)
    assert given[5]
    assert (given == again).all()


def test_filters_of_many_groups_are_made_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = [np.arange(n, n + 40) for n in range(20)]
    at_once = states_of(SMALL, *groups)
    monkeypatch.setattr(bloom, "_BITS_AT_ONCE", 3 * SMALL.shape.bits)
    assert states_of(SMALL, *groups) == at_once


def test_filters_that_do_not_fit_into_a_column_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bloom, "_MOST_BYTES", 300)
    states_of(SMALL, np.arange(40), np.arange(40))
    with pytest.raises(CapacityError) as caught:
        states_of(SMALL, np.arange(40), np.arange(40), np.arange(40))
    assert caught.value.code == "STATE_FULL"
    assert caught.value.got == "384 bytes, in 3 filters of 128 bytes and others"


def test_states_are_their_own_payloads() -> None:
    assert SMALL.inputs == ("v",)
    states = states_of(SMALL, [], [7, 8], np.arange(50))
    assert SMALL.revive(SMALL.payload(states)) == states
    assert SMALL.revive(SMALL.payload([states[0][1:]])) == [states[0][1:]]


@pytest.mark.parametrize(
    ("payload", "why"),
    [
        (b"1234567", "length"),
        (bytes(136), "length"),
        (bytes(128), "none of its bits"),
        (np.array([2, 1], "<i8").tobytes(), "ascend"),
        (np.array([1, 1], "<i8").tobytes(), "ascend"),
    ],
)
def test_bytes_that_are_no_filter_are_refused(payload: bytes, why: str) -> None:
    good = np.array([-5, 3], "<i8").tobytes()
    with pytest.raises(SketchFormatError) as caught:
        SMALL.revive(pa.array([good, payload], pa.binary()))
    assert caught.value.code == "SKETCH_CORRUPT"
    assert why in caught.value.what
    assert caught.value.got == "1 of 2 payloads, the first is number 1"


def test_a_merged_filter_contains_the_values_of_both() -> None:
    parts = states_of(SMALL, np.arange(100), np.arange(100, 200))
    (merged,) = SMALL.merge(Groups(np.zeros(2, np.int64), 1), parts)
    assert merged.equals(states_of(SMALL, np.arange(200))[0])
    values, _ = items(pa.array(np.arange(200)))
    assert SMALL.contains([merged], values).all()


def test_a_merged_filter_has_the_stated_rate() -> None:
    one = measured(10_000, 0.01, requested=100_000)
    assert one == measured(10_000, 0.01, requested=100_000, parts=7)


def mutated(blobs: list[bytes], count: int, seed: int) -> list[bytes]:
    """Cut short or long, up to eight bytes changed, or bytes of no meaning behind a true start."""
    rng, found = np.random.default_rng(seed), []
    for number in range(count):
        blob = bytearray(blobs[rng.integers(len(blobs))])
        if number % 3 == 0:
            blob = (blob + rng.bytes(9))[: rng.integers(len(blob) + 9)]
        elif number % 3 == 1:
            for position in rng.integers(0, max(len(blob), 1), rng.integers(1, 9))[: len(blob)]:
                blob[position] = rng.integers(256)
        else:
            blob = blob[: int(rng.integers(0, 40))] + rng.bytes(int(rng.integers(0, 200)))
        found.append(bytes(blob))
    return found


def survive(count: int) -> None:
    states = states_of(SMALL, [], [7], np.arange(5), np.arange(14), np.arange(50), np.arange(900))
    payloads = SMALL.payload(states).to_pylist()
    revived = 0
    for blob in mutated(payloads, count // 20, 1):
        try:
            found = SMALL.revive(pa.array([blob], pa.binary()))
        except SketchFormatError:
            continue
        revived += 1
        assert SMALL.payload(found).to_pylist() == [blob]
        SMALL.estimate(found)
        SMALL.merge(Groups(np.zeros(2, np.int64), 1), [pa.concat_arrays([found[0], found[0]])])
    assert 0 < revived < count // 20
    # In their frames none of them is taken for a filter, unless nothing of it was changed.
    framed = Framed(SMALL).estimate(states).to_pylist()
    blobs = [item for item in mutated(framed, count, 2) if item not in framed]
    dtype = SMALL.format, SMALL.parameters
    assert not are_valid(pa.array(blobs, pa.binary()), *dtype).any()


def test_damaged_bytes_are_never_read_as_a_filter() -> None:
    survive(5_000)


@pytest.mark.exhaustive
def test_a_hundred_thousand_damaged_bytes_are_never_read_as_a_filter() -> None:
    survive(100_000)
