"""Spark's order of values, as integers.

NaN is the largest number, -0.0 equals 0.0, strings and binary values compare by bytes, false
sorts before true, and nulls first. Structs compare field by field, lists item by item. Types
without an order in Spark have one here, too: maps compare as lists of their entries by key,
intervals by months, days and the rest. Equal values have equal integers for every type.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamops.kernel import conditions
from streamops.kernel.columns import (
    is_opaque,
    list_codes,
    list_items,
    plain_floats,
    to_floats,
    type_name,
)
from streamops.kernel.groups import Ints, ordered_pair_codes
from streamops.kernel.versions import is_text

_MAGNITUDE = np.int64(0x7FFFFFFFFFFFFFFF)
_LOWEST = np.iinfo(np.int64).min


def is_orderable(dtype: pa.DataType) -> bool:
    """Whether values of this type have an order in Spark."""
    return not (pa.types.is_nested(dtype) or pa.types.is_null(dtype) or pa.types.is_interval(dtype))


def is_comparable(dtype: pa.DataType) -> bool:
    """Whether values of this type can be compared for equality in Spark, including nested types."""
    if pa.types.is_struct(dtype):
        return not is_opaque(dtype) and all(is_comparable(field.type) for field in dtype)
    if pa.types.is_list(dtype) or pa.types.is_large_list(dtype):
        return is_comparable(dtype.value_type)
    return is_orderable(dtype)


def require_sequence(schema: pa.Schema, names: Sequence[str]) -> None:
    """Refuse columns that cannot order changes: those without an order, and text.

    As text, "10" is below "9", and databases order text by their collations.

    Raises
    ------
    SchemaError
        ``SEQUENCE_TYPE``.
    """
    for name in names:
        dtype = schema.field(name).type
        if is_comparable(dtype) and not _has_text(dtype):
            continue
        raise conditions.SEQUENCE_TYPE.error(
            column=name, got=f"{name!r} of type {type_name(dtype)}"
        )


def _has_text(dtype: pa.DataType) -> bool:
    """Whether values of this type are text, or contain some."""
    if pa.types.is_nested(dtype):
        return any(_has_text(dtype.field(at).type) for at in range(dtype.num_fields))
    return is_text(dtype)


def ranks(array: pa.Array) -> Ints:
    """Return integers in the order of the values. They are valid within this array only.

    Examples
    --------
    >>> ranks(pa.array(["b", "a", "b", None])).argsort(kind="stable").tolist()
    [3, 1, 0, 2]
    >>> ranks(pa.array([float("nan"), 1.0, float("inf")])).argsort().tolist()
    [1, 2, 0]
    """
    dtype = array.type
    if pa.types.is_floating(dtype):
        bits = plain_floats(to_floats(array)).view(np.int64)
        order = bits ^ ((bits >> 63) & _MAGNITUDE)
    elif _is_integral(dtype) and not _contains_lowest(array):
        order = np.array(array.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False))
    elif pa.types.is_null(dtype):
        order = np.zeros(len(array), np.int64)
    elif pa.types.is_interval(dtype):
        order = _interval_ranks(array)
    elif pa.types.is_struct(dtype):
        order = np.zeros(len(array), np.int64)
        for child in array.flatten():
            order = ordered_pair_codes(order, ranks(child))
    elif pa.types.is_nested(dtype):
        lengths, items = list_items(array, by=ranks)
        order = list_codes(
            np.unique(ranks(items), return_inverse=True)[1], lengths, ordered_pair_codes
        )
    else:
        encoded = pc.dictionary_encode(array)
        sorted_first = np.asarray(pc.sort_indices(encoded.dictionary))
        rank = np.empty(len(sorted_first), np.int64)
        rank[sorted_first] = np.arange(len(sorted_first))
        order = np.zeros(len(array), np.int64)
        valid = np.asarray(array.is_valid())
        order[valid] = rank[np.asarray(encoded.indices.drop_null())]
    order[np.asarray(array.is_null())] = _LOWEST
    return order


def _interval_ranks(array: pa.Array) -> Ints:
    if not len(array):
        return np.zeros(0, np.int64)
    parts = np.frombuffer(array.buffers()[1], [("months", "i4"), ("days", "i4"), ("rest", "i8")])
    months, days, rest = (
        parts[name][array.offset : array.offset + len(array)].astype(np.int64)
        for name in ("months", "days", "rest")
    )
    return ordered_pair_codes(ordered_pair_codes(months, days), rest)


def _is_integral(dtype: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(dtype)
        or pa.types.is_boolean(dtype)
        or pa.types.is_timestamp(dtype)
        or pa.types.is_duration(dtype)
    )


def _contains_lowest(array: pa.Array) -> bool:
    """Whether the integer that represents null occurs as a value."""
    if not array.null_count or pa.types.is_boolean(array.type):
        return False
    least = pc.min(array.cast(pa.int64())).as_py()
    return least is not None and least == _LOWEST
