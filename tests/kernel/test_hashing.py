from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamops.kernel.errors import ColumnNotFound, SchemaError
from streamops.kernel.hashing import require_hashable, shard_of, xxhash64

try:
    import xxhash as wheel
except ImportError:
    wheel = None

MASK = (1 << 64) - 1


# The oracle: XXH64 and Spark's rules, one value at a time, on Python's unbounded integers.


def rotate(word: int, left: int) -> int:
    return ((word << left) | (word >> (64 - left))) & MASK


def oracle_bytes(data: bytes, seed: int) -> int:
    p1, p2, p3 = 11400714785074694791, 14029467366897019727, 1609587929392839161
    p4, p5 = 9650029242287828579, 2870177450012600261
    at, size = 0, len(data)
    if size >= 32:
        lanes = [seed + p1 + p2, seed + p2, seed, seed - p1]
        while at + 32 <= size:
            for lane in range(4):
                word = int.from_bytes(data[at : at + 8], "little")
                lanes[lane] = rotate((lanes[lane] + word * p2) & MASK, 31) * p1 & MASK
                at += 8
        turns = zip(lanes, (1, 7, 12, 18), strict=True)
        result = sum(rotate(lane, left) for lane, left in turns) & MASK
        for lane in lanes:
            result ^= rotate(lane * p2 & MASK, 31) * p1 & MASK
            result = (result * p1 + p4) & MASK
    else:
        result = (seed + p5) & MASK
    result = (result + size) & MASK
    while at + 8 <= size:
        word = int.from_bytes(data[at : at + 8], "little")
        result ^= rotate(word * p2 & MASK, 31) * p1 & MASK
        result = (rotate(result, 27) * p1 + p4) & MASK
        at += 8
    if at + 4 <= size:
        result ^= int.from_bytes(data[at : at + 4], "little") * p1 & MASK
        result = (rotate(result, 23) * p2 + p3) & MASK
        at += 4
    for byte in data[at:]:
        result ^= byte * p5 & MASK
        result = rotate(result, 11) * p1 & MASK
    for right, prime in ((33, p2), (29, p3), (32, 1)):
        result = (result ^ (result >> right)) * prime & MASK
    return result


def oracle(value: Any, dtype: pa.DataType, seed: int) -> int:
    """Spark's rule for one value; times, dates and decimals come as the integers they are."""
    if value is None:
        return seed
    if pa.types.is_struct(dtype):
        for field in dtype:
            seed = oracle(value[field.name], field.type, seed)
        return seed
    if pa.types.is_list(dtype):
        for element in value:
            seed = oracle(element, dtype.value_type, seed)
        return seed
    return oracle_bytes(oracle_bits(value, dtype), seed)


def oracle_bits(value: Any, dtype: pa.DataType) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, float):
        canonical = np.nan if value != value else value + 0.0
        return np.array(canonical, dtype.to_pandas_dtype()).tobytes()
    if pa.types.is_decimal(dtype) and dtype.precision > 18:
        size = max(value, ~value).bit_length() // 8 + 1
        return int(value).to_bytes(size, "big", signed=True)
    return int(value).to_bytes(8 if dtype.bit_width >= 64 else 4, "little", signed=True)


def rows_of(array: pa.Array) -> list[int]:
    return xxhash64([array]).tolist()


def signed(hash_: int) -> int:
    return hash_ - (1 << 64) if hash_ >> 63 else hash_


# Strategies: a type, and values of it.


def integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1)


LEAVES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.null(), st.none()),
    (pa.bool_(), st.booleans()),
    (pa.int8(), integers(8)),
    (pa.int16(), integers(16)),
    (pa.int32(), integers(32)),
    (pa.int64(), integers(64)),
    (pa.float32(), st.floats(width=32)),
    (pa.float64(), st.floats()),
    (pa.decimal128(18, 0), st.integers(-(10**18) + 1, 10**18 - 1)),
    (pa.decimal128(19, 0), st.integers(-(10**18) + 1, 10**18 - 1)),
    (pa.decimal128(38, 0), st.integers(-(10**38) + 1, 10**38 - 1)),
    (pa.date32(), integers(32)),
    (pa.time64("ns"), st.integers(0, 86_399_999_999_999)),
    (pa.timestamp("us"), integers(64)),
    (pa.timestamp("us", "America/New_York"), integers(64)),
    (pa.duration("us"), integers(64)),
    (pa.string(), st.text(max_size=40)),
    (pa.binary(), st.binary(max_size=100)),
]

