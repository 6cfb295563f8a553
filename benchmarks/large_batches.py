"""A large micro-batch in a cluster, by tasks and through the driver; and the latency of small ones.

    python -m benchmarks.large_batches                        all sinks, 20 million rows
    python -m benchmarks.large_batches delta --rows 2000000   one
    python -m benchmarks.large_batches --small                micro-batches of 300 rows

Two executors with one core each run in Spark's ``local-cluster``. The micro-batch is read from Parquet files. What
is reported of it: the CPU seconds per million rows of all processes, servers too; the share of the driver, which is
this process and its JVM; how much more memory they had at most; and the longest task of the largest stage, divided by
the median. Three small ones warm all processes up. The way through the driver is measured on fewer rows.

Small micro-batches of a streaming query are written in turns by a sink as it is, and by one that always collects
them. The latency of a micro-batch is what Spark reports as ``triggerExecution``.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from benchmarks.cpu import read_processes, read_started
from streamops import local_session, sinks
from streamops.sinks.sink import Sink

ROWS, FEWER = 20_000_000, 2_000_000
MOST_ROWS = {"postgres": 5_000_000}
_WARM_UP = 200_000
_SMALL, _REPEATS = 300, 200
_MEGABYTE = 1 << 20
_COLUMNS = (
    "id AS k",
    "sha2(cast(id AS string), 512) AS payload",
    "concat('name ', id) AS name",
    "id / 7D AS v",
    "timestamp_micros(id) AS at",
    "cast(0 AS int) AS revision",
)
"""Rows of 200 bytes."""


@dataclass
class Cluster:
    """A session, its servers, and a folder."""

    spark: SparkSession
    folder: Path
    settings: dict[str, Any] = field(default_factory=dict)

    def rows(self, count: int) -> DataFrame:
        """Rows that were stored before, in files that tasks read in equal parts."""
        path = self.folder / f"rows-{count}"
        if not path.exists():
            parts = max(2, count // 500_000)
            self.spark.range(0, count, 1, parts).selectExpr(*_COLUMNS).write.parquet(str(path))
        return self.spark.read.parquet(str(path))


Open = Callable[[Cluster, str], Sink]


def parquet(cluster: Cluster, name: str) -> Sink:
    """A folder of Parquet files, which gets rows."""
    return sinks.parquet(str(cluster.folder / name))


def delta(cluster: Cluster, name: str) -> Sink:
    """A Delta table, which gets rows."""
    return sinks.delta(str(cluster.folder / name))


def delta_key(cluster: Cluster, name: str) -> Sink:
    """A Delta table with a key."""
    return sinks.delta(str(cluster.folder / name), key="k", sequence="revision")


def iceberg(cluster: Cluster, name: str) -> Sink:
    """An Iceberg table, which gets rows."""
    catalog = {
        "type": "sql",
        "uri": f"sqlite:///{cluster.folder}/catalog.db",
        "warehouse": f"file://{cluster.folder}/warehouse",
    }
    import_module("pyiceberg.catalog").load_catalog("c", **catalog).create_namespace_if_not_exists(
        "db"
    )
    return sinks.iceberg(catalog, f"db.{name.replace(' ', '_')}")


def postgres(cluster: Cluster, name: str) -> Sink:
    """A PostgreSQL table with a key."""
    where = cluster.settings["postgres"]
    url = f"postgresql://postgres@/postgres?host={where.split()[0].partition('=')[2]}"
    columns = "k bigint PRIMARY KEY, payload text, name text, v double precision, at timestamptz, revision int"
    with import_module("psycopg").connect(where) as connection:
        connection.execute(f'CREATE TABLE "{name}" ({columns})'.encode())
    return sinks.postgres(url, name, key="k")


def kafka(cluster: Cluster, name: str) -> Sink:
    """A topic with four partitions, each with a transaction."""
    server = cluster.settings["kafka"]
    return sinks.kafka(
        server.create_topic(partitions=4), servers=server.bootstrap, key="k", atomic="partition"
    )


SINKS: dict[str, Open] = {
    "parquet": parquet,
    "delta": delta,
    "delta by key": delta_key,
    "iceberg": iceberg,
    "postgres": postgres,
    "kafka": kafka,
}


@contextmanager
def running(name: str, folder: Path, master: str = "local-cluster[2,1,2048]") -> Iterator[Cluster]:
    """A session of this master, and the server that a sink needs."""
    conf = {
        "spark.master": master,
        "spark.executor.memory": "1g",
        "spark.sql.shuffle.partitions": "4",
        # A task reads a file.
        "spark.sql.files.maxPartitionBytes": "1g",
        "spark.sql.files.openCostInBytes": "1g",
    }
    spark = local_session(memory="2g", conf=conf)
    cluster = Cluster(spark, folder)
    try:
        if name == "postgres":
            server = import_module("tests.servers.postgres")
            with server.running(server.programs()) as cluster.settings["postgres"]:
                yield cluster
        elif name == "kafka":
            with import_module("tests.kafka.broker").running() as cluster.settings["kafka"]:
                yield cluster
        else:
            yield cluster
    finally:
        spark.stop()


class Driver:
    """The processes of the driver: this one, and its JVM."""

    def __init__(self) -> None:
        self.own = os.getpid()
        java = [p for p in read_processes() if p.java and p.parent == self.own]
        lines = {p.pid: Path(f"/proc/{p.pid}/cmdline").read_bytes() for p in java}
        self.jvm = next(pid for pid, line in lines.items() if b"SparkSubmit" in line)

    def cpu(self) -> float:
        """CPU seconds."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        jvm = next(p.own for p in read_processes() if p.pid == self.jvm)
        return used.ru_utime + used.ru_stime + jvm

    def memory(self) -> tuple[int, int]:
        """Bytes that are in memory, of this process and of its JVM."""
        return _memory(self.own), _memory(self.jvm)


