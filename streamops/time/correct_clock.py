"""Clocks of devices, corrected by the clock of the server."""

from __future__ import annotations

from streamops.kernel.time import Duration
from streamops.spark.rowwise import RowTransform
from streamops.time.clock_settings import ClockSettings, Otherwise

__all__ = ["correct_clock"]


def correct_clock(
    time: str,
    *,
    sent: str,
    received: str,
    tolerance: Duration = "0 seconds",
    longest_wait: Duration | None = None,
    largest_offset: Duration | None = None,
    otherwise: Otherwise = "received",
    name: str | None = None,
) -> RowTransform:
    """Event times by the server's clock, of events that were stamped by devices.

    A device says when the event happened and when it sent it, by one clock that may be wrong; the
    server says when it was received. The offset of the clock is ``received - sent``, and the
    corrected time ``time + offset``: ``received`` less the time the event waited in the device.

    The corrected time is later than the truth, by the delay of the network: it lies in
    ``[truth, truth + delay]`` if the device's clock ran evenly from the event to the sending. A
    clock that runs fast by a share of `p` adds an error of `p` times the wait.

    Input        `time`, `sent`: timestamp, by the device's clock · `received`: timestamp, by the
                 server's · other columns of any type
    Output       the same columns · corrected_time: timestamp · clock_offset: interval day to second,
                 received - sent · clock_quality: string
    Output mode  any
    Watermark    none before it on `corrected_time`: it is defined after it
    State        none
    Order        rows may come in any order; each is corrected by itself
    Batch        same rows out

    Parameters
    ----------
    time, sent : str
        Columns: when the event happened and when it was sent, by the clock of the device.
    received : str
        Column: when it was received, by the clock of the server.
    tolerance : duration
        An offset from 0 to this is taken for the delay of the network: the clock is held to be
        right and the event time kept.
    longest_wait : duration, optional
        The longest that an event may have waited in the device, ``sent - time``. A longer wait is
        a sign that the clock was set in between. Left out: any.
    largest_offset : duration, optional
        The largest offset, ahead or behind, that is believed. Left out: any.
    otherwise : "received", "device" or "null"
        What is the corrected time of a row whose clock cannot be corrected. "received": when it
        was received. "device": the event time as it is, but not later than when it was received.
        "null": none, so that operators count the row as rejected.
    name : str, optional
        Under which the counts, rows by quality, appear in the query's ``observedMetrics``. A batch
        is counted only where it is given.

    Returns
    -------
    RowTransform
        For use with ``DataFrame.transform``.

    Raises
    ------
    SpecError
        A parameter has the wrong type, is out of range, or names the column of another.
    SchemaError, ColumnNotFound
        A column does not exist or has the wrong type, or the frame has a column of the result.

    Examples
    --------
    >>> from streamops import time
    >>> time.correct_clock("ts", sent="sent_at", received="received_at", longest_wait="7 days")
    time.correct_clock(time='ts', sent='sent_at', received='received_at', tolerance='0 seconds', longest_wait='7 days', largest_offset=None, otherwise='received', name='correct_clock')

    Notes
    -----
    ``clock_quality`` is the first of these that holds: "no_event_time", "no_received_time",
    "no_sent_time" (null, or outside the years 1 to 9999), "sent_before_event", "waited_too_long",
    "offset_too_large", "plausible" (within the tolerance), "corrected".

    The server's clock is believed. A guard behind it, with ``arrival=received``, does not.

    See Also
    --------
    guard : no event time from the future.

    References
    ----------
    Kleppmann: "Designing Data-Intensive Applications", chapter 11, "Whose clock are you using,
    anyway?".
    """
    settings = ClockSettings.of(
        "time.correct_clock",
        time=time,
        sent=sent,
        received=received,
        tolerance=tolerance,
        longest_wait=longest_wait,
        largest_offset=largest_offset,
        otherwise=otherwise,
    )
    return RowTransform.of("time.correct_clock", settings, name)
