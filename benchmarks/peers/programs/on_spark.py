"""The workloads in Spark, by its own operators (`native`) or by those of streamops."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from protocol import Job, serve
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks.systems import SYSTEMS, session
from benchmarks.workloads import DELAY_MS, LATENESS_MS, SCHEMA, Workload

STATE_API: Any = "applyInPandasWithState"
"""The one that runs on Spark's default state store, which both systems have."""
Build = Callable[[Job, list[DataFrame]], tuple[DataFrame, str]]
"""From the inputs to the results, and their output mode."""


def build_native(job: Job, inputs: list[DataFrame]) -> tuple[DataFrame, str]:
    native = SYSTEMS["native"]
    totals = F.count(F.lit(1)).alias("n"), F.sum("v").alias("total")
    match job.workload:
        case "running":
            return inputs[0].groupBy("k").agg(*totals), "update"
        case "corrections":
            # Update mode publishes every new value, without the old one.
            delayed = inputs[0].withWatermark("ts", f"{DELAY_MS + LATENESS_MS} milliseconds")
            grouped = delayed.groupBy("k", F.window("ts", "1 minute").alias("w")).agg(*totals)
            window = (F.col(f"w.{part}").alias(f"window_{part}") for part in ("start", "end"))
            return grouped.select("k", *window, "n", "total"), "update"
        case "interval":
            return native.join(*inputs, job.workload, None), "append"
    return native.build(*inputs, job.workload, None), "append"


def build_streamops(job: Job, inputs: list[DataFrame]) -> tuple[DataFrame, str]:
    # Here, not above: Spark's own operators are measured without this library in the process.
    from benchmarks.operators import build_join, build_window

    one = len(inputs) == 1
    operator = build_window(job.workload) if one else build_join(job.workload, inputs[1])
    results = inputs[0].transform(operator.options(state_api=STATE_API, expected_keys=job.keys))
    if job.workload == "distinct":
        results = results.withColumn("n", F.col("users.estimate")).drop("users")
    return results.withColumnsRenamed({"ts_right": "clicked"}), "append"


BUILDS: dict[str, Build] = {"native": build_native, "streamops": build_streamops}


def carry_out(spark: SparkSession, build: Build, job: Job) -> None:
    frames = []
    for name, schema in Workload(1, (), windows=job.workload).schemas.items():
        reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
        frames.append(reader.parquet(job.inputs[name]))
    results, mode = build(job, frames)
    writer = results.writeStream.option("checkpointLocation", f"{job.state}/checkpoint")
    if job.output is None:
        writer = writer.outputMode(mode).format("noop")
    else:
        writer = writer.outputMode(mode).foreachBatch(_Append(job.output))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    dropped: Any = [
        o.numRowsDroppedByWatermark for r in query.recentProgress for o in r.stateOperators
    ]
    if sum(dropped):
        raise RuntimeError(f"{sum(dropped):,} rows were dropped as late; none is")


def run_live(spark: SparkSession, name: str, job: Job) -> None:
    spark.conf.set("spark.sql.streaming.pollingDelay", "10ms")  # the default
    events = spark.readStream.schema(SCHEMA).parquet(job.inputs["events"])
    is_window = job.workload == "tumbling"
    window = F.window("ts", "1 second").alias("w")
    if name == "native" and is_window:
        results = events.withWatermark("ts", "0 seconds").groupBy("k", window).agg(F.sum("v"))
        known = F.col("w.end")
    elif name == "native":
        results = events.groupBy("k").agg(F.sum("v"), F.max("ts").alias("newest"))
        known = F.col("newest")
    else:
        from streamops import aggregates as agg
        from streamops import windows

        totals = {"n": agg.count(), "total": agg.sum("v")}
        if is_window:
            operator = windows.tumbling(
                "1 second", time="ts", by="k", agg=totals, delay="0 seconds"
            )
        else:
            operator = windows.running(by="k", agg=totals | {"newest": agg.max("ts")})
        results = events.transform(operator.options(state_api=STATE_API))
        known = F.col("window_end" if is_window else "newest")

    with open(job.lines, "a") as lines:

        def write(batch: DataFrame, number: int) -> None:
            times = batch.select(F.unix_millis(known).alias("known")).toArrow()["known"]
            lines.writelines(f"{time}\n" for time in times.to_pylist())
            lines.flush()

        mode = "update" if name == "native" and not is_window else "append"
        writer = results.writeStream.outputMode(mode).foreachBatch(write)
        query = writer.option("checkpointLocation", f"{job.state}/checkpoint").start()
        query.awaitTermination()


class _Append:
    """Write the results of every micro-batch, in either output mode."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def __call__(self, batch: DataFrame, number: int) -> None:
        batch.write.mode("append").parquet(str(Path(self._folder) / "rows"))


def main() -> None:
    build = BUILDS[sys.argv[1]]
    spark = session("hdfs")

    def run(job: Job) -> None:
        if job.live:
            run_live(spark, sys.argv[1], job)
        else:
            carry_out(spark, build, job)

    serve(run)


if __name__ == "__main__":
    main()
