"""Declare results with the types and comments of the columns that they come from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from streamops.changelog.chains import WATERMARK, Metadata, output_marks
from streamops.changelog.table import SIDE_OUTPUT
from streamops.kernel.core import SIDES
from streamops.kernel.lateness import LATE, has_side_output
from streamops.kernel.operator import Spec
from streamops.spark.checks import columns_of
from streamops.spark.columns import column, make_nullable, spark_schema


def declare(
    rows: DataFrame,
    frames: Sequence[DataFrame],
    spec: Spec,
    metadata: Metadata | None,
) -> DataFrame:
    """Declare a result with the types and comments of the input columns.

    Several Spark types are one type in Arrow: ``time(0)`` and ``time(6)``, the day-time intervals,
    strings of any collation. Every column is nullable, as in the output of the kernel.

    Parameters
    ----------
    rows : DataFrame
        Columns of ``spec.output``, from either engine.
    frames : sequence of DataFrame
        The inputs of the operator.
    spec : Spec
    metadata : mapping, optional
        Column metadata for the next operator. It is added to the event-time column; if the output
        has none, to the revision, to the change type, or to the first column.
    """
    inputs = [{field.name: field for field in frame.schema.fields} for frame in frames]
    output = spec.output
    types = {field.name: field.dataType for field in spark_schema(output).fields}
    origins = {name: inputs[at][source] for name, (at, source) in spec.origins.items()}
    for name, (at, source) in spec.origins.items():
        # The output has the values of the input column, or lists of them.
        is_same = output.field(name).type == spec.inputs[at].schema.field(source).type
        origin = origins[name].dataType
        types[name] = _original_type(types[name], origin if is_same else ArrayType(origin))
    side_rows = _side_output_rows(spec, inputs)
    for name in SIDE_OUTPUT:
        if name in types and name not in origins:
            types[name] = _with_row_types(types[name], side_rows)
    marks = output_marks(spec, tuple(map(columns_of, frames)), metadata)
    columns = []
    for field in rows.schema.fields:
        name, added = field.name, marks[field.name]
        # A column of one input under another name has another meaning, such as `previous_n`.
        if name in origins and (len(frames) > 1 or spec.origins[name][1] == name):
            added = comments(origins[name]) | added
        columns.append(
            _cast(field, types[name]).alias(name, **({"metadata": added} if added else {}))
        )
    return rows.select(*columns)


def restore(rows: DataFrame, frame: DataFrame) -> DataFrame:
    """Restore types and comments of columns that passed through the kernel unchanged."""
    originals = {field.name: field for field in frame.schema.fields}
    columns = []
    for field in rows.schema.fields:
        value = column(field.name)
        if field.name in originals:
            original = originals[field.name]
            dtype = _original_type(field.dataType, original.dataType)
            if dtype != field.dataType:
                value = value.cast(dtype)
            value = value.alias(field.name, metadata=original.metadata or {})
        columns.append(value)
    return rows.select(*columns)


def comments(field: StructField) -> dict[str, Any]:
    """The metadata of a column that users set, without that of Spark and of operators."""
    internal = ("__", "streamops.", WATERMARK)
    return {k: v for k, v in (field.metadata or {}).items() if not k.startswith(internal)}


def _side_output_rows(
    spec: Spec, inputs: Sequence[Mapping[str, StructField]]
) -> dict[str, StructType]:
    """The types of the input rows in the side output, by the field that contains them."""
    if LATE in spec.origins or not has_side_output(spec.output):  # the column `rejected`
        names = spec.inputs[0].schema.names if len(inputs) == 1 else []
        return {"row": _select(inputs[0], names)} if names else {}
    row = spec.output.field(LATE).type.field("row").type
    if len(inputs) == 1:
        return {"row": _select(inputs[0], [field.name for field in row])}
    sides = [
        StructField(side, _select(fields, [field.name for field in row.field(side).type]))
        for side, fields in zip(SIDES, inputs, strict=True)
    ]
    return {"row": StructType(sides)}


def _select(fields: Mapping[str, StructField], names: Sequence[str]) -> StructType:
    return StructType([fields[name] for name in names if name in fields])


def _with_row_types(tag: Any, rows: Mapping[str, StructType]) -> StructType:
    fields = []
    for field in tag.fields:
        dtype = field.dataType
        if field.name in rows:
            dtype = _original_type(dtype, rows[field.name])
        fields.append(StructField(field.name, dtype, True))
    return StructType(fields)


def _cast(field: StructField, dtype: DataType) -> Column:
    value = column(field.name)
    if not field.nullable:
        value = make_nullable(value)
    return value if field.dataType == dtype else value.cast(dtype)


def _original_type(returned: DataType, original: DataType) -> DataType:
    """The type of the input column, where it is a variant of the type that Arrow returned."""
    if isinstance(returned, StructType) and isinstance(original, StructType):
        return StructType(
            [
                StructField(r.name, _original_type(r.dataType, o.dataType), True, comments(o))
                for r, o in zip(returned.fields, original.fields, strict=True)
            ]
        )
    if isinstance(returned, ArrayType) and isinstance(original, ArrayType):
        return ArrayType(_original_type(returned.elementType, original.elementType), True)
    if isinstance(returned, MapType) and isinstance(original, MapType):
        key = _original_type(returned.keyType, original.keyType)
        return MapType(key, _original_type(returned.valueType, original.valueType), True)
    # A user-defined type is returned as the type that stores it.
    return original if type(original) is type(returned) else returned
