"""Three micro-batches of 20 rows in a session that nobody has configured, next to Spark's own windows.

    python -m benchmarks.first_query
    python -m benchmarks.first_query --partitions 8

What a newcomer sees: `SparkSession.builder.getOrCreate()`, and 200 shuffle partitions. Both queries run in one session, each twice, as
the first one starts the workers. CPU seconds are those of all processes of the session. "Commands" are what Hadoop's file
system runs for each file of a state store where its native library is missing.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import tempfile
from pathlib import Path
from time import perf_counter

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.cpu import ProcessTree
from streamops import aggregates as agg
from streamops import windows

_ROWS, _BATCHES = 20, 3
_START = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)


def ours(frame: DataFrame) -> DataFrame:
    """Count by `windows.tumbling`."""
    return frame.transform(
        windows.tumbling(
            "10 seconds", time="ts", by="k", agg={"n": agg.count()}, delay="10 seconds"
        )
    )


def sparks(frame: DataFrame) -> DataFrame:
    """Count by Spark's windows."""
    window = F.window("ts", "10 seconds")
    return frame.withWatermark("ts", "10 seconds").groupBy(window, "k").count()


def write_rows(spark: SparkSession, folder: Path) -> None:
    """Write a file for each micro-batch."""
    for number in range(_BATCHES):
        rows = [(f"k{n % 5}", _START + dt.timedelta(seconds=number * 30 + n)) for n in range(_ROWS)]
        frame = spark.createDataFrame(rows, "k string, ts timestamp").coalesce(1)
        frame.write.mode("append").parquet(str(folder))


def run(spark: SparkSession, query: str, source: Path) -> tuple[float, int]:
    """Seconds, and rows of the result."""
    frame = spark.readStream.schema("k string, ts timestamp").option("maxFilesPerTrigger", 1)
    result = {"streamops": ours, "Spark": sparks}[query](frame.parquet(str(source)))
    counts: list[int] = []
    begun = perf_counter()
    with tempfile.TemporaryDirectory() as checkpoint:
        started = (
            result.writeStream.foreachBatch(lambda of, _: counts.append(of.count()))
            .option("checkpointLocation", checkpoint)
            .outputMode("append")
            .trigger(availableNow=True)
            .start()
        )
        started.awaitTermination()
    return perf_counter() - begun, sum(counts)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.first_query", description=__doc__)
    parser.add_argument("--partitions", type=int, help="of shuffles (those of Spark)")
    options = parser.parse_args()
    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    builder = builder.config("spark.ui.showConsoleProgress", "false")
    if options.partitions:
        builder = builder.config("spark.sql.shuffle.partitions", options.partitions)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    print(
        f"load {os.getloadavg()[0]:.1f}; {spark.conf.get('spark.sql.shuffle.partitions')} partitions"
    )
    print(
        "| query | seconds | CPU s | JVM | Python | commands | rows |\n|---|---:|---:|---:|---:|---:|---:|",
        flush=True,
    )
    with tempfile.TemporaryDirectory() as folder, ProcessTree() as meter:
        source = Path(folder)
        write_rows(spark, source)
        for name in ("streamops", "Spark") * 2:
            before = meter.read()
            seconds, rows = run(spark, name, source)
            used = meter.read().since(before)
            print(
                f"| {name} | {seconds:.1f} | {used.total:.1f} | {used.jvm:.1f} | {used.python:.1f} | {used.helpers:.1f} | {rows} |",
                flush=True,
            )
    spark.stop()


if __name__ == "__main__":
    main()
