"""Clocks of devices, followed from message to message."""

from __future__ import annotations

from collections.abc import Sequence

from streamops.kernel.time import Duration
from streamops.spark.annotate import AnnotateTransform
from streamops.spark.transform import DEFAULT_SHARDS, Options, StateApi
from streamops.time.clock_settings import Otherwise
from streamops.time.core import tracking
from streamops.time.track_settings import TrackSettings

__all__ = ["track_clock"]


def track_clock(
    time: str,
    *,
    by: str | Sequence[str],
    sent: str,
    received: str,
    horizon: Duration = "1 hour",
    step: Duration = "1 minute",
    tolerance: Duration = "0 seconds",
    longest_wait: Duration | None = None,
    largest_offset: Duration | None = None,
    otherwise: Otherwise = "received",
    state_api: StateApi = "auto",
    shards: int = DEFAULT_SHARDS,
    name: str | None = None,
) -> AnnotateTransform:
    """Event times by the server's clock, from the least delay that each device had of late.

    As :func:`correct_clock`, but the offset of a device's clock is the least ``received - sent`` of
    its messages within `horizon`, and not that of one message alone: a message that was long under
    way does not make its events late. Where ``received - sent`` changes by more than `step` from one
    message to the next, the clock was set: what was known of it is forgotten.

    The corrected time is later than the truth by the least delay within the horizon, and never
    later than what ``correct_clock`` says of the same message.

    Input        `time`, `sent`: timestamp, by the device's clock · `received`: timestamp, by the
                 server's · `by`: key columns of any type but maps (null is a key) · other columns
                 of any type that Spark hands to Python
    Output       the same columns · corrected_time: timestamp · clock_offset: interval day to second,
                 null where there is none to go by · clock_quality: string
    Output mode  append
    Watermark    none before it: it is defined after it, on `corrected_time`
    State        per shard: at most 17 offsets for each device that was heard of less than two
                 horizons, and two sixteenths of one, before the newest message
    Order        by `received`: each row comes out in its own micro-batch, judged by what was
                 received before it. Rows of a micro-batch may come in any order, and ties do not
                 matter. A row received before one of its device that came in an earlier micro-batch
                 is taken for received with that
    Batch        same rows out, judged in the order of `received`

    Parameters
    ----------
    time, sent : str
        Columns: when the event happened and when it was sent, by the clock of the device.
    by : str or sequence of str
        Columns that tell the devices apart.
    received : str
        Column: when it was received, by the clock of the server.
    horizon : duration
        How far back offsets are looked for, > 0, and up to a sixteenth of it more. Longer finds a
        smaller delay; where a clock runs slow by a share of `p`, events may be early by `p` times the
        horizon.
    step : duration
        A change of the offset that no delay explains, >= 0. Longer than messages are ever under way:
        a slower one is taken for a clock that was set.
    tolerance : duration
        An offset from 0 to this is taken for the delay of the network: the clock is held to be
        right and the event time kept.
    longest_wait : duration, optional
        The longest that an event may have waited in the device, ``sent - time``. Left out: any.
    largest_offset : duration, optional
        The largest offset, ahead or behind, that is believed. Left out: any.
    otherwise : "received", "device" or "null"
        What is the corrected time of a row whose clock cannot be corrected: see ``correct_clock``.
    state_api : "auto", "applyInPandasWithState" or "transformWithStateInPandas"
        "auto" is ``transformWithStateInPandas``: it needs RocksDB and lets operators be chained.
    shards : int
        Pieces that the devices are spread over. Belongs to the checkpoint.
    name : str, optional
        Under which the counts, rows by quality, appear in the query's ``observedMetrics``. A batch
        is counted only where it is given.

    Returns
    -------
    AnnotateTransform
        For use with ``DataFrame.transform``.

    Raises
    ------
    SpecError
        A parameter has the wrong type, is out of range, or names the column of another.
    SchemaError, ColumnNotFound
        A column does not exist or has the wrong type, or the frame has a column of the result.
    WatermarkError
        The frame has a watermark already.
    RequirementError
        The state API needs something that is not there.

    Examples
    --------
    >>> from streamops import time
    >>> time.track_clock("ts", by="device", sent="sent_at", received="received_at")
    time.track_clock(time='ts', sent='sent_at', received='received_at', tolerance='0 seconds', longest_wait=None, largest_offset=None, otherwise='received', by=('device',), horizon='1 hour', step='1 minute', state_api='auto', shards=8, name='track_clock')

    Notes
    -----
    ``clock_quality`` is that of ``correct_clock``, with two more words: "estimated" by the least of
    several offsets; "stepped", the clock was set since the message before. "corrected" is by the
    offset of the message itself: none of its device came before it within the horizon.

    See Also
    --------
    correct_clock : each message by itself, without state.

    References
    ----------
    Kleppmann: "Designing Data-Intensive Applications", chapter 11, "Whose clock are you using,
    anyway?".
    Mills et al.: "Network Time Protocol Version 4", RFC 5905, section 10, "Clock Filter Algorithm".
    """
    settings = TrackSettings.tracked(
        "time.track_clock",
        by=by,
        horizon=horizon,
        step=step,
        time=time,
        sent=sent,
        received=received,
        tolerance=tolerance,
        longest_wait=longest_wait,
        largest_offset=largest_offset,
        otherwise=otherwise,
    )
    options = Options("kernel", state_api, shards, name or "track_clock")
    return AnnotateTransform(settings.where, settings, options.validated(settings.where), tracking)
