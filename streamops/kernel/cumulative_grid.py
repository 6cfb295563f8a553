"""The grid of cumulative windows: they all start where a period does, and grow through it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from streamops.kernel.calendar_grid import CalendarGrid
from streamops.kernel.fixed_grid import FixedGrid
from streamops.kernel.grid import Grid
from streamops.kernel.time import Instants

__all__ = ["CumulativeGrid"]


@dataclass(frozen=True, slots=True)
class CumulativeGrid(Grid):
    """Windows ``[p, p + every)``, ``[p, p + 2*every)``, ... up to the end of each period.

    ``p`` is the start of the period, and the last window ends with it, however long it is. Number
    ``k * width + j`` is the j-th window of period ``k``; the numbers that a period has left over
    stand for windows that end with it, too, and that nothing lies in.

    Parameters
    ----------
    periods : FixedGrid or CalendarGrid
        Without overlaps.
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
    def identity(self) -> dict[str, Any]:
        """What state must know of the grid."""
        said = {**self.periods.identity, "grid": "cumulative", "every": self.every}
        said.pop("hop", None)  # that of a fixed period is its size
        return said

    @property
    def is_disjoint(self) -> bool:
        """The windows of a period overlap."""
        return False

    @property
    def is_nested(self) -> bool:
        """The windows of a period start together."""
        return True

    @property
    def width(self) -> int:
        """Numbers from one period to the next."""
        return -(-self.periods.longest // self.every)

    def windows_of(self, instants: Instants) -> tuple[Instants, Instants]:
        """Numbers of the first and the last window that contain each instant."""
        period, _ = self.periods.windows_of(instants)
        start, end = self.periods.start_of(period), self.periods.end_of(period)
        zero = period * self.width
        return zero + (instants - start) // self.every, zero + (end - start - 1) // self.every

    def start_of(self, windows: Instants) -> Instants:
        """Start of each window."""
        return self.periods.start_of(windows // self.width)

    def end_of(self, windows: Instants) -> Instants:
        """End of each window."""
        period, nth = np.divmod(windows, self.width)
        start, end = self.periods.start_of(period), self.periods.end_of(period)
        reached: Instants = np.minimum(start + (nth + 1) * self.every, end)
        return reached

    def exist(self, windows: Instants) -> npt.NDArray[np.bool_]:
        """Whether an instant lies in each window: none does in those that a period has left over."""
        period, nth = np.divmod(windows, self.width)
        length = self.periods.end_of(period) - self.periods.start_of(period)
        inside: npt.NDArray[np.bool_] = nth * self.every < length
        return inside

    def pane_of(self, instants: Instants) -> Instants:
        """Start of the pane that contains each instant: it ends where the next window does."""
        start = self.periods.pane_of(instants)
        return start + (instants - start) // self.every * self.every

    def last_closed(self, watermark: int) -> int:
        """Number of the newest window whose end is at or below the watermark."""
        # The first that contains the watermark is the next: all before it end earlier.
        return int(self.windows_of(np.array([watermark]))[0][0]) - 1

    def settled(self, panes: Instants, closed: int) -> Instants:
        """The pane that can stand for each one once the windows up to ``closed`` are final.

        It is the first that no final window contains.
        """
        _, last = self.windows_of(panes)
        youngest = self.end_of(np.array([closed]))
        return np.where(last > closed, np.maximum(panes, youngest), panes)
