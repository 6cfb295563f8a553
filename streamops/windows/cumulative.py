"""Cumulative windows."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence

from streamops.kernel.aggregation import Aggregation
from streamops.kernel.calendar import Unit, Weekday
from streamops.kernel.parameters import parse_delay, parse_names
from streamops.kernel.time import Duration, parse_duration
from streamops.spark.operator import Operator
from streamops.windows.core import grid as core
from streamops.windows.core.calendars import parse_length
from streamops.windows.core.grid_spec import (
    CumulativeSpec,
    Empty,
    parse_empty_for,
    parse_period_origin,
)
from streamops.windows.core.spec import (
    Early,
    Stragglers,
    TooLate,
    parse_aggregates,
    parse_optional_delay,
)

__all__ = ["cumulative"]


def cumulative(
    size: Duration | Unit,
    every: Duration,
    *,
    time: str,
    agg: Mapping[str, Aggregation],
    by: str | Sequence[str] = (),
    zone: str | None = None,
    week_start: Weekday = "monday",
    origin: Duration | dt.datetime = "0 seconds",
    delay: Duration | None = None,
    allowed_lateness: Duration = "0 seconds",
    stragglers: Stragglers = "drop",
    too_late: TooLate = "drop",
    early: Early = "never",
    empty: Empty = "skip",
    empty_for: Duration | None = None,
) -> Operator:
    """Aggregates per key over windows that grow through a period: the total since midnight.

    A period that starts at ``p`` has the windows ``[p, p + every)``, ``[p, p + 2 * every)`` and so
    on; the last ends with the period. An event lies in all windows of its period that end after
    it. A window is published once the watermark reaches its end, if the key has an event in it:
    also if none came since the window before, with the same values.

    Input        `time`: timestamp (event time) · key columns of any type but maps (null is a key) ·
                 what the aggregates read · a row that is delivered twice counts twice: drop
                 duplicates before
    Output       key columns · window_start, window_end: timestamp, [start, end) · the aggregates ·
                 with corrections or `early` revision: int (0 is the value published first, and
                 on time unless `early`) · with `early` timing: string, "early", "on_time" or "late"
                 · with "retract" _change_type: string · where rows may be routed late:
                 struct<reason, lateness, watermark, row>
    Output mode  append
    Watermark    defined by `delay`, or brought by the frame; Spark's own delay is
                 delay + allowed_lateness
    State        per shard: one entry per key and period, and one per key and `every` (a pane) that
                 ended less than delay (with corrections: delay + allowed_lateness) before the
                 newest event; forgotten when no window of the period can change any more; with
                 corrections or `early` one per window that was published again; with "publish" one
                 per key for `empty_for` longer
    Order        rows may come in any order; ties matter only to first and last, which ask for a
                 tie-break
    Batch        same rows out, no watermark needed, nothing is late

    Parameters
    ----------
    size : duration, or "day", "week", "month", "quarter" or "year"
        Length of a period: a fixed one; or, with `zone`, a unit of the calendar.
    every : duration
        From one end of a window to the next, 0 < every <= size: an elapsed time, also where a
        clock is changed. Where it does not divide the period, the last step is shorter. More than
        10,000 windows in a period are refused.
    time : str
        Event-time column, of type timestamp.
    by : str or sequence of str
        Key columns. Left out: one group for all rows.
    agg : mapping of str to Aggregate
        What to compute, under which name. See :mod:`streamops.aggregates`.
    delay : duration, optional
        How long a result waits for rows before it is called on time. Whole milliseconds. The
        operator then defines the watermark. Left out on a frame that has one: its delay less
        `allowed_lateness`.
    allowed_lateness : duration
        How much longer stragglers are accepted, >= 0.
    stragglers : "drop", "route", "update" or "retract"
        What happens to a row whose window is already on time. "drop": not in the result,
        counted. "route": not in the result, delivered as a row with a non-null ``late``, once
        per window missed. "update": the new value is published with `revision` one higher.
        "retract": the old value is taken back and the new one published, as a change stream.
    too_late : "drop" or "route"
        With "update" and "retract": what happens beyond the allowed lateness.
    early : "never" or "every batch"
        "every batch": a window that is not on time yet is published in every micro-batch whose rows
        change it, and once more when it is on time. An upsert by key columns and window; with
        "retract" a change stream. A row changes all windows of its period that end after it: for
        the total so far as one row, take windows.calendar or windows.tumbling.
    empty : "skip" or "publish"
        What happens to windows in which a key has no row. "publish": they are results, with the values
        of no rows (a count of 0, a sum of null), once they are on time.
    empty_for : duration, optional
        With "publish": how long a key has empty windows. One is published if it ends at most so long
        after a window of the key that has rows. More than 10,000 are refused.
    zone : str, optional
        The time zone of the calendar: an IANA name, such as "Europe/Berlin". See
        :func:`~streamops.windows.calendar`.
    week_start : "monday" to "sunday"
        The day on which weeks start.
    origin : duration or aware datetime
        Phase of fixed periods: an instant at which one starts. Not beside `zone`.

    Returns
    -------
    Operator
        For use with ``DataFrame.transform``.

    Raises
    ------
    SpecError
        A parameter has the wrong type, is out of range or contradicts another. ``NOTHING_TO_CORRECT``:
        "update" or "retract" with neither `allowed_lateness` nor `early`, so that no straggler is accepted.
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
    >>> so_far = windows.cumulative(
    ...     "day",
    ...     "1 minute",
    ...     zone="Europe/Berlin",
    ...     time="ts",
    ...     by="page",
    ...     agg={"views": agg.count()},
    ...     delay="30 seconds",
    ... )
    >>> views.transform(so_far)  # doctest: +SKIP
    DataFrame[page: string, window_start: timestamp, window_end: timestamp, views: bigint]

    Notes
    -----
    Rows with a null event time are counted as ``rejected``, and delivered with the reason
    "null_time" where late rows are. Spark's watermark starts at 1970: windows before it come out
    once the watermark has passed 1970.

    A late row is late for the windows that are on time, and counts in the later ones: with "route"
    it is delivered once per window missed, with "update" and "retract" all of these are corrected.

    See Also
    --------
    calendar : one result per period.
    hopping : windows of one size that overlap.

    References
    ----------
    Kleppmann: "Designing Data-Intensive Applications", chapter 11, "Reasoning About Time".
    Apache Flink, "Windowing table-valued functions", CUMULATE.
    """
    where = "windows.cumulative"
    period = parse_length(
        size,
        zone,
        parameter="size",
        reason="where a {} of the calendar starts depends on the time zone",
        where=where,
    )
    spec = CumulativeSpec(
        operator=where,
        size=period,
        every=parse_duration(every, parameter="every", where=where, minimum=1),
        zone=zone,
        week_start=week_start,
        origin=parse_period_origin(origin, period, where=where),
        time=time,
        by=parse_names(by, parameter="by", where=where),
        agg=parse_aggregates(agg, where=where),
        delay=parse_optional_delay(delay, where=where),
        allowed_lateness=parse_delay(allowed_lateness, parameter="allowed_lateness", where=where),
        stragglers=stragglers,
        too_late=too_late,
        early=early,
        empty=empty,
        empty_for=parse_empty_for(empty_for, where=where),
    )
    return Operator(where, spec, core)
