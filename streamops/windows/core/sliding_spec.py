"""Parameters of sliding windows."""

from __future__ import annotations

from dataclasses import dataclass

from streamops.kernel.operator import checkpointed
from streamops.windows.core.spec import DURATION, WindowSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class SlidingSpec(WindowSpec):
    """Parameters of sliding windows: ``size`` is the length of a window, which ends with an event."""

    size: int = checkpointed(metadata=DURATION)

    def __post_init__(self) -> None:
        self.refuse_contradictions()

    @property
    def time_columns(self) -> tuple[str, ...]:
        """The event time, under its own name."""
        return (self.time,)

    @property
    def origins(self) -> dict[str, tuple[int, str]]:
        """Output columns with values of an input column, also the event time."""
        return {self.time: (0, self.time), **super(SlidingSpec, self).origins}

    @property
    def event_retention(self) -> int:
        """How long after an event the last of its windows can change."""
        return self.size - 1 + self.retention
