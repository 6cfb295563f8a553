"""Columns of any type as data: keys, equality, conversion."""

from __future__ import annotations

import datetime as dt
import random
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamops.kernel.columns import (
    combine_chunks,
    concat,
    conform,
    key_codes,
    rows_differ,
    take,
    timestamp_micros,
    to_floats,
    value_codes,
)
from streamops.kernel.ordering import ranks
from streamops.kernel.values import comparable, same

NAN = float("nan")
UTC = dt.UTC
NESTED = pa.struct([("a", pa.list_(pa.float64())), ("b", pa.string())])

# Values of every type that Spark passes, each with an equal pair and a null.
SAMPLES: dict[pa.DataType, list[Any]] = {
    pa.bool_(): [True, False, None, True],
    pa.int8(): [1, -1, None, 1],
    pa.int16(): [300, -1, None, 300],
    pa.int32(): [70_000, -1, None, 70_000],
    pa.int64(): [2**62, -(2**63), None, 2**62],
    pa.float32(): [0.5, NAN, None, 0.5, NAN, -0.0, 0.0],
    pa.float64(): [1e308, NAN, None, float("inf"), NAN, -0.0, 0.0],
    pa.decimal128(38, 2): [Decimal("1.10"), Decimal("-1.10"), None, Decimal("1.10")],
    pa.string(): ["", "a", None, "ä", "a"],
    pa.large_string(): ["", "a", None, "a"],
    pa.binary(): [b"", b"\x00", None, b"\xff", b"\x00"],
    pa.date32(): [dt.date(1, 1, 1), dt.date(1970, 1, 1), None, dt.date(1, 1, 1)],
    pa.timestamp("us", tz="UTC"): [
        dt.datetime(1969, 12, 31, tzinfo=UTC),
        None,
        dt.datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
        dt.datetime(1969, 12, 31, tzinfo=UTC),
    ],
    pa.timestamp("us"): [dt.datetime(1970, 1, 1), None, dt.datetime(1970, 1, 1)],  # noqa: DTZ001
    pa.time64("us"): [dt.time(1, 2, 3, 4), None, dt.time(0), dt.time(1, 2, 3, 4)],
    pa.duration("us"): [dt.timedelta(microseconds=-1), None, dt.timedelta(microseconds=-1)],
    pa.null(): [None, None],
    pa.list_(pa.int64()): [[], [1], [None], None, [1, 2], [1], [None]],
    pa.large_list(pa.string()): [["a"], [], None, ["a"]],
    pa.list_(pa.list_(pa.float64())): [[[NAN], []], [[]], None, [[NAN], []], [[-0.0]], [[0.0]]],
    pa.map_(pa.string(), pa.int64()): [[("a", 1)], [("a", None)], [], None, [("a", 1)]],
    NESTED: [
        {"a": [1.0], "b": None},
        {"a": None, "b": None},
        None,
        {"a": [1.0], "b": None},
        {"a": [], "b": None},
    ],
    pa.struct([]): [{}, None, {}],
}


def samples() -> Any:
    return pytest.mark.parametrize("dtype", SAMPLES, ids=str)


def plain(value: Any) -> Any:
    """A value that tells an absent struct from one of nulls."""
    return comparable(value)


@samples()
def test_equal_values_have_equal_codes(dtype: pa.DataType) -> None:
    values = SAMPLES[dtype]
    found = value_codes(pa.array(values, dtype))
    for i, left in enumerate(values):
        for j, right in enumerate(values):
            assert (found[i] == found[j]) == (plain(left) == plain(right)), (left, right)


@samples()
def test_codes_of_a_slice_are_those_of_its_values(dtype: pa.DataType) -> None:
    array = pa.array(SAMPLES[dtype] * 2, dtype)
    half = len(array) // 2
    found = value_codes(array.slice(half))
    assert len(found) == half
    again = value_codes(pa.array(SAMPLES[dtype], dtype))
    assert (found[:, None] == found).tolist() == (again[:, None] == again).tolist()


@samples()
def test_an_empty_column_has_no_codes(dtype: pa.DataType) -> None:
    assert len(value_codes(pa.array([], dtype))) == 0


@samples()
def test_a_column_is_unchanged_compared_with_itself_and_changed_compared_with_another(
    dtype: pa.DataType,
) -> None:
    values = SAMPLES[dtype]
    array = pa.array(values, dtype)
    turned = pa.array(values[1:] + values[:1], dtype)
    assert rows_differ([array], [array]).tolist() == [False] * len(values)
    differs = [plain(a) != plain(b) for a, b in zip(values, values[1:] + values[:1], strict=True)]
    assert rows_differ([array], [turned]).tolist() == differs
    assert rows_differ([array, array], [array, turned]).tolist() == differs


def test_an_empty_column_has_no_changes() -> None:
    assert rows_differ([], []).tolist() == []


def test_a_dictionary_array_equals_its_decoded_values() -> None:
    encoded = pa.array(["a", None, "b", "a"]).dictionary_encode()
    assert value_codes(encoded).tolist() == value_codes(pa.array(["a", None, "b", "a"])).tolist()


def test_every_nan_is_one_key() -> None:
    bits = np.array([0x7FF8000000000000, 0x7FF8000000000001, 0xFFF8000000000000], np.uint64)
    assert len(set(value_codes(pa.array(bits.view(np.float64))).tolist())) == 1


def test_the_value_under_a_null_does_not_matter() -> None:
    array = pa.array(np.array([1.0, 2.0]), mask=np.array([True, True]))
    assert len(set(value_codes(array).tolist())) == 1
    lists = pa.ListArray.from_arrays([0, 2, 3], pa.array([1, 2, 3]), mask=pa.array([True, True]))
    assert len(set(value_codes(lists).tolist())) == 1


