"""Running aggregates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streamops.kernel.aggregation import Aggregation
from streamops.kernel.parameters import parse_aggregates, parse_names
from streamops.spark.operator import Operator
from streamops.windows.core.running import (
    DEFAULT_MAX_KEYS,
    Changes,
    RunningCore,
    RunningSpec,
    WhenFull,
)


def running(
    *,
    agg: Mapping[str, Aggregation],
    by: str | Sequence[str] = (),
    changes: Changes = "update",
    max_keys: int = DEFAULT_MAX_KEYS,
    when_full: WhenFull = "fail",
) -> Operator:
    """Aggregate over all rows so far, and emit every change of a value.

    There is no event time and no window: a row counts whenever it arrives, and no result is final.

    Input        key columns: any type except map, null is a key · columns of the aggregates · no
                 column _change_type · duplicate rows count twice
    Output       key columns · the aggregates · revision: int, 0 for the first value of a key · with
                 "retract" _change_type: string
    Output mode  append: an upsert by the key columns, or with "retract" a change stream
    Watermark    none
    State        per shard: one entry per key with the states of its aggregates; never evicted, at
                 most `max_keys` over all shards
    Order        rows may arrive in any order
    Batch        one row per key, with revision 0

    Parameters
    ----------
    agg : mapping of str to Aggregate
        Aggregates by output column: those of :mod:`streamops.aggregates`, except those that order rows
        by event time (`first`, `last`, `collect_list`), and all sketches of :mod:`streamops.sketches`.
    by : str or sequence of str
        Key columns. By default, all rows are one group.
    changes : "update" or "retract"
        How a changed value is emitted. "update": the new value, with `revision` one higher; an upsert
        by the key columns. "retract": the old value as an ``update_preimage`` and the new one as an
        ``update_postimage``, as a change stream.
    max_keys : int
        Maximum number of stored keys. Each shard stores up to ``max_keys / shards``, rounded up.
    when_full : "fail" or "reject_new"
        What happens to rows of further keys. "fail" fails the query with ``STATE_FULL``. "reject_new"
        counts them as ``ignored``.

    Returns
    -------
    Operator
        For use with ``DataFrame.transform``.

    Raises
    ------
    SpecError
        A parameter has the wrong type, is out of range or contradicts another; ``PARAMETER_MISSING``:
        an aggregate needs event time.
    SchemaError, ColumnNotFound
        A column does not exist or has the wrong type; or the frame is a change stream:
        ``CHANGE_STREAM_INPUT``, ``ROWS_REVISED``.
    CapacityError
        While the query runs: ``STATE_FULL``; or an aggregate exceeds its bound or its type.
    RequirementError
        The state API needs something that is missing.

    Examples
    --------
    >>> from streamops import aggregates as agg, windows
    >>> totals = windows.running(
    ...     by="page", agg={"views": agg.count(), "users": agg.approx_count_distinct("user_id")}
    ... )
    >>> views.transform(totals)
    DataFrame[page: string, views: bigint, users: struct<estimate:bigint,...>, revision: int]

    Notes
    -----
    The metrics of a query are ``rows``, ``ignored``, ``results``, ``corrections``, ``state_rows`` and
    ``state_bytes``.

    A sum of floats may differ in its last digits from that of a batch, because addition of floats is
    not associative.

    See Also
    --------
    tumbling : the same aggregates per window of event time, which have a final value.
    streamops.changes.aggregate : aggregates over a change stream, exact also after updates and
        deletes.

    References
    ----------
    Kleppmann: "Designing Data-Intensive Applications", chapter 11, "Stream analytics".
    """
    where = "windows.running"
    parameters = RunningSpec(
        operator=where,
        by=parse_names(by, parameter="by"),
        agg=parse_aggregates(agg),
        changes=changes,
        max_keys=max_keys,
        when_full=when_full,
    )
    return Operator(where, parameters, RunningCore())
