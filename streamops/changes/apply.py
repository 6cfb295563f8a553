"""Changes applied to a table, or to the history of its rows."""

from __future__ import annotations

from collections.abc import Sequence

from streamops.changelog.parameters import DEFAULT_MAX_KEYS
from streamops.changelog.table import Snapshots, WhenFull
from streamops.changes.apply_settings import ApplySettings, History
from streamops.changes.core import history as intervals
from streamops.changes.core import latest
from streamops.kernel.contract import Core
from streamops.kernel.time import Duration
from streamops.spark.running import RunningTransform
from streamops.spark.transform import DEFAULT_SHARDS, Options, StateApi

__all__ = ["apply"]


def apply(
    key: str | Sequence[str],
    *,
    sequence: str | Sequence[str],
    horizon: Duration | int,
    time: str | None = None,
    history: History = "overwrite",
    track: str | Sequence[str] | None = None,
    snapshots: Snapshots = "below_log",
    max_keys: int = DEFAULT_MAX_KEYS,
    when_full: WhenFull = "fail",
    state_api: StateApi = "auto",
    shards: int = DEFAULT_SHARDS,
    name: str | None = None,
) -> RunningTransform:
    """Applies upserts and deletes to a table, each key by its sequence, and tells how the table changes.

    With history "overwrite" (type 1 of a slowly changing dimension) the table has the newest row of
    each key: as ``normalize``, and a micro-batch tells no more than what its changes come to.

    With "intervals" (type 2) it has every row that there was, and for which interval of the sequence
    it was valid: ``[valid_from, valid_to)``, open where it still is. A change that comes late splits
    the interval that it falls into; a delete ends one, also late. Neighbours that are equal in what is
    tracked are one interval, and a change between them splits it again. At no time are two intervals
    of a key open, or does one overlap another.

    Input        as of ``normalize``
    Output       key columns · "intervals": valid_from, valid_to: of the type of `sequence`, a struct
                 of several · values · revision: int · _change_type: string · rejected:
                 struct<reason, row>, null in a change. A change stream keyed by the key, or by the
                 key and valid_from
    Output mode  append
    Watermark    none; one is lost
    State        "overwrite": as of ``normalize``. "intervals": the changes of each key within the
                 horizon, and the last one before it; of a key that was deleted before it, nothing
    Order        rows may come in any order. The table does not depend on it, nor on how the stream is
                 cut, if no change comes later than the horizon
    Batch        the table, as inserts; "overwrite": as of one micro-batch, which deletes leave empty

    Parameters
    ----------
    key, sequence, horizon, time, snapshots, max_keys, when_full, state_api, shards, name
        As of ``normalize``.
    history : "overwrite" or "intervals"
        Whether a row replaces the one before it, or ends its interval. With "intervals" what is older
        than `horizon` is sealed: a change at or below the last one before it is rejected,
        "forgotten", as is what comes later of a key that was deleted and forgotten.
    track : str or sequence of str, optional
        With "intervals": values whose change begins a new interval; all, if left out. A change of
        others only is one of the interval that is open.

    Returns
    -------
    RunningTransform
        For use with ``DataFrame.transform``.

    Raises
    ------
    SpecError
        A parameter has the wrong type, is out of range, or does not go with another.
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
    A row of a snapshot has its place in the log. With "intervals" and ``snapshots="below_log"`` it counts
    only where no row of the log has that place or a lower one. One that does not count gives no values,
    either: what the log was not sent with (`_unavailable`), and no row before it says, is null, though a
    snapshot of a running table has it. With "overwrite" the snapshot gives such values.

    See Also
    --------
    normalize : every change of a key, as before and after.
    fold : the table.

    References
    ----------
    Kimball and Ross: "The Data Warehouse Toolkit", chapter 5, "Slowly Changing Dimension Techniques".
    """
    where = "changes.apply"
    settings = ApplySettings.applied(
        where,
        key,
        history=history,
        track=track,
        sequence=sequence,
        horizon=horizon,
        time=time,
        snapshots=snapshots,
        max_keys=max_keys,
        when_full=when_full,
    )
    options = Options("kernel", state_api, shards, name or "apply").validated(where)
    core: Core = latest if history == "overwrite" else intervals
    return RunningTransform(where, settings, options, core)
