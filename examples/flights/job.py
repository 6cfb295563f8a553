"""The job: windows, sketches, joins and rules over logs, in streaming queries, into Parquet."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache, reduce
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

from examples.flights.contents import JOINED, QUERIES, RULES
from examples.flights.feeds import FEEDS
from examples.flights.joining import joined
from examples.flights.log import columns_of
from examples.flights.rules import ruled
from examples.flights.sketching import routed, sketched
from streamops import aggregates as agg
from streamops import windows

__all__ = ["OPERATORS", "operators", "published", "sink", "start"]


SHARDS = 2  # three airports are three keys, and four thousand aircraft are not many more


def operators(allowed_lateness: str) -> dict[str, Callable[[DataFrame], DataFrame]]:
    """The windows and sketches by their name in the tables."""
    settings: dict[str, Any] = {
        "time": "scheduled",
        "agg": {"departures": agg.count(), "mean_delay": agg.mean("delay")},
        "delay": "30 minutes",
        "allowed_lateness": allowed_lateness,
        "stragglers": "retract",
        "too_late": "route",
    }
    of_airports = {"by": "origin", **settings}
    return {
        "hourly": windows.tumbling("1 hour", **of_airports).options(name="hourly", shards=SHARDS),
        "three_hours": windows.hopping("3 hours", "1 hour", **of_airports).options(
            name="three_hours"
        ),
        "days": windows.calendar("day", "America/New_York", **of_airports).options(
            name="days", shards=SHARDS
        ),
        # An aircraft that did not leave New York for eight hours has ended its working day there.
        "working_days": windows.session("8 hours", by="tailnum", **settings).options(
            name="working_days"
        ),
        "last_hour": windows.sliding("1 hour", **of_airports).options(
            name="last_hour", shards=SHARDS
        ),
        **sketched(settings),
    }


OPERATORS = operators("6 hours")
"""The operators of the job."""


def published(read: Callable[[str], DataFrame], names: Iterable[str]) -> DataFrame:
    """Results and late rows of these; the column ``windows`` names the output."""
    frames = [_of(read, name).select(F.lit(name).alias("windows"), "*") for name in names]
    return reduce(lambda left, right: left.unionByName(right, allowMissingColumns=True), frames)


def _of(read: Callable[[str], DataFrame], name: str) -> DataFrame:
    if name in JOINED:
        return joined(read, name)
    if name in RULES:
        return ruled(read, name)
    rows = read("departures")
    return (routed(rows) if name == "busiest_routes" else rows).transform(OPERATORS[name])


def sink(out: Path, query: str) -> Callable[[DataFrame, int], None]:
    """Write each micro-batch of a query into a folder of its own, late rows beside what is published.

    Spark may deliver a micro-batch twice, after a failure, under the same number: it replaces
    what it wrote the first time. One write computes it once: `split_side_output` would make two
    frames of it, and the batch would have to be kept for them.
    """

    def write(batch: DataFrame, number: int) -> None:
        output = F.lit("changes")
        if "late" in batch.columns:
            output = F.when(F.col("late").isNull(), output).otherwise("late")
            batch = batch.select("*", "late.*", output.alias("output")).drop("late")
        else:
            batch = batch.withColumn("output", output)
        path = str(out / "published" / query / f"batch={number:04d}")
        batch.coalesce(1).write.mode("overwrite").partitionBy("output").parquet(path)

    return write


def start(spark: SparkSession, log: Path, out: Path, query: str) -> StreamingQuery:
    """Start a query over its logs, from their beginning to their end."""
    names, files = QUERIES[query].outputs, QUERIES[query].files

    def read(name: str) -> DataFrame:
        rows = spark.readStream.schema(columns_of(FEEDS[name].schema))
        return rows.option("maxFilesPerTrigger", files).parquet(str(log / name))

    return (
        published(cache(read), names)
        .writeStream.queryName(query)
        .foreachBatch(sink(out, query))
        .option("checkpointLocation", str(out / "checkpoint" / query))
        .trigger(availableNow=True)
        .start()
    )
