"""Apply changes to a table, or to the history of its rows."""

from __future__ import annotations

from collections.abc import Sequence

from streamops.changelog.table import DEFAULT_MAX_KEYS, Snapshots, WhenFull, parse_horizon
from streamops.changes.core.history import HistoryCore
from streamops.changes.core.latest import ApplySpec, History, LatestCore
from streamops.kernel.parameters import parse_distinct_names, require_name
from streamops.kernel.time import Duration
from streamops.spark.operator import Operator


def apply(
    key: str | Sequence[str],
    *,
    sequence: str | Sequence[str],
    horizon: Duration | int,
    time: str | None = None,
    history: History = "overwrite",
    track: str | Sequence[str] | None = None,
    surrogate: str | None = None,
    snapshots: Snapshots = "below_log",
    ignore_nulls: bool = False,
    max_keys: int = DEFAULT_MAX_KEYS,
    when_full: WhenFull = "fail",
) -> Operator:
    """Apply upserts and deletes to a table, in the order of their sequence, and emit its changes.

    With history "overwrite" (slowly changing dimension, SCD type 1) the table has the latest row of each
    key. It is the fold of ``normalize``; a micro-batch emits only the net difference.

    With "intervals" (SCD type 2) the table has every version of each row, and the interval of the sequence
    for which it was valid: ``[valid_from, valid_to)``, open for the current version. A late change
    splits the interval that contains its sequence; a delete ends an interval, even if it arrives late.
    Adjacent intervals with equal tracked values are merged; a later change between them splits them
    again. The intervals of a key never overlap, and at most one is open.

    Input        as in ``normalize``
    Output       key columns · "intervals": `surrogate`: string; valid_from, valid_to: of the type of
                 `sequence`, a struct of several · values · revision: int · _change_type: string ·
                 rejected: struct<reason, row>, null except in rejected rows. Rows are identified by
                 `key`, or with "intervals" by `key` and valid_from
    Output mode  append
    Watermark    none; a watermark of the frame is not kept
    State        "overwrite": as in ``normalize``. "intervals": the changes of each key within the
                 horizon, and the last one before it, unless it is a delete
    Order        rows may arrive in any order. The table depends neither on the order nor on the
                 micro-batches, if no change is later than the horizon
    Batch        the table, as inserts; with "overwrite", deleted keys emit nothing

    Parameters
    ----------
    key : str or sequence of str
        Columns that identify a row.
    sequence : str or sequence of str
        Columns that order the changes of a key: the position in the log.
    horizon : duration or int
        How long a deleted key is stored: a duration on `time`, or without `time` a number of units of
        `sequence`. ``normalize`` tells what happens to later changes.
    time : str, optional
        Column on which the horizon is measured.
    history : "overwrite" or "intervals"
        Whether a row replaces the previous one, or ends its interval. With "intervals" whatever is
        older than `horizon` is final: a change at or below the last one before the horizon is
        rejected, "forgotten", as is a late change of a key that was deleted and evicted.
    track : str or sequence of str, optional
        With "intervals": values that begin a new interval when they change, by default all. A change
        of other values updates the open interval.
    surrogate : str, optional
        With "intervals": a column for an identifier of each interval, 32 hexadecimal digits that are
        computed from the key and ``valid_from``. It is the same in each run, for facts that refer to a
        version of a row. A checkpoint of an earlier version goes on with those that it gave to nested keys.
    snapshots : "below_log" or "by_sequence"
        Whether rows of a snapshot are below every change of the log, or only below later ones.
    ignore_nulls : bool
        Whether a null keeps the value of the previous change of the key.
    max_keys : int
        Number of keys to store, including deleted ones.
    when_full : "fail" or "reject_new"
        Whether changes of further keys fail the query, or are rejected: "full".

    Returns
    -------
    Operator
        For use with ``DataFrame.transform``.

    Raises
    ------
    SpecError
        A parameter has the wrong type, is out of range, or cannot be combined with another.
    SchemaError, ColumnNotFound
        A column does not exist or has the wrong type, or a name is taken.
    CapacityError
        While the query runs: there are more keys than `max_keys`, and `when_full` is "fail".

    Examples
    --------
    >>> from streamops import changes
    >>> from streamops.testing import replay
    >>> versions = changes.apply("k", sequence="lsn", horizon=1_000, history="intervals")
    >>> first, late = replay(
    ...     versions, [[{"k": "a", "v": 1, "lsn": 5}], [{"k": "a", "v": 0, "lsn": 3}]]
    ... )
    >>> [(row["valid_from"], row["valid_to"], row["v"]) for row in (*first.rows, *late.rows)]
    [(5, None, 1), (3, 5, 0)]

    Notes
    -----
    With "intervals" a truncate is rejected with the reason "unknown_operation": a late truncate could
    not end final intervals. (AUTO CDC of Databricks also supports it for type 1 only.) Send deletes.

    With "intervals" and ``snapshots="below_log"`` a row of a snapshot is effective only if no change of
    the log has the same sequence or a lower one. Otherwise it supplies no values: an unavailable value
    that no earlier change supplies is null. With "overwrite" the snapshot supplies it.

    See Also
    --------
    normalize : every change of a key, with the rows before and after.
    fold : the table.

    References
    ----------
    Kimball and Ross: "The Data Warehouse Toolkit", chapter 5, "Slowly Changing Dimension Techniques".
    """
    tracked = None
    if track is not None:
        tracked = parse_distinct_names(track, parameter="track")
    if surrogate is not None:
        require_name(surrogate, parameter="surrogate")
    spec = ApplySpec(
        key=parse_distinct_names(key, parameter="key"),
        sequence=parse_distinct_names(sequence, parameter="sequence"),
        horizon=parse_horizon(horizon, time, parameter="horizon"),
        time=time,
        history=history,
        track=tracked,
        surrogate=surrogate,
        snapshots=snapshots,
        ignore_nulls=ignore_nulls,
        max_keys=max_keys,
        when_full=when_full,
    )
    core = LatestCore() if history == "overwrite" else HistoryCore()
    return Operator("changes.apply", spec, core)
