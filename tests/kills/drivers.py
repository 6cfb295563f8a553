"""Kill the process group of a driver, start the next one, and so on."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from functools import partial
from typing import get_args

from tests.kills.campaign import Campaign
from tests.kills.inputs import FORMS
from tests.kills.job import FINISHED
from tests.kills.processes import Driver
from tests.kills.rounds import Report, Round, Timing

_MOST_SKIPPED = 1  # micro-batches that a driver commits before the one in which it is killed
_FIRST_START = 10.0  # seconds
_MISSED = "not where it was meant to be"


def kill_drivers(campaign: Campaign, report: Report, kills: int) -> None:
    """Kill drivers: a third in a micro-batch, a third between two commits, a third at random times."""
    timings: Sequence[Timing] = get_args(Timing)
    for number, form in enumerate(FORMS):
        mine = (n for n in range(kills) if n // len(timings) % len(FORMS) == number)
        schedule = [timings[n % len(timings)] for n in mine]
        campaign.random.shuffle(schedule)
        while schedule:
            batches = 5 + len(schedule)
            round_ = campaign.round(f"driver {form}", form, batches=batches, spare=True)
            killer, end = Killer(campaign, round_, report), ""
            while schedule and end != FINISHED:
                driver = round_.start()
                if not killer.attack(driver, schedule[0]):
                    end = round_.end(driver)
                    continue
                driver.kill()
                if killer.was_hit(schedule[0], driver):
                    schedule.pop(0)
            if end != FINISHED:
                round_.run(lambda _: None)
            campaign.finish(report, round_)


class Killer:
    """Waits until a driver must be killed.

    Parameters
    ----------
    campaign : Campaign
    round_ : Round
    report : Report
        Counts the kills.
    """

    def __init__(self, campaign: Campaign, round_: Round, report: Report) -> None:
        self.campaign, self.round, self.report = campaign, round_, report
        self.random = round_.random
        self.start = _FIRST_START

    def attack(self, driver: Driver, timing: Timing) -> bool:
        """Wait for the time at which to kill; False if the driver ends before."""
        if timing == "random":
            length = self.start + (_MOST_SKIPPED + 1) * self.round.duration
            end = self.random.uniform(0, length)
            return self.round.wait(driver, lambda: driver.age > end) and driver.is_running
        first = self.round.committed() + 1
        target = self.random.choice(self.round.settings.targets)
        skipped = self.random.randint(0, _MOST_SKIPPED)
        for batch in itertools.count(first):
            if not self.round.wait(driver, partial(self.round.has_planned, batch)):
                return False
            if batch == first:
                self.start = (self.start + driver.age) / 2
            began = time.monotonic()
            if batch >= first + skipped:
                if timing == "mid-batch":
                    time.sleep(self.random.uniform(0, self.round.duration))
                elif not self.round.wait(driver, partial(self._has, target, batch)):
                    return False
                if not self.round.has_committed(batch):
                    return driver.is_running
            if not self.round.wait(driver, partial(self.round.has_committed, batch)):
                return False
            self.round.took(time.monotonic() - began)
        raise AssertionError

    def _has(self, target: str, batch: int) -> bool:
        """Whether a target, or Spark, has a micro-batch."""
        ledger = self.round.ledger(target)
        return (ledger is not None and ledger >= batch) or self.round.has_committed(batch)

    def was_hit(self, timing: Timing, driver: Driver) -> bool:
        """Count a kill, and return whether the driver was where it was meant to be."""
        state = self.round.state()
        hit = {"mid-batch": state.is_open, "between commits": bool(state.ahead), "random": True}
        self.report.record(timing if hit[timing] else _MISSED, state)
        where = f"in micro-batch {state.planned}" if state.is_open else "between micro-batches"
        ahead = f", which {', '.join(state.ahead)} had" if state.ahead else ""
        self.campaign.report(
            f"driver: kill {self.report.kills.total()}, {timing}, after {driver.age:.1f} s {where}{ahead}"
        )
        return hit[timing]
