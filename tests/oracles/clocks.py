"""A guard and a clock correction of one row, in plain Python.

Instants are microseconds since 1970; None is a null.
"""

from __future__ import annotations

from typing import NamedTuple

YEAR_1 = -62_135_596_800_000_000
YEAR_9999 = 253_402_300_799_999_999


class Guarded(NamedTuple):
    time: int | None
    reason: str | None = None
    outcome: str | None = None
    bound: int | None = None


def in_calendar(instant: int | None) -> int | None:
    return instant if instant is not None and YEAR_1 <= instant <= YEAR_9999 else None


def guard(
    time: int | None,
    arrival: int | None,
    now: int,
    *,
    ahead: int,
    behind: int | None = None,
    earliest: int | None = None,
    clamped: tuple[str, ...] = (),
) -> Guarded:
    """Guard one row. The bound `before` is a duration (behind) or an instant (earliest)."""
    arrived = in_calendar(arrival)
    if arrived is None or arrived > now:
        arrived = now
    upper = min(arrived + ahead, YEAR_9999)
    lower = YEAR_1
    if behind is not None:
        lower = max(arrived - behind, YEAR_1)
    if earliest is not None:
        lower = earliest
    lower = min(lower, upper)
    if time is None:
        return Guarded(None, "null_time", "routed")
    for reason, is_beyond, bound in (
        ("future", time > upper, upper),
        ("past", time < lower, lower),
    ):
        if is_beyond and reason in clamped:
            return Guarded(bound, reason, "clamped", bound)
        if is_beyond:
            return Guarded(None, reason, "routed", bound)
    return Guarded(time)


class Corrected(NamedTuple):
    time: int | None
    offset: int | None
    quality: str


def correct_clock(
    event: int | None,
    sent: int | None,
    received: int | None,
    *,
    tolerance: int = 0,
    longest_wait: int | None = None,
    largest_offset: int | None = None,
    otherwise: str = "received",
) -> Corrected:
    event, sent, received = map(in_calendar, (event, sent, received))
    offset = None if sent is None or received is None else received - sent
    # A wait is too long if the event would be before the year 1.
    waits = [wait for wait in (longest_wait,) if wait is not None]
    waits += [] if received is None else [received - YEAR_1]
    quality = None
    if event is None:
        quality = "no_event_time"
    elif received is None:
        quality = "no_received_time"
    elif sent is None:
        quality = "no_sent_time"
    elif sent < event:
        quality = "sent_before_event"
    elif any(sent - event > limit for limit in waits):
        quality = "waited_too_long"
    elif largest_offset is not None and abs(received - sent) > largest_offset:
        quality = "offset_too_large"
    if quality is None:
        assert event is not None
        assert offset is not None
        if 0 <= offset <= tolerance:
            return Corrected(event, offset, "plausible")
        return Corrected(event + offset, offset, "corrected")
    if otherwise == "received":
        return Corrected(received, offset, quality)
    if otherwise == "device" and event is not None:
        return Corrected(event if received is None else min(event, received), offset, quality)
    return Corrected(None, offset, quality)
