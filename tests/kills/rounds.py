"""A round: one input, one checkpoint and one set of targets, and the drivers that work on them."""

from __future__ import annotations

import itertools
import json
import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa

from streamops.errors import SinkError
from tests.kills.inputs import CLOSING, Expected, expect, make_input, write_files
from tests.kills.job import ALL_TARGETS, FINISHED, Settings
from tests.kills.processes import Driver, wait_until
from tests.kills.targets import Difference, compare, last_batch, results_sink

Timing = Literal["mid-batch", "between commits", "random"]

ROWS = 200
"""Rows of a micro-batch."""
HOPELESS = 5
"""So many drivers in a row that end without a new micro-batch need a human."""

_TIMES = 5  # how many durations of micro-batches are remembered


class NeedsHuman(Exception):
    """Starting drivers again does not help."""


@dataclass(frozen=True)
class State:
    """What a checkpoint and the ledgers have at a point in time.

    Parameters
    ----------
    planned, committed : int
        The last micro-batch that Spark has planned, and the last one that it has committed; -1 if none.
    ledgers : dict of str to int
        The last micro-batch of each target, if it can be read.
    newest : int
        The last micro-batch that Spark has committed when all ledgers are read, which takes time.
    """

    planned: int
    committed: int
    ledgers: dict[str, int]
    newest: int

    @property
    def is_open(self) -> bool:
        """Whether a micro-batch is planned and not committed."""
        return self.planned > self.committed

    @property
    def ahead(self) -> list[str]:
        """The targets that have a micro-batch that Spark has not committed."""
        return [target for target, batch in self.ledgers.items() if batch > self.committed]

    @property
    def wrong(self) -> list[str]:
        """The targets that are neither at the last micro-batch of Spark nor at the one after it."""
        first, last = self.committed, self.newest + 1
        return [target for target, batch in self.ledgers.items() if not first <= batch <= last]


@dataclass
class Round:
    """One input, one checkpoint and one set of targets.

    Parameters
    ----------
    settings : Settings
        What its drivers run.
    batches : int
        Micro-batches with rows.
    seed : int
        Of the input, and of everything that is random.
    spare : bool
        Whether the next driver is started before it is needed: its session takes most of the time.
    """

    settings: Settings
    batches: int
    seed: int
    spare: bool = False
    starts: int = 0
    ends: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        """Make the input."""
        self.random = random.Random(self.seed)
        self.folder = Path(self.settings.folder)
        self._waiting: Driver | None = None
        self._launched = 0
        self.durations: list[float] = [2.0]
        self.failed_at: list[int] = []
        write_files(self.tables, self.folder / "input")

    @cached_property
    def tables(self) -> list[pa.Table]:
        """The rows of each micro-batch."""
        return make_input(self.batches, ROWS, self.seed)

    @cached_property
    def expected(self) -> Expected:
        """What the targets must have."""
        return expect(self.tables, self.settings.form)

    @cached_property
    def sinks(self) -> dict[str, Any]:
        """A sink of each target, to read its ledger."""
        at, form = self.settings.location, self.settings.form
        return {t: results_sink(t, at, form) for t in self.settings.targets}

    @property
    def last(self) -> int:
        """The last micro-batch with rows."""
        return self.batches + CLOSING - 1

    def start(self, **changes: Any) -> Driver:
        """Start a driver, which writes to the targets in an order of its own.

        The session of the next one is started meanwhile, if `spare`.
        """
        driver = self._waiting or self._launch(**changes)
        self._waiting = self._launch() if self.spare else None
        self.starts += 1
        driver.go()
        return driver

    def _launch(self, **changes: Any) -> Driver:
        """Start the process of a driver."""
        targets = list(self.settings.targets)
        self.random.shuffle(targets)
        self._launched += 1
        settings = replace(self.settings, targets=targets, **changes)
        return Driver(settings, self.folder / f"driver {self._launched}.log")

    def close(self) -> None:
        """End the driver that waits."""
        if self._waiting is not None:
            self._waiting.kill()

    def planned(self, query: str = ALL_TARGETS) -> int:
        """The last micro-batch that Spark has planned; -1 if there is none."""
        return _last(self.settings.checkpoint(query) / "offsets")

    def committed(self, query: str = ALL_TARGETS) -> int:
        """The last micro-batch that Spark has committed; -1 if there is none."""
        return _last(self.settings.checkpoint(query) / "commits")

    def has_planned(self, batch: int) -> bool:
        """Whether Spark has planned a micro-batch."""
        return (self.settings.checkpoint(ALL_TARGETS) / "offsets" / str(batch)).exists()

    def has_committed(self, batch: int) -> bool:
        """Whether Spark has committed a micro-batch."""
        return (self.settings.checkpoint(ALL_TARGETS) / "commits" / str(batch)).exists()

    def ledger(self, target: str) -> int | None:
        """The last micro-batch of a target; None if it cannot be read now."""
        try:
            return last_batch(self.sinks[target])
        except SinkError:
            return None

    def state(self, query: str = ALL_TARGETS) -> State:
        """What the checkpoint and the ledgers have."""
        committed, planned = self.committed(query), self.planned(query)
        ledgers = {target: self.ledger(target) for target in self.settings.targets}
        known = {target: batch for target, batch in ledgers.items() if batch is not None}
        return State(planned, committed, known, self.committed(query))

    def wait(self, driver: Driver, condition: Callable[[], bool]) -> bool:
        """Wait until a condition holds; False if the driver ends before.

        Raises
        ------
        NeedsHuman
            Neither happens.
        """
        if not wait_until(lambda: condition() or not driver.is_running):
            driver.kill()
            raise NeedsHuman(f"a driver hangs, see {driver.log}")
        return condition()

    def open_batches(self, driver: Driver) -> Iterator[int]:
        """Each micro-batch of a driver while it runs, at a random time after Spark has planned it."""
        for batch in itertools.count(self.committed() + 1):
            if not self.wait(driver, partial(self.has_planned, batch)):
                return
            began = time.monotonic()
            time.sleep(self.random.uniform(0, self.duration))
            if not self.has_committed(batch):
                yield batch
            if not self.wait(driver, partial(self.has_committed, batch)):
                return
            self.took(time.monotonic() - began)

    @property
    def duration(self) -> float:
        """The usual seconds of a micro-batch."""
        return sum(self.durations) / len(self.durations)

    def took(self, seconds: float) -> None:
        """Remember how long a micro-batch took."""
        self.durations = [*self.durations, seconds][-_TIMES:]

    def run(self, attack: Callable[[Driver], None], **changes: Any) -> None:
        """Start drivers until one of them finishes, and attack each."""
        end = ""
        while end != FINISHED:
            driver = self.start(**changes)
            attack(driver)
            end = self.end(driver)

    def end(self, driver: Driver) -> str:
        """Wait for the end of a driver, and return how it ended.

        Raises
        ------
        NeedsHuman
            Drivers end, and none of them gets any further.
        """
        try:
            code = driver.wait()
        except subprocess.TimeoutExpired as error:
            driver.kill()
            raise NeedsHuman(f"a driver hangs, see {driver.log}") from error
        failures = [end for end in self.outcomes(driver).values() if end != FINISHED]
        end = FINISHED if code == 0 else failures[0] if failures else f"exit code {code}"
        self.ends[end] += 1
        if end != FINISHED:
            committed = self.committed()
            self.failed_at = [batch for batch in self.failed_at if batch == committed]
            self.failed_at.append(committed)
            if len(self.failed_at) == HOPELESS:
                raise NeedsHuman(f"{end}, {HOPELESS} times in a row, see {driver.log}")
        return end

    def outcomes(self, driver: Driver) -> dict[str, str]:
        """How the queries of a driver ended; none if it could not write that."""
        path = self.folder / "outcomes" / f"{driver.process.pid}.json"
        outcomes: dict[str, str] = json.loads(path.read_text()) if path.exists() else {}
        return outcomes

    def differences(self) -> list[Difference]:
        """Compare all rows of all targets with what they must be."""
        settings = self.settings
        return [
            difference
            for target in settings.targets
            for difference in compare(target, settings.location, settings.form, self.expected)
        ]

    @property
    def compared(self) -> int:
        """Rows that are compared."""
        expected = self.expected
        per_target = expected.results.total() + expected.rejected.total()
        return per_target * len(self.settings.targets)


