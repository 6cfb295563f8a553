"""The report of the sketches: their error bounds, and how many answers satisfy them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from examples.flights.accuracy import (
    Claim,
    aircraft_of_days,
    aircraft_of_years,
    distinct_claims,
    heavy_hitter_claims,
    percentile_claims,
)
from examples.flights.contents import RUNNING, query_of
from examples.flights.sketching import PROBABILITIES, SHARE
from examples.flights.sums import Sum, line, lines
from examples.flights.tables import Run, late, read_table

__all__ = ["Promises", "gather_promises", "promises"]


@dataclass(frozen=True, slots=True)
class Promises:
    """The checks of the sketches after a run.

    Parameters
    ----------
    claims : dict of str to list of Claim
        The error bounds, by subject.
    sums : dict of str to list of Sum
        The sums of the results without windows, by name.
    """

    claims: dict[str, list[Claim]]
    sums: dict[str, list[Sum]]

    @property
    def hold(self) -> bool:
        """Whether every bound holds for at least one answer, and every sum adds up."""
        claims_hold = all(claim.holds for claims in self.claims.values() for claim in claims)
        about = all(sum(claim.answers for claim in claims) for claims in self.claims.values())
        return (
            claims_hold
            and about
            and all(claim.holds for sums in self.sums.values() for claim in sums)
        )


def gather_promises(out: Path, rows: pd.DataFrame, run: Run) -> Promises:
    """Compare the sketches of a run with exact answers.

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
        "distinct aircraft per airline and day": distinct_claims(
            days, exact_days, ["carrier", "window_start"]
        ),
        "the same per airline, sketches of days merged": distinct_claims(
            by_year, exact_years, ["carrier"]
        ),
        "percentiles of the delay per route": percentile_claims(delays, rows, PROBABILITIES),
        "the busiest routes": heavy_hitter_claims(busiest, rows, SHARE),
    }
    answers = {"route_delays": delays["delays"], "busiest_routes": busiest["routes"]}
    sums = {
        name: [
            Sum(
                "departures, each in one sketch",
                {"counted by the sketches": sum(answer["count"] for answer in answers[name])},
                "departures in the log",
                len(rows),
            ),
            Sum(
                "departures read",
                {
                    "in sketches": sum(answer["count"] for answer in answers[name]),
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
    """Return the checks as lines of text."""
    yield from lines({RUNNING[name].title: sums for name, sums in found.sums.items()})
    yield ""
    yield line("the sketches against exact answers", ["answers", "as promised"])
    for title, claims in found.claims.items():
        yield title
        for claim in claims:
            yield line(f"  {claim.title}", [claim.answers, claim.met], _remark(claim))


def _remark(claim: Claim) -> str:
    if not claim.holds:
        return "VIOLATED"
    if claim.share == 1 or not claim.answers:
        return "all" if claim.answers else "none to check"
    return f"{claim.met / claim.answers:.1%}, promised {claim.share:.0%}"
