"""The job: two windows over one log, in one streaming query, into Parquet."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamops import aggregates as agg
from streamops import windows
from streamops.demo.flights import SCHEMA

__all__ = ["HOURLY", "THREE_HOURS", "run", "sink", "windowed"]

_SETTINGS: dict[str, Any] = {
    "time": "scheduled",
    "by": "origin",
    "agg": {"departures": agg.count(), "mean_delay": agg.mean("delay")},
    "delay": "30 minutes",
    "allowed_lateness": "6 hours",
    "stragglers": "retract",
    "too_late": "route",
    "shards": 2,  # three airports are three keys
}
HOURLY = windows.tumbling("1 hour", name="hourly", **_SETTINGS)
THREE_HOURS = windows.hopping("3 hours", "1 hour", name="three_hours", **_SETTINGS)


def windowed(departures: DataFrame) -> DataFrame:
    """Results and late rows of both windows; the column ``windows`` says whose."""
    hourly = departures.transform(HOURLY).select(F.lit("hourly").alias("windows"), "*")
    moving = departures.transform(THREE_HOURS).select(F.lit("three_hours").alias("windows"), "*")
    return hourly.union(moving)


def sink(out: Path) -> Callable[[DataFrame, int], None]:
    """Write each micro-batch into folders of its own.

    Spark may deliver a micro-batch twice, after a failure, under the same number: it replaces
    what it wrote the first time.
    """

    def write(batch: DataFrame, number: int) -> None:
        # Without this, each of the two writes would compute the batch, state included.
        batch.persist()
        try:
            results, late = windows.split_late(batch)
            for name, rows in (("changes", results), ("late", late)):
                path = str(out / name / f"batch={number:04d}")
                rows.coalesce(1).write.mode("overwrite").parquet(path)
        finally:
            batch.unpersist()

    return write


def run(spark: SparkSession, log: Path, out: Path) -> None:
    """Read the log from beginning to end, a file per micro-batch."""
    departures = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(log))
    query = (
        windowed(departures)
        .writeStream.queryName("departures")
        .foreachBatch(sink(out))
        .option("checkpointLocation", str(out / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
