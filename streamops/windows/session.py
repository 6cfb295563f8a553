"""Session windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from streamops.kernel.aggregation import Aggregation
from streamops.kernel.parameters import parse_delay, parse_names
from streamops.kernel.time import Duration, parse_duration
from streamops.spark.operator import Operator
from streamops.windows.core import session as core
from streamops.windows.core.session_spec import SessionSpec, WhenLonger
from streamops.windows.core.spec import Early, TooLate, parse_aggregates, parse_optional_delay
from streamops.windows.native import native

__all__ = ["session"]


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
    stragglers: Literal["drop", "route", "retract"] = "drop",
    too_late: TooLate = "drop",
    early: Early = "never",
) -> Operator:
    """Aggregates per key over bursts of activity, ended by silence.

    A session is the union of ``[t, t + gap)`` over its events; events exactly one gap apart are
    one session. It is published once the watermark reaches its end, its last event plus the gap.

    Input        `time`: timestamp (event time) · key columns of any type but maps (null is a key) ·
                 what the aggregates read · `gap_column`: interval day to second · `until`: boolean ·
                 a row that is delivered twice counts twice: drop duplicates before
    Output       key columns · window_start, window_end: timestamp, [start, end) · the aggregates ·
                 with "retract" or `early` revision: int (0 is the value published first, and on
                 time unless `early`), _change_type: string · with `early` timing: string, "early",
                 "on_time" or "late" · where rows may be routed late: struct<reason, lateness,
                 watermark, row>
    Output mode  append
    Watermark    defined by `delay`, or brought by the frame; Spark's own delay is
                 delay + allowed_lateness (with `until`: and gap)
    State        per shard: one entry per session that is open, and per session that ended less than
                 delay + gap (with corrections: and allowed_lateness) before the newest event; with
                 `until` or `max_length` one per event time that young
    Order        rows may come in any order; ties matter only to first and last, which ask for a
                 tie-break
    Batch        same rows out, no watermark needed, nothing is late

    Parameters
    ----------
    gap : duration
        The silence that ends a session, > 0: a ``timedelta`` or "30 minutes". With `gap_column`:
        the longest that a row may ask for.
    time : str
        Event-time column, of type timestamp.
    agg : mapping of str to Aggregate
        What to compute, under which name. See :mod:`streamops.aggregates`.
    by : str or sequence of str
        Key columns. Left out: one group for all rows.
    gap_column : str, optional
        The gap of each row. A row whose gap is null, not positive or longer than `gap` is rejected:
        counted, and delivered with the reason "gap_out_of_range" where late rows are.
    until : str, optional
        A boolean column: a row in which it is true ends its session at once, a microsecond after
        its event time. What comes later begins a new session, even within the gap.
    max_length : duration, optional
        Longest session, >= gap.
    when_longer : "split" or "fail"
        What happens to a longer one. "split": it is cut into sessions of that length, measured
        from its start; the last one is shorter. "fail": the query ends with an error.
    delay : duration, optional
        How long a result waits for rows before it is called on time. Whole milliseconds. The
        operator then defines the watermark. Left out on a frame that has one: its delay less
        `allowed_lateness`.
    allowed_lateness : duration
        How much longer stragglers are accepted, >= 0.
    stragglers : "drop", "route" or "retract"
        What happens to a row that comes when its own ``[t, t + gap)``, or a session that it
        would become part of, is already on time. "drop": not in the result, counted. "route":
        not in the result, delivered as a row with a non-null ``late``. "retract": a change
        stream; sessions that it merges or prolongs are deleted, each by its own start and end,
        and the new one is inserted once it is on time.
    too_late : "drop" or "route"
        With "retract": what happens beyond the allowed lateness.
    early : "never" or "every batch"
        "every batch": an open session is published in every micro-batch that changes it, as a
        change stream, and once more when it is on time.

    Returns
    -------
    Operator
        For use with ``DataFrame.transform``.

    Raises
    ------
    SpecError
        A parameter has the wrong type, is out of range or contradicts another. ``NOTHING_TO_CORRECT``:
        "retract" with neither `allowed_lateness` nor `early`, so that no straggler is accepted.
    SchemaError, ColumnNotFound
        A column does not exist or has the wrong type. ``ROWS_REVISED``: the frame has results that
        are published again, or late rows among them, and still the columns that tell them apart.
    WatermarkError
        A streaming frame without a watermark on `time` and no `delay`, or both.
    RequirementError
        The state API needs something that is not there.

    Examples
    --------
    >>> from streamops import aggregates as agg, windows
    >>> visits = windows.session(
    ...     "30 minutes", time="ts", by="user", agg={"clicks": agg.count()}, delay="1 minute"
    ... )
    >>> clicks.transform(visits)  # doctest: +SKIP
    DataFrame[user: string, window_start: timestamp, window_end: timestamp, clicks: bigint]

    Notes
    -----
    Rows with a null event time are counted as ``rejected``, and delivered with the reason
    "null_time" where late rows are.

    "update" is refused: a straggler can merge two sessions, and an update cannot take one back.

    See Also
    --------
    tumbling : windows of one length, whatever happens in them.

    References
    ----------
    Kleppmann: "Designing Data-Intensive Applications", chapter 11, "Types of windows".
    Akidau et al.: "The Dataflow Model", VLDB 2015.
    """
    where = "windows.session"
    longest = None
    if max_length is not None:
        longest = parse_duration(max_length, parameter="max_length", where=where, minimum=1)
    spec = SessionSpec(
        operator=where,
        gap=parse_duration(gap, parameter="gap", where=where, minimum=1),
        gap_column=gap_column,
        until=until,
        max_length=longest,
        when_longer=when_longer,
        time=time,
        by=parse_names(by, parameter="by", where=where),
        agg=parse_aggregates(agg, where=where),
        delay=parse_optional_delay(delay, where=where),
        allowed_lateness=parse_delay(allowed_lateness, parameter="allowed_lateness", where=where),
        stragglers=stragglers,
        too_late=too_late,
        early=early,
    )
    return Operator(where, spec, core, native=native)
