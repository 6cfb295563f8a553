"""What heavy hitters and count-min have in common."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from streamops.kernel.groups import Groups
from streamops.sketches.core.buffers import argsort_rows, split_payloads
from streamops.sketches.core.countmin import add_counts, find_counts
from streamops.sketches.core.items import flat_type, is_flat, normal, type_name
from tests.aggregates.samples import ORDERED, TYPES


@pytest.mark.parametrize("groups", [1, 2, 1_000, 2**40])
def test_rows_are_ordered_by_group_and_hash(groups: int) -> None:
    rng = np.random.default_rng(1)
    ids = rng.integers(0, groups, 1_000)
    hashes = rng.integers(-(2**63), 2**63 - 1, 1_000)
    hashes[::2] %= 3  # these differ in their lowest bits alone
    ids[::2] = groups - 1
    order = argsort_rows(ids, hashes, groups)
    assert sorted(order.tolist()) == list(range(1_000))
    pairs = list(zip(ids[order].tolist(), hashes[order].tolist(), strict=True))
    assert pairs == sorted(pairs)


def test_the_extremes_of_hashes_are_in_order() -> None:
    least, most = -(2**63), 2**63 - 1
    hashes = np.array([most, 0, least, -1, 1])
    for ids in (np.zeros(5, np.int64), np.full(5, 3)):
        assert hashes[argsort_rows(ids, hashes, 4)].tolist() == [least, -1, 0, 1, most]


@pytest.mark.parametrize("weighted", [True, False])
def test_counts_of_equal_entries_are_added(weighted: bool) -> None:
    rng = np.random.default_rng(5)
    ids, hashes, counts = rng.integers(0, 3, 200), rng.integers(0, 9, 200), rng.integers(0, 5, 200)
    truth: Counter[tuple[int, int]] = Counter()
    for *key, count in zip(ids.tolist(), hashes.tolist(), counts.tolist(), strict=True):
        truth[key[0], key[1]] += count if weighted else 1
    got = add_counts(Groups(ids, 3), hashes, counts if weighted else None)
    rows = list(zip(*(item.tolist() for item in got), strict=True))
    assert rows == [(*key, count) for key, count in sorted(truth.items())]
    nothing = add_counts(Groups(ids[:0], 3), hashes[:0], counts[:0] if weighted else None)
    assert [item.tolist() for item in nothing] == [[], [], []]


def test_entries_are_found_in_their_group() -> None:
    ids, hashes, counts = np.array([0, 0, 2]), np.array([4, 9, 4]), np.array([1, 2, 3])
    owners, queries = np.array([2, 1, 0, 0, 0]), np.array([4, 4, 9, 9, 5])
    assert find_counts(ids, hashes, counts, owners, queries).tolist() == [3, 0, 2, 2, 0]
    assert find_counts(ids, hashes, counts, owners[:0], queries[:0]).tolist() == []


@pytest.mark.parametrize("name", ORDERED)
def test_a_flat_type_is_known_by_its_name(name: str) -> None:
    dtype = TYPES[name]
    assert flat_type(type_name(dtype)) == dtype
    assert is_flat(dtype)


@pytest.mark.parametrize(
    ("dtype", "name"),
    [
        (pa.large_string(), "string"),
        (pa.large_binary(), "binary"),
        (pa.timestamp("us", tz="Europe/Berlin"), "timestamp"),
        (pa.timestamp("us"), "timestamp_ntz"),
        (pa.decimal128(38, 0), "decimal(38,0)"),
        (pa.list_(pa.large_list(pa.int8())), "array<array<tinyint>>"),
        (pa.struct([('a"b', pa.date32())]), 'struct<"a""b":date>'),
        (pa.null(), "null"),
    ],
)
def test_types_have_their_names_in_spark(dtype: pa.DataType, name: str) -> None:
    assert type_name(dtype) == name


@pytest.mark.parametrize(
    "name",
    ["", "long", "decimal", "decimal(39,0)", "decimal(3,4)", "decimal(0,0)", "decimal(6, 2)",
     "array<int>", "null"],
)  # fmt: skip
def test_nested_and_unknown_types_have_no_flat_type(name: str) -> None:
    assert flat_type(name) is None


def test_other_types_than_floats_are_normal() -> None:
    array = pa.array(["a", "b"])
    assert normal(array) is array


def test_payloads_that_are_large_or_chunked_are_read() -> None:
    for array in (
        pa.array([b"ab", b"", b"c"], pa.large_binary()),
        pa.chunked_array([[b"ab", b"", b"c"]]),
    ):
        data, starts, lengths = split_payloads(array)
        assert [bytes(data[s : s + n]) for s, n in zip(starts, lengths, strict=True)] == [
            b"ab", b"", b"c"
        ]  # fmt: skip
