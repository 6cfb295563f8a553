"""Theta sketches as bytes: Apache's, both ways, and nothing else."""

from __future__ import annotations

import random
import struct
from typing import Any

import datasketches
import numpy as np
import pyarrow as pa
import pytest

from streamops.kernel.errors import SketchFormatError, located
from streamops.sketches.core.samples import SEED_HASH, WHOLE, image, read
from streamops.sketches.core.theta import Theta
from tests.sketches.core.theta_cases import apache, items, sample, samples, states

THETA = Theta("user", 32)
SIZES = [0, 1, 2, 7, 8, 9, 31, 32, 33, 100, 20_000]
FEW, MANY = range(3), range(500)


def payload(users: range, k: int = 32) -> bytes:
    (blob,) = Theta("user", k).payload(states(users, k=k)).to_pylist()
    return bytes(blob)


def with_word(blob: bytes, position: int, word: int) -> bytes:
    """The bytes with another 64-bit word in one place."""
    return blob[: 8 * position] + struct.pack("<Q", word) + blob[8 * position + 8 :]


def with_byte(blob: bytes, position: int, byte: int) -> bytes:
    return blob[:position] + bytes([byte]) + blob[position + 1 :]


def binary(*blobs: bytes | None) -> pa.Array:
    return pa.array(blobs, pa.binary())


def test_the_seed_is_apaches() -> None:
    assert datasketches.update_theta_sketch(5).get_seed_hash() == SEED_HASH


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("form", ["plain", "unsorted", "packed"])
def test_apaches_bytes_are_read(size: int, form: str) -> None:
    sketch = apache(range(size), 5)
    if form == "unsorted":
        update = datasketches.update_theta_sketch(5)
        for item in items(range(size)):
            update.update(item)
        update.trim()
        sketch = update.compact(ordered=False)
    blob = sketch.serialize(compress=form == "packed")
    assert sample(read(binary(blob))) == sample(samples(range(size), k=32))


def test_all_forms_are_read_in_one_column() -> None:
    blobs, expected = [], []
    for size in SIZES:
        for compress in (True, False):
            blobs.append(apache(range(size), 5).serialize(compress=compress))
            expected.append(sample(samples(range(size), k=32)))
    found = read(binary(b"left out", *blobs)[1:])
    assert [sample(found, row) for row in range(len(blobs))] == expected


@pytest.mark.parametrize("size", SIZES)
def test_apache_reads_the_bytes(size: int) -> None:
    theirs = datasketches.compact_theta_sketch.deserialize(payload(range(size)))
    assert sorted(theirs) == sorted(apache(range(size), 5))
    assert theirs.theta64 == samples(range(size), k=32).theta[0]
    assert theirs.is_empty() == (size == 0)


def test_results_of_set_operations_are_written_and_read() -> None:
    left, right = apache(range(5_000), 5), apache(range(5_000, 9_000), 5)
    nothing = datasketches.theta_intersection()
    nothing.update(left)
    nothing.update(right)
    blob = nothing.get_result().serialize()
    found = read(binary(blob))
    assert (found.sizes.tolist(), found.theta[0] < WHOLE) == ([0], True)
    assert image(found).to_pylist() == [blob]


def test_an_empty_column_has_no_sketches() -> None:
    assert len(read(binary()).sizes) == 0
    assert len(image(read(binary()))) == 0


def test_an_empty_sketch_needs_no_seed() -> None:
    spark = bytes([1, 3, 3, 0, 0, 0x1E, 0, 0])
    assert sample(read(binary(spark))) == (frozenset(), WHOLE)


