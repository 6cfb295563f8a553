"""As-of joins: each row of a stream with the version of a table closest to its event time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame

from streamops.changelog.versions import Direction
from streamops.joins.core.asof import (
    AsofCore,
    AsofSpec,
    How,
    LateVersions,
    Stragglers,
    TooLate,
    WaitsFor,
    refuse_pair,
)
from streamops.joins.core.join_spec import parse_keys
from streamops.kernel.parameters import Text, parse_delay, parse_delays, require_name
from streamops.kernel.time import Duration, parse_duration
from streamops.spark.operator import Operator


def asof(
    right: DataFrame | None,
    *,
    by: str | Sequence[str] | Mapping[str, str],
    time: Text,
    version: str,
    sequence: str,
    until: str | None = None,
    deleted: str | None = None,
    how: How = "left",
    tolerance: Duration | None = None,
    direction: Direction = "backward",
    allow_exact: bool = True,
    waits_for: WaitsFor = "both",
    delay: Duration | tuple[Duration | None, Duration | None] | None = None,
    allowed_lateness: Duration = "0 seconds",
    stragglers: Stragglers = "drop",
    late_versions: LateVersions = "ignore",
    too_late: TooLate = "drop",
    into: str = "status",
) -> Operator:
    """Join each fact with the version of its key that is closest to its event time.

    The table is a stream of *versions*: the state of a row from an instant on. A fact at ``t`` gets the
    newest version of its key with `version` <= ``t``, the one in effect at ``t``; with `direction`
    "forward" the first with `version` >= ``t``, with "nearest" the closer of the two. Of several
    versions at one instant the last by `sequence` counts. The fact waits until the watermark has
    reached ``t``; forward and nearest, ``t`` + `tolerance`. So the result does not depend on the order
    in which facts and versions arrive, nor on the micro-batches, and a replay gives the same result.

    Input        facts: `time`: timestamp (event time) · key columns of any type except maps · versions:
                 key columns of the same types · `version`: timestamp · `sequence`: a type with an
                 order · _tombstone: boolean · a duplicate fact is joined twice; a duplicate version has
                 no effect
    Output       all columns of the fact · all of the version except its keys, null where there is none,
                 with the suffix _right where the name is taken · `into`: string, "matched" or
                 "missing" · with "retract" _change_type: string · where rows may be routed late:
                 struct<side, reason, lateness, watermark, window, row>
    Output mode  append
    Watermark    defined by `delay`, or brought by the frames: the lower one of both sides, or that of
                 the facts alone (`waits_for`); Spark's own delay is delay + allowed_lateness, and
                 + tolerance for "forward" and "nearest", whose results are held back by it
    State        per shard: facts above the watermark · of each key every version above the watermark,
                 and except for "forward" the newest of the others · "retract" and "answer" store facts
                 and versions for `allowed_lateness` longer, "forward" and "nearest" for `tolerance`
                 longer. Without `tolerance` the state grows with the number of keys, including deleted
                 ones; with it a key is evicted once its newest version is older
    Order        rows may arrive in any order; `sequence` orders versions of one instant
    Batch        same rows, no watermark needed, nothing is late

    Parameters
    ----------
    right : DataFrame, optional
        The versions; the left side, the facts, is the frame that is transformed. Both are streams, or
        both are batches. None if the test kit provides both.
    by : str, sequence of str, or mapping of str to str
        Key columns; a mapping from those of facts to those of versions if the names differ. A null
        matches nothing.
    time : str
        Event-time column of facts, of type timestamp.
    version : str
        Column of versions, of type timestamp: the instant from which on a version is in effect.
    sequence : str
        Column of versions that orders those of one instant: a log position, a commit version; not a
        clock, nor a `revision`, which a delete shares with the row that it deletes. It may be `version`
        if a key has one version at an instant, such as the results of a window. Versions with equal
        key, instant, sequence and values are duplicates. If the values differ, the version with the
        lower values is rejected as "conflicting_version"; columns are compared in the order of their
        names. A delete is below all others.
    until : str, optional
        Column of versions, of type timestamp: the instant from which on a version is not in effect
        any more, or null. For histories with validities, ``[valid_from, valid_to)``. A version that has
        ended still hides those before it, also one whose `until` equals its `version`, which is never
        found. Refused with direction="forward", which ignores it;
        "nearest" applies it to the version before the fact, and skips a later one that is empty.
    deleted : str, optional
        A boolean column of versions: true if the row was deleted. Not needed for a change stream: in a
        table with a column ``_change_type``, a ``delete`` is a deletion, and an ``update_preimage``
        is ignored; so is a row whose ``_tombstone`` is true. None of these columns is in the output.
        A deletion hides the versions before it; a forward search skips it, and finds the next version
        with a value.
    how : "left" or "inner"
        "left": a fact without a version is emitted with nulls. "inner": it is not emitted.
    tolerance : duration, optional
        Greatest distance between the event time and `version`, inclusive. Bounds the state. Required
        on streams for "forward" and "nearest": a fact waits this much longer.
    direction : "backward", "forward" or "nearest"
        "backward": the newest version at or before the event time, the state of the row at that time.
        "forward": the first version at or after it. "nearest": whichever of the two is closer, the
        one before if both are equally far. As in pandas' ``merge_asof``.
    allow_exact : bool
        Whether a version at exactly the event time is a candidate. False: only versions strictly
        before or after it; for a table that is derived from the facts themselves.
    waits_for : "both" or "facts"
        The inputs that define the watermark. "both": results wait for the versions. "facts": a table
        that seldom changes does not hold them back; versions behind the watermark of the facts are
        late. The versions must not have a watermark of their own then: Spark would wait for it.
    delay : duration or pair of durations, optional
        How long results wait for late facts and versions. A pair: on facts and on versions. Whole
        milliseconds. The operator then defines the watermarks. Omitted on frames that have one: their
        delay less `allowed_lateness`, and for "forward" and "nearest" less `tolerance`.
    allowed_lateness : duration
        How much longer late facts are joined and results are revised, >= 0.
    stragglers : "drop", "route" or "answer"
        What happens to a late fact. "drop": it is counted. "route": it is emitted as a row with a
        non-null ``late``. "answer": it is joined at once if it is less than `allowed_lateness` below
        the watermark; the versions that it may need stay in state.
    late_versions : "ignore" or "retract"
        What happens to published results when a late version changes them. "ignore": they stay.
        "retract": the results of facts less than `allowed_lateness` (for "forward" and "nearest", plus
        `tolerance`) below the watermark are revised, as a change stream; facts have no identity, so a
        preimage or a delete retracts one row that equals it. In both cases the version counts for all
        facts that are not joined yet, however late it is.
    too_late : "drop" or "route"
        With "answer" or "retract": what happens to facts and versions beyond the allowed lateness. A
        version that is emitted counts nevertheless: the row states that final results may have missed
        it. stragglers="route" emits these, too, and every version that missed a result.
    into : str
        Name of the column that states whether a fact has a version.

    Returns
    -------
    Operator
        For use with ``DataFrame.transform`` on the facts.

    Raises
    ------
    SpecError
        A parameter has the wrong type, is out of range or contradicts another; ``NAME_TAKEN``,
        ``PARAMETERS_CONTRADICT``; ``PARAMETER_MISSING``: "forward" or "nearest" on a stream;
        ``PARAMETER_WITHOUT_EFFECT``; ``PARAMETERS_CONTRADICT``: no distance can match.
    SchemaError, ColumnNotFound
        A column does not exist, has the wrong type or has no free name in the output; ``ROWS_REVISED``:
        the facts are results that are revised; ``FRAME_TYPE``: the versions have a column
        ``_unavailable``, of values that were not sent.
    WatermarkError
        A streaming frame without a watermark on its time and no `delay`, or both;
        ``WATERMARK_NOT_WAITED_FOR``: versions with one and waits_for="facts".
    RequirementError
        The state API needs something that is not installed or configured.

    Examples
    --------
    >>> from streamops import joins
    >>> priced = joins.asof(
    ...     prices, by="symbol", time="ts", version="since", sequence="seq", delay="10 seconds"
    ... )
    >>> trades.transform(priced)
    DataFrame[symbol: string, ts: timestamp, amount: bigint, since: timestamp, ..., status: string]

    Notes
    -----
    Rows whose time is null or outside years 1 to 9999 ("null_time", "time_out_of_range"), versions
    without a sequence ("null_sequence"), whose `until` is before their `version`
    ("until_before_version") or with another ``_change_type`` ("unknown_change_type") are counted as
    ``rejected``, and are part of the side output where rows are routed.

    Versions are complete rows. Apply ``changes.normalize`` to what ``changes.from_debezium`` reads, and
    mark deletes with a column: docs/joins.md, "A captured table".

    A column ``_change_type`` of the facts is an ordinary column: a retracted fact is joined as a fact.

    A table that does not change does not advance its watermark: with waits_for="both" results wait
    for its next version. Spark's watermark starts at 1970: results of facts before it are emitted once
    the watermark has passed 1970.

    See Also
    --------
    enrich : the current row of a table that changes, without waiting; differs in a replay.
    lookup : the current row of a small table, without waiting; differs in a replay.

    References
    ----------
    Kleppmann: "Designing Data-Intensive Applications", chapter 11, "Time-dependence of joins".
    """
    refuse_pair(time)
    require_name(time, parameter="time")
    parameters = AsofSpec(
        by=parse_keys(by),
        time=time,
        version=version,
        sequence=sequence,
        until=until,
        deleted=deleted,
        how=how,
        tolerance=None
        if tolerance is None
        else parse_duration(tolerance, parameter="tolerance", minimum=0),
        direction=direction,
        allow_exact=allow_exact,
        waits_for=waits_for,
        delay=parse_delays(delay, waits_for=waits_for),
        allowed_lateness=parse_delay(allowed_lateness, parameter="allowed_lateness"),
        stragglers=stragglers,
        late_versions=late_versions,
        too_late=too_late,
        into=into,
    )
    if right is None or getattr(right, "isStreaming", True):
        parameters.require_tolerance()
    return Operator("joins.asof", parameters, AsofCore(), right=right)
