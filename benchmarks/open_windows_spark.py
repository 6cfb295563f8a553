"""What a micro-batch on Spark costs as the number of open windows grows: `python -m benchmarks.open_windows_spark`.

As `benchmarks.open_windows`, but whole queries: native Spark, and the kernel on both state APIs, all with
RocksDB. Windows are so long that none closes. The state is filled with one window per key in large
micro-batches; then micro-batches of 60,000 rows with random keys are measured. With `--end`, one more
closes all windows. With `--restart`, the query is stopped, and a new process continues it from its
checkpoint. Each run is a process of its own. `--library` measures other versions of streamops: folders that
have the package.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from benchmarks.cpu import ProcessTree
from benchmarks.machine import describe_machine
from benchmarks.stream import DELAY, ORIGIN_MS
from benchmarks.systems import session
from benchmarks.tables import replace_between

SIZE = "1000 days"
CLOSED_MS = 2_000 * 86_400_000
"""After so long all windows are closed."""
ROWS = 60_000
FILL = 2_000_000
WARM = 20
BATCHES = 10
SIZES = (100_000, 1_000_000, 10_000_000)
APIS = {
    "kernel-aipws": "applyInPandasWithState",
    "kernel-tws": "transformWithStateInPandas",
}
SYSTEMS = ("native", *APIS)
SCHEMA = "k long, v double, ts timestamp"
ROOT = Path(__file__).resolve().parent.parent
RESULTS = Path(__file__).with_name("results") / "open_windows_spark"


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU seconds of one run.

    Parameters
    ----------
    system, library : str
        The system, and the name of the folder with the version of streamops.
    windows : int
        Open windows.
    fill : float
        Of all micro-batches that fill the state.
    jvm, python : float
        Of a measured micro-batch, the mean.
    wall : list of float
        Seconds of each measured micro-batch, as Spark reports them.
    stored : int
        Bytes of the state in the checkpoint.
    memory : int
        Largest resident bytes of Spark and its workers, as they were after a micro-batch.
    end : float, optional
        Of the micro-batches in which all windows close.
    restart : list of float
        Of a new process: CPU and wall seconds of its first micro-batch, with the start of the query.
    load : float
        Load average of the machine at the end.
    """

    system: str
    library: str
    windows: int
    fill: float
    jvm: float
    python: float
    wall: list[float]
    stored: int
    memory: int
    end: float | None
    restart: list[float]
    load: float

    @property
    def cpu(self) -> float:
        """CPU seconds of a micro-batch."""
        return self.jvm + self.python


def build(events: DataFrame, system: str) -> DataFrame:
    """Count and sum per key and window."""
    if system == "native":
        window = F.window("ts", SIZE).alias("w")
        totals = F.count(F.lit(1)).alias("n"), F.sum("v").alias("total")
        counted = events.withWatermark("ts", DELAY).groupBy("k", window).agg(*totals)
        return counted.select("k", "w.start", "w.end", "n", "total")
    from streamops import aggregates as agg
    from streamops import windows

    totals_ = {"n": agg.count(), "total": agg.sum("v")}
    operator = windows.tumbling(SIZE, time="ts", by="k", agg=totals_, delay=DELAY)
    api: Any = APIS[system]
    return events.transform(operator.options(engine="kernel", state_api=api))


