"""Sliding windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streamops.kernel.aggregation import Aggregation
from streamops.kernel.parameters import parse_delay, parse_names
from streamops.kernel.time import Duration, parse_duration
from streamops.spark.operator import Operator
from streamops.windows.core import sliding as core
from streamops.windows.core.sliding_spec import SlidingSpec
from streamops.windows.core.spec import (
    Early,
    Stragglers,
    TooLate,
    parse_aggregates,
    parse_optional_delay,
)
from streamops.windows.native import native

__all__ = ["sliding"]


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
    """Aggregates per key over the time up to each event: "of the last ten minutes, at each event".

    The result of an event at ``t`` is the aggregate over the events of its key in
    ``(t - size, t]``: itself, all others of that instant, and what is less than `size` older; an
    event exactly `size` older is outside. It is published once the watermark reaches ``t``.

    There is one result for each key and *distinct event time*: two events of a key at the same
    instant have the same window, and so the same result, and nothing but their event time could
    tell two results apart. To put the result beside the events, join by the keys and the event
    time: in a batch, or in the table that the results are written to,
    ``events.join(results, ["user", "ts"])``, where keys are not null.

    Input        `time`: timestamp (event time) · key columns of any type but maps (null is a key) ·
                 what the aggregates read · a row that is delivered twice counts twice: drop
                 duplicates before
    Output       key columns · the event time, a timestamp under the name of `time` · the aggregates ·
                 with corrections or `early` revision: int (0 is the value published first, and
                 on time unless `early`) · with `early` timing: string, "early", "on_time" or "late"
                 · with "retract" _change_type: string · where rows may be routed late:
                 struct<reason, lateness, watermark, row>; in a late row the event time is that of
                 the row, null where none is usable
    Output mode  append
    Watermark    defined by `delay`, or brought by the frame; Spark's own delay is
                 delay + allowed_lateness
    State        per shard: one entry per key and distinct event time less than delay + size (with
                 corrections: and allowed_lateness) older than the newest event; with corrections
                 or `early` one per result that was published again and is less than delay (with
                 corrections: + allowed_lateness) older
    Order        rows may come in any order; ties matter only to first and last, which ask for a
                 tie-break
    Batch        same rows out, no watermark needed, nothing is late

    Parameters
    ----------
    size : duration
        How far a window reaches back from its event, > 0: a ``timedelta`` or "10 minutes". Months
        and years are refused.
    time : str
        Event-time column, of type timestamp. Not one of `by`.
    agg : mapping of str to Aggregate
        What to compute, under which name. See :mod:`streamops.aggregates`.
    by : str or sequence of str
        Key columns. Left out: one group for all rows.
    delay : duration, optional
        How long a result waits for rows before it is called on time. Whole milliseconds. The
        operator then defines the watermark. Left out on a frame that has one: its delay less
        `allowed_lateness`.
    allowed_lateness : duration
        How much longer stragglers are accepted, >= 0.
    stragglers : "drop", "route", "update" or "retract"
        What happens to a row whose event time the watermark had reached when it came. "drop": not
        in the result, counted. "route": not in the result, delivered as a row with a non-null
        ``late``. "update": it makes or changes the result of its own event time, and changes those
        of its key less than `size` later; those already published whose values differ are
        published again with `revision` one higher. "retract": the old values are taken back and
        the new ones published, as a change stream.
    too_late : "drop" or "route"
        With "update" and "retract": what happens beyond the allowed lateness.
    early : "never" or "every batch"
        "every batch": a result whose event the watermark has not reached yet is published in every
        micro-batch whose rows change it, and once more when it is on time. An upsert by key columns
        and event time; with "retract" a change stream.

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
    >>> spent = windows.sliding(
    ...     "1 hour", time="ts", by="card", agg={"spent": agg.sum("amount")}, delay="10 seconds"
    ... )
    >>> payments.transform(spent)  # doctest: +SKIP
    DataFrame[card: string, ts: timestamp, spent: decimal(20,2)]

    Notes
    -----
    Rows with a null event time are counted as ``rejected``, and delivered with the reason
    "null_time" where late rows are. Spark's watermark starts at 1970: results before it come out
    once the watermark has passed 1970.

    Pass the event time to ``split_side_output(batch, time="ts")``.

    See Also
    --------
    hopping : windows on a grid, for a figure at a fixed pace and not at each event.

    References
    ----------
    Kleppmann: "Designing Data-Intensive Applications", chapter 11, "Types of windows".
    Tangwongsan, Hirzel, Schneider: "Optimal and General Out-of-Order Sliding-Window Aggregation",
    VLDB 2019.
    """
    where = "windows.sliding"
    spec = SlidingSpec(
        operator=where,
        size=parse_duration(size, parameter="size", where=where, minimum=1),
        time=time,
        by=parse_names(by, parameter="by", where=where),
        agg=parse_aggregates(agg, where=where),
        delay=parse_optional_delay(delay, where=where),
        allowed_lateness=parse_delay(allowed_lateness, parameter="allowed_lateness", where=where),
        stragglers=stragglers,
        too_late=too_late,
        early=early,
    )
    return Operator(where, spec, core, native=native)
