"""What the checks of a plan read from a frame. The checks themselves are in :mod:`streamops.changelog.chains`."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from streamops.changelog.chains import METRICS, Columns
from streamops.spark.metadata import has_node


def columns_of(frame: DataFrame) -> Columns:
    """The columns of a frame, with what the operators before have written into their metadata."""
    fields = frame.schema.fields
    return Columns(
        {field.name: field.metadata or {} for field in fields},
        frozenset(field.name for field in fields if isinstance(field.dataType, StructType)),
        is_streaming=frame.isStreaming,
        follows_watermark=lambda: has_node(frame, "EventTimeWatermark"),
    )


def metric_name(frame: DataFrame, name: str, *others: DataFrame) -> tuple[str, list[str]]:
    """A name of metrics that no upstream operator of the query has, and all names that are taken.

    Parameters
    ----------
    frame : DataFrame
        The operator's input.
    name : str
        The preferred name.
    others : DataFrame
        Further inputs.
    """
    taken: list[str] = []
    for field in (field for input_ in (frame, *others) for field in input_.schema.fields):
        taken += [n for n in (field.metadata or {}).get(METRICS, "").split(",") if n]
    unique, number = name, 1
    while unique in taken:
        number += 1
        unique = f"{name}-{number}"
    return unique, [*taken, unique]
