"""Values of any type made comparable: Spark compares no maps."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    MapType,
    StructField,
    StructType,
    VariantType,
)

from streamops.kernel.errors import SchemaError
from streamops.spark.columns import contains_type

__all__ = ["comparable", "parts_of", "refuse_incomparable"]

_INCOMPARABLE = {"interval", "geometry", "geography"}


def comparable(value: Column, kind: DataType) -> Column:
    """The value, each map in it as an array of its entries by key; a variant as its JSON.

    Equal where the values are. What has neither stays as it is.
    """
    if isinstance(kind, VariantType):
        return F.to_json(value)
    if not contains_type(kind, _is_foreign):
        return value
    if isinstance(kind, MapType):
        of = kind.valueType
        keys = F.array_sort(F.map_keys(value))
        return F.transform(
            keys, lambda key: F.struct(key.alias("key"), comparable(value[key], of).alias("value"))
        )
    if isinstance(kind, ArrayType):
        item = kind.elementType
        return F.transform(value, lambda each: comparable(each, item))
    assert isinstance(kind, StructType), kind
    parts = [
        comparable(part, of).alias(f"c{i}") for i, (part, of) in enumerate(parts_of(value, kind))
    ]
    return F.when(value.isNotNull(), F.struct(*parts))


def parts_of(value: Column, kind: StructType) -> list[tuple[Column, DataType]]:
    """The fields of a struct by their place: of two names that differ in case Spark takes neither."""
    fields = [StructField(f"c{i}", each.dataType) for i, each in enumerate(kind.fields)]
    renamed = value.cast(StructType(fields))
    return [(renamed[each.name], each.dataType) for each in fields]


def refuse_incomparable(frame: DataFrame, names: Iterable[str], *, where: str) -> None:
    """Refuse columns of a type whose values Spark cannot tell apart.

    Raises
    ------
    SchemaError
        ``COLUMN_TYPE``.
    """
    read = set(names)
    for each in frame.schema.fields:
        if each.name in read and contains_type(each.dataType, _is_incomparable):
            raise SchemaError(
                "COLUMN_TYPE",
                f"column {each.name!r} has values that Spark cannot compare",
                where=where,
                got=f"{each.name!r} of type {each.dataType.simpleString()}",
                expected="any other type, also maps and variants",
                fix="cast the column, to string or binary, or drop it",
            )


def _is_foreign(kind: DataType) -> bool:
    return isinstance(kind, MapType | VariantType)


def _is_incomparable(kind: DataType) -> bool:
    return kind.typeName() in _INCOMPARABLE
