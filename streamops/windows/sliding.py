"""Sliding windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streamops.kernel.aggregation import Aggregation
from streamops.kernel.parameters import (
    parse_aggregates,
    parse_delay,
    parse_names,
    parse_optional_delay,
)
from streamops.kernel.time import Duration, parse_duration
from streamops.spark.operator import Operator
from streamops.windows.core.sliding import SlidingCore
from streamops.windows.core.sliding_spec import SlidingSpec
from streamops.windows.core.spec import Early, Stragglers, TooLate
from streamops.windows.native import NATIVE


def sliding(
    size: Duration,
    *,
    time: str,
    agg: Mapping[str, Aggregation],
    by: str | Sequence[str] = (),
    delay: Duration | None = None,
    allowed_lateness: Duration = "0 seconds",
    stragglers: Stragglers = "drop",
    too_late: TooLate = "drop",
    early: Early = "never",
) -> Operator:
    """Aggregate over the time up to each event, such as "the last ten minutes, at each event".

    The result of an event at ``t`` covers the events of its key in ``(t - size, t]``: an event exactly
    `size` older is outside. It is emitted once the watermark reaches ``t``.

    There is one result per key and *distinct event time*: events of a key at the same instant have the
    same window. To add the result to the events, join by the keys and the event time, in a batch or in
    the table that the results are written to: ``events.join(results, ["user", "ts"])``, if keys are not
    null.

    Input        `time`: timestamp (event time) · key columns: any type except map, null is a key ·
                 columns of the aggregates · duplicate rows count twice
    Output       key columns · the event time, a timestamp with the name of `time` · the aggregates ·
                 with corrections or `early`, revision: int, 0 for the first value · with `early`,
                 timing: string, "early", "on_time" or "late" · with "retract", _change_type: string ·
                 with routing, late: struct<side, reason, lateness, watermark, window, row>, with the event
                 time of the row
    Output mode  append
    Watermark    defined by `delay`, or by the frame; Spark's own delay is delay + allowed_lateness
    State        per shard: one row per key and distinct event time less than delay + size (with
                 corrections: + allowed_lateness) older than the newest event · with corrections or
                 `early` one per result published again, for delay (+ allowed_lateness)
    Order        any; ties matter only to `first` and `last`, which have a tie-break
    Batch        same result, without a watermark; no row is late

    Parameters
    ----------
    size : duration
        Length of a window, > 0: a ``timedelta`` or text such as "10 minutes", without months or years.
    time : str
        Event-time column, of type timestamp. Not one of `by`.
    agg : mapping of str to Aggregate
        Aggregates by output column. See :mod:`streamops.aggregates`.
    by : str or sequence of str
        Key columns. By default, all rows are one group.
    delay : duration, optional
        How far the watermark is behind the newest event, in whole milliseconds. Omit it if the
        frame has a watermark, whose delay must then be this delay plus `allowed_lateness`.
    allowed_lateness : duration
        How long stragglers are accepted after the watermark has passed, >= 0.
    stragglers : "drop", "route", "update" or "retract"
        What happens to rows that arrive after the watermark has reached their event time. "drop"
        counts them. "route" emits them with a non-null ``late``. "update" emits the result at their
        event time, and the changed results less than `size` later with a higher `revision`. "retract"
        emits the same as a change stream.
    too_late : "drop" or "route"
        With "update" and "retract": what happens to rows that are later than `allowed_lateness`.
    early : "never" or "every batch"
        "every batch" emits results ahead of the watermark in every micro-batch that changes them, and
        again once they are on time: an upsert by key columns and event time, or with "retract" a
        change stream.

    Returns
    -------
    Operator
        For use with ``DataFrame.transform``.

    Raises
    ------
    SpecError
        A parameter has the wrong type, is out of range or contradicts another. ``PARAMETER_MISSING``:
        "update" or "retract" without `allowed_lateness` or `early`.
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
    >>> spent = windows.sliding(
    ...     "1 hour", time="ts", by="card", agg={"spent": agg.sum("amount")}, delay="10 seconds"
    ... )
    >>> payments.transform(spent)
    DataFrame[card: string, ts: timestamp, spent: decimal(20,2)]

    Notes
    -----
    Rows with a null event time are counted as ``rejected``, and routed with the reason "null_time" if
    late rows are routed. Spark's watermark starts in 1970: earlier results are emitted after it has
    passed 1970.

    Pass the event time to ``split_side_output(batch, time="ts")``.

    See Also
    --------
    hopping : windows at fixed intervals instead of at each event.

    References
    ----------
    Kleppmann: "Designing Data-Intensive Applications", chapter 11, "Types of windows".
    Tangwongsan, Hirzel, Schneider: "Optimal and General Out-of-Order Sliding-Window Aggregation",
    VLDB 2019.
    """
    where = "windows.sliding"
    spec = SlidingSpec(
        operator=where,
        size=parse_duration(size, parameter="size", minimum=1),
        time=time,
        by=parse_names(by, parameter="by"),
        agg=parse_aggregates(agg),
        delay=parse_optional_delay(delay, parameter="delay"),
        allowed_lateness=parse_delay(allowed_lateness, parameter="allowed_lateness"),
        stragglers=stragglers,
        too_late=too_late,
        early=early,
    )
    return Operator(where, spec, SlidingCore(), native=NATIVE)
