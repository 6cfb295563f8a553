"""Time zones and calendar units: the start of local days, local times, and comparison periods.

A local day begins at the first instant at which the local time is midnight or later. If a change of
the clock skips midnight, that is the first instant after the gap; if midnight occurs twice, it is
the first occurrence. So a day may have 23 or 25 hours, or none: Samoa skipped 30 December 2011.

Local times are those of Python's :mod:`zoneinfo`: the database of the operating system or, if there
is none, that of the package ``tzdata``.
"""

from __future__ import annotations

import bisect
import datetime as dt
import difflib
import functools
import zoneinfo
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from streamops.kernel import conditions
from streamops.kernel.groups import Groups, Mask
from streamops.kernel.time import Instants

Unit = Literal["day", "week", "month", "quarter", "year"]
Weekday = Literal["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]

LONGEST = {"day": 1, "week": 7, "month": 31, "quarter": 92, "year": 366}
"""The maximum number of days in a unit."""

MONTHS = {"month": 1, "quarter": 3, "year": 12}
"""Months per unit."""

DAY = 86_400_000_000

# Python's calendar has the years 1 to 9999, and windows may extend beyond. The calendar repeats every
# 400 years, and time zones have fixed rules at both ends, so equivalent days can be used.
_FIRST = dt.date.min.toordinal() - dt.date(1970, 1, 1).toordinal() + 1
_LAST = dt.date.max.toordinal() - dt.date(1970, 1, 1).toordinal() - 1
_CYCLE = 146_097

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_SECOND = dt.timedelta(seconds=1)


def midnights(zone: str, days: npt.NDArray[np.int64]) -> Instants:
    """Return the instants at which local days begin. Days are numbered from 1970-01-01.

    Each distinct day is looked up once, and cached.

    Examples
    --------
    >>> (midnights("America/New_York", np.array([0, 1])) // 3_600_000_000).tolist()
    [5, 29]
    """
    groups, firsts = Groups.of(days)
    found = [_midnight(zone, day) for day in days[firsts].tolist()]
    begin: Instants = np.array(found, np.int64)[groups.ids]
    return begin


def to_local(zone: str, instants: Instants) -> Instants:
    """Return the local times of instants, in microseconds since 1970-01-01 00:00 local time.

    Each distinct instant is looked up once, and cached.

    Examples
    --------
    >>> (to_local("America/New_York", np.array([0, DAY])) // 3_600_000_000).tolist()
    [-5, 19]
    """
    groups, firsts = Groups.of(instants)
    found = [_read(zone, instant) for instant in instants[firsts].tolist()]
    readings: Instants = np.array(found, np.int64)[groups.ids]
    return readings


def from_local(zone: str, readings: Instants) -> tuple[Instants, Instants, Mask]:
    """Return the instants of local times.

    Returns
    -------
    first, last : arrays of int64
        The first and the last occurrence of the local time. If a change of the clock skips it, both
        are the first instant after the gap.
    occurs : array of bool
        Whether the local time occurs.
    """
    groups, firsts = Groups.of(readings)
    found = [_occurrences(zone, reading) for reading in readings[firsts].tolist()]
    table = np.array(found, np.int64).reshape(-1, 3)[groups.ids]
    return table[:, 0], table[:, 1], table[:, 2].astype(np.bool_)


@functools.lru_cache(maxsize=1 << 16)
def _read(zone: str, instant: int) -> int:
    day = instant // DAY
    moved = (_inside(day) - day) * DAY
    second = (instant + moved) // 1_000_000
    return instant + (_local_seconds(zoneinfo.ZoneInfo(zone), second) - second) * 1_000_000


@functools.lru_cache(maxsize=1 << 16)
def _occurrences(zone: str, reading: int) -> tuple[int, int, int]:
    clock = zoneinfo.ZoneInfo(zone)
    day = reading // DAY
    moved = (_inside(day) - day) * DAY
    second, rest = divmod(reading + moved, 1_000_000)
    before, after = _offsets(clock, second)
    first, last, occurs = second - before, second - after, after <= before
    if not occurs:
        first = last = _after_gap(clock, second, before, after)
        rest = 0
    back = rest - moved
    return first * 1_000_000 + back, last * 1_000_000 + back, occurs


@functools.lru_cache(maxsize=1 << 16)
def _midnight(zone: str, day: int) -> int:
    inside = _inside(day)
    return _start_of_day(zoneinfo.ZoneInfo(zone), inside) * 1_000_000 + (day - inside) * DAY


def _inside(day: int) -> int:
    """Return an equivalent day within Python's calendar."""
    if day < _FIRST:
        return _FIRST + (day - _FIRST) % _CYCLE
    if day > _LAST:
        return _LAST - (_LAST - day) % _CYCLE
    return day


def _start_of_day(zone: zoneinfo.ZoneInfo, day: int) -> int:
    """Return the start of the local day, in seconds since 1970-01-01 UTC."""
    midnight = day * 86_400
    before, after = _offsets(zone, midnight)
    if after <= before:  # midnight occurs: the first time with the offset before the change
        return midnight - before
    return _after_gap(zone, midnight, before, after)


def _offsets(zone: zoneinfo.ZoneInfo, reading: int) -> tuple[int, int]:
    """Return the offsets from UTC at a local time: before and after a change of the clock."""
    local = _EPOCH.replace(tzinfo=zone) + reading * _SECOND
    return _offset(local.replace(fold=0)), _offset(local.replace(fold=1))


def _after_gap(zone: zoneinfo.ZoneInfo, reading: int, before: int, after: int) -> int:
    """Return the first second after the gap that skips a local time."""
    possible = range(reading - after, reading - before + 1)
    return possible[
        bisect.bisect_left(possible, reading, key=lambda second: _local_seconds(zone, second))
    ]


def _local_seconds(zone: zoneinfo.ZoneInfo, second: int) -> int:
    return second + _offset((_EPOCH + second * _SECOND).astimezone(zone))


def _offset(local: dt.datetime) -> int:
    offset = local.utcoffset()
    assert offset is not None, "a zone always has an offset"
    return offset // _SECOND


Windows = tuple[Instants, Instants]
"""Starts and ends of windows. Where they are equal, there is no window."""

_DAYS = {"day": 1, "week": 7}
_SHORTEST = {"day": 1, "week": 7, "month": 28, "quarter": 89, "year": 365}  # days


class Period(Protocol):
    """The distance between a window and an earlier one."""

    @property
    def at_least(self) -> int:
        """A lower bound of ``over(start, end) - end``, in microseconds."""

    def before(self, start: Instants, end: Instants) -> Sequence[Windows]:
        """Return candidates for the previous window, by priority. The first that exists is used."""

    def over(self, start: Instants, end: Instants) -> Instants:
        """Return an upper bound of the ends of windows whose previous window is this one."""


@dataclass(frozen=True, slots=True)
class FixedPeriod(Period):
    """A length of time, in microseconds.

    Examples
    --------
    >>> FixedPeriod(60).before(np.array([100]), np.array([110]))
    [(array([40]), array([50]))]
    """

    length: int

    @property
    def at_least(self) -> int:
        """The length."""
        return self.length

    def before(self, start: Instants, end: Instants) -> list[Windows]:
        """Return the window that is one period earlier."""
        return [(start - self.length, end - self.length)]

    def over(self, start: Instants, end: Instants) -> Instants:
        """Return the end of the window that is one period later."""
        return end + self.length


@dataclass(frozen=True, slots=True)
class CalendarPeriod(Period):
    """A unit of the calendar in a time zone, or several of them.

    The previous window is this one, moved as a whole. Its start has the same local time that many units
    earlier: the first occurrence if the local time occurs twice, the first instant after the gap if it
    is skipped. Its end is as many whole months (of months, quarters and years) and days after the
    start, at the same local time as the end, as it would be without a change of the clock at that
    instant. If there is no such window, the previous one has the same length, provided that its start
    was not skipped. A midnight that is skipped is tried last: a day without one is compared with a
    whole day.

    Examples
    --------
    >>> spring = CalendarPeriod("day", "Europe/Berlin")  # 31 March 2013 has 23 hours
    >>> noon = np.array([1_364_724_000_000_000])
    >>> hour = 3_600_000_000
    >>> [((noon - start) // hour).tolist() for start, _ in spring.before(noon, noon + hour)]
    [[23], [23]]
    """

    unit: Unit
    zone: str
    units: int = 1

    @property
    def at_least(self) -> int:
        """The length of the shortest units, minus two days for changes of the clock."""
        return (_SHORTEST[self.unit] * self.units - 2) * DAY

    def before(self, start: Instants, end: Instants) -> list[Windows]:
        """Return windows by local times of both ends, then by length, then from a skipped midnight."""
        reading, since = to_local(self.zone, start), self._ended(start)
        until = self._ended(end)
        # An end to which midnight was skipped is that of the day, too.
        midnight = to_local(self.zone, end) // DAY * DAY
        closings = [until] if (until >= midnight).all() else [np.maximum(until, midnight), until]
        candidates = []
        for closing in closings:
            begin, _, occurs, exists, over, _ = self._moved(reading, closing, -self.units)
            candidates.append((begin, np.where(exists, over, begin)))
        is_there = exists & (begin < over)
        candidates.append((begin, np.where(exists & occurs, begin + (end - start), begin)))
        midnight = -(-since // DAY) * DAY
        if (midnight < reading).any():
            for closing in closings:
                begin, _, _, exists, over, _ = self._moved(midnight, closing, -self.units)
                exists &= is_there & (midnight < reading)
                candidates.append((begin, np.where(exists, over, begin)))
        return candidates

    def over(self, start: Instants, end: Instants) -> Instants:
        """Return the maximum of the last occurrence of the local end, and the start plus the length."""
        ended = np.maximum(to_local(self.zone, end), self._ended(end))
        _, begin, _, _, _, over = self._moved(to_local(self.zone, start), ended, self.units)
        latest: Instants = np.maximum(over, begin + (end - start))
        return latest

    def _ended(self, instants: Instants) -> Instants:
        """Return the local times of instants, ignoring a change of the clock at this instant."""
        return to_local(self.zone, instants - 1) + 1

    def _moved(
        self, begins: Instants, ends: Instants, units: int
    ) -> tuple[Instants, Instants, Mask, Mask, Instants, Instants]:
        """Return the instants of intervals of local times, moved by a number of units.

        Returns
        -------
        first, last : arrays of int64
        occurs : array of bool
            Of the starts, the same as of :func:`from_local`.
        exists : array of bool
            Whether the day exists. 31 February does not; it is 3 March, or 2 March in a leap year.
        first_over, last_over : arrays of int64
            The same as of :func:`from_local`, of the ends.
        """
        (day, begun), (last_day, until) = np.divmod(begins, DAY), np.divmod(ends, DAY)
        exists = np.ones(len(day), np.bool_)
        if self.unit in _DAYS:
            moved, last_day = (days + units * _DAYS[self.unit] for days in (day, last_day))
        else:
            month, last_month = (
                days.astype("datetime64[D]").astype("datetime64[M]") for days in (day, last_day)
            )
            target, nth = month + units * MONTHS[self.unit], day - _first_day(month)
            moved = _first_day(target) + nth
            exists = moved < _first_day(target + 1)
            # The end is moved with the start: that of 30 April is a day later, and not 1 April.
            whole = np.maximum((last_month - month).astype(np.int64), 0)
            whole -= (_nth_day(last_month, nth) > last_day) & (whole > 0)
            last_day += _nth_day(target + whole, nth) - _nth_day(month + whole, nth)
        over, last_over, _ = from_local(self.zone, last_day * DAY + until)
        return *from_local(self.zone, moved * DAY + begun), exists, over, last_over


def _nth_day(months: npt.NDArray[np.datetime64], nth: Instants) -> Instants:
    """Return a day of each month, counted from 0, or its last one."""
    days: Instants = np.minimum(_first_day(months) + nth, _first_day(months + 1) - 1)
    return days


def _first_day(months: npt.NDArray[np.datetime64]) -> Instants:
    """Return the first day of each month."""
    first: Instants = months.astype("datetime64[D]").astype(np.int64)
    return first


@functools.cache
def _known_zones() -> frozenset[str]:
    return frozenset(zoneinfo.available_timezones())


def require_zone(zone: object) -> None:
    """Raise an error if the value is not the name of a time zone.

    Raises
    ------
    SpecError
        ``INVALID_PARAMETER``.
    """
    known = _known_zones()
    if isinstance(zone, str) and zone in known:
        return
    # Frequent mistakes: wrong case, a blank instead of an underscore, only the city.
    folded = {name.casefold(): name for name in sorted(known)}
    wanted = str(zone).casefold().replace(" ", "_")
    close = difflib.get_close_matches(wanted, folded, n=1) or [
        name for name in folded if name.rpartition("/")[2] == wanted
    ]
    if not close:
        raise conditions.ZONE_UNKNOWN.error(got=f"zone={zone!r}")
    raise conditions.ZONE_MISSPELT.error(zone=folded[close[0]], got=f"zone={zone!r}")
