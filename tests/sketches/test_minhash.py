"""MinHash as users meet it: stored by windows, compared, and exchanged with datasketch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from datasketch import HyperLogLogPlusPlus, LeanMinHash, MinHash
from pyspark.sql import SparkSession

from streamops import sketches, windows
from streamops.kernel.errors import SchemaError, SketchFormatError, SpecError
from streamops.sketches import StoredMinHash, datasketch_hash, minhash_sketch_agg
from streamops.sketches.core import minhash as core
from streamops.sketches.core.minhash import SCHEMES
from streamops.sketches.core.sketch import are_valid, pack_frames
from streamops.testing import at, replay
from tests.sketches.core.test_hll_mutations import mutated

SCHEMA = pa.schema([("k", pa.string()), ("ts", pa.timestamp("us", "UTC")), ("v", pa.int64())])


def theirs(values: Any, scheme: Any = "affine32", count: int = 128) -> MinHash:
    hashfunc = datasketch_hash(minhash_sketch_agg("v", scheme=scheme))
    sketch = MinHash(count, seed=5, scheme=scheme, hashfunc=hashfunc)
    sketch.update_batch(values)
    return sketch


def lean(sketch: MinHash, order: str = "@") -> bytes:
    small = LeanMinHash(sketch)
    buffer = bytearray(small.bytesize(order))
    small.serialize(buffer, order)
    return bytes(buffer)


def test_windows_store_what_datasketch_would_say() -> None:
    rows = [
        {"k": key, "ts": at(1), "v": i} for key in "ab" for i in range(90) if key < "b" or i > 30
    ]
    agg = {"s": minhash_sketch_agg("v", seed=5)}
    (batch,) = replay(
        windows.tumbling("1 minute", time="ts", by="k", agg=agg, delay="0 seconds"),
        [rows],
        schema=SCHEMA,
        flush=True,
    )[-1:]
    a, b = (sketches.read(row["s"]) for row in sorted(batch.rows, key=lambda row: row["k"]))
    first, second = theirs(range(90)), theirs(range(31, 90))
    assert a.similarity(b) == b.similarity(a) == first.jaccard(second)
    assert abs(first.jaccard(second) - 59 / 90) < 3 * np.sqrt(0.25 / 128)
    assert a == StoredMinHash.from_datasketch(first)
    assert a.estimate()["estimate"] == round(first.count())
    assert a.merge(b) == a


@pytest.mark.parametrize("scheme", SCHEMES)
def test_objects_of_datasketch_round_trip(scheme: Any) -> None:
    first, second = theirs(range(100), scheme), theirs(range(50, 150), scheme)
    nothing = theirs([], scheme)
    for sketch in (first, second, nothing):
        ours = StoredMinHash.from_datasketch(sketch)
        assert ours.to_datasketch() == sketch
        for source in (
            LeanMinHash(sketch),
            lean(sketch),
            lean(sketch, "<"),
            bytearray(lean(sketch)),
        ):
            assert StoredMinHash.from_datasketch(source) == ours
    one, two, none = map(StoredMinHash.from_datasketch, (first, second, nothing))
    assert one.similarity(two) == first.jaccard(second)
    assert one.merge(two).to_datasketch() == MinHash.union(first, second)
    assert one.merge(none) == one
    assert (one.similarity(none), one.similarity(one)) == (0.0, 1.0)
    assert np.isnan(none.similarity(none))
    going_on = two.to_datasketch()
    going_on.update(7)
    second.update(7)
    assert going_on == second


def test_sketches_of_other_functions_are_not_compared() -> None:
    one = StoredMinHash.from_datasketch(theirs(range(9)))
    for other in (theirs(range(9), count=64), theirs(range(9), "affine64")):
        with pytest.raises(SketchFormatError) as caught:
            one.similarity(StoredMinHash.from_datasketch(other))
        assert caught.value.code == "SKETCH_PARAMETERS"


BLOB = lean(theirs(range(9), count=4))


@pytest.mark.parametrize(
    "source",
    [
        b"",
        BLOB[:12],
        BLOB[:13],
        BLOB[:-1],
        BLOB + b"\0",
        BLOB[:12] + b"\3" + BLOB[13:],
        b"\xff" * 8 + BLOB[8:],
        BLOB[:8] + bytes(4) + BLOB[12:],
        lean(theirs(range(9), "legacy", 4))[:-1],
        lean(theirs(range(9), count=4), ">"),
        7,
        HyperLogLogPlusPlus(12),
    ],
)
def test_an_invalid_minhash_is_refused(source: Any) -> None:
    with pytest.raises(SketchFormatError) as caught:
        StoredMinHash.from_datasketch(source)
    assert (caught.value.code, caught.value.what) == (
        "SKETCH_CORRUPT",
        "this is no MinHash of datasketch",
    )


def test_legacy_values_that_do_not_fit_are_refused() -> None:
    sketch = theirs(range(9), "legacy", 4)
    sketch.hashvalues[0] = 1 << 32
    with pytest.raises(SketchFormatError, match="no MinHash of datasketch"):
        StoredMinHash.from_datasketch(sketch)


@pytest.mark.parametrize(
    "wrong",
    [
        {"permutations": 1},
        {"permutations": 70_000},
        {"permutations": 8.0},
        {"seed": -1},
        {"seed": 2**32},
        {"seed": "1"},
        {"scheme": "affine"},
        {"scheme": None},
    ],
)
def test_invalid_parameters_of_functions_are_refused(wrong: Any) -> None:
    with pytest.raises(SpecError) as caught:
        minhash_sketch_agg("v", **wrong)
    arguments = {"permutations": 128, "seed": 1, "scheme": "affine32"} | wrong
    assert str(caught.value) == (
        "[PARAMETER_OUT_OF_RANGE] sketches.minhash_sketch_agg: MinHash has no functions "
        "with these parameters\n"
        f"  got:       {', '.join(f'{name}={value!r}' for name, value in arguments.items())}\n"
        "  expected:  permutations from 2 to 65,536, a seed from 0 to 2**32 - 1, and one of: "
        "affine32, affine64, legacy\n"
        "  fix:       use the defaults: minhash_sketch_agg(column)"
        "\n  see:       docs/errors.md#parameter_out_of_range"
    )
    (blob,) = pack_frames(core.MinHash.format, arguments, pa.array([b""])).to_pylist()
    with pytest.raises(SketchFormatError) as refused:
        sketches.read(blob)
    assert refused.value.code in ("SKETCH_PARAMETERS", "SKETCH_CORRUPT")


def test_a_type_without_a_hash_is_refused_and_the_repr_has_the_parameters() -> None:
    schema = pa.schema([("m", pa.map_(pa.string(), pa.int64()))])
    with pytest.raises(SchemaError) as caught:
        minhash_sketch_agg("m").bind(schema, time="ts")
    assert caught.value.code == "TYPE_UNSUPPORTED"
    assert repr(minhash_sketch_agg("v", permutations=64)) == (
        "minhash_sketch_agg('v', permutations=64, seed=1, scheme='affine32')"
    )


def test_columns_of_sketches_are_compared() -> None:
    for left, right, like, code in (
        (1, "b", minhash_sketch_agg("v"), "PARAMETER_TYPE"),
        ("a", None, minhash_sketch_agg("v"), "PARAMETER_TYPE"),
        ("a", "b", sketches.hll_sketch_agg("v"), "PARAMETER_TYPE"),
    ):
        with pytest.raises(SpecError) as caught:
            sketches.similarity(left, right, like=like)  # type: ignore[arg-type]
        assert caught.value.code == code


@pytest.mark.spark
def test_columns_are_compared_on_spark(spark: SparkSession) -> None:
    sets = [(range(90), range(31, 90)), (range(9), range(9, 20)), (range(0), range(0))]
    rows = [
        [StoredMinHash.from_datasketch(theirs(item)).to_bytes() for item in both] for both in sets
    ]
    frame = spark.createDataFrame([*rows, [None, rows[0][0]]], "`a.b` binary, c binary")
    alike = sketches.similarity("a.b", "c", like=minhash_sketch_agg("v", seed=5))
    arguments = frame.coalesce(1).select(alike.alias("alike")).toArrow().column("alike").to_pylist()
    first, second = (theirs(item) for item in sets[0])
    assert arguments[:2] == [first.jaccard(second), 0.0]
    assert np.isnan(arguments[2])
    assert arguments[3] is None


def refused(count: int) -> None:
    """Damaged bytes in their frame: none of them is valid, unless nothing was damaged."""
    several = [StoredMinHash.from_datasketch(theirs(range(n), count=16)) for n in (0, 1, 50)]
    whole = [item.to_bytes() for item in several]
    blobs = list(mutated(whole, count, 5))
    found = are_valid(pa.array(blobs, pa.binary()), core.MinHash.format, several[0].parameters)
    assert found.tolist() == [blob in whole for blob in blobs]


def test_none_of_a_thousand_damaged_payloads_is_valid() -> None:
    refused(1_000)


@pytest.mark.exhaustive
def test_none_of_a_hundred_thousand_damaged_payloads_is_valid() -> None:
    refused(100_000)
