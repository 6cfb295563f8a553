"""What a user says about sliding windows, validated once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from streamops.kernel.time import Duration, parse_duration
from streamops.windows.core.spec import SlidingSpec
from streamops.windows.settings import DEFINES, WindowSettings

__all__ = ["SlidingWindows"]


@dataclass(frozen=True, slots=True)
class SlidingWindows(WindowSettings):
    """Settings of sliding windows; durations in microseconds."""

    size: int = field(metadata=DEFINES)

    @staticmethod
    def of(where: str, size: Duration, **said: Any) -> SlidingWindows:
        """Settings as the user wrote them, normalised, or an error."""
        common = WindowSettings.said(where, **said)
        length = parse_duration(size, parameter="size", where=where, minimum=1)
        settings = SlidingWindows(**common, size=length)
        settings.refuse_contradictions()
        return settings

    @property
    def place(self) -> dict[str, str]:
        """The event time stands in the result under its own name."""
        return {"time": self.time}

    def bind(self, schema: pa.Schema, *, carried: int | None) -> SlidingSpec:
        """The spec over these columns."""
        return SlidingSpec(**self.bound(schema, carried), size=self.size)
