"""Enrichment: each row of a stream with the current row of a table that changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
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
from streamops.joins import conditions
from streamops.joins.core.enrich import EnrichCore, EnrichSpec, How, Rejected
from streamops.joins.core.join_spec import parse_keys
from streamops.kernel.errors import located
from streamops.kernel.parameters import parse_distinct_names, refuse_type, require_columns
from streamops.kernel.time import Duration
from streamops.spark.columns import arrow_schema, column, map_type, require_frame, type_name
from streamops.spark.definition import Frames
from streamops.spark.operator import Operator


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
    """Join each fact with the row of its key in a stored copy of a table, when the fact is processed.

    The table's change stream keeps the copy up to date. A micro-batch's changes are applied before its
    facts are joined, and every fact is joined in its own micro-batch: none waits, and no result is
    revised. **A replay gives other results** if facts and changes are in other micro-batches; the copy
    itself does not depend on that. If results must not either, use :func:`asof`.

    Input        facts: key columns of any type except maps · table: key columns of the same types, not
                 null · `sequence`: columns with an order (no maps, no text), not null · `time`:
                 timestamp, not null · _change_type: string; without it, each row is an upsert · _unavailable:
                 array<string>, _snapshot, _tombstone: boolean, rejected, as in the output of
                 ``changes.from_debezium`` · other columns of any type: the values
    Output       all columns of the fact · the table's values, null where it has no such key, with the
                 suffix _right where the name is taken · `into`: string, "matched" or "missing" · where
                 rejected rows are routed: late: struct<side, reason, lateness, watermark, window, row>
    Output mode  append
    Watermark    none is needed; an existing one is lost
    State        per shard: the newest row of each key of the table, up to `max_keys` over all shards,
                 and the changes that supplied its missing values; of a deleted key its sequence, until
                 it is older than `horizon`. No facts
    Order        rows may arrive in any order. The copy does not depend on it, nor on the micro-batches,
                 if no change is later than the horizon; results do
    Batch        facts joined with the final table

    Parameters
    ----------
    right : DataFrame, optional
        The changes of the table; the left side, the facts, is the frame that is transformed. Both are
        streams, or both are batches. None if the test kit provides both.
    by : str, sequence of str, or mapping of str to str
        Key columns; a mapping from those of facts to those of the table if the names differ. They are
        the primary key of the table. A null of a fact matches nothing.
    sequence : str or sequence of str
        Columns of the table that order the changes of a key: the position in the log, not a clock. A
        change counts if it is above the stored one, also for a deleted key.
    horizon : duration or int
        For how long a delete is stored after the newest change of its shard: a duration on `time`, or
        without it in units of `sequence`. A later change at or below the highest evicted sequence, of a
        key that is not stored, is rejected: "forgotten".
    time : str, optional
        Column of the table in which the horizon is measured. It orders nothing; if it runs back along
        the changes of a key, the horizon must be longer by that.
    snapshot : DataFrame, optional
        A batch frame: the table before the changes. It needs the key, the sequence, `time` and the
        values; other columns are ignored. Read once into the state, when the query first starts; later
        starts may omit it. Its rows are below every change of the log. For streams it needs the state
        API transformWithStateInPandas. Rows of a snapshot may also be among the changes, marked by
        _snapshot.
    how : "left" or "inner"
        "left": a fact without a row is emitted with nulls. "inner": it is not emitted.
    rejected : "drop" or "route"
        What happens to invalid changes: dropped, or emitted as rows of their own, split by
        :func:`streamops.split_side_output`; counted in either case.
    max_keys : int
        Keys that are stored, including deleted ones. Each shard stores its part of them.
    when_full : "fail" or "reject_new"
        What happens to changes of further keys. "fail": the query fails, ``STATE_FULL``. "reject_new":
        they are rejected, "full".
    into : str
        Name of the column that states whether the table has a row.

    Returns
    -------
    Operator
        For use with ``DataFrame.transform`` on the facts.

    Raises
    ------
    SpecError
        A parameter has the wrong type, is out of range, or contradicts another; when it is called:
        ``PARAMETER_MISSING``, ``STREAMING_FRAME``, ``PARAMETERS_CONTRADICT``.
    SchemaError, ColumnNotFound
        A column does not exist, has the wrong type or has no free name in the output; ``ROWS_REVISED``:
        the facts are results that are revised.
    RequirementError
        The state API needs something that is not installed or configured.
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
    Columns of `sequence`, and those with a leading underscore in the output of
    ``changes.from_debezium`` and ``changes.from_delta``, are not values: copy them to have them in the
    output. Reasons of rejected rows: "unknown_operation", "null_key", "no_sequence", "null_time",
    "time_out_of_range", "conflict", "forgotten", "full"; a row that was rejected before keeps its
    reason. Preimages and tombstones have no effect. In the metrics, `too_late` are changes that are not
    above the stored one, including duplicates; `results` are joined facts.

    A column ``_change_type`` of the facts is an ordinary column: a retracted fact is joined as a fact,
    possibly with another row than before.

    See Also
    --------
    asof : the row at the event time of the fact; the same result in a replay.
    lookup : a small table that is read repeatedly, and has no change stream.

    References
    ----------
    Kleppmann: "Designing Data-Intensive Applications", chapter 11, "Stream-table join".
    """
    parameters = EnrichSpec(
        by=parse_keys(by),
        sequence=parse_distinct_names(sequence, parameter="sequence"),
        horizon=parse_horizon(horizon, time, parameter="horizon"),
        time=time,
        how=how,
        max_keys=max_keys,
        when_full=when_full,
        rejected=rejected,
        into=into,
    )
    operator = Operator("joins.enrich", parameters, EnrichCore(), right=right)
    if snapshot is None:
        return operator
    return replace(
        operator,
        initial=snapshot,
        prepare=partial(_prepare_snapshot, parameters),
        requires_transform="its state starts with the rows of a frame",
    )


def _prepare_snapshot(parameters: EnrichSpec, frames: Frames) -> Frames:
    """Changes and rows of the snapshot, with the same columns. A batch has one table of both."""
    (facts, changes), initial = frames
    snapshot = require_frame(initial, "the snapshot")
    if SNAPSHOT not in changes.columns:
        changes = changes.withColumn(SNAPSHOT, F.lit(False))
    rows = _snapshot_rows(parameters, snapshot, changes)
    if not facts.isStreaming:
        return Frames((facts, changes.unionByName(rows)))
    return Frames((facts, changes), initial=rows)


@located(at="snapshot")
def _snapshot_rows(parameters: EnrichSpec, snapshot: DataFrame, changes: DataFrame) -> DataFrame:
    """The rows of a snapshot as changes, with the columns of these."""
    if snapshot.isStreaming:
        raise conditions.SNAPSHOT_IS_A_STREAM.error(column=SNAPSHOT, got="a streaming frame")
    own, schema = (arrow_schema(frame) for frame in (snapshot, changes))
    values = value_columns(schema, parameters.right_by, parameters.sequence)
    required = {"by": parameters.right_by, "sequence": parameters.sequence}
    required |= {"time": parameters.times_of_table, "value": values}
    require_columns(own.names, required)
    row = {name for names in required.values() for name in names}
    constants = {SNAPSHOT: F.lit(True), CHANGE_TYPE: F.lit(INSERT)}
    columns = []
    for target in changes.schema.fields:
        name = target.name
        if name in row and own.field(name).type != schema.field(name).type:
            expected = type_name(schema.field(name).type)
            refuse_type(conditions.SNAPSHOT_TYPE, own, name, expected=expected)
        value = column(name) if name in row else constants.get(name, F.lit(None))
        columns.append(value.cast(map_type(target.dataType, relax=True)).alias(name))
    return snapshot.select(*columns)
