"""Calendar windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streamops.kernel.aggregation import Aggregation
from streamops.kernel.calendar import Unit, Weekday
from streamops.kernel.parameters import parse_delay, parse_names
from streamops.kernel.time import Duration
from streamops.spark.operator import Operator
from streamops.windows.core import grid as core
from streamops.windows.core.grid_spec import CalendarSpec, Empty, parse_empty_for
from streamops.windows.core.spec import (
    Early,
    Stragglers,
    TooLate,
    parse_aggregates,
    parse_optional_delay,
)

__all__ = ["calendar"]


def calendar(
    unit: Unit,
    zone: str,
    *,
    time: str,
    agg: Mapping[str, Aggregation],
    by: str | Sequence[str] = (),
    week_start: Weekday = "monday",
    delay: Duration | None = None,
    allowed_lateness: Duration = "0 seconds",
    stragglers: Stragglers = "drop",
    too_late: TooLate = "drop",
    early: Early = "never",
    empty: Empty = "skip",
    empty_for: Duration | None = None,
) -> Operator:
    """Aggregates per key over days, weeks, months, quarters or years in a time zone.

    A window starts at the local midnight of its first day and ends where the next one starts: a
    day has 23 or 25 hours where the clock is changed. Where midnight is skipped, the day starts
    after the gap; where it comes twice, with the first. Windows are adjacent: each event lies in
    exactly one, by its instant, whatever a clock on a wall shows twice. A window is published
    once the watermark reaches its end.

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
    State        per shard: one entry per key and window that ended less than delay (with
                 corrections: delay + allowed_lateness) before the newest event;
                 forgotten when no window can change any more; with corrections or `early` one per
                 window that was published again; with "publish" one per key for `empty_for` longer
    Order        rows may come in any order; ties matter only to first and last, which ask for a
                 tie-break
    Batch        same rows out, no watermark needed, nothing is late

    Parameters
    ----------
    unit : "day", "week", "month", "quarter" or "year"
        What a window is.
    zone : str
        The time zone: an IANA name, such as "Europe/Berlin". Its rules are those that Python's
        ``zoneinfo`` knows, on the driver and on every worker; the time zone of the session does
        not matter.
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
        "retract" a change stream.
    empty : "skip" or "publish"
        What happens to windows in which a key has no row. "publish": they are results, with the values
        of no rows (a count of 0, a sum of null), once they are on time.
    empty_for : duration, optional
        With "publish": how long a key has empty windows. One is published if it ends at most so long
        after a window of the key that has rows. More than 10,000 are refused.
    week_start : "monday" to "sunday"
        The day on which weeks start. ISO 8601, and so the default, is Monday.

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
    >>> per_day = windows.calendar(
    ...     "day", "Europe/Berlin", time="ts", by="page", agg={"views": agg.count()}, delay="1 hour"
    ... )
    >>> views.transform(per_day)  # doctest: +SKIP
    DataFrame[page: string, window_start: timestamp, window_end: timestamp, views: bigint]

    Notes
    -----
    Rows with a null event time are counted as ``rejected``, and delivered with the reason
    "null_time" where late rows are. Spark's watermark starts at 1970: windows before it come out
    once the watermark has passed 1970.

    ``window_start`` is an instant. The date it stands for: ``F.to_date(F.from_utc_timestamp(
    "window_start", "Europe/Berlin"))`` in a session whose time zone is UTC.

    See Also
    --------
    tumbling : windows of one length, whatever a clock on a wall does.
    cumulative : windows that grow through a day.

    References
    ----------
    Kleppmann: "Designing Data-Intensive Applications", chapter 11, "Reasoning About Time".
    IANA Time Zone Database; PEP 495, "Local Time Disambiguation"; PEP 615, ``zoneinfo``.
    """
    where = "windows.calendar"
    spec = CalendarSpec(
        operator=where,
        unit=unit,
        zone=zone,
        week_start=week_start,
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
