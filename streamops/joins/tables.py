"""Table-table joins: a join of two tables that change, kept up to date."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame

from streamops.joins.core import tables as core
from streamops.joins.core.inputs import keys_of
from streamops.joins.core.tables_spec import (
    How,
    Rejected,
    TablesSpec,
    parse_key_pair,
    parse_name_pair,
)
from streamops.spark.operator import Operator

__all__ = ["tables"]

Columns = str | Sequence[str]


def tables(
    right: DataFrame | None,
    *,
    by: str | Sequence[str] | Mapping[str, str],
    how: How = "inner",
    key: Columns | tuple[Columns, Columns] | None = None,
    sequence: str | tuple[str, str] | None = None,
    remember: int | None = None,
    rejected: Rejected = "drop",
) -> Operator:
    """The join of two tables, as a change stream, from the change streams of both.

    After each micro-batch the published changes fold to the join of what both tables are then:
    ``d(L * R) = dL * R_old + L_new * dR``, net over the micro-batch. Rows whose values did not change
    are not published again. A null is joined with nothing.

    Input        both sides: _change_type: string, "insert", "update_preimage", "update_postimage" or
                 "delete", an update as its two images · columns of `by` and of `key`: any type
                 without a map in it, those of `by` of one type on both sides · `sequence`: a type with
                 an order · all other columns of any type
    Output       all columns of the left · all of the right but those of `by`, with the suffix
                 "_right" where the name is taken · _change_type: string: "insert" and "delete", and
                 with `key` the two images of an update · where rejected changes are routed: late:
                 struct<side, reason, lateness, watermark, left, right>
    Output mode  append
    Watermark    none is needed
    State        per shard and side: the rows of the table, equal ones once (in "inner" not those with
                 a null in `by`, nor, in "left" and "right", those of the other side); with `sequence`
                 also at most ``remember / shards``, rounded up, that are gone
    Order        changes of a micro-batch in any order; without `sequence` none comes in a micro-batch
                 before that of a change it follows, and none comes twice; with it, both may.
                 Output: in a shard what goes before what comes; over shards in no order
    Batch        the join of the two tables that the changes fold to, as inserts

    Parameters
    ----------
    right : DataFrame, optional
        The right change stream; the left one is the frame that is transformed. Both are streams, or
        both are batches. None where the test kit brings both.
    by : str, sequence of str, or mapping of str to str
        Columns that must be equal; where they are called otherwise on the right,
        ``{"left name": "right name"}``. They need not be the key of either table, and may change in
        an update.
    how : "inner", "left", "right" or "full"
        Which rows come out without a partner, with nulls in its place: none, those of the left, of
        the right, of both.
    key : str, sequence of str, or tuple of two of these
        Primary key of the left and of the right table. With it, a row is there once at most for each
        value of `by`: an insert that comes again is left out and counted (``too_late``), as long as
        nothing takes that row away or replaces it (a feed that delivers at least once needs
        `sequence`); and a joined row whose both keys and `by` stay is updated, as a pair of images; without it, it is deleted and
        inserted.
    sequence : str, or tuple of str
        What orders the changes of a key on each side, such as a position in the log or the version of
        a commit; both images of an update have that of the update. The change of the highest
        sequence holds, for each key and value of `by`: what is older, or comes again, is left out and
        counted (``too_late``). Not the `revision` of streamops: a delete has that of the row that it
        deletes, and a preimage another than its postimage; these changes need no sequence.
    remember : int
        With `sequence`: rows that are gone whose sequence is kept, those of the highest sequences of
        each side, so that changes that come late do not bring them back. Each shard keeps its part of
        them. 0: none, where nothing is out of order over micro-batches.
    rejected : "drop" or "route"
        What happens to a change that cannot be: dropped, or delivered as a row of its own, split by :func:`streamops.split_side_output`; counted in either case. Reasons: "bad_change" (no
        word of a change stream), "not_there" (without `sequence`: it takes away a row that is not
        there), "null_key", "null_sequence" (with it), "contradiction" (with `key`: another row of the
        same key and `by`, and with `sequence` of the same, is greater by its values).

    Returns
    -------
    Operator
        For use with ``DataFrame.transform``.

    Raises
    ------
    SpecError
        ``NO_KEY``, ``NOT_A_PAIR``, ``NOT_A_NAME``, ``UNKNOWN_CHOICE``, ``SEQUENCE_WITHOUT_KEY``,
        ``SEQUENCE_OF_REVISIONS``, ``CHANGE_TYPE_ASKED``, ``REMEMBER_WITH_SEQUENCE``,
        ``REMEMBER_OUT_OF_RANGE``; when it is called: ``RIGHT_MISSING``.
    SchemaError, ColumnNotFound
        A column does not exist, ``NOT_A_CHANGE_STREAM``, ``KEY_TYPES_DIFFER``, ``KEY_NOT_HASHABLE``,
        ``SEQUENCE_TYPE`` or ``NAME_TAKEN``. A frame has updates without the row before:
        ``NO_PREIMAGES``.

    Examples
    --------
    >>> from streamops import joins
    >>> from streamops.testing import replay
    >>> orders = joins.tables(None, by={"customer": "id"}, how="left", key=("order", "id"))
    >>> script = [
    ...     ([{"order": 7, "customer": 1, "_change_type": "insert"}], None),
    ...     (None, [{"id": 1, "name": "Ada", "_change_type": "insert"}]),
    ... ]
    >>> import pyarrow as pa
    >>> left = pa.schema(
    ...     [("order", pa.int64()), ("customer", pa.int64()), ("_change_type", pa.string())]
    ... )
    >>> right = pa.schema([("id", pa.int64()), ("name", pa.string()), ("_change_type", pa.string())])
    >>> for result in replay(orders, script, schema=(left, right)):
    ...     print([(row["order"], row["name"], row["_change_type"]) for row in result.rows])
    [(7, None, 'insert')]
    [(7, None, 'delete'), (7, 'Ada', 'insert')]

    See Also
    --------
    temporal : each row beside the version of its key at its event time; nothing is taken back.
    interval : rows of two streams that lie close in time.
    streamops.changes.aggregate : counts and sums over a change stream, such as this one.

    References
    ----------
    Kleppmann: "Designing Data-Intensive Applications", chapter 11, "Table-table join".
    Gupta, Mumick, Subrahmanian: "Maintaining Views Incrementally", SIGMOD 1993.
    Budiu, Chajed, McSherry, Ryzhyk, Tannen: "DBSP: Automatic Incremental View Maintenance", 2023.
    """
    where = "joins.tables"
    parameters = TablesSpec(
        by=keys_of(by, where=where),
        how=how,
        key=None if key is None else parse_key_pair(key, where=where),
        sequence=None
        if sequence is None
        else parse_name_pair(sequence, parameter="sequence", where=where),
        remember=remember,
        rejected=rejected,
    )
    return Operator(where, parameters, core, right=right)
