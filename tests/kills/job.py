"""The driver that is killed: ``python -m tests.kills.job SETTINGS`` runs a query until its input ends.

It ends with 0 if all rows are written, and with `FAILED` if a query failed. Either way it writes a file
with the outcome of each query: "finished", or the code of the error.
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming.query import StreamingQuery

import streamops
from streamops import sinks, sources
from streamops.sinks.protocol import CheckedTarget
from streamops.sinks.sink import BatchWriter
from streamops.spark.identity import Identity
from tests.jvm import SHORT_LIVED
from tests.kafka.broker import jars
from tests.kills import cluster
from tests.kills.inputs import DDL, Form, operator
from tests.kills.targets import Location, rejected_sink, results_sink
from tests.kills.tasks import CONF, SPECULATION, sabotage, write_all_by_tasks

FAILED = 3
"""The exit code of a driver whose query failed."""
FINISHED = "finished"
ALL_TARGETS = "all targets"
"""The name of the query that writes all targets."""

_CODE = re.compile(r"\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\]")
_WRAPPERS = {"STREAM_FAILED", "FOREACH_BATCH_USER_FUNCTION_ERROR"}


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a driver runs.

    Parameters
    ----------
    folder : str
        Of the round: input, checkpoints, and targets that are files.
    name : str
        Of the round.
    form : "changes", "revisions", "multiset" or "rows"
        Form of the results.
    targets : sequence of str
        The targets, in the order in which a micro-batch is written to them.
    separate : bool
        Whether each target has a query of its own.
    hold : int
        The micro-batch in which every query waits for the file "go on"; -1 for none.
    hold_at : "before commit" or "after commit"
        Whether it waits before or after the commit of its targets.
    executors : bool
        Whether the query runs on executors of their own, instead of in the driver.
    hosts : bool
        Whether these executors are on different hosts, and Spark starts copies of slow tasks.
    in_tasks : bool
        Whether tasks write all micro-batches, some of whose attempts end or wait before their receipts.
    postgres, kafka, topic : str, optional
        The servers, and the topic that is read instead of files.
    rows : int
        Records of the topic in a micro-batch.
    """

    folder: str
    name: str
    form: Form
    targets: Sequence[str]
    separate: bool = False
    hold: int = -1
    hold_at: Literal["before commit", "after commit"] = "before commit"
    executors: bool = False
    hosts: bool = False
    in_tasks: bool = False
    postgres: str | None = None
    kafka: str | None = None
    topic: str | None = None
    rows: int = 0

    @property
    def location(self) -> Location:
        """Where the targets are."""
        path = Path(self.folder)
        return Location(folder=path, name=self.name, postgres=self.postgres, kafka=self.kafka)

    @property
    def queries(self) -> dict[str, Sequence[str]]:
        """The queries by name: the targets of each."""
        return {t: [t] for t in self.targets} if self.separate else {ALL_TARGETS: self.targets}

    def checkpoint(self, query: str) -> Path:
        """The checkpoint of a query."""
        return Path(self.folder, "checkpoints", query)

    def marker(self, query: str) -> Path:
        """The file that a query writes when it waits in the micro-batch `hold`."""
        return Path(self.folder, f"{query} waits")

    @property
    def tasks(self) -> Path:
        """The folder in which tasks say that they have ended."""
        return Path(self.folder, "tasks")

    def write(self, path: Path) -> None:
        """Write a file that a driver reads."""
        path.write_text(json.dumps(asdict(self)))

    @staticmethod
    def read(path: Path) -> Settings:
        """Read the file."""
        return Settings(**json.loads(path.read_text()))


@dataclass(frozen=True, kw_only=True, repr=False)
class Held(BatchWriter):
    """Waits in a micro-batch until a file exists."""

    where = "tests.held"

    writer: BatchWriter
    batch: int
    after_commit: bool
    marker: str
    go_on: str

    @property
    def label(self) -> str:
        return self.writer.label

    def _checked(self) -> Iterator[CheckedTarget]:
        return self.writer._checked()

    def _deliver(self, batch: DataFrame, batch_id: int, identity: Identity) -> None:
        if self.after_commit:
            self.writer._deliver(batch, batch_id, identity)
        if batch_id == self.batch:
            Path(self.marker).touch()
            while not Path(self.go_on).exists():
                time.sleep(0.01)
        if not self.after_commit:
            self.writer._deliver(batch, batch_id, identity)


