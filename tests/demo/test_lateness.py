from __future__ import annotations

from pathlib import Path

import pandas as pd

from streamops.demo.job import operators
from streamops.demo.tables import WINDOWS, late, query_of, read_table
from streamops.demo.verify import RECOMPUTED, compare
from tests.demo.conftest import EVERY, facts_of, make_run


def test_rows_left_out_too_soon_are_found(tmp_path: Path, days: pd.DataFrame) -> None:
    """The batch leaves the same rows out, and every count agrees."""
    make_run(tmp_path, days, EVERY, 2, operators("10 minutes"))
    facts = facts_of(tmp_path, days)
    for windows in ("hourly", "three_hours", "last_hour"):
        *sums, lateness = facts[windows].sums
        assert facts[windows].comparison.equal
        assert all(each is None or each.holds for each in sums)
        assert lateness is not None
        assert lateness.parts["too late by right"] < lateness.expected
        assert not facts[windows].hold


def test_rows_too_late_are_left_out_of_every_window(tmp_path: Path, days: pd.DataFrame) -> None:
    """Some flights of the day of the storm that left months later than they did."""
    storm = days[days["scheduled"] < pd.Timestamp("2013-03-08 22:00", tz="UTC")]
    stranded = storm.iloc[::40].copy()
    months = pd.date_range("2013-04-02", "2013-12-20", periods=len(stranded), tz="UTC")
    stranded["departed"] = months.as_unit("us")
    rows = pd.concat([days.drop(index=stranded.index), stranded], ignore_index=True)
    run = make_run(tmp_path, rows, EVERY, 2)
    facts = facts_of(tmp_path, rows)
    for windows in WINDOWS:
        assert run.counts[windows]["too_late"] > 1, windows
        assert facts[windows].hold, windows
        # Nothing hides it if they are not left out.
        told = late(tmp_path, windows)
        kept = RECOMPUTED[windows](rows, told.iloc[1:])
        about = WINDOWS[windows]
        end = run.end(query_of(windows))
        table = read_table(tmp_path, windows)
        assert not compare(table, kept, end, key=about.key, due=about.due).equal
