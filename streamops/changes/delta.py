"""Delta's change data feed as a stream of changes."""

from __future__ import annotations

from collections.abc import Sequence

from streamops.changes.delta_settings import DeltaSettings, Preimages
from streamops.spark.rowwise import RowTransform

__all__ = ["from_delta"]


def from_delta(
    key: str | Sequence[str],
    *,
    preimages: Preimages = "publish",
    name: str | None = None,
) -> RowTransform:
    """Reads Delta's change data feed: the same words, with a position for each change.

    Within a version what is taken back comes before what takes its place, so the position is the
    version and, in it, 0 for a preimage or a delete and 1 for the others.

    Input        the columns of the table · _change_type: string · _commit_version: bigint ·
                 _commit_timestamp: timestamp
    Output       the columns of the table · _change_type · _sequence: struct<version: bigint,
                 position: int> · _changed_at: timestamp, of the commit · rejected: struct<reason,
                 change_type>, null in a change
    Output mode  any
    Watermark    none needed; one on a column of the table is kept
    State        none
    Order        rows may come in any order
    Batch        same rows out

    Parameters
    ----------
    key : str or sequence of str
        Columns that identify a row.
    preimages : "publish" or "drop"
        Whether rows from before an update are kept. Operators that remember the last row of each key
        need none; those that take rows back refuse a stream without.
    name : str, optional
        Under which the counts appear in the query's ``observedMetrics``. A batch is counted only
        where it is given.

    Returns
    -------
    RowTransform
        For use with ``DataFrame.transform``.

    Raises
    ------
    SpecError
        A parameter has the wrong type.
    SchemaError, ColumnNotFound
        A column does not exist or has the wrong type, or a name is taken.

    Examples
    --------
    >>> from streamops import changes
    >>> changes.from_delta("id")
    changes.from_delta(key=('id',), preimages='publish', name='from_delta')

    Notes
    -----
    Reasons: "unknown_operation", "null_key", "no_sequence"; ``rejected.change_type`` is the word that
    came. Read the feed with ``option("readChangeFeed", "true")``.

    See Also
    --------
    from_debezium : the same of Debezium's records.

    References
    ----------
    Delta's protocol, "Change Data Files".
    """
    where = "changes.from_delta"
    settings = DeltaSettings.of(where, key=key, preimages=preimages)
    return RowTransform.of(where, settings, name)
