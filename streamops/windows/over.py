"""Values of the rows before and after a row."""

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
from streamops.windows.core.over import OverCore, OverSpec, RowFunction


def lag(column: str, offset: int = 1) -> RowFunction:
    """Return the column of an earlier row of the key, also if it is null.

    Parameters
    ----------
    column : str
        A column of any type.
    offset : int
        How many rows before: 1 is the row directly before.

    Examples
    --------
    >>> lag("price"), lag("price", 2)
    (lag('price'), lag('price', 2))
    """
    return _function(RowFunction("lag", column, offset))


def lead(column: str, offset: int = 1) -> RowFunction:
    """Return the column of a later row of the key, also if it is null; as :func:`lag`.

    The row waits for the later one, at most `within`.
    """
    return _function(RowFunction("lead", column, offset))


def difference(column: str, offset: int = 1) -> RowFunction:
    """Subtract the number of an earlier row: of integers a ``bigint``, of floats a ``double``.

    Of ``decimal(p,s)`` it is a ``decimal(p+1,s)``. It is null if one of both is null. An integer or decimal
    that does not fit is an error.
    """
    return _function(RowFunction("difference", column, offset))


def rate(column: str, offset: int = 1, *, per: Duration = "1 second") -> RowFunction:
    """Divide the :func:`difference` by the time between both rows: ``double``.

    It is null if both rows have the same event time.

    Parameters
    ----------
    column : str
        A column of numbers.
    offset : int
        How many rows before: 1 is the row directly before.
    per : duration
        The unit of time, > 0.

    Examples
    --------
    >>> rate("bytes"), rate("meter", per="1 hour")
    (rate('bytes', per='1 second'), rate('meter', per='1 hour'))
    """
    length = parse_duration(per, parameter="per", minimum=1)
    return _function(RowFunction("rate", column, offset, length))


def ewma(column: str, *, half_life: Duration) -> RowFunction:
    """Return the exponentially weighted moving average: ``double``.

    It is the mean over the row and the earlier rows of its key, where the weight of a value halves with
    every `half_life` between its event time and that of the row. A null has no weight, and the average is
    null before the first value. NaN and infinities stay in the average. After more than `within` without a
    row it begins anew.

    Parameters
    ----------
    column : str
        A column of numbers.
    half_life : duration
        > 0, in event time.
    """
    length = parse_duration(half_life, parameter="half_life", minimum=1)
    return _function(RowFunction("ewma", column, length=length))


def _function(of: RowFunction) -> RowFunction:
    require_name(of.column, parameter="column")
    return of


def over(
    *,
    time: str,
    values: Mapping[str, RowFunction],
    within: Duration,
    by: str | Sequence[str] = (),
    tie_break: str | Sequence[str] = (),
    delay: Duration | None = None,
    stragglers: Late = "drop",
) -> Operator:
    """Add values of the rows before and after to each row, as SQL's ``lag(v) OVER (PARTITION BY k ORDER BY t)``.

    The rows of a key are ordered by event time. :func:`lag` and :func:`lead` return columns of an earlier or
    later row, :func:`difference` and :func:`rate` compare with an earlier row, and :func:`ewma` is an
    average over the earlier rows.

    Input        `time`: timestamp (event time) · key columns: any type except map, null is a key ·
                 columns of the functions · duplicate rows count twice
    Output       all columns of the row · the values · with routing, late: struct<side, reason, lateness,
                 watermark, window, row>
    Output mode  append
    Watermark    defined by `delay`, or by the frame; with `lead`, Spark's own delay is delay + within
    State        per shard: the rows above the watermark · per key the last rows of the last `within`, as
                 many as the greatest offset
    Order        rows may arrive in any order; rows with the same event time are ordered by `tie_break`,
                 then by all other columns
    Batch        same result, bit for bit, without a watermark; no row is late

    Parameters
    ----------
    time : str
        Event-time column, of type timestamp; of results of windows, ``window_end``.
    values : mapping of str to function
        The values by output column: :func:`lag`, :func:`lead`, :func:`difference`, :func:`rate`, :func:`ewma`.
    within : duration
        How far the event times of rows that see each other are apart at most, > 0, inclusive. A row that is
        farther counts as none: then `lag`, `lead`, `difference` and `rate` are null.
    by : str or sequence of str
        Key columns. By default, all rows are one sequence.
    tie_break : str or sequence of str
        Columns that order rows with the same event time, least first, null before everything.
    delay : duration, optional
        How far the watermark is behind the newest event, in whole milliseconds. Omit it if the
        frame has a watermark, whose delay must then be at least `within` if there is a `lead`.
    stragglers : "drop" or "route"
        What happens to rows that arrive after the watermark has reached their event time. "drop" counts
        them, "route" emits them with a non-null ``late``. No other row sees them: emitted values are never
        corrected.

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
    CapacityError
        While the query runs: ``NUMERIC_OVERFLOW``, a difference does not fit into its type.
    RequirementError
        The state API requires RocksDB or protobuf, which is missing.

    Examples
    --------
    >>> from streamops import windows
    >>> trend = windows.over(
    ...     time="ts",
    ...     by="sensor",
    ...     values={
    ...         "previous": windows.lag("value"),
    ...         "per_minute": windows.rate("value", per="1 minute"),
    ...         "smooth": windows.ewma("value", half_life="5 minutes"),
    ...     },
    ...     within="1 hour",
    ...     delay="30 seconds",
    ... )
    >>> readings.transform(trend)
    DataFrame[sensor: string, ts: timestamp, value: double, previous: double, per_minute: double, smooth: double]

    Notes
    -----
    A row is emitted once the watermark reaches its event time. With `lead`, it also waits until the watermark
    reaches that later row, or is `within` behind the row.

    The weight of a value in an average that is more than 128 half-lives old may be 0. A sum of values
    beyond 1e288 may be infinite.

    Rows with a null event time are counted as ``rejected``, and routed with the reason "null_time" if
    late rows are routed.

    See Also
    --------
    sliding : aggregates over the time before each row.
    streamops.patterns.match : conditions over several rows.
    """
    where = "windows.over"
    if not isinstance(values, Mapping):
        raise conditions.NOT_A_FUNCTION.error(name="values", got=f"values={values!r}")
    given: Mapping[str, object] = values
    for name, value in given.items():
        require_name(name, parameter="values")
        if not isinstance(value, RowFunction):
            got = f"{value!r} of type {type(value).__name__}"
            raise conditions.NOT_A_FUNCTION.error(name=name, got=got)
    parameters = OverSpec(
        operator=where,
        time=time,
        values=tuple(values.items()),
        within=parse_duration(within, parameter="within", minimum=1),
        by=parse_names(by, parameter="by"),
        tie_break=parse_distinct_names(tie_break, parameter="tie_break", empty=True),
        delay=parse_optional_delay(delay, parameter="delay"),
        stragglers=stragglers,
    )
    return Operator(where, parameters, OverCore())
