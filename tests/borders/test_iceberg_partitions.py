"""Partition transforms of Iceberg's specification, each with each of its types, at and near all extremes."""

from __future__ import annotations

import calendar
import random
import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streamops.errors import SinkError
from streamops.kernel.versions import has_views
from streamops.sinks.core import iceberg_partitions
from tests.borders import cases

mmh3 = pytest.importorskip("mmh3")
partitioning = pytest.importorskip("pyiceberg.partitioning")
schemas = pytest.importorskip("pyiceberg.schema")
transforms = pytest.importorskip("pyiceberg.transforms")
types = pytest.importorskip("pyiceberg.types")

pytestmark = pytest.mark.skipif(not has_views(), reason="the sink needs Arrow 16")

INT, LONGEST, DAY, HOUR = 2**31, 2**63, 86_400_000_000, 3_600_000_000
RANDOM = cases(20, 2_000)
UTC = pa.timestamp("us", "UTC")
NUMBERS = [(types.IntegerType(), pa.int32(), INT), (types.LongType(), pa.int64(), LONGEST)]
TIMES = [
    (types.DateType(), pa.date32(), INT),
    (types.TimestampType(), pa.timestamp("us"), LONGEST),
    (types.TimestamptzType(), UTC, LONGEST),
]
PRECISIONS = [(1, 0), (5, 2), (18, 0), (38, 0), (38, 38)]
TEXTS = ["", "a", "iceberg", "\x00", "\U0001f9ca" * 9, "é" * 300, "e\u0301" * 8]


def year_and_month(days: int) -> tuple[int, int]:
    """By whole cycles of 400 years, and the calendar of one of them."""
    cycles, rest = divmod(days, 146_097)
    year = 1970
    while rest >= (length := 366 if calendar.isleap(year) else 365):
        rest, year = rest - length, year + 1
    month = 1
    while rest >= (length := calendar.monthrange(2000 if calendar.isleap(year) else 2001, month)[1]):  # fmt: skip
        rest, month = rest - length, month + 1
    return year + 400 * cycles - 1970, month - 1


def period_of(number: int, name: str, is_date: bool) -> int:
    days = number if is_date else number // DAY
    if name == "hour":
        return number // HOUR
    if name == "day":
        return days
    years, month = year_and_month(days)
    return years if name == "year" else 12 * years + month


def bucket_of(value: Any, count: int) -> int:
    """Murmur3 of the bytes that appendix B of the specification names."""
    if isinstance(value, Decimal):
        unscaled = int("".join(map(str, value.as_tuple().digits))) * (
            -1 if value.is_signed() else 1
        )
        length = 1
        while not -(1 << 8 * length - 1) <= unscaled < 1 << 8 * length - 1:
            length += 1
        content = unscaled.to_bytes(length, "big", signed=True)
    elif isinstance(value, int):
        content = struct.pack("<q", value)
    else:
        content = value.encode() if isinstance(value, str) else value
    return int((mmh3.hash(content) & INT - 1) % count)


def near(bound: int, rng: random.Random) -> list[int]:
    """Numbers of a signed type, most of them at borders."""
    borders = [0, bound, -bound, DAY, -DAY, HOUR, 1 << 16, 253_402_300_800_000_000, 2_932_897]
    found = [at + step for at in borders for step in (-1, 0, 1)]
    found += [rng.randrange(-bound, bound) >> rng.randrange(63) for _ in range(RANDOM)]
    return [number for number in found if -bound <= number < bound]


def transformed(dtype: Any, values: pa.Array, transform: Any) -> pa.Array:
    schema = schemas.Schema(types.NestedField(1, "v", dtype))
    part = partitioning.PartitionField(1, 1000, transform, "p")
    return iceberg_partitions._transformed(pa.table({"v": values}), schema, part)


def agree(
    dtype: Any,
    values: list[Any],
    make: Callable[[list[Any]], pa.Array],
    transform: Any,
    expected: Callable[[Any], Any],
    *,
    is_stored: Callable[[Any], bool] = lambda _: True,
) -> int:
    """Compare all values, and refuse those whose result is not stored, each alone."""
    results = [expected(value) for value in values]
    good = [(v, r) for v, r in zip(values, results, strict=True) if is_stored(r)]
    found = transformed(dtype, make([*(v for v, _ in good), None]), transform)
    assert found.to_pylist() == [*(r for _, r in good), None]
    for value, result in zip(values, results, strict=True):
        if not is_stored(result):
            with pytest.raises(SinkError, match="TARGET_REFUSED"):
                transformed(dtype, make([value]), transform)
    return len(values)


