"""The report: sums that must add up, and the comparison with the batch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
import pyarrow.compute as pc

from streamops.demo.flights import NEW_YORK
from streamops.demo.tables import HOURS, Run, changes, late, read_table
from streamops.demo.verify import TOLERANCE, Comparison, compare, recomputed

__all__ = ["Facts", "Sum", "gather", "report"]


@dataclass(frozen=True, slots=True)
class Sum:
    """Parts, and what they must add up to."""

    title: str
    parts: dict[str, int]
    total: str
    expected: int

    @property
    def holds(self) -> bool:
        """Whether they do."""
        return sum(self.parts.values()) == self.expected


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of one of the windows after a run."""

    sums: list[Sum]
    comparison: Comparison

    @property
    def hold(self) -> bool:
        """Whether every sum adds up, and stream and batch are equal."""
        return self.comparison.equal and all(each.holds for each in self.sums)


def gather(out: Path, rows: pd.DataFrame, run: Run, windows: str) -> Facts:
    """Hold the tables of a run against its counts, and against the batch.

    Parameters
    ----------
    out : Path
        The folder of the run.
    rows : DataFrame
        The departures that were in the log: from the package, not from the log.
    run : Run
        What the operators counted.
    windows : str
        Which of the windows.
    """
    hours, counted = HOURS[windows], run.counts[windows]
    table, missed = read_table(out, windows), late(out, windows)
    comparison = compare(table, recomputed(rows, missed, hours), hours, run.end)
    published = changes(out, windows)
    inserts = published.filter(pc.field("_change_type") == "insert").column("revision")
    late_born = pc.sum(pc.greater(inserts, 0)).as_py() or 0
    on_time = int((table["revision"] == 0).sum())
    sums = [
        Sum(
            "departures, once per window that each belongs to",
            {
                "on time": counted["on_time"],
                "stragglers, corrected in": counted["stragglers"],
                "too late": counted["too_late"],
            },
            "departures in the log, per window",
            len(rows) * hours,
        ),
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
        Sum(
            "departures accepted",
            {
                "in results": int(table["departures"].sum()),
                "in windows still open": comparison.open_rows,
            },
            "on time and stragglers",
            counted["on_time"] + counted["stragglers"],
        ),
        Sum(
            "departures too late",
            {"delivered as late rows": len(missed)},
            "too late",
            counted["too_late"],
        ),
    ]
    return Facts(sums, comparison)


def report(facts: dict[str, Facts], run: Run) -> str:
    """The report as text."""
    return "\n".join([*_sums(facts), "", *_comparison(facts, run), "", _verdict(facts)])


def _sums(facts: dict[str, Facts]) -> Iterator[str]:
    yield _row("", [name.replace("_", " ") for name in facts])
    for sums in zip(*(each.sums for each in facts.values()), strict=True):
        first = sums[0]
        yield first.title
        for part in first.parts:
            yield _row(f"  {part}", [each.parts[part] for each in sums])
        verdict = "adds up" if all(each.holds for each in sums) else "DOES NOT ADD UP"
        yield _row(f"  = {first.total}", [each.expected for each in sums], verdict)


def _comparison(facts: dict[str, Facts], run: Run) -> Iterator[str]:
    sides = [each.comparison for each in facts.values()]
    yield "the stream's tables against a batch over the departures that were not too late"
    yield _row("  windows compared", [each.compared for each in sides])
    yield _row("  missing in the stream", [each.missing for each in sides])
    yield _row("  only in the stream", [each.unexpected for each in sides])
    yield _row("  another count", [each.counts for each in sides])
    yield _row(f"  means more than {TOLERANCE:g} apart", [each.means for each in sides])
    yield _row("  furthest means apart, minutes", [f"{each.furthest:.1e}" for each in sides])
    yield _row("  still open, not compared", [each.still_open for each in sides])
    end = run.end.tz_convert(NEW_YORK)
    yield f"  open: the log ends with the watermark at {end:%-d %B %H:%M} in New York, and windows"
    yield "  that end later are published only when it passes them."


def _verdict(facts: dict[str, Facts]) -> str:
    if all(each.hold for each in facts.values()):
        windows = sum(each.comparison.compared for each in facts.values())
        return f"VERIFIED: all sums add up, and {windows:,} windows are equal in stream and batch."
    examples = [each.comparison.example for each in facts.values() if each.comparison.example]
    return "\n".join(["NOT VERIFIED: see above.", *examples])


def _row(label: str, values: list[int] | list[str], remark: str = "") -> str:
    cells = "".join(f"{v:>14,}" if isinstance(v, int) else f"{v:>14}" for v in values)
    return f"{label:<42}{cells}   {remark}".rstrip()
