"""Transforms of frames that end: what they have in common."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from streamops.kernel.errors import ColumnNotFound, SchemaError
from streamops.spark.columns import column, refuse_duplicates
from streamops.spark.comparing import parts_of

__all__ = ["is_nowhere", "refuse_others", "refuse_stream", "require_columns"]


def refuse_stream(frame: DataFrame, *, where: str) -> None:
    """Refuse a streaming frame, and one with two columns of one name.

    Raises
    ------
    SchemaError
        ``STREAMING_FRAME`` or ``DUPLICATE_COLUMN``.
    """
    if frame.isStreaming:
        raise SchemaError(
            "STREAMING_FRAME",
            "a stream does not end, and this looks at all rows at once",
            where=where,
            got="a streaming frame",
            expected="a batch frame",
            fix="call it inside foreachBatch, or on what the stream wrote",
        )
    refuse_duplicates(frame, where=where)


def require_columns(frame: DataFrame, names: Sequence[str], *, role: str, where: str) -> None:
    """Refuse a frame without these columns."""
    for name in names:
        if name not in frame.columns:
            raise ColumnNotFound(name, frame.columns, where=where, role=role)


def is_nowhere(frame: DataFrame, sequence: Sequence[str]) -> Column:
    """Whether a part of the place of a change is null, at any depth of a struct."""
    kinds = {each.name: each.dataType for each in frame.schema.fields}
    lacking = (_lacks_part(column(name), kinds[name]) for name in sequence)
    return reduce(Column.__or__, lacking, F.lit(False))


def _lacks_part(value: Column, kind: DataType) -> Column:
    parts = parts_of(value, kind) if isinstance(kind, StructType) else []
    lacking = (_lacks_part(part, of) for part, of in parts)
    return reduce(Column.__or__, lacking, value.isNull())


def refuse_others(
    one: StructType, other: StructType, *, code: str, sides: tuple[str, str], where: str
) -> None:
    """Refuse two frames whose columns are not the same, in any order."""
    kinds = [{each.name: each.dataType.simpleString() for each in s.fields} for s in (one, other)]
    if kinds[0] == kinds[1]:
        return
    differing = [
        f"{name}: {kinds[0].get(name, 'none')} and {kinds[1].get(name, 'none')}"
        for name in dict.fromkeys([*kinds[0], *kinds[1]])
        if kinds[0].get(name) != kinds[1].get(name)
    ]
    raise SchemaError(
        code,
        f"the columns of {sides[0]} and of {sides[1]} are not the same",
        where=where,
        got="; ".join(differing),
        expected="the same names with the same types",
        fix="select or cast the columns of one of them",
    )