def _last(log: Path) -> int:
    """The last number in a log of a checkpoint; -1 if there is none."""
    try:
        return max((int(p.name) for p in log.iterdir() if p.name.isdigit()), default=-1)
    except FileNotFoundError:
        return -1


@dataclass
class Report:
    """The results of a part.

    Parameters
    ----------
    part : str
        Its name.
    kills : Counter
        What was killed, and how often.
    ahead : Counter
        By target: kills when it had a micro-batch that Spark had not committed.
    behind : Counter
        By target: kills when a micro-batch was open, and it did not have it.
    """

    part: str
    kills: Counter[str] = field(default_factory=Counter)
    ahead: Counter[str] = field(default_factory=Counter)
    behind: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)
    rounds: int = 0
    starts: int = 0
    rows: int = 0
    lost: int = 0
    unexpected: int = 0
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, round_: Round) -> None:
        """Compare the targets of a round that has finished, and add its numbers."""
        differences = round_.differences()
        self.rounds += 1
        self.starts += round_.starts
        self.ends += round_.ends
        self.rows += round_.compared
        self.lost += sum(d.lost.total() for d in differences)
        self.unexpected += sum(d.unexpected.total() for d in differences)
        self.problems += map(str, differences)

    def record(self, name: str, state: State) -> None:
        """Count a kill, and where the targets were."""
        self.kills[name] += 1
        if state.is_open:
            self.ahead.update(state.ahead)
            self.behind.update(set(state.ledgers) - set(state.ahead))
        for target in state.wrong:
            self.problems.append(f"{target} is at {state.ledgers[target]}, Spark at {state}")

    @property
    def is_right(self) -> bool:
        """Whether nothing differs."""
        return not self.problems


def table(reports: Sequence[Report]) -> str:
    """The results as text."""
    lines = [
        f"{'part':<10} {'kills':>6} {'restarts':>9} {'rows':>9} {'lost':>6} {'duplicated':>11} {'seconds':>8}"
    ]
    lines += [
        f"{r.part:<10} {r.kills.total():>6} {r.starts - r.rounds:>9} {r.rows:>9,} {r.lost:>6} "
        f"{r.unexpected:>11} {r.seconds:>8.0f}"
        for r in reports
    ]
    for report in reports:
        lines.append("")
        listed = (
            ", ".join(f"{n} {name}" for name, n in c.items()) for c in (report.kills, report.ends)
        )
        lines.append("{}: {}; drivers ended: {}".format(report.part, *listed))
        for target in sorted(report.ahead.keys() | report.behind.keys()):
            lines.append(
                f"  {target}: had the open micro-batch {report.ahead[target]} times, and did not have it "
                f"{report.behind[target]} times"
            )
        lines += [f"  DIFFERENCE {problem}" for problem in report.problems]
    return "\n".join(lines)
