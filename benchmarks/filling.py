"""What it costs to fill a new version of a job from history: micro-batches of several sizes, and a batch.

    python -m benchmarks.filling
    python -m benchmarks.filling --rows 2000000 --sizes 100000

The history is a folder of Parquet files in the order of their event times, as Spark's file source reads them by the time at which
they were written. Rows are up to ten seconds out of order, also over the border of two files. The job counts and sums
by key and minute; the watermark is ten seconds behind. CPU seconds are those of all processes, without those of an empty query before
it, which starts the workers. A late row would mean that the order of the files has made rows late that were not.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from benchmarks.cpu import ProcessTree
from streamops import aggregates as agg
from streamops import local_session, windows

_FILE = 20_000  # rows
_KEYS = 20_000
_PER_SECOND = 1_000  # rows of an event-time second
_ORIGIN = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
_SCHEMA = "k long, ts timestamp, v long"
_JOB = windows.tumbling(
    "1 minute", time="ts", by="k", agg={"n": agg.count(), "total": agg.sum("v")}, delay="10 seconds"
)


def write_history(folder: Path, rows: int) -> None:
    """Write the files, each a second younger than the one before."""
    dice, start = np.random.default_rng(1), int(_ORIGIN.timestamp() * 1e6)
    for number in range(rows // _FILE):
        offsets = number * _FILE + np.arange(_FILE)
        times = start + offsets * (1_000_000 // _PER_SECOND) - dice.integers(0, 9_000_000, _FILE)
        table = pa.table(
            {
                "k": dice.integers(0, _KEYS, _FILE),
                "ts": pa.array(times).cast(pa.timestamp("us", "UTC")),
                "v": dice.integers(0, 100, _FILE),
            }
        )
        path = folder / f"{number:06d}.parquet"
        pq.write_table(table, path)
        os.utime(path, (number, number))


def fill(spark: SparkSession, folder: Path, size: int) -> dict[str, Any]:
    """Run the job as a stream with so many rows per micro-batch; what its metrics add up to."""
    frame = spark.readStream.schema(_SCHEMA).option("maxFilesPerTrigger", max(size // _FILE, 1))
    with tempfile.TemporaryDirectory() as checkpoint:
        query = (
            frame.parquet(str(folder)).transform(_JOB).writeStream.format("noop")
            .option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination()
        batches = [of.observedMetrics["tumbling"] for of in query.recentProgress]
    return {
        "late": sum(of.stragglers + of.too_late for of in batches),
        "state": max(of.state_rows for of in batches),
        "batches": len(batches),
    }


def run_batch(frame: DataFrame) -> dict[str, Any]:
    """Run the job as a batch."""
    frame.transform(_JOB).write.format("noop").mode("overwrite").save()
    return {"late": 0, "state": 0, "batches": 1}


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.filling", description=__doc__)
    parser.add_argument("--rows", type=int, default=6_000_000)
    parser.add_argument("--sizes", type=int, nargs="+", default=[60_000, 500_000, 2_000_000])
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="streamops-filling-") as name, ProcessTree() as meter:
        folder, first = Path(name, "history"), Path(name, "first")
        for path, rows in ((folder, chosen.rows), (first, 2 * _FILE)):
            path.mkdir()
            write_history(path, rows)
        spark = local_session()
        fill(spark, first, _FILE)
        print(f"{chosen.rows:,} rows; load {os.getloadavg()[0]:.1f}")
        print(
            "| micro-batches | rows in each | CPU s per million rows | seconds | most rows in state | late |"
        )
        print("|---:|---:|---:|---:|---:|---:|", flush=True)
        for size in [*chosen.sizes, 0]:
            before, begun = meter.read(), perf_counter()
            found = (
                fill(spark, folder, size) if size else run_batch(spark.read.parquet(str(folder)))
            )
            seconds, used = perf_counter() - begun, meter.read().since(before)
            cost = used.total / chosen.rows * 1e6
            label = f"{size:,}" if size else "a batch"
            print(
                f"| {found['batches']} | {label} | {cost:.2f} | {seconds:.0f} | {found['state']:,} | {found['late']} |",
                flush=True,
            )
        spark.stop()


if __name__ == "__main__":
    main()