def test_without_key_columns_every_row_has_the_same_key() -> None:
    assert key_codes([], 3).tolist() == [0, 0, 0]


def test_keys_are_equal_if_all_columns_are_equal() -> None:
    found = key_codes([pa.array([1, 1, None, None]), pa.chunked_array([["a"], ["b", "a", "a"]])], 4)
    assert len(set(found.tolist())) == 3
    assert found[2] == found[3]


@given(st.lists(st.none() | st.lists(st.sampled_from([0, 1, None]), max_size=9), max_size=12))
def test_equal_lists_have_equal_codes(lists: list[Any]) -> None:
    found = value_codes(pa.array([[7], *lists], pa.list_(pa.int64())).slice(1))
    assert (found[:, None] == found).tolist() == [
        [one == other for other in lists] for one in lists
    ]


MAPS = st.dictionaries(st.sampled_from([0.0, 1.0, NAN, -1.0]), st.integers(0, 1) | st.none())


@given(st.lists(st.none() | MAPS, max_size=9), st.randoms())
def test_maps_are_equal_in_any_order_of_their_entries(
    maps: list[dict[float, int | None] | None], dice: random.Random
) -> None:
    entries = [None if item is None else list(item.items()) for item in maps * 2]
    for item in entries:
        dice.shuffle(item or [])
    dtype = pa.map_(pa.float64(), pa.int64())
    equal = [[same(one, other) for other in maps * 2] for one in maps * 2]
    for outer, values in (
        (dtype, entries),
        (pa.list_(dtype), [[item] for item in entries]),
        (pa.map_(pa.string(), dtype), [[("b", item), ("a", None)] for item in entries]),
    ):
        array = pa.array([None, *values], outer).slice(1)
        for found in (value_codes(array), ranks(array)):
            assert (found[:, None] == found).tolist() == equal


@given(st.lists(st.tuples(st.integers(0, 2) | st.none(), st.sampled_from([0.0, -0.0, NAN, None]))))
def test_keys_of_two_columns_are_equal_as_pairs(rows: list[tuple[Any, Any]]) -> None:
    found = key_codes(
        [pa.array([a for a, _ in rows], pa.int64()), pa.array([b for _, b in rows], pa.float64())],
        len(rows),
    )
    for i, left in enumerate(rows):
        for j, right in enumerate(rows):
            assert (found[i] == found[j]) == (plain(left) == plain(right))


def test_a_chunked_array_is_combined() -> None:
    whole = pa.array([1, 2, 3])
    assert combine_chunks(whole) is whole
    assert combine_chunks(pa.chunked_array([whole])).equals(whole)
    assert combine_chunks(pa.chunked_array([[1], [], [2, 3]])).equals(whole)
    assert combine_chunks(pa.chunked_array([], pa.int64())).equals(pa.array([], pa.int64()))


def test_concatenated_tables_have_one_chunk_per_column() -> None:
    table = pa.table({"a": [1]})
    assert concat([table]) is table
    both = concat([table, pa.table({"a": [2]})])
    assert both.column("a").num_chunks == 1
    assert both.column("a").to_pylist() == [1, 2]


def test_rows_are_taken_by_position() -> None:
    table = pa.table({"a": pa.chunked_array([["x"], ["y", None]])})
    assert take(table, np.array([2, 0, 0])).to_pylist() == [{"a": None}, {"a": "x"}, {"a": "x"}]
    assert len(take(table, np.array([], np.int64))) == 0


@samples()
def test_rows_of_any_type_can_be_taken(dtype: pa.DataType) -> None:
    values = SAMPLES[dtype]
    table = take(pa.table({"a": pa.array(values, dtype)}), np.arange(len(values))[::-1])
    assert [plain(row["a"]) for row in table.to_pylist()] == [plain(v) for v in values[::-1]]


def test_columns_are_reordered_and_cast_to_a_schema() -> None:
    paris = pa.timestamp("us", tz="Europe/Paris")
    table = pa.table(
        {
            "s": pa.array(["a"], pa.large_string()),
            "extra": [1],
            "t": pa.array([5], pa.int64()).cast(paris),
        }
    )
    schema = pa.schema([("t", pa.timestamp("us", tz="UTC")), ("s", pa.string())])
    found = conform(table, schema)
    assert found.schema == schema
    assert found.column("t").cast(pa.int64()).to_pylist() == [5]


def test_columns_that_already_match_are_not_copied() -> None:
    table = pa.table({"a": [1], "b": [2]})
    assert conform(table, table.schema).column("a").chunk(0).equals(table.column("a").chunk(0))


def test_instants_are_microseconds_with_a_validity_mask() -> None:
    micros, valid = timestamp_micros(
        pa.array([-1, None, 2**62], pa.int64()).cast(pa.timestamp("us", "UTC"))
    )
    assert micros.tolist() == [-1, 0, 2**62]
    assert valid.tolist() == [True, False, True]


def test_numbers_become_doubles_and_nulls_become_nan() -> None:
    assert to_floats(pa.array([1, None], pa.int16())).tolist()[0] == 1.0
    assert np.isnan(to_floats(pa.array([None, 2], pa.int64()))[0])
    assert to_floats(pa.array([Decimal("0.25")])).tolist() == [0.25]
    assert to_floats(pa.array([0.5], pa.float32())).tolist() == [0.5]


@pytest.mark.parametrize("number", [2**53 + 1, -(2**63), 2**63 - 1])
def test_an_integer_too_long_for_a_double_is_rounded_as_spark_rounds_it(number: int) -> None:
    assert to_floats(pa.array([number, None], pa.int64())).tolist()[0] == float(number)
