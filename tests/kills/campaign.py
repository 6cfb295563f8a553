"""What all parts share: servers, rounds with a name of their own, and lines of progress."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.kills.inputs import Form
from tests.kills.job import Settings
from tests.kills.processes import Driver
from tests.kills.rounds import Report, Round
from tests.kills.targets import Location, available, prepare


@dataclass
class Campaign:
    """The rounds of a run.

    Parameters
    ----------
    folder : Path
        Of all rounds.
    seed : int
        Of everything that is random.
    targets : sequence of str, optional
        The targets; None: all that are available.
    postgres, kafka
        The servers, if they are there.
    """

    folder: Path
    seed: int
    targets: Sequence[str] | None = None
    postgres: Any = None
    kafka: Any = None

    def __post_init__(self) -> None:
        """Begin."""
        self.random = random.Random(self.seed)
        self.begun = time.monotonic()
        self._rounds = 0

    @property
    def location(self) -> Location:
        """Where targets are that belong to no round."""
        return self._locate(self.folder, "none")

    def _locate(self, folder: Path, name: str) -> Location:
        return Location(
            folder=folder,
            name=name,
            postgres=self.postgres and self.postgres.url,
            kafka=self.kafka and self.kafka.bootstrap,
        )

    def report(self, line: str) -> None:
        """Print a line of progress."""
        minutes, seconds = divmod(int(time.monotonic() - self.begun), 60)
        print(f"{minutes:3}:{seconds:02} {line}", flush=True)

    def round(
        self, name: str, form: Form, *, batches: int, spare: bool = False, **settings: Any
    ) -> Round:
        """Begin a round."""
        self._rounds += 1
        name = f"{self._rounds} {name}"
        folder = self.folder / name
        folder.mkdir(parents=True)
        at = self._locate(folder, name)
        round_ = Round(
            Settings(
                folder=str(folder),
                name=name,
                form=form,
                targets=self.targets or available(at),
                postgres=at.postgres,
                kafka=at.kafka,
                **settings,
            ),
            batches=batches,
            seed=self.random.randrange(2**32),
            spare=spare,
        )
        for target in round_.settings.targets:
            prepare(target, at)
        self.report(
            f"round {name}: {batches} micro-batches to {', '.join(round_.settings.targets)}"
        )
        return round_

    def finish(self, report: Report, round_: Round) -> None:
        """Compare the targets of a round, and report how they differ."""
        round_.close()
        known = len(report.problems)
        report.add(round_)
        self.report(f"round {round_.settings.name}: {round_.compared:,} rows compared")
        for problem in report.problems[known:]:
            self.report(f"DIFFERENCE {problem}")

    def attack_batches(
        self, report: Report, round_: Round, kills: int, attack: Callable[[Driver], str | None]
    ) -> None:
        """Run a round, and attack in each micro-batch until there were enough kills.

        Parameters
        ----------
        report : Report
            Counts the kills.
        round_ : Round
        kills : int
            How many.
        attack : function
            Kills something while a micro-batch of a driver runs, and returns what; None: nothing.
        """

        def attack_driver(driver: Driver) -> None:
            for batch in round_.open_batches(driver):
                if report.kills.total() >= kills:
                    return
                name = attack(driver)
                if name is not None:
                    report.record(name, round_.state())
                    number = report.kills.total()
                    self.report(f"{report.part}: kill {number}, {name}, in micro-batch {batch}")

        round_.run(attack_driver)
        self.finish(report, round_)
