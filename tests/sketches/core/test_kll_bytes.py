"""Bytes of sketches of quantiles: Apache reads them and writes them, and nothing else is read."""

from __future__ import annotations

import struct
from typing import Any

import datasketches
import numpy as np
import pyarrow as pa
import pytest

from streamops.kernel.errors import SketchFormatError, located
from streamops.kernel.groups import Groups
from streamops.sketches.core.kll import QuantileSketch

SHARES = (0.1, 0.25, 0.5, 0.75, 0.9)  # the first and the last value we know better
SKETCH = QuantileSketch("ms", 20, SHARES)
SIZES = (0, 1, 2, 19, 20, 21, 57, 300, 5000)
NAN = float("nan")


def normal(size: int) -> Any:
    return np.random.default_rng(size).normal(size=size)


def states_of(*columns: Any) -> list[pa.Array]:
    """One state per column."""
    ids = np.repeat(np.arange(len(columns)), [len(item) for item in columns])
    rows = pa.table({"ms": np.concatenate([*columns, np.empty(0)])})
    return SKETCH.update(Groups(ids, len(columns)), rows)


def payloads_of(*columns: Any) -> list[bytes]:
    given: list[bytes] = SKETCH.payload(states_of(*columns)).to_pylist()
    return given


def adopted(images: Any) -> list[pa.Array]:
    with located("doc"):
        return SKETCH.from_images(images)


def apache(column: Any) -> Any:
    theirs = datasketches.kll_doubles_sketch(20)
    theirs.update(np.asarray(column, np.float64))
    return theirs


GOOD = payloads_of(*map(normal, SIZES))


def refused(payload: bytes, *, foreign: bool = False) -> str:
    """The reason why it is refused, as the second of three payloads."""
    array = pa.array([GOOD[1], payload, GOOD[5]], pa.binary())
    with pytest.raises(SketchFormatError) as caught:
        adopted(array) if foreign else SKETCH.revive(array)
    error = caught.value
    assert error.code == "SKETCH_CORRUPT"
    number, given = str(error.got).split(": ", 1)
    assert number == "sketch 1"
    return given


def test_apache_reads_and_writes_the_same_bytes() -> None:
    for size, payload in zip(SIZES, GOOD, strict=True):
        theirs = datasketches.kll_doubles_sketch.deserialize(payload)
        assert (theirs.n, theirs.k) == (size, 20)
        assert theirs.serialize() == payload
        if size:
            ours = SKETCH.estimate(SKETCH.revive(pa.array([payload])))[0].as_py()
            assert ours["estimate"] == [theirs.get_quantile(share, True) for share in SHARES]
            assert theirs.get_min_value() == normal(size).min()
            assert theirs.get_max_value() == normal(size).max()


def test_images_of_apache_are_read() -> None:
    columns = [normal(size) for size in SIZES]
    states = adopted(pa.array([apache(item).serialize() for item in columns]))
    for size, column, ours in zip(SIZES, columns, SKETCH.estimate(states).to_pylist(), strict=True):
        theirs = apache(column)
        assert ours["count"] == size
        if size:
            # Coins of theirs fall anew each time; while all values are kept, there are none.
            exact = [theirs.get_quantile(share, True) for share in SHARES]
            assert size > 20 or ours["estimate"] == exact
    again = SKETCH.payload(states)
    assert SKETCH.payload(SKETCH.revive(again)) == again


def test_a_read_image_has_the_quantiles_of_apache() -> None:
    theirs = apache(normal(5000))
    states = adopted(pa.array([theirs.serialize()]))
    (ours,) = SKETCH.estimate(states).to_pylist()
    assert ours["estimate"] == [theirs.get_quantile(share, True) for share in SHARES]
    points = [-1.0, 0.0, 0.5]
    (ranks,) = SKETCH.ranks(states, points).to_pylist()
    assert ranks == [theirs.get_rank(point, True) for point in points]


def test_sketches_of_both_are_merged_by_either() -> None:
    left, right = normal(3000), normal(4000)
    ours, theirs = payloads_of(left)[0], apache(right)
    both = np.sort(np.concatenate([left, right]))
    theirs.merge(datasketches.kll_doubles_sketch.deserialize(ours))
    here = SKETCH.revive(pa.array([ours]))
    there = adopted(pa.array([apache(right).serialize()]))
    pairs = [pa.concat_arrays(pair) for pair in zip(here, there, strict=True)]
    found = SKETCH.estimate(SKETCH.merge(Groups(np.zeros(2, np.int64), 1), pairs))[0].as_py()
    assert theirs.n == found["count"] == 7000
    for share, value in zip(SHARES, found["estimate"], strict=True):
        for item in (value, theirs.get_quantile(share, True)):
            assert abs(np.searchsorted(both, item) / 7000 - share) < found["rank_error"]


