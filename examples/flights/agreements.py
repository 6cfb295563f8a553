"""The report of the joins: sums that must add up, and the comparison with the batch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from examples.flights.contents import JOINED, query_of
from examples.flights.flights import NEW_YORK
from examples.flights.sums import Sum, line, lines
from examples.flights.tables import Run, changes, read_table
from examples.flights.verify_joins import REJOINED, Agreement, agree, reasons

__all__ = ["Joint", "agreements", "compare_lines", "gather_joints"]

Counted = Mapping[str, Mapping[str, int]]
Feeds = Mapping[str, pd.DataFrame]


@dataclass(frozen=True, slots=True)
class Joint:
    """The checks of a join after a run."""

    sums: list[Sum]
    agreement: Agreement

    @property
    def hold(self) -> bool:
        """Whether every sum adds up, and stream and batch are equal."""
        return self.agreement.equal and all(total.holds for total in self.sums)


def gather_joints(out: Path, feeds: Feeds, run: Run) -> dict[str, Joint]:
    """Compare the joins of a run with its metrics, and with the batch.

    Parameters
    ----------
    out : Path
        The folder of the run.
    feeds : mapping of str to DataFrame
        The rows of the logs: from the package, not from the logs.
    run : Run
        The metrics of the operators.
    """
    found = {}
    for name in JOINED:
        table, batch = read_table(out, name), REJOINED[name](feeds)
        agreement = agree(table, batch, run.end(query_of(name)))
        if name == "aircraft":
            changed = changes(out, name).column("_change_type").to_pandas().value_counts()
            sums = _of_tables(table, changed, feeds, run.counts)
        else:
            sums = [*_of_streams(name, table, agreement, feeds, run.counts[name])]
        found[name] = Joint(sums, agreement)
    return found


_SIDES = {"arrivals": ("schedule", "landings"), "weather": ("departures", "weather")}


def _of_streams(
    name: str, table: pd.DataFrame, agreement: Agreement, feeds: Feeds, counted: Mapping[str, int]
) -> Iterator[Sum]:
    left, right = _SIDES[name]
    ways = {"on time": "on_time", "late": "stragglers", "too late": "too_late"}
    yield Sum(
        f"rows of the {left} and the {right}",
        {what: counted[way] for what, way in ways.items()},
        "rows in both logs",
        len(feeds[left]) + len(feeds[right]),
    )
    without = "expired" if name == "arrivals" else "missing"
    by_status = {what: int((table["status"] == what).sum()) for what in ("matched", without)}
    yield Sum("results", by_status, "results counted by the operator", counted["results"])
    yield Sum(
        f"rows of the {left}",
        {**by_status, "still open": agreement.still_open},
        "rows in the log",
        len(feeds[left]),
    )
    if name == "arrivals":
        yield Sum(
            "flights that did not land within a day",
            reasons(feeds[left]),
            "expired, or still open",
            by_status[without] + agreement.still_open,
        )


def _of_tables(table: pd.DataFrame, changed: pd.Series, feeds: Feeds, counts: Counted) -> list[Sum]:
    counted, register = counts["aircraft"], counts["register"]
    by_type = {
        change_type: int(changed.get(change_type, 0))
        for change_type in ("insert", "delete", "update_postimage")
    }
    known = int(table["manufacturer"].notna().sum())
    return [
        Sum(
            "entries of the register",
            {
                "aircraft entered": register["results"],
                "aircraft corrected": register["corrections"],
                "aircraft struck off": register["deletes"],
                "delivered again": register["duplicates"] + register["stale"],
            },
            "entries in the log",
            len(feeds["register"]),
        ),
        Sum(
            "changes joined",
            {
                "departures": len(feeds["departures"]),
                "aircraft, two for a correction": register["results"]
                + 2 * register["corrections"]
                + register["deletes"],
            },
            "changes counted by the operator",
            counted["rows"] - counted["rejected"],
        ),
        Sum(
            "departures",
            {"with their aircraft": known, "of aircraft not registered": len(table) - known},
            "departures in the log",
            len(feeds["departures"]),
        ),
        Sum(
            "departures published",
            {
                "in the table": len(table),
                "retracted with their aircraft": by_type["delete"],
            },
            "results counted by the operator",
            counted["results"],
        ),
        Sum(
            "departures corrected with their aircraft",
            {"published anew": by_type["update_postimage"]},
            "corrections counted by the operator",
            counted["corrections"],
        ),
    ]


def compare_lines(
    found: Mapping[str, Joint], titles: Mapping[str, str], what: str
) -> Iterator[str]:
    """The sums of each check, and how the stream and the batch compare, as lines.

    Parameters
    ----------
    found : mapping of str to Joint
        The checks by name.
    titles : mapping of str to str
        Their titles in the report.
    what : str
        What is checked, in the plural.
    """
    for name, joint in found.items():
        yield from lines({titles[name]: joint.sums})
        yield ""
    sides: list[Agreement] = [joint.agreement for joint in found.values()]
    yield line("", [titles[name] for name in found])
    yield f"the stream's {what} against the same {what} by pandas"
    yield line("  rows compared", [side.compared for side in sides])
    yield line("  missing in the stream", [side.missing for side in sides])
    yield line("  only in the stream", [side.unexpected for side in sides])
    yield line("  different", [side.different for side in sides])
    yield line("  still open, not compared", [side.still_open for side in sides])


def agreements(found: Mapping[str, Joint], run: Run) -> Iterator[str]:
    """The report as lines.

    Parameters
    ----------
    found : mapping of str to Joint
        The checks by join.
    run : Run
        The metrics of the operators.
    """
    titles = {name: JOINED[name].title for name in found}
    yield from compare_lines(found, titles, "joins")
    ends = [run.end(query_of(name)).tz_convert(NEW_YORK) for name in ("arrivals", "weather")]
    yield f"  open: flights of the day before the watermark, {ends[0]:%-d %B %H:%M}, may still land;"
    yield f"  observations of the weather end with the watermark, {ends[1]:%-d %B %H:%M}."
