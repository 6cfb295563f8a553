"""The metrics of a clock: a core whose result is an event time that the watermark follows."""

from __future__ import annotations

from dataclasses import dataclass, fields

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class ClockMetrics:
    """Exact metrics of a step about the producers of a stream.

    Parameters
    ----------
    rows, rejected : int
        Input rows; those of them that were ignored, because their event time or their arrival is
        null or outside the years 1 to 9999.
    active, behind : int
        Producers that are active; those of them that are behind the clock.
    joined, forgotten : int
        Producers that became active in this step; those that became idle.
    clock, newest : int, optional
        In microseconds: the clock, and the greatest event time of an active producer.
    held_by, led_by : str, optional
        The alphabetically first active producer whose newest event time is the clock, and the
        first whose is `newest`. ``held_by`` is None if there is none.
    """

    rows: int = 0
    rejected: int = 0
    active: int = 0
    behind: int = 0
    joined: int = 0
    forgotten: int = 0
    clock: int | None = None
    newest: int | None = None
    held_by: str | None = None
    led_by: str | None = None


CLOCK_OUTPUT = pa.schema(
    [
        (f.name, pa.string() if f.name in ("held_by", "led_by") else pa.int64())
        for f in fields(ClockMetrics)
    ]
)
"""One row per micro-batch: the metrics."""
