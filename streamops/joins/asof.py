"""As-of joins: each row of a stream with the version of a table closest to its event time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql import DataFrame

from streamops.joins.core import asof as core
from streamops.joins.core.asof_spec import (
    AsofSpec,
    Direction,
    How,
    LateVersions,
    Stragglers,
    TooLate,
    WaitsFor,
)
from streamops.joins.core.inputs import Both, delays_of, keys_of
from streamops.kernel.errors import SpecError
from streamops.kernel.parameters import parse_delay
from streamops.kernel.time import Duration, parse_duration
from streamops.spark.operator import Operator

__all__ = ["asof"]


def asof(
    right: DataFrame | None,
    *,
    by: str | Sequence[str] | Mapping[str, str],
    time: str,
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
    newest version of its key with `version` <= ``t``, the one that held at ``t``; with `direction`
    "forward" the first with `version` >= ``t``, with "nearest" the closer of the two. Of several
    versions at one instant the last by `sequence` counts. The fact waits until the watermark has
    reached ``t``, or ``t`` + `tolerance` if it looks ahead. So the answer does not depend on the order
    in which facts and versions arrive, nor on the micro-batches, and a replay gives the same answer.

    Input        facts: `time`: timestamp (event time) · key columns of any type but maps · versions:
                 key columns of the same types · `version`: timestamp · `sequence`: values that have an
                 order · _tombstone: boolean · a fact that is delivered twice is answered twice; a
                 version that is delivered twice is absorbed
    Output       all columns of the fact · all of the version but its keys, null where there is none; one
                 whose name is taken ends with _right · `into`: string, "matched" or "missing" · with
                 "retract" _change_type: string · where rows may be routed late: struct<side,
                 reason, lateness, watermark, left, right>
    Output mode  append
    Watermark    defined by `delay`, or brought by the frames: that of the side that is further
                 behind, or of the facts alone (`waits_for`); Spark's own delay is delay +
                 allowed_lateness, and + tolerance for "forward" and "nearest": so far results are held
                 back
    State        per shard: facts above the watermark (with "retract": less than allowed_lateness below
                 it, too; for "forward" and "nearest", tolerance longer) · of each key every version above the watermark (with "retract" or "answer":
                 less than allowed_lateness below it, too; for "forward" and "nearest", tolerance
                 longer), and but for "forward" the newest of the others. Without `tolerance` it grows
                 with the number of keys, deleted ones among them; with it a key is evicted once its
                 newest version is older
    Order        rows may come in any order; of versions of one instant `sequence` decides
    Batch        same rows out, no watermark needed, nothing is late

    Parameters
    ----------
    right : DataFrame, optional
        The versions; the left side, the facts, is the frame that is transformed. Both are streams, or
        both are batches. None where the test kit brings both.
    by : str, sequence of str, or mapping of str to str
        Key columns; a mapping from those of facts to those of versions where they are called otherwise.
        A null matches nothing.
    time : str
        Event-time column of facts, of type timestamp.
    version : str
        Column of versions, of type timestamp: from which instant on one holds.
    sequence : str
        Column of versions that orders those of one instant: a log position, a commit version, never a
        clock, nor a `revision`, which a delete has of the row that it deletes. Two versions of one
        key, instant and sequence that say the same are one; if they do not, one is rejected as
        "clashing_version": the lesser by its values, in the order of the columns' names; a row that
        says "deleted" is below all others.
    until : str, optional
        Column of versions, of type timestamp: from which instant on one holds no more, null while it
        does. For histories with validities, ``[valid_from, valid_to)``. Also a validity that is over
        hides the versions before it. Refused with direction="forward", which ignores it; "nearest"
        applies it to the version before the fact, and skips a later one that ends as it begins.
    deleted : str, optional
        A boolean column of versions: true for one that says that the row is gone. A change stream
        needs none: in a table with a column ``_change_type``, a ``delete`` says so, and an
        ``update_preimage`` says nothing; nor does a row whose ``_tombstone`` is true. None of these
        columns is in the output. A delete hides the versions before it; a forward search skips it, and
        finds the next version with a value.
    how : "left" or "inner"
        "left": a fact without a version comes out with nulls. "inner": not at all.
    tolerance : duration, optional
        Greatest distance between the event time and `version`, inclusive. Bounds the state. Required
        on streams for "forward" and "nearest": a fact waits this much longer.
    direction : "backward", "forward" or "nearest"
        "backward": the newest version at or before the event time, the state of the row then.
        "forward": the first version at or after it. "nearest": whichever of the two is closer, the
        one before if both are equally far. As in pandas' ``merge_asof``.
    allow_exact : bool
        Whether a version at exactly the event time is a candidate. False: only versions strictly
        before or after it; for a table that is derived from the facts themselves.
    waits_for : "both" or "facts"
        Whose event times the watermark goes by. "both": the answers wait until the versions have come
        as far. "facts": a table that seldom changes does not hold them back; its versions are late if
        they come after the watermark of the facts. They may bring no watermark of their own then:
        Spark would wait for it.
    delay : duration or pair of durations, optional
        How long a fact waits for versions, and for those that come before it. A pair: on facts and on
        versions. Whole milliseconds. The operator then defines the watermarks. Left out on frames
        that have one: their delay less `allowed_lateness`, and for "forward" and "nearest" less
        `tolerance`.
    allowed_lateness : duration
        How much longer late facts are answered and answers are revised, >= 0.
    stragglers : "drop", "route" or "answer"
        What happens to a fact that the watermark had reached when it came. "drop": it has no answer,
        and is counted. "route": it is delivered as a row with a non-null ``late``. "answer": it is
        answered at once if it is less than `allowed_lateness` below the watermark: the versions
        needed for that are kept.
    late_versions : "ignore" or "retract"
        What happens to answers when a version comes that should have been the answer. "ignore": they
        stand. "retract": those given to facts less than `allowed_lateness` (for "forward" and
        "nearest", plus `tolerance`) below the watermark are taken back and given anew, as a change
        stream; a fact has no identity, so a preimage or a delete takes back one row that equals it.
        In both cases the version counts for all facts that are yet to be answered, however late it is.
    too_late : "drop" or "route"
        With "answer" or "retract": what happens to facts and versions beyond the allowed lateness. A
        version that is delivered counts nevertheless: the row says that answers which are final may
        have missed it. stragglers="route" delivers these, too, and every version that missed an
        answer.
    into : str
        Name of the column that says whether a fact has a version.

    Returns
    -------
    Operator
        For use with ``DataFrame.transform`` on the facts.

    Raises
    ------
    SpecError
        A parameter has the wrong type, is out of range or contradicts another; ``CHANGE_TYPE_ASKED``,
        ``SEQUENCE_OF_REVISIONS``; ``TOLERANCE_MISSING``: "forward" or "nearest" on a stream;
        ``UNTIL_WITHOUT_BACKWARD``; ``NO_VERSION_CAN_MATCH``: no distance is left that would match.
    SchemaError, ColumnNotFound
        A column does not exist, has the wrong type or finds no name in the output; ``ROWS_REVISED``:
        the facts are results that are told again; ``ROWS_NOT_WHOLE``: the versions have a column
        ``_unavailable``, of values that were not sent.
    WatermarkError
        A streaming frame without a watermark on its time and no `delay`, or both;
        ``WATERMARK_NOT_WAITED_FOR``: versions with one and waits_for="facts".
    RequirementError
        The state API needs something that is not there.

    Examples
    --------
    >>> from streamops import joins
    >>> priced = joins.asof(
    ...     prices, by="symbol", time="ts", version="since", sequence="seq", delay="10 seconds"
    ... )  # doctest: +SKIP
    >>> trades.transform(priced)  # doctest: +SKIP
    DataFrame[symbol: string, ts: timestamp, amount: bigint, since: timestamp, ..., status: string]

    Notes
    -----
    Rows whose time is null or outside years 1 to 9999 ("null_time", "time_out_of_range"), versions
    without a sequence ("null_sequence"), whose `until` is before their `version`
    ("until_before_version") or with another ``_change_type`` ("unknown_change_type") are counted as
    ``rejected``, and delivered where late rows are.

    Versions are whole rows. What ``changes.from_debezium`` reads goes through ``changes.normalize``
    first, deletes as rows that say so: docs/joins.md, "A table that is captured".

    A column ``_change_type`` of the facts is one like any other: a fact that is taken back is a fact.

    A table that does not change does not move its watermark: with waits_for="both" the answers wait
    for its next version. Spark's watermark starts at 1970: answers to facts before it come out once
    the watermark has passed 1970.

    See Also
    --------
    lookup : what a small table says now, without waiting; another answer when replayed.

    References
    ----------
    Kleppmann: "Designing Data-Intensive Applications", chapter 11, "Time-dependence of joins".
    """
    where = AsofSpec.where
    parameters = AsofSpec(
        by=keys_of(by, where=where),
        time=time,
        version=version,
        sequence=sequence,
        until=until,
        deleted=deleted,
        how=how,
        tolerance=None
        if tolerance is None
        else parse_duration(tolerance, parameter="tolerance", where=where, minimum=0),
        direction=direction,
        allow_exact=allow_exact,
        waits_for=waits_for,
        delay=_parse_delays(delay, waits_for, where),
        allowed_lateness=parse_delay(allowed_lateness, parameter="allowed_lateness", where=where),
        stragglers=stragglers,
        late_versions=late_versions,
        too_late=too_late,
        into=into,
    )
    if right is None or getattr(right, "isStreaming", True):
        parameters.require_tolerance()
    return Operator(where, parameters, core, right=right)


def _parse_delays(delay: Any, waits_for: str, where: str) -> Both:
    """Delays of the watermarks on facts and on versions."""
    left, right = delays_of(delay, where=where)
    if waits_for == "both":
        return left, right
    if isinstance(delay, tuple) and right is not None:
        raise SpecError(
            "DELAY_WITHOUT_WATERMARK",
            "the versions have a delay, and no part in the watermark",
            where=where,
            got=f"delay={delay!r} with waits_for='facts'",
            expected="one delay, that of the facts",
            fix=f"delay={delay[0]!r}, or waits_for='both'",
        )
    return left, None
