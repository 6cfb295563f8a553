"""Windows beside those of the previous period."""

from __future__ import annotations

from collections.abc import Sequence

from streamops.kernel.calendar import Unit
from streamops.kernel.parameters import parse_delay, parse_names
from streamops.kernel.time import Duration
from streamops.spark.operator import Operator
from streamops.windows.core import compare as core
from streamops.windows.core.calendars import parse_length
from streamops.windows.core.compare_spec import CompareSpec
from streamops.windows.core.spec import Stragglers, TooLate, parse_optional_delay

__all__ = ["compare"]


def compare(
    period: Duration | Unit,
    *,
    values: str | Sequence[str],
    by: str | Sequence[str] = (),
    zone: str | None = None,
    delay: Duration | None = None,
    allowed_lateness: Duration = "0 seconds",
    stragglers: Stragglers = "drop",
    too_late: TooLate = "drop",
) -> Operator:
    """Results of windows beside those of the previous period: "against the same hour last week".

    For each window of a key: its values, those of the same window one period before, the change
    and its rate. It is published once the watermark reaches the end of the window. Where there was
    no window a period before, the columns about it are null.

    Input        results of windows: key columns of any type but maps (null is a key) ·
                 window_start, window_end: timestamp · `values`: numbers · a row for each key and
                 window; or with revision, int; or a change stream with _change_type as well
    Output       key columns · window_start, window_end · for each value v: v · previous_v, of its
                 type · change_v: v - previous_v, bigint, double or decimal · rate_v: double,
                 change_v / previous_v, null where that is null or 0 · with corrections
                 revision: int (0 is the on-time value), with "retract" _change_type: string ·
                 where rows may be routed late: struct<reason, lateness, watermark, row>
    Output mode  append
    Watermark    on window_end: brought by the windows before, or defined by `delay`; Spark's own
                 delay is delay + allowed_lateness
    State        per shard: one entry per key and window that ended less than period + delay (with
                 corrections: and allowed_lateness) before the newest one; where the clock is
                 changed, by that much longer
    Order        rows may come in any order
    Batch        same rows out, no watermark needed, nothing is late

    Parameters
    ----------
    period : duration, or "day", "week", "month", "quarter" or "year"
        How far back: a fixed duration such as "1 week"; or, with `zone`, a unit of the calendar,
        so that "yesterday at nine" is right also where the clock was changed since.
    values : str or sequence of str
        The columns to compare, all of numbers.
    by : str or sequence of str
        Key columns: those of the windows before. Left out: one group for all rows.
    zone : str, optional
        The time zone of a unit of the calendar: an IANA name, such as "Europe/Berlin".
    delay : duration, optional
        How long a comparison waits for rows. Left out behind a window, which brings a watermark.
    allowed_lateness : duration
        How much longer stragglers are accepted, >= 0: behind a window, what it has; behind one of
        Spark's own, 0.
    stragglers : "drop", "route", "update" or "retract"
        What happens to a window that comes when the watermark has passed its end. "drop": it is
        neither compared nor compared with, and counted. "route": likewise, and delivered as a row
        with a non-null ``late``. "update": its comparison, and those with it, are published
        (again) where they differ, with `revision` one higher. "retract": the old ones are taken
        back and the new ones published, as a change stream. Input with corrections needs one of
        the last two; a change stream, the last.
    too_late : "drop" or "route"
        With "update" and "retract": what happens beyond the allowed lateness.

    Returns
    -------
    Operator
        For use with ``DataFrame.transform``.

    Raises
    ------
    SpecError
        A parameter has the wrong type, is out of range or contradicts another.
    SchemaError, ColumnNotFound
        A column does not exist or has the wrong type; the frame is not one of windows, or is
        revised in a way that `stragglers` cannot follow.
    WatermarkError
        A streaming frame without a watermark on ``window_end`` and no `delay`, or both; or more
        lateness than the windows before have.
    RequirementError
        The state API needs something that is not there.
    ChangeStreamError, CapacityError
        While the query runs: ``WINDOW_TWICE``, two different rows of one key and window and
        revision; ``CHANGE_OVERFLOW``, a change does not fit into its type.

    Examples
    --------
    >>> from streamops import aggregates as agg, windows
    >>> per_hour = windows.tumbling(
    ...     "1 hour", time="ts", by="page", agg={"views": agg.count()}, delay="5 minutes"
    ... )
    >>> against = windows.compare("week", zone="Europe/Berlin", values="views", by="page")
    >>> views.transform(per_hour).transform(against)  # doctest: +SKIP
    DataFrame[page: string, window_start: timestamp, window_end: timestamp, views: bigint, previous_views: bigint, change_views: bigint, rate_views: double]

    Notes
    -----
    A key without events has no window, and so no comparison: a page that nobody saw any more
    does not come out as a change to 0. Behind windows with ``empty="publish"`` it does, for as long
    as their `empty_for` says.

    Windows with ``early`` are revised: behind them stragglers is "update", or "retract". Early
    results that are read from a table would move the watermark to the end of their windows, which
    lies in the future: leave them out.

    Rows that are no windows are counted as ``rejected``, and delivered with a reason where late
    rows are: "null_time" and "time_out_of_range" (of the end), "bad_window" (a start that is null
    or not before the end), "bad_change" (a null revision, an unknown change type).

    See Also
    --------
    tumbling, hopping, calendar, cumulative : the windows to compare.

    References
    ----------
    Kleppmann: "Designing Data-Intensive Applications", chapter 11, "Stream analytics": statistics
    compared with those of the same interval last week.
    """
    where = "windows.compare"
    spec = CompareSpec(
        operator=where,
        period=parse_length(
            period,
            zone,
            parameter="period",
            reason="when a {} ago was depends on the time zone",
            where=where,
        ),
        zone=zone,
        values=parse_names(values, parameter="values", where=where),
        by=parse_names(by, parameter="by", where=where),
        delay=parse_optional_delay(delay, where=where),
        allowed_lateness=parse_delay(allowed_lateness, parameter="allowed_lateness", where=where),
        stragglers=stragglers,
        too_late=too_late,
    )
    return Operator(where, spec, core)
