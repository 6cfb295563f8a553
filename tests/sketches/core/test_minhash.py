"""MinHash, against datasketch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from datasketch import MinHash as Theirs

from streamops.kernel.errors import SketchFormatError
from streamops.kernel.groups import Groups
from streamops.kernel.hashing import xxhash64
from streamops.sketches.core.items import murmur3
from streamops.sketches.core.minhash import SCHEMES, MinHash, permutations

LONGS = np.random.default_rng(8).integers(-(2**63), 2**63 - 1, 2000)


def theirs(values: Any, count: int, seed: int, scheme: Any) -> Any:
    bits = 64 if scheme == "affine64" else 32

    def hashfunc(item: int) -> int:
        return int(murmur3(np.array([item]))[0][0]) & ((1 << bits) - 1)

    sketch = Theirs(count, seed=seed, scheme=scheme, hashfunc=hashfunc)
    sketch.update_batch(xxhash64([pa.array(values, pa.int64())]).tolist())
    return sketch


def ours(sketch: MinHash, values: Any, ids: Any, count: int) -> list[pa.Array]:
    return sketch.update(Groups(np.asarray(ids, np.int64), count), pa.table({"v": values}))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_functions_are_those_of_datasketch(scheme: Any) -> None:
    for seed in (0, 1, 2**32 - 1):
        known = Theirs(16, seed=seed, scheme=scheme).permutations
        assert np.array(permutations(16, seed, scheme)).T.tolist() == np.array(known).tolist()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_least_values_are_those_of_datasketch(scheme: Any) -> None:
    sketch = MinHash("v", 32, 7, scheme)
    ids = np.arange(2000) % 3 * 2
    states = ours(sketch, pa.array(np.append(LONGS, LONGS[:9])), np.append(ids, ids[:9]), 6)
    least = sketch.least(states[0])
    for row, group in enumerate((0, 2, 4)):
        known = theirs(LONGS[ids == group], 32, 7, scheme)
        assert least[row].tolist() == known.hashvalues.tolist()
        count = sketch.estimate(states)[group].as_py()
        assert count["estimate"] == round(known.count())
        assert count["relative_error"] == 1 / np.sqrt(32)
    assert sketch.estimate(states)[1].as_py()["estimate"] == 0
    assert [len(entry) for entry in states[0].to_pylist()] == [32 * SCHEMES[scheme], 0] * 3
    lower, upper = sketch.bounds(states)
    assert lower[0].as_py() < 667 < upper[0].as_py()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_merged_parts_are_the_whole(scheme: Any) -> None:
    sketch = MinHash("v", 8, 1, scheme)
    part = np.random.default_rng(1).integers(0, 5, 2000)
    ids = np.arange(2000) % 2
    parts = [ours(sketch, pa.array(LONGS[part == i]), ids[part == i], 4)[0] for i in range(5)]
    groups = Groups(np.tile([0, 1, 3, 2], 5), 4)
    merged = sketch.merge(groups, [pa.concat_arrays(parts)])
    assert merged[0].to_pylist() == ours(sketch, pa.array(LONGS), ids, 4)[0].to_pylist()


def test_nulls_are_ignored() -> None:
    sketch = MinHash("v", 4)
    assert (sketch.inputs, sketch.parameters) == (
        ("v",),
        {"permutations": 4, "scheme": "affine32", "seed": 1},
    )
    some = ours(sketch, pa.array([1, None, 2, None]), [0, 0, 0, 1], 2)
    assert some[0].to_pylist() == ours(sketch, pa.array([2, 1]), [0, 0], 2)[0].to_pylist()
    nothing = sketch.update(
        Groups(np.empty(0, np.int64), 2), pa.table({"v": pa.array([], "int64")})
    )
    assert nothing[0].to_pylist() == [b"", b""]


def test_payloads_round_trip_and_others_are_refused() -> None:
    sketch = MinHash("v", 2)
    states = ours(sketch, pa.array([1, 2, 3]), [0, 2, 2], 3)
    payloads = sketch.payload(states)
    assert sketch.revive(payloads)[0].equals(states[0])
    for wrong, why in (
        (b"1234567", "it does not have the expected length"),
        (b"123456789", "it does not have the expected length"),
        (b"\xff" * 8, "it has no item, and is not empty"),
    ):
        with pytest.raises(SketchFormatError, match=why) as caught:
            sketch.revive(pa.array([*payloads.to_pylist(), wrong]))
        assert caught.value.code == "SKETCH_CORRUPT"
    assert str(caught.value) == (
        "[SKETCH_CORRUPT] sketches.minhash: this sketch is damaged: it has no item, and is not empty\n"
        "  got:       1 of 4 payloads, the first is number 3\n"
        "  expected:  a MinHash of 2 permutations, affine32: empty, or 8 bytes\n"
        "  fix:       make it again from its rows, or merge the others without it"
        "\n  see:       docs/errors.md#sketch_corrupt"
    )


def test_similarities_are_computed_row_by_row() -> None:
    sketch = MinHash("v", 64)
    left = ours(sketch, pa.array(LONGS[:300]), np.arange(300) // 100, 5)[0]
    right = ours(sketch, pa.array(LONGS[:300]), np.arange(300) // 150 * 2, 5)[0]
    found = sketch.similarities(left, right)
    known = [theirs(LONGS[part], 64, 1, "affine32") for part in (slice(100), slice(150))]
    last = [theirs(LONGS[part], 64, 1, "affine32") for part in (slice(200, 300), slice(150, 300))]
    assert found[:3].tolist() == [known[0].jaccard(known[1]), 0.0, last[0].jaccard(last[1])]
    assert np.isnan(found[3:]).all()