@pytest.mark.parametrize("width", [1, 3, 10, 2**31 - 1])
@pytest.mark.parametrize(("dtype", "arrow", "bound"), NUMBERS, ids=lambda value: str(value)[:24])
def test_numbers_are_truncated_and_in_buckets(dtype: Any, arrow: Any, bound: int, width: int) -> None:  # fmt: skip
    values = near(bound, random.Random(width))
    truncate, bucket = transforms.TruncateTransform(width), transforms.BucketTransform(width)

    def make(numbers: list[Any]) -> pa.Array:
        return pa.array(numbers, arrow)

    # Java wraps around below the lowest number. Readers that look for numbers below another one would miss it.
    agree(dtype, values, make, truncate, lambda v: v - v % width, is_stored=lambda r: r >= -bound)
    agree(dtype, values, make, bucket, lambda v: bucket_of(v, width))
    agree(dtype, values, make, transforms.IdentityTransform(), lambda v: v)


@pytest.mark.parametrize("name", ["year", "month", "day", "hour", "bucket", "identity"])
@pytest.mark.parametrize(("dtype", "arrow", "bound"), TIMES, ids=lambda value: str(value)[:24])
def test_dates_and_instants(dtype: Any, arrow: Any, bound: int, name: str) -> None:
    is_date = arrow == pa.date32()
    if is_date and name == "hour":
        pytest.skip("a date has no hour")
    whole = pa.int32() if is_date else pa.int64()

    def make(numbers: list[Any]) -> pa.Array:
        return pa.array(numbers, whole).cast(arrow)

    def expected(number: int) -> int:
        if name == "identity":
            return number
        return bucket_of(number, 16) if name == "bucket" else period_of(number, name, is_date)

    made = {"identity": "Identity"}.get(name, name.capitalize())
    transform = getattr(transforms, f"{made}Transform")(*([16] if name == "bucket" else []))
    fits = {"identity": LONGEST}.get(name, INT)
    agree(dtype, near(bound, random.Random(1)), make, transform, expected, is_stored=lambda r: -fits <= r < fits)  # fmt: skip


@pytest.mark.parametrize(("precision", "scale"), PRECISIONS)
@pytest.mark.parametrize("width", [1, 50, 2**31 - 1])
def test_decimals(precision: int, scale: int, width: int) -> None:
    dtype, arrow = types.DecimalType(precision, scale), pa.decimal128(precision, scale)
    rng, bound = random.Random(width), 10**precision
    numbers = [*near(bound, rng), *(s * n for n in (127, 128, 255, 256, 32_768) for s in (1, -1))]
    values = [Decimal((n < 0, tuple(map(int, str(abs(n)))), -scale)) for n in numbers if abs(n) < bound]  # fmt: skip

    def unscaled(value: Decimal) -> int:
        return int("".join(map(str, value.as_tuple().digits))) * (-1 if value.is_signed() else 1)

    def truncated(value: Decimal) -> Decimal:
        number = unscaled(value) - unscaled(value) % width
        return Decimal((number < 0, tuple(map(int, str(abs(number)))), -scale))

    def make(found: list[Any]) -> pa.Array:
        return pa.array(found, arrow)

    truncate = transforms.TruncateTransform(width)
    agree(dtype, values, make, truncate, truncated, is_stored=lambda r: abs(unscaled(r)) < bound)
    agree(dtype, values, make, transforms.BucketTransform(width), lambda v: bucket_of(v, width))


@pytest.mark.parametrize("width", [1, 2, 100])
def test_texts_and_bytes(width: int) -> None:
    truncate, bucket = transforms.TruncateTransform(width), transforms.BucketTransform(width)
    data = [text.encode() for text in TEXTS] + [b"\xff\x00", bytes(range(256))]
    for dtype, arrow, values in ((types.StringType(), pa.string(), TEXTS), (types.BinaryType(), pa.binary(), data)):  # fmt: skip

        def make(found: list[Any], arrow: Any = arrow) -> pa.Array:
            return pa.array(found, arrow)

        agree(dtype, values, make, truncate, lambda v: v[:width])
        agree(dtype, values, make, bucket, lambda v: bucket_of(v, width))


def test_values_of_the_specification() -> None:
    """Appendix B: hashes of 34, 14.20, "iceberg" and the date 2017-11-16."""
    assert mmh3.hash(struct.pack("<q", 34)) == 2_017_239_379
    found = {34: 2_017_239_379, Decimal("14.20"): -500_754_589, "iceberg": 1_210_000_089}
    for value, code in found.items():
        assert bucket_of(value, 1000) == (code & INT - 1) % 1000
    assert np.datetime64("2017-11-16").astype(int) == 17_486
    assert bucket_of(17_486, 1000) == (-653_330_422 & INT - 1) % 1000
