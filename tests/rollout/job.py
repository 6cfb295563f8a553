"""The versions of the job. ``python -m tests.rollout.job FOLDER VERSION``."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F

import streamops
from streamops import aggregates as agg
from streamops import sinks, windows
from tests.jvm import SHORT_LIVED
from tests.kafka.broker import jars

BY = ("k", "window_start")


def operator(version: int) -> Any:
    """Version 2 has one more aggregate, and corrects windows."""
    common: dict[str, Any] = {"time": "ts", "by": "k", "delay": "2 seconds"}
    counted = {"n": agg.count(), "total": agg.sum("v")}
    if version == 1:
        return windows.tumbling(
            "10 seconds", agg=counted, allowed_lateness="1 hour", stragglers="update", **common
        )
    more = {**counted, "largest": agg.max("v")}
    return windows.tumbling(
        "10 seconds", agg=more, allowed_lateness="1 hour", stragglers="update", **common
    )


def sink(folder: Path, version: int) -> Any:
    """The table of a version."""
    url = json.loads((folder / "servers").read_text())["url"]
    return sinks.postgres(url, f"views_{version}", key=BY)


def main(folder: Path, version: int) -> None:
    """Run a version until it is killed."""
    servers = json.loads((folder / "servers").read_text())
    conf = {
        "spark.driver.extraJavaOptions": SHORT_LIVED,
        "spark.jars": ",".join(map(str, jars("connector"))),
    }
    spark = streamops.local_session(conf=conf)
    options = {"kafka.bootstrap.servers": servers["kafka"], "subscribe": servers["topic"]}
    records = spark.readStream.format("kafka").options(**options, startingOffsets="earliest")
    value = F.from_json(F.col("value").cast("string"), "k string, ts timestamp, v bigint")
    events = records.load().select(value.alias("event")).select("event.*")
    writer = events.transform(operator(version)).writeStream.foreachBatch(sink(folder, version))
    writer = writer.option("checkpointLocation", str(folder / f"checkpoint {version}"))
    writer.trigger(processingTime="0 seconds").start().awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
