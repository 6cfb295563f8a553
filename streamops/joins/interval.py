"""Interval joins of two streams."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streamops.joins.core.interval import IntervalCore
from streamops.joins.core.interval_spec import (
    Early,
    How,
    IntervalSpec,
    Matches,
    Stragglers,
    TooLate,
)
from streamops.joins.core.join_spec import parse_keys, parse_times
from streamops.kernel.core import Input
from streamops.kernel.parameters import parse_delay, parse_delays
from streamops.kernel.time import Duration, parse_duration
from streamops.spark.columns import column
from streamops.spark.definition import KeyLimit, Native
from streamops.spark.operator import Operator

_JOIN_TYPES = {"semi": "left_semi", "anti": "left_anti"}
_PRESENT = "{}_is_present"
# With 500,000 searches an hour, the kernel takes 0.25 of the CPU time of Spark's join in micro-batches of
# 500,000 rows, and 0.38 in those of 60,000: benchmarks/results/README.md, run of 2026-11-23.
_KERNEL_IS_CHEAPER = KeyLimit(0, "Spark's own join was never cheaper")


def interval(
    right: DataFrame | None,
    lower: Duration,
    upper: Duration,
    *,
    by: str | Sequence[str] | Mapping[str, str],
    time: str | tuple[str, str],
    how: How = "inner",
    matches: Matches = "every",
    tie_break: str | None = None,
    delay: Duration | tuple[Duration | None, Duration | None] | None = None,
    allowed_lateness: Duration = "0 seconds",
    stragglers: Stragglers = "drop",
    too_late: TooLate = "drop",
    early: Early = "never",
    into: str = "status",
) -> Operator:
    """Join rows of two streams with the same key whose event times are close to one another.

    A left row ``l`` and a right row ``r`` match if their keys are equal and ``r.time`` lies in
    ``[l.time + lower, l.time + upper]``, both ends included. A row is final once the watermark has
    reached the last time at which it can have a partner, ``l.time + upper`` or ``r.time - lower``;
    if it never had one, it is expired.

    Input        `time` of both sides: timestamp (event time) · key columns of any type except maps,
                 of the same type on both sides (a null matches nothing) · `tie_break` of the right: a
                 type with an order · all other columns of any type
    Output       all columns of the left · all of the right except its keys, with the suffix "_right"
                 where the name is taken (semi, anti: none) · status: string, "matched", "expired",
                 "late_match" or "early" · with "retract" or `early` _change_type: string · where
                 rows may be routed late: struct<side, reason, lateness, watermark, window, row>
    Output mode  append
    Watermark    the lower one of both sides: defined by `delay`, or brought by the frames; Spark's own
                 delay is delay + allowed_lateness, and + upper (how="right": - lower) where that is
                 positive and `delay` is given, so that the next operator waits for delayed results
    State        per shard, while W is the watermark, less `allowed_lateness` with "retract": left
                 rows with time > W - upper, right rows with time > W + lower ("first" and "last":
                 > W + lower - max(upper, 0)); semi, anti: no left rows with a partner
    Order        rows may arrive in any order; where order matters, `tie_break` is required
    Batch        the relational join, no watermark needed, nothing is late

    Parameters
    ----------
    right : DataFrame, optional
        The right side; the left is the frame that is transformed, and may be the same one. Both are
        streams, or both are batches. None if the test kit provides both.
    lower, upper : duration
        From the left row's time to the earliest and the latest time of a partner; lower <= upper.
        Negative: the right row comes first.
    by : str, sequence of str, or mapping of str to str
        Key columns; if the names on the right differ, ``{"left name": "right name"}``.
    time : str, or tuple of (str, str)
        Event-time columns, of type timestamp, left and right.
    how : "inner", "left", "right", "full", "semi" or "anti"
        Which rows are emitted: pairs; in addition, rows of the left, the right, or both without a
        partner, once they are final; rows of the left alone that have a partner, or that have none.
    matches : "every", "first" or "last"
        Which partners a left row is joined with: all, or the one with the lowest or the highest time.
        "first" is emitted once the watermark has reached its time, "last" once it has reached
        ``l.time + upper``: before that another may arrive. A right row may be the first of many left
        rows. With "inner" and "left".
    tie_break : str, optional
        Column of the right that orders partners with the same time, the first (the lesser) and the
        last; a null is below all others. Required with "first" and "last". Rows that are equal in
        both are ordered by the other columns, by name.
    delay : duration, or tuple of two, optional
        How long results wait for rows of the left and of the right. Whole milliseconds. The
        operator then defines the watermark. Omitted on frames that have one: its delay less
        `allowed_lateness`.
    allowed_lateness : duration
        How much longer stragglers are accepted, >= 0.
    stragglers : "drop", "route" or "retract"
        What happens to a row that is not above the watermark. "drop": not joined, counted. "route":
        not joined, emitted as a row with a non-null ``late``. "retract": joined; a match with a row
        that was final has the status "late_match", and earlier results of that row are retracted: the
        output is a change stream.
    too_late : "drop" or "route"
        With "retract": what happens beyond the allowed lateness.
    early : "never" or "every batch"
        "every batch": the preliminary result of a row that is not final is emitted at once, with the
        status "early", and retracted when it changes: a row without a partner with nulls, with
        "first" and "last" also the partner so far.
    into : str
        Name of the status column.

    Returns
    -------
    Operator
        For use with ``DataFrame.transform`` on the left frame. Spark's own join,
        ``.options(engine="native")``, supports "every" match without corrections, early results and
        routing, and on streams no "anti" and no `allowed_lateness`; "auto" is the kernel.

    Raises
    ------
    SpecError
        A parameter has the wrong type, is out of range or contradicts another; `right` is missing.
    SchemaError, ColumnNotFound
        A column does not exist, has the wrong type, or has no free name in the output;
        ``ROWS_REVISED``: a side has results that revise others.
    WatermarkError
        A streaming frame without a watermark on its `time` and no `delay`, or both.
    RequirementError
        The state API needs something that is not installed or configured.

    Examples
    --------
    Which searches were clicked on within an hour, and which were not:

    >>> from streamops import joins
    >>> clicked = joins.interval(
    ...     clicks, "0 seconds", "1 hour", by="query_id", time=("searched_at", "clicked_at"),
    ...     how="left", matches="first", tie_break="click_id", delay="5 minutes",
    ... )
    >>> searches.transform(clicked)
    DataFrame[query_id: string, searched_at: timestamp, clicked_at: timestamp, click_id: bigint,
    status: string]

    Notes
    -----
    The watermark is the lower one of both sides: a side without new rows delays expired rows, and the
    state of the other side grows until it continues.

    Spark's watermark starts at 1970: rows that expire before are emitted once it has passed 1970.

    Rows with a null event time are counted as ``rejected``, and are part of the side output where rows
    are routed, with the reason "null_time". Rows with a null key match nothing, and expire.

    Equal rows are not merged: each of them is joined.

    The next operator in the same query finds a watermark on the left's `time` (how="right": on the
    right's). There is none with "full", nor where frames bring a watermark of their own and the
    "+ upper" of the card is positive, as results may then lie behind any watermark. The next operator
    may allow at most the `allowed_lateness` of the join.

    See Also
    --------
    streamops.windows.session : the activity of one user, as one row.

    References
    ----------
    Kleppmann: "Designing Data-Intensive Applications", chapter 11, "Stream-stream join".
    """
    parameters = IntervalSpec(
        lower=parse_duration(lower, parameter="lower"),
        upper=parse_duration(upper, parameter="upper"),
        by=parse_keys(by),
        time=parse_times(time),
        how=how,
        matches=matches,
        tie_break=tie_break,
        delay=parse_delays(delay),
        allowed_lateness=parse_delay(allowed_lateness, parameter="allowed_lateness"),
        stragglers=stragglers,
        too_late=too_late,
        early=early,
        into=into,
    )
    return Operator(
        "joins.interval", parameters, IntervalCore(), right=right, native=Native(_limit, _build)
    )


def _limit(left: DataFrame, right: DataFrame, spec: IntervalSpec) -> KeyLimit | None:
    """Spark joins every match, drops late rows, and has no corrections and no anti join of streams."""
    differs = spec.attributes or spec.routes or spec.is_change_stream
    if left.isStreaming:
        differs = differs or spec.how == "anti" or spec.allowed_lateness > 0
    return None if differs else _KERNEL_IS_CHEAPER


def _build(left: DataFrame, right: DataFrame, spec: IntervalSpec) -> DataFrame:
    """The same result by Spark's own join."""
    left_rows = _rename(left, spec.left, "left")
    right_rows = _rename(right, spec.right, "right")
    both = left_rows.join(right_rows, _condition(spec), _JOIN_TYPES.get(spec.how, spec.how))
    return both.select(*_columns(spec))


