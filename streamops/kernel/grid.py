"""The grid of windows: which windows an instant lies in, and the panes they share.

Window ``k`` is ``[origin + k*hop, origin + k*hop + size)``. All arithmetic floors, so instants
before 1970 work. Windows that overlap share *panes*: the pieces between two neighbouring
window borders. An event is aggregated once, into its pane; a window is the union of its panes
(Li et al., "No Pane, No Gain", SIGMOD Record 34(1), 2005; uneven panes after Krishnamurthy et
al., "On-the-Fly Sharing for Streamed Aggregation", SIGMOD 2006).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from streamops.kernel.time import Instants

__all__ = ["Grid"]


@dataclass(frozen=True, slots=True)
class Grid:
    """Windows of ``size`` that start every ``hop`` microseconds, in phase with ``origin``.

    Examples
    --------
    >>> grid = Grid(size=10, hop=4, origin=0)
    >>> first, last = grid.windows_of(np.array([-1, 0, 9, 10]))
    >>> first.tolist(), last.tolist()
    ([-2, -2, 0, 1], [-1, 0, 2, 2])
    >>> grid.pane_of(np.array([-1, 0, 1, 2, 3, 4])).tolist()
    [-2, 0, 0, 2, 2, 4]
    """

    size: int
    hop: int
    origin: int = 0

    def windows_of(self, instants: Instants) -> tuple[Instants, Instants]:
        """Numbers of the first and the last window that contain each instant."""
        phase = instants - self.origin
        return (phase - self.size) // self.hop + 1, phase // self.hop

    def start_of(self, windows: Instants) -> Instants:
        """Start of each window."""
        return windows * self.hop + self.origin

    def end_of(self, windows: Instants) -> Instants:
        """End of each window: the first instant that is no longer inside."""
        return windows * self.hop + (self.origin + self.size)

    def pane_of(self, instants: Instants) -> Instants:
        """Start of the pane that contains each instant."""
        start = (instants - self.origin) // self.hop * self.hop + self.origin
        # Where hop does not divide size, windows also end inside a hop: two panes per hop.
        split = self.size % self.hop
        if split:
            start = np.where(instants - start >= split, start + split, start)
        return start

    def last_closed(self, watermark: int) -> int:
        """Number of the newest window whose end is at or below the watermark."""
        return (watermark - self.origin - self.size) // self.hop

    def explode(
        self, instants: Instants, lowest: int, highest: int
    ) -> tuple[npt.NDArray[np.intp], Instants]:
        """Every pair (row, window) with ``lowest <= window <= highest``.

        Returns
        -------
        rows : array of int
            Position in ``instants`` of each pair, ascending.
        windows : array of int64
            Number of the window of each pair.
        """
        first, last = self.windows_of(instants)
        first, last = np.maximum(first, lowest), np.minimum(last, highest)
        counts = np.maximum(last - first + 1, 0)
        rows = np.repeat(np.arange(len(instants)), counts)
        within = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
        return rows, first[rows] + within
