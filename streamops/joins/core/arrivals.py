"""Facts and versions as they come to a temporal join: which can be placed, and which are late."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamops.changelog.change_types import CHANGE_TYPE, PREIMAGE, is_change_type
from streamops.changelog.table import drop_tombstones
from streamops.joins.core.asof_spec import AsofSpec
from streamops.joins.core.late import deliver
from streamops.kernel.columns import combine_chunks, concat, take, timestamp_micros
from streamops.kernel.core import Metrics, SideName
from streamops.kernel.groups import Ids, Mask
from streamops.kernel.time import MAX_INSTANT, MIN_INSTANT, Instants

__all__ = ["Arrivals", "clashed", "facts", "known_keys", "missed", "versions"]


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Rows that take part.

    Parameters
    ----------
    rows : Table
    times : array of int64
        Event times of facts, version times of versions.
    late : Table
        The rows that are delivered instead or besides.
    counts : Metrics
        How all of them were judged.
    """

    rows: pa.Table
    times: Instants
    late: pa.Table
    counts: Metrics

    def where(self, mask: Mask) -> Arrivals:
        """Those of the mask."""
        if mask.all():
            return self
        rows = np.flatnonzero(mask)
        return Arrivals(take(self.rows, rows), self.times[rows], self.late, self.counts)


def facts(spec: AsofSpec, rows: pa.Table, judged_by: int | None) -> Arrivals:
    """Judge facts by their event times."""
    times, bad = _placed(rows, spec.time)
    came = _sifted(spec, "left", rows, times, bad)
    on_time, too_late = _judged(spec, came.times, judged_by)
    late = [came.late]
    if judged_by is not None:
        unanswered = ~on_time if spec.stragglers == "route" else too_late
        late.append(_delivered(spec, "left", came, unanswered, too_late, judged_by))
    counts = came.counts + _counted(on_time, too_late)
    accepted = ~too_late if spec.stragglers == "answer" else on_time
    return Arrivals(came.rows, came.times, concat(late), counts).where(accepted)


def versions(spec: AsofSpec, rows: pa.Table, judged_by: int | None) -> Arrivals:
    """Judge versions by their version times: late ones take part in what is to be answered.

    What a change stream takes back, or what has no key, is judged as well and means nothing. A
    tombstone means nothing and has no time to be judged by.
    """
    told = drop_tombstones(rows)
    passed = len(rows) - len(told)
    times, bad = _placed(told, spec.version)
    bad.append(("null_sequence", _missing(told.column(spec.sequence))))
    if spec.until is not None:
        until, closed = timestamp_micros(told.column(spec.until))
        bad.append(("until_before_version", closed & (until < times)))
    if spec.changes:
        bad.append(("unknown_change_type", ~is_change_type(told.column(CHANGE_TYPE))))
    came = _sifted(spec, "right", told, times, bad)
    news = known_keys(came.rows, spec.right.by)
    if spec.changes:
        news &= ~np.asarray(pc.equal(combine_chunks(came.rows.column(CHANGE_TYPE)), PREIMAGE))
    counts = Metrics(rows=passed, on_time=passed) + came.counts
    counts += _counted(*_judged(spec, came.times, judged_by))
    return Arrivals(came.rows, came.times, came.late, counts).where(news)


def missed(spec: AsofSpec, came: Arrivals, clashing: Mask, judged_by: int | None) -> pa.Table:
    """Versions that answers may have missed, as they are delivered; others than the clashing ones."""
    if judged_by is None:
        return spec.output.empty_table()
    on_time, too_late = _judged(spec, came.times, judged_by)
    late = too_late if spec.retracts or spec.stragglers != "route" else ~on_time
    return _delivered(spec, "right", came, late & ~clashing, too_late, judged_by)


def known_keys(rows: pa.Table, names: Sequence[str]) -> Mask:
    """Rows without a null in their key, so that they can match."""
    known = np.ones(len(rows), np.bool_)
    for name in names:
        known &= ~_missing(rows.column(name))
    return known


def clashed(spec: AsofSpec, rows: pa.Table, times: Instants, judged_by: int | None) -> Arrivals:
    """Versions that contradict another one: rejected, though they were judged before."""
    on_time, too_late = _judged(spec, times, judged_by)
    judged = _counted(on_time, too_late)
    counts = Metrics(
        rejected=len(rows),
        on_time=-judged.on_time,
        stragglers=-judged.stragglers,
        too_late=-judged.too_late,
    )
    late = spec.output.empty_table()
    if spec.routes and len(rows):
        reason = np.full(len(rows), "clashing_version")
        late = deliver(spec.output, "right", rows, reason, None, None)
    return Arrivals(rows, times, late, counts)


def _placed(rows: pa.Table, name: str) -> tuple[Instants, list[tuple[str, Mask]]]:
    """Times, and which of them cannot be placed, by the reason why."""
    times, valid = timestamp_micros(rows.column(name))
    outside = (times < MIN_INSTANT) | (times > MAX_INSTANT)
    return times, [("null_time", ~valid), ("time_out_of_range", outside)]


def _missing(column: pa.ChunkedArray) -> Mask:
    return np.asarray(combine_chunks(column).is_null())


def _sifted(
    spec: AsofSpec,
    side: SideName,
    rows: pa.Table,
    times: Instants,
    bad: list[tuple[str, Mask]],
) -> Arrivals:
    """The rows that can be placed; the others as they are delivered, with the first reason."""
    counts, late = Metrics(rows=len(rows)), spec.output.empty_table()
    rejected = np.logical_or.reduce([mask for _, mask in bad])
    if not rejected.any():
        return Arrivals(rows, times, late, counts)
    if spec.routes:
        reason = np.select([mask[rejected] for _, mask in bad], [word for word, _ in bad], "")
        late = deliver(spec.output, side, take(rows, np.flatnonzero(rejected)), reason, None, None)
    counts += Metrics(rejected=int(rejected.sum()))
    return Arrivals(rows, times, late, counts).where(~rejected)


def _judged(spec: AsofSpec, times: Instants, judged_by: int | None) -> tuple[Mask, Mask]:
    """Which are on time, and which are too late."""
    if judged_by is None:
        return np.ones(len(times), np.bool_), np.zeros(len(times), np.bool_)
    return times > judged_by, times <= judged_by - spec.allowed_lateness


def _counted(on_time: Mask, too_late: Mask) -> Metrics:
    prompt, missed = int(on_time.sum()), int(too_late.sum())
    return Metrics(on_time=prompt, stragglers=len(on_time) - prompt - missed, too_late=missed)


def _delivered(
    spec: AsofSpec,
    side: SideName,
    came: Arrivals,
    which: Mask,
    too_late: Mask,
    judged_by: int,
) -> pa.Table:
    if not (spec.routes and which.any()):
        return spec.output.empty_table()
    rows: Ids = np.flatnonzero(which)
    reason = np.where(too_late[rows], "too_late", "straggler")
    return deliver(spec.output, side, take(came.rows, rows), reason, came.times[rows], judged_by)
