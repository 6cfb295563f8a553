from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from examples.flights.contents import QUERIES, WINDOWS, query_of
from examples.flights.job import operators
from examples.flights.lateness import by_right, overdue
from examples.flights.promises import gather_promises
from examples.flights.tables import late, read_table
from examples.flights.verify import RECOMPUTED, compare
from tests.examples.flights.conftest import facts_of, make_run

EVERY = 60  # minutes in a micro-batch


def test_rows_left_out_too_soon_are_found(
    tmp_path: Path, days: pd.DataFrame, logs: dict[str, pd.DataFrame]
) -> None:
    """The batch leaves the same rows out, and every count agrees."""
    make_run(tmp_path, logs, EVERY, 2, operators("10 minutes"))
    facts = facts_of(tmp_path, days)
    for windows in ("hourly", "three_hours", "last_hour"):
        *sums, lateness, obliged = facts[windows].sums
        assert facts[windows].comparison.equal
        assert all(total is None or total.holds for total in sums)
        assert lateness is not None
        assert lateness.parts["too late by the schedule"] < lateness.expected
        assert obliged is not None
        assert obliged.holds
        assert not facts[windows].hold


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two files to a micro-batch: the last is compared with a watermark from after the storm."""
    monkeypatch.setitem(QUERIES, "days", replace(QUERIES["days"], files=2))


@pytest.mark.usefixtures("often")
def test_rows_let_in_that_are_too_late_are_found(
    tmp_path: Path, days: pd.DataFrame, logs: dict[str, pd.DataFrame]
) -> None:
    """The batch lets the same rows in, and every count agrees."""
    rows = stranded(days)
    make_run(tmp_path, {**logs, "departures": rows}, EVERY, 2, operators("60 days"))
    facts = facts_of(tmp_path, rows)
    for windows, about in WINDOWS.items():
        *sums, obliged = facts[windows].sums
        assert facts[windows].comparison.equal
        assert all(total is None or total.holds for total in sums)
        if about.lasting:
            assert obliged is not None
            assert obliged.parts["delivered as such"] < obliged.expected
            assert not facts[windows].hold


@pytest.mark.usefixtures("often")
def test_rows_too_late_are_left_out_of_every_window(
    tmp_path: Path, days: pd.DataFrame, logs: dict[str, pd.DataFrame]
) -> None:
    rows = stranded(days)
    run = make_run(tmp_path, {**logs, "departures": rows}, EVERY, 2)
    facts = facts_of(tmp_path, rows)
    for windows in WINDOWS:
        assert run.counts[windows]["too_late"] > 1, windows
        assert facts[windows].hold, windows
        # Nothing hides it if they are not left out.
        late_rows = late(tmp_path, windows)
        accepted_ = RECOMPUTED[windows](rows, late_rows.iloc[1:])
        about = WINDOWS[windows]
        end = run.end(query_of(windows))
        table = read_table(tmp_path, windows)
        assert not compare(table, accepted_, end, key=about.key, due=about.due).equal
    # Nor are they in the sketches of windows; those without windows have all.
    assert gather_promises(tmp_path, rows, run).hold


def stranded(days: pd.DataFrame) -> pd.DataFrame:
    """Some flights of the day of the storm left months later than they did."""
    storm = days[days["scheduled"] < pd.Timestamp("2013-03-08 22:00", tz="UTC")]
    moved = storm.iloc[::40].copy()
    months = pd.date_range("2013-04-02", "2013-12-20", periods=len(moved), tz="UTC")
    moved["departed"] = months.as_unit("us")
    return pd.concat([days.drop(index=moved.index), moved], ignore_index=True)


@pytest.mark.parametrize(
    ("windows", "end"),
    [
        ("hourly", "2013-11-03 04:00"),
        ("three_hours", "2013-11-03 06:00"),
        ("days", "2013-11-04 00:00"),  # of 25 hours
        ("working_days", "2013-11-03 11:40"),
        ("last_hour", "2013-11-03 03:40"),
        ("airline_days", "2013-11-04 00:00"),
    ],
)
@pytest.mark.parametrize(("more", "late"), [(0, 1), (-1, 0), (90, 1)])
def test_a_row_is_too_late_six_hours_after_its_window(
    windows: str, end: str, more: int, late: int
) -> None:
    """By the schedules two micro-batches before its own: in minutes, `more` than six hours."""
    minute = pd.Timedelta(minutes=1)
    position = {"tz": "America/New_York"}
    watermark = pd.Timestamp(end, **position).tz_convert("UTC") + (360 + more) * minute
    scheduled = pd.Timestamp("2013-11-03 03:40", **position).tz_convert("UTC")
    # The one in the micro-batch before is of no account, nor is an earlier one of the same.
    ahead, furthest = watermark + 30 * minute, watermark + pd.Timedelta(days=9)
    times = [scheduled, furthest, ahead, scheduled]
    rows = pd.DataFrame({"flight_id": range(4), "scheduled": times})
    found = overdue(rows, pd.Series([2, 1, 0, 0]), windows)
    ends = found[found["window_end"] == pd.Timestamp(end, **position)]
    assert [*ends["flight_id"]] == [0] * late
    assert set(found["watermark"]) <= {watermark}
    assert set(found["flight_id"]) <= {0}


def test_a_row_is_late_if_it_is_overdue_by_this_watermark() -> None:
    start = pd.Timestamp("2013-07-01 06:00", tz="UTC")
    hour = pd.Timedelta(hours=1)
    due = pd.DataFrame(
        {"flight_id": [0], "window_end": [start + hour], "watermark": [start + 9 * hour]}
    )
    late = pd.DataFrame(
        {
            "flight_id": [0, 7, 0, 0],
            "window_start": [start, start, start - hour, start],
            "scheduled": [start] * 4,
            "watermark": [start + 9 * hour] * 3 + [pd.NaT],
        }
    )
    assert by_right(late, due, "hourly") == 1
    assert by_right(late.iloc[:0], due, "hourly") == 0
