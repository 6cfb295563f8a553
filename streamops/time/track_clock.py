"""Correction of device clocks by offsets that are tracked from message to message."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streamops.changelog.chains import WATERMARK
from streamops.kernel.parameters import parse_names, require_columns
from streamops.kernel.time import Duration, parse_duration
from streamops.spark.annotate import AnnotatedSpec, annotate_rows
from streamops.spark.operator import Operator
from streamops.time import conditions
from streamops.time.core.track_clock import (
    METHOD,
    OFFSET,
    Otherwise,
    TrackClockCore,
    TrackClockSpec,
    add_corrected_time,
    parse_limit,
)
from streamops.time.correct_clock import CorrectClock


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
) -> Operator:
    """Correct event times of devices, by the minimum delay observed recently for each device.

    Like :func:`correct_clock`, but the offset of a device's clock is the minimum
    ``received - sent`` of its messages within `horizon`, and not that of a single message: a
    message with a long network delay does not make its events late. If ``received - sent`` changes
    by more than `step` from one message to the next, the clock was set, and earlier offsets are
    discarded.

    The corrected time is later than the true time by the minimum delay within the horizon, and
    never later than the result of ``correct_clock`` for the same message.

    Input        `time`, `sent`: timestamp, by the device's clock · `received`: timestamp, by the
                 server's · `by`: key columns of any type but maps (null is a key) · other columns
                 of any type that Spark passes to Python
    Output       the same columns · corrected_time: timestamp · clock_offset: interval day to second,
                 null if unknown · clock_quality: string
    Output mode  append
    Watermark    none on the input; define it on the output, on `corrected_time`
    State        per shard: at most 17 offsets for each device with a message within two horizons,
                 and two sixteenths of one, before the newest message
    Order        by `received`: each row is emitted in its own micro-batch and corrected by the
                 messages received before it. Rows of a micro-batch may arrive in any order, ties
                 included. A row received before a row of its device in an earlier micro-batch is
                 treated as received together with that row
    Batch        same rows out, processed in the order of `received`

    Parameters
    ----------
    time, sent, received, tolerance, longest_wait, largest_offset, otherwise
        As in :func:`correct_clock`.
    by : str or sequence of str
        Columns that identify the device.
    horizon : duration
        Time range of the offsets that are used, > 0; up to a sixteenth longer. A longer horizon
        finds a smaller delay; if a clock runs slow by a fraction `p`, event times may be early by
        `p` times the horizon.
    step : duration
        Change of the offset, >= 0, above which the clock is considered to have been set. It must
        exceed the longest network delay: a message that takes longer looks like a clock that was
        set.

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
    WatermarkError
        The frame already has a watermark.
    RequirementError
        A requirement of the state API is not met.

    Examples
    --------
    >>> from streamops import time
    >>> time.track_clock("ts", by="device", sent="sent_at", received="received_at")
    time.track_clock(time='ts', by=('device',), sent='sent_at', received='received_at')

    Notes
    -----
    ``clock_quality`` has the values of ``correct_clock`` and two more: "estimated", the minimum of
    several offsets was used; "stepped", the clock was set since the previous message. "corrected"
    means that the message's own offset was used, because the device has no earlier message within
    the horizon.

    See Also
    --------
    correct_clock : correct each message independently, without state.

    References
    ----------
    Mills et al.: "Network Time Protocol Version 4", RFC 5905, section 10, "Clock Filter Algorithm".
    """
    spec = _TrackClock(
        time=time,
        sent=sent,
        received=received,
        tolerance=parse_duration(tolerance, parameter="tolerance", minimum=0),
        longest_wait=parse_limit(longest_wait, parameter="longest_wait"),
        largest_offset=parse_limit(largest_offset, parameter="largest_offset"),
        otherwise=otherwise,
        by=parse_names(by, parameter="by"),
        horizon=parse_duration(horizon, parameter="horizon", minimum=1),
        step=parse_duration(step, parameter="step", minimum=0),
    )
    return annotate_rows(_TrackClock.where, spec, TrackClockCore())


class _TrackClock(TrackClockSpec, CorrectClock, AnnotatedSpec):
    """The parameters with their Spark expressions."""

    __slots__ = ()

    def check(self, frame: DataFrame) -> None:
        """Reject frames without the columns, and streams that already have a watermark."""
        super().check(frame)
        require_columns(frame.schema.names, {"by": self.by})
        marked = [
            field.name for field in frame.schema.fields if WATERMARK in (field.metadata or {})
        ]
        if frame.isStreaming and marked:
            raise conditions.TRACK_BEHIND_WATERMARK.error(
                got=f"a frame with a watermark on {marked[0]!r}"
            )

    def build_result(self, frame: DataFrame, names: Sequence[str]) -> DataFrame:
        """Return the rows of the core with their corrected times."""
        # Rows without a sample have no method, and one of the qualities of rows not corrected.
        return self.add_corrected_time(frame, names, F.col(OFFSET), F.col(METHOD))

    def build_rows(self, rows: pa.Table) -> pa.Table:
        """Return the result for a table of the test kit."""
        return add_corrected_time(self, rows)
