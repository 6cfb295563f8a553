"""Days, weeks, months, quarters and years in a time zone."""

from __future__ import annotations

import datetime as dt
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from streamops.kernel.calendar import DAY, Unit, Weekday
from streamops.kernel.grids import CalendarGrid
from streamops.kernel.time import MAX_INSTANT, MIN_INSTANT
from tests.oracles.calendars import interval

HOUR = 3_600_000_000
ZONES = [
    "UTC",
    "America/New_York",
    "Europe/Berlin",
    "Australia/Lord_Howe",  # half an hour of summer time
    "America/Sao_Paulo",  # midnight was skipped
    "America/Havana",  # midnight comes twice
    "America/St_Johns",  # and goes back to the day before
    "Asia/Kolkata",
    "Pacific/Apia",  # left out 30 December 2011
    "America/Juneau",  # had 18 October 1867 twice
]


def instant(text: str) -> int:
    instant = dt.datetime.fromisoformat(text).replace(tzinfo=dt.UTC)
    return (instant - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)) // dt.timedelta(microseconds=1)


CHANGES = [
    instant(text)
    for text in (
        "2013-03-10T07:00", "2013-11-03T06:00", "2013-03-31T01:00", "2013-10-27T01:00",
        "2013-04-06T15:00", "2013-10-05T15:30", "2018-02-18T02:00", "2018-11-04T03:00",
        "2013-11-03T05:00", "2006-10-29T02:31", "2011-12-30T10:00", "1867-10-18T00:00",
        "1883-11-18T17:00", "2000-02-29T12:00", "2012-12-31T23:59", "1970-01-01T00:00",
    )
]  # fmt: skip


@st.composite
def grids(draw: st.DrawFn) -> CalendarGrid:
    unit = draw(st.sampled_from(get_args(Unit)))
    week_start = draw(st.sampled_from(get_args(Weekday))) if unit == "week" else "monday"
    return CalendarGrid(unit, draw(st.sampled_from(ZONES)), week_start)


near = st.builds(
    lambda instant, hours, nudge: instant + hours * HOUR // 2 + nudge,
    st.sampled_from(CHANGES),
    st.integers(-60, 60),
    st.integers(-1, 1),
)
everywhere = near | st.integers(MIN_INSTANT, MAX_INSTANT)


def window(grid: CalendarGrid, instant: int) -> tuple[int, int]:
    first, last = grid.windows_of(np.array([instant]))
    assert np.array_equal(first, last)
    return int(grid.start_of(first)[0]), int(grid.end_of(first)[0])


def describe(unit: Any, zone: str, text: str, week_start: Any = "monday") -> tuple[str, str, float]:
    """Start and end of the window of an instant in UTC, and its length in hours."""
    start, end = window(CalendarGrid(unit, zone, week_start), instant(text))
    local = (dt.datetime(1970, 1, 1) + dt.timedelta(microseconds=t) for t in (start, end))  # noqa: DTZ001
    return (*(f"{text:%Y-%m-%dT%H:%M}" for text in local), (end - start) / HOUR)  # type: ignore[return-value]


@given(grids(), everywhere)
@example(CalendarGrid("day", "Pacific/Apia"), instant("2011-12-30T10:00"))
@example(CalendarGrid("year", "America/New_York"), MIN_INSTANT)
@example(CalendarGrid("year", "Asia/Kolkata"), MAX_INSTANT)
def test_the_window_of_an_instant_is_its_unit_of_the_calendar(
    grid: CalendarGrid, instant: int
) -> None:
    assert window(grid, instant) == interval(grid.unit, grid.zone, grid.week_start, instant)


@given(grids(), everywhere)
def test_a_window_is_its_only_pane(grid: CalendarGrid, instant: int) -> None:
    assert grid.is_disjoint
    (pane,) = grid.pane_of(np.array([instant])).tolist()
    assert pane == window(grid, instant)[0]
    assert grid.pane_of(np.array([pane])).tolist() == [pane]


@given(grids(), everywhere)
@example(CalendarGrid("day", "Pacific/Apia"), instant("2011-12-30T10:00"))
@example(CalendarGrid("day", "Pacific/Apia"), instant("2011-12-30T10:00") - 1)
def test_a_closed_window_ends_at_or_below_the_watermark(grid: CalendarGrid, watermark: int) -> None:
    closed = grid.last_closed(watermark)
    ends = grid.end_of(np.array([closed, closed + 1]))
    assert ends[0] <= watermark < ends[1]


@given(grids(), everywhere)
def test_neighbouring_windows_touch_and_none_exceeds_the_maximum_length(
    grid: CalendarGrid, instant: int
) -> None:
    numbers = grid.windows_of(np.array([instant]))[0] + np.arange(-3, 4)
    start, end = grid.start_of(numbers), grid.end_of(numbers)
    assert np.array_equal(end[:-1], start[1:])
    assert ((end >= start) & (end - start <= grid.longest)).all()


