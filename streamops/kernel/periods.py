"""Periods to look back by: where a window was one period ago.

A fixed period is a length of time. A unit of the calendar is another: "a day ago" is when a clock
on a wall there showed the same time on the day before, which was 23 or 25 hours ago where the
clock was changed in between.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from streamops.kernel.calendar_grid import Unit
from streamops.kernel.groups import Mask
from streamops.kernel.time import Instants
from streamops.kernel.zones import DAY, from_local, to_local

__all__ = ["CalendarPeriod", "FixedPeriod", "Period", "Place"]

Place = tuple[Instants, Instants]
"""Starts and ends of windows. Where they are equal there is none."""

_DAYS = {"day": 1, "week": 7}
_MONTHS = {"month": 1, "quarter": 3, "year": 12}
_SHORTEST = {"day": 1, "week": 7, "month": 28, "quarter": 89, "year": 365}  # days, from any one on


class Period(Protocol):
    """What every period can say."""

    @property
    def identity(self) -> Mapping[str, Any]:
        """What state must know of the period."""

    @property
    def at_least(self) -> int:
        """No window is ``over`` sooner than this after its end, in microseconds."""

    def before(self, start: Instants, end: Instants) -> Sequence[Place]:
        """Where the previous one of each window may be: the first of these at which one is."""

    def over(self, start: Instants, end: Instants) -> Instants:
        """No window whose previous one this may be ends later."""


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
    def identity(self) -> dict[str, int]:
        """What state must know of the period."""
        return {"period": self.length}

    @property
    def at_least(self) -> int:
        """The length."""
        return self.length

    def before(self, start: Instants, end: Instants) -> list[Place]:
        """A period earlier."""
        return [(start - self.length, end - self.length)]

    def over(self, start: Instants, end: Instants) -> Instants:
        """A period later."""
        return end + self.length


@dataclass(frozen=True, slots=True)
class CalendarPeriod(Period):
    """A unit of the calendar in a time zone.

    A window begins with the reading that the clock shows at its start, and ends with the one that
    it would show next at the end of it, if it was not changed then. The previous window lies where
    the clock showed both one unit before: for the first time, where it did so twice; after the gap,
    where a reading was skipped. Where there is no window, it is as long as the present one, if its
    start was not skipped; or, where the present one starts right after a gap, it begins with the
    reading at which that began: a day without a midnight is compared with a whole one.

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

    @property
    def identity(self) -> dict[str, str]:
        """What state must know of the period."""
        return {"period": self.unit, "zone": self.zone}

    @property
    def at_least(self) -> int:
        """The shortest unit, less what clocks may be put forward in it: less than two days."""
        return (_SHORTEST[self.unit] - 2) * DAY

    def before(self, start: Instants, end: Instants) -> list[Place]:
        """From one reading to the other, and of the present length; after a gap, from its begin."""
        reading, since = to_local(self.zone, start), self._ended(start)
        begin, _, is_shown, begins = self._moved(reading, -1)
        over, _, _, ends = self._moved(self._ended(end), -1)
        places = [
            (begin, np.where(begins & ends, over, begin)),
            (begin, np.where(begins & is_shown, begin + (end - start), begin)),
        ]
        if (since < reading).any():
            begin, _, _, begins = self._moved(since, -1)
            places.append((begin, np.where(begins & ends & (since < reading), over, begin)))
        return places

    def over(self, start: Instants, end: Instants) -> Instants:
        """When the clock shows the end for the last time, or that much later than the start."""
        _, begin, _, _ = self._moved(to_local(self.zone, start), 1)
        _, over, _, _ = self._moved(np.maximum(to_local(self.zone, end), self._ended(end)), 1)
        latest: Instants = np.maximum(over, begin + (end - start))
        return latest

    def _ended(self, instants: Instants) -> Instants:
        """What the clock would show at these instants, if it was not changed at them."""
        return to_local(self.zone, instants - 1) + 1

    def _moved(self, readings: Instants, units: int) -> tuple[Instants, Instants, Mask, Mask]:
        """When the clock shows what is so many units later than these readings.

        Returns
        -------
        first, last : arrays of int64
            When it shows it; the first instant after the gap where it never does.
        is_shown : array of bool
        exists : array of bool
            Whether there is such a day: 31 February is none. Then what is returned is that of as
            many days after the begin of the month.
        """
        days, within = np.divmod(readings, DAY)
        exists = np.ones(len(days), np.bool_)
        if self.unit in _DAYS:
            days = days + units * _DAYS[self.unit]
        else:
            months = days.astype("datetime64[D]").astype("datetime64[M]")
            day = days - _begin(months)
            months = months + units * _MONTHS[self.unit]
            days = _begin(months) + day
            exists = days < _begin(months + 1)
        return *from_local(self.zone, days * DAY + within), exists


def _begin(months: Any) -> Instants:
    """The first day of each month."""
    first: Instants = months.astype("datetime64[D]").astype(np.int64)
    return first
