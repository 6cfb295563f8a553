"""Correction of device clocks: the parameters, and the formula over Arrow columns.

:mod:`streamops.time.correct_clock` evaluates the same formula as Spark expressions.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamops.kernel.columns import combine_chunks, timestamp_micros
from streamops.kernel.groups import Mask
from streamops.kernel.operator import checkpointed
from streamops.kernel.parameters import require_distinct_columns, show_duration
from streamops.kernel.time import MAX_INSTANT, MIN_INSTANT, Duration, Instants, parse_duration

Otherwise = Literal["received", "device", "null"]
CORRECTED, PLAUSIBLE = "corrected", "plausible"
_REASONS = (
    "no_event_time",
    "no_received_time",
    "no_sent_time",
    "sent_before_event",
    "waited_too_long",
    "offset_too_large",
)
QUALITIES = (CORRECTED, PLAUSIBLE, *_REASONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectClockSpec:
    """The parameters of a clock correction; durations in microseconds."""

    where: ClassVar[str] = "time.correct_clock"
    qualities: ClassVar[tuple[str, ...]] = QUALITIES
    adds: ClassVar[tuple[str, ...]] = ("corrected_time", "clock_offset", "clock_quality")
    """Columns that are added to the input."""

    time: str
    sent: str = checkpointed()
    received: str = checkpointed()
    tolerance: int = field(metadata={"shown": show_duration})
    longest_wait: int | None = field(metadata={"shown": show_duration})
    largest_offset: int | None = checkpointed(metadata={"shown": show_duration})
    otherwise: Otherwise

    def __post_init__(self) -> None:
        columns = {"time": self.time, "sent": self.sent, "received": self.received}
        require_distinct_columns(**columns)

    @property
    def marked(self) -> str:
        """The corrected time: downstream operators read it."""
        return self.adds[0]


def correct(
    spec: CorrectClockSpec, rows: pa.Table, offsets: pa.ChunkedArray, good: pa.ChunkedArray
) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return corrected times, the clock offsets that were applied, and the clock qualities.

    `offsets` are microseconds, null if unknown; `good` is the quality of a time corrected by them.
    """
    (event, has_event), (sent, has_sent), (received, has_received) = (
        calendar_micros(rows.column(name)) for name in (spec.time, spec.sent, spec.received)
    )
    offset, has_offset = timestamp_micros(offsets)
    wait = sent - event
    too_long = has_offset & (event + offset < MIN_INSTANT)
    if spec.longest_wait is not None:
        too_long |= wait > spec.longest_wait
    limit = MAX_INSTANT - MIN_INSTANT if spec.largest_offset is None else spec.largest_offset
    near = has_offset & (offset >= 0) & (offset <= spec.tolerance)
    conditions = [~has_event, ~has_received, ~has_sent, wait < 0, too_long]
    conditions += [np.abs(received - sent) > limit, near]
    index = np.select(conditions, range(len(conditions)), len(conditions))
    quality = pa.array([*_REASONS, PLAUSIBLE, None]).take(pa.array(index))
    quality = pc.coalesce(quality, combine_chunks(good))
    is_good = (index == len(conditions)) & np.asarray(combine_chunks(good).is_valid())
    is_near = index == len(_REASONS)
    if spec.otherwise == "received":
        fallback, has_fallback = received, has_received
    else:
        fallback = np.where(has_received, np.minimum(event, received), event)
        has_fallback = has_event & (spec.otherwise == "device")
    time = np.select([is_near, is_good], [event, event + offset], fallback)
    is_null = ~(is_near | is_good | has_fallback)
    instant = pa.array(time, mask=is_null).cast(pa.timestamp("us", tz="UTC"))
    return instant, pa.array(offset, mask=~has_offset).cast(pa.duration("us")), quality


def calendar_micros(column: pa.ChunkedArray) -> tuple[Instants, Mask]:
    """Convert timestamps to microseconds, and return whether they are in the years 1 to 9999.

    Nulls, and instants outside this range, are 0.
    """
    micros, valid = timestamp_micros(column)
    valid = valid & (micros >= MIN_INSTANT) & (micros <= MAX_INSTANT)
    return np.where(valid, micros, 0), valid


def parse_limit(value: Duration | None, *, parameter: str) -> int | None:
    """Convert a duration >= 0 to microseconds. None is no limit."""
    if value is None:
        return None
    return parse_duration(value, parameter=parameter, minimum=0)
