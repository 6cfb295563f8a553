"""The type to which two types are cast without loss: different values stay different, equal ones equal."""

from __future__ import annotations

import re

import pyarrow as pa
import pyarrow.types as pt

from streamops.kernel.columns import type_name

_INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_DIGITS = {pa.int8(): 3, pa.int16(): 5, pa.int32(): 10, pa.int64(): 19}
_EXACT = {pa.int8(): 24, pa.int16(): 24, pa.int32(): 53}
"""The bits that a float needs for all integers of a type: none has 64."""
_FLOATS = {pa.float32(): 24, pa.float64(): 53}
_MOST_DIGITS = 38


def common_type(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The least type of Spark that has all values of two types; None if there is none.

    Examples
    --------
    >>> common_type(pa.int32(), pa.int64()), common_type(pa.decimal128(10, 0), pa.decimal128(10, 2))
    (DataType(int64), Decimal128Type(decimal128(12, 2)))
    >>> common_type(pa.int64(), pa.float64())  # a double does not have 2^53 + 1
    """
    return one if one == other else _directed(one, other) or _directed(other, one)


def _directed(one: pa.DataType, other: pa.DataType) -> pa.DataType | None:
    """The common type, or None if it is that of `other` and `one`."""
    if pt.is_null(one) or (one, other) in (
        (pa.float32(), pa.float64()),
        (pa.string(), pa.binary()),  # not the reverse: not all bytes are text
        (pa.date32(), pa.timestamp("us")),
    ):
        return other
    if one == pa.date32() and pt.is_timestamp(other):
        return other  # the midnight in the time zone of the session
    if one in _INTEGERS and other in _INTEGERS:
        return max(one, other, key=_INTEGERS.index)
    if one in _EXACT and other in _FLOATS:
        return other if _EXACT[one] <= _FLOATS[other] else pa.float64()
    if pt.is_decimal(other) and (pt.is_decimal(one) or one in _DIGITS):
        digits, scale = (one.precision, one.scale) if pt.is_decimal(one) else (_DIGITS[one], 0)
        scale = max(scale, other.scale)
        digits = max(
            digits - (one.scale if pt.is_decimal(one) else 0), other.precision - other.scale
        )
        return pa.decimal128(digits + scale, scale) if digits + scale <= _MOST_DIGITS else None
    # Texts of floats distinguish -0.0 from 0.0, those of instants lose an hour when clocks are set back.
    if other == pa.string() and (one in _DIGITS or pt.is_boolean(one) or one == pa.date32()):
        return other
    if pt.is_list(one) and pt.is_list(other):
        item = common_type(one.value_type, other.value_type)
        return None if item is None else pa.list_(item)
    if pt.is_struct(one) and pt.is_struct(other):
        fields = [
            (of.name, common_type(of.type, to.type)) for of, to in zip(one, other, strict=False)
        ]
        same = [of.name for of in one] == [of.name for of in other]
        return pa.struct(fields) if same and all(dtype for _, dtype in fields) else None
    return None


def fix_types(
    columns: tuple[str, str], types: tuple[pa.DataType, pa.DataType], frames: tuple[str, str]
) -> str:
    """The remedy for two columns that must have one type.

    Examples
    --------
    >>> fix_types(("id", "id"), (pa.int64(), pa.int32()), ("left", "right"))
    "cast one of them: right.withColumn('id', F.col('id').cast('bigint'))"
    """
    common = common_type(*types)
    if common is None:
        names = " and ".join(map(type_name, types))
        return f"no type has all values of {names}: convert one column, and decide what becomes of the others"
    # "timestamp" is what spark.sql.timestampType says.
    name = re.sub(r"\btimestamp\b", "timestamp_ltz", type_name(common))
    casts = [
        f"{frame}.withColumn({column!r}, F.col({column!r}).cast({name!r}))"
        for column, dtype, frame in zip(columns, types, frames, strict=True)
        if dtype != common
    ]
    return f"cast {'one of them' if len(casts) == 1 else 'both'}: {', '.join(casts)}"
