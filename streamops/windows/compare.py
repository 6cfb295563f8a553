"""Windows beside those of earlier periods."""

from __future__ import annotations

from collections.abc import Sequence

from streamops.kernel.calendar import Unit
from streamops.kernel.parameters import Text, parse_delay, parse_names, parse_optional_delay
from streamops.kernel.time import Duration
from streamops.spark.operator import Operator
from streamops.windows import conditions
from streamops.windows.core.compare import CompareCore
from streamops.windows.core.compare_spec import DEFAULT_THRESHOLD, CompareSpec
from streamops.windows.core.spec import Stragglers, TooLate, parse_length


def compare(
    period: Duration | Unit,
    *,
    values: str | Sequence[str],
    by: str | Sequence[str] = (),
    periods: int = 1,
    threshold: float = DEFAULT_THRESHOLD,
    min_periods: int | None = None,
    zone: Text | None = None,
    delay: Duration | None = None,
    allowed_lateness: Duration = "0 seconds",
    stragglers: Stragglers = "drop",
    too_late: TooLate = "drop",
) -> Operator:
    """Compare results of windows with those of earlier periods, such as the same hour last week.

    For each window of a key: its values, those of the same window one period before, the change and its
    rate. They are null if there was no window one period before. With `periods`, each value is also
    compared with a robust band of its earlier values: their median and their median absolute deviation.
    A comparison is emitted once the watermark reaches the end of its window.

    Input        results of windows: key columns of any type except map, null is a key · window_start,
                 window_end: timestamp · `values`: numbers · one row per key and window; or with
                 revision: int; or a change stream, which has _change_type as well
    Output       key columns · window_start, window_end · for each value v: v · previous_v, of its
                 type · change_v: v - previous_v, bigint, double or decimal · rate_v: double,
                 change_v / previous_v, null if that is null or 0 · with `periods` median_v and
                 deviation_v: double · count_v: int, the number of earlier values · anomaly_v: boolean
                 · with corrections revision: int, 0
                 for the on-time value · with "retract", _change_type: string · with routing,
                 late: struct<side, reason, lateness, watermark, window, row>
    Output mode  append
    Watermark    on window_end: defined by the preceding windows, or by `delay`; Spark's own delay is
                 delay + allowed_lateness
    State        per shard: one row per key and window that ended less than periods × period + delay
                 (with corrections: + allowed_lateness) before the newest one; longer by a clock change
    Order        any
    Batch        same result, without a watermark; no row is late

    Parameters
    ----------
    period : duration, or "day", "week", "month", "quarter" or "year"
        How far back: a duration such as "1 week"; or, with `zone`, a calendar unit, so that "yesterday
        at nine" is correct across clock changes.
    values : str or sequence of str
        Numeric columns to compare.
    by : str or sequence of str
        Key columns: those of the windows before. Left out: one group for all rows.
    periods : int
        How many earlier periods, 1 to 1,000: with 8 and a period of a week, the same hour of the last
        eight weeks. With two or more there are bands.
    threshold : float
        How many deviations from the median make an anomaly, > 0.
    min_periods : int, optional
        How many earlier values an anomaly needs; with fewer, `anomaly_v` is null. By default, more than
        half of `periods`.
    zone : str, optional
        IANA name of the time zone of a calendar unit, such as "Europe/Berlin".
    delay : duration, optional
        How far the watermark is behind the newest window. Leave it out after a window operator, which
        defines the watermark.
    allowed_lateness : duration
        How long stragglers are accepted after the watermark has passed, >= 0: that of the preceding
        windows, or 0 after a window of Spark.
    stragglers : "drop", "route", "update" or "retract"
        What happens to windows that arrive after the watermark has passed their end. "drop" counts
        them. "route" emits them with a non-null ``late``. "update" emits their comparisons, and those
        that they change with a higher `revision`. "retract" emits a change stream. An input with
        revisions needs "update" or "retract"; a change stream needs "retract".
    too_late : "drop" or "route"
        With "update" and "retract": what happens to rows that are later than `allowed_lateness`.

    Returns
    -------
    Operator
        For use with ``DataFrame.transform``.

    Raises
    ------
    SpecError
        A parameter has the wrong type, is out of range or contradicts another.
    SchemaError, ColumnNotFound
        A column is missing or has the wrong type; the rows are not results of windows, or revised
        in a way that `stragglers` would ignore.
    WatermarkError
        A streaming frame has neither a watermark on ``window_end`` nor a `delay`, or both; or the
        preceding windows have less lateness.
    RequirementError
        The state API requires RocksDB or protobuf, which is missing.
    ChangeStreamError, CapacityError
        While the query runs: ``INSERTED_TWICE``, two different rows have the same key, window and
        revision; ``NUMERIC_OVERFLOW``, a change does not fit into its type.

    Examples
    --------
    >>> from streamops import aggregates as agg, windows
    >>> per_hour = windows.tumbling(
    ...     "1 hour", time="ts", by="page", agg={"views": agg.count()}, delay="5 minutes"
    ... )
    >>> against = windows.compare("week", zone="Europe/Berlin", values="views", by="page")
    >>> views.transform(per_hour).transform(against)
    DataFrame[page: string, window_start: timestamp, window_end: timestamp, views: bigint, previous_views: bigint, change_views: bigint, rate_views: double]

    An alarm on the same hour of the last eight weeks:

    >>> band = windows.compare("week", zone="Europe/Berlin", values="views", by="page", periods=8)
    >>> anomalies = views.transform(per_hour).transform(band).where("anomaly_views")

    Notes
    -----
    The median of an even number of values is the mean of the two in the middle. The deviation is 1.4826
    times the median distance of the earlier values from their median: for a normal distribution, this
    estimates the standard deviation. ``anomaly_v`` is ``abs(v - median_v) > threshold * deviation_v``.
    It is null if `v` is null or NaN, or fewer than `min_periods` earlier values are known. Null, NaN and
    infinity are no earlier values. If the deviation is 0, as when more than half of the earlier values
    are equal, each value other than the median is an anomaly.

    Medians of integers and decimals, and distances from them, are computed exactly, and then rounded to
    the 53 bits of a double. A correction changes the bands of up to `periods` later
    windows: those whose result changes are emitted with a higher `revision`. A checkpoint is refused if
    `periods` changes; with "retract", also if `threshold` or `min_periods` does.

    A key without events has no window, and so no comparison with a change to 0. Use windows with
    ``empty_for`` to compare empty windows, too.

    Windows with ``early`` are revised: after them, stragglers must be "update" or "retract". Drop early
    results that are read from a table: they would move the watermark to the end of their windows.

    Invalid rows are counted as ``rejected``, and routed with a reason if late rows are routed:
    "null_time" and "time_out_of_range" (of the end), "bad_window" (a start that is null or not before
    the end), "bad_change" (a null revision, an unknown change type).

    See Also
    --------
    tumbling, hopping, calendar, cumulative : the windows to compare.

    References
    ----------
    Kleppmann: "Designing Data-Intensive Applications", chapter 11, "Stream analytics": statistics
    compared with those of the same interval last week.

    Hampel: "The Influence Curve and Its Role in Robust Estimation", 1974. Iglewicz, Hoaglin: "How to
    Detect and Handle Outliers", 1993: the modified z-score, and its threshold of 3.5.
    """
    where = "windows.compare"
    spec = CompareSpec(
        operator=where,
        period=parse_length(
            period,
            zone,
            conditions.AGO_WITHOUT_ZONE,
            parameter="period",
        ),
        zone=zone,
        values=parse_names(values, parameter="values"),
        periods=periods,
        threshold=threshold,
        min_periods=min_periods,
        by=parse_names(by, parameter="by"),
        delay=parse_optional_delay(delay, parameter="delay"),
        allowed_lateness=parse_delay(allowed_lateness, parameter="allowed_lateness"),
        stragglers=stragglers,
        too_late=too_late,
    )
    return Operator(where, spec, CompareCore())