def go_on(folder: str | Path) -> Path:
    """The file for which held queries wait."""
    return Path(folder, "go on")


def sink(settings: Settings, query: str) -> BatchWriter:
    """The sink of a query: results and rejected rows, to all its targets."""
    at, targets = settings.location, settings.queries[query]
    results = {t: results_sink(t, at, settings.form) for t in targets}
    if settings.in_tasks:
        results = {
            t: sabotage(sink, settings.tasks, t, slow=settings.hosts) for t, sink in results.items()
        }
    writer: BatchWriter = sinks.fan_out(results)
    if settings.form != "rows":
        rejected = sinks.fan_out({t: rejected_sink(t, at) for t in targets})
        writer = sinks.side_outputs(
            results=writer, rejected=rejected, operator="windows", time="ts"
        )
    if settings.hold >= 0:
        return Held(
            writer=writer,
            batch=settings.hold,
            after_commit=settings.hold_at == "after commit",
            marker=str(settings.marker(query)),
            go_on=str(go_on(settings.folder)),
        )
    return writer


def read(spark: SparkSession, settings: Settings) -> DataFrame:
    """The rows, one file or one range of offsets to a micro-batch."""
    if settings.topic is None:
        files = spark.readStream.schema(DDL).option("maxFilesPerTrigger", 1)
        return files.parquet(f"{settings.folder}/input")
    assert settings.kafka is not None
    records = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", settings.kafka)
        .option("subscribe", settings.topic)
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", settings.rows)
        .load()
    )
    names = [column.split()[0] for column in DDL.split(", ")]
    parsed = records.transform(sources.kafka_events(DDL))
    return parsed.where(F.col("rejected").isNull()).select(names)


def start(spark: SparkSession, settings: Settings, query: str) -> StreamingQuery:
    """Start a query, from its checkpoint if there is one."""
    return (
        read(spark, settings)
        .transform(operator(settings.form))
        .writeStream.queryName(query)
        .foreachBatch(sink(settings, query))
        .option("checkpointLocation", str(settings.checkpoint(query)))
        .trigger(availableNow=True)
        .start()
    )


def session(settings: Settings) -> SparkSession:
    """A session of two cores, in this process or in two executors."""
    conf = {"spark.driver.extraJavaOptions": SHORT_LIVED}
    if settings.executors:
        conf |= {"spark.master": "local-cluster[2,1,2048]", "spark.executor.memory": "1g"}
        conf |= {"spark.executor.extraJavaOptions": SHORT_LIVED}
    if settings.hosts:
        conf |= SPECULATION | {
            "spark.driver.host": cluster.MASTER,
            "spark.driver.bindAddress": cluster.MASTER,
        }
        conf |= {"spark.master": cluster.start(Path(settings.folder, "cluster"))}
    if settings.in_tasks:
        conf |= CONF
    if settings.topic is not None:
        conf |= {"spark.jars": ",".join(map(str, jars("connector")))}
    return streamops.local_session(app_name="kills", conf=conf)


def outcome(query: StreamingQuery) -> str:
    """Wait for the end of a query: "finished", or the code of its error."""
    try:
        query.awaitTermination()
    except StreamingQueryException as error:
        print(error, file=sys.stderr, flush=True)
        codes = [code for code in _CODE.findall(str(error)) if code not in _WRAPPERS]
        return codes[0] if codes else "unknown error"
    return FINISHED


def go_file(settings: Path) -> Path:
    """The file for which a driver with these settings waits before it starts its query."""
    return settings.with_suffix(".go")


def main(arguments: Sequence[str]) -> int:
    """Run the queries of the settings to their end."""
    path = Path(arguments[0])
    settings = Settings.read(path)
    if settings.in_tasks:
        write_all_by_tasks()
    spark = session(settings)
    while not go_file(path).exists():
        time.sleep(0.01)
    queries = {}
    for name in settings.queries:
        queries[name] = start(spark, settings, name)
        # Spark gives the Python process of an operator ten seconds to start: one after the other.
        while len(settings.queries) > 1 and queries[name].isActive:
            if queries[name].lastProgress is not None:
                break
            time.sleep(0.1)
    outcomes = {name: outcome(query) for name, query in queries.items()}
    result = Path(settings.folder, "outcomes", f"{os.getpid()}.json")
    result.parent.mkdir(exist_ok=True)
    result.write_text(json.dumps(outcomes))
    spark.stop()
    return 0 if set(outcomes.values()) == {FINISHED} else FAILED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
