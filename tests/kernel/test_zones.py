"""The start of a local day."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pytest

from streamops.kernel.calendar import DAY, midnights
from streamops.kernel.time import MAX_INSTANT, MIN_INSTANT, format_instant

CYCLE = 146_097  # days in 400 years
EPOCH = dt.date(1970, 1, 1).toordinal()


def begin(zone: str, *dates: str) -> list[str]:
    days = [dt.date.fromisoformat(item).toordinal() - EPOCH for item in dates]
    return [format_instant(int(item)) for item in midnights(zone, np.array(days, np.int64))]


@pytest.mark.parametrize(
    ("zone", "date", "instant"),
    [
        ("UTC", "2013-03-10", "2013-03-10 00:00:00Z"),
        ("America/New_York", "2013-03-10", "2013-03-10 05:00:00Z"),
        ("America/New_York", "2013-03-11", "2013-03-11 04:00:00Z"),
        ("Asia/Kolkata", "2013-03-10", "2013-03-09 18:30:00Z"),
        ("Australia/Lord_Howe", "2013-04-07", "2013-04-06 13:00:00Z"),
        ("Australia/Lord_Howe", "2013-04-08", "2013-04-07 13:30:00Z"),
        # Before there were zones: solar time, to the second.
        ("America/New_York", "1850-01-01", "1850-01-01 04:56:02Z"),
        ("Europe/Berlin", "0001-01-01", "-62135600008000000 microseconds since 1970"),
    ],
)
def test_a_day_begins_at_local_midnight(zone: str, date: str, instant: str) -> None:
    assert begin(zone, date) == [instant]


@pytest.mark.parametrize(
    ("zone", "date", "instant"),
    [
        ("America/Sao_Paulo", "2018-11-04", "2018-11-04 03:00:00Z"),
        ("Asia/Beirut", "2022-03-27", "2022-03-26 22:00:00Z"),
        ("Africa/Cairo", "2023-04-28", "2023-04-27 22:00:00Z"),
        # From 23:30 the clock went to half past twelve: the gap does not start at midnight.
        ("America/Toronto", "1919-03-31", "1919-03-31 04:30:00Z"),
    ],
)
def test_where_midnight_is_skipped_the_day_begins_after_the_gap(
    zone: str, date: str, instant: str
) -> None:
    assert begin(zone, date) == [instant]


@pytest.mark.parametrize(
    ("zone", "date", "instant"),
    [
        ("America/Havana", "2013-11-03", "2013-11-03 04:00:00Z"),
        ("Atlantic/Azores", "2013-10-27", "2013-10-27 00:00:00Z"),
        # A minute past midnight the clock went back to the day before.
        ("America/St_Johns", "2006-10-29", "2006-10-29 02:30:00Z"),
    ],
)
def test_where_midnight_occurs_twice_the_day_begins_at_the_first(
    zone: str, date: str, instant: str
) -> None:
    assert begin(zone, date) == [instant]


def test_a_day_that_a_zone_skipped_begins_with_the_next_one() -> None:
    assert begin("Pacific/Apia", "2011-12-29", "2011-12-30", "2011-12-31") == [
        "2011-12-29 10:00:00Z",
        "2011-12-30 10:00:00Z",
        "2011-12-30 10:00:00Z",
    ]


def test_before_the_year_1_local_time_is_local_mean_time() -> None:
    days = MIN_INSTANT // DAY + np.array([-3_000_000, -146_098, -366, -1, 0, 1, 2])
    begin = midnights("America/New_York", days)
    assert set((begin - days * DAY).tolist()) == {17_762_000_000}


def test_after_the_year_9999_the_calendar_repeats() -> None:
    days = MAX_INSTANT // DAY + np.array([*range(-2, 800), 3_000_000])
    for zone in ("America/New_York", "Asia/Kolkata"):
        earlier = midnights(zone, days - CYCLE)
        assert np.array_equal(midnights(zone, days), earlier + CYCLE * DAY)


def test_days_may_be_in_any_order_and_repeated() -> None:
    days = np.array([3, 1, 3, 2, 1])
    assert midnights("Asia/Kolkata", days).tolist() == [d * DAY - 19_800_000_000 for d in days]
    assert midnights("Asia/Kolkata", days[:0]).tolist() == []
