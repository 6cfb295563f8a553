"""Normalize upserts and deletes to a change stream with the rows before and after."""

from __future__ import annotations

from collections.abc import Sequence

from streamops.changelog.table import DEFAULT_MAX_KEYS, Snapshots, WhenFull, parse_horizon
from streamops.changes.core.latest import LatestCore, Publish, TableSpec
from streamops.kernel.parameters import parse_distinct_names
from streamops.kernel.time import Duration
from streamops.spark.operator import Operator


def normalize(
    key: str | Sequence[str],
    *,
    sequence: str | Sequence[str],
    horizon: Duration | int,
    time: str | None = None,
    publish: Publish = "every change",
    snapshots: Snapshots = "below_log",
    ignore_nulls: bool = False,
    max_keys: int = DEFAULT_MAX_KEYS,
    when_full: WhenFull = "fail",
) -> Operator:
    """Normalize upserts and deletes to a change stream with the rows before and after.

    The operator stores the latest row of each key. A change is effective if its `sequence` is above
    that of the stored row or tombstone; otherwise it is stale, or a duplicate. Among different changes
    of one key and sequence the greatest by its values is effective, whenever it arrives, and a delete is
    below every row. The others are in conflict: rejected, or retracted if they were published. A value
    that is unavailable is carried forward from the previous change, which may arrive later. A change
    that changes no value publishes nothing.

    A change of type "truncate" deletes every row with a lower sequence. It has no key.

    Input        `key`, `sequence`: columns that can be compared (no maps), not null, and no text
                 in `sequence` · `time`: timestamp, not null · _change_type: string; without it, each row is an upsert ·
                 _unavailable: array<string>, _snapshot, _tombstone: boolean, rejected, as
                 ``from_debezium`` publishes them · other columns of any type: the values
    Output       key columns · values · revision: int · _change_type: string · rejected:
                 struct<reason, row>, null in a change
    Output mode  append
    Watermark    none; an existing one is lost
    State        the latest row of each key, up to `max_keys`, and the changes that supplied its
                 unavailable values; the sequence of a deleted key, until it is older than `horizon`; the
                 sequence of the latest truncate
    Order        rows may arrive in any order. The table that the changes fold to depends neither on the
                 order nor on the micro-batches, if no change is later than the horizon
    Batch        the changes of each key in order, as of one micro-batch

    Parameters
    ----------
    key : str or sequence of str
        Columns that identify a row.
    sequence : str or sequence of str
        Columns that order the changes of a key: the position in the log. Never a wall-clock time.
    horizon : duration or int
        How long a deleted key is stored, after the newest change of its shard: a duration on `time`,
        or without `time` a number of units of `sequence`. A later change of an unknown key, at or below
        the highest sequence evicted, is rejected: "forgotten".
    time : str, optional
        Column on which the horizon is measured. It does not order changes. Where it decreases along the
        changes of a key, the horizon must be longer by that amount.
    publish : "every change" or "last"
        Whether to publish all changes that a key has in a micro-batch, or only the difference they make.
    snapshots : "below_log" or "by_sequence"
        Whether rows of a snapshot are below every change of the log, or only below those at or above
        their own sequence, for snapshots that are read after a truncate or after the log lost changes.
    ignore_nulls : bool
        Whether a null keeps the value of the previous change of the key, as if the value were
        unavailable. A value can then no longer be set to null, except by a delete and an insert.
    max_keys : int
        Number of keys to store, including deleted ones. Each shard stores its part of them.
    when_full : "fail" or "reject_new"
        What happens to changes of further keys. "fail": the query fails, ``STATE_FULL``. "reject_new":
        they are rejected, "full".

    Returns
    -------
    Operator
        For use with ``DataFrame.transform``.

    Raises
    ------
    SpecError
        A parameter has the wrong type or is out of range.
    SchemaError, ColumnNotFound
        A column does not exist or has the wrong type, or a name is taken.
    CapacityError
        While the query runs: there are more keys than `max_keys`, and `when_full` is "fail".

    Examples
    --------
    >>> from streamops import changes
    >>> from streamops.testing import replay
    >>> upserts = changes.normalize("k", sequence="lsn", horizon=1_000)
    >>> (result,) = replay(upserts, [[{"k": "a", "v": 2, "lsn": 7}, {"k": "a", "v": 1, "lsn": 5}]])
    >>> [(row["_change_type"], row["v"], row["revision"]) for row in result.rows]
    [('insert', 1, 0), ('update_preimage', 1, 0), ('update_postimage', 2, 1)]

    Notes
    -----
    The columns of `sequence`, and the columns with an underscore that the readers add, are not values:
    copy them to publish them. Preimages and tombstones are ignored: an update that changes a key must
    arrive as a delete and an insert, as from ``from_debezium`` and ``from_delta``.

    Reasons of rejected rows: "unknown_operation", "null_key", "no_sequence", "null_time",
    "time_out_of_range", "conflict", "forgotten", "full"; a row that was rejected before has its first
    reason. Metrics: `rows`, `rejected`, `stale`, `duplicates`, `ignored`, `results` (inserts),
    `corrections` (updates), `deletes`.

    The latest truncate is stored: a change below it is stale, however late. It deletes the rows of all
    keys, so use one operator per table, and per partition if their sequences cannot be compared. With
    "below_log" rows of a snapshot are below every truncate.

    See Also
    --------
    apply : the same for a table, and for the history of its rows.
    fold : the table that a change stream describes.

    References
    ----------
    Kleppmann: "Designing Data-Intensive Applications", chapter 11, "Change Data Capture".
    """
    spec = TableSpec(
        key=parse_distinct_names(key, parameter="key"),
        sequence=parse_distinct_names(sequence, parameter="sequence"),
        horizon=parse_horizon(horizon, time, parameter="horizon"),
        time=time,
        publish=publish,
        snapshots=snapshots,
        ignore_nulls=ignore_nulls,
        max_keys=max_keys,
        when_full=when_full,
    )
    return Operator("changes.normalize", spec, LatestCore())