def test_both_zeros_of_apache_are_read_as_one() -> None:
    theirs = apache([-0.0, 0.0])
    states = adopted(pa.array([theirs.serialize()]))
    assert SKETCH.payload(states).to_pylist() == payloads_of([0.0, 0.0])


def test_bytes_are_read_from_any_binary_array() -> None:
    whole = pa.array(GOOD, pa.binary())
    expected = SKETCH.revive(whole)
    for array in (whole.cast(pa.large_binary()), pa.array([b"xyz", *GOOD, b""])[1:-1]):
        assert SKETCH.revive(array) == expected
    for number, payload in enumerate(GOOD):
        alone = SKETCH.revive(pa.array([payload]))
        assert alone == [state[number : number + 1] for state in expected]
    assert SKETCH.revive(pa.array([], pa.binary())) == [state[:0] for state in expected]
    assert SKETCH.payload([state[:0] for state in expected]) == pa.array([], pa.binary())


def test_states_are_written_from_any_slice() -> None:
    states = states_of(*map(normal, SIZES))
    for start in range(len(SIZES)):
        sliced = [state[start : start + 2] for state in states]
        assert SKETCH.payload(sliced).to_pylist() == GOOD[start : start + 2]


def test_nan_is_written_and_read() -> None:
    payloads = payloads_of([NAN], [1.0, NAN], [NAN] * 30)
    assert SKETCH.payload(SKETCH.revive(pa.array(payloads))).to_pylist() == payloads


def changed(payload: bytes, at: int, form: str, value: Any) -> bytes:
    """With other bytes in one place."""
    packed = struct.pack(f"<{form}", value)
    return payload[:at] + packed + payload[at + len(packed) :]


FEW, MANY = GOOD[2], GOOD[6]  # [5..., -0.5...] of one level; 57 values: of several
LEVELS = MANY[18]
NUMBERS = 20 + 4 * LEVELS
LOWEST = "bytes 0 to 3: not a kll_doubles sketch in compact form"


@pytest.mark.parametrize(
    ("payload", "given"),
    [
        (b"", "shorter than 8 bytes, or not a multiple of 4 bytes"),
        (MANY[:-1], "shorter than 8 bytes, or not a multiple of 4 bytes"),
        (changed(MANY, 0, "B", 2), LOWEST),
        (changed(MANY, 1, "B", 3), LOWEST),
        (changed(MANY, 2, "B", 14), LOWEST),
        (changed(MANY, 3, "B", 0), LOWEST),
        (changed(MANY, 4, "H", 21), "bytes 4 to 7: another k than 20, or another M"),
        (changed(MANY, 6, "B", 9), "bytes 4 to 7: another k than 20, or another M"),
        (changed(MANY, 7, "B", 1), "bytes 4 to 7: another k than 20, or another M"),
        (GOOD[0] + bytes(4), "an empty sketch with a length other than 8 bytes"),
        (GOOD[1] + bytes(4), "a sketch of one value with a length other than 16 bytes"),
        (GOOD[1][:8], "a sketch of one value with a length other than 16 bytes"),
        (MANY[:44], "a sketch of several values with less than 48 bytes"),
        (changed(MANY, 16, "H", 19), "byte 16: merged with a smaller k"),
        (changed(MANY, 8, "Q", 1), "byte 8: not from 2 to 281474976710656 values"),
        (changed(MANY, 8, "Q", 2**48), "byte 8: not from 2 to 281474976710656 values"),
        (changed(MANY, 18, "B", 0), "byte 18: not a number of levels"),
        (changed(MANY, 18, "B", 49), "byte 18: not a number of levels"),
        (changed(MANY, 19, "B", 1), "byte 18: not a number of levels"),
        (changed(MANY, 18, "B", LEVELS + 1), "a length that no number of items has"),
        (changed(FEW, 18, "B", 48), "a length that no number of items has"),
        (MANY[:-4], "a length that no number of items has"),
        (changed(MANY, 24, "I", 2**31), "levels that overlap, or exceed their capacity"),
        (changed(MANY, 20, "I", 0), "levels of another length than the items"),
        (MANY + bytes(8), "levels of another length than the items"),
        (
            FEW[:18] + b"\x02\x00" + struct.pack("<II", 31, 33) + FEW[24:],
            "a highest level without an item",
        ),
        (
            changed(MANY, 8, "Q", 58),
            "levels that represent another number of values than byte 8",
        ),
        (changed(FEW, 24, "d", -0.0), "-0.0, or a NaN with other bits"),
        (changed(FEW, 48, "Q", 0x7FF8000000000001), "-0.0, or a NaN with other bits"),
        (changed(GOOD[1], 8, "d", -0.0), "-0.0, or a NaN with other bits"),
        (FEW[:40] + FEW[48:] + FEW[40:48], "a level that is not sorted"),
        (
            changed(MANY, NUMBERS, "d", 0.5),
            "an item below the least value, or above the greatest",
        ),
        (
            changed(MANY, NUMBERS + 8, "d", 0.5),
            "an item below the least value, or above the greatest",
        ),
        (
            changed(MANY, NUMBERS, "d", NAN),
            "an item below the least value, or above the greatest",
        ),
        (changed(FEW, 24, "d", -9.0), "a least or greatest value that no item has"),
        (changed(FEW, 32, "d", 9.0), "a least or greatest value that no item has"),
        (changed(FEW, 32, "d", NAN), "a least or greatest value that no item has"),
    ],
)
def test_invalid_parameters_are_refused_by_name(payload: bytes, given: str) -> None:
    assert refused(payload) == given


