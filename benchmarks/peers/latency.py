"""Latency at a fixed rate: from the creation of an event to the line in a file that has its result.

Every tenth of a second a file with the events created since the last one is moved into the folder
that a system watches: all systems read the same rows, each by its own source of files. A result is
a line with the time in milliseconds at which it could have been known: the creation of the newest
event of its key (`running`), or the end of its window of one second (`tumbling`, without delay).
"""

from __future__ import annotations

import os
import re
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as csv
import pyarrow.parquet as pq

from benchmarks.measure import RunFailed
from benchmarks.peers.running import Program
from benchmarks.peers.systems import Peer

MEASURED = ("tumbling", "running")
RATE = 20_000
"""Events per second."""
EVERY_S, POLL_S = 0.1, 0.005
START_S, WARM_S, MEASURED_S, DRAIN_S = 120, 15, 25, 10
"""At most until the first result; then before the measurement, during it, and at most after it."""
FALLS_BEHIND_MS = 2_000
_RESULT = re.compile(rb"^(?:[^\[\n]*\+[IU]\[)?(\d{13})\]?$", re.MULTILINE)
"""A line with a time; of Flink's print connector, `+I[1700000000000]`; `-U` takes a value back."""


@dataclass(frozen=True, slots=True)
class Latency:
    """Latencies of one system, in milliseconds."""

    system: str
    windows: str
    keys: int
    rate: int
    results: int
    median: float
    p99: float
    falls_behind: bool
    """Whether the last results took `FALLS_BEHIND_MS` longer than the first ones."""
    load: float

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Latency:
        """Restore latencies from their record."""
        return cls(**{name: value for name, value in record.items() if name != "repeat"})

    def __str__(self) -> str:
        behind = "; falls behind" if self.falls_behind else ""
        return f"median {self.median:,.0f} ms, 99th percentile {self.p99:,.0f} ms{behind}"


class _Producer(threading.Thread):
    """Creates events at the rate, until it is stopped."""

    def __init__(self, folder: Path, form: str, keys: int) -> None:
        super().__init__(daemon=True)
        self.stopped = threading.Event()
        self._folder, self._form, self._keys = folder, form, keys

    def run(self) -> None:
        rng = np.random.default_rng(1)
        rows = int(RATE * EVERY_S)
        started, number = time.time(), 0
        while not self.stopped.wait(max(0.0, started + (number + 1) * EVERY_S - time.time())):
            first = (started + number * EVERY_S) * 1_000
            times = (first + np.arange(rows) * (EVERY_S * 1_000 / rows)).astype(np.int64)
            keys, values = rng.integers(0, self._keys, rows), rng.integers(0, 400, rows) / 4
            self._write(number, {"k": keys, "v": values, "ts": times})
            number += 1

    def _write(self, number: int, columns: dict[str, Any]) -> None:
        # A name with a dot is not read; the file appears complete, under another one.
        partial = self._folder.with_name("partial")
        if self._form == "csv":
            csv.write_csv(pa.table(columns), partial)
        else:
            if self._form == "parquet":
                micros = pa.array(columns["ts"] * 1_000)
                columns["ts"] = micros.cast(pa.timestamp("us", tz="UTC"))
            pq.write_table(pa.table(columns), partial)
        suffix = "csv" if self._form == "csv" else "parquet"
        partial.rename(self._folder / f"{number:05d}.{suffix}")


class _Watcher(threading.Thread):
    """Records when a file had which size."""

    def __init__(self, file: Path) -> None:
        super().__init__(daemon=True)
        self.stopped = threading.Event()
        self.file = file
        self.sizes: list[int] = [0]
        self.times: list[float] = [0.0]

    def run(self) -> None:
        while not self.stopped.wait(POLL_S):
            size = self.file.stat().st_size if self.file.exists() else 0
            if size != self.sizes[-1]:
                self.sizes.append(size)
                self.times.append(time.time())

    def results(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """The time of each result at which it could have been known, and at which it was there."""
        content = self.file.read_bytes() if self.file.exists() else b""
        found = [(int(match[1]), match.end() + 1) for match in _RESULT.finditer(content)]
        known = np.array([time_ for time_, _ in found], np.int64)
        ends = np.array([end for _, end in found], np.int64)
        # The first size that includes the line.
        position = np.searchsorted(self.sizes, ends)
        there = position < len(self.sizes)
        return known[there], np.array(self.times)[position[there]] * 1_000


def measure_latency(system: Peer, windows: str, keys: int, cache: Path) -> Latency:
    """Run a system for a minute at the fixed rate."""
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(dir=cache, prefix="latency-") as name:
        folder = Path(name)
        incoming = folder / "input"
        incoming.mkdir()
        with Program(system, folder) as program:
            output = program.start_live(windows, keys, incoming)
            producer, watcher = _Producer(incoming, system.reads, keys), _Watcher(output)
            for thread in (producer, watcher):
                thread.start()
            try:
                _wait_for_results(program, watcher)
                time.sleep(WARM_S)
                begin = time.time() * 1_000
                time.sleep(MEASURED_S)
                end = time.time() * 1_000
                producer.stopped.set()
                time.sleep(DRAIN_S)
            finally:
                producer.stopped.set()
                watcher.stopped.set()
                program.kill()
                watcher.join()
        known, there = watcher.results()
    measured = (known >= begin) & (known < end)
    took = (there - known)[measured]
    if len(took) < 100:
        raise RunFailed(f"{system.name}: {len(took)} results in {MEASURED_S} seconds")
    third = len(took) // 3
    return Latency(
        system=system.name,
        windows=windows,
        keys=keys,
        rate=RATE,
        results=len(took),
        median=float(np.median(took)),
        p99=float(np.percentile(took, 99)),
        falls_behind=bool(np.median(took[-third:]) - np.median(took[:third]) > FALLS_BEHIND_MS),
        load=load,
    )


def _wait_for_results(program: Program, watcher: _Watcher) -> None:
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        if watcher.file.exists() and _RESULT.search(watcher.file.read_bytes()):
            return
        program.fail_if_ended()
        time.sleep(0.2)
    raise RunFailed(f"{program.name}: no result within {START_S} seconds")
