"""Hash and shard of random keys of every type, compared with Spark."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import functions as F

from streamops.kernel.hashing import shard_of, xxhash64

pytestmark = pytest.mark.spark

ROWS = 2_500
SHARDS = 64
RANDOM = random.Random(42)


def signs(numbers: Sequence[int]) -> list[int]:
    return [RANDOM.choice((1, -1)) * number for number in numbers]


def integers(bits: int) -> list[int]:
    largest = (1 << (bits - 1)) - 1
    edges = [0, 1, -1, largest, -largest - 1]
    sizes = [RANDOM.randint(1, bits - 1) for _ in range(ROWS - len(edges))]
    return [*edges, *signs([RANDOM.getrandbits(size) for size in sizes])]


def decimals(precision: int, scale: int) -> pa.Array:
    """Numbers of any number of digits, and those around which another byte is needed."""
    borders = [sign * (1 << bits) + by for bits in range(128) for sign in (1, -1) for by in (-1, 0)]
    fitting = [number for number in borders if abs(number) < 10**precision]
    digits = [RANDOM.randint(1, precision) for _ in range(ROWS - len(fitting))]
    numbers = [*fitting, *signs([RANDOM.randrange(10**size) for size in digits])]
    data = b"".join(number.to_bytes(16, "little", signed=True) for number in numbers)
    return pa.Array.from_buffers(pa.decimal128(precision, scale), ROWS, [None, pa.py_buffer(data)])


def floats(dtype: Any) -> pa.Array:
    """Bits of all kinds: zeros of both signs, NaNs with any payload, denormals."""
    info = np.finfo(dtype)
    edges = [0.0, -0.0, np.nan, np.inf, -np.inf, info.max, info.min, info.smallest_subnormal]
    bits = np.frombuffer(RANDOM.randbytes(ROWS * info.bits // 8), dtype).copy()
    bits[: len(edges)] = edges
    exponents = bits.view(f"u{info.bits // 8}")
    exponents[100:200] |= 0x7FF << 52 if info.bits == 64 else 0xFF << 23  # a hundred NaNs
    return pa.array(bits)


def texts(longest: int) -> list[str]:
    letters = "abcdefghij 0123456789 äöüß € 漢字 🛫"
    return ["".join(RANDOM.choices(letters, k=i % longest)) for i in range(ROWS)]


def some_null(array: pa.Array) -> pa.Array:
    keep = pa.array([RANDOM.random() > 0.1 for _ in range(len(array))])
    return pc.if_else(keep, array, pa.scalar(None, array.type))


def lists(elements: pa.Array) -> pa.Array:
    """Lists of up to five elements; the elements are used up and begun again."""
    stops = np.cumsum([0, *(RANDOM.randint(0, 5) for _ in range(ROWS))])
    picked = elements.take(pa.array(np.arange(stops[-1]) % len(elements)))
    return pa.ListArray.from_arrays(pa.array(stops, pa.int32()), picked)


def every_type() -> dict[str, pa.Array]:
    longs = integers(64)
    days = [number % 2_932_896 for number in integers(32)]
    micros = [number % (1 << 57) - (1 << 55) for number in longs]  # of the years 828 to 5395
    plain = {
        "boolean": pa.array([RANDOM.random() < 0.5 for _ in range(ROWS)]),
        "byte": pa.array(integers(8), pa.int8()),
        "short": pa.array(integers(16), pa.int16()),
        "int": pa.array(integers(32), pa.int32()),
        "long": pa.array(longs),
        "float": floats(np.float32),
        "double": floats(np.float64),
        "string": pa.array(texts(40)),
        "text": pa.array(texts(700)),
        "binary": pa.array([RANDOM.randbytes(i % 130) for i in range(ROWS)]),
        "date": pa.array(days, pa.date32()),
        "time": pa.array([1_000 * (n % 86_400_000_000) for n in longs], pa.time64("ns")),
        "timestamp": pa.array(micros, pa.timestamp("us", "UTC")),
        "timestamp_ntz": pa.array(micros, pa.timestamp("us")),
        "interval": pa.array(longs, pa.duration("us")),
        "decimal_5_2": decimals(5, 2),
        "decimal_18_4": decimals(18, 4),
        "decimal_19_0": decimals(19, 0),
        "decimal_38_10": decimals(38, 10),
    }
    columns = {name: some_null(array) for name, array in plain.items()}
    leaves = ["string", "decimal_38_10", "float", "timestamp"]
    structs = pa.StructArray.from_arrays([columns[name] for name in leaves], leaves)
    columns["struct"] = some_null(structs)
    columns["null"] = pa.nulls(ROWS)
    for name in ("int", "string", "struct"):
        columns[f"array_of_{name}"] = some_null(lists(columns[name]))
    columns["array_of_arrays"] = some_null(lists(columns["array_of_string"]))
    deep = pa.StructArray.from_arrays([columns["array_of_struct"], columns["double"]], ["a", "b"])
    columns["struct_of_arrays"] = some_null(deep)
    return columns


COLUMNS = every_type()
KEYS = {
    **{name: [name] for name in COLUMNS},
    "string, long": ["string", "long"],
    "long, string": ["long", "string"],
    "date, null, boolean, decimal_19_0": ["date", "null", "boolean", "decimal_19_0"],
    "all": list(COLUMNS),
}


@pytest.fixture(scope="module")
def answered(spark) -> tuple[pa.Table, pa.Table]:
    """What Spark computes per key: the hash, the shard, and the columns it passes to Python."""
    table = pa.table({"row": range(ROWS), **COLUMNS})
    frame = spark.createDataFrame(table)
    hashes = [F.xxhash64(*names).alias(f"hash of {key}") for key, names in KEYS.items()]
    shards = [
        F.pmod(F.xxhash64(*names), F.lit(SHARDS)).alias(f"shard of {key}")
        for key, names in KEYS.items()
    ]
    result = frame.select("*", *hashes, *shards).toArrow().sort_by("row")
    assert result.num_rows == ROWS
    return table, result


@pytest.mark.parametrize("key", KEYS)
def test_hash_and_shard_of_random_keys_are_those_of_spark(answered, key):
    table, spark_values = answered
    names = KEYS[key]
    expected = np.asarray(spark_values.column(f"hash of {key}"))
    assert len(np.unique(expected)) > 1 or key == "null"
    np.testing.assert_array_equal(xxhash64([table.column(name) for name in names]), expected)
    shards = np.asarray(spark_values.column(f"shard of {key}"))
    np.testing.assert_array_equal(shard_of(table, names, SHARDS), shards)
    # The same columns as Spark hands them to Python: other chunks, other buffers.
    np.testing.assert_array_equal(shard_of(spark_values, names, SHARDS), shards)


@pytest.mark.parametrize("key", KEYS)
def test_slices_of_random_keys_hash_as_in_spark(answered, key):
    table, spark_values = answered
    expected = np.asarray(spark_values.column(f"hash of {key}"))
    for start, size in ((0, 1), (1, 63), (777, 1_001), (ROWS - 5, 5)):
        columns = [table.column(name).chunk(0).slice(start, size) for name in KEYS[key]]
        np.testing.assert_array_equal(xxhash64(columns), expected[start : start + size])


def test_spark_refuses_to_hash_a_map_too(spark):
    with pytest.raises(AnalysisException, match="HASH_MAP_TYPE"):
        spark.range(1).select(F.xxhash64(F.create_map("id", "id"))).schema  # noqa: B018
