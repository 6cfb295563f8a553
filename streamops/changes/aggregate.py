"""Aggregate a change stream by key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streamops.aggregates import Aggregate
from streamops.changes.core.aggregate import AggregateCore, AggregateSpec, Rejected
from streamops.kernel.aggregation import Aggregation
from streamops.kernel.parameters import parse_names, require_aggregates
from streamops.spark.operator import Operator


def aggregate(
    *,
    by: str | Sequence[str] = (),
    agg: Mapping[str, Aggregation],
    rejected: Rejected = "drop",
) -> Operator:
    """Aggregate a table that changes, and emit the changes of the aggregates.

    After each micro-batch the published changes fold to the aggregates of the table that the input
    folds to: an insert or a postimage adds its row, a delete or a preimage retracts it. A group exists
    while it has rows.

    Input        _change_type: string, "insert", "update_preimage", "update_postimage" or "delete"; an
                 update as its two images, a delete with the values of its row · key columns of any
                 type without a map in it (null is a key) · columns that the aggregates read
    Output       key columns · the aggregates · _change_type: string: "insert" for a new group, the
                 two images where a value changes, "delete" for a group without rows · if rejected
                 rows are routed: rejected: struct<reason, row>, null in a change
    Output mode  append
    Watermark    none is needed
    State        per group with rows: a counter, and 8 to 24 bytes for each count, sum or mean of
                 integers or decimals, about 70 for one of doubles. Other aggregates also store the
                 distinct rows, with the columns that they read. Deletes whose insert has not arrived
    Order        changes may arrive in any order, each once. A delete that arrives before its insert
                 counts as minus one row; no published count is below 0. Retractions are emitted first
    Batch        the aggregates of the table that the changes fold to, as inserts

    Parameters
    ----------
    by : str or sequence of str
        Key columns. Without any, there is one group.
    agg : mapping of str to aggregate
        Names and aggregates. ``count``, ``sum`` and ``mean`` are stored as totals. A sum of doubles is
        the double nearest to the exact sum of the current values. For ``min``, ``max``, ``top``,
        ``count_distinct``, ``percentile``, ``variance``, ``stddev``, and your own aggregates, rows are
        stored, and each changed group is computed again. Sketches are refused, as rows cannot be
        retracted from them, and so are ``first``, ``last`` and ``collect_list``, which need event time.
    rejected : "drop" or "route"
        What happens to a row whose _change_type is not one of the four, such as a truncate: it is
        counted, and dropped or emitted for :func:`streamops.split_side_output`. The reason is
        "unknown_operation", or that of an earlier operator in the column ``rejected`` or ``late``.
        Use ``normalize`` before this operator if the stream has truncates.

    Returns
    -------
    Operator
        For use with ``DataFrame.transform``.

    Raises
    ------
    SpecError
        ``PARAMETER_MISSING``, ``NOT_AN_AGGREGATE``, ``PARAMETER_TYPE``, ``NAME_TAKEN``,
        ``UNKNOWN_CHOICE`` or ``PARAMETER_OUT_OF_RANGE``.
    SchemaError, ColumnNotFound
        A column does not exist or has the wrong type: ``FRAME_TYPE``, ``COLUMN_TYPE``,
        ``TYPE_UNSUPPORTED``; or an aggregate is a sketch: ``CHANGE_STREAM_INPUT``. The frame has
        updates without the row before: ``CHANGE_STREAM_INPUT``.
    CapacityError
        While the query runs: ``NUMERIC_OVERFLOW``, or ``STATE_FULL`` of an aggregate with a bound.

    Examples
    --------
    >>> from streamops import aggregates as agg
    >>> from streamops import changes
    >>> from streamops.testing import replay
    >>> totals = changes.aggregate(by="city", agg={"orders": agg.count(), "paid": agg.sum("paid")})
    >>> script = [
    ...     [{"city": "Ulm", "paid": 5, "_change_type": "insert"}],
    ...     [{"city": "Ulm", "paid": 7, "_change_type": "insert"}],
    ...     [{"city": "Ulm", "paid": 5, "_change_type": "delete"}],
    ... ]
    >>> for result in replay(totals, script):
    ...     print([(row["orders"], row["paid"], row["_change_type"]) for row in result.rows])
    [(1, 5, 'insert')]
    [(1, 5, 'update_preimage'), (2, 12, 'update_postimage')]
    [(2, 12, 'update_preimage'), (1, 7, 'update_postimage')]

    Notes
    -----
    Metrics: `rows`, `rejected`, `results`, `corrections`, `state_rows`, `state_bytes`.

    See Also
    --------
    streamops.split_side_output : split changes and rejected rows.
    streamops.joins.tables : the join of two tables that change, whose output this operator reads.
    streamops.windows.tumbling : aggregates of events, which are never retracted, per window.

    References
    ----------
    Gupta, Mumick, Subrahmanian: "Maintaining Views Incrementally", SIGMOD 1993.
    Kleppmann: "Designing Data-Intensive Applications", chapter 11, "Maintaining materialized views".
    """
    require_aggregates(agg)
    spec = AggregateSpec(
        by=parse_names(by, parameter="by"),
        agg=tuple(agg.items()),
        functions=tuple(
            value.function if isinstance(value, Aggregate) else "" for value in agg.values()
        ),
        rejected=rejected,
    )
    return Operator("changes.aggregate", spec, AggregateCore())
