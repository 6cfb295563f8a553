"""HyperLogLog, against plain Python and datasketch."""

from __future__ import annotations

import subprocess
import sys
from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from datasketch import HyperLogLogPlusPlus

from streamops.kernel.core import StateFormat
from streamops.kernel.errors import SchemaError, SketchFormatError
from streamops.kernel.groups import Groups
from streamops.kernel.hashing import xxhash64
from streamops.sketches.core.hyperloglog import (
    SPARSE_ERROR,
    HyperLogLog,
    coupons,
    estimates,
    from_registers,
    greatest,
    highest,
    leading_zeros,
    most_coupons,
)
from streamops.sketches.core.items import murmur3
from tests.oracles import hyperloglog as oracle

LONGS = np.random.default_rng(5).integers(-(2**63), 2**63 - 1, 20_000)
EDGES = [0, 1, -1, 2**63 - 1, -(2**63)]
States = list[pa.Array]


def made(values: pa.Array, p: int, ids: npt.ArrayLike | None = None, count: int = 1) -> States:
    where = np.zeros(len(values), np.int64) if ids is None else np.asarray(ids, np.int64)
    return HyperLogLog("v", p).update(Groups(where, count), pa.table({"v": values}))


def merged(parts: list[States], p: int) -> States:
    """Each with the others of its place."""
    count = len(parts[0][0])
    groups = Groups(np.tile(np.arange(count), len(parts)), count)
    states = [pa.concat_arrays(pieces) for pieces in zip(*parts, strict=True)]
    return HyperLogLog("v", p).merge(groups, states)


def columns(states: States, p: int) -> list[dict[str, Any]]:
    reported: list[dict[str, Any]] = HyperLogLog("v", p).estimate(states).to_pylist()
    return reported


def bits(states: States) -> list[list[Any]]:
    return [[column[row].as_py() for column in states] for row in range(len(states[0]))]


def hashed(values: npt.NDArray[np.int64]) -> list[int]:
    return xxhash64([pa.array(values)]).tolist()


def test_coupons_are_those_of_plain_python() -> None:
    several = np.concatenate([EDGES, LONGS[:2000]])
    assert coupons(several).tolist() == [oracle.coupon(entry) for entry in several.tolist()]


def test_leading_zeros_are_counted_at_every_bit() -> None:
    texts = [0, 2**64 - 1, *(2**bit for bit in range(64)), *(2**bit - 1 for bit in range(64))]
    expected = [64 - word.bit_length() for word in texts]
    assert leading_zeros(np.array(texts, np.uint64)).tolist() == expected


@pytest.mark.parametrize("p", range(4, 17))
def test_states_are_those_of_plain_python_on_both_sides_of_the_switch(p: int) -> None:
    few = most_coupons(p)
    for size in (0, 1, few - 1, few, few + 1, 3 * few):
        states = made(pa.array(LONGS[:size]), p)
        assert bits(states) == [oracle.state(hashed(LONGS[:size]), p)]
        assert states[0].is_valid().to_pylist() == [size <= few]


@pytest.mark.parametrize("p", [4, 7, 8, 12, 16])
def test_the_form_depends_on_the_items_alone(p: int) -> None:
    few = most_coupons(p)
    items = LONGS[: few + 1]
    whole = bits(made(pa.array(items), p))
    assert whole[0][0] is None
    for parts in (
        [items[:few], items[few:]],  # two that are sparse, and together are not
        [items[:few], items[:few], items[few:]],
        [items, items[:3]],
        [items[:3], items, items],
        [items[few:], items[:few][::-1], items[:0]],
    ):
        several = [made(pa.array(part), p) for part in parts]
        assert bits(merged(several, p)) == whole
        assert bits(merged(several[::-1], p)) == whole
    again = [made(pa.array(items[:few]), p)] * 3  # the same ones over and over stay few
    assert bits(merged(again, p)) == bits(again[0])


