"""Transforms of frames that end: what they have in common."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from streamops.kernel.errors import ColumnNotFound, SchemaError
from streamops.spark.columns import refuse_duplicates

__all__ = ["refuse_others", "refuse_stream", "require_columns"]


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
