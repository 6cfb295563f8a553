"""What a user says about tumbling and hopping windows, validated once."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from streamops.kernel.errors import SpecError
from streamops.kernel.grids import FixedGrid
from streamops.kernel.time import Duration, parse_duration, parse_instant
from streamops.spark.parameters import show_duration
from streamops.windows.core.spec import FixedSpec
from streamops.windows.grid_settings import GridWindows, refuse_many
from streamops.windows.settings import DEFINES

__all__ = ["FixedWindows", "phase_of"]


@dataclass(frozen=True, slots=True)
class FixedWindows(GridWindows):
    """Settings of tumbling and hopping windows; durations in microseconds."""

    size: int = field(metadata=DEFINES)
    hop: int = field(metadata=DEFINES)
    origin: int = field(metadata=DEFINES)

    @staticmethod
    def of(
        where: str, size: Duration, hop: Duration, *, origin: Duration | dt.datetime, **said: Any
    ) -> FixedWindows:
        """Settings as the user wrote them, normalised, or an error."""
        common = GridWindows.said(where, **said)
        size_ = parse_duration(size, parameter="size", where=where, minimum=1)
        hop_ = parse_duration(hop, parameter="hop", where=where, minimum=1)
        phase = phase_of(origin, hop_, where)
        settings = FixedWindows(**common, size=size_, hop=hop_, origin=phase)
        settings._refuse_grid()
        settings.refuse_silence(hop_, f"hop={show_duration(hop_)}")
        settings.refuse_contradictions()
        return settings

    def bind(self, schema: pa.Schema, *, carried: int | None) -> FixedSpec:
        """The spec over these columns."""
        return FixedSpec(
            **self.bound(schema, carried), grid=FixedGrid(self.size, self.hop, self.origin)
        )

    def _refuse_grid(self) -> None:
        if self.hop > self.size:
            raise SpecError(
                "HOP_EXCEEDS_SIZE",
                "`hop` is longer than `size`: events between two windows would be lost",
                where=self.where,
                got=f"hop={show_duration(self.hop)}, size={show_duration(self.size)}",
                expected="0 < hop <= size",
                fix="shorten hop, or lengthen size",
            )
        got = f"hop={show_duration(self.hop)}, size={show_duration(self.size)}"
        refuse_many(-(-self.size // self.hop), "hop", got, self.where)


def phase_of(origin: Duration | dt.datetime, hop: int, where: str) -> int:
    """Where in a hop windows start."""
    if isinstance(origin, dt.datetime):
        return parse_instant(origin, parameter="origin", where=where) % hop
    return parse_duration(origin, parameter="origin", where=where) % hop
