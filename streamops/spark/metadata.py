"""Column metadata by which operators of one query inform the next one."""

from __future__ import annotations

import re
from typing import Any

from pyspark.sql import DataFrame

from streamops.changelog.chains import (
    INSTANT,
    LATENESS,
    METRICS,
    ONCE,
    STATE_API,
    WATERMARK,
    Metadata,
)
from streamops.spark.columns import column

_NODES = {
    "EventTimeWatermark": {WATERMARK, LATENESS, INSTANT},
    "CollectMetrics": {STATE_API, ONCE, METRICS},
}
"""Keys by the node that a plan contains if they are valid."""


def drop_stale_metadata(frame: DataFrame) -> DataFrame:
    """Drop metadata that operators of another query have left on the columns.

    Metadata is stored with the columns, for example in Parquet. A stream read from there would appear
    to have a watermark that never arrives: no result would be emitted, and no state evicted.
    """
    keys = {key for field in frame.schema.fields for key in field.metadata or ()}
    if not frame.isStreaming:
        return frame
    stale: set[str] = set()
    for node, of_node in _NODES.items():
        if keys & of_node and not has_node(frame, node):
            stale |= of_node
    if not stale:
        return frame
    columns = []
    for field in frame.schema.fields:
        valid = {k: v for k, v in (field.metadata or {}).items() if k not in stale}
        columns.append(column(field.name).alias(field.name, metadata=valid))
    return frame.select(*columns)


def add_metadata(frame: DataFrame, name: str, metadata: Metadata) -> DataFrame:
    """Add metadata for the next operator to one column."""
    columns = []
    for field in frame.schema.fields:
        value = column(field.name)
        both = {**(field.metadata or {}), **metadata}
        columns.append(value.alias(field.name, metadata=both) if field.name == name else value)
    return frame.select(*columns)


def has_node(frame: DataFrame, name: str) -> bool:
    """Whether the plan of a DataFrame has a node of this name, such as ``EventTimeWatermark``."""
    return re.search(rf"^[\s:+~-]*{name} ", plan_text(frame), re.MULTILINE) is not None


def has_streaming_aggregation(frame: DataFrame) -> bool:
    """Whether Spark aggregates a stream in the plan of a DataFrame.

    An aggregation of a batch frame that is joined is none: below it there is no streaming source.
    """
    above: list[int] = []
    for line in plan_text(frame).splitlines():
        depth = len(line) - len(line.lstrip(" :+~-"))
        above = [other for other in above if other < depth]
        node = line.lstrip(" :+~-")
        if node.startswith("Aggregate "):
            above.append(depth)
        elif node.startswith("Streaming") and above:
            return True
    return False


def describe(frame: DataFrame, text: str) -> DataFrame:
    """Write a text into the plan of a frame, which ``explain(extended=True)`` shows.

    Spark has no comments in a plan. An alias is removed when the plan is optimized.
    """
    return frame.alias(text)


def plan_text(frame: Any) -> str:
    """The analyzed plan, one node per line. PySpark has no public method that does not print it."""
    if hasattr(frame, "_jdf"):
        return str(frame._jdf.queryExecution().analyzed().toString())
    text = str(frame._explain_string(extended=True))
    _, is_there, analyzed = text.partition("== Analyzed Logical Plan ==")
    return analyzed.partition("== Optimized")[0] if is_there else text
