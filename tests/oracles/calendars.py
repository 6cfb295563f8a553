"""Calendar and cumulative windows by simple arithmetic: dates, clocks and loops.

The start of a day is found by comparing local times. This code does not know about transitions, or the
offsets before and after one.
"""

from __future__ import annotations

import datetime as dt
import functools
import zoneinfo
from dataclasses import dataclass

from tests.oracles.windows import GridOracle, Interval

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
SECOND = 1_000_000
DAY = 86_400 * SECOND
MONTHS = {"month": 1, "quarter": 3, "year": 12}
WEEKDAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
# After 400 years the calendar repeats, weekdays and all; the clocks of year 3 are those of year
# 403, and those of 9999 are those of 9599. In between, Python's calendar has room on both sides.
CYCLE = 146_097 * DAY
EARLY, FAR = -55_000_000_000 * SECOND, 250_000_000_000 * SECOND


def clock(zone: str, instant: int) -> dt.datetime:
    """The local time."""
    time = EPOCH + dt.timedelta(microseconds=instant)
    return time.astimezone(zoneinfo.ZoneInfo(zone)).replace(tzinfo=None)


@functools.cache
def begin(zone: str, day: dt.date) -> int:
    """The first instant at which the clock shows this date's midnight, or something later."""
    midnight = dt.datetime(day.year, day.month, day.day)  # noqa: DTZ001  (what a clock shows)
    utc = (midnight.replace(tzinfo=dt.UTC) - EPOCH) // dt.timedelta(microseconds=1)
    # Every existing midnight has one of the offsets of these days.
    hours = (clock(zone, utc + hour * 3_600 * SECOND) for hour in range(-36, 37))
    offsets = {
        reading - midnight - dt.timedelta(hours=hour)
        for hour, reading in zip(range(-36, 37), hours, strict=True)
    }
    candidates = sorted(utc - offset // dt.timedelta(microseconds=1) for offset in offsets)
    for candidate in candidates:
        if clock(zone, candidate) == midnight:
            return candidate
    # It does not exist: search second by second.
    instant = candidates[0] - 1 * SECOND
    while clock(zone, instant) < midnight:
        instant += SECOND
    return instant


def interval(unit: str, zone: str, week_start: str, instant: int) -> Interval:
    """The unit of the calendar that contains the instant."""
    if instant < EARLY:
        start, end = interval(unit, zone, week_start, instant + CYCLE)
        return start - CYCLE, end - CYCLE
    if instant > FAR:
        start, end = interval(unit, zone, week_start, instant - CYCLE)
        return start + CYCLE, end + CYCLE
    day = clock(zone, instant).date() + dt.timedelta(days=2)
    while begin(zone, day) > instant:
        day -= dt.timedelta(days=1)
    first = day
    while not is_first(unit, week_start, first):
        first -= dt.timedelta(days=1)
    after = day + dt.timedelta(days=1)
    while not is_first(unit, week_start, after):
        after += dt.timedelta(days=1)
    return begin(zone, first), begin(zone, after)


def is_first(unit: str, week_start: str, day: dt.date) -> bool:
    """Whether a unit starts with this day."""
    if unit == "day":
        return True
    if unit == "week":
        return WEEKDAYS[day.weekday()] == week_start
    return day.day == 1 and (day.month - 1) % MONTHS[unit] == 0


@dataclass(kw_only=True)
class CalendarOracle(GridOracle):
    """Days, weeks, months, quarters, years in a time zone."""

    unit: str
    zone: str
    week_start: str = "monday"

    def windows_of(self, instant: int) -> list[Interval]:
        """The window that contains the instant."""
        return [interval(self.unit, self.zone, self.week_start, instant)]

    def after(self, interval: Interval) -> Interval:
        """The one that starts where this ends."""
        return self.windows_of(interval[1])[0]


@dataclass(kw_only=True)
class CumulativeOracle(GridOracle):
    """Windows that grow through a period: a unit of the calendar, or a fixed one without zone."""

    size: int | str
    every: int
    origin: int = 0
    zone: str = ""
    week_start: str = "monday"

    def period(self, instant: int) -> Interval:
        """The period that contains the instant."""
        if isinstance(self.size, str):
            return interval(self.size, self.zone, self.week_start, instant)
        start = (instant - self.origin) // self.size * self.size + self.origin
        return start, start + self.size

    def windows_of(self, instant: int) -> list[Interval]:
        """The windows of its period that end after the instant."""
        start, end = self.period(instant)
        found, reached = [], start
        while reached < end:
            reached = min(reached + self.every, end)
            if instant < reached:
                found.append((start, reached))
        return found

    def after(self, interval: Interval) -> Interval:
        """The next of its period, or the first of the next period."""
        start, end = interval
        beyond = self.period(start)[1]
        if end < beyond:
            return start, min(end + self.every, beyond)
        return self.windows_of(end)[0]

    def bound(self) -> int:
        """One more row per key and period: the merged panes."""
        periods = {
            (key, self.period(start))
            for key, (start, _) in self.contents
            if not self._forgotten(self.period(start)[1])
        }
        return super().bound() + len(periods)
