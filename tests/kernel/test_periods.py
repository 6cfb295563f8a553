"""The window one period earlier, also across clock changes."""

from __future__ import annotations

import datetime as dt
from zoneinfo import ZoneInfo

import numpy as np
import pytest

from streamops.kernel.calendar import DAY, CalendarPeriod, FixedPeriod, from_local, to_local
from streamops.kernel.grids import CalendarGrid
from streamops.kernel.time import MAX_INSTANT, MIN_INSTANT, parse_instant
from tests.oracles.compare import previous_windows

HOUR = DAY // 24
BERLIN = "Europe/Berlin"


def at(text: str) -> int:
    """The instant of a date and time with its offset."""
    return parse_instant(dt.datetime.fromisoformat(text), parameter="")


def found(period: CalendarPeriod, start: str, hours: float = 1) -> list[tuple[str, float]]:
    """Where the previous window may be: local start, and length in hours."""
    begin = np.array([at(start)])
    positions = period.before(begin, begin + int(hours * HOUR))
    found = []
    for first, last in positions:
        local = dt.datetime.fromtimestamp(int(first[0]) / 1e6, ZoneInfo(period.zone))
        found.append((local.isoformat(timespec="minutes"), int(last[0] - first[0]) / HOUR))
    return found


def test_a_fixed_period_is_a_length_of_time() -> None:
    period = FixedPeriod(7 * DAY)
    start = np.array([-DAY, 0])
    ((begin, over),) = period.before(start, start + 5)
    assert begin.tolist() == [-8 * DAY, -7 * DAY]
    assert (over - begin).tolist() == [5, 5]
    assert period.over(start, start + 5).tolist() == [6 * DAY + 5, 7 * DAY + 5]
    assert period.at_least == 7 * DAY


def test_the_same_hour_yesterday_is_23_or_25_hours_ago_at_a_clock_change() -> None:
    day = CalendarPeriod("day", BERLIN)
    assert found(day, "2013-03-31T12:00+02:00")[0] == ("2013-03-30T12:00+01:00", 1)
    assert found(day, "2013-10-27T12:00+01:00")[0] == ("2013-10-26T12:00+02:00", 1)
    assert found(day, "2013-07-01T12:00+02:00") == [("2013-06-30T12:00+02:00", 1)] * 2


def test_a_skipped_hour_is_not_a_previous_window() -> None:
    day = CalendarPeriod("day", BERLIN)
    # Neither an empty window nor another hour.
    assert found(day, "2013-04-01T02:00+02:00") == [("2013-03-31T03:00+02:00", 0)] * 2
    assert found(day, "2013-04-01T03:00+02:00")[0] == ("2013-03-31T03:00+02:00", 1)
    assert found(day, "2013-03-31T03:00+02:00") == [("2013-03-30T03:00+01:00", 1)] * 2


def test_of_an_hour_that_occurs_twice_the_first_is_used() -> None:
    day = CalendarPeriod("day", BERLIN)
    assert found(day, "2013-10-28T02:00+01:00") == [
        ("2013-10-27T02:00+02:00", 2),  # both of them, where a window is as long
        ("2013-10-27T02:00+02:00", 1),
    ]
    # Both have the same previous hour.
    assert found(day, "2013-10-27T02:00+02:00")[0] == ("2013-10-26T02:00+02:00", 1)
    assert found(day, "2013-10-27T02:00+01:00")[0] == ("2013-10-26T02:00+02:00", 1)


@pytest.mark.parametrize(
    "zone", [BERLIN, "America/Havana", "Asia/Beirut", "America/Sao_Paulo", "Pacific/Apia"]
)
@pytest.mark.parametrize("unit", ["day", "week"])
def test_a_day_is_compared_with_the_previous_day(zone: str, unit: str) -> None:
    grid, period = CalendarGrid("day", zone), CalendarPeriod(unit, zone)  # type: ignore[arg-type]
    days = np.arange(15_000, 17_500)
    start, end = grid.start_of(days), grid.end_of(days)
    real = start < end  # Apia left out a day
    expected = days - (1 if unit == "day" else 7)
    wanted = (grid.start_of(expected), grid.end_of(expected))
    hit = np.zeros(len(days), np.bool_)
    for begin, over in period.before(start, end):
        hit |= (begin == wanted[0]) & (over == wanted[1])
    known = real & (wanted[0] < wanted[1])
    assert hit[known].all()
    assert (period.over(*wanted) >= end)[known].all()


@pytest.mark.parametrize(
    ("unit", "start", "hours", "before"),
    [
        ("month", "2013-03-01T00:00+01:00", 31 * 24 - 1, ("2013-02-01T00:00+01:00", 28 * 24)),
        ("quarter", "2013-04-01T00:00+02:00", 91 * 24, ("2013-01-01T00:00+01:00", 90 * 24 - 1)),
        ("year", "2013-01-01T00:00+01:00", 365 * 24, ("2012-01-01T00:00+01:00", 366 * 24)),
        ("month", "2013-03-28T00:00+01:00", 24, ("2013-02-28T00:00+01:00", 24)),
        ("month", "2013-04-30T00:00+02:00", 24, ("2013-03-30T00:00+01:00", 24)),
        ("month", "2022-11-30T00:00+01:00", 24, ("2022-10-30T00:00+02:00", 25)),
        ("month", "2014-04-30T00:00+02:00", 24, ("2014-03-30T00:00+01:00", 23)),
        ("quarter", "2014-06-30T00:00+02:00", 24, ("2014-03-30T00:00+01:00", 23)),
        ("year", "2013-02-28T00:00+01:00", 24, ("2012-02-28T00:00+01:00", 24)),
        ("year", "2013-01-01T00:00+01:00", 59 * 24, ("2012-01-01T00:00+01:00", 60 * 24)),
        ("month", "2013-03-29T12:00+01:00", 1, ("2013-03-01T12:00+01:00", 0)),
    ],
)
def test_months_have_the_lengths_of_the_calendar(
    unit: str, start: str, hours: int, before: tuple[str, float]
) -> None:
    positions = found(CalendarPeriod(unit, BERLIN), start, hours)  # type: ignore[arg-type]
    assert positions[0] == before


