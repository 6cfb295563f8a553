"""The grid of tumbling and hopping windows: of one size, at one distance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamops.kernel.grid import Grid
from streamops.kernel.time import Instants

__all__ = ["FixedGrid"]


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
    def identity(self) -> dict[str, int]:
        """What state must know of the grid."""
        return {"size": self.size, "hop": self.hop, "origin": self.origin}

    @property
    def is_disjoint(self) -> bool:
        """Whether no windows overlap."""
        return self.hop == self.size

    @property
    def longest(self) -> int:
        """No window is longer, in microseconds."""
        return self.size

    def windows_of(self, instants: Instants) -> tuple[Instants, Instants]:
        """Numbers of the first and the last window that contain each instant."""
        phase = instants - self.origin
        return (phase - self.size) // self.hop + 1, phase // self.hop

    def start_of(self, windows: Instants) -> Instants:
        """Start of each window."""
        return windows * self.hop + self.origin

    def end_of(self, windows: Instants) -> Instants:
        """End of each window."""
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
