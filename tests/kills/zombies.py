"""Two drivers of one query: a frozen one that goes on after its successor, and two at the same time."""

from __future__ import annotations

from tests.kills.campaign import Campaign
from tests.kills.inputs import FORMS, Form
from tests.kills.job import FINISHED, go_on
from tests.kills.processes import Driver
from tests.kills.rounds import Report

_BATCHES = 12
_HELD = 3
"""The micro-batch in which a driver is frozen. It has written others before."""


def run_zombies(campaign: Campaign, report: Report, rounds: int) -> None:
    """Freeze drivers, let two run at once, and so on in turn.

    Parameters
    ----------
    campaign : Campaign
    report : Report
    rounds : int
        How many.
    """
    for number in range(rounds):
        form = FORMS[number % len(FORMS)]
        if number % 3 == 2:
            run_two(campaign, report, form)
        else:
            freeze_and_resume(campaign, report, form, while_running=number % 3 == 1)


def freeze_and_resume(
    campaign: Campaign, report: Report, form: Form, *, while_running: bool
) -> None:
    """Freeze a driver before the commit of each sink, and resume it after its successor has committed.

    Each target has a query of its own, so that each sink alone has to refuse the old driver.

    Parameters
    ----------
    campaign : Campaign
    report : Report
    form : Form
    while_running : bool
        Whether the successor still runs when the old driver goes on.
    """
    round_ = campaign.round(f"frozen {form}", form, batches=_BATCHES, separate=True)
    old = round_.start(hold=_HELD)
    queries = round_.settings.queries
    round_.wait(old, lambda: all(old.settings.marker(query).exists() for query in queries))
    old.freeze()
    go_on(round_.folder).touch()
    new = round_.start()
    if while_running:
        round_.wait(new, lambda: all(round_.committed(query) > _HELD for query in queries))
    else:
        round_.end(new)
    old.resume()
    round_.end(old)
    if while_running:
        round_.end(new)
    outcomes = round_.outcomes(old)
    for query in queries:
        code = outcomes.get(query, "no outcome")
        report.kills[f"{query} refused a resumed driver: {code}"] += 1
        if code != "FENCED":
            report.problems.append(f"{query} ended with {code}, and not with FENCED, see {old.log}")
    if round_.outcomes(new) != dict.fromkeys(queries, FINISHED):
        report.problems.append(f"the new driver did not finish, see {new.log}")
    campaign.report(f"zombies: resumed driver: {outcomes}")
    campaign.finish(report, round_)


def run_two(campaign: Campaign, report: Report, form: Form) -> None:
    """Run two drivers of a query at the same time, until one of them finishes."""
    round_ = campaign.round(f"two drivers {form}", form, batches=_BATCHES)

    def attack(driver: Driver) -> None:
        second = round_.start()
        end = round_.end(second)
        report.kills[f"one of two drivers: {end}"] += 1
        campaign.report(f"zombies: one of two drivers ended with {end}")

    round_.run(attack)
    campaign.finish(report, round_)
