"""Fields: columns whose values are compared as a whole, as strings or as 64-bit integers.

Numbers, booleans, dates and timestamps become integers of the same order, so that every range is a pair
of integers, both included.
"""

from __future__ import annotations

import datetime as dt
import math
import re
import struct
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamops.kernel.columns import combine_chunks, plain_floats, to_floats
from streamops.kernel.groups import Ids, Mask
from streamops.search.core.nodes import HIGHEST, LOWEST

EXPECTED = "string, boolean, an integer, float, double, date or timestamp"

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND = dt.timedelta(microseconds=1)
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?\Z", re.ASCII)

_NANOSECONDS = re.compile(r"[.,]\d{6}\d*[1-9]", re.ASCII)


@dataclass(frozen=True, slots=True)
class FieldType:
    """How the values of a field are parsed: None if it is a string."""

    expected: str
    parse: Callable[[str], int] | None = None


def field_type(dtype: pa.DataType) -> FieldType | None:
    """The type of a field; None if the column cannot be one."""
    if pa.types.is_string(dtype) or pa.types.is_large_string(dtype):
        return FieldType("a string")
    if pa.types.is_boolean(dtype):
        return FieldType("true or false", _parse_boolean)
    if pa.types.is_signed_integer(dtype):
        return FieldType("an integer", _parse_integer)
    if pa.types.is_floating(dtype):
        narrow = pa.types.is_float32(dtype)
        return FieldType("a number", _parse_single if narrow else _parse_double)
    if pa.types.is_date32(dtype):
        return FieldType("a date such as 2026-01-31", _parse_date)
    if pa.types.is_timestamp(dtype):
        return FieldType("a date or a time such as 2026-01-31T10:00:00Z", _parse_instant)
    return None


def to_integers(column: pa.Array | pa.ChunkedArray) -> tuple[Ids, Mask]:
    """Values as integers of the same order, and where there is one: NaN is none, as null."""
    array = combine_chunks(column)
    dtype, valid = array.type, np.asarray(array.is_valid())
    if pa.types.is_floating(dtype):
        values = to_floats(array)
        return _ordered_bits(values), valid & ~np.isnan(values)
    if pa.types.is_boolean(dtype):
        array = array.cast(pa.int8())
    elif pa.types.is_date32(dtype):
        array = array.cast(pa.int32())
    integers = array.cast(pa.int64()).fill_null(0)
    return np.asarray(integers), valid


def _ordered_bits(values: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> Ids:
    bits = plain_floats(values).view(np.int64)
    result: Ids = np.where(bits < 0, np.int64(LOWEST) - bits - 1, bits)
    return result


def _parse_boolean(text: str) -> int:
    return {"false": 0, "true": 1}[text.lower()]


def _parse_integer(text: str) -> int:
    if not _NUMBER.match(text):
        raise ValueError(text)
    number = int(text)
    if not LOWEST <= number <= HIGHEST:
        raise ValueError(text)
    return number


def _parse_double(text: str) -> int:
    if not _NUMBER.match(text):
        raise ValueError(text)
    number = float(text) + 0.0
    if math.isinf(number):
        raise ValueError(text)
    bits: int = struct.unpack("<q", struct.pack("<d", number))[0]
    return LOWEST - bits - 1 if bits < 0 else bits


def _parse_single(text: str) -> int:
    """A number as the nearest 32-bit float, so that `price:0.1` finds 0.1 in a column of these."""
    _parse_double(text)
    return _parse_double(repr(float(np.float32(text))))


def _parse_date(text: str) -> int:
    return (dt.date.fromisoformat(text) - _EPOCH.date()).days


def _parse_instant(text: str) -> int:
    if _NANOSECONDS.search(text):
        raise ValueError(text)  # Python would cut them
    instant = dt.datetime.fromisoformat(text)
    if instant.tzinfo is None:
        instant = instant.replace(tzinfo=dt.UTC)
    return (instant - _EPOCH) // _MICROSECOND