Typed = tuple[pa.DataType, st.SearchStrategy[Any]]


def nullable(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


def arrays_of(inner: Typed) -> Typed:
    return pa.list_(inner[0]), st.lists(nullable(inner[1]), max_size=4)


def structs_of(inner: list[Typed]) -> Typed:
    dtype = pa.struct([(f"f{i}", field) for i, (field, _) in enumerate(inner)])
    return dtype, st.fixed_dictionaries({f"f{i}": nullable(v) for i, (_, v) in enumerate(inner)})


TYPES = st.recursive(
    st.sampled_from(LEAVES),
    lambda inner: inner.map(arrays_of) | st.lists(inner, max_size=3).map(structs_of),
    max_leaves=4,
)


@st.composite
def columns(draw: st.DrawFn, rows: int | None = None) -> tuple[list[Any], pa.Array]:
    """Values, and the Arrow array of them."""
    dtype, values = draw(TYPES)
    size = draw(st.integers(0, 12)) if rows is None else rows
    listed = draw(st.lists(nullable(values), min_size=size, max_size=size))
    return listed, pa.array([to_arrow(value, dtype) for value in listed], dtype)


def to_arrow(value: Any, dtype: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_decimal(dtype):
        return Decimal(value)
    if pa.types.is_list(dtype):
        return [to_arrow(element, dtype.value_type) for element in value]
    if pa.types.is_struct(dtype):
        return {field.name: to_arrow(value[field.name], field.type) for field in dtype}
    return value


def raw(dtype: pa.DataType, bits: int, width: int) -> pa.Array:
    return pa.Array.from_buffers(dtype, 1, [None, pa.py_buffer(bits.to_bytes(width, "little"))])


def timedelta(micros: int) -> dt.timedelta:
    return dt.timedelta(microseconds=micros)


NEW_YORK = pa.timestamp("us", "America/New_York")
PAIR = pa.struct([("a", pa.int32()), ("b", pa.string()), ("c", pa.string())])

# What Spark 4.3.0 answered, with the SQL expression it was asked.
PINNED = {
    "true": (pa.array([True]), -6698625589789238999),
    "false": (pa.array([False]), 3614696996920510707),
    "cast(-1 as tinyint)": (pa.array([-1], pa.int8()), 2017008487422258757),
    "cast(300 as smallint)": (pa.array([300], pa.int16()), 4595878464234128934),
    "-1": (pa.array([-1], pa.int32()), 2017008487422258757),
    "1L": (pa.array([1]), -7001672635703045582),
    "-9223372036854775808L": (pa.array([-(1 << 63)]), -8619748838626508300),
    "cast(1.5 as float)": (pa.array([1.5], pa.float32()), 6163473420726370430),
    "cast(0.0 as float)": (pa.array([0.0], pa.float32()), 3614696996920510707),
    "cast(-0.0 as float)": (pa.array([-0.0], pa.float32()), 3614696996920510707),
    "cast('NaN' as float)": (pa.array([np.nan], pa.float32()), 2692338816207849720),
    "a signalling float NaN": (raw(pa.float32(), 0xFF800001, 4), 2692338816207849720),
    "1.5D": (pa.array([1.5]), 7738255526519901366),
    "0.0D": (pa.array([0.0]), -5252525462095825812),
    "-0.0D": (pa.array([-0.0]), -5252525462095825812),
    "cast('NaN' as double)": (pa.array([np.nan]), -3127944061524951246),
    "a signalling double NaN": (raw(pa.float64(), 0xFFF << 52 | 1, 8), -3127944061524951246),
    "cast('-Infinity' as double)": (pa.array([-np.inf]), 5326262080505358431),
    "''": (pa.array([""]), -7444071767201028348),
    "'1'": (pa.array(["1"]), -928762887014768240),
    "'Zürich'": (pa.array(["Zürich"]), -2199928141300491114),
    "repeat('streamops ', 10)": (pa.array(["streamops " * 10]), -5952919329830185636),
    "X'00FF'": (pa.array([b"\x00\xff"]), 879945414100663330),
    "date'1969-12-31'": (pa.array([dt.date(1969, 12, 31)]), 2017008487422258757),
    "timestamp'1969-12-31 23:59:59.999999'": (pa.array([-1], NEW_YORK), 3858142552250413010),
    "timestamp_ntz'2013-01-01 05:15:00'": (
        pa.array([1_357_017_300_000_000], pa.timestamp("us")),
        -2062643837833220815,
    ),
    "time'12:34:56.123456'": (
        pa.array([dt.time(12, 34, 56, 123456)], pa.time64("us")),
        -2336691883376898889,
    ),
    "interval '-1 00:00:01' day to second": (
        pa.array([timedelta(-86_401_000_000)]),
        2893811486052215576,
    ),
    "cast(-123.45 as decimal(5,2))": (
        pa.array([Decimal("-123.45")], pa.decimal128(5, 2)),
        -4814648695243699264,
    ),
    "cast(123456789012345678 as decimal(18,0))": (
        pa.array([Decimal(123456789012345678)], pa.decimal128(18, 0)),
        2974817411982866413,
    ),
    "cast(0 as decimal(38,2))": (
        pa.array([Decimal(0)], pa.decimal128(38, 2)),
        -8959994473701255385,
    ),
    "cast(-1 as decimal(38,0))": (
        pa.array([Decimal(-1)], pa.decimal128(38, 0)),
        -4006032525457443936,
    ),
    "cast(1.28 as decimal(38,2))": (
        pa.array([Decimal("1.28")], pa.decimal128(38, 2)),
        6715097930120473301,
    ),
    "cast(-1.28 as decimal(38,2))": (
        pa.array([Decimal("-1.28")], pa.decimal128(38, 2)),
        -7898411661632158123,
    ),
    "cast(99999999999999999999999999999999999999 as decimal(38,0))": (
        pa.array([Decimal(10**38 - 1)], pa.decimal128(38, 0)),
        -47190729175993179,
    ),
    "named_struct('a', 1, 'b', cast(null as string), 'c', 'x')": (
        pa.array([{"a": 1, "b": None, "c": "x"}], PAIR),
        8510603489595372987,
    ),
    "cast(null as struct<a:int,b:string,c:string>)": (pa.array([None], PAIR), 42),
    "array()": (pa.array([[]], pa.list_(pa.null())), 42),
    "array('a', null, 'bc')": (pa.array([["a", None, "bc"]]), 714843003905237701),
    "array(array(1L), array(), array(2L, 3L))": (
        pa.array([[[1], [], [2, 3]]]),
        4904562767517797033,
    ),
    "null": (pa.array([None]), 42),
}


@pytest.mark.parametrize("expression", PINNED)
def test_the_hash_is_the_one_that_spark_computes(expression):
    array, expected = PINNED[expression]
    assert rows_of(array) == [expected]


def test_a_key_of_several_columns_hashes_as_in_sparks_own_documentation():
    key = [pa.array(["Spark"]), pa.array([[123]], pa.list_(pa.int32())), pa.array([2], pa.int32())]
    assert xxhash64(key).tolist() == [5602566077635097486]


@given(st.data(), st.integers(0, 12))
def test_a_key_of_any_types_is_hashed_value_by_value(data, rows):
    key = data.draw(st.lists(columns(rows), min_size=1, max_size=3))
    expected = [42] * rows
    for values, array in key:
        expected = [oracle(v, array.type, h) for v, h in zip(values, expected, strict=True)]
    result = xxhash64([array for _, array in key])
    assert result.dtype == np.int64
    assert result.tolist() == [signed(hash_) for hash_ in expected]


@given(columns(), st.data())
def test_slices_and_chunks_do_not_change_a_hash(column, data):
    values, array = column
    whole = rows_of(array)
    start = data.draw(st.integers(0, len(values)))
    stop = data.draw(st.integers(start, len(values)))
    assert rows_of(array.slice(start, stop - start)) == whole[start:stop]
    pieces = [array.slice(0, start), array.slice(start, stop - start), array.slice(stop)]
    assert rows_of(pa.chunked_array(pieces, array.type)) == whole


@pytest.mark.skipif(wheel is None, reason="the xxhash package is not installed")
@given(st.lists(st.none() | st.binary(max_size=300), max_size=20), st.integers())
def test_bytes_of_any_length_and_seed_hash_as_xxhash_does(values, seed):
    whole = seed & MASK
    expected = [whole if v is None else wheel.xxh64_intdigest(v, whole) for v in values]
    result = xxhash64([pa.array(values, pa.binary())], seed=seed)
    assert result.view(np.uint64).tolist() == expected


def test_every_length_of_string_is_hashed_to_its_last_byte():
    values = [bytes(range(1, size + 1)) for size in range(200)]
    expected = [signed(oracle_bytes(value, 42)) for value in values]
    assert rows_of(pa.array(values)) == expected
    assert [rows_of(pa.array([value]))[0] for value in values] == expected


@pytest.mark.parametrize("dtype", [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()])
def test_all_layouts_of_a_string_have_the_same_hash(dtype):
    values = pa.array(["EWR", None, "", "a name of more than thirty-two bytes", "EWR"])
    expected = rows_of(values)
    assert rows_of(values.cast(dtype)) == expected
    assert rows_of(values.cast(dtype).dictionary_encode()) == expected
    assert rows_of(values.cast(dtype).slice(1, 3)) == expected[1:4]


def test_a_null_in_the_dictionary_is_a_null():
    indices = pa.array([0, 1, None], pa.int8())
    column = pa.DictionaryArray.from_arrays(indices, pa.array(["1", None]))
    assert rows_of(column) == [-928762887014768240, 42, 42]


def test_dictionaries_in_nested_types_hash_as_their_values():
    texts = pa.array(["EWR", "JFK", "EWR", None])
    plain = pa.ListArray.from_arrays(pa.array([0, 3, 4], pa.int32()), texts)
    encoded = pa.ListArray.from_arrays(plain.offsets, texts.dictionary_encode())
    assert rows_of(encoded) == rows_of(plain)


def test_large_lists_hash_as_lists():
    plain = pa.array([[1, 2], None, [], [None, 3]])
    assert rows_of(plain.cast(pa.large_list(pa.int64()))) == rows_of(plain)


def test_the_value_under_a_null_is_not_hashed():
    validity = pa.py_buffer(bytes([0b10]))
    longs = pa.Array.from_buffers(pa.int64(), 2, [validity, pa.py_buffer(np.array([7, 1]))])
    assert rows_of(longs) == [42, -7001672635703045582]
    offsets = pa.py_buffer(np.array([0, 40, 41], np.int32))
    texts = pa.Array.from_buffers(
        pa.string(), 2, [validity, offsets, pa.py_buffer(b"x" * 40 + b"1")]
    )
    assert rows_of(texts) == [42, -928762887014768240]
    structs = pa.StructArray.from_arrays([pa.array([7, 1])], ["a"], mask=pa.array([True, False]))
    assert rows_of(structs) == [42, -7001672635703045582]
    lists = pa.ListArray.from_arrays(
        pa.array([0, 1, 2], pa.int32()), pa.array([7, 1]), mask=pa.array([True, False])
    )
    assert rows_of(lists) == [42, -7001672635703045582]


def test_the_hash_of_a_column_is_the_seed_of_the_next():
    texts, numbers = pa.array(["a", "b", None]), pa.array([1, None, 3])
    seeds = xxhash64([texts]).tolist()
    expected = [xxhash64([numbers.slice(i, 1)], seed=seeds[i])[0] for i in range(3)]
    assert xxhash64([texts, numbers]).tolist() == expected


def test_columns_may_have_different_chunks():
    texts = pa.array([f"word {i}" for i in range(10)])
    numbers = pa.array(range(10))
    expected = xxhash64([texts, numbers]).tolist()
    first = pa.chunked_array([texts.slice(0, 3), texts.slice(3, 0), texts.slice(3)])
    second = pa.chunked_array([numbers.slice(0, 8), numbers.slice(8)])
    assert xxhash64([first, second]).tolist() == expected


def test_a_long_column_hashes_as_its_parts_do():
    rng = np.random.default_rng(0)
    numbers = pa.array(rng.integers(-5, 5, 100_000), mask=rng.random(100_000) < 0.1)
    texts = numbers.cast(pa.string())
    parts = [xxhash64([numbers.slice(i, 999), texts.slice(i, 999)]) for i in range(0, 100_000, 999)]
    np.testing.assert_array_equal(xxhash64([numbers, texts]), np.concatenate(parts))


@pytest.mark.parametrize("dtype", [pa.int64(), pa.string(), pa.list_(pa.float64()), pa.null()])
def test_no_rows_have_no_hashes(dtype):
    assert rows_of(pa.array([], dtype)) == []
    assert rows_of(pa.chunked_array([], dtype)) == []


def test_times_of_any_unit_hash_as_microseconds():
    micros = rows_of(pa.array([-1_000_000, 0, 5_000_000], pa.timestamp("us")))
    for unit, per_second in (("s", 1), ("ms", 1_000), ("ns", 1_000_000_000)):
        values = [-per_second, 0, 5 * per_second]
        assert rows_of(pa.array(values, pa.timestamp(unit, "UTC"))) == micros
        assert rows_of(pa.array(values, pa.duration(unit))) == micros


def test_nanoseconds_before_1970_are_floored():
    nanos = pa.array([-1, -1_000, -1_001, 1_999], pa.timestamp("ns"))
    assert rows_of(nanos) == rows_of(pa.array([-1, -1, -2, 1], pa.timestamp("us")))


MARKED = pa.struct(
    [
        pa.field("value", pa.binary()),
        pa.field("metadata", pa.binary(), metadata={"variant": "true"}),
    ]
)


@pytest.mark.parametrize(
    "dtype",
    [
        pa.map_(pa.string(), pa.int64()),
        pa.list_(pa.map_(pa.string(), pa.int64())),
        pa.struct([("a", pa.struct([("b", pa.map_(pa.string(), pa.int64()))]))]),
        MARKED,
        pa.uint32(),
        pa.float16(),
        pa.date64(),
        pa.dictionary(pa.int8(), pa.uint32()),
    ],
    ids=str,
)
def test_types_that_spark_cannot_hash_are_refused_by_name(dtype):
    with pytest.raises(SchemaError) as caught:
        shard_of(pa.table({"k": pa.array([], dtype)}), ["k"], 4)
    assert caught.value.code == "TYPE_UNSUPPORTED"
    assert caught.value.where == "key column 'k'"
    with pytest.raises(SchemaError, match=r"TYPE_UNSUPPORTED.*key column 1"):
        xxhash64([pa.array([], pa.int64()), pa.array([], dtype)])


@pytest.mark.parametrize(("dtype", "_"), LEAVES, ids=str)
def test_every_type_that_spark_hashes_is_accepted(dtype, _):
    require_hashable(pa.list_(pa.struct([("a", dtype)])))


def test_the_shard_is_the_positive_remainder():
    table = pa.table({"k": range(1_000)})
    hashes = xxhash64([table.column("k")]).tolist()
    assert min(hashes) < 0 < max(hashes)
    shards = shard_of(table, ["k"], 7)
    assert shards.dtype == np.int32
    assert shards.tolist() == [hash_ % 7 for hash_ in hashes]
    assert set(shards.tolist()) == set(range(7))


def test_the_order_of_the_keys_matters_to_the_shard():
    table = pa.table({"a": range(1_000), "b": ["x"] * 1_000})
    forwards, backwards = (shard_of(table, names, 64) for names in (["a", "b"], ["b", "a"]))
    assert forwards.tolist() != backwards.tolist()


def test_without_keys_all_rows_are_in_one_shard():
    assert shard_of(pa.table({"a": [1, 2, 3]}), [], 16).tolist() == [0, 0, 0]


def test_a_missing_key_is_refused_with_the_nearest_name():
    with pytest.raises(ColumnNotFound, match="did you mean 'origin'"):
        shard_of(pa.table({"origin": ["EWR"]}), ["orgin"], 4)
