"""Column metadata by which operators of one query inform the next one."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame

from streamops.kernel.operator import Spec
from streamops.spark.columns import column

WATERMARK = "spark.watermarkDelayMs"
"""Key of a column with a watermark, set by Spark: its delay in milliseconds."""

STATE_API = "streamops.state_api"
"""Key of the state API that the operator uses."""

ONCE = "streamops.once"
"""Key of a state API that the query cannot use a second time, set by a clock."""

METRICS = "streamops.metrics"
"""Key of the names of observed metrics that are taken."""

LATENESS = "streamops.allowed_lateness"
"""Key of the lateness, in microseconds, that corrections of the operator may have."""

INSTANT = "streamops.instant"
"""Key of an event time that is not the end of a window: the watermark applies to this column only."""

REVISED = "streamops.revised"
"""Key of the columns that distinguish revisions and late rows from rows that count once."""

Metadata = Mapping[str, str | int]
"""Metadata of a column, for the next operator."""

UPSERTS = "streamops.upserts"
"""Key of a change type whose updates come without preimages."""

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


def operator_metadata(
    spec: Spec, spark_delay: int | None, *, metrics: Sequence[str], api: str, once: str | None
) -> Metadata:
    """Metadata for the next operator of the query, for one column of the output.

    Parameters
    ----------
    spec : Spec
        The operator.
    spark_delay : int, optional
        Delay of Spark's watermark, in microseconds, if the operator follows one.
    metrics : sequence of str
        Names of observed metrics that are taken.
    api : str
        The state API, or "native".
    once : str, optional
        The state API that the query cannot use a second time.
    """
    metadata: dict[str, str | int] = {METRICS: ",".join(metrics), STATE_API: api}
    if spark_delay is not None and spec.event_time is not None:
        # Results that were held back are behind the watermark though they are on time, so the next
        # operator must wait as long as Spark's watermark does. A Python map, or selecting a field of
        # a window, loses the mark of the column; the watermark itself remains.
        metadata |= {WATERMARK: spark_delay // 1_000, LATENESS: spec.lag - spec.held_back}
        if len(spec.inputs) > 1 or "window_start" not in spec.output.names:
            metadata[INSTANT] = True
    return metadata | ({} if once is None else {ONCE: once})


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
