"""`python -m benchmarks`: measure systems side by side, record every run, print the tables."""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

from benchmarks import report
from benchmarks.machine import describe_machine
from benchmarks.measure import Run, RunFailed, measure, verify
from benchmarks.stream import DELAY
from benchmarks.systems import MASTER, SETTINGS, SYSTEMS
from benchmarks.tables import TABLES, replace_between
from benchmarks.workloads import TUMBLING, WORKLOADS, Workload, for_verification, standard

RESULTS = Path(__file__).with_name("results")
BATCHES = (500_000, 60_000, 1_000)
T = TypeVar("T")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what the command line asks for; return the exit code."""
    options = _parser().parse_args(arguments)
    if options.workloads is None:
        options.workloads = ["100k-keys"] if options.quick else TUMBLING
    if not Path("/proc/self/stat").exists():
        print("benchmarks read CPU seconds from /proc: they run on Linux only", file=sys.stderr)
        return 2
    try:
        if options.verify:
            _verify(options)
            return 0
        if options.record is None:
            records = [_measure(options)]
        else:
            records = [json.loads(path.read_text()) for path in options.record]
    except RunFailed as failure:
        print(failure, file=sys.stderr)
        return 1
    text = "\n".join(map(_page, records))
    print(text)
    if options.write:
        replace_between("figures", "python -m benchmarks --write", text)
        print(f"written into {TABLES}")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)

    def terms(allowed: dict[str, Any]) -> Callable[[str], list[str]]:
        def parse(text: str) -> list[str]:
            names = [name.strip() for name in text.split(",")]
            unknown = sorted(set(names) - set(allowed))
            if unknown:
                raise argparse.ArgumentTypeError(
                    f"unknown: {', '.join(unknown)}; known: {', '.join(allowed)}"
                )
            return names

        return parse

    def sizes(text: str) -> list[int]:
        values = [int(size.replace("_", "")) for size in text.split(",")]
        if min(values) < 100:
            raise argparse.ArgumentTypeError("a micro-batch has at least 100 rows")
        return values

    add = parser.add_argument
    add("--systems", type=terms(SYSTEMS), default=list(SYSTEMS), help=", ".join(SYSTEMS))
    add("--workloads", type=terms(WORKLOADS), help=", ".join(WORKLOADS))
    add("--batches", type=sizes, default=list(BATCHES), help="rows per micro-batch: 500000,60000")
    add("--repeats", type=int, help="fresh processes per system and workload (3; quick: 1)")
    add("--shards", type=int, help="shards of the kernel systems (the library's default)")
    add(
        "--quick", action="store_true", help="less warm-up, fewer batches, 100,000 keys, one repeat"
    )
    add("--verify", action="store_true", help="compare results with the answer, measure nothing")
    add("--write", action="store_true", help="put the tables into benchmarks/results/README.md")
    add(
        "--record",
        type=Path,
        nargs="+",
        help="print the tables of recorded files, measure nothing",
    )
    add(
        "--cache",
        type=Path,
        default=Path(tempfile.gettempdir()) / "streamops-benchmarks",
        help="folder for prepared events and for running checkpoints",
    )
    return parser


def _measure(options: argparse.Namespace) -> dict[str, Any]:
    repeats = options.repeats or (1 if options.quick else 3)
    options.cache.mkdir(parents=True, exist_ok=True)
    RESULTS.mkdir(exist_ok=True)
    started = datetime.now(UTC)
    target = RESULTS / f"{started:%Y-%m-%dT%H%M%S}{'-quick' if options.quick else ''}.json"
    plan: list[tuple[str, Workload]] = []
    for repeat in range(repeats):
        # Every system comes once before any comes again, and not always in the same order: what
        # drifts on the machine falls on all of them.
        for name in _rotated(options.systems, repeat):
            if repeat and name == "naive":  # takes as long as all others, and is far from them
                continue
            for queries in options.workloads:
                workload = standard(queries, options.batches, options.quick)
                plan += [(name, part) for part in SYSTEMS[name].parts(workload)]
    record: dict[str, Any] = {
        "started": started.isoformat(timespec="seconds"),
        "quick": options.quick,
        "repeats": repeats,
        "shards": options.shards,
        "machine": describe_machine(),
        "spark": {"master": MASTER, "delay": DELAY, **SETTINGS},
        "runs": [],
    }
    print(f"{len(plan)} runs, recorded in {target}", flush=True)
    clock = time.monotonic()
    for number, (name, workload) in enumerate(plan, start=1):
        run = measure(name, workload, options.shards, options.cache)
        record["runs"].append(asdict(run))
        target.write_text(json.dumps(record, indent=1))
        _say_progress(number, len(plan), run, time.monotonic() - clock)
    return record


def _verify(options: argparse.Namespace) -> None:
    options.cache.mkdir(parents=True, exist_ok=True)
    for queries in options.workloads:
        for name in options.systems:
            for workload in SYSTEMS[name].parts(for_verification(queries)):
                answer = verify(name, workload, options.shards, options.cache)
                scale = f" (1/{workload.divisor} replica)" if workload.divisor > 1 else ""
                print(f"{queries} {name}{scale}: {answer}", flush=True)


def _say_progress(number: int, of: int, run: Run, seconds: float) -> None:
    figures = ", ".join(f"{r.per_million:,.1f} at {r.rows_per_batch:,}" for r in run.readings)
    left = seconds / number * (of - number) / 60
    print(
        f"[{number}/{of}] {run.system}, {run.workload.windows}, {run.workload.keys:,} keys: "
        f"CPU s per million rows {figures} (load {run.load:.1f}; about {left:.0f} min left)",
        flush=True,
    )


def _page(record: dict[str, Any]) -> str:
    runs = [Run.from_record(run) for run in record["runs"]]
    machine, loads = record["machine"], [run.load for run in runs]
    quick = " **Quick run: less warm-up than a figure to quote needs.**" if record["quick"] else ""
    shards = f", {record['shards']} shards" if record["shards"] else ""
    head = (
        f"Run of {record['started'][:10]}: {machine['cpu']}, {machine['cores']} cores, "
        f"{machine['memory_gib']} GiB; Python {machine['python']}, PySpark {machine['pyspark']}, "
        f"pandas {machine['pandas']}, pyarrow {machine['pyarrow']}, Java {runs[0].java}{shards}. "
        f"Load average before the runs {min(loads):.1f} to {max(loads):.1f}.{quick}"
    )
    return f"{head}\n\n{report.markdown(runs)}"


def _rotated(items: Sequence[T], by: int) -> list[T]:
    by %= len(items)
    return [*items[by:], *items[:by]]


if __name__ == "__main__":
    sys.exit(main())
