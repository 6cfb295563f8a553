"""Write, wait, read, and kill the query. See the package."""

from __future__ import annotations

import argparse
import itertools
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psycopg

from streamops import sinks
from tests.kafka.broker import Broker
from tests.kafka.broker import running as running_kafka
from tests.reads.query import TARGETS, sink
from tests.servers.postgres import programs
from tests.servers.postgres import running as running_postgres

_PATIENCE = "5 minutes"


@dataclass
class Run:
    """A folder with the targets, the servers, and what the writers found."""

    folder: Path
    broker: Broker
    topic: str
    where: str
    pairs: int
    kills: int
    burst: int
    targets: Sequence[str]
    numbers: Any = field(default_factory=itertools.count)
    returned: dict[str, list[tuple[int, float, float]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    """By target: the offset of each record, when it was acknowledged, and when the wait for it returned."""
    stale: list[tuple[str, int]] = field(default_factory=list)
    killed: int = 0
    ended: threading.Event = field(default_factory=threading.Event)
    """Set once no writer waits any more: the query runs until then."""

    @property
    def done(self) -> int:
        """Pairs so far."""
        return sum(map(len, self.returned.values()))

    def write_and_read(self, target: str) -> None:
        """Write, wait and read until there are enough pairs and kills."""
        wait, has = self._reader(target)
        producer = self.broker.producer()
        while self.done < self.pairs or self.killed < self.kills:
            written = self._write(producer)
            assert len(written) == self.burst
            for number, offset, acknowledged in written:
                wait(f"kafka:{self.topic}:0:{offset}")
                self.returned[target].append((offset, acknowledged, time.time()))
                if not has(number):
                    self.stale.append((target, number))

    def _write(self, producer: Any) -> list[tuple[int, int, float]]:
        """Write a burst: each number, its offset, and when it was acknowledged."""
        written: list[tuple[int, int, float]] = []

        def acknowledge(number: int, error: object, message: Any) -> None:
            assert error is None, error
            written.append((number, message.offset(), time.time()))

        for number in itertools.islice(self.numbers, self.burst):
            producer.produce(self.topic, str(number), on_delivery=partial(acknowledge, number))
        assert producer.flush(60) == 0
        return written

    def _reader(self, target: str) -> tuple[Callable[[str], object], Callable[[int], bool]]:
        """What waits for a token, and what looks for a record."""
        own = sink(self.folder, target)
        if target == "postgres":
            client = psycopg.connect(self.where, autocommit=True)
            call, look = (
                "SELECT streamops_wait_for('own', %s, %s)",
                "SELECT 1 FROM own WHERE n = %s",
            )
            return (
                lambda token: client.execute(call, (token, _PATIENCE)),
                lambda number: client.execute(look, (number,)).fetchone() is not None,
            )
        if target == "sqlite":
            database = sqlite3.connect(self.folder / "own.db", timeout=60, check_same_thread=False)
            query = "SELECT 1 FROM own WHERE n = ?"
            has = lambda number: database.execute(query, (number,)).fetchone() is not None  # noqa: E731
        else:
            has = _ParquetReader(str(self.folder / "parquet"))
        return lambda token: sinks.wait_for(own, token, timeout=_PATIENCE), has


class _ParquetReader:
    """Looks for records in a folder. Files do not change, so it reads those that it has not seen."""

    def __init__(self, path: str) -> None:
        self.path, self.files, self.seen = path, set[str](), set[int]()

    def __call__(self, number: int) -> bool:
        if number not in self.seen:
            for fragment in sinks.read_parquet(self.path).get_fragments():
                if fragment.path not in self.files:
                    self.seen.update(fragment.to_table(columns=["n"]).column("n").to_pylist())
                    self.files.add(fragment.path)
        return number in self.seen


def commits(folder: Path) -> dict[tuple[str, int], float]:
    """When each target had each micro-batch for the first time."""
    found: dict[tuple[str, int], float] = {}
    for target, batch, at in lines_of(folder / "commits.jsonl"):
        found.setdefault((target, batch), at)
    return found


def lines_of(log: Path) -> list[Any]:
    """The lines of a log that no kill has cut off."""
    lines = log.read_text().splitlines() if log.exists() else []
    return [json.loads(line) for line in lines if line.endswith("]")]


def start(folder: Path) -> subprocess.Popen[bytes]:
    """Start the query in a process group of its own."""
    command = [
        "setpriv",
        "--pdeathsig",
        "KILL",
        sys.executable,
        "-m",
        "tests.reads.query",
        str(folder),
    ]
    with (folder / "log").open("ab") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)


def kill_at_random(run: Run, seed: int) -> None:
    """Kill the query at random times, and let it run until all writers have ended."""
    draw, query = random.Random(seed), start(run.folder)
    try:
        while not run.ended.is_set():
            known = len(commits(run.folder))
            while len(commits(run.folder)) <= known and not run.ended.is_set():
                assert query.poll() is None, (run.folder / "log").read_text()[-5_000:]
                time.sleep(0.2)
            end = time.monotonic() + draw.uniform(0, 4)
            while not run.ended.is_set() and (time.monotonic() < end or run.killed >= run.kills):
                time.sleep(0.05)
            if not run.ended.is_set():
                os.killpg(query.pid, signal.SIGKILL)
                query.wait()
                run.killed += 1
                print(f"{run.killed} kills, {run.done} pairs, {len(run.stale)} stale", flush=True)
                query = start(run.folder)
    finally:
        os.killpg(query.pid, signal.SIGKILL)
        query.wait()


def micro_batches(run: Run) -> tuple[list[int], list[float], list[float]]:
    """By number: the offset behind each micro-batch, and when Spark began and committed it."""
    ends, begun, committed = [], [], []
    for number in itertools.count():
        of = [run.folder / "checkpoint" / name / str(number) for name in ("offsets", "commits")]
        if not all(path.exists() for path in of):
            return ends, begun, committed
        ends.append(json.loads(of[0].read_text().splitlines()[2])[run.topic]["0"])
        begun.append(of[0].stat().st_mtime)
        committed.append(of[1].stat().st_mtime)


def report(run: Run, seconds: float) -> None:
    """Print how long the waits were; and how much more than the micro-batch with the record, from its begin."""
    ends, begun, committed = micro_batches(run)
    at = commits(run.folder)
    # A micro-batch that was killed has reported none.
    lasted = np.subtract(committed, begun)
    for number, duration in lines_of(run.folder / "durations.jsonl"):
        if number < len(lasted):
            lasted[number] = duration
    print(f"{run.done} pairs, {run.killed} kills, {len(run.stale)} stale reads, {seconds:.0f} s")
    print(f"{len(ends)} micro-batches: {_percentiles(lasted)}")
    for target in run.targets:
        waits, more, beyond, after = [], [], [], []
        for offset, acknowledged, returned in run.returned[target]:
            batch = bisect_right(ends, offset)
            if batch == len(ends) or (target, batch) not in at:
                continue  # Spark was killed before it committed the micro-batch, and never again
            waits.append(returned - acknowledged)
            more.append(waits[-1] - lasted[batch])
            beyond.append(returned - max(begun[batch], acknowledged) - lasted[batch])
            after.append(returned - max(at[target, batch], acknowledged))
        print(f"{target}: {len(waits)} waits: {_percentiles(waits)}")
        print(f"    more than the micro-batch with the record lasted: {_percentiles(more)}")
        print(f"    beyond the micro-batch with the record, from its begin: {_percentiles(beyond)}")
        print(f"    after the commit of the target: {_percentiles(after)}")


def _percentiles(seconds: Sequence[float]) -> str:
    return ", ".join(
        f"{name} {np.percentile(seconds, q):.3f} s"
        for name, q in (("median", 50), ("99th percentile", 99))
    )


def main() -> int:
    """Run it; 1 if a read was stale."""
    parser = argparse.ArgumentParser(prog="python -m tests.reads")
    parser.add_argument("--pairs", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--writers", type=int, default=4, help="for each of the targets")
    parser.add_argument(
        "--burst", type=int, default=50, help="records written before the wait for the first"
    )
    parser.add_argument("--targets", nargs="+", choices=TARGETS, default=TARGETS)
    parser.add_argument("--seed", type=int, default=1)
    wanted = parser.parse_args()
    installed = programs()
    assert installed is not None, "PostgreSQL is not installed"
    with (
        running_kafka() as broker,
        running_postgres(installed) as where,
        tempfile.TemporaryDirectory(prefix="streamops-reads-") as name,
    ):
        folder, topic = Path(name), broker.create_topic()
        url = f"postgresql://postgres@/postgres?host={where.split()[0].partition('=')[2]}"
        servers = {"kafka": broker.bootstrap, "topic": topic, "url": url, "targets": wanted.targets}
        (folder / "servers").write_text(json.dumps(servers))
        run = Run(
            folder,
            broker,
            topic,
            where,
            wanted.pairs,
            wanted.kills,
            wanted.burst,
            wanted.targets,
        )
        begun = time.monotonic()
        with ThreadPoolExecutor(len(wanted.targets) * wanted.writers + 1) as pool:
            killing = pool.submit(
                _first_batch_and_kills, run, wanted.seed, ready := threading.Event()
            )
            assert ready.wait(300) or killing.result()
            writers = [
                pool.submit(run.write_and_read, target)
                for target in wanted.targets
                for _ in range(wanted.writers)
            ]
            try:
                for writer in writers:
                    writer.result()
            finally:
                run.ended.set()
            killing.result()
        report(run, time.monotonic() - begun)
    return 1 if run.stale else 0


def _first_batch_and_kills(run: Run, seed: int, ready: threading.Event) -> None:
    """Create the targets with one record, prepare them for readers, and then kill at random."""
    run.broker.produce(run.topic, [{"value": str(next(run.numbers))}])
    query = start(run.folder)
    while len(commits(run.folder)) < len(run.targets):
        assert query.poll() is None, (run.folder / "log").read_text()[-5_000:]
        time.sleep(0.2)
    os.killpg(query.pid, signal.SIGKILL)
    query.wait()
    if "postgres" in run.targets:
        with psycopg.connect(run.where, autocommit=True) as client:
            client.execute(sinks.wait_for_sql().encode())
            client.execute("CREATE INDEX ON own (n)")
    if "sqlite" in run.targets:
        with sqlite3.connect(run.folder / "own.db", timeout=60) as database:
            database.execute("CREATE INDEX own_n ON own (n)")
    ready.set()
    kill_at_random(run, seed)


if __name__ == "__main__":
    sys.exit(main())
