"""Upserts as a stream of changes with what was before."""

from __future__ import annotations

from collections.abc import Sequence

from streamops.changelog.parameters import DEFAULT_MAX_KEYS
from streamops.changelog.table import Snapshots, WhenFull
from streamops.changes.core import latest
from streamops.changes.core.spec import Publish
from streamops.changes.latest_settings import LatestSettings
from streamops.kernel.time import Duration
from streamops.spark.running import RunningTransform
from streamops.spark.transform import DEFAULT_SHARDS, Options, StateApi

__all__ = ["normalize"]


def normalize(
    key: str | Sequence[str],
    *,
    sequence: str | Sequence[str],
    horizon: Duration | int,
    time: str | None = None,
    publish: Publish = "every change",
    snapshots: Snapshots = "below_log",
    max_keys: int = DEFAULT_MAX_KEYS,
    when_full: WhenFull = "fail",
    state_api: StateApi = "auto",
    shards: int = DEFAULT_SHARDS,
    name: str | None = None,
) -> RunningTransform:
    """Upserts and deletes as a change stream with the row before and after, each key by its sequence.

    The newest row of each key is remembered. A change counts if its `sequence` is above what is
    remembered, also of a deleted key. The same change again is a duplicate. Of different ones of the
    same sequence the greatest by its values counts, whenever each of them comes, a delete being below
    every row; the others are in conflict: rejected, or taken back if they were published. An older
    change is stale. A value that was not sent is the one from before; it may still come of a change
    that comes late. What changes no value publishes nothing.

    Input        `key`, `sequence`: columns that can be compared (no maps), not null · `time`:
                 timestamp, not null · _change_type: string; left out, each row is an upsert ·
                 _unavailable: array<string>, _snapshot, _tombstone: boolean, rejected, as
                 ``from_debezium`` has them · other columns of any type: the values
    Output       key columns · values · revision: int · _change_type: string · rejected:
                 struct<reason, row>, null in a change
    Output mode  append
    Watermark    none; one is lost
    State        per shard: the newest row of each key, up to `max_keys` over all shards, and the
                 changes that values it was not sent with came of; of a deleted key its place, until it
                 is older than `horizon`
    Order        rows may come in any order. The table that the changes fold to does not depend on it,
                 nor on how the stream is cut, if no change comes later than the horizon
    Batch        the changes of each key in their order, as of one micro-batch

    Parameters
    ----------
    key : str or sequence of str
        Columns that identify a row.
    sequence : str or sequence of str
        Columns that order the changes of a key: the position in the log. Never a clock's time.
    horizon : duration or int
        For how long a delete is remembered after the newest change of its shard: a duration on
        `time`, or without it so many units of `sequence`. A change that comes later, at or below the
        highest place forgotten, of a key of which nothing is known, is rejected: "forgotten".
    time : str, optional
        Column in which the horizon is measured. It does not order changes; where it runs back along
        those of a key, the horizon must be longer by so much.
    publish : "every change" or "last"
        Whether all changes that a key has in a micro-batch are told, or what they come to.
    snapshots : "below_log" or "by_sequence"
        Whether rows of a snapshot lose against every row of the log, or only against those at or
        above their own sequence. The second is for a log that lost something, read again.
    max_keys : int
        Keys that are kept, deleted ones among them. Each shard keeps its part of them.
    when_full : "fail" or "reject"
        What happens to changes of further keys. "fail": the query fails, ``KEYS_FULL``. "reject":
        they are rejected, "full".
    state_api : "auto", "applyInPandasWithState" or "transformWithStateInPandas"
        "auto" is the second, which needs RocksDB and lets operators be chained.
    shards : int
        Pieces that the keys are spread over. Belongs to the checkpoint; raise it where the state of a
        shard passes some megabytes.
    name : str, optional
        Under which the counts appear in the query's ``observedMetrics``: `rows`, `rejected`, `stale`,
        `duplicates`, `ignored`, `results` (rows that came to be), `corrections`, `deletes`.

    Returns
    -------
    RunningTransform
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
    >>> (said,) = replay(upserts, [[{"k": "a", "v": 2, "lsn": 7}, {"k": "a", "v": 1, "lsn": 5}]])
    >>> [(row["_change_type"], row["v"], row["revision"]) for row in said.rows]
    [('insert', 1, 0), ('update_preimage', 1, 0), ('update_postimage', 2, 1)]

    Notes
    -----
    Columns of `sequence`, and those that begin with an underscore in what ``from_debezium`` and
    ``from_delta`` put out, are no values: copy them to be kept. Reasons: "unknown_operation",
    "null_key", "no_sequence", "null_time", "time_out_of_range", "conflict", "forgotten", "full"; a
    row that was rejected before keeps its reason. Preimages and tombstones are ignored: an update that
    changes a key must come as a delete and an insert, as from ``from_debezium`` and ``from_delta``.

    See Also
    --------
    apply : the same for a table, and for the history of its rows.
    fold : the table that a change stream stands for.

    References
    ----------
    Kleppmann: "Designing Data-Intensive Applications", chapter 11, "Change Data Capture".
    """
    where = "changes.normalize"
    settings = LatestSettings.of(
        where,
        key,
        sequence=sequence,
        horizon=horizon,
        time=time,
        publish=publish,
        snapshots=snapshots,
        max_keys=max_keys,
        when_full=when_full,
    )
    options = Options("kernel", state_api, shards, name or "normalize").validated(where)
    return RunningTransform(where, settings, options, latest)
