"""Hopping windows."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence

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
from streamops.windows.core.grid import GridCore
from streamops.windows.core.grid_spec import FixedSpec, parse_origin
from streamops.windows.core.spec import Early, Stragglers, TooLate
from streamops.windows.native import NATIVE


def hopping(
    size: Duration,
    hop: Duration,
    *,
    time: str,
    agg: Mapping[str, Aggregation],
    by: str | Sequence[str] = (),
    delay: Duration | None = None,
    allowed_lateness: Duration = "0 seconds",
    stragglers: Stragglers = "drop",
    too_late: TooLate = "drop",
    early: Early = "never",
    empty_for: Duration | None = None,
    origin: Duration | dt.datetime = "0 seconds",
) -> Operator:
    """Aggregate over fixed windows that overlap.

    Window ``k`` is ``[origin + k * hop, origin + k * hop + size)``. An event lies in
    ``ceil(size / hop)`` windows, or in one fewer if `hop` does not divide `size`. It is aggregated
    once, into its pane; windows are unions of panes. A window is emitted once the watermark reaches
    its end.

    Input        `time`: timestamp (event time) · key columns: any type except map, null is a key ·
                 columns of the aggregates · duplicate rows count twice
    Output       key columns · window_start, window_end: timestamp, [start, end) · the aggregates ·
                 with corrections or `early`, revision: int, 0 for the first value · with `early`,
                 timing: string, "early", "on_time" or "late" · with "retract", _change_type: string ·
                 with routing, late: struct<side, reason, lateness, watermark, window, row>
    Output mode  append
    Watermark    defined by `delay`, or by the frame; Spark's own delay is delay + allowed_lateness
    State        per shard: one row per key and pane (at most two per hop) of windows that ended less
                 than delay (with corrections: + allowed_lateness) before the newest event · with
                 corrections or `early` one per window published again · one per key
                 for `empty_for` longer · beyond 65,536 per shard in segments, where a row may be
                 stored up to four times
    Order        any; ties matter only to `first` and `last`, which have a tie-break
    Batch        same result, without a watermark; no row is late

    Parameters
    ----------
    size : duration
        Length of a window, > 0: a ``timedelta`` or text such as "1 minute", without months or years.
    hop : duration
        Distance between the starts of two windows, 0 < hop <= size; at most 10,000 windows per event.
    time : str
        Event-time column, of type timestamp.
    by : str or sequence of str
        Key columns. By default, all rows are one group.
    agg : mapping of str to Aggregate
        Aggregates by output column. See :mod:`streamops.aggregates`.
    delay : duration, optional
        How far the watermark is behind the newest event, in whole milliseconds. Omit it if the
        frame has a watermark, whose delay must then be this delay plus `allowed_lateness`.
    allowed_lateness : duration
        With "update" and "retract", how long stragglers are accepted after the watermark has passed
        the end of their window, >= 0. Otherwise only metrics and ``late.reason`` depend on it.
    stragglers : "drop", "route", "update" or "retract"
        What happens to rows that arrive after the watermark has passed the end of their window.
        "drop" counts them. "route" emits them with a non-null ``late``, once per window that they missed.
        "update" emits the corrected result with a higher `revision`. "retract" emits a change stream.
    too_late : "drop" or "route"
        With "update" and "retract": what happens to rows that are later than `allowed_lateness`.
    early : "never" or "every batch"
        "every batch" emits open windows in every micro-batch that changes them, and again once they
        are on time: an upsert by key columns and window, or with "retract" a change stream.
        Each row changes ``size / hop`` windows.
    empty_for : duration, optional
        How long after its last window with rows a key has empty windows, up to 10,000: without rows,
        with a count of 0 and a sum of null. By default there are none.
    origin : duration or aware datetime
        Start of one window, with which all others are aligned. A duration counts from 1970-01-01 UTC.

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
    >>> moving = windows.hopping(
    ...     "3 hours", "1 hour", time="ts", by="page", agg={"views": agg.count()}, delay="30 seconds"
    ... )
    >>> views.transform(moving)
    DataFrame[page: string, window_start: timestamp, window_end: timestamp, views: bigint]

    Notes
    -----
    Rows with a null event time are counted as ``rejected``, and routed with the reason "null_time" if
    late rows are routed. Spark's watermark is never before 1970: earlier windows are emitted once it
    has passed 1970.

    See Also
    --------
    tumbling : windows that do not overlap.

    References
    ----------
    Kleppmann: "Designing Data-Intensive Applications", chapter 11, "Reasoning About Time".
    Akidau et al.: "The Dataflow Model", VLDB 2015.
    """
    where = "windows.hopping"
    distance = parse_duration(hop, parameter="hop", minimum=1)
    spec = FixedSpec(
        operator=where,
        size=parse_duration(size, parameter="size", minimum=1),
        hop=distance,
        origin=parse_origin(origin, distance),
        time=time,
        by=parse_names(by, parameter="by"),
        agg=parse_aggregates(agg),
        delay=parse_optional_delay(delay, parameter="delay"),
        allowed_lateness=parse_delay(allowed_lateness, parameter="allowed_lateness"),
        stragglers=stragglers,
        too_late=too_late,
        early=early,
        empty_for=parse_optional_duration(empty_for, parameter="empty_for", minimum=1),
    )
    return Operator(where, spec, GridCore(), native=NATIVE)
