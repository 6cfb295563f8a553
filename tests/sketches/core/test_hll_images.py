"""Images of HyperLogLog: written for, and read from, Apache DataSketches and datasketch."""

from __future__ import annotations

from typing import Any

import datasketches
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from datasketch import HyperLogLogPlusPlus

from streamops.kernel.errors import SketchFormatError
from streamops.kernel.groups import Groups
from streamops.kernel.hashing import xxhash64
from streamops.sketches.core.hyperloglog import (
    HyperLogLog,
    from_images,
    from_registers,
    from_serialized,
    highest,
    most_coupons,
    to_images,
)

LONGS = np.random.default_rng(11).integers(-(2**63), 2**63 - 1, 300_000)
HASHED = xxhash64([pa.array(LONGS)]).tolist()
TYPES = [datasketches.HLL_4, datasketches.HLL_6, datasketches.HLL_8]
States = list[pa.Array]


def sizes(p: int) -> list[int]:
    few = most_coupons(p)
    several = {0, 1, 6, 7, 8, 23, 24, 25, few - 1, few, few + 1, 3 * few, 1 << p, 40 << p}
    return sorted(size for size in several if size <= len(LONGS))


def ours(p: int, *cuts: int) -> States:
    """The first so many items, for each of the numbers."""
    ids = np.repeat(np.arange(len(cuts)), cuts)
    values = np.concatenate([LONGS[:cut] for cut in (*cuts, 0)])
    return HyperLogLog("v", p).update(Groups(ids, len(cuts)), pa.table({"v": values}))


def theirs(p: int, size: int, dtype: Any = datasketches.HLL_8) -> Any:
    sketch = datasketches.hll_sketch(p, dtype)
    for item in HASHED[:size]:
        sketch.update(item)
    return sketch


def bits(states: States) -> list[list[Any]]:
    return [[column[row].as_py() for column in states] for row in range(len(states[0]))]


def binary(*blobs: bytes) -> pa.Array:
    return pa.array(blobs, pa.binary())


@pytest.mark.parametrize("p", [4, 5, 7, 8, 9, 12])
def test_sketches_of_apache_are_identical_to_the_bit(p: int) -> None:
    cuts = sizes(p)
    images = []
    for size in cuts:
        for dtype in TYPES:
            sketch = theirs(p, size, dtype)
            images += [sketch.serialize_compact(), sketch.serialize_updatable()]
    expected = [state for state in bits(ours(p, *cuts)) for _ in range(6)]
    assert bits(from_images(binary(*images), p)) == expected
    assert bits(from_images(binary(*images[::-1])[1:7], p)) == expected[::-1][1:7]
    assert bits(from_images(binary(), p)) == []


