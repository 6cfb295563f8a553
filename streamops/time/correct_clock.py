"""Correction of device clocks by the clock of the server."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streamops.kernel.time import MIN_INSTANT, Duration, parse_duration
from streamops.spark.columns import column, instant_field, micros
from streamops.spark.operator import Operator
from streamops.time.core.track_clock import (
    CORRECTED,
    PLAUSIBLE,
    CorrectClockSpec,
    Otherwise,
    parse_limit,
)

# Names of intermediate columns: microseconds.
_EVENT, _SENT, _RECEIVED, _QUALITY = (
    f"__streamops_{name}" for name in ("event", "sent", "received", "quality")
)


def correct_clock(
    time: str,
    *,
    sent: str,
    received: str,
    tolerance: Duration = "0 seconds",
    longest_wait: Duration | None = None,
    largest_offset: Duration | None = None,
    otherwise: Otherwise = "received",
) -> Operator:
    """Correct event times of devices with wrong clocks, by the clock of the server.

    Each row has three timestamps. The device records when the event happened and when the message
    was sent, by its own clock, which may be wrong. The server records when the message was
    received. The offset of the device's clock is ``received - sent``. The corrected time is
    ``time + offset``, which equals ``received`` minus the time that the event waited on the device.

    The corrected time is later than the true time by the network delay: it lies in
    ``[truth, truth + delay]`` if the device's clock ran at the right rate between the event and
    the sending. A clock that runs fast by a fraction `p` adds an error of `p` times the wait.

    Input        `time`, `sent`: timestamp, by the device's clock · `received`: timestamp, by the
                 server's · other columns of any type
    Output       the same columns · corrected_time: timestamp · clock_offset: interval day to second,
                 received - sent · clock_quality: string
    Output mode  any
    Watermark    none on the input; define it on the output, on `corrected_time`
    State        none
    Order        rows may arrive in any order; each row is corrected independently
    Batch        same rows out

    Parameters
    ----------
    time, sent : str
        Columns: when the event happened and when it was sent, by the clock of the device.
    received : str
        Column: when it was received, by the clock of the server.
    tolerance : duration
        An offset from 0 to `tolerance` is attributed to network delay: the device's clock is
        treated as right, and the event time is not changed.
    longest_wait : duration, optional
        Maximum time between event and sending, ``sent - time``. A longer wait indicates that the
        clock was set in between. Default: no limit.
    largest_offset : duration, optional
        Maximum absolute offset that is corrected. Default: no limit.
    otherwise : "received", "device" or "null"
        Value of `corrected_time` for rows that cannot be corrected. "received": the time of
        receipt. "device": the original event time, or the time of receipt if that is earlier.
        "null": null, so that operators count the row as rejected.

    Returns
    -------
    Operator
        For use with ``DataFrame.transform``.

    Raises
    ------
    SpecError
        A parameter has the wrong type, is out of range, or names the same column as another.
    SchemaError, ColumnNotFound
        A column does not exist or has the wrong type, or the frame has a column of the result.

    Examples
    --------
    >>> from streamops import time
    >>> time.correct_clock("ts", sent="sent_at", received="received_at", longest_wait="7 days")
    time.correct_clock(time='ts', sent='sent_at', received='received_at', longest_wait='7 days')

    Notes
    -----
    ``clock_quality`` is the first of these that applies: "no_event_time", "no_received_time",
    "no_sent_time" (null, or outside the years 1 to 9999), "sent_before_event", "waited_too_long",
    "offset_too_large", "plausible" (within the tolerance), "corrected".

    The server's clock is trusted. To validate the result against another clock, add a guard after
    this operator, with ``arrival=received``.

    See Also
    --------
    guard : validate event times before a watermark is defined.
    track_clock : estimate the offset from several messages of the device.

    References
    ----------
    Kleppmann: "Designing Data-Intensive Applications", chapter 11, "Whose clock are you using,
    anyway?".
    """
    spec = CorrectClock(
        time=time,
        sent=sent,
        received=received,
        tolerance=parse_duration(tolerance, parameter="tolerance", minimum=0),
        longest_wait=parse_limit(longest_wait, parameter="longest_wait"),
        largest_offset=parse_limit(largest_offset, parameter="largest_offset"),
        otherwise=otherwise,
    )
    return Operator(CorrectClockSpec.where, spec)


class CorrectClock(CorrectClockSpec):
    """The parameters with their Spark expressions."""

    __slots__ = ()

    def check(self, frame: DataFrame) -> None:
        """Reject frames without the three timestamps."""
        for role in ("time", "sent", "received"):
            instant_field(frame, getattr(self, role), role=role)

    def apply(self, frame: DataFrame) -> DataFrame:
        """Return the frame with its corrected time."""
        offset = F.col(_RECEIVED) - F.col(_SENT)
        return self.add_corrected_time(frame, frame.schema.names, offset, F.lit(CORRECTED))

    def counts(self) -> Mapping[str, Column]:
        """Count all rows, and rows by quality."""
        quality = column(self.adds[2])
        return {
            "rows": F.count(F.lit(1)),
            **{value: F.count_if(quality == value) for value in self.qualities},
        }

    def add_corrected_time(
        self, frame: DataFrame, names: Sequence[str], offset: Column, good: Column
    ) -> DataFrame:
        """Select the columns `names`, and add the columns of the result.

        `offset` is the offset of the device's clock in microseconds, `good` the quality of a time
        that is corrected by it.
        """
        event = F.col(_EVENT)
        timestamps = {_EVENT: self.time, _SENT: self.sent, _RECEIVED: self.received}
        rows = frame.select(
            "*", *(micros(column(name)).alias(alias) for alias, name in timestamps.items())
        )
        rows = rows.select("*", _quality(self, offset, good).alias(_QUALITY))
        corrected = (
            F.when(F.col(_QUALITY) == PLAUSIBLE, event)
            .when(F.col(_QUALITY) == good, event + offset)
            .otherwise(_fallback(self))
        )
        interval = F.lit(dt.timedelta(microseconds=1)) * offset
        added = (F.timestamp_micros(corrected), interval, F.col(_QUALITY))
        return rows.select(
            *(column(name) for name in names),
            *(value.alias(name) for name, value in zip(self.adds, added, strict=True)),
        )


def _quality(spec: CorrectClockSpec, offset: Column, good: Column) -> Column:
    event, sent, received = map(F.col, (_EVENT, _SENT, _RECEIVED))
    wait = sent - event
    # Without a limit, the wait is too long if the event would be before the year 1.
    too_long = event + offset < F.lit(MIN_INSTANT)
    if spec.longest_wait is not None:
        too_long |= wait > F.lit(spec.longest_wait)
    quality = (
        F.when(event.isNull(), "no_event_time")
        .when(received.isNull(), "no_received_time")
        .when(sent.isNull(), "no_sent_time")
        .when(wait < F.lit(0), "sent_before_event")
        .when(too_long, "waited_too_long")
    )
    if spec.largest_offset is not None:
        too_large = F.abs(received - sent) > F.lit(spec.largest_offset)
        quality = quality.when(too_large, "offset_too_large")
    near = offset.between(F.lit(0), F.lit(spec.tolerance))
    return quality.when(near, PLAUSIBLE).otherwise(good)


def _fallback(spec: CorrectClockSpec) -> Column:
    """Return the value of rows that cannot be corrected."""
    match spec.otherwise:
        case "received":
            return F.col(_RECEIVED)
        case "device":
            # No event happens after its receipt. `least` ignores nulls, so rows without an event
            # time are handled separately.
            event = F.col(_EVENT)
            return F.when(event.isNotNull(), F.least(event, F.col(_RECEIVED)))
        case _:
            return F.lit(None).cast("bigint")
