"""Home timelines: the newest posts of the authors that each user follows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame

from streamops.joins.core.join_spec import parse_keys, parse_name_pair
from streamops.joins.core.tables import TablesCore
from streamops.joins.core.tables_spec import Rejected
from streamops.joins.core.timeline import NewestParameters, TimelineCore, TimelineParameters
from streamops.kernel.parameters import parse_distinct_names
from streamops.spark.operator import Operator


def timeline(
    right: DataFrame | None,
    *,
    by: str | Sequence[str] | Mapping[str, str],
    user: str | Sequence[str],
    key: str | Sequence[str],
    ranked_by: str,
    cap: int,
    sequence: str | tuple[str, str] | None = None,
    remember: int | None = None,
    rejected: Rejected = "drop",
) -> Operator:
    """Maintain the newest posts of the authors that each user follows, as a change stream.

    A transform of posts that is given the follows, both change streams. After each micro-batch the
    emitted changes fold to one row per user and post: the `cap` posts of the authors followed then
    that are greatest in `ranked_by`, then in `key`. A new post is added and removes the oldest; a
    deleted one is removed, and the newest one beyond the cap is added; a new follow adds the earlier
    posts of the author (back-fill), an unfollow removes them.

    Input        left, the posts: _change_type: string, "insert", "update_preimage",
                 "update_postimage" or "delete" · columns of `by` and `key`: any type with an order,
                 those of `by` any without maps · `ranked_by`: a type with an order; a null is the
                 oldest · other columns of any type. Right, the follows: _change_type · columns of
                 `user` and `by`, these of the same type on both sides; others are ignored
    Output       all columns of the posts · those of `user`, with the suffix "_right" where the name is
                 taken · _change_type: string: "insert", "delete", and the two images where a post
                 changes · where rejected changes are routed: late: struct<side, reason, lateness,
                 watermark, window, row>
    Output mode  append
    Watermark    none is needed
    State        the posts, and the follows; and per user every post of the followed authors, also
                 beyond the cap, as one of these replaces a deleted one. With `sequence` also at most
                 ``remember / shards`` deleted rows, rounded up, per shard and side
    Order        changes of a micro-batch in any order; without `sequence` no delete arrives in a
                 micro-batch before that of its insert, and none arrives twice; with it, both may.
                 Output: in a shard retractions before additions; over shards in no order
    Batch        the timelines of the two tables that the changes fold to, as inserts

    Parameters
    ----------
    right : DataFrame, optional
        The follows, a change stream; the posts are the frame that is transformed. Both are streams, or
        both are batches. None if the test kit provides both.
    by : str, sequence of str, or mapping of str to str
        The author of a post, and the author that is followed: columns that must be equal; if the names
        on the right differ, ``{"author": "whom"}``. A null matches nothing.
    user : str or sequence of str
        Columns of the right with the follower. Without `sequence` a null is a user, too.
    key : str or sequence of str
        Primary key of the posts. A post is in a timeline once, also if it is followed twice. Orders posts
        that are equal in `ranked_by`: the greatest comes first.
    ranked_by : str
        Column that orders the posts, such as the time of a post: the greatest is the newest.
    cap : int
        Maximum number of posts in a user's timeline. Older ones are stored and not emitted: the cap
        bounds the folded output, not the state. Part of the checkpoint.
    sequence : str, or tuple of str
        Column that orders the changes of a post, and of a user and author followed: as in
        :func:`streamops.joins.tables`, like `remember`.
    remember : int
        With `sequence`: number of deleted rows whose sequence is stored.
    rejected : "drop" or "route"
        What happens to an invalid change: dropped, or emitted as a row of its own, split by
        :func:`streamops.split_side_output`; counted in either case. Reasons as in
        :func:`streamops.joins.tables`.

    Returns
    -------
    Operator
        For use with ``DataFrame.transform``. Its options apply to the join and to the timelines after
        it. The join always uses ``transformWithStateInPandas``, which supports chaining; its metrics
        have the given name, those of the timelines the same with ``-2``.

    Raises
    ------
    SpecError
        ``PARAMETER_MISSING``, ``DUPLICATE_COLUMN``, ``PARAMETER_TYPE``,
        ``UNKNOWN_CHOICE``, ``PARAMETER_OUT_OF_RANGE``, ``PARAMETERS_CONTRADICT``,
        ``NAME_TAKEN``; when it is called: ``PARAMETER_MISSING``.
    SchemaError, ColumnNotFound
        A column does not exist, ``FRAME_TYPE``, ``COLUMNS_DIFFER``, ``TYPE_UNSUPPORTED``,
        ``COLUMN_TYPE``, ``SEQUENCE_TYPE`` or ``NAME_TAKEN``. A frame has updates without their
        preimages: ``CHANGE_STREAM_INPUT``.

    Examples
    --------
    >>> from streamops import joins
    >>> from streamops.testing import replay
    >>> home = joins.timeline(
    ...     None, by={"author": "whom"}, user="user", key="post", ranked_by="at", cap=2
    ... )
    >>> def post(author, number, change="insert"):
    ...     return {"author": author, "post": number, "at": number, "_change_type": change}
    >>> def follow(user, whom, change="insert"):
    ...     return {"user": user, "whom": whom, "_change_type": change}
    >>> script = [
    ...     ([post("bob", 1), post("cat", 2), post("bob", 3)], [follow("ann", "bob")]),
    ...     (None, [follow("ann", "cat")]),
    ...     ([post("bob", 3, "delete")], None),
    ... ]
    >>> for result in replay(home, script):
    ...     print([(row["post"], row["_change_type"]) for row in result.rows])
    [(1, 'insert'), (3, 'insert')]
    [(1, 'delete'), (2, 'insert')]
    [(3, 'delete'), (1, 'insert')]

    See Also
    --------
    tables : the underlying join, of all posts with all followers.
    streamops.changes.aggregate : with ``aggregates.top``, one list per user instead of rows.

    References
    ----------
    Kleppmann: "Designing Data-Intensive Applications", chapter 11, "Table-table join".
    """
    where = TimelineParameters.where
    parameters = TimelineParameters(
        by=parse_keys(by),
        user=parse_distinct_names(user, parameter="user"),
        key=parse_distinct_names(key, parameter="key"),
        ranked_by=ranked_by,
        cap=cap,
        sequence=None if sequence is None else parse_name_pair(sequence, parameter="sequence"),
        remember=remember,
        rejected=rejected,
    )
    timelines = Operator(where, NewestParameters(parameters), TimelineCore())
    return Operator(
        where,
        parameters,
        TablesCore(),
        right=right,
        requires_transform="its second step follows in the same query",
        follow_up=timelines,
    )
