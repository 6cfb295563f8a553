"""Results as Spark would declare them, whichever engine computed them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from streamops.changelog.change_types import CHANGE_TYPE, REVISION
from streamops.kernel.core import SIDES, Spec
from streamops.spark.columns import column, make_nullable, spark_schema
from streamops.spark.metadata import REVISED, WATERMARK

__all__ = ["comments", "declare", "restore"]

_REVISING = (REVISION, CHANGE_TYPE, "late")


def declare(
    rows: DataFrame,
    frames: Sequence[DataFrame],
    spec: Spec,
    metadata: Mapping[str, Any] | None,
) -> DataFrame:
    """Declare the result with the types and comments that the columns of the inputs have.

    Arrow has one type for times and one for day-time intervals, and no collation: on the way
    through the kernel, ``time(0)`` would become ``time(6)``. Every column may be null, as in
    the output of the kernel.

    Parameters
    ----------
    rows : DataFrame
        Columns of ``spec.output``, from either engine.
    frames : sequence of DataFrame
        The inputs of the operator.
    spec : Spec
        The operator.
    metadata : mapping, optional
        What the next operator must know. It is added to the event-time column; if the output has
        none, to the first column.
    """
    own = [{field.name: field for field in frame.schema.fields} for frame in frames]
    origins = {
        name: (own[at][of], spec.inputs[at].schema.field(of).type)
        for name, (at, of) in spec.origins.items()
    }
    notes = {name: comments(field) for name, (field, _) in origins.items()}
    if len(frames) == 1:
        names = spec.inputs[0].schema.names
        late = {"row": StructType([own[0][name] for name in names if name in own[0]])}
    else:
        found = {
            side: _late_row(spec.output, side, fields)
            for side, fields in zip(SIDES, own, strict=True)
        }
        late = {side: row for side, row in found.items() if row}
    marked = spec.event_time or spec.output.names[0]
    notes[marked] = {**notes.get(marked, {}), **(metadata or {})}
    return _declared(rows, spec.output, origins, late, notes)


def restore(rows: DataFrame, frame: DataFrame) -> DataFrame:
    """Restore types and comments of columns that passed through the kernel unchanged."""
    own = {field.name: field for field in frame.schema.fields}
    columns = []
    for passed in rows.schema.fields:
        value = column(passed.name)
        if passed.name in own:
            field = own[passed.name]
            value = value if field.dataType == passed.dataType else value.cast(field.dataType)
            value = value.alias(passed.name, metadata=field.metadata or {})
        columns.append(value)
    return rows.select(*columns)


def _declared(
    rows: DataFrame,
    output: pa.Schema,
    origins: Mapping[str, tuple[StructField, pa.DataType]],
    late: Mapping[str, StructType],
    notes: Mapping[str, dict[str, Any]],
) -> DataFrame:
    made = {field.name: field.dataType for field in spark_schema(output).fields}
    for aside in ("late", "rejected"):  # rows that are no results, as they came
        if aside in made and aside not in origins:
            made[aside] = _with_rows(made[aside], late)
    columns = []
    for field in rows.schema.fields:
        name = field.name
        kind = made[name]
        if name in origins:
            origin, came = origins[name]
            alike = output.field(name).type == came
            kind = _own(kind, origin.dataType if alike else ArrayType(origin.dataType))
        told = notes.get(name, {})
        if name in _REVISING and (name not in origins or REVISED in _noted(origins[name][0])):
            told = {**told, REVISED: True}
        columns.append(_column(field, kind).alias(name, **({"metadata": told} if told else {})))
    return rows.select(*columns)


def _noted(field: StructField) -> dict[str, Any]:
    return field.metadata or {}


def _late_row(output: pa.Schema, side: str, own: Mapping[str, StructField]) -> StructType | None:
    """The type of a late row of this side, where the output has such rows."""
    late = output.field("late").type if "late" in output.names else None
    if late is None or not pa.types.is_struct(late) or late.get_field_index(side) < 0:
        return None
    return StructType([own[field.name] for field in late.field(side).type])


def _column(field: StructField, kind: DataType) -> Column:
    value = column(field.name)
    if not field.nullable:
        value = make_nullable(value)
    return value if field.dataType == kind else value.cast(kind)


def _with_rows(aside: Any, rows: Mapping[str, StructType]) -> StructType:
    kinds = [_own(f.dataType, rows[f.name]) if f.name in rows else f.dataType for f in aside.fields]
    named = zip(aside.fields, kinds, strict=True)
    return StructType([StructField(field.name, kind, True) for field, kind in named])


def _own(made: DataType, own: DataType) -> DataType:
    """The frame's own type, where it is a variant of the one that came back; nulls at any depth."""
    if isinstance(made, StructType) and isinstance(own, StructType):
        pairs = zip(made.fields, own.fields, strict=True)
        return StructType(
            [StructField(m.name, _own(m.dataType, o.dataType), True, comments(o)) for m, o in pairs]
        )
    if isinstance(made, ArrayType) and isinstance(own, ArrayType):
        return ArrayType(_own(made.elementType, own.elementType), True)
    if isinstance(made, MapType) and isinstance(own, MapType):
        key, value = _own(made.keyType, own.keyType), _own(made.valueType, own.valueType)
        return MapType(key, value, True)
    # A type of the user's own comes back as what it is made of.
    return own if type(own) is type(made) else made


def comments(field: StructField) -> dict[str, Any]:
    """What a user said about the column: its comment. Not what Spark or an operator noted."""
    noted = ("__", "streamops.", WATERMARK)
    return {k: v for k, v in (field.metadata or {}).items() if not k.startswith(noted)}
