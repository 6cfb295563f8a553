"""Session windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from streamops.kernel.aggregation import Aggregation
from streamops.kernel.parameters import (
    parse_aggregates,
    parse_delay,
    parse_names,
    parse_optional_delay,
    parse_optional_duration,
)
from streamops.kernel.time import Duration, parse_duration
from streamops.spark.operator import Operator
from streamops.windows.core.session import SessionCore
from streamops.windows.core.session_spec import SessionSpec, WhenLonger
from streamops.windows.core.spec import Early, TooLate
from streamops.windows.native import NATIVE


def session(
    gap: Duration,
    *,
    time: str,
    agg: Mapping[str, Aggregation],
    by: str | Sequence[str] = (),
    gap_column: str | None = None,
    until: str | None = None,
    max_length: Duration | None = None,
    when_longer: WhenLonger = "split",
    delay: Duration | None = None,
    allowed_lateness: Duration = "0 seconds",
    stragglers: Annotated[Literal["drop", "route", "retract"], "refused with a remedy"] = "drop",
    too_late: TooLate = "drop",
    early: Early = "never",
) -> Operator:
    """Aggregate over sessions: bursts of activity that end after a gap of inactivity.

    A session is the union of ``[t, t + gap)`` over its events; events exactly one gap apart are in one
    session. A session is emitted once the watermark reaches its end, the last event plus the gap.

    Input        `time`: timestamp (event time) · key columns: any type except map, null is a key ·
                 columns of the aggregates · `gap_column`: interval day to second · `until`: boolean ·
                 duplicate rows count twice
    Output       key columns · window_start, window_end: timestamp, [start, end) · the aggregates ·
                 with "retract" or `early`, revision: int, 0 for the first value, and _change_type:
                 string · with `early`, timing: string, "early", "on_time" or "late" · with routing,
                 late: struct<side, reason, lateness, watermark, window, row>
    Output mode  append
    Watermark    defined by `delay`, or by the frame; Spark's own delay is delay + allowed_lateness
                 (with `until`: + gap)
    State        per shard: one row per open session, and per session that ended less than delay + gap
                 (with corrections: + allowed_lateness) before the newest event · with `until` or
                 `max_length` one per event time in that range
    Order        any; ties matter only to `first` and `last`, which have a tie-break
    Batch        same result, without a watermark; no row is late

    Parameters
    ----------
    gap : duration
        Inactivity that ends a session, > 0: a ``timedelta`` or text such as "30 minutes". With
        `gap_column`, the maximum of its values.
    time : str
        Event-time column, of type timestamp.
    agg : mapping of str to Aggregate
        Aggregates by output column. See :mod:`streamops.aggregates`.
    by : str or sequence of str
        Key columns. By default, all rows are one group.
    gap_column : str, optional
        Column with the gap of each row. A row with a gap that is null, not positive or longer than
        `gap` is rejected, with the reason "gap_out_of_range".
    until : str, optional
        Boolean column. A row in which it is true ends its session: ``window_end`` is one microsecond
        after its event time, and later rows begin a new session, even within the gap.
    max_length : duration, optional
        Maximum length of a session, >= gap.
    when_longer : "split" or "fail"
        What happens to longer sessions. "split" cuts them into sessions of the maximum length, measured
        from the start. "fail" fails the query.
    delay : duration, optional
        How far the watermark is behind the newest event, in whole milliseconds. Omit it if the
        frame has a watermark, whose delay must then be this delay plus `allowed_lateness` (with `until`: + gap).
    allowed_lateness : duration
        How long stragglers are accepted after the watermark has passed their gap, >= 0.
    stragglers : "drop", "route" or "retract"
        What happens to rows that arrive after the watermark has passed their own ``[t, t + gap)``, or
        the end of a session that they would extend. "drop" counts them. "route" emits them with a
        non-null ``late``. "retract" emits a change stream: sessions that are merged or extended are
        deleted by their start and end, and the new session is inserted once it is on time.
    too_late : "drop" or "route"
        With "retract": what happens to rows that are later than `allowed_lateness`.
    early : "never" or "every batch"
        "every batch" emits open sessions in every micro-batch that changes them, and again once they
        are on time, as a change stream.

    Returns
    -------
    Operator
        For use with ``DataFrame.transform``.

    Raises
    ------
    SpecError
        A parameter has the wrong type, is out of range or contradicts another. ``PARAMETER_MISSING``:
        "retract" without `allowed_lateness` or `early`.
    SchemaError, ColumnNotFound
        A column is missing or has the wrong type. ``ROWS_REVISED``: the rows of the frame can be
        revised, or include late rows.
    WatermarkError
        A streaming frame has neither a watermark on `time` nor a `delay`, or has both.
    RequirementError
        The state API requires RocksDB or protobuf, which is missing.

    Examples
    --------
    >>> from streamops import aggregates as agg, windows
    >>> visits = windows.session(
    ...     "30 minutes", time="ts", by="user", agg={"clicks": agg.count()}, delay="1 minute"
    ... )
    >>> clicks.transform(visits)
    DataFrame[user: string, window_start: timestamp, window_end: timestamp, clicks: bigint]

    Notes
    -----
    Rows with a null event time are counted as ``rejected``, and routed with the reason "null_time" if
    late rows are routed.

    "update" is refused: a straggler can merge two sessions, and an update cannot remove one of them.

    See Also
    --------
    tumbling : windows of a fixed length.

    References
    ----------
    Kleppmann: "Designing Data-Intensive Applications", chapter 11, "Types of windows".
    Akidau et al.: "The Dataflow Model", VLDB 2015.
    """
    where = "windows.session"
    spec = SessionSpec(
        operator=where,
        gap=parse_duration(gap, parameter="gap", minimum=1),
        gap_column=gap_column,
        until=until,
        max_length=parse_optional_duration(max_length, parameter="max_length", minimum=1),
        when_longer=when_longer,
        time=time,
        by=parse_names(by, parameter="by"),
        agg=parse_aggregates(agg),
        delay=parse_optional_delay(delay, parameter="delay"),
        allowed_lateness=parse_delay(allowed_lateness, parameter="allowed_lateness"),
        stragglers=stragglers,
        too_late=too_late,
        early=early,
    )
    return Operator(where, spec, SessionCore(), native=NATIVE)
