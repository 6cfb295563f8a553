"""Values as text, for errors: exactly, and for every value that a column can have.

Python's types do not have all of them: no instant after the year 9999, and no interval of 10^12 days.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa


def format_value(value: pa.Scalar) -> str:
    """Return a value as Python writes it, or as NumPy does if Python does not have it.

    Examples
    --------
    >>> format_value(pa.scalar("a")), format_value(pa.scalar([253402300800000000, None], pa.list_(pa.timestamp("us"))))
    ("'a'", '[10000-01-01T00:00:00.000000, None]')
    """
    return repr(python_value(value))


def format_rows(table: pa.Table) -> str:
    """Return the rows of a small table as a list of dicts.

    Examples
    --------
    >>> format_rows(pa.table({"k": [1, 2], "d": pa.array([None, 2**31 - 1], pa.date32())}))
    "[{'k': 1, 'd': None}, {'k': 2, 'd': 5881580-07-11}]"
    """
    return repr(python_rows(table))


def format_row(table: pa.Table, row: int = 0) -> str:
    """Return a row as a dict."""
    rows = python_rows(table.slice(int(row), 1))
    return repr(rows[0] if rows else {})  # without columns, a table has no rows


def python_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Return the rows of a small table with values of Python, and text in the place of others."""
    columns = [[*map(python_value, column)] for column in table.columns]
    names = table.column_names
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


class _Text(str):
    __slots__ = ()
    __repr__ = str.__str__


def python_value(value: pa.Scalar) -> Any:
    """Return a value of Python, or text in its place."""
    dtype = value.type
    if pa.types.is_dictionary(dtype):
        return python_value(value.value)
    if pa.types.is_nested(dtype) and value.is_valid:
        if pa.types.is_struct(dtype):
            return {dtype.field(at).name: python_value(value[at]) for at in range(dtype.num_fields)}
        items = [python_value(item) for item in value.values]
        return [tuple(item.values()) for item in items] if pa.types.is_map(dtype) else items
    try:
        found = value.as_py()
    except (ValueError, OverflowError, KeyError):  # of a time zone that Python does not have
        found = _Text()
    is_time = pa.types.is_time(dtype) and value.is_valid
    # 24:00 would be 00:00.
    if not isinstance(found, _Text) and (not is_time or pa.scalar(found, dtype).equals(value)):
        return found
    if pa.types.is_string(dtype) or pa.types.is_large_string(dtype):  # whose bytes are not UTF-8
        return value.cast(pa.large_binary()).as_py()
    narrow = dtype.bit_width == 32
    number = value.cast(pa.int32() if narrow else pa.int64()).as_py()
    if is_time or pa.types.is_duration(dtype) or number == -(1 << 63):
        return _Text(f"{number} {dtype.unit}")
    unit: Any
    unit, zone = ("D", "") if narrow else (dtype.unit, "Z" if dtype.tz else "")
    return _Text(f"{np.datetime64(number, unit)}{zone}")