@given(grids(), st.lists(everywhere, max_size=8))
def test_instants_do_not_depend_on_their_neighbours(
    grid: CalendarGrid, instants: list[int]
) -> None:
    together = grid.windows_of(np.array(instants, np.int64))[0].tolist()
    assert together == [int(grid.windows_of(np.array([t]))[0][0]) for t in instants]


@pytest.mark.parametrize("unit", get_args(Unit))
def test_windows_are_numbered_from_1970(unit: Any) -> None:
    number, _ = CalendarGrid(unit, "Asia/Kolkata").windows_of(np.array([0]))
    assert number.tolist() == [0]


def test_days_have_23_and_25_hours_at_clock_changes() -> None:
    assert describe("day", "America/New_York", "2013-03-10T12:00") == (
        "2013-03-10T05:00", "2013-03-11T04:00", 23,
    )  # fmt: skip
    assert describe("day", "America/New_York", "2013-11-03T12:00") == (
        "2013-11-03T04:00", "2013-11-04T05:00", 25,
    )  # fmt: skip
    assert describe("day", "Australia/Lord_Howe", "2013-04-07T00:00")[2] == 24.5
    assert describe("day", "Australia/Lord_Howe", "2013-10-06T00:00")[2] == 23.5


def test_a_skipped_day_has_no_instant() -> None:
    grid = CalendarGrid("day", "Pacific/Apia")
    before, after = grid.windows_of(instant("2011-12-30T10:00") + np.array([-1, 0]))[0].tolist()
    assert after == before + 2
    assert grid.start_of(np.array([before + 1])) == grid.end_of(np.array([before + 1]))


def test_a_day_whose_midnight_is_skipped_begins_at_one_o_clock() -> None:
    assert describe("day", "America/Sao_Paulo", "2018-11-04T12:00") == (
        "2018-11-04T03:00", "2018-11-05T02:00", 23,
    )  # fmt: skip


def test_a_repeated_hour_belongs_to_the_day_that_has_begun() -> None:
    # A minute past midnight the clock went back to 23:01; the day had begun by then.
    begun = "2006-10-29T02:30"
    assert describe("day", "America/St_Johns", "2006-10-29T03:00")[0] == begun
    assert describe("day", "America/St_Johns", "2006-10-29T02:29")[1] == begun


def test_weeks_start_on_monday_by_default() -> None:
    assert describe("week", "UTC", "2013-01-01T00:00") == (
        "2012-12-31T00:00",
        "2013-01-07T00:00",
        168,
    )
    assert describe("week", "UTC", "2013-01-01T00:00", "sunday")[0] == "2012-12-30T00:00"
    starts = [
        describe("week", "UTC", "2013-01-01T00:00", day)[0][8:10] for day in get_args(Weekday)
    ]
    assert starts == ["31", "01", "26", "27", "28", "29", "30"]


def test_months_quarters_and_years_have_the_days_of_the_calendar() -> None:
    for text, days in (
        ("2000-02-29T00:00", 29),
        ("1900-02-28T00:00", 28),
        ("2013-12-31T00:00", 31),
    ):
        assert describe("month", "UTC", text)[2] == days * 24
    lengths = [
        describe("quarter", "UTC", f"2013-{m}-01T00:00")[2] / 24 for m in ("02", "05", "08", "11")
    ]
    assert lengths == [90, 91, 92, 92]
    assert describe("year", "Europe/Berlin", "2012-12-31T22:59") == (
        "2011-12-31T23:00", "2012-12-31T23:00", 366 * 24,
    )  # fmt: skip


@pytest.mark.parametrize("unit", get_args(Unit))
@pytest.mark.parametrize("edge", [MIN_INSTANT, MAX_INSTANT])
def test_the_first_and_the_last_instant_of_the_calendar_have_windows(unit: Any, edge: int) -> None:
    for zone in ("America/New_York", "Asia/Kolkata"):
        start, end = window(CalendarGrid(unit, zone), edge)
        assert start <= edge < end


def test_windows_far_outside_of_the_calendar_have_boundaries() -> None:
    # A watermark less an allowed lateness may be anywhere.
    grid = CalendarGrid("month", "America/New_York")
    for far in (-(1 << 60), 1 << 60):
        closed = grid.last_closed(far)
        ends = grid.end_of(np.array([closed, closed + 1]))
        assert ends[0] <= far < ends[1]


def test_panes_of_windows_without_overlap_are_unchanged() -> None:
    panes = np.array([0, DAY])
    assert CalendarGrid("day", "UTC").settled(panes, 5) is panes
