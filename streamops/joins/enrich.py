"""Latest-value joins: what the local copy of a table says now."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from streamops.changelog.change_types import CHANGE_TYPE, INSERT
from streamops.changelog.table import (
    DEFAULT_MAX_KEYS,
    SNAPSHOT,
    WhenFull,
    parse_horizon,
    value_columns,
)
from streamops.joins.core import enrich as core
from streamops.joins.core.enrich_spec import EnrichSpec, How, Rejected
from streamops.joins.core.inputs import keys_of, refuse_missing
from streamops.kernel.errors import SpecError
from streamops.kernel.parameters import parse_distinct_names, refuse_type
from streamops.kernel.time import Duration
from streamops.spark.columns import arrow_schema, column, require_frame, type_name
from streamops.spark.operator import Operator

__all__ = ["enrich"]


def enrich(
    right: DataFrame | None,
    *,
    by: str | Sequence[str] | Mapping[str, str],
    sequence: str | Sequence[str],
    horizon: Duration | int,
    time: str | None = None,
    snapshot: DataFrame | None = None,
    how: How = "left",
    rejected: Rejected = "drop",
    max_keys: int = DEFAULT_MAX_KEYS,
    when_full: WhenFull = "fail",
    into: str = "status",
) -> Operator:
    """Put beside each fact what the local copy of a table says of its key when the fact is processed.

    The copy is kept up to date by the table's change stream. A micro-batch's changes are applied
    before its facts are answered, and every fact is answered in its own micro-batch: none waits, and
    no answer is revised. **A replay gives other answers** where facts and changes meet in other
    micro-batches; the copy itself does not depend on that. Where answers must not either, take
    :func:`asof`.

    Input        facts: key columns of any type but maps · table: key columns of the same types, not
                 null · `sequence`: columns that can be compared (no maps), not null · `time`:
                 timestamp, not null · _change_type: string; left out, each row is an upsert ·
                 _unavailable: array<string>, _snapshot, _tombstone: boolean, rejected, as
                 ``changes.from_debezium`` has them · other columns of any type: the values
    Output       all columns of the fact · the table's values, null where it has no such key; one whose
                 name is taken ends with _right · `into`: string, "matched" or "missing" · where
                 rejected rows are routed: late: struct<side, reason, lateness, watermark, left, right>
    Output mode  append
    Watermark    none is needed; one is lost
    State        per shard: the newest row of each key of the table, up to `max_keys` over all shards,
                 and the changes that values it was not sent with came of; of a deleted key its place,
                 until it is older than `horizon`. No facts
    Order        rows may come in any order. The copy does not depend on it, nor on how the streams are
                 cut, if no change comes later than the horizon; answers do
    Batch        what the table says in the end

    Parameters
    ----------
    right : DataFrame, optional
        The changes of the table; the left side, the facts, is the frame that is transformed. Both are
        streams, or both are batches. None where the test kit brings both.
    by : str, sequence of str, or mapping of str to str
        Key columns; a mapping from those of facts to those of the table where they are called otherwise.
        They identify a row of the table. A null in a fact's matches nothing.
    sequence : str or sequence of str
        Columns of the table that order the changes of a key: the position in the log. Never a clock's
        time. A change counts if it is above what is remembered, also of a deleted key.
    horizon : duration or int
        For how long a delete is remembered after the newest change of its shard: a duration on
        `time`, or without it so many units of `sequence`. A change that comes later, at or below the
        highest place forgotten, of a key of which nothing is known, is rejected: "forgotten".
    time : str, optional
        Column of the table in which the horizon is measured. It orders nothing; where it runs back
        along the changes of a key, the horizon must be longer by so much.
    snapshot : DataFrame, optional
        A batch frame: what the table was before the changes. With the key, the sequence, `time` and the
        values, other columns are left out. Read once, when the query first starts, into the state;
        later starts may leave it out. Its rows lose against every row of the log. For streams it
        needs the state API transformWithStateInPandas. Rows of a snapshot may as well come among the
        changes, where _snapshot says which they are.
    how : "left" or "inner"
        "left": a fact without a row comes out with nulls. "inner": not at all.
    rejected : "drop" or "route"
        What happens to rows that are no change of the table: dropped, or delivered as a row of its own,
        split by :func:`streamops.split_side_output`; counted in either case.
    max_keys : int
        Keys that are kept, deleted ones among them. Each shard keeps its part of them.
    when_full : "fail" or "reject"
        What happens to changes of further keys. "fail": the query fails, ``KEYS_FULL``. "reject":
        they are rejected, "full".
    into : str
        Name of the column that says whether the table has a row.

    Returns
    -------
    Operator
        For use with ``DataFrame.transform`` on the facts.

    Raises
    ------
    SpecError
        A parameter has the wrong type, is out of range, or does not go with another; when it is called:
        ``RIGHT_MISSING``, ``MIXED_FRAMES``, ``SNAPSHOT_IS_A_STREAM``, ``SNAPSHOT_NEEDS_STATE_API``.
    SchemaError, ColumnNotFound
        A column does not exist, has the wrong type or finds no name in the output; ``ROWS_REVISED``:
        the facts are results that are told again.
    RequirementError
        The state API needs something that is not there.
    CapacityError
        While the query runs: there are more keys than `max_keys`, and `when_full` is "fail".

    Examples
    --------
    >>> from streamops import joins
    >>> from streamops.testing import replay
    >>> rated = joins.enrich(None, by="user", sequence="lsn", horizon=1_000)
    >>> script = [
    ...     ([{"user": "a"}], [{"user": "a", "plan": "free", "lsn": 1}]),
    ...     ([{"user": "a"}], [{"user": "a", "plan": "pro", "lsn": 3}]),
    ...     ([{"user": "a"}], [{"user": "a", "plan": "late", "lsn": 2}]),
    ... ]
    >>> [row["plan"] for result in replay(rated, script) for row in result.rows]
    ['free', 'pro', 'pro']

    Notes
    -----
    Columns of `sequence`, and those that begin with an underscore in what ``changes.from_debezium`` and
    ``changes.from_delta`` put out, are no values: copy them to have them in the output. Reasons of
    rejected rows: "unknown_operation", "null_key", "no_sequence", "null_time", "time_out_of_range",
    "conflict", "forgotten", "full"; a row that was rejected before keeps its reason. Preimages and
    tombstones mean nothing here. In the counts, `too_late` are changes that are not above what is
    remembered of their key, duplicates among them; `results` are answers.

    A column ``_change_type`` of the facts is one like any other: a fact that is taken back is a fact,
    and may find another answer than before.

    See Also
    --------
    asof : the table as it was at the event time; the same answer whenever it is asked for.
    lookup : a small table that is read again and again, and has no change stream.

    References
    ----------
    Kleppmann: "Designing Data-Intensive Applications", chapter 11, "Stream-table join".
    """
    where = EnrichSpec.where
    parameters = EnrichSpec(
        by=keys_of(by, where=where),
        sequence=parse_distinct_names(sequence, parameter="sequence", where=where),
        horizon=parse_horizon(horizon, time, parameter="horizon", where=where),
        time=time,
        how=how,
        max_keys=max_keys,
        when_full=when_full,
        rejected=rejected,
        into=into,
    )
    initial = None if snapshot is None else partial(_start_with_snapshot, snapshot)
    return Operator(where, parameters, core, right=right, initial=initial)


def _start_with_snapshot(
    snapshot: DataFrame, operator: Operator, frame: DataFrame, right: DataFrame
) -> tuple[DataFrame, DataFrame | None]:
    """The changes, and the rows of the snapshot that the state starts with."""
    require_frame(snapshot, "the snapshot", where=operator.name)
    changes = _mark_snapshots(right)
    rows = _snapshot_rows(operator.parameters, snapshot, changes)
    if not frame.isStreaming:
        return changes.unionByName(rows), None
    if operator.execution.state_api == "applyInPandasWithState":
        raise SpecError(
            "SNAPSHOT_NEEDS_STATE_API",
            "this state API starts with an empty state",
            where=operator.name,
            got="snapshot=... with state_api='applyInPandasWithState'",
            expected="state_api='transformWithStateInPandas'",
            fix="leave state_api out, which needs RocksDB; or add the rows of the snapshot to "
            "the changes, with a boolean column '_snapshot'",
        )
    return changes, rows


def _mark_snapshots(table: DataFrame) -> DataFrame:
    """The changes, each of which says whether it is a row of a snapshot."""
    return table if SNAPSHOT in table.columns else table.withColumn(SNAPSHOT, F.lit(False))


def _snapshot_rows(parameters: EnrichSpec, snapshot: DataFrame, table: DataFrame) -> DataFrame:
    """The rows of a snapshot as changes, with the columns of these.

    Raises
    ------
    SpecError
        ``SNAPSHOT_IS_A_STREAM``.
    SchemaError, ColumnNotFound
        A column of the table's row is not there, or of another type.
    """
    where = f"{parameters.where}, snapshot"
    if snapshot.isStreaming:
        raise SpecError(
            "SNAPSHOT_IS_A_STREAM",
            "a snapshot is read whole, before all changes",
            where=where,
            got="a streaming frame",
            expected="a batch frame",
            fix=f"spark.read instead of spark.readStream; or leave snapshot out, where its rows come "
            f"among the changes and a boolean column {SNAPSHOT!r} says which these are",
        )
    own, changes = (arrow_schema(each, where=where) for each in (snapshot, table))
    theirs = [name for _, name in parameters.by]
    values = value_columns(changes, theirs, parameters.sequence)
    times = () if parameters.time is None else (parameters.time,)
    asked = {"by": theirs, "sequence": parameters.sequence, "time": times, "value": values}
    refuse_missing(own, asked, where=where)
    row = {name for names in asked.values() for name in names}
    said = {SNAPSHOT: F.lit(True), CHANGE_TYPE: F.lit(INSERT)}
    columns = []
    for each in table.schema.fields:
        if each.name in row:
            wanted = changes.field(each.name).type
            if own.field(each.name).type != wanted:
                expected = f"{type_name(wanted)}, as in the changes"
                fix = f"cast it: snapshot.withColumn({each.name!r}, ...)"
                refuse_type(own, each.name, "the table's", expected, fix, where=where)
            value = column(each.name)
        else:
            value = said.get(each.name, F.lit(None))
        columns.append(value.cast(each.dataType).alias(each.name))
    return snapshot.select(*columns)