def _memory(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Figures:
    """What a micro-batch took."""

    seconds: float
    driver_cpu: float
    cpu: float
    python_memory: int
    jvm_memory: int
    longest: float


def measure(write: Callable[[], None], spark: SparkSession) -> Figures:
    """Write a micro-batch, and measure all processes."""
    driver = Driver()
    highest = list(driver.memory())
    before = tuple(highest)
    has_ended = threading.Event()

    def watch() -> None:
        while not has_ended.wait(0.05):
            highest[:] = map(max, zip(highest, driver.memory(), strict=True))

    last = _last_stage(spark)
    start, cpu = time.monotonic(), (driver.cpu(), _all_cpu())
    watching = threading.Thread(target=watch, daemon=True)
    watching.start()
    try:
        write()
    finally:
        has_ended.set()
        watching.join()
    python, jvm = (high - low for high, low in zip(highest, before, strict=True))
    seconds = time.monotonic() - start
    return Figures(
        seconds, driver.cpu() - cpu[0], _all_cpu() - cpu[1], python, jvm, _longest(spark, last)
    )


def _all_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime + read_started()


def _stages(spark: SparkSession) -> list[Any]:
    store = spark.sparkContext._jsc.sc().statusStore()
    jvm: Any = spark.sparkContext._jvm
    as_java = jvm.scala.jdk.javaapi.CollectionConverters.asJava
    none: Any = spark.sparkContext._gateway.new_array(jvm.double, 0)
    return list(as_java(store.stageList(None, False, False, none, jvm.java.util.ArrayList())))


def _last_stage(spark: SparkSession) -> int:
    return max((stage.stageId() for stage in _stages(spark)), default=-1)


def _longest(spark: SparkSession, last: int) -> float:
    """The longest task of the stage that took most, divided by the median."""
    stages = [stage for stage in _stages(spark) if stage.stageId() > last]
    largest = max(stages, key=lambda stage: stage.executorRunTime())
    store = spark.sparkContext._jsc.sc().statusStore()
    jvm: Any = spark.sparkContext._jvm
    tasks = store.taskList(largest.stageId(), largest.attemptId(), 10_000)
    times = [
        task.duration().get()
        for task in jvm.scala.jdk.javaapi.CollectionConverters.asJava(tasks)
        if task.duration().isDefined()
    ]
    return max(times) / statistics.median(times)


def collect(sink: Sink) -> Sink:
    """Let a sink collect all micro-batches, small or not."""
    object.__setattr__(sink, "_receive", lambda projection, *_: projection.collect())
    return sink


def large(name: str, rows: int, fewer: int, folder: Path) -> None:
    """Print a line for a micro-batch by tasks, and one for a micro-batch through the driver."""
    rows = min(rows, MOST_ROWS.get(name, rows))
    with running(name, folder) as cluster:
        warm, frame, some = cluster.rows(_WARM_UP), cluster.rows(rows), cluster.rows(fewer)
        for way, batch in (("tasks", frame), ("driver", some)):
            sink = SINKS[name](cluster, f"{way} {name}")
            if way == "driver":
                collect(sink)
            for number in range(3):
                sink.write(warm, query="job", batch_id=number)
                sink.session.is_small = False

            def write(sink: Sink = sink, batch: DataFrame = batch) -> None:
                sink.write(batch, query="job", batch_id=3)

            found = measure(write, cluster.spark)
            count = rows if batch is frame else fewer
            print(
                f"| {name} | {way} | {count / 1e6:g} | {found.seconds:.0f} | {found.cpu / count * 1e6:.2f} | "
                f"{found.driver_cpu / found.cpu:.1%} | {found.python_memory / _MEGABYTE:.0f} | "
                f"{found.jvm_memory / _MEGABYTE:.0f} | {found.longest:.2f} |",
                flush=True,
            )
            sink.session.close()
            if name not in ("postgres", "kafka"):
                shutil.rmtree(folder / f"{way} {name}", ignore_errors=True)


def small(name: str, folder: Path) -> None:
    """Print a line for the latency of small micro-batches of a streaming query."""
    with running(name, folder, "local[2,4]") as cluster:
        cluster.spark.conf.set("spark.sql.streaming.numRecentProgressUpdates", "1000")
        both = [SINKS[name](cluster, f"{way} {name}") for way in ("small", "driver")]
        collect(both[1])

        def write(batch: DataFrame, number: int) -> None:
            both[number % 2].write(batch, query="job", batch_id=number // 2)

        source = cluster.spark.readStream.format("rate-micro-batch")
        rows = source.options(rowsPerBatch=_SMALL, numPartitions=4).load()
        stream = rows.withColumnRenamed("value", "id").selectExpr(*_COLUMNS).writeStream
        query = stream.foreachBatch(write).trigger(processingTime="0 seconds").start()
        while (query.lastProgress or {"batchId": 0})["batchId"] < 2 * _REPEATS:
            query.awaitTermination(1)
        progress = [of for of in query.recentProgress if _REPEATS <= of["batchId"] < 2 * _REPEATS]
        query.stop()
        times = [
            [of["durationMs"]["triggerExecution"] for of in progress if of["batchId"] % 2 == way]
            for way in (0, 1)
        ]
        ours, collected = map(statistics.median, times)
        print(
            f"| {name} | {ours:.0f} | {collected:.0f} | {ours / collected:.2f} |",
            flush=True,
        )


def main(arguments: list[str] | None = None) -> None:
    """Measure, each sink in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sinks", nargs="*", default=[], help=", ".join(SINKS))
    parser.add_argument("--rows", type=int, default=ROWS, help="rows by tasks")
    parser.add_argument("--fewer", type=int, default=FEWER, help="rows through the driver")
    parser.add_argument("--small", action="store_true", help="the latency of small micro-batches")
    options = parser.parse_args(arguments)
    print(f"load {os.getloadavg()[0]:.1f}")
    if options.small:
        print("| sink | ms | ms, always collected | ratio |\n|---|---:|---:|---:|", flush=True)
    else:
        print(
            "| sink | by | million rows | seconds | CPU s per million rows | of the driver | "
            "more memory, MB: Python | JVM | longest task ÷ median |\n|---|---|" + "---:|" * 7,
            flush=True,
        )
    for name in options.sinks or SINKS:
        child = os.fork()
        if child:
            if os.waitpid(child, 0)[1]:
                sys.exit(f"{name} failed")
            continue
        with tempfile.TemporaryDirectory() as folder:
            if options.small:
                small(name, Path(folder))
            else:
                large(name, options.rows, options.fewer, Path(folder))
        sys.stdout.flush()
        os._exit(0)


if __name__ == "__main__":
    main()