def _rename(frame: DataFrame, side: Input, name: str) -> DataFrame:
    """The columns that are read, under names that the other side does not have."""
    columns = [column(own).alias(f"{name}_{i}") for i, own in enumerate(side.schema.names)]
    rows = frame.select(*columns, F.lit(True).alias(_PRESENT.format(name)))
    if not frame.isStreaming or side.delay is None:
        return rows
    assert side.time is not None
    return rows.withWatermark(_column(side, name, side.time), f"{side.delay // 1_000} milliseconds")


def _column(side: Input, name: str, own: str) -> str:
    return f"{name}_{side.schema.names.index(own)}"


def _condition(spec: IntervalSpec) -> Column:
    condition = F.lit(True)
    for ours, theirs in spec.by:
        condition &= F.col(_column(spec.left, "left", ours)) == F.col(
            _column(spec.right, "right", theirs)
        )
    time = F.col(_column(spec.left, "left", spec.time[0]))
    partner = F.col(_column(spec.right, "right", spec.time[1]))
    lower, upper = (F.lit(dt.timedelta(microseconds=m)) for m in (spec.lower, spec.upper))
    return condition & (partner >= time + lower) & (partner <= time + upper)


def _columns(spec: IntervalSpec) -> list[Column]:
    """The columns of the output."""
    keys = dict(spec.by)
    columns = []
    for name in spec.left.schema.names:
        value = F.col(_column(spec.left, "left", name))
        if name in keys and spec.preserves("right"):
            value = F.coalesce(value, F.col(_column(spec.right, "right", keys[name])))
        columns.append(value.alias(name))
    if spec.joins:
        for own, name in spec.names.right:
            columns.append(F.col(_column(spec.right, "right", own)).alias(name))
        both = F.col(_PRESENT.format("left")) & F.col(_PRESENT.format("right"))
        status = F.when(both, "matched").otherwise("expired")
    else:
        status = F.lit("expired" if spec.how == "anti" else "matched")
    return [*columns, status.alias(spec.into)]
