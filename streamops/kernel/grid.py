"""A grid of windows: which windows an instant lies in, and the panes they share.

The windows of a grid have numbers. Those that contain an instant are numbered contiguously, and
the ends never decrease with the number: all that is decided about windows is decided by
comparing numbers. All arithmetic floors, so instants before 1970 work.

Windows that overlap share *panes*: the pieces between two neighbouring window borders. An event
is aggregated once, into its pane; a window is the union of its panes (Li et al., "No Pane, No
Gain", SIGMOD Record 34(1), 2005; uneven panes after Krishnamurthy et al., "On-the-Fly Sharing
for Streamed Aggregation", SIGMOD 2006).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from streamops.kernel.time import Instants

__all__ = ["Grid", "expand_ranges"]


class Grid(Protocol):
    """What every grid can say. A number may stand for a window without an instant in it."""

    @property
    def identity(self) -> Mapping[str, Any]:
        """What state must know of the grid: with another identity it is another state."""

    @property
    def is_disjoint(self) -> bool:
        """Whether no windows overlap, so that a window is its only pane."""

    @property
    def is_nested(self) -> bool:
        """Whether, of two windows of an instant, the later one contains the other."""
        return False

    def windows_of(self, instants: Instants) -> tuple[Instants, Instants]:
        """Numbers of the first and the last window that contain each instant."""

    def start_of(self, windows: Instants) -> Instants:
        """Start of each window."""

    def end_of(self, windows: Instants) -> Instants:
        """End of each window: the first instant that is no longer inside."""

    def exist(self, windows: Instants) -> npt.NDArray[np.bool_]:
        """Whether an instant lies in each window: else the number stands for none."""
        inside: npt.NDArray[np.bool_] = self.start_of(windows) < self.end_of(windows)
        return inside

    def pane_of(self, instants: Instants) -> Instants:
        """Start of the pane that contains each instant."""

    def last_closed(self, watermark: int) -> int:
        """Number of the newest window whose end is at or below the watermark."""

    def settled(self, panes: Instants, closed: int) -> Instants:
        """The pane that can stand for each one once the windows up to ``closed`` are final.

        Panes may share one where they lie in the same of the windows after ``closed``.
        """
        return panes

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
        return expand_ranges(np.maximum(first, lowest), np.minimum(last, highest))


def expand_ranges(first: Instants, last: Instants) -> tuple[npt.NDArray[np.intp], Instants]:
    """Every pair (row, number) with ``first[row] <= number <= last[row]``, in order.

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
