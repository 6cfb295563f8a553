"""The query that is killed: from a topic to three targets. ``python -m tests.reads.query FOLDER``."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQueryListener

import streamops
from streamops import sinks
from streamops.sinks.sink import BatchWriter
from tests.jvm import SHORT_LIVED
from tests.kafka.broker import jars

TARGETS = ("postgres", "parquet", "sqlite")


@dataclass(frozen=True, kw_only=True, repr=False)
class Timed(BatchWriter):
    """Writes down when a sink has committed a micro-batch."""

    where = "tests.timed"

    writer: BatchWriter
    log: str
    name: str

    def _checked(self) -> Any:
        return self.writer._checked()

    def _deliver(self, batch: Any, batch_id: int, identity: Any) -> None:
        self.writer._deliver(batch, batch_id, identity)
        with Path(self.log).open("a") as log:
            log.write(json.dumps([self.name, batch_id, time.time()]) + "\n")


class Durations(StreamingQueryListener):
    """Writes down how long micro-batches lasted, by Spark's measure."""

    def __init__(self, log: Path) -> None:
        self.log = log

    def onQueryStarted(self, event: Any) -> None: ...

    def onQueryProgress(self, event: Any) -> None:
        """Write down the duration of a micro-batch."""
        progress = event.progress
        with self.log.open("a") as log:
            seconds = progress.durationMs["triggerExecution"] / 1_000
            log.write(json.dumps([progress.batchId, seconds]) + "\n")

    def onQueryIdle(self, event: Any) -> None: ...

    def onQueryTerminated(self, event: Any) -> None: ...


def sink(folder: Path, name: str) -> Any:
    """The sink of a target, for the query and for its readers."""
    if name == "postgres":
        return sinks.postgres(json.loads((folder / "servers").read_text())["url"], "own")
    if name == "parquet":
        return sinks.parquet(str(folder / "parquet"))
    return sinks.sqlalchemy(f"sqlite:///{folder / 'own.db'}", "own")


def main(folder: Path) -> None:
    """Run the query until it is killed."""
    servers = json.loads((folder / "servers").read_text())
    conf = {
        "spark.driver.extraJavaOptions": SHORT_LIVED,
        "spark.jars": ",".join(map(str, jars("connector"))),
        "spark.sql.streaming.minBatchesToRetain": "1000000",  # all of them are in the report
    }
    spark = streamops.local_session(conf=conf)
    spark.streams.addListener(Durations(folder / "durations.jsonl"))
    options = {"kafka.bootstrap.servers": servers["kafka"], "subscribe": servers["topic"]}
    records = spark.readStream.format("kafka").options(**options, startingOffsets="earliest")
    rows = records.load().select(F.col("value").cast("string").cast("bigint").alias("n"))
    log = str(folder / "commits.jsonl")
    targets: dict[str, BatchWriter] = {
        name: Timed(writer=sink(folder, name), log=log, name=name) for name in servers["targets"]
    }
    writer = rows.writeStream.foreachBatch(sinks.fan_out(targets))
    writer = writer.option("checkpointLocation", str(folder / "checkpoint"))
    writer.trigger(processingTime="0 seconds").start().awaitTermination()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
