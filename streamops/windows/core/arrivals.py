"""Rows as they come to session windows: which can be placed, and which are late."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamops.kernel.columns import combine_chunks, take, timestamp_micros
from streamops.kernel.contract import Counts
from streamops.kernel.groups import Ids, Mask
from streamops.kernel.time import Instants
from streamops.windows.core.entries import placed
from streamops.windows.core.late import deliver
from streamops.windows.core.spec import SessionSpec
from streamops.windows.core.stretches import UNCUT, Bounds, Stretches

__all__ = ["Arrivals", "Verdict", "judge"]


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Rows that can be placed: each lasts from ``start`` to ``end``.

    Parameters
    ----------
    rows : Table
    start, end : arrays of int64
        Event time; event time and gap.
    closes : array of bool
        Whether the row ends its session.
    """

    rows: pa.Table
    start: Instants
    end: Instants
    closes: Mask

    @staticmethod
    def of(spec: SessionSpec, rows: pa.Table) -> tuple[Arrivals, pa.Table]:
        """The rows that can be placed; those that cannot, as they are delivered."""
        times, valid = placed(spec, rows)
        gaps = np.full(len(rows), spec.gap)
        usable = valid
        if spec.gap_column is not None:
            gaps, known = timestamp_micros(rows.column(spec.gap_column))
            usable = valid & known & (gaps > 0) & (gaps <= spec.gap)
        closes = np.zeros(len(rows), np.bool_)
        if spec.until is not None:
            closes = np.asarray(combine_chunks(rows.column(spec.until)).fill_null(False))
        came = Arrivals(rows, times, times + gaps, closes)
        if usable.all():
            return came, spec.output.empty_table()
        bad = ~usable
        rejected = spec.output.empty_table()
        if spec.routes:
            present = timestamp_micros(rows.column(spec.time))[1]
            reason = np.select(
                [~present[bad], ~valid[bad]],
                ["null_time", "time_out_of_range"],
                "gap_out_of_range",
            )
            rejected = deliver(spec, take(rows, np.flatnonzero(bad)), None, reason, None)
        return came.where(usable), rejected

    def __len__(self) -> int:
        return len(self.start)

    def where(self, mask: Mask) -> Arrivals:
        """Those of the mask."""
        if mask.all():
            return self
        return Arrivals(
            take(self.rows, np.flatnonzero(mask)),
            self.start[mask],
            self.end[mask],
            self.closes[mask],
        )

    def stretches(self, codes: Ids) -> Stretches:
        """Each as a stretch by itself, given the keys as numbers."""
        cut = np.where(self.closes, self.start, UNCUT)
        return Stretches(codes, self.start, self.end, cut, self.start)


@dataclass(frozen=True, slots=True)
class Verdict:
    """How rows were judged.

    Parameters
    ----------
    on_time, accepted : arrays of bool
        Not late; part of the result.
    late : Table
        The others, as they are delivered.
    counts : Counts
    """

    on_time: Mask
    accepted: Mask
    late: pa.Table
    counts: Counts


def judge(
    spec: SessionSpec, came: Arrivals, codes: Ids, published: Bounds, judged_by: int | None
) -> Verdict:
    """Judge rows by their own intervals, and by the published sessions that they would change.

    Parameters
    ----------
    codes : array of int64
        The key of each row.
    published : Bounds
        Sessions that are on time.
    judged_by : int, optional
        The watermark of the step before.
    """
    nothing = spec.output.empty_table()
    if judged_by is None:
        everything = np.ones(len(came), np.bool_)
        return Verdict(everything, everything, nothing, Counts(on_time=len(came)))
    too_late = came.end <= judged_by - spec.allowed_lateness
    on_time = came.end > judged_by
    # Only rows behind the watermark can lie so far back that something published is there.
    near = np.flatnonzero(on_time & (came.start <= judged_by))
    if len(near):
        last = np.where(came.closes[near], came.start[near], came.end[near])
        on_time[near] = ~published.touched_by(codes[near], came.start[near], last)
    accepted = ~too_late if spec.corrects else on_time
    late = np.flatnonzero(~accepted)
    counts = Counts(
        on_time=int(on_time.sum()),
        stragglers=int((~on_time & ~too_late).sum()),
        too_late=int(too_late.sum()),
    )
    if spec.routes and len(late):
        reason = np.where(too_late[late], "too_late", "straggler")
        interval = came.start[late], came.end[late]
        nothing = deliver(spec, take(came.rows, late), interval, reason, judged_by)
    return Verdict(on_time, accepted, nothing, counts)
