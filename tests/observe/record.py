"""Record the progress of real queries for the tests without Spark: ``python -m tests.observe.record``."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from streamops import aggregates as agg
from streamops import local_session, time, windows
from streamops.testing import at, micro_batches
from tests.observe.recorded import DATA, SECRET, SECRET_NUMBER

SCHEMA = pa.schema([("device", pa.string()), ("ts", pa.timestamp("us", "UTC")), ("v", pa.int64())])


def rows(*times: int | None, device: str = SECRET) -> list[dict[str, Any]]:
    """Rows at these seconds."""
    return [
        {"device": device, "ts": None if t is None else at(t), "v": SECRET_NUMBER} for t in times
    ]


SCRIPT = [rows(10 * n, 10 * n + 5, 10 * n + 7, device="a") for n in range(1, 7)]
SCRIPT += [rows(65, 30, 5, None)]  # on time, a straggler, too late, without an event time
SCRIPT += [rows(10 * n, 10 * n + 5) for n in range(8, 12)]

PER_TEN_SECONDS = windows.tumbling(
    "10 seconds",
    time="ts",
    by="device",
    agg={"n": agg.count(), "s": agg.sum("v")},
    delay="5 seconds",
    allowed_lateness="20 seconds",
    stragglers="update",
    too_late="route",
).options(shards=4)


def observed(frame: DataFrame) -> DataFrame:
    """An observation of the user, with values of rows."""
    values = F.max("v").alias("greatest"), F.max("device").alias("device")
    return frame.observe("mine", F.count(F.lit(1)).alias("rows"), *values)


def record(spark: SparkSession) -> None:
    """Run the queries, and store their progress."""
    by_device = time.producers("device", time="ts", delay="5 seconds", idle="1 hour")
    plans = {
        "views": lambda frame: observed(frame).transform(PER_TEN_SECONDS),
        "clocks": lambda frame: frame.transform(by_device).dropDuplicatesWithinWatermark(["ts"]),
    }
    for name, plan in plans.items():
        with tempfile.TemporaryDirectory() as folder:
            frame = micro_batches(spark, SCRIPT, schema=SCHEMA, directory=Path(folder))
            query = (
                plan(frame)
                .writeStream.format("noop")
                .queryName(name)
                .option("checkpointLocation", f"{folder}/checkpoint")
                .trigger(availableNow=True)
                .start()
            )
            assert query.awaitTermination(300)
            lines = [progress.json for progress in query.recentProgress]
        (DATA / f"{name}.jsonl").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    record(local_session())
