"""Rows on a regular grid of event time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streamops.kernel.parameters import (
    parse_distinct_names,
    parse_names,
    parse_optional_delay,
    require_name,
)
from streamops.kernel.time import Duration, parse_duration
from streamops.spark.operator import Operator
from streamops.windows import conditions
from streamops.windows.core.ordered_rows import Late
from streamops.windows.core.resample import Method, ResampleCore, ResampleSpec


def resample(
    every: Duration,
    *,
    time: str,
    values: Mapping[str, Method],
    max_gap: Duration,
    by: str | Sequence[str] = (),
    tie_break: str | Sequence[str] = (),
    delay: Duration | None = None,
    stragglers: Late = "drop",
) -> Operator:
    """Put irregular rows, such as readings of sensors, on a regular grid of event time.

    A key has a row at each multiple of `every` from its first row on, until it has had no row for `max_gap`.
    Between rows, a column has the value of the row before, or the one on the line to the row after.

    Input        `time`: timestamp (event time) · key columns: any type except map, null is a key ·
                 columns of `values`, numeric if they are interpolated
    Output       key columns · `time`: the multiple of `every` · the values · observed_at: timestamp, the
                 event time of the last row at or before it · with routing, late: struct<side, reason,
                 lateness, watermark, window, row>
    Output mode  append
    Watermark    defined by `delay`, or by the frame; with "linear", Spark's own delay is delay + max_gap
    State        per shard: the rows above the watermark · per key the last row below it, for at most
                 `max_gap`
    Order        rows may arrive in any order; of rows with the same event time, the last by `tie_break`,
                 then by all columns of `values`, counts
    Batch        same result, bit for bit, without a watermark; no row is late

    Parameters
    ----------
    every : duration
        The distance of the rows of the result, > 0: a ``timedelta`` or text such as "1 minute". It is counted
        from 1970-01-01 UTC.
    time : str
        Event-time column, of type timestamp; of results of windows, ``window_end``.
    values : mapping of str to "previous", "linear" or "null"
        The columns of the result, and what they have at an instant without a row. "previous": the value of
        the last row, of any type. "linear": the number on the line between the row before and the row after,
        a ``double``; null if these are more than `max_gap` apart. "null": null.
    max_gap : duration
        How long after a row its key has instants, > 0, inclusive. At most 10,000 multiples of `every`.
    by : str or sequence of str
        Key columns. By default, all rows are one series.
    tie_break : str or sequence of str
        Columns that order rows with the same event time, least first, null before everything.
    delay : duration, optional
        How far the watermark is behind the newest event, in whole milliseconds. Omit it if the
        frame has a watermark, whose delay must then be at least `max_gap` if there is a "linear".
    stragglers : "drop" or "route"
        What happens to rows that arrive after the watermark has reached their event time. "drop" counts
        them, "route" emits them with a non-null ``late``. Emitted values are never corrected.

    Returns
    -------
    Operator
        For use with ``DataFrame.transform``.

    Raises
    ------
    SpecError
        A parameter has the wrong type, is out of range or contradicts another.
    SchemaError, ColumnNotFound
        A column is missing or has the wrong type. ``ROWS_REVISED``: the rows of the frame can be
        revised, or include late rows.
    WatermarkError
        A streaming frame has neither a watermark on `time` nor a `delay`, or has both.
    RequirementError
        The state API requires RocksDB or protobuf, which is missing.

    Examples
    --------
    >>> from streamops import windows
    >>> regular = windows.resample(
    ...     "1 minute",
    ...     time="ts",
    ...     by="sensor",
    ...     values={"value": "linear"},
    ...     max_gap="10 minutes",
    ...     delay="30 seconds",
    ... )
    >>> readings.transform(regular)
    DataFrame[sensor: string, ts: timestamp, value: double, observed_at: timestamp]

    Notes
    -----
    An instant is emitted once the watermark reaches it. With "linear", all instants wait until the watermark
    reaches the next row of the key, or is `max_gap` past the row before.

    A null is a value: the instants after it are null. To fill it, drop the row before.

    Integers and decimals are interpolated as doubles. At the event time of a row, the value is that of the
    row.

    Rows with a null event time are counted as ``rejected``, and routed with the reason "null_time" if
    late rows are routed.

    See Also
    --------
    tumbling : aggregates over the rows of a period; `empty_for` for periods without rows.
    over : values of other rows, at each row.
    streamops.joins.asof : the values at the times of other rows.
    """
    where = "windows.resample"
    if not isinstance(values, Mapping):
        raise conditions.NOT_METHODS.error(got=f"values={values!r}")
    for name in values:
        require_name(name, parameter="values")
    parameters = ResampleSpec(
        operator=where,
        every=parse_duration(every, parameter="every", minimum=1),
        time=time,
        values=tuple(values.items()),
        max_gap=parse_duration(max_gap, parameter="max_gap", minimum=1),
        by=parse_names(by, parameter="by"),
        tie_break=parse_distinct_names(tie_break, parameter="tie_break", empty=True),
        delay=parse_optional_delay(delay, parameter="delay"),
        stragglers=stragglers,
    )
    return Operator(where, parameters, ResampleCore())
