"""Notes of operators for the next one, in the metadata of columns, and whether they are still true."""

from __future__ import annotations

from pyspark.sql import DataFrame

from streamops.spark.checks import INSTANT, LATENESS, METRICS, ONCE, STATE_API, WATERMARK
from streamops.spark.columns import column
from streamops.spark.plans import has_node

__all__ = ["drop_stale_metadata"]

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
