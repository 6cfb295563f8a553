"""Aggregates per group over a change stream, right after deletes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from streamops.changes.aggregate_settings import AggregateSettings
from streamops.changes.core import aggregate as core
from streamops.changes.core.aggregate_spec import Rejected
from streamops.kernel.contract import Aggregation
from streamops.spark.running import RunningTransform
from streamops.spark.transform import DEFAULT_SHARDS, Options, StateApi

__all__ = ["aggregate"]


def aggregate(
    *,
    by: str | Sequence[str] = (),
    agg: Mapping[str, Aggregation],
    rejected: Rejected = "drop",
    state_api: StateApi = "auto",
    shards: int = DEFAULT_SHARDS,
    name: str | None = None,
) -> RunningTransform:
    """Counts, sums and other aggregates of a table that changes, as a change stream.

    After each micro-batch the published changes fold to the aggregates of the table that the input
    folds to: a row that is inserted, or is the image after an update, counts; one that is deleted, or
    is the image before it, no longer does. A group is there as long as it has rows.

    Input        _change_type: string, "insert", "update_preimage", "update_postimage" or "delete", an
                 update as its two images, a delete with the values of its row · key columns of any
                 type without a map in it (null is a key) · columns that the aggregates read
    Output       key columns · the aggregates · _change_type: string: "insert" for a new group, the
                 two images where a value changes, "delete" for a group that has no row any more ·
                 where rejected rows are routed: rejected: struct<reason, row>, null in a change
    Output mode  append
    Watermark    none is needed
    State        per group that has rows: a counter, 8 to 24 bytes for each count, sum or mean of
                 integers or decimals, some 70 for one of doubles; with other aggregates also the
                 rows of the table, of the columns that these read, equal ones once. And deletes whose
                 insert has not come yet
    Order        changes may come in any order; each once. While a delete is ahead of its insert, its
                 group has a row too few, and no count is told below 0. In a shard, what goes is told
                 before what comes
    Batch        the aggregates of the table that the changes fold to, as inserts

    Parameters
    ----------
    by : str or sequence of str
        Key columns. None: one group.
    agg : mapping of str to aggregate
        What to compute, under which name. ``count``, ``sum`` and ``mean`` are kept as totals; sums of
        doubles without rounding, so that they are the double nearest to the sum of the values that
        are there, whatever came and went, NaN and infinities included. For ``min``, ``max``, ``top``,
        ``distinct``, ``quantile``, ``quantiles``, ``variance``, ``stddev``, and aggregates of your
        own, rows are kept, and of each group that changes they are computed again: their cost is that
        of the group. Sketches cannot forget and are refused, as are ``first``, ``last`` and
        ``collect``, which go by event time.
    rejected : "drop" or "route"
        What happens to a row whose _change_type is no word of a change stream: dropped, or delivered
        as a row of its own, whole, to be told apart by :func:`split_rejected`; counted in either
        case. Reason: "unknown_operation"; of a row that an operator before put aside, in its column
        ``rejected`` or ``late``, the one it had.
    state_api : "auto", "applyInPandasWithState" or "transformWithStateInPandas"
        Spark's interface to state. "auto" is the second, which needs RocksDB and lets operators be
        chained.
    shards : int
        Pieces that the keys are spread over. Belongs to the checkpoint.
    name : str
        Under which the counts appear in the query's ``observedMetrics``: `rows`, `rejected`,
        `results`, `corrections`, `state_rows`, `state_bytes`.

    Returns
    -------
    RunningTransform
        For use with ``DataFrame.transform``.

    Raises
    ------
    SpecError
        ``NO_AGGREGATE``, ``NOT_AN_AGGREGATE``, ``AGGREGATE_BY_TIME``, ``NOT_A_NAME``,
        ``NAME_TAKEN``, ``UNKNOWN_CHOICE`` or ``SHARDS_OUT_OF_RANGE``.
    SchemaError, ColumnNotFound
        A column does not exist or has the wrong type: ``NOT_A_CHANGE_STREAM``, ``AGGREGATE_TYPE``,
        ``KEY_NOT_HASHABLE``; or an aggregate is a sketch: ``SKETCH_CANNOT_FORGET``. The frame has
        updates without the row before: ``NO_PREIMAGES``.
    CapacityError
        While the query runs: ``SUM_OVERFLOW``, or ``AGGREGATE_FULL`` of an aggregate with a bound.

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

    See Also
    --------
    split_rejected : changes and rejected rows apart.
    streamops.joins.tables : the join of two tables that change, whose output this understands.
    streamops.windows.tumbling : aggregates of events that are only ever added, per window.

    References
    ----------
    Gupta, Mumick, Subrahmanian: "Maintaining Views Incrementally", SIGMOD 1993.
    Kleppmann: "Designing Data-Intensive Applications", chapter 11, "Maintaining materialized views".
    """
    where = "changes.aggregate"
    settings = AggregateSettings.of(where, by=by, agg=agg, rejected=rejected)
    options = Options("kernel", state_api, shards, name or "aggregate").validated(where)
    return RunningTransform(where, settings, options, core)
