"""Grids of windows: assign instants to windows, and windows to panes.

The windows of a grid are numbered. The windows that contain an instant have consecutive numbers, and
the end of a window never decreases with its number, so windows can be compared by number. Divisions
round down, so instants before 1970 are supported.

A *pane* is the interval between two neighbouring window borders. Each event is aggregated once, into
its pane, and a window is the union of its panes (Li et al., "No Pane, No Gain", SIGMOD Record 34(1),
2005; panes of different lengths: Krishnamurthy et al., "On-the-Fly Sharing for Streamed Aggregation",
SIGMOD 2006).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from streamops.kernel.calendar import DAY, LONGEST, MONTHS, Unit, Weekday, midnights
from streamops.kernel.groups import Groups
from streamops.kernel.time import Instants

_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_MONDAY = -3  # 29 December 1969, in days since 1970


class Grid(Protocol):
    """The interface of all grids. Some numbers may be unused: no instant is in their window."""

    @property
    def is_disjoint(self) -> bool:
        """Whether windows do not overlap. Then each window consists of one pane."""

    @property
    def is_nested(self) -> bool:
        """Whether, if two windows contain an instant, the one with the higher number contains the other."""
        return False

    def windows_of(self, instants: Instants) -> tuple[Instants, Instants]:
        """Return the numbers of the first and the last window that contain each instant."""

    def start_of(self, windows: Instants) -> Instants:
        """Return the start of each window."""

    def end_of(self, windows: Instants) -> Instants:
        """Return the end of each window, exclusive."""

    def exist(self, windows: Instants) -> npt.NDArray[np.bool_]:
        """Return whether each number belongs to a window that is not empty."""
        inside: npt.NDArray[np.bool_] = self.start_of(windows) < self.end_of(windows)
        return inside

    def pane_of(self, instants: Instants) -> Instants:
        """Return the start of the pane that contains each instant."""

    def last_closed(self, watermark: int) -> int:
        """Return the number of the last window whose end is at or below the watermark."""

    def settled(self, panes: Instants, final: int) -> Instants:
        """Return the pane that may replace each pane when the windows up to ``final`` are final.

        Panes that belong to the same windows after ``final`` may be merged.
        """
        return panes

    def explode(
        self, instants: Instants, lowest: int, highest: int
    ) -> tuple[npt.NDArray[np.intp], Instants]:
        """Return every pair (row, window) with ``lowest <= window <= highest``.

        Returns
        -------
        rows : array of int
            Position in ``instants`` of each pair, ascending.
        windows : array of int64
            Number of the window of each pair.
        """
        first, last = self.windows_of(instants)
        first, last = np.maximum(first, lowest), np.minimum(last, highest)
        if self.is_disjoint:  # at most one window each, so there is nothing to expand
            rows = np.flatnonzero(first <= last)
            return rows, first[rows]
        return expand_ranges(first, last)


def expand_ranges(first: Instants, last: Instants) -> tuple[npt.NDArray[np.intp], Instants]:
    """Return every pair (row, number) with ``first[row] <= number <= last[row]``, in order.

    Examples
    --------
    >>> rows, numbers = expand_ranges(np.array([3, 7, 9]), np.array([5, 6, 9]))
    >>> rows.tolist(), numbers.tolist()
    ([0, 0, 0, 2], [3, 4, 5, 9])
    """
    counts = np.maximum(last - first + 1, 0)
    rows = np.repeat(np.arange(len(first)), counts)
    within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    return rows, first[rows] + within


@dataclass(frozen=True, slots=True)
class FixedGrid(Grid):
    """Windows of ``size`` that start every ``hop`` microseconds, in phase with ``origin``.

    Window ``k`` is ``[origin + k*hop, origin + k*hop + size)``.

    Examples
    --------
    >>> grid = FixedGrid(size=10, hop=4, origin=0)
    >>> first, last = grid.windows_of(np.array([-1, 0, 9, 10]))
    >>> first.tolist(), last.tolist()
    ([-2, -2, 0, 1], [-1, 0, 2, 2])
    >>> grid.pane_of(np.array([-1, 0, 1, 2, 3, 4])).tolist()
    [-2, 0, 0, 2, 2, 4]
    """

    size: int
    hop: int
    origin: int = 0

    @property
    def is_disjoint(self) -> bool:
        """Whether no windows overlap."""
        return self.hop == self.size

    @property
    def longest(self) -> int:
        """The greatest length of a window, in microseconds."""
        return self.size

    def windows_of(self, instants: Instants) -> tuple[Instants, Instants]:
        """Return the numbers of the first and the last window that contain each instant."""
        phase = instants - self.origin
        return (phase - self.size) // self.hop + 1, phase // self.hop

    def start_of(self, windows: Instants) -> Instants:
        """Return the start of each window."""
        return windows * self.hop + self.origin

    def end_of(self, windows: Instants) -> Instants:
        """Return the end of each window."""
        return windows * self.hop + (self.origin + self.size)

    def pane_of(self, instants: Instants) -> Instants:
        """Return the start of the pane that contains each instant."""
        start = (instants - self.origin) // self.hop * self.hop + self.origin
        # If hop does not divide size, windows also end inside a hop: two panes per hop.
        split = self.size % self.hop
        if split:
            start = np.where(instants - start >= split, start + split, start)
        return start

    def last_closed(self, watermark: int) -> int:
        """Return the number of the last window whose end is at or below the watermark."""
        return (watermark - self.origin - self.size) // self.hop


@dataclass(frozen=True, slots=True)
class CalendarGrid(Grid):
    """Windows that are calendar units, such as days or months, in a time zone.

    Window 0 contains 1970-01-01, local time. :mod:`streamops.kernel.calendar` defines when a day
    starts.

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
    def is_disjoint(self) -> bool:
        """True."""
        return True

    @property
    def longest(self) -> int:
        """An upper bound of the length. Changes of the local clock are shorter than two days."""
        return (LONGEST[self.unit] + 2) * DAY

    def windows_of(self, instants: Instants) -> tuple[Instants, Instants]:
        """Return the number of the window that contains each instant, as first and as last window."""
        days = instants // DAY
        groups, firsts = Groups.of(days)
        # A local day starts less than a day before or after the same day in UTC.
        guess = self._number_of(days[firsts])
        begun = (self.start_of(window)[groups.ids] <= instants for window in (guess, guess + 1))
        number = (guess - 1)[groups.ids] + sum(begun)
        return number, number

    def start_of(self, windows: Instants) -> Instants:
        """Return the start of each window."""
        return midnights(self.zone, self._first_day(windows))

    def end_of(self, windows: Instants) -> Instants:
        """Return the end of each window."""
        return self.start_of(windows + 1)

    def pane_of(self, instants: Instants) -> Instants:
        """Return the start of the window that contains each instant."""
        return self.start_of(self.windows_of(instants)[0])

    def last_closed(self, watermark: int) -> int:
        """Return the number of the last window whose end is at or below the watermark."""
        # The window that contains the watermark is the next one to close.
        return int(self.windows_of(np.array([watermark]))[0][0]) - 1

    def _number_of(self, days: Instants) -> Instants:
        """Return the number of the unit that contains each day."""
        if self.unit in MONTHS:
            months = days.astype("datetime64[D]").astype("datetime64[M]").astype(np.int64)
            return months // MONTHS[self.unit]
        return (days - self._phase) // LONGEST[self.unit]

    def _first_day(self, numbers: Instants) -> Instants:
        """Return the first day of each unit."""
        if self.unit in MONTHS:
            months = (numbers * MONTHS[self.unit]).astype("datetime64[M]")
            return months.astype("datetime64[D]").astype(np.int64)
        return numbers * LONGEST[self.unit] + self._phase

    @property
    def _phase(self) -> int:
        return _MONDAY + _WEEKDAYS.index(self.week_start) if self.unit == "week" else 0


