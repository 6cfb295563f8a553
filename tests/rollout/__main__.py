"""Roll versions of a job out, and kill them. See the package."""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import psycopg

from streamops import sinks
from tests.kafka.broker import Broker
from tests.kafka.broker import running as running_kafka
from tests.rollout.job import sink
from tests.servers.postgres import programs
from tests.servers.postgres import running as running_postgres

_START = 1_704_067_200  # of event time, in seconds
_SIZE = 10
_KEYS = "abc"
_READ = "SELECT version, k, extract(epoch FROM window_start)::bigint, n FROM views"


@dataclass
class Version:
    """A version of the job, as a process that is started again whenever it was killed."""

    folder: Path
    number: int
    process: subprocess.Popen[bytes] | None = None
    kills: int = 0

    def start(self) -> None:
        """Start it, unless it runs."""
        if self.process is None:
            command = [
                sys.executable,
                "-m",
                "tests.rollout.job",
                str(self.folder),
                str(self.number),
            ]
            with (self.folder / f"log {self.number}").open("ab") as log:
                self.process = subprocess.Popen(
                    ["setpriv", "--pdeathsig", "KILL", *command],
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )

    def kill(self) -> None:
        """Kill it with its JVM."""
        if self.process is not None:
            assert self.process.poll() is None, (self.folder / f"log {self.number}").read_text()[
                -4_000:
            ]
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None

    @property
    def batch(self) -> int:
        """The last micro-batch in its table; -1 before the first one."""
        entry = sink(self.folder, self.number).read_ledger()
        return -1 if entry is None else entry.batch


@dataclass
class Rollout:
    """The servers, the producer and the readers."""

    folder: Path
    broker: Broker
    topic: str
    where: str
    draw: random.Random
    events: Counter[tuple[str, int]] = field(default_factory=Counter)
    """How many events each window has, by key and start."""
    reads: int = 0
    wrong: list[str] = field(default_factory=list)
    ended: threading.Event = field(default_factory=threading.Event)

    def produce(self) -> None:
        """Write events, whose time goes on with that of the day, until the end."""
        producer, second = self.broker.producer(), 0
        while not self.ended.is_set():
            for key in _KEYS:
                for _ in range(self.draw.randrange(1, 5)):
                    at = max(0, second - self.draw.randrange(0, 6))
                    self._send(producer, key, at, self.draw.randrange(100))
            second += 1
            producer.poll(0)
            time.sleep(0.1)
        for partition in range(3):  # what moves the watermark behind all windows
            self._send(producer, "z", second + 7_200, 0, partition)
        assert producer.flush(60) == 0

    def _send(self, producer: object, key: str, at: int, value: int, partition: int = -1) -> None:
        self.events[key, _START + at // _SIZE * _SIZE] += 1
        event = {
            "k": key,
            "ts": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(_START + at)),
            "v": value,
        }
        producer.produce(self.topic, json.dumps(event), partition=partition)  # type: ignore[attr-defined]

    def read(self) -> None:
        """Read the view: one version, and no window that was there before is missing or smaller."""
        seen: dict[tuple[str, int], int] = {}
        with psycopg.connect(self.where, autocommit=True) as client:
            while not self.ended.is_set():
                rows = client.execute(_READ).fetchall()
                if len({version for version, *_ in rows}) > 1:
                    self.wrong.append("two versions in one read")
                found = {(k, start): n for _, k, start, n in rows}
                lost = [of for of, n in seen.items() if found.get(of, 0) < n]
                if lost:
                    self.wrong.append(f"{len(lost)} windows went back, such as {lost[0]}")
                seen, self.reads = found, self.reads + 1
                time.sleep(0.02)

    def switch(self, version: int) -> None:
        """Let the view show the table of a version."""
        columns = f"SELECT {version} AS version, k, window_start, n, total FROM views_{version}"
        with psycopg.connect(self.where, autocommit=True) as client:
            client.execute(f"CREATE OR REPLACE VIEW views AS {columns}".encode())

    def work(self, versions: list[Version], batches: int, kills: int) -> None:
        """Let versions write so many micro-batches, and kill each so often meanwhile."""
        target = {of.number: of.batch + batches for of in versions}
        left = {of.number: kills for of in versions}
        while any(of.batch < target[of.number] for of in versions) or any(left.values()):
            for of in versions:
                of.start()
            before = {of.number: of.batch for of in versions}
            while all(of.batch == before[of.number] for of in versions):
                for of in versions:
                    assert of.process is not None
                    assert of.process.poll() is None, (
                        self.folder / f"log {of.number}"
                    ).read_text()[-4_000:]
                time.sleep(0.1)
            time.sleep(self.draw.uniform(0, 4))
            ready = [of for of in versions if left[of.number] and of.batch > before[of.number]]
            if ready:
                of = self.draw.choice(ready)
                of.kill()
                of.kills += 1
                left[of.number] -= 1

    def take_over(self, new: Version, old: Version, kills: int) -> None:
        """Let a version take over from another, as docs/operations.md says."""
        self.work([old, new], batches=3, kills=kills)
        old.kill()
        new.start()
        sinks.wait_for(
            str(self.folder / f"checkpoint {new.number}"),
            *sinks.tokens(sink(self.folder, old.number)),
            timeout="10 minutes",
            watermark=True,  # else a window that the other one has emitted may still be open
        )
        self.switch(new.number)
        print(
            f"version {new.number} took over; {self.reads} reads, {len(self.wrong)} wrong",
            *self.wrong[-3:],
            flush=True,
        )

    def missing(self, version: int) -> list[tuple[str, int]]:
        """The windows of which a table has not all events."""
        with psycopg.connect(self.where, autocommit=True) as client:
            rows = client.execute(
                _READ.replace("version,", "0,").replace("views", f"views_{version}").encode()
            ).fetchall()
        found = {(k, start): n for _, k, start, n in rows}
        wanted = {of: n for of, n in self.events.items() if of[0] != "z"}
        return [of for of, n in wanted.items() if found.get(of) != n]


