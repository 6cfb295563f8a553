"""The report of the rules: sums that must add up, and the comparison with the batch."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from pathlib import Path

import pandas as pd

from examples.flights import verify_rules
from examples.flights.agreements import Joint, compare_lines
from examples.flights.contents import OUTPUTS, QUERIES, RULES, query_of
from examples.flights.feeds import FEEDS
from examples.flights.flights import NEW_YORK
from examples.flights.log import borders, files_of
from examples.flights.sums import Sum
from examples.flights.tables import Run, read_table
from examples.flights.verify_joins import agree

__all__ = ["alarms", "gather_alarms"]

Feeds = Mapping[str, pd.DataFrame]


def gather_alarms(out: Path, feeds: Feeds, run: Run) -> dict[str, Joint]:
    """Compare the rules of a run with its metrics, and with the batch.

    Parameters
    ----------
    out : Path
        The folder of the run.
    feeds : mapping of str to DataFrame
        The rows of the logs: from the package, not from the logs.
    run : Run
        The metrics of the operators.
    """
    batches = (_batches(feeds, run, name) for name in ("outcomes", "alerts"))
    again = {
        "grounded": verify_rules.grounded(feeds),
        "alerts": verify_rules.alerts(feeds, *batches),
        "duty": verify_rules.duty(feeds),
    }
    sums = {"grounded": _grounded, "alerts": _alerts, "duty": _duty}
    found = {}
    for name in RULES:
        table = read_table(out, name)
        end = run.end(query_of(name))
        agreement = agree(table, again[name], end, key=OUTPUTS[name].key)
        found[name] = Joint([*sums[name](table, feeds, run.counts[name])], agreement)
    return found


def _batches(feeds: Feeds, run: Run, name: str) -> pd.Series:
    """The micro-batch in which each row of a log is read."""
    arrives = feeds[name][FEEDS[name].arrives]
    cuts = borders(dt.timedelta(minutes=run.every))
    files = files_of(arrives, cuts, feeds["departures"]["departed"])
    return files // QUERIES[query_of("alerts")].files


def _grounded(table: pd.DataFrame, feeds: Feeds, counted: Mapping[str, int]) -> Iterator[Sum]:
    yield Sum(
        "flights of known aircraft",
        {"matched against the pattern": counted["rows"] - counted["rejected"]},
        "flights in the log",
        int(feeds["outcomes"]["tailnum"].notna().sum()),
    )
    yield Sum("late rows", {"counted by the operator": counted["too_late"]}, "expected", 0)
    yield _results(table, counted)


def _alerts(table: pd.DataFrame, feeds: Feeds, counted: Mapping[str, int]) -> Iterator[Sum]:
    entries = feeds["alerts"]
    valid = verify_rules.is_valid(entries)
    yield Sum(
        "entries of the alerts",
        {
            "in effect": counted["on_time"],
            "delivered again": counted["too_late"],
            "invalid": counted["rejected"],
        },
        "entries counted by the operator",
        counted["changes"],
    )
    yield Sum(
        "entries", {"counted by the operator": counted["changes"]}, "in the log", len(entries)
    )
    yield Sum(
        "entries that are invalid",
        {"counted by the operator": counted["rejected"]},
        "in the log",
        int((~valid).sum()),
    )
    yield _results(table, counted)


def _duty(table: pd.DataFrame, feeds: Feeds, counted: Mapping[str, int]) -> Iterator[Sum]:
    yield Sum(
        "departures and landings of known aircraft",
        {"on time": counted["on_time"], "too late": counted["too_late"]},
        "rows counted by the operator",
        counted["rows"],
    )
    yield Sum(
        "departures and landings",
        {"counted by the operator": counted["rows"]},
        "in the log",
        len(feeds["movements"]),
    )
    violations = ("in the air at the limit", "departed beyond the limit")
    by_violation = {
        violation: int((table["violation"] == violation).sum()) for violation in violations
    }
    yield Sum(
        "flights beyond the limit of a duty",
        by_violation,
        "results counted by the operator",
        counted["results"],
    )


def _results(table: pd.DataFrame, counted: Mapping[str, int]) -> Sum:
    return Sum(
        "results", {"in the table": len(table)}, "counted by the operator", counted["results"]
    )


def alarms(found: Mapping[str, Joint], run: Run) -> Iterator[str]:
    """The report as lines.

    Parameters
    ----------
    found : mapping of str to Joint
        The checks by rule.
    run : Run
        The metrics of the operators.
    """
    titles = {name: RULES[name].title for name in found}
    yield from compare_lines(found, titles, "rules")
    end = run.end(query_of("grounded")).tz_convert(NEW_YORK)
    yield f"  open: flights after the watermark, {end:%-d %B %H:%M}, which waits a day for those that"
    yield "  leave late."
