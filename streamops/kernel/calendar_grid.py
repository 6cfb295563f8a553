"""The grid of calendar windows: days, weeks, months, quarters or years in a time zone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from streamops.kernel.grid import Grid
from streamops.kernel.groups import Groups
from streamops.kernel.time import Instants
from streamops.kernel.zones import DAY, midnights

__all__ = ["LONGEST", "CalendarGrid", "Unit", "Weekday"]

Unit = Literal["day", "week", "month", "quarter", "year"]
Weekday = Literal["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]

LONGEST = {"day": 1, "week": 7, "month": 31, "quarter": 92, "year": 366}
"""Days of a unit, at most."""

_MONTHS = {"month": 1, "quarter": 3, "year": 12}
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MONDAY = -3  # 29 December 1969, in days since 1970


@dataclass(frozen=True, slots=True)
class CalendarGrid(Grid):
    """Windows that start where a unit of the calendar does, and end where the next one starts.

    They are numbered from that of 1970-01-01, local time. A unit starts with its first day:
    see :mod:`streamops.kernel.zones`.

    Parameters
    ----------
    unit : str
    zone : str
        The IANA name of a time zone.
    week_start : str
        The day on which weeks start.

    Examples
    --------
    >>> grid = CalendarGrid("day", "America/New_York")
    >>> begin = grid.start_of(np.array([15773, 15774, 15775]))  # 9 to 11 March 2013
    >>> (np.diff(begin) // 3_600_000_000).tolist()
    [24, 23]
    """

    unit: Unit
    zone: str
    week_start: Weekday = "monday"

    @property
    def identity(self) -> dict[str, Any]:
        """What state must know of the grid."""
        said = {"grid": "calendar", "unit": self.unit, "zone": self.zone}
        return said | ({"week_start": self.week_start} if self.unit == "week" else {})

    @property
    def is_disjoint(self) -> bool:
        """No windows overlap."""
        return True

    @property
    def longest(self) -> int:
        """No window is longer, in microseconds: clocks are changed by less than two days."""
        return (LONGEST[self.unit] + 2) * DAY

    def windows_of(self, instants: Instants) -> tuple[Instants, Instants]:
        """Number of the window that contains each instant, twice."""
        days = instants // DAY
        groups, firsts = Groups.of(days)
        # A local day begins less than a day before or after that of UTC.
        guess = self._number_of(days[firsts])
        begun = (self.start_of(each)[groups.ids] <= instants for each in (guess, guess + 1))
        number = (guess - 1)[groups.ids] + sum(begun)
        return number, number

    def start_of(self, windows: Instants) -> Instants:
        """Start of each window."""
        return midnights(self.zone, self._first_day(windows))

    def end_of(self, windows: Instants) -> Instants:
        """End of each window."""
        return self.start_of(windows + 1)

    def pane_of(self, instants: Instants) -> Instants:
        """Start of the window that contains each instant."""
        return self.start_of(self.windows_of(instants)[0])

    def last_closed(self, watermark: int) -> int:
        """Number of the newest window whose end is at or below the watermark."""
        # It ends where the one that contains the watermark starts.
        return int(self.windows_of(np.array([watermark]))[0][0]) - 1

    def _number_of(self, days: Instants) -> Instants:
        """Number of the unit that each day is part of."""
        if self.unit in _MONTHS:
            months = days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
            return months // _MONTHS[self.unit]
        return (days - self._phase) // LONGEST[self.unit]

    def _first_day(self, numbers: Instants) -> Instants:
        """First day of each unit."""
        if self.unit in _MONTHS:
            months = (numbers * _MONTHS[self.unit]).astype("datetime64[M]")
            return months.astype("datetime64[D]").astype(np.int64)
        return numbers * LONGEST[self.unit] + self._phase

    @property
    def _phase(self) -> int:
        return _MONDAY + _WEEKDAYS.index(self.week_start) if self.unit == "week" else 0
