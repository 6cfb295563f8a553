"""Split off rejected rows; checks of batch frames for ``fold``, ``compact`` and ``differences``."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from streamops.kernel.errors import ColumnNotFound, SchemaError
from streamops.spark.columns import column, fields_by_position, refuse_duplicates

__all__ = ["has_null_part", "refuse_others", "refuse_stream", "require_columns"]


def refuse_stream(frame: DataFrame, *, where: str) -> None:
    """Refuse a streaming frame (``STREAMING_FRAME``), and two columns of one name."""
    if frame.isStreaming:
        raise SchemaError(
            "STREAMING_FRAME",
            "a stream has no end, and this operator needs all rows",
            where=where,
            got="a streaming frame",
            expected="a batch frame",
            fix="call it inside foreachBatch, or on the table that the stream wrote",
        )
    refuse_duplicates(frame, where=where)


def require_columns(frame: DataFrame, names: Sequence[str], *, role: str, where: str) -> None:
    """Refuse a frame without these columns."""
    for name in names:
        if name not in frame.columns:
            raise ColumnNotFound(name, frame.columns, where=where, role=role)


def has_null_part(frame: DataFrame, sequence: Sequence[str]) -> Column:
    """Whether a sequence, or a field of it at any depth, is null."""
    types = {part.name: part.dataType for part in frame.schema.fields}
    parts = (_has_null(column(name), types[name]) for name in sequence)
    return reduce(Column.__or__, parts, F.lit(False))


def _has_null(value: Column, dtype: DataType) -> Column:
    parts = fields_by_position(value, dtype) if isinstance(dtype, StructType) else []
    return reduce(Column.__or__, (_has_null(*part) for part in parts), value.isNull())


def refuse_others(
    left: StructType, right: StructType, *, code: str, sides: tuple[str, str], where: str
) -> None:
    """Refuse two frames that do not have the same columns, in any order."""
    types = [{f.name: f.dataType.simpleString() for f in side.fields} for side in (left, right)]
    if types[0] == types[1]:
        return
    differing = [
        f"{name}: {types[0].get(name, 'none')} and {types[1].get(name, 'none')}"
        for name in dict.fromkeys([*types[0], *types[1]])
        if types[0].get(name) != types[1].get(name)
    ]
    raise SchemaError(
        code,
        f"the columns of {sides[0]} and of {sides[1]} differ",
        where=where,
        got="; ".join(differing),
        expected="the same names with the same types",
        fix="select or cast the columns of one of them",
    )
