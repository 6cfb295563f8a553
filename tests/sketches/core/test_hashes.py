"""The hash of all sketches, against Apache's own library."""

from __future__ import annotations

import datasketches
import numpy as np
import pyarrow as pa

from streamops.kernel.hashing import xxhash64
from streamops.sketches.core.items import items, murmur3

LONGS = np.concatenate(
    [[0, 1, -1, 2**63 - 1, -(2**63)], np.random.default_rng(1).integers(-(2**63), 2**63 - 1, 995)]
)


def test_murmur3_gives_the_hashes_of_a_theta_sketch() -> None:
    theta = datasketches.update_theta_sketch(12)
    for item in LONGS.tolist():
        theta.update(item)
    first, _ = murmur3(LONGS)
    assert sorted(theta) == sorted((first >> np.uint64(1)).tolist())


def test_both_halves_are_those_of_an_hll_sketch() -> None:
    few = LONGS[:7]
    hll = datasketches.hll_sketch(12)
    for item in few.tolist():
        hll.update(item)
    coupons = np.frombuffer(hll.serialize_compact()[8:], "<u4")
    first, second = murmur3(few)
    zeros = [64 - int(half).bit_length() for half in second]
    ours = [(int(half) & 0x3FFFFFF) | (n + 1) << 26 for half, n in zip(first, zeros, strict=True)]
    assert sorted(coupons.tolist()) == sorted(ours)


def test_items_are_hashes_of_spark_and_null_is_none() -> None:
    column = pa.chunked_array([["a", None], ["b"]])
    hashes, valid = items(column)
    assert valid.tolist() == [True, False, True]
    assert hashes[valid].tolist() == xxhash64([pa.array(["a", "b"])]).tolist()


def test_an_empty_input_has_no_items() -> None:
    hashes, valid = items(pa.array([], pa.int64()))
    assert (len(hashes), len(valid)) == (0, 0)
    assert [len(half) for half in murmur3(hashes)] == [0, 0]
