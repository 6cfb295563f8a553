"""The remedy for two key types keeps different values different and equal values equal."""

from __future__ import annotations

import itertools
from collections import defaultdict
from decimal import Decimal

import pyarrow as pa
import pytest

from streamops.kernel.columns import common_type, fix_types

UTC = pa.timestamp("us", "UTC")


@pytest.mark.parametrize(
    ("one", "other", "common"),
    [
        (pa.int32(), pa.int64(), pa.int64()),
        (pa.int8(), pa.int16(), pa.int16()),
        (pa.decimal128(10, 0), pa.decimal128(10, 2), pa.decimal128(12, 2)),
        (pa.decimal128(38, 0), pa.decimal128(38, 2), None),
        (pa.decimal128(4, 2), pa.int64(), pa.decimal128(21, 2)),
        (pa.decimal128(38, 20), pa.int64(), None),
        (pa.decimal128(5, 2), pa.float64(), None),
        (pa.float32(), pa.float64(), pa.float64()),
        (pa.int16(), pa.float32(), pa.float32()),
        (pa.int32(), pa.float32(), pa.float64()),
        (pa.int32(), pa.float64(), pa.float64()),
        (pa.int64(), pa.float64(), None),
        (pa.date32(), UTC, UTC),
        (pa.date32(), pa.timestamp("us"), pa.timestamp("us")),
        (pa.timestamp("us"), UTC, None),
        (pa.int64(), pa.string(), pa.string()),
        (pa.float64(), pa.string(), None),
        (UTC, pa.string(), None),
        (pa.string(), pa.binary(), pa.binary()),
        (pa.null(), pa.date32(), pa.date32()),
        (pa.bool_(), pa.int32(), None),
        (pa.list_(pa.int32()), pa.list_(pa.int64()), pa.list_(pa.int64())),
        (
            pa.struct({"a": pa.int32(), "b": pa.string()}),
            pa.struct({"a": pa.int64(), "b": pa.binary()}),
            pa.struct({"a": pa.int64(), "b": pa.binary()}),
        ),
        (pa.struct({"a": pa.int32()}), pa.struct({"b": pa.int32()}), None),
    ],
)
def test_the_common_type(one: pa.DataType, other: pa.DataType, common: pa.DataType | None) -> None:
    assert common_type(one, other) == common == common_type(other, one)


BORDERS = [0, 1, -1, *(sign * (1 << bits) + off for bits in (7, 15, 24, 31, 53, 63)
                       for sign in (1, -1) for off in (-1, 0, 1))]  # fmt: skip
NUMBERS = [
    *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()),
    *(pa.decimal128(p, s) for p in (1, 5, 19, 38) for s in (0, 1, 4, 19, 37) if s <= p),
]


def values_of(dtype: pa.DataType) -> pa.Array:
    """Values at the borders of a type."""
    found = []
    for value in (Decimal(of).scaleb(-by) for of in BORDERS for by in (0, 1, 4)):
        try:
            array = pa.array([value], pa.decimal128(38, 4)).cast(dtype)
        except pa.ArrowInvalid:
            continue
        found.append(array)
    return pa.concat_arrays(found)


def exactly(value: object) -> Decimal:
    return value if isinstance(value, Decimal) else Decimal(value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("one", "other"), [*itertools.product(NUMBERS, NUMBERS)], ids=lambda dtype: str(dtype)
)
def test_no_number_is_changed(one: pa.DataType, other: pa.DataType) -> None:
    common = common_type(one, other)
    if common is None:
        return
    images = defaultdict(set)
    for array in map(values_of, (one, other)):
        for before, after in zip(array.to_pylist(), array.cast(common).to_pylist(), strict=True):
            assert exactly(before) == exactly(after)
            images[exactly(after)].add(exactly(before))
    assert all(len(of) == 1 for of in images.values())


@pytest.mark.parametrize(
    ("types", "expected"),
    [
        (
            (pa.int32(), pa.int64()),
            "cast one of them: left.withColumn('a', F.col('a').cast('bigint'))",
        ),
        (
            (pa.decimal128(10, 0), pa.decimal128(10, 2)),
            "cast both: left.withColumn('a', F.col('a').cast('decimal(12,2)')), "
            "right.withColumn('b', F.col('b').cast('decimal(12,2)'))",
        ),
        (
            (pa.timestamp("us"), UTC),
            "no type has all values of timestamp_ntz and timestamp: convert one column, and decide "
            "what becomes of the others",
        ),
    ],
)
def test_the_remedy(types: tuple[pa.DataType, pa.DataType], expected: str) -> None:
    assert fix_types(("a", "b"), types, ("left", "right")) == expected