packed = apache(MANY, 5).serialize(compress=True)
exact = apache(FEW, 5).serialize(compress=True)
WRONG: dict[str, tuple[Any, str]] = {
    "null": (None, "it is null"),
    "nothing": (b"", "shorter than 8 bytes"),
    "cut": (payload(MANY)[:7], "shorter than 8 bytes"),
    "an hll sketch": (datasketches.hll_sketch(4).serialize_compact(), "not of the family"),
    "serial version 2": (with_byte(payload(MANY), 1, 2), "another serial version"),
    "big-endian": (with_byte(payload(MANY), 5, 0x1B), "flags of another type"),
    "not compact": (with_byte(payload(MANY), 5, 0x12), "flags of another type"),
    "another seed": (with_byte(payload(MANY), 6, 0), "hashed with another seed"),
    "not whole words": (payload(MANY) + b"\0", "not a multiple of 8 bytes"),
    "no preamble": (with_byte(payload(MANY), 0, 0), "preamble of no known length"),
    "a long preamble": (with_byte(payload(MANY), 0, 4), "preamble of no known length"),
    "empty and not": (with_byte(payload(MANY), 5, 0x1E), "empty, with a preamble for more"),
    "cut in the preamble": (payload(MANY)[:16], "cut within its preamble"),
    "a hash short": (payload(MANY)[:-8], "another length than its number of hashes has"),
    "a hash more": (payload(MANY) + bytes(8), "another length than its number of hashes has"),
    "a huge count": (with_word(payload(MANY), 1, 2**32 - 1), "another length than"),
    "theta 0": (with_word(payload(MANY), 2, 0), "theta is not above 0"),
    "theta too large": (with_word(payload(MANY), 2, 2**63), "theta is not above 0"),
    "theta below a hash": (with_word(payload(MANY), 2, 5), "not between 0 and theta"),
    "hash 0": (with_word(payload(MANY), 3, 0), "not between 0 and theta"),
    "hash above": (with_word(payload(FEW), 4, 2**63), "not between 0 and theta"),
    "a hash twice": (payload(FEW)[:-8] + payload(FEW)[-16:-8], "not sorted, or repeated"),
    "a hash twice, unsorted": (
        with_byte(payload(FEW)[:-8] + payload(FEW)[-16:-8], 5, 0x0A),
        "not sorted, or repeated",
    ),
    "unsorted": (with_word(payload(FEW), 4, 1), "not sorted, or repeated"),
    "packed, no preamble": (with_byte(packed, 0, 3), "preamble of no known length"),
    "packed, 0 bits": (with_byte(packed, 3, 0), "bits of a hash out of range"),
    "packed, 64 bits": (with_byte(packed, 3, 64), "bits of a hash out of range"),
    "packed, 0 bytes": (with_byte(packed, 4, 0), "bytes of a count out of range"),
    "packed, 5 bytes": (with_byte(packed, 4, 5), "bytes of a count out of range"),
    "packed, empty": (with_byte(packed, 5, 0x1E), "packed, and not sorted"),
    "packed, unsorted": (with_byte(packed, 5, 0x0A), "packed, and not sorted"),
    "packed, cut": (packed[:16], "cut within its preamble"),
    "packed, a byte short": (packed[:-1], "another length than"),
    "packed, theta 0": (with_word(packed, 1, 0), "theta is not above 0"),
    "packed, a huge count": (with_byte(exact, 8, 255), "another length than"),
    "packed, a hash twice": (exact[:9] + bytes(len(exact) - 9), "not between 0 and theta"),
}


@pytest.mark.parametrize("name", WRONG)
def test_an_invalid_sketch_is_refused(name: str) -> None:
    blob, reason = WRONG[name]
    with pytest.raises(SketchFormatError) as caught, located("sketches.theta"):
        read(binary(payload(MANY), blob, payload(FEW)))
    error = caught.value
    assert (error.code, error.where) == ("SKETCH_CORRUPT", "sketches.theta")
    assert error.got == "1 of 3 payloads, the first is number 1" or name.startswith("packed")
    assert reason in error.what


@pytest.mark.parametrize(
    ("blob", "reason"),
    [
        (payload(MANY, k=64), "more hashes than k=32"),
        (packed, "not in the form that streamops writes"),
        (with_byte(payload(MANY), 3, 5), "not in the form that streamops writes"),
        (with_byte(payload(MANY), 12, 1), "not in the form that streamops writes"),
        (with_word(payload(range(0)), 0, 0x1E0000030301), "not in the form that streamops"),
    ],
    ids=["more", "packed", "unused byte", "unused word", "no seed"],
)
def test_a_payload_has_one_form_only(blob: bytes, reason: str) -> None:
    read(binary(blob))
    with pytest.raises(SketchFormatError, match=reason):
        THETA.revive(binary(payload(FEW), blob))


def mutated(rng: random.Random, blobs: list[bytes]) -> bytes:
    """Bytes that were cut, lengthened, flipped or drawn at random."""
    blob = bytearray(rng.choice(blobs))
    match rng.randrange(4):
        case 0:
            return bytes(blob[: rng.randrange(len(blob))])
        case 1:
            return bytes(blob) + rng.randbytes(rng.randrange(1, 9))
        case 2:
            return rng.randbytes(rng.randrange(40))
    for _ in range(rng.randrange(1, 4)):
        blob[rng.randrange(min(len(blob), 40))] ^= rng.randrange(1, 256)
    return bytes(blob)


@pytest.mark.parametrize("count", [2_000, pytest.param(100_000, marks=pytest.mark.exhaustive)])
def test_mutated_bytes_are_refused_or_valid(count: int) -> None:
    rng = random.Random(7)
    blobs = [payload(range(size)) for size in SIZES]
    blobs += [apache(range(size), 5).serialize(compress=True) for size in SIZES]
    accepted = []
    for _ in range(count):
        blob = mutated(rng, blobs)
        try:
            read(binary(blob))
        except SketchFormatError:
            continue
        accepted.append(blob)
    assert 0 < len(accepted) < count // 3
    found = read(binary(*accepted))
    owners = found.owners
    assert ((found.hashes > 0) & (found.hashes < found.theta[owners])).all()
    assert (np.diff(found.hashes) > 0)[owners[1:] == owners[:-1]].all()
