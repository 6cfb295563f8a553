"""Runs of one system over one workload, in a process of its own."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.cpu import Cpu, ProcessTree
from benchmarks.measure import RunFailed, compare
from benchmarks.peers.inputs import SETTINGS, SMALL, drop_open, read_results, standard, write
from benchmarks.peers.systems import PROGRAMS, ROOT, Peer
from benchmarks.workloads import Workload

TIMEOUT_S = 600
"""Of one job."""
TIMES, UNTIL_S = 6, 45
"""Runs of engines that compile while they run are repeated so often, or until all have used so many CPU seconds.

What the compiler uses differs by more than a second between equal runs, and becomes less with each.
"""


@dataclass(frozen=True, slots=True)
class Result:
    """What a system used for a workload."""

    system: str
    windows: str
    keys: int
    rows: int
    """Rows of the measured run."""
    cpu: float
    """CPU seconds of the measured run, from its start to its end."""
    divisor: int
    """Of the scale of the measured run: rows, keys and rate are this many times fewer."""
    small_rows: int
    small_cpu: float
    """The same of a run over a fiftieth of the rows: nearly all of it is its start and its end."""
    start_cpu: float
    """CPU seconds until the process is ready."""
    jvm: float
    """The part of `cpu` of the JVM."""
    wall: float
    lost_exits: int
    load: float
    check: str

    @property
    def per_million(self) -> float:
        """CPU seconds for a million more rows."""
        return (self.cpu - self.small_cpu) / (self.rows - self.small_rows) * 1e6

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Result:
        """Restore a result from its record."""
        return cls(**{name: value for name, value in record.items() if name != "repeat"})

    def __str__(self) -> str:
        return f"{self.per_million:,.1f} CPU s per million rows; {self.check}"


class Program:
    """The process of a system, which carries out one job after the other."""

    def __init__(self, system: Peer, folder: Path) -> None:
        self._system = system
        self._folder = folder
        self._jobs = 0
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = dict(os.environ)
        if not system.package:  # the others find neither this package nor its dependencies
            environment |= {"PYTHONPATH": os.pathsep.join(paths), "PYSPARK_PYTHON": system.python}
            environment["PYSPARK_DRIVER_PYTHON"] = system.python
        self._log = (folder / "log").open("w")
        self._process = subprocess.Popen(
            [system.python, str(PROGRAMS / system.program), *system.arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            cwd=folder,
            env=environment,
            start_new_session=True,  # so that all that it starts can be ended
        )

    @property
    def name(self) -> str:
        return self._system.name

    def __enter__(self) -> Program:
        return self

    def run(self, workload: Workload, cache: Path, output: Path | None = None) -> None:
        """Carry out one job, and wait for its end."""
        assert self._process.stdout is not None
        self._jobs += 1
        state = self._folder / f"state-{self._jobs}"
        inputs = write(workload, self._system.reads, cache)
        timer = threading.Timer(TIMEOUT_S, self.kill)
        timer.start()
        try:
            self._send(workload.windows, workload.keys, inputs, output, state)
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        finally:
            timer.cancel()
        ended = {"error": f"its process ended, or was killed after {TIMEOUT_S} seconds"}
        answer = json.loads(line) if line else ended
        if "error" in answer:
            raise RunFailed(
                f"{self.name}, {workload.windows}: {answer['error'][:500]}\n{self._tail()}"
            )
        shutil.rmtree(state, ignore_errors=True)

    def start_live(self, windows: str, keys: int, incoming: Path) -> Path:
        """Start a job that does not end, over files that come; return the file of its results."""
        output = self._folder / "output"
        inputs, state = {"events": str(incoming)}, self._folder / "state"
        self._send(windows, keys, inputs, output, state, live=True)
        return self._folder / "log" if self._system.prints else output / "results.txt"

    def fail_if_ended(self) -> None:
        """Raise an error if the process has ended."""
        if self._process.poll() is not None:
            raise RunFailed(f"{self.name} has ended:\n{self._tail()}")

    def kill(self) -> None:
        """End the process and all that it has started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _send(
        self,
        windows: str,
        keys: int,
        inputs: dict[str, str],
        output: Path | None,
        state: Path,
        live: bool = False,
    ) -> None:
        assert self._process.stdin is not None
        job = {
            "workload": windows,
            "keys": keys,
            "inputs": inputs,
            "output": output and str(output),
            "state": str(state),
            "settings": SETTINGS,
            "live": live,
        }
        print(json.dumps(job), file=self._process.stdin, flush=True)

    def _tail(self) -> str:
        log = (self._folder / "log").read_text(errors="replace").splitlines()
        return "\n".join(line[:300] for line in log[-40:])

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError, subprocess.TimeoutExpired):
            self._process.stdin.close()
            self._process.wait(timeout=60)
        self.kill()
        self._process.wait()
        self._process.stdout.close()
        self._log.close()


