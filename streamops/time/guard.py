"""A guard of event times."""

from __future__ import annotations

import datetime as dt

from streamops.kernel.time import Duration
from streamops.spark.rowwise import RowTransform
from streamops.time.guard_settings import GuardSettings, OutOfBounds, Unusable

__all__ = ["guard"]


def guard(
    time: str,
    *,
    arrival: str | None = None,
    ahead: Duration = "5 minutes",
    before: Duration | dt.datetime | None = None,
    future: OutOfBounds = "quarantine",
    past: OutOfBounds = "quarantine",
    unusable: Unusable = "quarantine",
    name: str | None = None,
) -> RowTransform:
    """Keeps event times from the future, and other bad ones, away from the watermark.

    A row is good if its event time is in ``[lower, arrival + ahead]``, both ends included, where
    `lower` is what `before` says. Any other is clamped, quarantined or failed, before a watermark
    is defined: one row of the year 2999 would move it for good.

    Input        `time`: timestamp or string (event time) · `arrival`: timestamp · other columns of
                 any type
    Output       the same columns, `time`: timestamp, null in a quarantined row · guarded:
                 struct<reason, outcome, original, bound>, null in a good row
    Output mode  any
    Watermark    none before it: it is defined after it, by ``withWatermark`` or an operator's
                 `delay`. It can never pass the present by more than `ahead`
    State        none
    Order        rows may come in any order; each is judged by itself
    Batch        same rows out, with an `arrival` column; without one a row is judged by the start
                 of the batch

    Parameters
    ----------
    time : str
        Event-time column. A string is cast to a timestamp, as Spark does, in the time zone of the
        session where it names none.
    arrival : str, optional
        Column with the instant at which the row arrived, by a clock that can be trusted: when
        the server or the log took it. Left out, null, outside the years 1 to 9999, or later than
        the start of the micro-batch: that start.
    ahead : duration
        How far an event time may lie ahead of its arrival, >= 0: the error of clocks that is
        forgiven.
    before : duration or aware datetime, optional
        An event time before this instant, or further than this duration behind its arrival, is
        past. Left out: before the year 1.
    future, past : "quarantine", "clamp" or "fail"
        What happens to a row beyond a bound. "quarantine": its event time becomes null, so that
        operators count it as rejected. "clamp": its event time becomes the bound. "fail": the
        query fails.
    unusable : "quarantine" or "fail"
        What happens to a row whose event time is null, or text that is no timestamp.
    name : str, optional
        Under which the counts appear in the query's ``observedMetrics``. A batch is counted only
        where it is given.

    Returns
    -------
    RowTransform
        For use with ``DataFrame.transform``.

    Raises
    ------
    SpecError
        A parameter has the wrong type or is out of range.
    SchemaError, ColumnNotFound
        A column does not exist or has the wrong type, or the frame has a column ``guarded``.
    WatermarkError
        The frame has a watermark on `time` already.

    Examples
    --------
    >>> from streamops import time
    >>> time.guard("ts", ahead="1 minute", before="30 days", past="clamp")
    time.guard(time='ts', arrival=None, ahead='1 minute', before='30 days', future='quarantine', past='clamp', unusable='quarantine', name='guard')
    >>> views.transform(time.guard("ts"))  # doctest: +SKIP
    DataFrame[page: string, ts: timestamp, guarded: struct<...>]

    Notes
    -----
    ``guarded.reason`` is "null_time", "unparsable_time", "future" or "past"; ``outcome`` is
    "quarantined" or "clamped"; ``original`` is the value that was there, ``bound`` the bound that
    it was beyond.

    See Also
    --------
    split_quarantined : good and quarantined rows apart.
    correct_clock : event times of devices whose clocks are wrong.

    References
    ----------
    Kleppmann: "Designing Data-Intensive Applications", chapter 11, "Whose clock are you using,
    anyway?".
    """
    settings = GuardSettings.of(
        "time.guard",
        time=time,
        arrival=arrival,
        ahead=ahead,
        before=before,
        future=future,
        past=past,
        unusable=unusable,
    )
    return RowTransform.of("time.guard", settings, name)
