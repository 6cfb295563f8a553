"""Settings of all event streams: start, disorder, and phases of micro-batches."""

from __future__ import annotations

from dataclasses import dataclass

MINUTE_MS = 60_000
DELAY = "30 seconds"
DELAY_MS = 30_000
DISORDER_MS = 10_000
# A whole minute well after 1970: a watermark of 0 means "none yet" to Spark's Python state API.
ORIGIN_MS = 1_700_000_040_000
# Micro-batches of this many rows and more are large; of fewer than that, small.
LARGE = 200_000
SMALL = 10_000


@dataclass(frozen=True, slots=True)
class Phase:
    """Micro-batches of one size: `warm` for the warm-up, a pause, then `batches` to measure."""

    rows: int
    warm: int
    batches: int
