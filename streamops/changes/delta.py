"""Delta's change data feed as a stream of changes."""

from __future__ import annotations

from collections.abc import Sequence

from streamops.changes.delta_settings import DeltaSettings, Preimages
from streamops.spark.rowwise import RowTransform

__all__ = ["from_delta"]


def from_delta(
    key: str | Sequence[str],
    *,
    preimages: Preimages = "delete",
    name: str | None = None,
) -> RowTransform:
    """Reads Delta's change data feed, with a position for each change.

    Within a version what goes comes before what comes, so the position is the version and, in it, 0
    for a preimage or a delete and 1 for the others. An update is told as a delete of the row before
    and an insert of the row after, as the two have different keys where an update changes the key.

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
    preimages : "delete" or "drop"
        What becomes of rows from before an update: deletes, or nothing. "drop" leaves upserts, and is
        for tables whose keys never change: else the row of the old key stays for ever. Operators that
        take rows back refuse a stream without preimages.
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
        A parameter has the wrong type; `key` is a column of the feed (``KEY_OF_THE_FEED``).
    SchemaError, ColumnNotFound
        A column does not exist or has the wrong type, or a name is taken.

    Examples
    --------
    >>> from streamops import changes
    >>> changes.from_delta("id")
    changes.from_delta(key=('id',), preimages='delete', name='from_delta')

    Notes
    -----
    Reasons: "unknown_operation", "null_key", "no_sequence"; ``rejected.change_type`` is the word that
    came. Read the feed with ``option("readChangeFeed", "true")``.

    What goes has the values of before, those of its times among them: measure horizons, and put
    versions in order, by ``_changed_at``. ``normalize`` tells a delete and an insert of one version and
    key, in one micro-batch, as an update; and ``apply`` sees no time between the two, so that with
    `track` an interval goes on.

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
