"""The input of an operator as its shards get it: packed rows, under a watermark where it has one."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streamops.spark.checks import WATERMARK
from streamops.spark.columns import column
from streamops.spark.packing import PACKED, Packable, packer

__all__ = ["marked", "packed"]


def packed(
    frame: DataFrame,
    pack_rows: Callable[[pa.Table], pa.Table],
    of: Packable,
    shards: int,
    *,
    defined: int | None = None,
) -> DataFrame:
    """Packed rows: a shard, its pack, and an event time that is always null.

    Parameters
    ----------
    frame : DataFrame
        The operator's input.
    pack_rows, of, shards
        See :func:`streamops.spark.packing.packer`.
    defined : int, optional
        Delay, in microseconds, of a watermark that is to be defined on the event time.
    """
    # By position: PySpark's Python maps fail on names with dots or backticks in them.
    inputs = [column(name).alias(f"c{i}") for i, name in enumerate(of.input.names)]
    pack = packer(pack_rows, of, shards, newest=defined is not None)
    packs = frame.select(*inputs).mapInArrow(pack, PACKED)
    if defined is None:
        return packs
    milliseconds = f"{defined // 1_000} milliseconds"
    # The rows that carried the greatest event times have done their work.
    return packs.withWatermark("event_time", milliseconds).where(F.col("event_time").isNull())


def marked(packs: DataFrame, delay: int) -> DataFrame:
    """The packed rows with the mark of a watermark that is in force already.

    A Python map, or a union with other rows, loses the mark on the column, and nothing else.
    """
    mark = F.col("event_time").alias("event_time", metadata={WATERMARK: delay // 1_000})
    return packs.select("shard", "packed", mark)