def test_many_groups_at_once_of_which_some_are_empty() -> None:
    rng = np.random.default_rng(1)
    ids = np.minimum(rng.geometric(0.02, 20_000), 299)  # of all sizes
    together = made(pa.array(LONGS), 8, ids, 300)
    for group in range(0, 300, 7):
        mine = LONGS[ids == group]
        assert bits([column.slice(group, 1) for column in together]) == bits(
            made(pa.array(mine), 8)
        )
    assert 0 < together[0].null_count < 300


def test_a_merge_of_many_groups_at_once() -> None:
    rng = np.random.default_rng(2)
    ids, part = np.minimum(rng.geometric(0.02, 20_000), 299), rng.integers(0, 5, 20_000)
    whole = made(pa.array(LONGS), 8, ids, 300)
    parts = [made(pa.array(LONGS[part == i]), 8, ids[part == i], 300) for i in range(5)]
    assert bits(merged(parts, 8)) == bits(whole)
    # Members in any order, and groups with one, with none and with many of them.
    order = rng.permutation(1500)
    groups = Groups(np.tile(np.arange(300), 5)[order], 302)
    states = [pa.concat_arrays(pieces).take(order) for pieces in zip(*parts, strict=True)]
    sketch = HyperLogLog("v", 8)
    assert bits(sketch.merge(groups, states)) == [*bits(whole), [[], None], [[], None]]
    alone = sketch.merge(Groups(order % 300 + 300 * (order // 300), 1500), states)
    assert bits(alone) == bits([pa.concat_arrays(pieces) for pieces in zip(*parts, strict=True)])


def test_the_greatest_of_any_number_of_rows() -> None:
    rng = np.random.default_rng(3)
    ids = rng.permutation(np.repeat(np.arange(6), [1, 2, 3, 4, 7, 30]))
    table = rng.integers(0, 50, (len(ids), 16)).astype(np.uint8)
    found, registers = greatest(ids, table)
    assert found.tolist() == [0, 1, 2, 3, 4, 5]
    assert registers.tolist() == [table[ids == entry].max(axis=0).tolist() for entry in range(6)]
    assert len(greatest(ids[:0], table[:0])[0]) == 0


@pytest.mark.parametrize("p", range(4, 17))
def test_the_estimate_is_that_of_plain_python(p: int) -> None:
    rng = np.random.default_rng(p)
    rows, several = [], [0.05, 0.3, 0.5, 0.74, 0.76, 0.9, 1.5, 2.5, 3, 4, 4.9, 5.1, 30]
    for load in several:  # with and without empty registers
        texts = rng.integers(0, 2**63, int(load * 2**p) + 1)
        row = np.zeros(1 << p, np.uint8)
        values = np.minimum(leading_zeros(texts.astype(np.uint64)), 64 - p)
        np.maximum.at(row, rng.integers(0, 1 << p, len(texts)), values.astype(np.uint8))
        rows.append(row)
    full = np.full(1 << p, highest(p), np.uint8)
    rows += [full, np.where(np.arange(1 << p) % 3, full, 1), np.ones(1 << p), np.zeros(1 << p)]
    given = estimates(np.array(rows, np.uint8), p).tolist()
    assert given == pytest.approx([oracle.count(row.tolist(), p) for row in rows], rel=1e-12)
    assert len(estimates(np.empty((0, 1 << p), np.uint8), p)) == 0


@pytest.mark.parametrize("p", [4, 12, 16])
def test_sketches_whose_registers_are_full_or_empty_have_an_estimate(p: int) -> None:
    rows = np.array([np.full(1 << p, highest(p)), np.zeros(1 << p)], np.uint8)
    full, empty = columns(from_registers(rows), p)
    assert full["estimate"] == full["lower"] == full["upper"] == 2**63 - 1024
    assert (empty["estimate"], empty["lower"], empty["upper"]) == (0, 0, 0)


@pytest.mark.parametrize("p", [4, 9, 14])
def test_registers_are_those_of_datasketch_fed_with_the_same_hash(p: int) -> None:
    def word(item: int) -> int:
        one, two = (int(half[0]) for half in murmur3(np.array([item])))
        return (two >> p << p) | (one & ((1 << p) - 1))

    theirs = HyperLogLogPlusPlus(p=p, hashfunc=word)
    items = LONGS[:3000]
    for entry in hashed(items):
        theirs.update(entry)
    for size in (3, 3000):  # also those of a sparse sketch
        theirs = HyperLogLogPlusPlus(p=p, hashfunc=word)
        for entry in hashed(items[:size]):
            theirs.update(entry)
        ours = HyperLogLog("v", p).registers(made(pa.array(items[:size]), p))
        assert ours.tolist() == [theirs.reg.tolist()]


def test_few_items_are_exact_and_a_dense_sketch_has_an_error() -> None:
    states = made(pa.array(LONGS), 12, np.minimum(np.arange(20_000), 3) // 3, 3)
    one, many, none = columns(states, 12)
    assert one == {"estimate": 3, "lower": 3, "upper": 3, "relative_error": SPARSE_ERROR}
    assert none == {"estimate": 0, "lower": 0, "upper": 0, "relative_error": SPARSE_ERROR}
    assert many["relative_error"] == 1.04 / 64
    count = oracle.count(states[1][1].as_py(), 12)
    assert many["estimate"] == round(count)
    assert many["lower"] == round(count * (1 - 2 * 1.04 / 64))
    assert many["upper"] == round(count * (1 + 2 * 1.04 / 64))
    assert many["lower"] < 19_997 < many["upper"]
    lower, upper = HyperLogLog("v", 12).bounds(states)
    assert lower.to_pylist() == [3, many["lower"], 0]
    assert upper.to_pylist() == [3, many["upper"], 0]


def test_the_lower_bound_is_at_least_the_certain_number() -> None:
    states = made(pa.array(LONGS[:9]), 4)
    (given,) = columns(states, 4)
    certain = sum(register > 0 for register in states[1][0].as_py())
    assert given["lower"] == certain > given["estimate"] * (1 - 2 * 0.26)


@pytest.mark.parametrize("p", [8, 12, 16])
def test_the_estimate_grows_from_sparse_to_dense(p: int) -> None:
    few = most_coupons(p)
    before, after = (made(pa.array(LONGS[:size]), p) for size in (few, few + 1))
    (sparse,), (dense,) = columns(before, p), columns(after, p)
    assert abs(dense["estimate"] - few) <= 2 * dense["relative_error"] * few
    assert sparse["estimate"] == few


@pytest.mark.parametrize(
    "values",
    [
        pa.array(["a", None, "b", "a", None]),
        pa.array([b"", b"x", None, b"x", None], pa.binary()),
        pa.array([0.0, -0.0, float("nan"), float("nan"), None]),
        pa.array([Decimal("1.50"), None, Decimal("1.5"), Decimal("-7"), None]),
        pa.array([[1, 2], None, [1, 2], [2, 1], None]),
        pa.array([{"a": 1, "b": "x"}, {"a": 1, "b": "x"}, {"a": None, "b": "x"}, None, None]),
        pa.array([1, 2, None, 1, None], pa.timestamp("us", tz="UTC")),
        pa.chunked_array([[True, None], [False, True, None]]),
    ],
    ids=lambda values: str(values.type),
)
def test_equal_values_are_one_item_and_null_is_none(values: pa.Array) -> None:
    (given,) = columns(made(values, 12), 12)
    assert given["estimate"] == 2


def test_a_type_that_has_no_hash_is_refused() -> None:
    with pytest.raises(SchemaError) as caught:
        made(pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())), 12)
    assert caught.value.code == "TYPE_UNSUPPORTED"


def test_payloads_are_as_documented_and_round_trip() -> None:
    states = made(pa.array(LONGS[:30]), 4, [0] * 2 + [1] * 26 + [3] * 2, 4)
    sketch = HyperLogLog("v", 4)
    payloads = sketch.payload(states)
    two, many = (
        sorted(map(oracle.coupon, hashed(LONGS[rows]))) for rows in (slice(2), slice(28, 30))
    )
    assert payloads.type == pa.binary()
    assert payloads.to_pylist() == [
        b"\0" + np.array(two, "<u4").tobytes(),
        b"\1" + states[1][1].as_py(),
        b"\0",
        b"\0" + np.array(many, "<u4").tobytes(),
    ]
    assert bits(sketch.revive(payloads)) == bits(states)
    for part in (payloads[1:], payloads[2:3], payloads[:0]):
        revived = sketch.revive(part)
        assert [column.type for column in revived] == [dtype for _, dtype in sketch.fields]
        start = 4 - len(part) if len(part) == 3 else 2
        assert bits(revived) == bits([column.slice(start, len(part)) for column in states])


def test_an_estimate_does_not_import_datasketch() -> None:
    program = (
        "import sys, numpy as np\n"
        "from streamops.sketches.core.hyperloglog import estimates\n"
        "estimates(np.ones((1, 4096), np.uint8), 12)\n"
        "print({'scipy', 'datasketch'} & {*sys.modules})"
    )
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert (ran.stdout, ran.stderr) == ("set()\n", "")


def test_it_has_inputs_format_and_parameters() -> None:
    sketch = HyperLogLog("v", 12)
    assert (sketch.inputs, sketch.parameters) == (("v",), {"p": 12})
    assert sketch.format == StateFormat("hll", 1)


ONE = (1 << 26).to_bytes(4, "little")
TWO = (2 << 26).to_bytes(4, "little")
CORRUPT = {
    "it is empty": [b""],
    "its form is neither sparse nor dense": [b"\2", b"\xff" + bytes(16)],
    "no form has its length": [
        b"\0abc",
        b"\1" + bytes(15),
        b"\1" + bytes(17),
        b"\1",
        b"\0" + b"".join((at << 26).to_bytes(4, "little") for at in range(1, 9)),
    ],
    "its coupons do not ascend, or one has no value": [
        b"\0" + TWO + ONE,
        b"\0" + ONE + ONE,
        b"\0" + bytes(4),
        b"\0" + b"\xff\xff\xff\x03" + ONE,
    ],
    "a register is out of range, or all are empty": [
        b"\1" + bytes(16),
        b"\1" + bytes(15) + bytes([62]),
        b"\1" + b"\xff" + bytes(15),
    ],
}


@pytest.mark.parametrize(
    ("why", "payload"), [(why, blob) for why, blobs in CORRUPT.items() for blob in blobs]
)
def test_bytes_that_are_no_payload_are_refused(why: str, payload: bytes) -> None:
    sketch = HyperLogLog("v", 4)
    good = [b"\0", b"\0" + ONE + TWO, b"\1" + bytes(15) + bytes([61])]
    assert len(sketch.revive(pa.array(good, pa.binary()))[0]) == 3
    with pytest.raises(SketchFormatError) as caught:
        sketch.revive(pa.array([*good, payload, *good], pa.binary()))
    assert (caught.value.code, caught.value.what) == (
        "SKETCH_CORRUPT",
        f"this sketch is damaged: {why}",
    )


def test_the_error_has_five_facts() -> None:
    with pytest.raises(SketchFormatError) as caught:
        HyperLogLog("v", 12).revive(pa.array([b"\1\2\3"], pa.binary()))
    assert str(caught.value) == (
        "[SKETCH_CORRUPT] sketches.hll: this sketch is damaged: no form has its length\n"
        "  got:       1 of 1 payloads, the first is number 0\n"
        "  expected:  a HyperLogLog of p=12: up to 384 coupons, or 4096 registers up to 53\n"
        "  fix:       make it again from its rows, or merge the others without it"
        "\n  see:       docs/errors.md#sketch_corrupt"
    )


def test_merging_items_into_a_dense_sketch_leaves_the_sketch_as_it_was() -> None:
    dense, few = made(pa.array(LONGS), 4), made(pa.array([1, 2]), 4)
    before = bits(dense)
    states = [pa.concat_arrays(pieces) for pieces in zip(dense, few, strict=True)]
    both = HyperLogLog("v", 4).merge(Groups(np.zeros(2, np.int64), 1), states)
    assert bits([column.slice(0, 1) for column in states]) == before
    assert bits(both) == bits(made(pa.concat_arrays([pa.array(LONGS), pa.array([1, 2])]), 4))
