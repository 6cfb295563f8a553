"""Home timelines: the newest posts of those whom each user follows, kept up to date."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame

from streamops.joins.core import tables as core
from streamops.joins.core import timeline as newest
from streamops.joins.core.inputs import keys_of
from streamops.joins.core.tables_spec import Rejected, parse_name_pair
from streamops.joins.core.timeline_spec import NewestParameters, TimelineParameters
from streamops.kernel.parameters import parse_distinct_names
from streamops.spark.operator import Operator

__all__ = ["timeline"]


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
    """The newest posts of those whom each user follows, at most so many, as a change stream.

    A transform of posts that is given who follows whom, both change streams. After each micro-batch the
    published changes fold to one row per user and post: the `cap` posts of the authors followed then
    that are greatest in `ranked_by`, then in `key`. A new post comes in and pushes the oldest out; a
    deleted one goes, and the newest that was not shown comes; a new follow brings the author's posts
    of before (back-fill), an unfollow takes them along.

    Input        left, the posts: _change_type: string, "insert", "update_preimage",
                 "update_postimage" or "delete" · columns of `by` and `key`: any type with an order,
                 those of `by` any without a map in it · `ranked_by`: a type with an order; a null is
                 the oldest · other columns of any type. Right, who follows: _change_type · columns of
                 `user` and `by`, these of one type on both sides; others are not looked at
    Output       all columns of the posts · those of `user`, with the suffix "_right" where the name is
                 taken · _change_type: string: "insert", "delete", and the two images where a post
                 changes · where rejected changes are routed: late: struct<side, reason, lateness,
                 watermark, left, right>
    Output mode  append
    Watermark    none is needed
    State        the posts, and who follows; and per user every post of those followed, also of beyond
                 the cap: one of these follows where one is deleted. With `sequence` also at most
                 ``remember / shards``, rounded up, per shard and side, that are gone
    Order        changes of a micro-batch in any order; without `sequence` no delete comes in a
                 micro-batch before that of its insert, and none comes twice; with it, both may.
                 Output: in a shard what goes before what comes; over shards in no order
    Batch        the timelines of the two tables that the changes fold to, as inserts

    Parameters
    ----------
    right : DataFrame, optional
        Who follows whom, a change stream; the posts are the frame that is transformed. Both are
        streams, or both are batches. None where the test kit brings both.
    by : str, sequence of str, or mapping of str to str
        The author of a post, and who is followed: columns that must be equal; where they are called
        otherwise on the right, ``{"author": "whom"}``. A null is followed by nobody.
    user : str or sequence of str
        Columns of the right that say who follows. Without `sequence` a null is a user, too.
    key : str or sequence of str
        Primary key of the posts. A post is in a timeline once, also if it is followed twice. Orders posts
        that are equal in `ranked_by`: the greatest comes first.
    ranked_by : str
        What posts are compared by, such as the time of a post: the greatest is the newest.
    cap : int
        Most posts of a user's timeline. Older ones are not published, but kept: the cap bounds what
        the output folds to, and not the state. Belongs to the checkpoint.
    sequence : str, or tuple of str
        What orders the changes of a post, and of a user and author followed: as in
        :func:`streamops.joins.tables`, and so is `remember`.
    remember : int
        With `sequence`: rows that are gone whose sequence is kept.
    rejected : "drop" or "route"
        What happens to a change that cannot be: dropped, or delivered as a row of its own, split by :func:`streamops.split_side_output`; counted in either case. Reasons as in
        :func:`streamops.joins.tables`.

    Returns
    -------
    Operator
        For use with ``DataFrame.transform``. Its options hold for the join and for the timelines after
        it. The join always uses ``transformWithStateInPandas``, which lets the other follow; its
        metrics have the given name, those of the timelines the same with ``-2``.

    Raises
    ------
    SpecError
        ``NO_KEY``, ``NO_COLUMNS``, ``SAME_COLUMN``, ``NOT_A_PAIR``, ``NOT_A_NAME``,
        ``UNKNOWN_CHOICE``, ``CAP_OUT_OF_RANGE``, ``USER_IS_AUTHOR``,
        ``SEQUENCE_OF_REVISIONS``, ``CHANGE_TYPE_ASKED``, ``REMEMBER_WITH_SEQUENCE``,
        ``REMEMBER_OUT_OF_RANGE``; when it is called: ``RIGHT_MISSING``.
    SchemaError, ColumnNotFound
        A column does not exist, ``NOT_A_CHANGE_STREAM``, ``KEY_TYPES_DIFFER``, ``KEY_NOT_HASHABLE``,
        ``COLUMN_TYPE``, ``SEQUENCE_TYPE`` or ``NAME_TAKEN``. A frame has updates without the row
        before: ``NO_PREIMAGES``.

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
    tables : the join below it, of all posts with all who follow.
    streamops.changes.aggregate : with ``aggregates.top``, one list per user instead of rows.

    References
    ----------
    Kleppmann: "Designing Data-Intensive Applications", chapter 11, "Table-table join".
    """
    where = TimelineParameters.where
    parameters = TimelineParameters(
        by=keys_of(by, where=where),
        user=parse_distinct_names(user, parameter="user", where=where),
        key=parse_distinct_names(key, parameter="key", where=where),
        ranked_by=ranked_by,
        cap=cap,
        sequence=None
        if sequence is None
        else parse_name_pair(sequence, parameter="sequence", where=where),
        remember=remember,
        rejected=rejected,
    )
    timelines = Operator(where, NewestParameters(parameters), newest)
    return Operator(where, parameters, core, right=right, follow_up=timelines)