def roll_out(run: Rollout, rounds: int, kills: int) -> dict[int, int]:
    """There and back, so often; how often each version was killed."""
    one, two = Version(run.folder, 1), Version(run.folder, 2)
    try:
        run.work([one], batches=2, kills=0)
        run.switch(1)
        with ThreadPoolExecutor(3) as pool:
            try:
                readers = [pool.submit(run.read) for _ in range(3)]
                for _ in range(rounds):
                    run.take_over(two, one, kills)
                    run.take_over(one, two, kills)
            finally:
                run.ended.set()
            for reader in readers:
                reader.result()
        one.start()
        two.start()
        end = time.monotonic() + 300
        while run.missing(1) or run.missing(2):
            assert time.monotonic() < end, {of: run.missing(of)[:3] for of in (1, 2)}
            time.sleep(1)
        return {of.number: of.kills for of in (one, two)}
    finally:
        for of in (one, two):
            of.kill()


def main() -> int:
    """Run it; 1 if a read was wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.rollout")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    wanted = parser.parse_args()
    installed = programs()
    assert installed is not None, "PostgreSQL is not installed"
    with (
        running_kafka() as broker,
        running_postgres(installed) as where,
        tempfile.TemporaryDirectory(prefix="streamops-rollout-") as name,
    ):
        folder, topic = Path(name), broker.create_topic(partitions=3)
        url = f"postgresql://postgres@/postgres?host={where.split()[0].partition('=')[2]}"
        servers = {"kafka": broker.bootstrap, "topic": topic, "url": url}
        (folder / "servers").write_text(json.dumps(servers))
        run, begun = (
            Rollout(folder, broker, topic, where, random.Random(wanted.seed)),
            time.monotonic(),
        )
        producer = threading.Thread(target=run.produce)
        producer.start()
        try:
            kills = roll_out(run, wanted.rounds, wanted.kills)
        finally:
            run.ended.set()
            producer.join()
        print(
            f"{2 * wanted.rounds} switches, kills {kills}, {run.reads} reads, {len(run.wrong)} wrong"
        )
        print(f"{sum(run.events.values())} events, 0 lost, {time.monotonic() - begun:.0f} s")
        for line in run.wrong[:10]:
            print(line)
    return 1 if run.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
