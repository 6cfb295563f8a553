"""One run: one system over one workload, in a process of its own.

`python -m benchmarks.measure SPEC` reads a JSON specification and writes a JSON result. A single
query runs without a break over all phases. It is given micro-batches by linking files into its
input folder; before and after the measured ones it is idle, and the CPU clock of the process tree
is read. So neither the start of a query nor the loading of a checkpoint is in the figures.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from benchmarks import per_key
from benchmarks.cpu import ProcessTree
from benchmarks.joins import JOINS, fold_changes
from benchmarks.systems import MASTER, SYSTEMS, session
from benchmarks.workloads import RATE, P, Workload, prepare

ROOT = Path(__file__).resolve().parent.parent
STANDARD_ERROR = 1.04 / 2 ** (P / 2)
"""Of HyperLogLog with 2^P registers."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """Where the queries run.

    Parameters
    ----------
    master : str
        Spark's master.
    settings : dict
        Settings of Spark that differ from those of the other benchmarks.
    """

    master: str = MASTER
    settings: dict[str, str] = field(default_factory=dict)


LOCAL = Cluster()


class RunFailed(RuntimeError):
    """A run ended without a result, or with a wrong one; the message says how."""


@dataclass(frozen=True, slots=True)
class Reading:
    """What the measured micro-batches of one phase used."""

    rows_per_batch: int
    rows: int
    jvm: float
    python: float
    helpers: float
    lost_exits: int
    wall: float
    batch_ms: list[int]

    @property
    def per_million(self) -> float:
        """CPU seconds of the whole process tree per million rows."""
        return (self.jvm + self.python + self.helpers) / self.rows * 1e6


@dataclass(frozen=True, slots=True)
class Run:
    """What one run gave."""

    system: str
    workload: Workload
    readings: list[Reading]
    rows_dropped: int
    state_rows: int
    state_bytes: int
    load: float
    """Load average of the machine when the run began."""
    java: str

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Run:
        """Rebuild a run from what `asdict` and JSON made of it."""
        readings = [Reading(**reading) for reading in record["readings"]]
        workload = Workload.from_record(record["workload"])
        return cls(**(record | {"workload": workload, "readings": readings}))


def measure(
    system: str, workload: Workload, shards: int | None, cache: Path, cluster: Cluster = LOCAL
) -> Run:
    """Run `system` in a fresh process with a fresh checkpoint; its results go nowhere."""
    with tempfile.TemporaryDirectory(dir=cache, prefix="run-") as folder:
        return _in_process(system, workload, shards, cache, Path(folder), "noop", cluster)


def verify(system: str, workload: Workload, shards: int | None, cache: Path) -> str:
    """Run `system` into Parquet files and compare with the answer; return a sentence about it."""
    with tempfile.TemporaryDirectory(dir=cache, prefix="run-") as folder:
        run = _in_process(system, workload, shards, cache, Path(folder), "parquet")
        found = pq.read_table(Path(folder) / "output").to_pandas()
    if run.rows_dropped:
        raise RunFailed(f"{system}: {run.rows_dropped:,} rows were dropped as late; none is")
    return compare(system, workload, found)


def compare(
    system: str, workload: Workload, found: pd.DataFrame, error: float = STANDARD_ERROR
) -> str:
    """Compare the results of a system with the answer; return a sentence about them.

    `error` is the standard error of its sketch of distinct items.
    """
    if workload.is_join:
        return _equal(system, JOINS[workload.windows].found(found), workload.expected())
    if workload.windows == "per-key" and system != "ceiling":
        return _equal(system, per_key.found(found), workload.expected())
    if system == "ceiling":
        sent = pd.DataFrame(workload.events())
        if (len(found), found["v"].sum()) != (len(sent), sent["v"].sum()):
            raise RunFailed(f"{system}: rows or sums differ from what was sent")
        return f"{len(found):,} rows passed through, nothing lost"
    if workload.windows == "seen":
        there, passed = len(np.unique(workload.events()["k"])), len(found)
        if found["k"].duplicated().any() or not there * (1 - 1.1 * RATE) <= passed <= there:
            raise RunFailed(f"{system}: {passed:,} rows passed, of {there:,} different items")
        return f"{passed:,} rows passed, of {there:,} different items; no duplicate"
    expected = workload.expected()
    if workload.windows == "distinct":
        return _within_error(system, found, expected, error)
    if workload.windows == "running":
        # The last value of each key; values of an update stream may come in any order.
        last = found.sort_values("n", kind="stable").drop_duplicates("k", keep="last")
        return _equal(
            system, last[["k", "n", "total"]].sort_values("k", ignore_index=True), expected
        )
    if workload.windows == "corrections":
        window = ["k", "window_start", "window_end"]
        if "_change_type" in found:
            found = fold_changes(found, [*window, "n", "total"])
        else:  # new values replace old ones
            found = found.sort_values("n").drop_duplicates(window, keep="last")
    pairs = (("ts", "ts"), ("match_start", "match_end"), ("window_start", "window_end"))
    start, end = next(pair for pair in pairs if pair[0] in found)
    rows = pd.DataFrame(
        {
            "k": found["k"],
            "start": found[start].to_numpy("datetime64[ms]").astype("int64"),
            "end": found[end].to_numpy("datetime64[ms]").astype("int64"),
            "n": found["n"],
            "total": found["total"],
        }
    )
    rows = rows.sort_values(["k", "start"], ignore_index=True)
    if not rows.equals(expected):
        raise RunFailed(
            f"{system} differs from the answer: {len(rows):,} results of {rows['n'].sum():,} "
            f"events, total {rows['total'].sum():,}; expected {len(expected):,} results of "
            f"{expected['n'].sum():,} events, total {expected['total'].sum():,}"
        )
    return f"{len(rows):,} results of {rows['n'].sum():,} events, each equal to the answer"


def _equal(system: str, found: pd.DataFrame, expected: pd.DataFrame) -> str:
    if not found.equals(expected):
        both = found.merge(expected, how="outer", indicator=True)
        raise RunFailed(
            f"{system} differs from the answer: {len(found):,} results, {len(expected):,} expected:\n"
            f"{both[both['_merge'] != 'both'].head(20)}"
        )
    return f"{len(found):,} results, each equal to the answer"


def _within_error(system: str, found: pd.DataFrame, expected: pd.DataFrame, error: float) -> str:
    """Estimates may be off, and of thousands of them one may be far off, but not all to one side."""
    start = found["window_start"].to_numpy("datetime64[ms]").astype("int64")
    both = expected.merge(
        pd.DataFrame({"k": found["k"], "start": start, "estimate": found["n"]}), how="outer"
    )
    off = (both["estimate"] / both["n"] - 1).abs().fillna(np.inf)
    # Other sketches than ours may count two items as one.
    far = (off > 5 * error) & ((both["estimate"] - both["n"]).abs() > 1)
    if len(found) != len(expected) or far.any() or off.mean() > error:
        raise RunFailed(
            f"{system}: {len(found):,} results, {len(expected):,} expected; estimates are off by "
            f"{off.mean():.2%} on average and {off.max():.2%} at most, standard error {error:.2%}"
        )
    return f"{len(found):,} results, off by {off.mean():.2%} on average and {off.max():.2%} at most"


def _in_process(
    system: str,
    workload: Workload,
    shards: int | None,
    cache: Path,
    folder: Path,
    sink: str,
    cluster: Cluster = LOCAL,
) -> Run:
    spec = {
        "system": system,
        "workload": asdict(workload),
        "shards": shards,
        "sink": sink,
        "cluster": asdict(cluster),
        "folder": str(folder),
        "steps": [[[*map(str, files)] for files in step] for step in prepare(workload, cache)],
    }
    spec_file, result_file, log_file = (folder / name for name in ("spec", "result", "log"))
    spec_file.write_text(json.dumps(spec))
    # The workers, too, must find this package and the interpreter that runs it.
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join(paths),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    with log_file.open("w") as log:
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.measure", str(spec_file)],
            cwd=folder,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode != 0:
        tail = "\n".join(log_file.read_text().splitlines()[-60:])
        raise RunFailed(f"{system} ended with exit code {done.returncode}:\n{tail}")
    return Run.from_record(json.loads(result_file.read_text()))


def _run(spec: dict[str, Any]) -> Run:
    folder = Path(spec["folder"])
    system, workload = SYSTEMS[spec["system"]], Workload.from_record(spec["workload"])
    cluster = Cluster(**spec["cluster"])
    load, readings = os.getloadavg()[0], []
    incoming = folder / "input"
    incoming.mkdir()
    fill, *steps = spec["steps"]
    with ProcessTree() as tree:
        spark = session(system.store, cluster.master, cluster.settings)
        java = _java_version(spark)
        frames = []
        for name, schema in workload.schemas.items():
            (incoming / name).mkdir()
            reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
            frames.append(reader.parquet(str(incoming / name)))
        build: Any = system.join if workload.is_join else system.build
        results = build(*frames, workload.windows, spec["shards"])
        writer = results.writeStream.outputMode("append").format(spec["sink"])
        if spec["sink"] == "parquet":
            writer = writer.option("path", str(folder / "output"))
        query = writer.option("checkpointLocation", str(folder / "checkpoint")).start()
        _feed(query, incoming, fill)
        for phase, warm, measured in zip(workload.phases, steps[::2], steps[1::2], strict=True):
            _feed(query, incoming, warm)
            first = len(query.recentProgress)
            before, started = tree.read(), time.perf_counter()
            _feed(query, incoming, measured)
            used, wall = tree.read().since(before), time.perf_counter() - started
            progress = query.recentProgress[first:]
            rows = phase.rows // workload.divisor * phase.batches
            read = [report.numInputRows for report in progress if report.numInputRows]
            if read != [phase.rows // workload.divisor] * phase.batches:
                raise RunFailed(f"the measured batches read {read}, not the {rows:,} rows sent")
            if measured:
                reading = Reading(
                    rows_per_batch=phase.rows,
                    rows=rows,
                    jvm=used.jvm,
                    python=used.python,
                    helpers=used.helpers,
                    lost_exits=used.lost_exits,
                    wall=wall,
                    batch_ms=[report.batchDuration for report in progress],
                )
                readings.append(reading)
        history = query.recentProgress
        query.stop()
        spark.stop()
    last = history[-1].stateOperators
    return Run(
        system=system.name,
        workload=workload,
        readings=readings,
        rows_dropped=sum(o.numRowsDroppedByWatermark for r in history for o in r.stateOperators),
        state_rows=sum(operator.numRowsTotal for operator in last),
        state_bytes=sum(operator.memoryUsedBytes for operator in last),
        load=load,
        java=java,
    )


def _java_version(spark: SparkSession) -> str:
    query = "SELECT reflect('java.lang.System', 'getProperty', 'java.version') AS version"
    return str(spark.sql(query).collect()[0]["version"])


def _feed(query: StreamingQuery, incoming: Path, batches: list[list[str]]) -> None:
    # Linked in the order in which they are to be read, with the times they were prepared with: the
    # source takes the oldest file that it sees, and none that comes later is older.
    for files in batches:
        for file in map(Path, files):
            os.link(file, incoming / file.parent.name / file.name)
    if batches:
        query.processAllAvailable()


def main() -> None:
    """Carry out the specification named on the command line."""
    spec = json.loads(Path(sys.argv[1]).read_text())
    run = _run(spec)
    (Path(spec["folder"]) / "result").write_text(json.dumps(asdict(run)))


if __name__ == "__main__":
    main()
