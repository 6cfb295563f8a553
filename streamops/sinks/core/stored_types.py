"""Which Arrow types Delta tables and Parquet folders store, and which columns take them without loss."""

from __future__ import annotations

import pyarrow as pa

from streamops.kernel.columns import is_opaque

_PLAIN = {
    pa.bool_(),
    pa.int8(),
    pa.int16(),
    pa.int32(),
    pa.int64(),
    pa.float32(),
    pa.float64(),
    pa.date32(),
    pa.string(),
    pa.binary(),
}
_INTEGERS = [pa.int8(), pa.int16(), pa.int32(), pa.int64()]


def stored_type(dtype: pa.DataType) -> pa.DataType | None:
    """The type that Delta has for values of an Arrow type; None if there is none.

    Examples
    --------
    >>> stored_type(pa.timestamp("us", "Europe/Berlin")), stored_type(pa.list_(pa.large_string()))
    (TimestampType(timestamp[us, tz=UTC]), ListType(list<element: string>))
    >>> stored_type(pa.duration("us"))
    """
    if dtype in _PLAIN:
        return dtype
    if pa.types.is_null(dtype) or pa.types.is_large_string(dtype):
        return pa.string()
    if pa.types.is_large_binary(dtype):
        return pa.binary()
    if pa.types.is_decimal128(dtype):
        return dtype if 0 <= dtype.scale <= dtype.precision else None
    if pa.types.is_timestamp(dtype) and dtype.unit == "us":
        return pa.timestamp("us", None if dtype.tz is None else "UTC")
    if pa.types.is_list(dtype) or pa.types.is_large_list(dtype):
        items = stored_type(dtype.value_type)
        return None if items is None else pa.list_(pa.field("element", items))
    if pa.types.is_map(dtype):
        keys, items = stored_type(dtype.key_type), stored_type(dtype.item_type)
        return None if keys is None or items is None else pa.map_(keys, items)
    if pa.types.is_struct(dtype) and not is_opaque(dtype) and dtype.num_fields:
        parts = [(part.name, stored_type(part.type)) for part in dtype]
        return None if any(part is None for _, part in parts) else pa.struct(parts)
    return None


def accepts(found: pa.DataType, dtype: pa.DataType) -> bool:
    """Whether a column of the table takes values of a stored type without loss.

    Examples
    --------
    >>> accepts(pa.int64(), pa.int32()), accepts(pa.int32(), pa.int64())
    (True, False)
    >>> accepts(pa.decimal128(12, 2), pa.decimal128(10, 2)), accepts(pa.string(), pa.int32())
    (True, False)
    """
    if dtype in _INTEGERS and found in _INTEGERS:
        return _INTEGERS.index(found) >= _INTEGERS.index(dtype)
    if pa.types.is_decimal(dtype) and pa.types.is_decimal(found):
        room = found.precision - found.scale >= dtype.precision - dtype.scale
        return bool(room and found.scale >= dtype.scale)
    if dtype == pa.float32():
        return found in (dtype, pa.float64())
    return _without_names(found) == _without_names(dtype)


def _without_names(dtype: pa.DataType) -> object:
    """The type without what Arrow, and not Delta, distinguishes: whether fields can be null, names of items."""
    if pa.types.is_struct(dtype):
        return tuple((field.name, _without_names(field.type)) for field in dtype)
    if pa.types.is_map(dtype):
        return ("map", _without_names(dtype.key_type), _without_names(dtype.item_type))
    if pa.types.is_list(dtype):
        return ("list", _without_names(dtype.value_type))
    return dtype


def is_exact(dtype: pa.DataType) -> bool:
    """Whether two values are equal in DataFusion if and only if they are equal in Spark."""
    return not (pa.types.is_nested(dtype) or pa.types.is_floating(dtype))


def can_be_key(dtype: pa.DataType) -> bool:
    """Whether DataFusion compares values as Spark does once -0.0 and NaN at the top level are normalized."""
    return pa.types.is_floating(dtype) or _is_exact_inside(dtype)


def _is_exact_inside(dtype: pa.DataType) -> bool:
    if pa.types.is_map(dtype):
        return False
    if pa.types.is_struct(dtype):
        return all(_is_exact_inside(part.type) for part in dtype)
    if pa.types.is_list(dtype):
        return _is_exact_inside(dtype.value_type)
    return not pa.types.is_floating(dtype)
