"""Read JSON with Spark: a value in its type, or none if it is not exactly the one in the text.

Spark's JSON reader interprets numbers as seconds, completes a time of day with today's date, rounds
decimals, and makes large floats infinite. So such values are read in a wider type, and then converted
or refused.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql import types as T
from pyspark.sql.types import DataType, StringType, StructType

from streamops.kernel.errors import SpecError
from streamops.spark.columns import contains_type, map_type

__all__ = ["convert", "is_invalid", "is_single_value", "parse_row_type", "raw_type"]

_MARK = "_streamops_end"

# A decimal is read as a variant, which has all its digits; a string has those of a double.
_RAW = {T.TimestampType: StringType(), T.DecimalType: T.VariantType(), T.FloatType: T.DoubleType()}
_DATED = r"^[+-]?[0-9]{4,6}-[0-9]{1,2}-[0-9]{1,2}"
# "12E4" and "1E+5" may be bytes in base64, and are not a notation of decimals with a fixed scale.
_SCIENTIFIC = r"^-?[0-9]+(\.[0-9]+[eE][+-]?|[eE]-)[0-9]+$"


def parse_row_type(schema: str | StructType, *, where: str) -> StructType:
    """The type of a row, with strings of any length, and of types that JSON has.

    Raises
    ------
    SpecError
        ``NOT_A_SCHEMA`` or ``KEYS_NOT_TEXT``.
    """
    row: Any = schema
    reason = ""
    if isinstance(schema, str) and schema.strip():
        try:
            row = DataType.fromDDL(schema)
        except Exception as error:  # PySpark's own error type moved between releases
            reason = ": " + str(error).strip().partition("\n")[0]
    if not isinstance(row, StructType) or not row.fields:
        raise SpecError(
            "NOT_A_SCHEMA",
            "`schema` does not define the columns of a row",
            where=where,
            got=f"schema={schema!r}{reason}",
            expected="a StructType, or columns and types as in SQL",
            fix='schema="id bigint, name string"',
        )
    result = map_type(
        row, lambda leaf: StringType() if isinstance(leaf, T.CharType | T.VarcharType) else leaf
    )
    assert isinstance(result, StructType)
    for part in result.fields:
        if not _has_text_keys(part.dataType):
            raise SpecError(
                "KEYS_NOT_TEXT",
                f"column {part.name!r} has a map whose keys are not strings, as those of JSON are",
                where=where,
                got=f"{part.name!r} of type {part.dataType.simpleString()}",
                expected="map<string, ...>",
                fix="declare the keys as string, and cast them after this operator",
            )
    return result


def _has_text_keys(dtype: DataType) -> bool:
    """Whether all maps in the type have strings as keys, as in JSON."""
    return not contains_type(
        dtype, lambda part: isinstance(part, T.MapType) and not isinstance(part.keyType, StringType)
    )


def raw_type(dtype: DataType) -> DataType:
    """The type in which values of a type are read, nullable at every depth."""
    return map_type(dtype, lambda leaf: _RAW.get(type(leaf), leaf), relax=True)


def convert(value: Column, dtype: DataType) -> Column:
    """The value in its type; null if it is not a value of the type."""
    if not _is_converted(dtype):
        return value
    match dtype:
        case T.TimestampType():
            return F.when(value.rlike(_DATED), value.try_cast(dtype))
        case T.DecimalType():
            return _to_decimal(_text(value), dtype)
        case T.FloatType():
            narrow = value.cast(dtype)
            return F.when(~_is_infinite(narrow) | _is_infinite(value), narrow)
        case T.ArrayType():
            return F.transform(value, lambda item: convert(item, dtype.elementType))
        case T.MapType():
            return F.transform_values(value, lambda _, item: convert(item, dtype.valueType))
        case StructType():
            parts = (convert(value[f.name], f.dataType).alias(f.name) for f in dtype.fields)
            return F.when(value.isNotNull(), F.struct(*parts))
    return value


def is_invalid(value: Column, dtype: DataType) -> Column | None:
    """Whether a value, or one inside it, is not of the type; None if Spark's reader refuses those.

    A null inside the value that may not be null is invalid.
    """
    match dtype:
        case T.ArrayType():
            return _any_invalid(value, dtype.elementType, dtype.containsNull)
        case T.MapType():
            return _any_invalid(F.map_values(value), dtype.valueType, dtype.valueContainsNull)
        case StructType():
            parts = (_is_invalid_part(value[f.name], f.dataType, f.nullable) for f in dtype.fields)
            found = [part for part in parts if part is not None]
            return value.isNotNull() & reduce(Column.__or__, found) if found else None
        case T.DecimalType():
            return _text(value).isNotNull() & convert(value, dtype).isNull()
    return value.isNotNull() & convert(value, dtype).isNull() if _is_converted(dtype) else None


def _any_invalid(values: Column, dtype: DataType, is_nullable: bool) -> Column | None:
    if _is_invalid_part(values, dtype, is_nullable) is None:
        return None

    def check(item: Column) -> Column:
        invalid = _is_invalid_part(item, dtype, is_nullable)
        assert invalid is not None
        return invalid

    return F.coalesce(F.exists(values, check), F.lit(False))


def _is_invalid_part(value: Column, dtype: DataType, is_nullable: bool) -> Column | None:
    invalid = is_invalid(value, dtype)
    if is_nullable:
        return invalid
    # JSON's null is a variant that is not null.
    missing = (_text(value) if isinstance(dtype, T.DecimalType) else value).isNull()
    return missing if invalid is None else invalid | missing


def _is_converted(dtype: DataType) -> bool:
    return contains_type(dtype, lambda part: type(part) in _RAW)


def _text(value: Column) -> Column:
    return F.try_variant_get(value, "$", "string")


def _to_decimal(text: Column, dtype: T.DecimalType) -> Column:
    """The decimal, if no digit is lost."""
    value = text.try_cast(dtype)
    is_plain = text.rlike(rf"^-?[0-9]+(\.[0-9]{{0,{dtype.scale}}}0*)?$")
    # The notation of doubles, and of decimals near zero.
    is_same = value.cast("double") == text.try_cast("double")
    return F.when(is_plain | (text.rlike(_SCIENTIFIC) & is_same), value)


def _is_infinite(value: Column) -> Column:
    return F.abs(value) == F.lit(float("inf"))


def is_single_value(text: Column) -> Column:
    """Whether the text is one JSON object or null, and nothing follows it.

    Spark parses the first value only. In a list that ends with a mark, text that follows the value is
    another element, or not JSON.
    """
    listed = F.concat(F.lit("["), text, F.lit(f',{{"{_MARK}":true}}]'))
    read = F.from_json(listed, f"array<struct<{_MARK}: boolean>>")
    return F.coalesce(F.get(read, F.lit(1))[_MARK], F.lit(False))