class _Query:
    """A query over files that are linked into a folder, one per micro-batch."""

    def __init__(self, system: str, folder: Path, windows: int) -> None:
        self.incoming, self.windows = folder / "input", windows
        self.incoming.mkdir(exist_ok=True)
        self.number = len(list(self.incoming.iterdir()))
        self.rng = np.random.default_rng(self.number)
        self.spark = session("rocksdb")
        reader = self.spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
        writer = build(reader.parquet(str(self.incoming)), system).writeStream.format("noop")
        checkpoint = str(folder / "checkpoint")
        self.query = writer.option("checkpointLocation", checkpoint).start()
        self.memory = 0

    def feed(self, keys: Sequence[np.ndarray[Any, Any]], *, later_ms: int = 0) -> None:
        """Process one micro-batch per array of keys."""
        for of_batch in keys:
            instants = np.full(len(of_batch), ORIGIN_MS + self.number * 1_000 + later_ms) * 1_000
            ts = pa.array(instants).cast(pa.timestamp("us", tz="UTC"))
            values = self.rng.integers(0, 400, len(of_batch)) / 4
            path = self.incoming.parent / "next.parquet"
            rows = pa.table({"k": of_batch, "v": values, "ts": ts})
            pq.write_table(rows, path, row_group_size=125_000)
            os.utime(path, times=(ORIGIN_MS // 1000 + 2 * self.number,) * 2)
            path.rename(self.incoming / f"{self.number:05d}.parquet")
            self.number += 1
        self.query.processAllAvailable()
        self.memory = max(self.memory, _resident())

    def feed_random(self, batches: int) -> None:
        """Process micro-batches of random keys."""
        self.feed([self.rng.integers(0, self.windows, ROWS) for _ in range(batches)])

    def stop(self) -> None:
        self.query.stop()
        self.spark.stop()


def _resident() -> int:
    """Resident bytes of the living descendants of this process."""
    parents, found = {os.getpid()}, 0
    status = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                lines = (entry / "status").read_text().splitlines()
            except (FileNotFoundError, ProcessLookupError):
                continue
            fields = dict(line.split(":", 1) for line in lines)
            rss = int(fields.get("VmRSS", "0 kB").split()[0]) * 1024
            status[int(entry.name)] = int(fields["PPid"]), rss
    grown = True
    while grown:
        more = {pid for pid, (parent, _) in status.items() if parent in parents} - parents
        grown, parents = bool(more), parents | more
        found += sum(status[pid][1] for pid in more)
    return found


def measure(system: str, windows: int, batches: int, warm: int, end: bool, folder: Path) -> Cost:
    """Fill the state, and measure micro-batches."""
    with ProcessTree() as tree:
        query = _Query(system, folder, windows)
        before = tree.read()
        keys = np.random.default_rng(windows).permutation(windows)
        for start in range(0, windows, FILL):
            query.feed([keys[start : start + FILL]])
        filled = tree.read().since(before).total
        query.feed_random(warm)
        before = tree.read()
        query.feed_random(batches)
        used = tree.read().since(before)
        wall = [p.batchDuration / 1_000 for p in query.query.recentProgress if p.numInputRows]
        ended = None
        state = folder / "checkpoint/state"
        stored = sum(file.stat().st_size for file in state.rglob("*") if file.is_file())
        if end:
            before = tree.read()
            query.feed([np.arange(ROWS)], later_ms=CLOSED_MS)
            ended = tree.read().since(before).total
        query.stop()
        return Cost(
            system,
            _library(),
            windows,
            filled,
            (used.jvm + used.helpers) / batches,
            used.python / batches,
            wall[-batches:],
            stored,
            query.memory,
            ended,
            [],
            os.getloadavg()[0],
        )


def restart(system: str, windows: int, folder: Path) -> list[float]:
    """CPU and wall seconds of the first micro-batch of a new process."""
    with ProcessTree() as tree:
        session("rocksdb").range(1).collect()  # starts Java
        before, began = tree.read(), time.monotonic()
        query = _Query(system, folder, windows)
        query.feed_random(1)
        used = [tree.read().since(before).total, time.monotonic() - began]
        query.stop()
    return used


def _library() -> str:
    import streamops

    return Path(str(streamops.__file__)).parent.parent.name


def show(cost: Cost) -> str:
    """A row of the table."""
    version = "" if cost.system == "native" else cost.library
    end = "" if cost.end is None else f"{cost.end:.1f}"
    again = "" if not cost.restart else f"{cost.restart[0]:.1f}, {cost.restart[1]:.1f}"
    return (
        f"| `{cost.system}` | {version} | {cost.windows:,} | **{cost.cpu:.2f}** | {cost.jvm:.2f} | "
        f"{cost.python:.2f} | {sorted(cost.wall)[len(cost.wall) // 2]:.1f}, {max(cost.wall):.1f} | "
        f"{cost.fill:.0f} | {end} | {again} | {cost.stored / 1e6:.0f} | {cost.memory / 2**30:.1f} | "
        f"{cost.load:.0f} |"
    )


HEAD = (
    "| system | version | open windows | CPU s per micro-batch | JVM | Python | wall s: median, largest | fill, "
    "CPU s | close, CPU s | restart: CPU s, wall s | checkpoint, MB | memory, GiB | load |"
)


def page(records: Sequence[dict[str, Any]]) -> str:
    """The table of recorded runs, in Markdown."""
    machine = records[0]["machine"]
    costs = [Cost(**run) for record in records for run in record["runs"]]
    costs.sort(key=lambda cost: (cost.windows, SYSTEMS.index(cost.system), cost.library))
    loads = [cost.load for cost in costs]
    head = (
        f"Run of {records[0]['started'][:10]}: {machine['cpu']}, {machine['cores']} cores, "
        f"{machine['memory_gib']} GiB; PySpark {machine['pyspark']}. Load average after the runs "
        f"{min(loads):.1f} to {max(loads):.1f}."
    )
    return "\n".join([head, "", HEAD, "|---|---|" + "---:|" * 11, *map(show, costs)])


def main() -> None:
    """Measure each number of windows in each system, or read records, and print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.open_windows_spark", description=__doc__
    )
    add = parser.add_argument
    add("--windows", type=int, nargs="+", default=SIZES)
    add("--systems", nargs="+", choices=SYSTEMS, default=SYSTEMS)
    add("--batches", type=int, default=BATCHES, help="measured micro-batches")
    add("--warm", type=int, default=WARM, help="micro-batches before them")
    add("--repeats", type=int, default=1)
    add("--end", action="store_true", help="close all windows, too")
    add("--restart", action="store_true", help="continue in a new process, too")
    add("--library", type=Path, nargs="+", default=[ROOT])
    add("--cache", type=Path, default=Path(tempfile.gettempdir()))
    add("--record", type=Path, nargs="+", help="print the table of records, measure nothing")
    add("--write", action="store_true", help="write the table into benchmarks/results/README.md")
    add("--one", choices=("measure", "restart"), help=argparse.SUPPRESS)
    add("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        system, windows = options.systems[0], options.windows[0]
        found: Any = restart(system, windows, options.folder) if options.one == "restart" else None
        if found is None:
            cost = measure(
                *(system, windows, options.batches, options.warm, options.end), options.folder
            )
            found = asdict(cost)
        (options.folder / "result.json").write_text(json.dumps(found))
        return
    records = [json.loads(path.read_text()) for path in options.record or ()]
    text = page(records or [_measure(options)])
    print(text)
    if options.write:
        replace_between("open windows", "python -m benchmarks.open_windows_spark --write", text)


def _measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure and record each run in processes of its own."""
    started = datetime.now(UTC)
    record: dict[str, Any] = {
        "started": started.isoformat(timespec="seconds"),
        "machine": describe_machine(),
        "runs": [],
    }
    RESULTS.mkdir(parents=True, exist_ok=True)
    target = RESULTS / f"{started:%Y-%m-%dT%H%M%S}.json"
    runs = [
        (windows, system, library)
        for _ in range(options.repeats)
        for windows in options.windows
        for system in options.systems
        for library in (options.library[:1] if system == "native" else options.library)
    ]
    print(f"{len(runs)} runs, recorded in {target}", flush=True)
    for windows, system, library in runs:
        with tempfile.TemporaryDirectory(dir=options.cache) as folder:
            given = ["--systems", system, "--windows", str(windows), "--folder", folder]
            more = ["--batches", str(options.batches), "--warm", str(options.warm)]
            more += ["--end"] if options.end else []
            found = _in_process(library, ["--one", "measure", *given, *more])
            if options.restart:
                found["restart"] = _in_process(library, ["--one", "restart", *given])
        record["runs"].append(found)
        target.write_text(json.dumps(record, indent=1))
        print(show(Cost(**found)), flush=True)
    return record


def _in_process(library: Path, arguments: Sequence[str]) -> Any:
    folder = Path(arguments[arguments.index("--folder") + 1])
    # The library first; what it does not have is in this folder.
    path = os.pathsep.join([str(library.resolve()), str(ROOT)])
    done = subprocess.run(
        [sys.executable, __file__, *arguments],
        cwd=library,  # the first place where Spark's workers look for packages
        env=os.environ | {"PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable},
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"{arguments} failed:\n{done.stderr[-3000:]}")
    return json.loads((folder / "result.json").read_text())


if __name__ == "__main__":
    main()
