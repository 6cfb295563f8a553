"""Events per second, and how they grow with workers: ``python -m benchmarks.scaling``.

Each worker is an executor process with one core, of Spark's ``local-cluster``: rows are serialised, and
cross between processes, as in a cluster. More workers than the machine has cores share them: then the CPU
seconds per row must stay, and the events per second cannot grow.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.__main__ import RESULTS
from benchmarks.machine import describe_machine
from benchmarks.measure import LOCAL, Cluster, Run, RunFailed, measure
from benchmarks.systems import SYSTEMS
from benchmarks.tables import replace_between
from benchmarks.workloads import standard

WORKERS = (1, 2, 4)
NAMES = ("native", "kernel-aipws", "native-rocksdb", "kernel-tws")
ROWS = 500_000
DAY = 86_400


def cluster(workers: int) -> Cluster:
    """So many workers with one core and two gigabytes each; none is the usual local session."""
    if not workers:
        return LOCAL
    settings = {
        "spark.executor.memory": "1g",
        "spark.sql.shuffle.partitions": str(max(2, workers)),
        # A file is read by as many tasks as there are cores, whatever its size.
        "spark.sql.files.openCostInBytes": "0",
    }
    return Cluster(f"local-cluster[{workers},1,2048]", settings)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, or print a recorded run."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=__doc__)
    add = parser.add_argument
    add("--workload", default="100k-keys", help="as in python -m benchmarks")
    add(
        "--repeats", type=int, help="fresh processes per system and number of workers (3; quick: 1)"
    )
    add("--quick", action="store_true", help="less warm-up")
    add("--record", type=Path, help="print the table of a recorded run, measure nothing")
    add("--write", action="store_true", help="put the table into benchmarks/results/README.md")
    options = parser.parse_args(arguments)
    try:
        record = json.loads(options.record.read_text()) if options.record else _measure(options)
    except RunFailed as failure:
        print(failure, file=sys.stderr)
        return 1
    text = table(record)
    print(text)
    if options.write:
        replace_between("scaling", "python -m benchmarks.scaling --write", text)
    return 0


def _measure(options: argparse.Namespace) -> dict[str, Any]:
    cache = Path(tempfile.gettempdir()) / "streamops-benchmarks"
    cache.mkdir(parents=True, exist_ok=True)
    target = RESULTS / "scaling" / f"{datetime.now(UTC):%Y-%m-%dT%H%M%S}.json"
    target.parent.mkdir(parents=True, exist_ok=True)
    workload = standard(options.workload, [ROWS], options.quick)
    repeats = options.repeats or (1 if options.quick else 3)
    plan = [(n, name) for _ in range(repeats) for n in (0, *WORKERS) for name in NAMES]
    record: dict[str, Any] = {"machine": describe_machine(), "quick": options.quick, "runs": []}
    for number, (workers, name) in enumerate(plan, start=1):
        run = measure(name, workload, None, cache, cluster(workers))
        record["runs"].append({"workers": workers, "run": asdict(run)})
        target.write_text(json.dumps(record, indent=1))
        (reading,) = run.readings
        where = f"{workers} workers" if workers else "in the driver"
        print(
            f"[{number}/{len(plan)}] {name}, {where}: {reading.rows / reading.wall:,.0f} events "
            f"per second, {reading.per_million:.2f} CPU s per million (load {os.getloadavg()[0]:.1f})",
            flush=True,
        )
    return record


def table(record: dict[str, Any]) -> str:
    """Events per second and CPU seconds by system and number of workers, medians of all repeats."""
    runs: dict[tuple[str, int], list[Run]] = {}
    for entry in record["runs"]:
        run = Run.from_record(entry["run"])
        runs.setdefault((run.system, entry["workers"]), []).append(run)
    machine = record["machine"]
    loads = [run.load for group in runs.values() for run in group]
    lines = [
        f"{machine['cpu']}, {machine['cores']} cores; PySpark {machine['pyspark']}, pyarrow "
        f"{machine['pyarrow']}. Load average before the runs {min(loads):.1f} to {max(loads):.1f}.",
        "",
        "| system | state store | where | events per second | lowest to highest | CPU s per million "
        "| lowest to highest |",
        "|---|---|---|---:|---:|---:|---:|",
    ]
    for (name, workers), group in sorted(runs.items(), key=lambda item: _order(*item[0])):
        rates = [r.rows / r.wall for run in group for r in run.readings]
        costs = [r.per_million for run in group for r in run.readings]
        where = f"{workers} workers of one core" if workers else "in the driver, two cores"
        lines.append(
            f"| `{name}` | {SYSTEMS[name].store} | {where} | **{median(rates):,.0f}** "
            f"| {min(rates):,.0f} to {max(rates):,.0f} | **{median(costs):.2f}** "
            f"| {min(costs):.2f} to {max(costs):.2f} |"
        )
    return "\n".join(lines) + "\n"


def _order(name: str, workers: int) -> tuple[int, int]:
    return NAMES.index(name), workers


if __name__ == "__main__":
    sys.exit(main())