def test_a_day_that_the_previous_month_does_not_have_has_no_previous_day() -> None:
    month = CalendarPeriod("month", BERLIN)
    assert found(month, "2013-03-29T00:00+01:00", 24)[0][1] == 0
    assert [length for _, length in found(month, "2013-03-30T00:00+01:00", 24)] == [0, 0]


ZONES = [
    ("Europe/Berlin", "2013-03-31T01:00+00:00", "2013-10-27T01:00+00:00"),
    ("America/New_York", "2013-03-10T07:00+00:00", "2013-11-03T06:00+00:00"),
    ("Australia/Lord_Howe", "2013-04-06T15:00+00:00", "2013-10-05T15:30+00:00"),
    ("America/Sao_Paulo", "2013-10-20T03:00+00:00", "2013-02-17T02:00+00:00"),
    ("Pacific/Apia", "2011-12-30T10:00+00:00", "2012-04-01T00:00+00:00"),
    ("Asia/Kathmandu", "1985-12-31T18:30+00:00", "2013-01-01T00:00+00:00"),
    ("UTC", "1970-01-01T00:00+00:00", "1969-12-31T00:00+00:00"),
]


@pytest.mark.thorough
@pytest.mark.parametrize("units", [1, 3])
@pytest.mark.parametrize("unit", ["day", "week", "month", "year"])
@pytest.mark.parametrize(("zone", "one", "other"), ZONES)
def test_earlier_windows_are_those_of_the_oracle(
    zone: str, one: str, other: str, unit: str, units: int
) -> None:
    period = CalendarPeriod(unit, zone, units)  # type: ignore[arg-type]
    days = {"day": 1, "week": 7, "month": 30, "year": 365}[unit] * units
    instants = [
        at(change) + around * DAY + half * HOUR // 2 + off
        for change in (one, other)
        for around in (0, 1, days)
        for half in (-5, -4, -3, -2, -1, 0, 1, 2, 3, 4)
        for off in (0, 1)
    ]
    for length in (HOUR, DAY):
        start = np.array(instants)
        positions = period.before(start, start + length)
        last = period.over(start, start + length)
        for row, instant in enumerate(instants):
            expected = previous_windows(unit, zone, instant, instant + length, units)
            got = [(int(begin[row]), int(over[row])) for begin, over in positions]
            first, second = (
                list(dict.fromkeys(p for p in side if p[0] < p[1])) for side in (got, expected)
            )
            assert first == second
        # Whatever has one of these as its previous one ends no later than `over` says.
        for begin, over in positions:
            real = begin < over
            assert (period.over(begin, over) >= start + length)[real].all()
        assert (last > start).all()


def test_the_first_and_last_years_of_the_calendar_have_their_days() -> None:
    ends = np.array([MIN_INSTANT, MAX_INSTANT - HOUR + 1])
    for zone in (BERLIN, "Pacific/Apia"):
        for period in (CalendarPeriod("day", zone), CalendarPeriod("week", zone)):
            begin, _ = period.before(ends, ends + HOUR)[0]
            shift = ends - begin
            assert (abs(shift - (DAY if period.unit == "day" else 7 * DAY)) <= HOUR).all()


@pytest.mark.thorough
@pytest.mark.parametrize("units", [1, 8])
@pytest.mark.parametrize("unit", ["day", "week", "month", "quarter", "year"])
@pytest.mark.parametrize(
    ("zone", "begin"),
    [
        (BERLIN, "2011-01-01T00:00+00:00"),
        ("Pacific/Apia", "2011-01-01T00:00+00:00"),  # 30 December was skipped
        ("Pacific/Kiritimati", "1994-01-01T00:00+00:00"),
        ("Asia/Manila", "1844-01-01T00:00+00:00"),
        ("America/Juneau", "1867-01-01T00:00+00:00"),
    ],
)
def test_no_window_ends_before_its_lower_bound(
    unit: str, zone: str, begin: str, units: int
) -> None:
    period = CalendarPeriod(unit, zone, units)  # type: ignore[arg-type]
    start = at(begin) + np.arange(0, 800 * DAY, 5 * HOUR)
    for length in (1, HOUR, DAY):
        lasts = period.over(start, start + length) - (start + length)
        assert (lasts >= period.at_least).all()
        # Eight months are never as short as eight times February.
        assert units > 1 or lasts.min() < period.at_least + 3 * DAY  # and it says enough


def test_the_local_time_of_an_instant_maps_back_to_it() -> None:
    instants = at("2013-10-27T00:30+00:00") + np.arange(-3, 4) * HOUR
    readings = to_local(BERLIN, instants)
    first, last, occurs = from_local(BERLIN, readings)
    assert ((first == instants) | (last == instants)).all()
    assert occurs.all()
    assert (last - first).tolist() == [0, 0, 0, HOUR, HOUR, 0, 0]
    nothing = np.empty(0, np.int64)
    assert [len(item) for item in from_local(BERLIN, nothing)] == [0, 0, 0]
    assert len(to_local(BERLIN, nothing)) == 0
