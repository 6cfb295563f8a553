"""Values of JSON that Spark would take for others: read as they were sent, and then made, or not.

Spark takes a number for seconds, a time of day for one of today, rounds decimals that are too fine,
and makes a float that is too large infinite. What is read here is such a value before that.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    MapType,
    StringType,
    StructType,
    TimestampType,
    VariantType,
)

from streamops.spark.columns import map_type

__all__ = ["as_sent", "made", "misfits"]

# A decimal as a variant: it has the digits of a number as they were sent, of which a string has no
# more than a double.
_SENT = {TimestampType: StringType(), DecimalType: VariantType(), FloatType: DoubleType()}
_DATED = r"^[+-]?[0-9]{4,6}-[0-9]{1,2}-[0-9]{1,2}"
# "12E4" and "1E+5" are what bytes look like in base64, too, and no way to write a fixed scale.
_SCIENTIFIC = r"^-?[0-9]+(\.[0-9]+[eE][+-]?|[eE]-)[0-9]+$"


def as_sent(kind: DataType) -> DataType:
    """The type by which values of a type are read, with nulls allowed at every depth."""
    return map_type(kind, lambda each: _SENT.get(type(each), each), relax=True)


def made(value: Column, kind: DataType) -> Column:
    """What was read as a value of the type; null where it is none."""
    if not _is_special(kind):
        return value
    match kind:
        case TimestampType():
            return F.when(value.rlike(_DATED), value.try_cast(kind))
        case DecimalType():
            return _decimal(_text(value), kind)
        case FloatType():
            narrow = value.cast(kind)
            return F.when(~_is_infinite(narrow) | _is_infinite(value), narrow)
        case ArrayType():
            return F.transform(value, lambda each: made(each, kind.elementType))
        case MapType():
            return F.transform_values(value, lambda _, each: made(each, kind.valueType))
        case StructType():
            parts = (made(value[f.name], f.dataType).alias(f.name) for f in kind.fields)
            return F.when(value.isNotNull(), F.struct(*parts))
    return value


def misfits(value: Column, kind: DataType) -> Column | None:
    """Whether something in what was read is none of the type; None where JSON's types tell.

    Inside of a value, that is also a null that may not be.
    """
    match kind:
        case ArrayType():
            return _any_misfits(value, kind.elementType, kind.containsNull)
        case MapType():
            return _any_misfits(F.map_values(value), kind.valueType, kind.valueContainsNull)
        case StructType():
            parts = (_misfits_in(value[f.name], f.dataType, f.nullable) for f in kind.fields)
            found = [part for part in parts if part is not None]
            return value.isNotNull() & reduce(Column.__or__, found) if found else None
        case DecimalType():
            return _text(value).isNotNull() & made(value, kind).isNull()
    return value.isNotNull() & made(value, kind).isNull() if _is_special(kind) else None


def _any_misfits(values: Column, kind: DataType, is_nullable: bool) -> Column | None:
    if _misfits_in(values, kind, is_nullable) is None:
        return None

    def told(each: Column) -> Column:
        found = _misfits_in(each, kind, is_nullable)
        assert found is not None
        return found

    return F.coalesce(F.exists(values, told), F.lit(False))


def _misfits_in(value: Column, kind: DataType, is_nullable: bool) -> Column | None:
    found = misfits(value, kind)
    if is_nullable:
        return found
    # JSON's null is a variant that is not null.
    missing = (_text(value) if isinstance(kind, DecimalType) else value).isNull()
    return missing if found is None else found | missing


def _is_special(kind: DataType) -> bool:
    match kind:
        case ArrayType():
            return _is_special(kind.elementType)
        case MapType():
            return _is_special(kind.valueType)
        case StructType():
            return any(_is_special(field.dataType) for field in kind.fields)
    return type(kind) in _SENT


def _text(value: Column) -> Column:
    return F.try_variant_get(value, "$", "string")


def _decimal(text: Column, kind: DecimalType) -> Column:
    """The decimal that a text is, to the last digit."""
    value = text.try_cast(kind)
    is_plain = text.rlike(rf"^-?[0-9]+(\.[0-9]{{0,{kind.scale}}}0*)?$")
    # Doubles are written so, and decimals near zero.
    is_same = value.cast("double") == text.try_cast("double")
    return F.when(is_plain | (text.rlike(_SCIENTIFIC) & is_same), value)


def _is_infinite(value: Column) -> Column:
    return F.abs(value) == F.lit(float("inf"))
