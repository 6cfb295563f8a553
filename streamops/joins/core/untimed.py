"""What joins that go by no event time have in common: they have no watermark, and nothing waits."""

from __future__ import annotations

__all__ = ["UntimedSettings", "UntimedSpec"]


class UntimedSettings:
    """What the settings of such a join say of time."""

    __slots__ = ()

    @property
    def times(self) -> tuple[None, None]:
        """No event times, no watermark."""
        return None, None

    @property
    def delays(self) -> tuple[None, None]:
        """Nothing waits."""
        return None, None

    @property
    def lag(self) -> int:
        """Nothing waits."""
        return 0


class UntimedSpec:
    """What the spec of such a join says of time."""

    __slots__ = ()

    @property
    def event_time(self) -> None:
        """There is none."""
        return None

    @property
    def lag(self) -> int:
        """Nothing waits for a watermark."""
        return 0

    @property
    def held_back(self) -> int:
        """Nothing waits for a watermark."""
        return 0