def test_an_invalid_image_of_apache_is_refused() -> None:
    assert refused(payloads_of([1.0, NAN])[0], foreign=True) == "a value that is NaN"
    assert refused(payloads_of([NAN])[0], foreign=True) == "a value that is NaN"
    upside_down = changed(FEW[:40] + FEW[48:] + FEW[40:48], 3, "B", 0)
    assert adopted(pa.array([upside_down])) == SKETCH.revive(pa.array([FEW]))
    assert refused(upside_down) == LOWEST


def test_a_null_is_no_sketch() -> None:
    with pytest.raises(SketchFormatError, match="sketch 1: null"):
        SKETCH.revive(pa.array([GOOD[0], None]))


def test_the_error_has_a_fix() -> None:
    with pytest.raises(SketchFormatError) as caught:
        SKETCH.revive(pa.array([b""]))
    assert str(caught.value) == (
        "[SKETCH_CORRUPT] sketches.kll: these bytes are no valid sketch of quantiles\n"
        "  got:       sketch 0: shorter than 8 bytes, or not a multiple of 4 bytes\n"
        "  expected:  a compact kll_doubles sketch of Apache DataSketches, with k=20\n"
        "  fix:       make it again from its rows, or merge the others without it"
        "\n  see:       docs/errors.md#sketch_corrupt"
    )
    with pytest.raises(SketchFormatError) as caught:
        adopted(pa.array([b""]))
    assert caught.value.where == "doc"


def test_a_sketch_with_nan_is_not_exported() -> None:
    sound = states_of([1.0], [], [2.0, float("inf")])
    assert SKETCH.images(sound) == SKETCH.payload(sound)
    with pytest.raises(SketchFormatError) as caught:
        SKETCH.images(states_of([1.0], [2.0, NAN]))
    assert str(caught.value) == (
        "[SKETCH_UNSUPPORTED] sketches.kll: sketches of Apache DataSketches have no NaN\n"
        "  got:       sketch 1, whose greatest value is NaN\n"
        "  expected:  sketches of numbers\n"
        "  fix:       leave NaN out before the sketch is made: where(~isnan(column))"
        "\n  see:       docs/errors.md#sketch_unsupported"
    )


def mutated(rng: np.random.Generator) -> bytes:
    """A sound one with some bits turned, some bytes replaced, cut off, or nothing but noise."""
    payload = bytearray(GOOD[int(rng.integers(len(GOOD)))])
    match int(rng.integers(5)):
        case 0:
            return bytes(payload[: int(rng.integers(len(payload)))])
        case 1:
            return bytes(rng.bytes(int(rng.integers(0, 200))))
        case 2:  # in the head, where it does most
            for _ in range(int(rng.integers(1, 4))):
                payload[int(rng.integers(min(40, len(payload))))] = int(rng.integers(256))
        case 3:
            return bytes(payload) + bytes(rng.bytes(4 * int(rng.integers(1, 9))))
        case _:
            for _ in range(int(rng.integers(1, 9))):
                payload[int(rng.integers(len(payload)))] ^= 1 << int(rng.integers(8))
    return bytes(payload)


@pytest.mark.parametrize(
    "count", [pytest.param(2_000), pytest.param(100_000, marks=pytest.mark.exhaustive)]
)
def test_whatever_is_read_of_mutated_bytes_is_a_sketch(count: int) -> None:
    rng = np.random.default_rng(count)
    read = []
    for _ in range(count):
        payload = mutated(rng)
        try:
            SKETCH.revive(pa.array([payload], pa.binary()))
        except SketchFormatError:
            continue
        read.append(payload)
    # Other values, perhaps, which only a checksum can tell: but sketches in every respect.
    array = pa.array(read, pa.binary())
    states = SKETCH.revive(array)
    assert SKETCH.payload(states) == array
    alone = np.arange(len(read))
    twice = [pa.concat_arrays([state, state]) for state in states]
    for item in (states, SKETCH.merge(Groups(np.tile(alone, 2), len(read)), twice)):
        assert len(SKETCH.estimate(item)) == len(read)
    assert 0 < len(read) < count / 4
