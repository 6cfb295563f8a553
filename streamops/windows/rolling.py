"""Rolling aggregates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streamops.kernel.aggregation import Aggregation
from streamops.kernel.parameters import (
    parse_aggregates,
    parse_names,
    parse_optional_delay,
    require_name,
)
from streamops.kernel.time import Duration, parse_duration
from streamops.spark.operator import Operator
from streamops.windows import conditions
from streamops.windows.core.rolling import Late, RollingCore, RollingSpec


def rolling(
    every: Duration,
    horizons: Mapping[str, Duration],
    *,
    time: str,
    agg: Mapping[str, Aggregation],
    by: str | Sequence[str] = (),
    delay: Duration | None = None,
    stragglers: Late = "drop",
) -> Operator:
    """Aggregate over several horizons, such as the last hour and the last 30 days, when a value changes.

    At each multiple ``t`` of `every`, the value of a horizon is the aggregate over the rows of a key in
    ``[t - horizon, t)``. The row of a key at ``t`` is emitted if one of its values differs from that at
    ``t - every``: because rows arrived, or because rows are older than a horizon now. A value is never
    corrected. At any time, the newest row of a key up to it has its values.

    Input        `time`: timestamp (event time) · key columns: any type except map, null is a key ·
                 columns of the aggregates · duplicate rows count twice
    Output       key columns · window_end: timestamp, the end of all horizons, exclusive · per horizon and
                 aggregate a column <aggregate>_<horizon> · with routing, late: struct<side, reason,
                 lateness, watermark, window, row>
    Output mode  append
    Watermark    defined by `delay`, or by the frame
    State        per shard: one row per key and multiple of `every` with rows, for the longest horizon and
                 2 * `every` more · with aggregates over floats and with sketches whose result depends on
                 the order of rows, also the rows of the last `every` + `delay`
    Order        any; ties matter only to `first` and `last`, which have a tie-break
    Batch        same result, bit for bit, without a watermark; no row is late

    Parameters
    ----------
    every : duration
        How often values can change, > 0: a ``timedelta`` or text such as "10 minutes". It is counted from
        1970-01-01 UTC. A row counts from the next multiple on, and expires at one.
    horizons : mapping of str to duration
        Horizons by the end of the names of their columns, each a multiple of `every`.
    time : str
        Event-time column, of type timestamp.
    agg : mapping of str to Aggregate
        Aggregates by the start of the names of their columns. See :mod:`streamops.aggregates`.
    by : str or sequence of str
        Key columns. By default, all rows are one group.
    delay : duration, optional
        How far the watermark is behind the newest event, in whole milliseconds. Omit it if the
        frame has a watermark.
    stragglers : "drop" or "route"
        What happens to rows that arrive after the watermark has passed the next multiple of `every`: the
        values with them would have been emitted. "drop" counts them. "route" emits them with a non-null
        ``late``. They count in no horizon.

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
    >>> from streamops import aggregates as agg, windows
    >>> features = windows.rolling(
    ...     "10 minutes",
    ...     {"1h": "1 hour", "30d": "30 days"},
    ...     time="ts",
    ...     by="page",
    ...     agg={"views": agg.count()},
    ...     delay="30 seconds",
    ... )
    >>> views.transform(features)
    DataFrame[page: string, window_end: timestamp, views_1h: bigint, views_30d: bigint]

    Notes
    -----
    A key has at most one row per multiple of `every`, and its rows in one multiple cause at most one row
    when they arrive and one per horizon when they expire. The last row of a key without rows in any
    horizon has the values of no rows, such as a count of 0. A key without an emitted row has these values.

    For a training set, join the labelled rows with the output by :func:`streamops.joins.asof`.

    Rows with a null event time are counted as ``rejected``, and routed with the reason "null_time" if
    late rows are routed.

    See Also
    --------
    hopping : all windows of one size, also if nothing changed.
    sliding : a value at each event.
    streamops.joins.asof : the values at other times.
    """
    where = "windows.rolling"
    pane = parse_duration(every, parameter="every", minimum=1)
    if not isinstance(horizons, Mapping):
        raise conditions.NO_HORIZON.error(got=f"horizons={horizons!r}")
    for name in horizons:
        require_name(name, parameter="horizons")
    lengths = (
        (name, parse_duration(length, parameter=f"horizons[{name!r}]", minimum=1))
        for name, length in horizons.items()
    )
    parameters = RollingSpec(
        operator=where,
        every=pane,
        horizons=tuple(lengths),
        time=time,
        by=parse_names(by, parameter="by"),
        agg=parse_aggregates(agg),
        delay=parse_optional_delay(delay, parameter="delay"),
        allowed_lateness=0,
        stragglers=stragglers,
        too_late="drop",
    )
    return Operator(where, parameters, RollingCore())