@dataclass(frozen=True, slots=True)
class CumulativeGrid(Grid):
    """Windows ``[p, p + every)``, ``[p, p + 2*every)``, ... up to the end of each period.

    ``p`` is the start of the period. The last window ends with the period, so it may be longer than
    the previous one by less than ``every``. Number ``k * width + j`` is the j-th window of period
    ``k``; numbers after the last window of a period are unused.

    Parameters
    ----------
    periods : FixedGrid or CalendarGrid
        Disjoint windows.
    every : int
        Microseconds from one end of a window to the next.

    Examples
    --------
    >>> grid = CumulativeGrid(FixedGrid(10, 10), every=4)
    >>> first, last = grid.windows_of(np.array([0, 4, 9, 10]))
    >>> first.tolist(), last.tolist()
    ([0, 1, 2, 3], [2, 2, 2, 5])
    >>> grid.start_of(np.arange(4)).tolist(), grid.end_of(np.arange(4)).tolist()
    ([0, 0, 0, 10], [4, 8, 10, 14])
    """

    periods: FixedGrid | CalendarGrid
    every: int

    @property
    def is_disjoint(self) -> bool:
        """False: the windows of a period overlap."""
        return False

    @property
    def is_nested(self) -> bool:
        """True: the windows of a period have the same start."""
        return True

    @property
    def width(self) -> int:
        """The difference between the numbers of the first windows of two consecutive periods."""
        return -(-self.periods.longest // self.every)

    def windows_of(self, instants: Instants) -> tuple[Instants, Instants]:
        """Return the numbers of the first and the last window that contain each instant."""
        period, _ = self.periods.windows_of(instants)
        start, end = self.periods.start_of(period), self.periods.end_of(period)
        zero = period * self.width
        return zero + (instants - start) // self.every, zero + (end - start - 1) // self.every

    def start_of(self, windows: Instants) -> Instants:
        """Return the start of each window."""
        return self.periods.start_of(windows // self.width)

    def end_of(self, windows: Instants) -> Instants:
        """Return the end of each window."""
        period, nth = np.divmod(windows, self.width)
        start, end = self.periods.start_of(period), self.periods.end_of(period)
        ends: Instants = np.minimum(start + (nth + 1) * self.every, end)
        return ends

    def exist(self, windows: Instants) -> npt.NDArray[np.bool_]:
        """Return whether each number is used."""
        period, nth = np.divmod(windows, self.width)
        length = self.periods.end_of(period) - self.periods.start_of(period)
        inside: npt.NDArray[np.bool_] = nth * self.every < length
        return inside

    def pane_of(self, instants: Instants) -> Instants:
        """Return the start of the pane that contains each instant. A pane ends with a window."""
        start = self.periods.pane_of(instants)
        return start + (instants - start) // self.every * self.every

    def last_closed(self, watermark: int) -> int:
        """Return the number of the last window whose end is at or below the watermark."""
        # The first window that contains the watermark is the next one to close.
        return int(self.windows_of(np.array([watermark]))[0][0]) - 1

    def settled(self, panes: Instants, final: int) -> Instants:
        """Return the first pane that no final window contains, or the pane itself if it is later."""
        _, last = self.windows_of(panes)
        youngest = self.end_of(np.array([final]))
        return np.where(last > final, np.maximum(panes, youngest), panes)
