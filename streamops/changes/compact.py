"""Logs of changes, made shorter."""

from __future__ import annotations

from collections.abc import Sequence

from streamops.changelog.table import Snapshots
from streamops.changes.compact_settings import CompactTransform
from streamops.kernel.time import Duration

__all__ = ["compact"]


def compact(
    key: str | Sequence[str],
    *,
    sequence: str | Sequence[str],
    retention: Duration | int,
    time: str | None = None,
    head: Duration | int | None = None,
    value: str | None = None,
    snapshots: Snapshots = "below_log",
    ignore_nulls: bool = False,
) -> CompactTransform:
    """Keeps of a log of upserts and deletes what a reader needs who starts at its beginning.

    Of each key the last change is kept, and whatever gives it the values that it was not sent with. A
    delete that is the last change of its key is kept for `retention`, so that a reader who starts
    within it still sees the delete. It is a filter: no row is rewritten, and they come out in no
    certain order. Sort them by `sequence` before they are written as a log.

    Input        `key`, `sequence`: columns that can be compared · `time`: timestamp · _change_type:
                 string, or `value`, null in a delete · _unavailable, _snapshot, _tombstone, rejected,
                 as ``from_debezium`` has them · other columns of any type
    Output       the same columns
    Output mode  of batch frames only
    Watermark    none
    State        none
    Order        rows may come in any order: the changes of a key are ordered by `sequence`
    Batch        see above

    Parameters
    ----------
    key : str or sequence of str
        Columns that identify a row.
    sequence : str or sequence of str
        Columns that order the changes of a key.
    retention : duration or int
        For how long a delete is kept behind the newest change of the log: a duration on `time`, or
        without it so many units of `sequence`. A delete of exactly that age is kept.
    time : str, optional
        Column in which retention and head are measured.
    head : duration or int, optional
        What is no further than this behind the newest change is left whole.
    value : str, optional
        Where there is no _change_type: the column whose null is a delete, as in a topic of Kafka's.
    snapshots : "below_log" or "by_sequence"
        Whether a row of a snapshot is older than all of the log, as in ``normalize``.
    ignore_nulls : bool
        Whether the log is read with ``ignore_nulls=True``: a change that supplies the value of a later null
        is then kept.

    Returns
    -------
    CompactTransform
        For use with ``DataFrame.transform``.

    Raises
    ------
    SpecError
        A parameter has the wrong type or is out of range.
    SchemaError, ColumnNotFound
        The frame is a stream, or a column does not exist or has the wrong type.

    Examples
    --------
    >>> from streamops import changes
    >>> changes.compact("id", sequence="_sequence", retention="7 days", time="_changed_at")
    changes.compact(key=('id',), sequence=('_sequence',), retention='7 days', time='_changed_at', head=None, value=None, snapshots='below_log', ignore_nulls=False)

    Notes
    -----
    What compacts to a key's last change is a log of upserts: an ``update_postimage`` may be the first
    that is left of its key, and preimages go: an update that changes a key must be a delete and an
    insert, as ``from_debezium`` and ``from_delta`` tell it. Read it with ``normalize``, or ``apply`` where rows are
    overwritten. Rows without a position in
    the log (rejected, or without key or sequence) are kept, and so are truncates. All copies of
    a change that is kept are, and so are those that contradict it: who reads them sees which counts.

    The age of a delete is that of the youngest row of its key, so that it outlives all that it deleted,
    also what a clock that was ahead or a snapshot wrote. Once these are gone, its own age counts.

    See Also
    --------
    normalize : the table that the log stands for, change by change.

    References
    ----------
    Apache Kafka's documentation, "Log Compaction".
    """
    return CompactTransform.of(
        "changes.compact",
        key,
        sequence=sequence,
        retention=retention,
        time=time,
        head=head,
        value=value,
        snapshots=snapshots,
        ignore_nulls=ignore_nulls,
    )