def check(program: Program, system: Peer, workload: Workload, cache: Path, folder: Path) -> str:
    """Compare all results of a run with the expected ones; return a sentence about it."""
    output = folder / "results"
    program.run(workload, cache, output)
    found = drop_open(read_results(output), workload)
    return compare(system.name, workload, found, system.sketch_error)


def check_all(
    system: Peer, workloads: Iterable[Workload], cache: Path
) -> Iterator[tuple[Workload, str | RunFailed]]:
    """Check small runs in one process; yield a sentence about each, or its failure."""
    with (
        tempfile.TemporaryDirectory(dir=cache, prefix="peer-") as name,
        Program(system, Path(name)) as program,
    ):
        for number, workload in enumerate(workloads):
            folder = Path(name) / f"check-{number}"
            try:
                yield workload, check(program, system, workload, cache, folder)
            except RunFailed as failure:
                yield workload, failure


def measure(system: Peer, windows: str, keys: int, cache: Path, quick: bool = False) -> Result:
    """Check the results of a small run, warm up, and measure the CPU seconds of a run.

    Of each run the results are computed and discarded. A small run before it shows what a run costs
    that has hardly any rows. Of several runs, the cheapest counts.
    """
    divisor = system.divisor * (4 if quick else 1)
    small, full = (standard(windows, keys, scale) for scale in (SMALL, divisor))
    for workload in (small, full):
        write(workload, system.reads, cache)
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(dir=cache, prefix="peer-") as name:
        folder = Path(name)
        with ProcessTree() as tree:
            before = tree.read()
            with Program(system, folder) as program:
                outcome = check(program, system, small, cache, folder)
                start = tree.read().since(before)
                if system.warms_up:
                    program.run(full, cache)
                readings = [_read_both(tree, program, (small, full), cache)]
                while system.warms_up and len(readings) < TIMES and _sum(readings) < UNTIL_S:
                    readings.append(_read_both(tree, program, (small, full), cache))
                (few, _), (many, wall) = (
                    min(runs, key=_cpu) for runs in zip(*readings, strict=True)
                )
    return Result(
        system=system.name,
        windows=windows,
        keys=keys,
        rows=full.rows,
        cpu=many.total,
        divisor=divisor,
        small_rows=small.rows,
        small_cpu=few.total,
        start_cpu=start.total,
        jvm=many.jvm + many.helpers,
        wall=wall,
        lost_exits=many.lost_exits,
        load=load,
        check=outcome,
    )


def _read_both(
    tree: ProcessTree, program: Program, workloads: tuple[Workload, Workload], cache: Path
) -> tuple[tuple[Cpu, float], tuple[Cpu, float]]:
    """CPU and wall seconds of a small run and of one over all rows."""
    small, full = (_read(tree, program, workload, cache) for workload in workloads)
    return small, full


def _sum(readings: Iterable[Iterable[tuple[Cpu, float]]]) -> float:
    return sum(_cpu(reading) for runs in readings for reading in runs)


def _cpu(reading: tuple[Cpu, float]) -> float:
    return reading[0].total


def _read(
    tree: ProcessTree, program: Program, workload: Workload, cache: Path
) -> tuple[Cpu, float]:
    before, started = tree.read(), time.perf_counter()
    program.run(workload, cache)
    return tree.read().since(before), time.perf_counter() - started
