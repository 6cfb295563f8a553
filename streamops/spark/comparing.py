"""Values of any type made comparable: Spark compares no maps."""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType, VariantType

__all__ = ["comparable"]


def comparable(value: Column, kind: DataType) -> Column:
    """The value, each map in it as an array of its entries by key; a variant as its JSON.

    Equal where the values are. What has neither stays as it is.
    """
    if isinstance(kind, VariantType):
        return F.to_json(value)
    if not _is_foreign(kind):
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
        comparable(value[each.name], each.dataType).alias(f"c{i}")
        for i, each in enumerate(kind.fields)
    ]
    return F.when(value.isNotNull(), F.struct(*parts))


def _is_foreign(kind: DataType) -> bool:
    """Whether there is a map or a variant in it."""
    if isinstance(kind, StructType):
        return any(_is_foreign(each.dataType) for each in kind.fields)
    if isinstance(kind, ArrayType):
        return _is_foreign(kind.elementType)
    return isinstance(kind, MapType | VariantType)
