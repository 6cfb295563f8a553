"""The report of the sketches: what they promise, and how often it was kept."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from examples.flights.accuracy import (
    Claim,
    aircraft_of_days,
    aircraft_of_years,
    counted,
    heaviest,
    ranked,
)
from examples.flights.contents import RUNNING, query_of
from examples.flights.sketching import PROBABILITIES, SHARE
from examples.flights.sums import Sum, line, lines
from examples.flights.tables import Run, late, read_table

__all__ = ["Promises", "gather_promises", "promises"]


@dataclass(frozen=True, slots=True)
class Promises:
    """What is known of the sketches after a run.

    Parameters
    ----------
    claims : dict of str to list of Claim
        Under what they are about.
    sums : dict of str to list of Sum
        Of the values without windows, under their names.
    """

    claims: dict[str, list[Claim]]
    sums: dict[str, list[Sum]]

    @property
    def hold(self) -> bool:
        """Whether every promise is kept, about something, and every sum adds up."""
        kept = all(each.holds for claims in self.claims.values() for each in claims)
        about = all(sum(each.answers for each in claims) for claims in self.claims.values())
        return kept and about and all(each.holds for sums in self.sums.values() for each in sums)


def gather_promises(out: Path, rows: pd.DataFrame, run: Run) -> Promises:
    """Hold the sketches of a run against exact answers.

    Parameters
    ----------
    out : Path
        The folder of the run.
    rows : DataFrame
        The departures that were in the log: from the package, not from the log.
    run : Run
        What the operators counted.
    """
    missed, end = late(out, "airline_days"), run.end(query_of("airline_days"))
    days, by_year = read_table(out, "airline_days"), read_table(out, "airline_years")
    delays, busiest = read_table(out, "route_delays"), read_table(out, "busiest_routes")
    exact_days, exact_years = (f(rows, missed, end) for f in (aircraft_of_days, aircraft_of_years))
    claims = {
        "distinct aircraft per airline and day": counted(
            days, exact_days, ["carrier", "window_start"]
        ),
        "the same per airline, sketches of days merged": counted(by_year, exact_years, ["carrier"]),
        "percentiles of the delay per route": ranked(delays, rows, PROBABILITIES),
        "the busiest routes": heaviest(busiest, rows, SHARE),
    }
    said = {"route_delays": delays["delays"], "busiest_routes": busiest["routes"]}
    sums = {
        name: [
            Sum(
                "departures, each in one sketch",
                {"counted by the sketches": sum(each["count"] for each in said[name])},
                "departures in the log",
                len(rows),
            ),
            Sum(
                "departures read",
                {
                    "in sketches": sum(each["count"] for each in said[name]),
                    "ignored": run.counts[name]["ignored"],
                },
                "rows counted by the operator",
                run.counts[name]["rows"],
            ),
            _counted("results", len(table), run.counts[name]["results"]),
            _counted("corrections", int(table["revision"].sum()), run.counts[name]["corrections"]),
        ]
        for name, table in (("route_delays", delays), ("busiest_routes", busiest))
    }
    return Promises(claims, sums)


def _counted(what: str, ours: int, theirs: int) -> Sum:
    return Sum(what, {f"{what} in the table": ours}, f"{what} counted by the operator", theirs)


def promises(found: Promises) -> Iterator[str]:
    """They as text."""
    yield from lines({RUNNING[name].title: sums for name, sums in found.sums.items()})
    yield ""
    yield line("the sketches against exact answers", ["answers", "as promised"])
    for title, claims in found.claims.items():
        yield title
        for each in claims:
            yield line(f"  {each.title}", [each.answers, each.kept], _remark(each))


def _remark(claim: Claim) -> str:
    if not claim.holds:
        return "NOT KEPT"
    if claim.share == 1 or not claim.answers:
        return "all" if claim.answers else "none to check"
    return f"{claim.kept / claim.answers:.1%}, promised {claim.share:.0%}"
