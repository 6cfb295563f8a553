"""Spec of sliding windows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from streamops.windows.core.spec import DEFINES, WindowSpec

__all__ = ["SlidingSpec"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SlidingSpec(WindowSpec):
    """Sliding windows.

    Parameters
    ----------
    size : int
        Length of a window, which ends with an event.
    """

    size: int = field(metadata=DEFINES)

    def __post_init__(self) -> None:
        WindowSpec.__post_init__(self)
        self.refuse_contradictions()

    @property
    def time_columns(self) -> tuple[str, ...]:
        """The event time, under its own name."""
        return (self.time,)

    @property
    def origins(self) -> dict[str, tuple[int, str]]:
        """Columns of the output that hold values of an input column: also the event time."""
        return {self.time: (0, self.time), **super(SlidingSpec, self).origins}

    @property
    def event_retention(self) -> int:
        """How long after an event its last window can still be computed."""
        return self.size - 1 + self.retention

    @property
    def window_identity(self) -> Mapping[str, Any]:
        """The size."""
        return {"size": self.size}
