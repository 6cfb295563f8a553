"""The report: sums that must add up, and the comparison with the batch."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from examples.flights.agreements import Joint, agreements
from examples.flights.alarms import alarms
from examples.flights.contents import QUERIES, WINDOWS, query_of
from examples.flights.crash import Survival, survival
from examples.flights.flights import NEW_YORK
from examples.flights.lateness import LATENESS, by_right, overdue
from examples.flights.log import borders, files_of
from examples.flights.promises import Promises, promises
from examples.flights.sums import Sum, line, lines
from examples.flights.tables import Run, changes, late, read_table
from examples.flights.verify import RECOMPUTED, TOLERANCE, Comparison, compare

__all__ = ["Facts", "gather", "report"]


@dataclass(frozen=True, slots=True)
class Facts:
    """The checks of a window operator after a run."""

    sums: list[Sum | None]
    """None where there is nothing to add."""
    comparison: Comparison

    @property
    def hold(self) -> bool:
        """Whether every sum adds up, and stream and batch are equal."""
        return self.comparison.equal and all(total is None or total.holds for total in self.sums)


def gather(out: Path, rows: pd.DataFrame, run: Run, windows: str) -> Facts:
    """Compare the tables of a run with its metrics, and with the batch.

    Parameters
    ----------
    out : Path
        The folder of the run.
    rows : DataFrame
        The departures of the log: from the package, not from the log.
    run : Run
        The metrics of the operators.
    windows : str
        The name of the windows.
    """
    about, counted = WINDOWS[windows], run.counts[windows]
    query = query_of(windows)
    table, missed = read_table(out, windows), late(out, windows)
    batch = RECOMPUTED[windows](rows, missed)
    comparison = compare(table, batch, run.end(query), key=about.key, due=about.due)
    published = changes(out, windows).select(["_change_type", "revision"])
    sums = [
        Sum(
            "departures, once per window that each belongs to",
            {
                "on time": counted["on_time"],
                "stragglers, corrected in": counted["stragglers"],
                "too late": counted["too_late"],
            },
            "departures in the log, per window",
            len(rows) * about.of_a_row,
        ),
        *(_results(published, table, counted) if about.lasting else (None, None)),
        None if about.lasting else _published(published, table, counted),
        _accepted(table, comparison, counted) if about.due == "window_end" else None,
        Sum(
            "departures too late",
            {"delivered as late rows": len(missed)},
            "too late",
            counted["too_late"],
        ),
        *_by_the_terms(rows, run, missed, windows),
    ]
    return Facts(sums, comparison)


def _by_the_terms(
    rows: pd.DataFrame, run: Run, missed: pd.DataFrame, windows: str
) -> list[Sum | None]:
    files = files_of(rows["departed"], borders(dt.timedelta(minutes=run.every)))
    due = overdue(rows, files // QUERIES[query_of(windows)].files, windows)
    right = by_right(missed, due, windows)
    hours = LATENESS // pd.Timedelta(hours=1)
    return [
        Sum(
            f"late rows, by the schedule and the {hours} hours allowed",
            {"too late by the schedule": right},
            "delivered as late rows",
            len(missed),
        ),
        # A row that is too late by itself may join a session that is not.
        None
        if not WINDOWS[windows].lasting
        else Sum(
            "rows that are too late by the schedule",
            {"delivered as such": right},
            "too late by the schedule",
            len(due),
        ),
    ]


def _results(published: pa.Table, table: pd.DataFrame, counted: Mapping[str, int]) -> list[Sum]:
    inserts = published.filter(pc.field("_change_type") == "insert").column("revision")
    late_born = pc.sum(pc.greater(inserts, 0)).as_py() or 0
    on_time = int((table["revision"] == 0).sum())
    return [
        Sum(
            "results",
            {
                "final on time": on_time,
                "corrected later": len(table) - on_time - late_born,
                "first published by a straggler": late_born,
            },
            "results counted by the operator",
            counted["results"],
        ),
        Sum(
            "corrections",
            {"by the results' final revisions": int(table["revision"].sum()) - late_born},
            "corrections counted by the operator",
            counted["corrections"],
        ),
    ]


def _published(published: pa.Table, table: pd.DataFrame, counted: Mapping[str, int]) -> Sum:
    # A session that grows is another row, so results and corrections are counted together.
    back = pc.is_in(published.column("_change_type"), pa.array(["delete", "update_preimage"]))
    on_time = int((table["revision"] == 0).sum())
    return Sum(
        "results, published for the first time or again",
        {
            "final on time": on_time,
            "final, with a straggler in them": len(table) - on_time,
            "retracted": pc.sum(back).as_py() or 0,
        },
        "results and corrections counted",
        counted["results"] + counted["corrections"],
    )


def _accepted(table: pd.DataFrame, comparison: Comparison, counted: Mapping[str, int]) -> Sum:
    return Sum(
        "departures accepted",
        {
            "in results": int(table["departures"].sum()),
            "in windows still open": comparison.open_rows,
        },
        "on time and stragglers",
        counted["on_time"] + counted["stragglers"],
    )


def report(
    facts: Mapping[str, Facts],
    found: Promises,
    joints: Mapping[str, Joint],
    ruled: Mapping[str, Joint],
    survived: Survival,
    run: Run,
) -> str:
    """The report as text.

    Parameters
    ----------
    facts : mapping of str to Facts
        The checks by window operator.
    found : Promises
        The checks of the sketches.
    joints : mapping of str to Joint
        The checks by join.
    ruled : mapping of str to Joint
        The checks by rule.
    survived : Survival
        The check of the target that was written over a crash.
    run : Run
        The metrics of the operators.
    """
    parts: list[str] = []
    for query, about in QUERIES.items():
        ours = {name: facts[name] for name in about.windows}
        if ours:
            sums = {WINDOWS[name].title: fact.sums for name, fact in ours.items()}
            parts += [*lines(sums), "", *_comparison(ours, run.end(query)), ""]
    parts += [*promises(found), "", *agreements(joints, run), "", *alarms(ruled, run), ""]
    parts += [*survival(survived), ""]
    return "\n".join([*parts, _verdict(facts, found, joints, ruled, survived)])


def _comparison(facts: Mapping[str, Facts], watermark: pd.Timestamp) -> Iterator[str]:
    sides = [comparison.comparison for comparison in facts.values()]
    yield "the stream's tables against a batch over the departures that were not too late"
    yield line("  windows compared", [comparison.compared for comparison in sides])
    yield line("  missing in the stream", [comparison.missing for comparison in sides])
    yield line("  only in the stream", [comparison.unexpected for comparison in sides])
    yield line("  another count", [comparison.counts for comparison in sides])
    yield line(f"  means more than {TOLERANCE:g} apart", [comparison.means for comparison in sides])
    yield line(
        "  furthest means apart, minutes", [f"{comparison.furthest:.1e}" for comparison in sides]
    )
    yield line("  still open, not compared", [comparison.still_open for comparison in sides])
    end = watermark.tz_convert(NEW_YORK)
    yield f"  open: the log ends with the watermark at {end:%-d %B %H:%M} in New York, and windows"
    yield "  that end later are published only when it passes them."


def _verdict(
    facts: Mapping[str, Facts],
    found: Promises,
    joints: Mapping[str, Joint],
    ruled: Mapping[str, Joint],
    survived: Survival,
) -> str:
    holds = [item.hold for item in facts.values()]
    holds += [item.hold for item in (*joints.values(), *ruled.values())]
    if all((found.hold, survived.hold, *holds)):
        windows = sum(item.comparison.compared for item in facts.values())
        rows = sum(item.agreement.compared for item in joints.values())
        alarmed = sum(item.agreement.compared for item in ruled.values())
        answers = sum(item.answers for claims in found.claims.values() for item in claims)
        return (
            f"VERIFIED: all sums add up, {windows:,} windows, {rows:,} joined rows and {alarmed:,} rows of "
            "rules are equal\nin stream and batch, sketches are within their error bounds, in "
            f"{answers:,} checks, and the crash lost and repeated\nnothing."
        )
    examples = [item.comparison.example for item in facts.values()]
    examples += [item.agreement.example for item in (*joints.values(), *ruled.values())]
    return "\n".join(["NOT VERIFIED: see above.", *filter(None, examples)])
