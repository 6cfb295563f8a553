"""Write values as JSON with Spark: every value has one text, whatever the settings of the session.

==========================  ============================================================================
value                       JSON
==========================  ============================================================================
timestamp                   ``"2026-01-31T23:59:59.000001Z"``: in UTC, with six digits
timestamp_ntz               ``"2026-01-31T23:59:59.000001"``
date, time                  ``"2026-01-31"``, ``"23:59:59.000001"``
integer, decimal            a number with all its digits
float, double               a number with the digits that identify it; ``"NaN"``, ``"Infinity"``
binary                      a string in base64
interval                    a string, such as ``"INTERVAL '1 02:03:04.5' DAY TO SECOND"``
array, struct, map          an array; an object, also with the fields that are null; an object, sorted by
                            its names
key of a map                a string: the text above; of arrays and structs their JSON
variant                     the JSON of the value
==========================  ============================================================================
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from streamops.spark import conditions
from streamops.spark.columns import contains_type, fields_by_position, quote

OPTIONS = {
    "ignoreNullFields": "false",
    "timeZone": "UTC",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
_INVALID = "invalid UTF-8"  # which is no JSON


def to_json(value: Column, dtype: DataType, *, with_nulls: bool = True) -> Column:
    """A struct, an array or a map as JSON.

    Spark replaces bytes that are not UTF-8 by U+FFFD; see :func:`to_checked_json`.

    Parameters
    ----------
    value : Column
    dtype : DataType
        Its type.
    with_nulls : bool
        Whether fields that are null are written.
    """
    options = OPTIONS | ({} if with_nulls else {"ignoreNullFields": "true"})
    return F.to_json(_with_text_keys(value, dtype), options)


def exact_json(name: str, *, is_map: bool) -> str:
    """The expression by which users make text of a nested column: without options, Spark cuts values.

    Examples
    --------
    >>> exact_json("a", is_map=True).partition(", ")[0]
    "F.to_json(F.map_entries('a')"
    """
    # In JSON, a map with keys that are dates or binary has other ones.
    value = repr(name if name.isidentifier() else quote(name))
    value = f"F.map_entries({value})" if is_map else value
    return f"F.to_json({value}, {OPTIONS})"


def to_checked_json(value: Column, dtype: DataType) -> Column:
    """The same, for :func:`refuse_invalid_text`.

    Raises
    ------
    SchemaError
        ``DUPLICATE_COLUMN``: a struct has two fields of the same name.
    """
    if contains_type(dtype, _has_equal_names):
        raise conditions.TWO_FIELDS_OF_A_NAME.error(got=dtype.simpleString())
    invalid = _has_invalid_text(value, dtype)
    text = to_json(value, dtype)
    return text if invalid is None else F.when(invalid, F.lit(_INVALID)).otherwise(text)


def refuse_invalid_text(rows: pa.Table, names: list[str]) -> None:
    """Refuse columns of checked JSON in which a string is not UTF-8.

    Raises
    ------
    SinkError
        ``TARGET_REFUSED``.
    """
    for name in names:
        if pc.any(pc.equal(rows.column(name), pa.scalar(_INVALID))).as_py():
            raise conditions.TARGET_REFUSED.error(got=f"a string inside of {name!r}")


def _has_equal_names(dtype: DataType) -> bool:
    return isinstance(dtype, StructType) and len(set(dtype.names)) < len(dtype.names)


def _with_text_keys(value: Column, dtype: DataType) -> Column:
    """The value with maps that have strings as keys, in their order: Spark writes other keys as it stores them."""
    if not contains_type(dtype, lambda part: isinstance(part, MapType)):
        return value
    match dtype:
        case ArrayType():
            return F.transform(value, lambda item: _with_text_keys(item, dtype.elementType))
        case MapType():
            entries = F.transform(
                F.map_entries(value),
                lambda entry: F.struct(
                    _key_text(entry["key"], dtype.keyType).alias("key"),
                    _with_text_keys(entry["value"], dtype.valueType).alias("value"),
                ),
            )
            return F.map_from_entries(F.array_sort(entries, _compare_keys))
    assert isinstance(dtype, StructType), dtype
    parts = zip(fields_by_position(value, dtype), dtype.names, strict=True)
    fields = [_with_text_keys(part, inner).alias(name) for (part, inner), name in parts]
    return F.when(value.isNotNull(), F.struct(*fields))


def _compare_keys(left: Column, right: Column) -> Column:
    before = F.when(left["key"] < right["key"], -1)
    return before.when(left["key"] > right["key"], 1).otherwise(0)


def _key_text(key: Column, dtype: DataType) -> Column:
    """The text that the key has as a value of JSON, without quotes."""
    if isinstance(dtype, StringType):
        return key.cast("string")  # without its collation
    text = F.to_json(F.struct(key.alias("k")), OPTIONS)
    value = F.substring(text, len('{"k":') + 1, F.length(text) - len('{"k":}'))
    return F.btrim(value, F.lit('"'))


def _has_invalid_text(value: Column, dtype: DataType) -> Column | None:
    """Whether a string inside of the value is not UTF-8; None if there is no string."""

    def any_of(items: Column, inner: DataType) -> Column | None:
        if not contains_type(inner, lambda part: isinstance(part, StringType)):
            return None
        check: Any = lambda item: _has_invalid_text(item, inner)  # noqa: E731
        return F.coalesce(F.exists(items, check), F.lit(False))

    match dtype:
        case StringType():
            return F.coalesce(~F.is_valid_utf8(value), F.lit(False))
        case ArrayType():
            return any_of(value, dtype.elementType)
        case MapType():
            found = [
                any_of(F.map_keys(value), dtype.keyType),
                any_of(F.map_values(value), dtype.valueType),
            ]
        case StructType():
            found = [_has_invalid_text(*part) for part in fields_by_position(value, dtype)]
        case _:
            return None
    present = [part for part in found if part is not None]
    return reduce(Column.__or__, present) if present else None
