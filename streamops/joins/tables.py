"""Table-table joins: the join of two tables that change, maintained incrementally."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame

from streamops.joins.core.join_spec import parse_key_pair, parse_keys, parse_name_pair
from streamops.joins.core.tables import TablesCore
from streamops.joins.core.tables_spec import How, Rejected, TablesSpec
from streamops.spark.operator import Operator

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
    """Join two tables that change: from the change streams of both to that of the join.

    After each micro-batch the emitted changes fold to the join of the current tables:
    ``d(L * R) = dL * R_old + L_new * dR``, net over the micro-batch. Rows whose values did not change
    are not emitted again. A null matches nothing.

    Input        both sides: _change_type: string, "insert", "update_preimage", "update_postimage" or
                 "delete", an update as its two images · columns of `by` and of `key`: any type
                 without maps, those of `by` of the same type on both sides · `sequence`: a type with
                 an order · all other columns of any type
    Output       all columns of the left · all of the right except those of `by`, with the suffix
                 "_right" where the name is taken · _change_type: string: "insert" and "delete", and
                 with `key` the two images of an update · where rejected changes are routed: late:
                 struct<side, reason, lateness, watermark, window, row>
    Output mode  append
    Watermark    none is needed
    State        per shard and side: the rows of the table, equal ones once (in "inner" not those with
                 a null in `by`, nor, in "left" and "right", those of the other side); with `sequence`
                 also at most ``remember / shards`` deleted ones, rounded up
    Order        changes of a micro-batch in any order; without `sequence` no change arrives in a
                 micro-batch before that of a change it follows, and none arrives twice; with it, both
                 may. Output: in a shard retractions before additions; over shards in no order
    Batch        the join of the two tables that the changes fold to, as inserts

    Parameters
    ----------
    right : DataFrame, optional
        The right change stream; the left one is the frame that is transformed. Both are streams, or
        both are batches. None if the test kit provides both.
    by : str, sequence of str, or mapping of str to str
        Columns that must be equal; if the names on the right differ,
        ``{"left name": "right name"}``. They need not be the key of either table, and may change in
        an update.
    how : "inner", "left", "right" or "full"
        Which rows are emitted without a partner, with nulls in its place: none, those of the left, of
        the right, of both.
    key : str, sequence of str, or tuple of two of these
        Primary key of the left and of the right table. With it, a row exists once at most for each
        value of `by`: a repeated insert has no effect and is counted (``too_late``), as long as the
        row is not deleted or replaced (a feed with at-least-once delivery needs `sequence`); and a
        joined row whose both keys and `by` stay is updated, as a pair of images; without it, it is
        deleted and inserted.
    sequence : str, or tuple of str
        Column that orders the changes of a key on each side, such as a position in the log or the
        version of a commit; both images of an update have that of the update. The change of the highest
        sequence is effective, for each key and value of `by`: older changes and duplicates have no
        effect and are counted (``too_late``). Not the `revision` of streamops, whose changes need no sequence:
        a delete has the revision of the deleted row, and a preimage differs from its postimage.
    remember : int
        With `sequence`: number of deleted rows whose sequence is stored, those of the highest sequences
        of each side, so that late changes do not restore them. Each shard stores its part of them. 0:
        none, if changes are in order over micro-batches.
    rejected : "drop" or "route"
        What happens to an invalid change: dropped, or emitted as a row of its own, split by
        :func:`streamops.split_side_output`; counted in either case. Reasons: "bad_change" (not a change
        type), "not_there" (without `sequence`: it removes a row that does not exist), "null_key",
        "null_sequence" (with it), "contradiction" (with `key`: another row of the same key and `by`,
        and with `sequence` of the same, is greater by its values).

    Returns
    -------
    Operator
        For use with ``DataFrame.transform``.

    Raises
    ------
    SpecError
        ``PARAMETER_MISSING``, ``PARAMETER_TYPE``, ``UNKNOWN_CHOICE``,
        ``PARAMETERS_CONTRADICT``, ``NAME_TAKEN``, ``PARAMETER_OUT_OF_RANGE``; when it is called: ``PARAMETER_MISSING``.
    SchemaError, ColumnNotFound
        A column does not exist, ``FRAME_TYPE``, ``COLUMNS_DIFFER``, ``TYPE_UNSUPPORTED``,
        ``SEQUENCE_TYPE`` or ``NAME_TAKEN``. A frame has updates without their preimages:
        ``CHANGE_STREAM_INPUT``.

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
    asof : each row with the version of its key at its event time; results are not retracted.
    interval : rows of two streams that are close in time.
    streamops.changes.aggregate : counts and sums over a change stream, such as this one.

    References
    ----------
    Kleppmann: "Designing Data-Intensive Applications", chapter 11, "Table-table join".
    Gupta, Mumick, Subrahmanian: "Maintaining Views Incrementally", SIGMOD 1993.
    Budiu, Chajed, McSherry, Ryzhyk, Tannen: "DBSP: Automatic Incremental View Maintenance", 2023.
    """
    parameters = TablesSpec(
        by=parse_keys(by),
        how=how,
        key=None if key is None else parse_key_pair(key),
        sequence=None if sequence is None else parse_name_pair(sequence, parameter="sequence"),
        remember=remember,
        rejected=rejected,
    )
    return Operator("joins.tables", parameters, TablesCore(), right=right)
