"""HyperLogLog as users meet it: an aggregate of windows, bytes, and a value."""

from __future__ import annotations

from typing import Any

import datasketches
import numpy as np
import pyarrow as pa
import pytest
from datasketch import HyperLogLog as ThirtyTwoBits
from datasketch import HyperLogLogPlusPlus

from streamops import sketches, windows
from streamops.aggregates import approx_count_distinct
from streamops.kernel.errors import SchemaError, SketchFormatError, SpecError
from streamops.kernel.groups import Groups
from streamops.kernel.hashing import xxhash64
from streamops.sketches import StoredHll, datasketch_hash, hll_sketch_agg, kll_sketch_agg
from streamops.sketches.core.hyperloglog import HyperLogLog
from streamops.sketches.core.sketch import Framed, are_valid, pack_frames
from streamops.testing import at, replay
from tests.sketches.core.test_hll_mutations import mutated

SCHEMA = pa.schema([("k", pa.string()), ("ts", pa.timestamp("us", "UTC")), ("v", pa.int64())])
LONGS = np.random.default_rng(21).integers(-(2**63), 2**63 - 1, 3000)


def stored(values: Any, p: int = 12) -> Any:
    """The value of a sketch of these."""
    column = pa.array(values)
    rows, sketch = pa.table({"v": column}), HyperLogLog("v", p)
    states = sketch.update(Groups(np.zeros(len(column), np.int64), 1), rows)
    return sketches.read(Framed(sketch).estimate(states)[0].as_py())


def test_windows_count_and_store() -> None:
    agg = {"n": approx_count_distinct("v", p=8), "s": hll_sketch_agg("v", p=8)}
    played = replay(
        windows.tumbling("1 minute", time="ts", by="k", agg=agg, delay="0 seconds"),
        [
            [{"k": "a", "ts": at(i % 60), "v": i % 17} for i in range(200)],
            [{"k": "b", "ts": at(1), "v": None}, {"k": "a", "ts": at(2), "v": 99}],
            [{"k": "b", "ts": at(70 + i % 9), "v": i} for i in range(40)],
        ],
        schema=SCHEMA,
        flush=True,
    )
    rows = [row for batch in played for row in batch.rows]
    arguments = {(row["k"], row["window_start"]): row["n"] for row in rows}
    assert arguments["a", at(0)] == {
        "estimate": 18,
        "lower": 18,
        "upper": 18,
        "relative_error": pytest.approx(5e-5, rel=0.01),
    }
    assert arguments["b", at(60)]["relative_error"] == 1.04 / 16
    assert arguments["b", at(60)]["lower"] <= 40 <= arguments["b", at(60)]["upper"]
    for row in rows:
        assert sketches.read(row["s"]).estimate() == row["n"]


def test_it_has_a_format_and_parameters() -> None:
    assert repr(approx_count_distinct("v")) == "approx_count_distinct('v', p=12)"
    assert repr(hll_sketch_agg("v", p=4)) == "hll_sketch_agg('v', p=4)"
    assert not approx_count_distinct("v").native


def public_name(make: Any) -> str:
    """Estimates are aggregates; sketches that are stored are of the module sketches."""
    module = "aggregates" if make is approx_count_distinct else "sketches"
    return f"{module}.{make.__name__}"


@pytest.mark.parametrize("p", [3, 17, 0, -1, 12.0, True, "12", None])
@pytest.mark.parametrize("make", [approx_count_distinct, hll_sketch_agg])
def test_a_precision_out_of_range_is_refused(make: Any, p: Any) -> None:
    with pytest.raises(SpecError) as caught:
        make("v", p=p)
    assert str(caught.value) == (
        f"[PARAMETER_OUT_OF_RANGE] {public_name(make)}: `p` is out of range\n"
        f"  got:       p={p!r}\n"
        "  expected:  an integer from 4 to 16\n"
        "  fix:       use p=12, the default (4 KB per key, 1.6 % standard error)"
        "\n  see:       docs/errors.md#parameter_out_of_range"
    )


def test_datasketch_has_no_hash_for_other_sketches() -> None:
    for like in (kll_sketch_agg("v"), 12):
        with pytest.raises(SpecError, match=r"\[PARAMETER_TYPE\] sketches.datasketch_hash"):
            datasketch_hash(like)  # type: ignore[arg-type]


def test_an_unsupported_column_is_refused_while_the_plan_is_built() -> None:
    schema = pa.schema([("ts", pa.timestamp("us")), ("m", pa.map_(pa.string(), pa.int64()))])
    with pytest.raises(SchemaError) as caught:
        approx_count_distinct("m").bind(schema, time="ts")
    assert caught.value.code == "TYPE_UNSUPPORTED"
    changes = pa.schema([("_change_type", pa.string()), ("v", pa.int64())])
    with pytest.raises(SchemaError) as caught:
        approx_count_distinct("v").bind(changes, time="ts")
    assert caught.value.code == "CHANGE_STREAM_INPUT"
    assert "aggregates.count_distinct(column, at_most=...)" in caught.value.fix


def test_values_are_merged_and_queried() -> None:
    one, two = stored(LONGS[:2000]), stored(LONGS[1000:])
    both = one.merge(two)
    assert both == stored(LONGS) == two.merge(one)
    assert both.parameters == {"p": 12}
    lower, upper = both.bounds()
    assert lower < 3000 < upper
    assert (lower, upper) == (both.estimate()["lower"], both.estimate()["upper"])
    with pytest.raises(SketchFormatError) as caught:
        one.merge(stored(LONGS, p=11))
    assert caught.value.code == "SKETCH_PARAMETERS"


