"""The table that a change stream stands for."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from streamops.changelog.change_types import REVISION
from streamops.changes.fold_settings import FoldTransform, Rows

__all__ = ["fold"]


def fold(
    key: str | Sequence[str] | None = None,
    *,
    rows: Rows = "keyed",
    sequence: str | Sequence[str] = REVISION,
    onto: DataFrame | None = None,
) -> FoldTransform:
    """Folds a change stream to its table, and refuses one that contradicts itself.

    ``insert`` and ``update_postimage`` set the row of a key, ``delete`` removes it, and
    ``update_preimage`` takes back exactly the row that was published before. In a bag, what is taken
    back is one of the equal rows.

    Input        `key`, `sequence` · _change_type: string · other columns of any type but calendar
                 intervals and geometries, which Spark does not compare. Rows whose `late` or
                 `rejected` is not null are left out
    Output       the rows, in the columns that came but _change_type, late and rejected. A column of
                 these two names that is no struct with a string `reason` is one of the row
    Output mode  of batch frames only: inside ``foreachBatch``, or of what a stream wrote
    Watermark    none
    State        none; `onto` is the table so far
    Order        rows may come in any order: the changes of a key are ordered by `sequence`
    Batch        see above

    Parameters
    ----------
    key : str or sequence of str, optional
        Columns that identify a row. Left out with ``rows="bag"``.
    rows : "keyed" or "bag"
        A bag where whole rows come and go, as behind joins, timelines and ``changes.aggregate``: they
        have no revision.
    sequence : str or sequence of str
        Columns that order the changes of a key. "revision": a row is taken back with the revision
        that it was published with. Any other: the place of the change, such as ``_sequence``, at
        which what is taken back comes before what takes its place; it is no part of the row. In a
        bag there is none.
    onto : DataFrame, optional
        The table that the changes are about, in the columns of the result.

    Returns
    -------
    FoldTransform
        For use with ``DataFrame.transform``.

    Raises
    ------
    SpecError
        A parameter has the wrong type, or does not go with another.
    SchemaError, ColumnNotFound
        The frame is a stream or no change stream; a column does not exist or has a type that Spark does
        not compare; `onto` has other columns;
        ``NO_REVISION``: there is none, and no other `sequence`.

    Examples
    --------
    >>> from streamops import changes
    >>> changes.fold("id")
    changes.fold(key=('id',), rows='keyed', sequence=('revision',), onto=None)
    >>> def write(batch, batch_id):  # doctest: +SKIP
    ...     before = spark.read.parquet(f"table/{batch_id - 1}") if batch_id else None
    ...     now = batch.transform(changes.fold("id", onto=before))
    ...     now.write.mode("overwrite").parquet(f"table/{batch_id}")

    Notes
    -----
    A preimage is compared with the row before in all columns. By another `sequence` than "revision", and
    in a bag, those are left out that say something of a change, as ``_changed_at``, ``_snapshot`` and
    ``_commit_version``.

    What contradicts itself fails the query when the result is computed, where rows of that key are
    read: a filter on the key behind it looks at the keys that it lets through. ``UNKNOWN_CHANGE``,
    ``INSERTED_TWICE``, ``PREIMAGE_NOT_PUBLISHED``, ``POSTIMAGE_ALONE``, ``PREIMAGE_ALONE``,
    ``DELETED_UNPUBLISHED``; and ``NO_SEQUENCE``, a null in `sequence`. In a bag only sums are looked
    at: ``UNKNOWN_CHANGE``, and ``PREIMAGE_NOT_PUBLISHED`` where more is taken back than was published.
    Without ``_change_type`` a row replaces that of a lower `sequence`, and only one that comes twice
    (``REVISION_OUT_OF_STEP``) or has none is refused.

    ``streamops.testing.fold`` checks more, row by row: the order of publication, that revisions leave
    none out, and that no row is published again without a change.

    See Also
    --------
    differences : whether two tables are the same, and where they are not.
    streamops.testing.fold : for tests.

    References
    ----------
    Kleppmann: "Designing Data-Intensive Applications", chapter 11, "State, Streams, and Immutability".
    """
    return FoldTransform.of("changes.fold", key, rows=rows, sequence=sequence, onto=onto)
