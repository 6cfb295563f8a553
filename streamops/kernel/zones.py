"""Days in a time zone, as instants.

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

from streamops.kernel.groups import Groups
from streamops.kernel.time import Instants

__all__ = ["DAY", "midnights"]

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


@functools.lru_cache(maxsize=1 << 16)
def _midnight(zone: str, day: int) -> int:
    inside = day
    if day < _FIRST:
        inside = _FIRST + (day - _FIRST) % _CYCLE
    elif day > _LAST:
        inside = _LAST - (_LAST - day) % _CYCLE
    return _begin(zoneinfo.ZoneInfo(zone), inside) * 1_000_000 + (day - inside) * DAY


def _begin(zone: zoneinfo.ZoneInfo, day: int) -> int:
    """Seconds from 1970-01-01 UTC to the begin of the local day."""
    local = _EPOCH.replace(tzinfo=zone) + dt.timedelta(days=day)
    before, after = (_offset(local.replace(fold=fold)) for fold in (0, 1))
    shown = day * 86_400
    if after <= before:  # midnight is shown once, or twice: by the offset of before, first
        return shown - before
    # Midnight is skipped: the first second at which the clock shows something later.
    possible = range(shown - after, shown - before + 1)
    return possible[bisect.bisect_left(possible, shown, key=lambda second: _shown(zone, second))]


def _shown(zone: zoneinfo.ZoneInfo, second: int) -> int:
    return second + _offset((_EPOCH + second * _SECOND).astimezone(zone))


def _offset(moment: dt.datetime) -> int:
    offset = moment.utcoffset()
    assert offset is not None, "a zone always has an offset"
    return offset // _SECOND
