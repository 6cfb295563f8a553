"""Compare streamops with other engines: CPU seconds per million rows, and latency at a fixed rate.

`scripts/get-peers` installs them; those that are not installed are left out.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.machine import describe_machine
from benchmarks.measure import RunFailed
from benchmarks.peers import report
from benchmarks.peers.inputs import KEYS, SMALL, WORKLOADS, standard
from benchmarks.peers.latency import MEASURED as WITH_LATENCY
from benchmarks.peers.latency import Latency, measure_latency
from benchmarks.peers.running import Result, check_all, measure
from benchmarks.peers.systems import SYSTEMS, Peer

RESULTS = Path(__file__).resolve().parents[1] / "results" / "peers"
Cell = tuple[str, str, str, int, int]
"""What is measured (`cpu` or `latency`), workload, system, keys, repeat."""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _parser().parse_args(arguments)
    if not Path("/proc/self/stat").exists():
        print("benchmarks read CPU seconds from /proc: they run on Linux only", file=sys.stderr)
        return 2
    options.cache.mkdir(parents=True, exist_ok=True)
    if options.check:
        return _check(options)
    records = [json.loads(path.read_text()) for path in options.record or ()]
    if not records:
        records = [_measure(options)]
    text = report.page(records)
    print(text)
    if options.write:
        report.write(text, records)
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)

    def terms(allowed: Sequence[str]) -> Callable[[str], list[str]]:
        def parse(text: str) -> list[str]:
            names = text.split(",")
            if unknown := sorted(set(names) - set(allowed)):
                message = f"unknown: {', '.join(unknown)}; known: {', '.join(allowed)}"
                raise argparse.ArgumentTypeError(message)
            return names

        return parse

    add = parser.add_argument
    add("--systems", type=terms([*SYSTEMS]), default=[*SYSTEMS], help=", ".join(SYSTEMS))
    add("--workloads", type=terms([*WORKLOADS]), default=[*WORKLOADS], help=", ".join(WORKLOADS))
    add(
        "--keys",
        type=lambda text: [*map(int, text.split(","))],
        default=[*KEYS],
        help="1000,100000",
    )
    add("--repeats", type=int, default=1, help="processes per system, workload and number of keys")
    add(
        "--quick",
        action="store_true",
        help="a quarter of the rows, no latency: not for publication",
    )
    add("--latency", choices=("also", "only", "no"), default="also", help="also, only or no")
    add(
        "--check",
        action="store_true",
        help="compare results with the expected ones, measure nothing",
    )
    add("--resume", type=Path, help="a record to go on with: what it has is not measured again")
    add("--record", type=Path, nargs="+", help="print the tables of records, measure nothing")
    add(
        "--write",
        action="store_true",
        help="write tables and chart into benchmarks/results/README.md",
    )
    cache = Path(tempfile.gettempdir()) / "streamops-peers"
    add("--cache", type=Path, default=cache, help="folder for inputs and running checkpoints")
    return parser


def _available(names: Sequence[str]) -> list[Peer]:
    systems = [SYSTEMS[name] for name in names]
    for system in systems:
        if not system.is_installed:
            print(f"{system.name} is not installed, and left out: scripts/get-peers {system.name}")
    return [system for system in systems if system.is_installed]


def _check(options: argparse.Namespace) -> int:
    failed = 0
    for system in _available(options.systems):
        workloads = [
            standard(windows, keys, SMALL)
            for windows in options.workloads
            for keys in options.keys
            if windows not in system.lacks
        ]
        for workload, outcome in check_all(system, workloads, options.cache):
            failed += isinstance(outcome, RunFailed)
            title = f"{system.name}, {WORKLOADS[workload.windows]}, {workload.keys:,} keys"
            print(f"{title}: {outcome}", flush=True)
    return 1 if failed else 0


def _measure(options: argparse.Namespace) -> dict[str, Any]:
    systems = _available(options.systems)
    if options.resume:
        target, record = options.resume, json.loads(options.resume.read_text())
    else:
        started = datetime.now(UTC)
        RESULTS.mkdir(parents=True, exist_ok=True)
        target = RESULTS / f"{started:%Y-%m-%dT%H%M%S}{'-quick' if options.quick else ''}.json"
        record = {
            "started": started.isoformat(timespec="seconds"),
            "quick": options.quick,
            "machine": describe_machine(),
            "versions": {},
            "runs": [],
            "latencies": [],
            "failures": [],
        }
    record["versions"] |= {system.name: version(system) for system in systems}
    done = {_cell_of("cpu", run) for run in record["runs"]}
    done |= {_cell_of("latency", run) for run in record["latencies"]}
    done |= {_cell_of(failure["what"], failure) for failure in record["failures"]}
    plan = [cell for cell in _plan(options, systems) if cell not in done]
    print(f"{len(plan)} runs, recorded in {target}", flush=True)
    clock = time.monotonic()
    for number, cell in enumerate(plan, start=1):
        what, windows, name, keys, repeat = cell
        identity = {
            "what": what,
            "windows": windows,
            "system": name,
            "keys": keys,
            "repeat": repeat,
        }
        try:
            if what == "cpu":
                quick = bool(record["quick"])
                found: Result | Latency = measure(
                    SYSTEMS[name], windows, keys, options.cache, quick
                )
                record["runs"].append(asdict(found) | {"repeat": repeat})
            else:
                found = measure_latency(SYSTEMS[name], windows, keys, options.cache)
                record["latencies"].append(asdict(found) | {"repeat": repeat})
            outcome = str(found)
        except RunFailed as failure:
            outcome = f"failed: {failure}"
            record["failures"].append(identity | {"reason": str(failure)})
        target.write_text(json.dumps(record, indent=1))
        left = (time.monotonic() - clock) / number * (len(plan) - number) / 60
        print(
            f"[{number}/{len(plan)}] {WORKLOADS[windows]}, {keys:,} keys, {name}: {outcome} "
            f"(about {left:.0f} min left)",
            flush=True,
        )
    return dict(record)


def _plan(options: argparse.Namespace, systems: Sequence[Peer]) -> list[Cell]:
    """All systems of a workload one after the other, so that what drifts falls on all of them."""
    cells: list[Cell] = []
    for repeat in range(options.repeats):
        for windows in options.workloads:
            for keys in options.keys:
                names = [system.name for system in systems if windows not in system.lacks]
                if options.latency != "only":
                    cells += [("cpu", windows, name, keys, repeat) for name in names]
    if options.latency != "no" and not options.quick:
        cells += [
            ("latency", windows, system.name, min(options.keys), repeat)
            for repeat in range(options.repeats)
            for windows in options.workloads
            if windows in WITH_LATENCY
            for system in systems
            if not system.is_limit
        ]
    return cells


def _cell_of(what: str, run: dict[str, Any]) -> Cell:
    return what, run["windows"], run["system"], run["keys"], run["repeat"]


def version(system: Peer) -> str:
    """The version of a system, from its own environment."""
    package = system.package or {"native": "pyspark"}.get(system.name, system.name)
    code = f"from importlib.metadata import version; print(version({package!r}))"
    done = subprocess.run([system.python, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


if __name__ == "__main__":
    sys.exit(main())
