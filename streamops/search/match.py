"""Stored queries: the documents of a stream that match each query of a table that changes."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from streamops.changelog.table import (
    CHANGED_AT,
    DEFAULT_MAX_KEYS,
    SEQUENCE,
    WhenFull,
    parse_horizon,
)
from streamops.kernel.parameters import parse_delays, parse_distinct_names
from streamops.kernel.time import Duration
from streamops.search.core.asof import SearchAsofCore
from streamops.search.core.match import SearchCore
from streamops.search.core.parse import DefaultOperator, require_luqum
from streamops.search.core.spec import MatchSpec, Rejected, WaitsFor
from streamops.spark.operator import Operator


def match(
    queries: DataFrame | None,
    *,
    text: str | Sequence[str] = (),
    fields: str | Sequence[str] = (),
    id: str = "id",
    query: str = "query",
    default_operator: DefaultOperator = "or",
    as_of: str | None = None,
    sequence: str | Sequence[str] = SEQUENCE,
    horizon: Duration | int = "7 days",
    time: str | None = None,
    waits_for: WaitsFor = "both",
    delay: Duration | tuple[Duration | None, Duration | None] | None = None,
    rejected: Rejected = "drop",
    max_keys: int = DEFAULT_MAX_KEYS,
    when_full: WhenFull = "fail",
    into: str = "query_id",
) -> Operator:
    """Match each document of a stream against stored queries, which may change at any time.

    The reverse of a search: the queries are stored, and the documents pass by. The change stream of
    the queries keeps the stored copy up to date. Which queries a document is matched with, is a choice:

    - by default, those in effect when it is processed. A micro-batch's changes are applied before its
      documents are matched, and no document waits. **A replay gives other results** if documents and
      changes are in other micro-batches; the stored queries themselves do not depend on that;
    - with `as_of`, those that were valid at its event time. A document at ``t`` waits until the watermark
      has reached ``t``, and is matched with the newest version of each query whose `time` is at or before
      ``t``. A replay gives the same results, as does a batch.

    Input        documents: `text`: string · `fields`: string, boolean, an integer, float, double, date
                 or timestamp · `as_of`: timestamp (event time) · other columns of any type · queries:
                 `id`: any type except maps, not null · `query`: string · `sequence`: columns with an order (no maps, no text), not null · `time`:
                 timestamp, not null · _change_type: string; without it, each row is an upsert ·
                 _unavailable: array<string>, _snapshot, _tombstone: boolean, rejected, as in the output
                 of ``changes.from_debezium``; other columns are ignored
    Output       one row for each document and matching query: all columns of the document · `into`: the
                 id of the query · where rejected rows are routed: late: struct<side, reason, lateness,
                 watermark, window, row, position, message>
    Output mode  append
    Watermark    none is needed, and an existing one is lost; with `as_of` defined by `delay`, or brought
                 by the frames: the lower one of both, or that of the documents alone (`waits_for`)
    State        per shard: a part of the queries, compiled, up to `max_keys` over all shards; of a
                 deleted query its sequence, until it is older than `horizon`. No documents · with
                 `as_of` every version above the watermark, and the newest of the others; in every shard
                 all documents above the watermark
    Order        rows may arrive in any order. The stored queries do not depend on it, nor on the
                 micro-batches, if no change is later than the horizon; results do, except with `as_of`
    Batch        documents matched with the final queries; with `as_of`, with those valid at their time

    Parameters
    ----------
    queries : DataFrame, optional
        The changes of the table of queries; the left side, the documents, is the frame that is
        transformed. Both are streams, or both are batches. None if the test kit provides both.
    text : str or sequence of str
        Columns of documents whose words are searched. Words are runs of letters, marks, digits and
        underscores in lower case; there is no stemming, and no word is left out.
    fields : str or sequence of str
        Columns of documents whose whole value is compared, in queries as ``name:value``. Strings are
        compared exactly, including upper and lower case.
    id : str
        Column of queries with their primary key.
    query : str
        Column of queries with their text: see *Notes*.
    default_operator : "or" or "and"
        What conditions side by side mean, without an operator in between: at least one of them, or all.
    as_of : str, optional
        Event-time column of documents, of type timestamp. They wait for the watermark, and are matched
        with the queries that were valid at this time.
    sequence : str or sequence of str
        Columns of queries that order the changes of a query: the position in the log, not a clock. A
        change counts if it is above the stored one, also for a deleted query. With `as_of`, it orders
        changes of one instant only.
    horizon : duration or int
        For how long a delete is stored after the newest change of its shard: a duration on `time`, or
        an integer in units of `sequence`. A later change at or below the highest evicted sequence, of a
        query that is not stored, is rejected: "forgotten". With `as_of`, a duration: a delete is stored
        until the watermark is so far behind it.
    time : str, optional
        Column of queries in which the horizon is measured; "_changed_at" by default, if the horizon is
        a duration. With `as_of`, the instant from which on a change is in effect.
    waits_for : "both" or "documents"
        With `as_of`: the inputs that define the watermark. "both": documents wait for the changes of
        queries, also for those that arrive after them. "documents": a table of queries that seldom changes
        does not hold them back; a change behind the watermark of the documents is late. The queries must
        not have a watermark of their own then: Spark would wait for it.
    delay : duration or pair of durations, optional
        With `as_of`: how long documents wait for late documents and changes. A pair: on documents and on
        queries. Whole milliseconds. The operator then defines the watermarks. Omitted on frames that have
        one.
    rejected : "drop" or "route"
        What happens to invalid queries and changes, and with `as_of` to late rows: dropped, or emitted as
        rows of their own, split by :func:`streamops.split_side_output`; counted in either case. An
        invalid query is never in effect: the previous one of its id stays.
    max_keys : int
        Queries that are stored, including deleted ones. Each shard stores its part of them.
    when_full : "fail" or "reject_new"
        What happens to changes of further queries. "fail": the query fails, ``STATE_FULL``. "reject_new":
        they are rejected, "full".
    into : str
        Name of the column with the id of the query.

    Returns
    -------
    Operator
        For use with ``DataFrame.transform`` on the documents.

    Raises
    ------
    SpecError
        A parameter has the wrong type, is out of range, or contradicts another: ``PARAMETER_WITHOUT_EFFECT``;
        when it is called: ``PARAMETER_MISSING``, ``STREAMING_FRAME``.
    WatermarkError
        With `as_of`: a streaming frame without a watermark on its time and no `delay`, or both;
        ``WATERMARK_NOT_WAITED_FOR``: queries with one and waits_for="documents".
    SchemaError, ColumnNotFound
        A column does not exist, has the wrong type or has no free name in the output; ``ROWS_REVISED``:
        the documents are results that are revised.
    RequirementError
        The package luqum is not installed: ``PACKAGE_MISSING``; the state API needs something that is
        not installed or configured.
    CapacityError
        While the query runs: there are more queries than `max_keys`, and `when_full` is "fail".

    Examples
    --------
    >>> from streamops import search
    >>> from streamops.testing import replay
    >>> alerts = search.match(None, text="title", fields="price", sequence="lsn", horizon=1_000)
    >>> bike = {"title": "A red bicycle", "price": 80}
    >>> script = [
    ...     ([bike], [{"id": 1, "query": "bicycle AND price:[* TO 100]", "lsn": 1}]),
    ...     ([bike], [{"id": 2, "query": "red -car", "lsn": 2}]),
    ...     ([bike], [{"id": 1, "query": "price:>100", "lsn": 3}]),
    ... ]
    >>> [sorted(row["query_id"] for row in result.rows) for result in replay(alerts, script)]
    [[1], [1, 2], [2]]

    Notes
    -----
    Queries have the syntax of Lucene, parsed by luqum: ``word``, ``"a phrase"``, ``pre*``,
    ``name:condition``, ``field:[low TO high]`` with braces for excluded bounds and ``*`` for none,
    ``field:>=5``, ``field:*`` for any value, ``AND``, ``OR``, ``NOT``, ``+required``, ``-excluded``,
    parentheses, and a backslash before a character without its meaning. AND binds more tightly than
    OR, and both more than conditions side by side. docs/search.md has the whole definition.

    Refused as invalid, with the position: wildcards inside words, fuzzy and proximity searches,
    boosts, regular expressions, ranges over text. A query that only excludes is valid: it matches all
    other documents, and is compared with every document.

    Reasons of rejected rows: "invalid_query", "unknown_operation", "null_key", "no_sequence",
    "null_time", "time_out_of_range", "conflict", "forgotten", "full"; a row that was rejected before
    keeps its reason. Preimages and tombstones have no effect. The metrics count changes, not documents,
    which are sent to every shard: `changes`, `rejected`, `on_time`, `too_late` (changes that are not
    above the stored one, including duplicates), and `results`, the matches.

    With `as_of`, documents and changes at or below the watermark are "too_late". A late document is not
    matched. A late change counts for all documents that still wait; where it is routed, its row states
    that matches may have missed it. Documents without a usable time are rejected, too. The metrics are
    `rows` of both inputs, `rejected`, `on_time`, `too_late` and `results`. A table of queries that does
    not change does not advance its watermark: with waits_for="both", documents wait for its next change.

    See Also
    --------
    joins.enrich : documents with the current row of a table, by key.
    joins.asof : documents with the row of a table that was valid at their event time, by key.

    References
    ----------
    Kleppmann: "Designing Data-Intensive Applications", chapter 11, "Search on streams".
    """
    require_luqum()
    if time is None and (as_of is not None or not isinstance(horizon, int)):
        time = CHANGED_AT
    parameters = MatchSpec(
        text=parse_distinct_names(text, parameter="text", empty=True),
        fields=parse_distinct_names(fields, parameter="fields", empty=True),
        id=id,
        query=query,
        default_operator=default_operator,
        as_of=as_of,
        sequence=parse_distinct_names(sequence, parameter="sequence"),
        horizon=parse_horizon(horizon, time, parameter="horizon"),
        time=time,
        waits_for=waits_for,
        delay=parse_delays(delay, waits_for=waits_for),
        max_keys=max_keys,
        when_full=when_full,
        rejected=rejected,
        into=into,
    )
    core = SearchCore() if as_of is None else SearchAsofCore()
    return Operator("search.match", parameters, core, right=queries)
