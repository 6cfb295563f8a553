"""Results as Spark would declare them, whichever engine computed them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from streamops.kernel.contract import Spec
from streamops.spark.columns import column, nullable, spark_schema
from streamops.spark.preflight import WATERMARK

__all__ = ["declared"]


def declared(
    rows: DataFrame, frame: DataFrame, spec: Spec, mark: Mapping[str, Any] | None
) -> DataFrame:
    """The result with the types and comments that the frame's columns have.

    Arrow knows one type of times and one of day-time intervals, and no collation: on the way
    through the kernel, ``time(0)`` would become ``time(6)``. Every column may be null, as it may
    where the kernel says so.

    Parameters
    ----------
    rows : DataFrame
        Columns of ``spec.output``, from either engine.
    frame : DataFrame
        The operator's input.
    spec : Spec
        The operator.
    mark : mapping, optional
        What the next operator must know, for the metadata of the event-time column.
    """
    own = {field.name: field for field in frame.schema.fields}
    made = {field.name: field.dataType for field in spark_schema(spec.output).fields}
    for aside in ("late", "rejected"):  # rows that are no results, as they came
        if aside in made and aside not in spec.origins:
            row = StructType([own[name] for name in spec.input.names])
            made[aside] = _with_row(made[aside], row)
    columns = []
    for field in rows.schema.fields:
        name = field.name
        kind = made[name]
        if name in spec.origins:
            origin = spec.origins[name]
            value = own[origin].dataType
            alike = spec.output.field(name).type == spec.input.field(origin).type
            kind = _own(kind, value if alike else ArrayType(value))
        told = _told(own[name]) if name in spec.by else {}
        if name == spec.event_time:
            told |= mark or {}
        columns.append(_column(field, kind).alias(name, **({"metadata": told} if told else {})))
    return rows.select(*columns)


def _column(field: StructField, kind: DataType) -> Column:
    value = column(field.name)
    if not field.nullable:
        value = nullable(value)
    return value if field.dataType == kind else value.cast(kind)


def _with_row(aside: Any, row: StructType) -> StructType:
    return StructType(
        [
            StructField(f.name, _own(f.dataType, row) if f.name == "row" else f.dataType, True)
            for f in aside.fields
        ]
    )


def _own(made: DataType, own: DataType) -> DataType:
    """The frame's own type, where it is a variant of the one that came back; nulls at any depth."""
    if isinstance(made, StructType) and isinstance(own, StructType):
        pairs = zip(made.fields, own.fields, strict=True)
        return StructType(
            [StructField(m.name, _own(m.dataType, o.dataType), True, _told(o)) for m, o in pairs]
        )
    if isinstance(made, ArrayType) and isinstance(own, ArrayType):
        return ArrayType(_own(made.elementType, own.elementType), True)
    if isinstance(made, MapType) and isinstance(own, MapType):
        key, value = _own(made.keyType, own.keyType), _own(made.valueType, own.valueType)
        return MapType(key, value, True)
    # A type of the user's own comes back as what it is made of.
    return own if type(own) is type(made) else made


def _told(field: StructField) -> dict[str, Any]:
    """What a user said about the column: its comment. Not what Spark or an operator noted."""
    noted = ("__", "streamops.", WATERMARK)
    return {k: v for k, v in (field.metadata or {}).items() if not k.startswith(noted)}
