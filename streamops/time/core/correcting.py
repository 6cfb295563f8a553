"""Times by the clock of a device, corrected: what the expressions of Spark say, of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamops.kernel.columns import combine_chunks, timestamp_micros
from streamops.kernel.groups import Mask
from streamops.kernel.time import MAX_INSTANT, MIN_INSTANT, Instants

__all__ = ["correct"]

Known: TypeAlias = tuple[Instants, Mask]
"""Microseconds, and where they are known."""

_REASONS = (
    "no_event_time",
    "no_received_time",
    "no_sent_time",
    "sent_before_event",
    "waited_too_long",
    "offset_too_large",
)


def correct(
    three: Sequence[pa.ChunkedArray],
    offsets: pa.ChunkedArray,
    good: pa.ChunkedArray,
    *,
    tolerance: int,
    longest_wait: int | None,
    largest_offset: int | None,
    otherwise: str,
) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Corrected times, the offsets that they were corrected by, and what to think of them.

    Parameters
    ----------
    three : sequence of ChunkedArray
        When it happened, when it was sent, and when it was received.
    offsets, good : ChunkedArray
        Microseconds, null where there is none; and the quality of what they correct.
    tolerance, longest_wait, largest_offset, otherwise
        As the user says them, in microseconds.
    """
    (event, happened), (sent, was_sent), (received, came) = map(_in_calendar, three)
    offset, known = timestamp_micros(offsets)
    wait = sent - event
    too_long = known & (event + offset < MIN_INSTANT)
    if longest_wait is not None:
        too_long |= wait > longest_wait
    limit = MAX_INSTANT - MIN_INSTANT if largest_offset is None else largest_offset
    near = known & (offset >= 0) & (offset <= tolerance)
    ruled = [~happened, ~came, ~was_sent, wait < 0, too_long, np.abs(received - sent) > limit]
    ruled.append(near)
    at = np.select(ruled, range(len(ruled)), len(ruled))
    said = pa.array([*_REASONS, "plausible", None]).take(pa.array(at))
    quality = pc.coalesce(said, combine_chunks(good))
    is_good = (at == len(ruled)) & np.asarray(combine_chunks(good).is_valid())
    is_near = at == len(_REASONS)
    if otherwise == "received":
        other, there = received, came
    else:
        other = np.where(came, np.minimum(event, received), event)
        there = happened & (otherwise == "device")
    time = np.select([is_near, is_good], [event, event + offset], other)
    nothing = ~(is_near | is_good | there)
    instant = pa.array(time, mask=nothing).cast(pa.timestamp("us", tz="UTC"))
    return instant, pa.array(offset, mask=~known).cast(pa.duration("us")), quality


def _in_calendar(column: pa.ChunkedArray) -> Known:
    """Microseconds of a timestamp, 0 where it is null or outside of the years 1 to 9999."""
    micros, known = timestamp_micros(column)
    known = known & (micros >= MIN_INSTANT) & (micros <= MAX_INSTANT)
    return np.where(known, micros, 0), known