@pytest.mark.parametrize("parameters", [{}, {"p": 3}, {"p": 12.0}, {"p": "12"}, {"p": 12, "q": 1}])
def test_bytes_with_invalid_parameters_are_refused(parameters: Any) -> None:
    (blob,) = pack_frames(HyperLogLog.format, parameters, pa.array([b"\0"])).to_pylist()
    with pytest.raises(SketchFormatError) as caught:
        sketches.read(blob)
    assert caught.value.code == "SKETCH_PARAMETERS"


@pytest.mark.parametrize("size", [0, 5, 100, 3000])
def test_images_of_apache_round_trip(size: int) -> None:
    ours, theirs = stored(LONGS[:size], p=10), datasketches.hll_sketch(10)
    for item in xxhash64([pa.array(LONGS[:size])]).tolist():
        theirs.update(item)
    for image in (theirs.serialize_compact(), theirs.serialize_updatable()):
        assert StoredHll.from_datasketches(image) == ours
    again = datasketches.hll_sketch.deserialize(ours.to_datasketches())
    assert StoredHll.from_datasketches(again.serialize_compact()) == ours
    assert again.get_estimate() == pytest.approx(size, rel=3 * 1.04 / 32)


def test_an_invalid_image_is_refused() -> None:
    with pytest.raises(SketchFormatError) as caught:
        StoredHll.from_datasketches(b"\2\1\7")
    assert caught.value.code == "SKETCH_CORRUPT"
    with pytest.raises(SketchFormatError) as caught:
        StoredHll.from_datasketches(datasketches.hll_sketch(17).serialize_compact())
    assert str(caught.value) == (
        "[SKETCH_PARAMETERS] StoredHll.from_datasketches: this sketch has an unsupported "
        "precision\n"
        "  got:       p=17\n"
        "  expected:  p from 4 to 16\n"
        "  fix:       make it again with such a precision, or lower it by a union of Apache "
        "DataSketches"
        "\n  see:       docs/errors.md#sketch_parameters"
    )


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        (LONGS[:500].tolist(), None),
        ([f"user {i}" for i in range(500)], None),
        ([i / 8 for i in range(500)], None),
        (list(range(500)), pa.int32()),
    ],
)
def test_datasketch_counts_the_same_with_datasketch_hash(values: list[Any], dtype: Any) -> None:
    theirs = HyperLogLogPlusPlus(12, hashfunc=datasketch_hash(hll_sketch_agg("v", p=12), dtype))
    for value in values:
        theirs.update(value)
    ours = stored(pa.array(values, dtype))
    there = ours.to_datasketch()
    assert there == theirs
    assert ours.merge(StoredHll.from_datasketch(theirs)) == StoredHll.from_datasketch(there)
    buffer = bytearray(theirs.bytesize())
    theirs.serialize(buffer)
    assert StoredHll.from_datasketch(buffer) == StoredHll.from_datasketch(theirs)
    assert abs(StoredHll.from_datasketch(theirs).estimate()["estimate"] - theirs.count()) < 2
    if dtype is None:  # and it goes on counting
        there.update(values[0])
        assert there == theirs


def test_invalid_sketches_of_datasketch_are_refused() -> None:
    wrong = HyperLogLogPlusPlus(4, reg=np.full(16, 63, np.int8))
    negative = HyperLogLogPlusPlus(4, reg=np.full(16, -1, np.int8))
    negative.reg[0] = 1
    for entry in (wrong, negative, b"", b"\4abc", b"\x63" + bytes(16), bytes([12, *[0] * 4095])):
        with pytest.raises(SketchFormatError) as caught:
            StoredHll.from_datasketch(entry)
        assert caught.value.code == "SKETCH_CORRUPT"
    with pytest.raises(SketchFormatError) as caught:
        StoredHll.from_datasketch(ThirtyTwoBits(12))
    assert str(caught.value) == (
        "[SKETCH_CORRUPT] StoredHll.from_datasketch: the object is not a readable datasketch sketch\n"
        "  got:       HyperLogLog\n"
        "  expected:  a HyperLogLogPlusPlus, or the bytes of its serialize\n"
        "  fix:       count with HyperLogLogPlusPlus(p, hashfunc=datasketch_hash(hll_sketch_agg(...)))"
        "\n  see:       docs/errors.md#sketch_corrupt"
    )


def test_a_sketch_type_without_an_image_is_refused() -> None:
    for make in (sketches.to_datasketches, sketches.from_datasketches):
        with pytest.raises(SpecError) as caught:
            make("s", like="hll")  # type: ignore[arg-type]
        assert caught.value.code == "SKETCH_UNSUPPORTED"
        with pytest.raises(SpecError) as caught:
            make(7, like=hll_sketch_agg("v"))  # type: ignore[arg-type]
        assert caught.value.code == "PARAMETER_TYPE"


def refused(count: int) -> None:
    """Damaged bytes in their frame: none of them is valid, unless nothing was damaged."""
    whole = [stored(LONGS[:size], p=6).to_bytes() for size in (0, 1, 7, 8, 3000)]
    blobs = list(mutated(whole, count, 4))
    found = are_valid(pa.array(blobs, pa.binary()), HyperLogLog.format, {"p": 6})
    assert found.tolist() == [blob in whole for blob in blobs]
    for blob in blobs[: count // 100]:
        if blob not in whole:
            with pytest.raises(SketchFormatError):
                sketches.read(blob)


def test_none_of_a_thousand_damaged_payloads_is_valid() -> None:
    refused(1_000)


@pytest.mark.exhaustive
def test_none_of_a_hundred_thousand_damaged_payloads_is_valid() -> None:
    refused(100_000)
