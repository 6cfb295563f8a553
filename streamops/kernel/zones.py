"""Days in a time zone, as instants; what clocks there show, and when.

A local day begins at the first instant at which a clock on a wall there shows its midnight or
later. Where a change of the clock skips midnight, that is the first instant after the gap;
where it shows midnight twice, the first of the two. So a day may have 23 or 25 hours, or none
at all: Samoa went from 29 to 31 December 2011.

What the clocks show is what Python's :mod:`zoneinfo` knows: the database of the operating
system or, where it has none, that of the package ``tzdata``.
"""

from __future__ import annotations

import bisect
import datetime as dt
import functools
import zoneinfo

import numpy as np
import numpy.typing as npt

from streamops.kernel.groups import Groups, Mask
from streamops.kernel.time import Instants

__all__ = ["DAY", "from_local", "midnights", "to_local"]

DAY = 86_400_000_000

# Python's calendar has the years 1 to 9999, and windows reach a little beyond. It repeats every
# 400 years; at both ends of it the clocks keep to one offset, or to one rule.
_FIRST = dt.date.min.toordinal() - dt.date(1970, 1, 1).toordinal() + 1
_LAST = dt.date.max.toordinal() - dt.date(1970, 1, 1).toordinal() - 1
_CYCLE = 146_097

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_SECOND = dt.timedelta(seconds=1)


def midnights(zone: str, days: npt.NDArray[np.int64]) -> Instants:
    """The instants at which local days begin, numbered from 1970-01-01.

    Each distinct day is looked up once, and remembered.

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
    """What a clock on a wall shows at these instants: microseconds since its 1970-01-01 00:00.

    Each distinct instant is looked up once, and remembered.

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
    """The instants at which a clock on a wall shows these readings.

    Returns
    -------
    first, last : arrays of int64
        Different where it shows a reading twice; the first instant after the gap where a change
        of the clock skips it.
    is_shown : array of bool
        Whether it shows it at all.
    """
    groups, firsts = Groups.of(readings)
    found = [_shown_at(zone, reading) for reading in readings[firsts].tolist()]
    table = np.array(found, np.int64).reshape(-1, 3)[groups.ids]
    return table[:, 0], table[:, 1], table[:, 2].astype(np.bool_)


@functools.lru_cache(maxsize=1 << 16)
def _read(zone: str, instant: int) -> int:
    day = instant // DAY
    moved = (_inside(day) - day) * DAY
    second = (instant + moved) // 1_000_000
    return instant + (_shown(zoneinfo.ZoneInfo(zone), second) - second) * 1_000_000


@functools.lru_cache(maxsize=1 << 16)
def _shown_at(zone: str, reading: int) -> tuple[int, int, int]:
    clock = zoneinfo.ZoneInfo(zone)
    day = reading // DAY
    moved = (_inside(day) - day) * DAY
    second, rest = divmod(reading + moved, 1_000_000)
    before, after = _offsets(clock, second)
    first, last, is_shown = second - before, second - after, after <= before
    if not is_shown:
        first = last = _after_gap(clock, second, before, after)
        rest = 0
    back = rest - moved
    return first * 1_000_000 + back, last * 1_000_000 + back, is_shown


@functools.lru_cache(maxsize=1 << 16)
def _midnight(zone: str, day: int) -> int:
    inside = _inside(day)
    return _begin(zoneinfo.ZoneInfo(zone), inside) * 1_000_000 + (day - inside) * DAY


def _inside(day: int) -> int:
    """A day of Python's calendar that is like this one."""
    if day < _FIRST:
        return _FIRST + (day - _FIRST) % _CYCLE
    if day > _LAST:
        return _LAST - (_LAST - day) % _CYCLE
    return day


def _begin(zone: zoneinfo.ZoneInfo, day: int) -> int:
    """Seconds from 1970-01-01 UTC to the begin of the local day."""
    midnight = day * 86_400
    before, after = _offsets(zone, midnight)
    if after <= before:  # midnight is shown once, or twice: by the offset of before, first
        return midnight - before
    return _after_gap(zone, midnight, before, after)


def _offsets(zone: zoneinfo.ZoneInfo, reading: int) -> tuple[int, int]:
    """The offsets by which a reading is that of an instant: of before a change, and of after."""
    local = _EPOCH.replace(tzinfo=zone) + reading * _SECOND
    return _offset(local.replace(fold=0)), _offset(local.replace(fold=1))


def _after_gap(zone: zoneinfo.ZoneInfo, reading: int, before: int, after: int) -> int:
    """The first second at which the clock shows something later than a reading it skips."""
    possible = range(reading - after, reading - before + 1)
    return possible[bisect.bisect_left(possible, reading, key=lambda second: _shown(zone, second))]


def _shown(zone: zoneinfo.ZoneInfo, second: int) -> int:
    return second + _offset((_EPOCH + second * _SECOND).astimezone(zone))


def _offset(moment: dt.datetime) -> int:
    offset = moment.utcoffset()
    assert offset is not None, "a zone always has an offset"
    return offset // _SECOND
