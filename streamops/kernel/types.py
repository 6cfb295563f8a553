"""Spark's names of Arrow types."""

from __future__ import annotations

import pyarrow as pa

__all__ = ["type_name"]

_NAMES: dict[pa.DataType, str] = {
    pa.null(): "void",
    pa.bool_(): "boolean",
    pa.int8(): "tinyint",
    pa.int16(): "smallint",
    pa.int32(): "int",
    pa.int64(): "bigint",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
    pa.date32(): "date",
    pa.timestamp("us"): "timestamp_ntz",
}


def type_name(dtype: pa.DataType) -> str:
    """Return Spark's name of the type, or Arrow's if Spark has none.

    Examples
    --------
    >>> type_name(pa.list_(pa.int64())), type_name(pa.timestamp("us", "UTC"))
    ('array<bigint>', 'timestamp')
    """
    if pa.types.is_duration(dtype):
        return "interval day to second"
    if pa.types.is_decimal(dtype):
        return f"decimal({dtype.precision},{dtype.scale})"
    if pa.types.is_timestamp(dtype):
        return "timestamp_ntz" if dtype.tz is None else "timestamp"
    if pa.types.is_time64(dtype):
        return "time(6)"
    if (
        pa.types.is_list(dtype)
        or pa.types.is_large_list(dtype)
        or pa.types.is_fixed_size_list(dtype)
    ):
        return f"array<{type_name(dtype.value_type)}>"
    if pa.types.is_map(dtype):
        return f"map<{type_name(dtype.key_type)},{type_name(dtype.item_type)}>"
    if pa.types.is_struct(dtype):
        if any((field.metadata or {}).get(b"variant") == b"true" for field in dtype):
            return "variant"
        return f"struct<{','.join(f'{field.name}:{type_name(field.type)}' for field in dtype)}>"
    return _NAMES.get(dtype, str(dtype))