@pytest.mark.parametrize("p", [4, 7, 8, 12, 14])
def test_apache_reads_the_images(p: int) -> None:
    cuts = sizes(p)
    states = ours(p, *cuts)
    images = to_images(states, p)
    assert bits(from_images(images, p)) == bits(states)
    for size, image in zip(cuts, images.to_pylist(), strict=True):
        found, direct = datasketches.hll_sketch.deserialize(image), theirs(p, size)
        assert (found.lg_config_k, found.tgt_type) == (p, datasketches.HLL_8)
        union = datasketches.hll_union(p)  # after it, no order of arrival is known there, either
        union.update(direct)
        union.update(direct)
        assert found.get_estimate() == pytest.approx(union.get_estimate(), rel=1e-12)
        assert found.is_empty() == (size == 0)
        if size <= most_coupons(p):  # the same bytes, but for the order of the coupons
            assert sorted(image) == sorted(direct.serialize_compact())
            assert image[:12] == direct.serialize_compact()[:12] or size < 8
        union = datasketches.hll_union(p)  # as it goes on with them
        union.update(found)
        union.update(theirs(p, size // 2 + 3))
        whole = union.get_result(datasketches.HLL_8).serialize_compact()
        assert bits(from_images(binary(whole), p)) == bits(ours(p, max(size, size // 2 + 3)))


def test_values_that_do_not_fit_into_four_bits() -> None:
    # Registers up to the highest, above a least value of 0, 1 and 20.
    for least in (0, 1, 20):
        row = (np.arange(16) % (highest(4) - least) * 7 % (highest(4) - least) + least).astype("u1")
        row[0], row[1] = least, highest(4)
        states = from_registers(row[None])
        sketch = datasketches.hll_sketch.deserialize(to_images(states, 4)[0].as_py())
        union = datasketches.hll_union(4)
        union.update(sketch)
        for dtype in TYPES:
            result = union.get_result(dtype)
            for image in (result.serialize_compact(), result.serialize_updatable()):
                assert bits(from_images(binary(image), 4)) == bits(states)


def test_a_register_above_the_maximum_is_capped() -> None:
    image = bytearray(to_images(from_registers(np.full((1, 16), 9, np.uint8)), 4)[0].as_py())
    image[40:42] = [61, 63]
    (state,) = bits(from_images(binary(bytes(image)), 4))
    assert state == [None, bytes([61, 61, *[9] * 14])]


def test_registers_that_are_all_empty_are_an_empty_sketch() -> None:
    image = bytearray(to_images(from_registers(np.ones((1, 16), np.uint8)), 4)[0].as_py())
    image[40:] = bytes(16)
    assert bits(from_images(binary(bytes(image)), 4)) == [[[], None]]
    assert bits(from_registers(np.zeros((2, 16), np.uint8))) == [[[], None]] * 2


def of_4_bits(registers: Any) -> Any:
    """Apache's sketch with these registers; from 15 above the least on, they are pairs."""
    states = from_registers(registers.astype(np.uint8)[None])
    union = datasketches.hll_union(8)
    union.update(datasketches.hll_sketch.deserialize(to_images(states, 8)[0].as_py()))
    return union.get_result(datasketches.HLL_4)


def changed(image: bytes, **positions: int) -> bytes:
    """The image with other bytes: ``at_5=8`` writes 8 to byte 5."""
    result = bytearray(image)
    for position, value in positions.items():
        result[int(position[3:])] = value
    return bytes(result)


LIST = theirs(8, 3).serialize_compact()
TABLE = theirs(8, 3).serialize_updatable()
SET = theirs(8, 10).serialize_compact()
HASHES = theirs(8, 10).serialize_updatable()
FOUR_BITS = of_4_bits(np.append(np.full(250, 3), [18, 20, 30, 40, 17, 5]))
FOUR, FOUR_OPEN = FOUR_BITS.serialize_compact(), FOUR_BITS.serialize_updatable()
SIX = theirs(8, 500, datasketches.HLL_6).serialize_compact()
EIGHT = theirs(8, 500).serialize_compact()
POSITION = int(np.argmax(np.frombuffer(FOUR, np.uint8)[40:168] & 15 < 15))
CORRUPT = {
    "it is too short": [b"", LIST[:7], SET[:11], changed(SET, at_3=8)[:10], FOUR[:39]],
    "its preamble is another": [
        changed(LIST, at_0=3),
        changed(LIST, at_1=2),
        changed(LIST, at_2=8),
        changed(SET, at_7=8),
        changed(EIGHT, at_7=3 | 8),
        changed(EIGHT, at_0=0, at_7=3),
    ],
    "its type is unknown": [changed(EIGHT, at_7=14)],
    "it has too many coupons": [
        changed(LIST, at_6=8),
        changed(LIST, at_5=12),
        changed(SET, at_8=25),
        changed(SET, at_11=255),
    ],
    "it does not have the expected length": [
        LIST + b"\0",
        LIST[:-1],
        changed(LIST, at_6=2),
        TABLE[:-4],
        SET[:-1],
        changed(HASHES, at_4=6),
        changed(HASHES, at_4=200),
        FOUR[:-1],
        changed(FOUR_OPEN, at_4=99),
        SIX[:-1],
        SIX + b"\0",
        EIGHT[:-1],
        EIGHT + b"\0",
    ],
    "it does not contain the stated number of values": [
        LIST[:-4] + bytes(4),
        LIST[:-4] + LIST[-8:-4],
        changed(TABLE, at_6=2),
        changed(HASHES, at_8=9),
        changed(FOUR_OPEN, at_36=FOUR[36] + 1),
        changed(FOUR, **{f"at_{40 + POSITION}": FOUR[40 + POSITION] | 15}),
        FOUR[:-4] + bytes(4),
        FOUR[:-4] + FOUR[-8:-4],
        FOUR[:-1] + b"\4",
    ],
    "a coupon has no value": [LIST[:-1] + b"\0", SET[:-1] + b"\1"],
    "a register is out of range": [
        changed(EIGHT, at_50=64),
        changed(EIGHT, at_50=255),
        changed(FOUR, at_6=64),
    ],
}


@pytest.mark.parametrize(
    ("why", "image"), [(why, blob) for why, blobs in CORRUPT.items() for blob in blobs]
)
def test_bytes_that_are_no_image_are_refused(why: str, image: bytes) -> None:
    good = [LIST, TABLE, SET, HASHES, FOUR, FOUR_OPEN, SIX, EIGHT]
    assert len(from_images(binary(*good), 8)[0]) == 8
    with pytest.raises(SketchFormatError) as caught:
        from_images(binary(*good, image, *good), 8)
    assert (caught.value.code, caught.value.what) == (
        "SKETCH_CORRUPT",
        f"this sketch is damaged: {why}",
    )


def test_an_image_of_another_precision_is_refused() -> None:
    with pytest.raises(SketchFormatError) as caught:
        from_images(binary(LIST, theirs(9, 3).serialize_compact()), 8)
    assert str(caught.value) == (
        "[SKETCH_PARAMETERS] sketches.hll: this sketch has another precision\n"
        "  got:       p=9\n"
        "  expected:  p=8\n"
        "  fix:       use p=9, or make the sketch again"
        "\n  see:       docs/errors.md#sketch_parameters"
    )


def to_serialized(table: npt.NDArray[np.uint8], p: int) -> pa.Array:
    """Registers as datasketch's ``serialize`` writes them."""
    return pa.array([bytes([p]) + row.tobytes() for row in table], pa.binary())


@pytest.mark.parametrize("p", [4, 12])
def test_bytes_of_datasketch_round_trip(p: int) -> None:
    cuts = sizes(p)[:9]
    states = ours(p, *cuts)
    registers = HyperLogLog("v", p).registers(states)
    blobs = to_serialized(registers, p)
    for row, blob in zip(registers, blobs.to_pylist(), strict=True):
        found = HyperLogLogPlusPlus.deserialize(blob)
        assert (found.p, found.reg.tolist()) == (p, row.tolist())
        buffer = bytearray(found.bytesize())
        found.serialize(buffer)
        assert bytes(buffer) == blob
    again = from_serialized(blobs, p)
    assert bits(again) == bits(from_registers(registers))
    # They have no coupons any more; with the sketch that they came from they are dense.
    sketch = HyperLogLog("v", p)
    both = [pa.concat_arrays(pair) for pair in zip(states, again, strict=True)]
    united = sketch.merge(Groups(np.tile(np.arange(len(cuts)), 2), len(cuts)), both)
    assert bits(united) == bits(again)


def test_invalid_bytes_of_datasketch_are_refused() -> None:
    (blob,) = to_serialized(np.ones((1, 16), np.uint8), 4).to_pylist()
    for wrong, why in (
        (b"", "it does not have the expected length"),
        (blob[:-1], "it does not have the expected length"),
        (blob + b"\0", "it does not have the expected length"),
        (b"\5" + blob[1:], "a register is out of range"),
        (blob[:-1] + b"\x3e", "a register is out of range"),
        (blob[:-1] + b"\xff", "a register is out of range"),
    ):
        with pytest.raises(SketchFormatError, match=why):
            from_serialized(binary(blob, wrong), 4)
