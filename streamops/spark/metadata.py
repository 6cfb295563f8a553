"""Notes of operators for the next one, in the metadata of columns, and whether they are still true."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame

from streamops.kernel.core import Spec
from streamops.spark.columns import column

__all__ = [
    "INSTANT",
    "LATENESS",
    "METRICS",
    "ONCE",
    "REVISED",
    "STATE_API",
    "UPSERTS",
    "WATERMARK",
    "add_metadata",
    "drop_stale_metadata",
    "has_node",
    "operator_metadata",
]

WATERMARK = "spark.watermarkDelayMs"
"""Key under which Spark shows a watermark in a column's metadata."""

STATE_API = "streamops.state_api"
"""Key under which an operator tells, in its output, which state API it uses."""

ONCE = "streamops.once"
"""Key under which a clock tells which state API the query cannot use a second time."""

METRICS = "streamops.metrics"
"""Key under which an operator tells which names of counts are taken."""

LATENESS = "streamops.allowed_lateness"
"""Key under which an operator tells how late, in microseconds, its corrections may come."""

INSTANT = "streamops.instant"
"""Key under which an operator tells that its event time is not the end of a window: its watermark
says nothing about any other column."""

REVISED = "streamops.revised"
"""Key of the columns that distinguish revisions and late rows from rows that count once."""

UPSERTS = "streamops.upserts"
"""Key of a change type whose updates come without preimages."""

_NODES = {
    "EventTimeWatermark": {WATERMARK, LATENESS, INSTANT},
    "CollectMetrics": {STATE_API, ONCE, METRICS},
}
"""Notes for the next operator of a query, by the node that a plan has where they are true."""


def drop_stale_metadata(frame: DataFrame) -> DataFrame:
    """The frame, without what operators of another query have noted on its columns.

    Notes are stored with the columns, in Parquet for one. A stream that is read from there seems to
    have a watermark, but never gets one: nothing would be published, and nothing be forgotten.
    """
    noted = {key for field in frame.schema.fields for key in field.metadata or ()}
    if not frame.isStreaming:
        return frame
    stale: set[str] = set()
    for node, notes in _NODES.items():
        if noted & notes and not has_node(frame, node):
            stale |= notes
    if not stale:
        return frame
    columns = []
    for field in frame.schema.fields:
        true = {k: v for k, v in (field.metadata or {}).items() if k not in stale}
        columns.append(column(field.name).alias(field.name, metadata=true))
    return frame.select(*columns)


def operator_metadata(
    spec: Spec, delay: int | None, *, metrics: Sequence[str], api: str, once: str | None
) -> dict[str, Any]:
    """What the next operator of a query must know, for the metadata of one column of the output.

    Parameters
    ----------
    spec : Spec
        The operator.
    delay : int, optional
        Delay of Spark's watermark, in microseconds, if the operator follows one.
    metrics : sequence of str
        Names of observed metrics that are taken.
    api : str
        The state API, or "native".
    once : str, optional
        The state API that the query cannot use a second time.
    """
    metadata: dict[str, Any] = {METRICS: ",".join(metrics), STATE_API: api}
    if delay is not None and spec.event_time is not None:
        # Results that waited lie behind the watermark though they are on time: what follows must be
        # as patient with them as Spark's watermark is. A Python map, or taking a field of a window,
        # loses the mark on the column; the watermark itself remains.
        metadata |= {WATERMARK: delay // 1_000, LATENESS: spec.lag - spec.held_back}
        if len(spec.inputs) > 1 or "window_start" not in spec.output.names:
            metadata[INSTANT] = True
    return metadata | ({} if once is None else {ONCE: once})


def add_metadata(frame: DataFrame, name: str, metadata: Mapping[str, Any]) -> DataFrame:
    """Add something for the next operator to the metadata of one column."""
    columns = []
    for field in frame.schema.fields:
        value = column(field.name)
        both = {**(field.metadata or {}), **metadata}
        columns.append(value.alias(field.name, metadata=both) if field.name == name else value)
    return frame.select(*columns)


def has_node(frame: Any, name: str) -> bool:
    """Whether a DataFrame's plan has a node of this name, such as ``EventTimeWatermark``."""
    return re.search(rf"^[\s:+~-]*{name} ", _plan(frame), re.MULTILINE) is not None


def _plan(frame: Any) -> str:
    """The plan as it was analysed, a node per line. There is no public way that does not print it."""
    if hasattr(frame, "_jdf"):
        return str(frame._jdf.queryExecution().analyzed().toString())
    return str(frame._explain_string(extended=True))
