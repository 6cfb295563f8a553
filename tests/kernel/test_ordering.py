"""Integer ranks of values, in Spark's order of the values."""

from __future__ import annotations

import datetime as dt
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamops.kernel.ordering import is_comparable, is_orderable, ranks
from tests.aggregates.samples import COMPARABLE, NAN, ORDERED, TYPES, VALUES
from tests.oracles.windows import ranked


@pytest.mark.parametrize("name", ORDERED)
def test_ranks_have_the_order_of_the_values(name: str) -> None:
    values: list[Any] = [None, *VALUES[name], None]
    found = ranks(pa.array(values, TYPES[name])).tolist()
    for a, left in zip(found, values, strict=True):
        for b, right in zip(found, values, strict=True):
            assert (a < b) == (ranked(left) < ranked(right)), (left, right)


@pytest.mark.parametrize("name", ORDERED)
def test_ranks_of_a_slice_are_those_of_its_values(name: str) -> None:
    values = [*VALUES[name], None]
    twice = pa.array(values + values, TYPES[name]).slice(len(values))
    found, alone = ranks(twice).tolist(), ranks(pa.array(values, TYPES[name])).tolist()
    assert sorted(range(len(values)), key=found.__getitem__) == sorted(
        range(len(values)), key=alone.__getitem__
    )


@pytest.mark.parametrize("name", ORDERED)
def test_an_empty_column_has_no_ranks(name: str) -> None:
    assert ranks(pa.array([], TYPES[name])).tolist() == []


NESTED: dict[pa.DataType, list[Any]] = {
    pa.list_(pa.float64()): [None, [], [None], [None, 1.0], [-1.0], [0.0, NAN], [1.0], [1.0, 0.0],
                             [1.0, 0.0, -5.0], [1.0, 2.0], [NAN], [NAN, None]],
    pa.large_list(pa.string()): [None, [], ["a"], ["a", "b"], ["b"]],
    pa.list_(pa.list_(pa.int64())): [None, [], [None], [[]], [[], [5]], [[-(2**63)]], [[1, 2], []]],
    pa.struct([("a", pa.int64()), ("b", pa.list_(pa.string()))]): [
        None, {"a": None, "b": None}, {"a": None, "b": []}, {"a": -(2**63), "b": None},
        {"a": 1, "b": []}, {"a": 1, "b": ["x"]}, {"a": 2**62, "b": None}],
    pa.struct([]): [None, {}],
    # What Spark has no order of.
    pa.map_(pa.string(), pa.float64()): [
        None, [], [("a", None)], [("a", -1.0)], [("a", 0.0)], [("a", 0.0), ("b", None)],
        [("b", 5.0), ("a", 0.0)], [("a", NAN)], [("b", -2.0)]],
    pa.struct([("m", pa.map_(pa.int64(), pa.list_(pa.int64())))]): [
        None, {"m": None}, {"m": []}, {"m": [(1, [])]}, {"m": [(1, [2])]}, {"m": [(2, None)]}],
    pa.month_day_nano_interval(): [
        None, (-1, 5, 5), (0, -1, 9), (0, 0, 0), (0, 0, 1), (0, 1, 0), (2, 0, 0)],
    pa.list_(pa.month_day_nano_interval()): [None, [], [None], [(0, 0, 1)], [(0, 0, 1), None], [(1, 0, 0)]],
}  # fmt: skip


def test_equal_values_of_any_type_have_equal_ranks() -> None:
    quiet, odd = np.array([0x7FF8000000000000, 0x7FF8000000000001]).view(np.float64)
    maps = pa.array(
        [[("a", x)] for x in (0.0, -0.0, quiet, odd)], pa.map_(pa.string(), pa.float64())
    )
    assert len(set(ranks(maps)[:2])) == len(set(ranks(maps)[2:])) == 1
    assert len(set(ranks(pa.nulls(3)))) == 1
    assert ranks(pa.array([], pa.month_day_nano_interval())).tolist() == []


@pytest.mark.parametrize("dtype", NESTED, ids=str)
def test_lists_compare_item_by_item_and_structs_field_by_field(dtype: pa.DataType) -> None:
    ascending = NESTED[dtype]
    twice = pa.array([*reversed(ascending), *ascending, *ascending], dtype).slice(len(ascending))
    found = ranks(twice).tolist()
    again = found[len(ascending) :]
    assert found[: len(ascending)] == again == sorted(again)
    assert len(set(again)) == len(ascending)


def test_a_list_of_a_thousand_differs_in_its_last_item() -> None:
    lists = [[0] * 999 + [1], [0] * 1000, [0] * 999]
    assert ranks(pa.array(lists)).argsort().tolist() == [2, 1, 0]


def test_the_least_long_is_above_null() -> None:
    null, least = ranks(pa.array([None, -(2**63)], pa.int64())).tolist()
    assert null < least


def test_times_of_day_have_an_order() -> None:
    found = ranks(pa.array([dt.time(2), dt.time(1), None], pa.time64("us"))).tolist()
    assert found[2] < found[1] < found[0]


def test_an_array_is_not_changed_by_ranking_it() -> None:
    array = pa.array([3, None, 1], pa.int64())
    ranks(array)
    assert array.to_pylist() == [3, None, 1]


@pytest.mark.parametrize(
    "dtype",
    [
        pa.list_(pa.int64()),
        pa.map_(pa.string(), pa.int64()),
        pa.struct([("a", pa.int64())]),
        pa.null(),
        pa.month_day_nano_interval(),
    ],
    ids=str,
)
def test_types_without_an_order_are_recognized(dtype: pa.DataType) -> None:
    assert not is_orderable(dtype)


@pytest.mark.parametrize("name", TYPES)
def test_comparable_types_are_recognized(name: str) -> None:
    assert is_comparable(TYPES[name]) == (name in COMPARABLE)
    assert is_comparable(pa.list_(TYPES[name])) == (name in COMPARABLE)
    assert is_comparable(pa.struct([("a", TYPES[name])])) == (name in COMPARABLE)


def test_a_variant_is_not_comparable_although_it_is_stored_as_a_struct() -> None:
    parts = [
        ("value", pa.binary()),
        pa.field("metadata", pa.binary(), metadata={"variant": "true"}),
    ]
    assert not is_comparable(pa.struct(parts))


@pytest.mark.parametrize("name", ORDERED)
def test_types_with_an_order_are_recognized(name: str) -> None:
    assert is_orderable(TYPES[name])
