"""Rows that arrive at a join with event time: on time, late or rejected; and the side output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamops.joins.core.asof_spec import AsofSpec
from streamops.joins.core.interval_spec import IntervalSpec
from streamops.joins.core.join_spec import INSTANT
from streamops.kernel.columns import combine_chunks, concat, take, timestamp_micros
from streamops.kernel.core import Metrics, SideName
from streamops.kernel.groups import Ids, Mask
from streamops.kernel.time import MAX_INSTANT, MIN_INSTANT, Instants

TimedSpec = AsofSpec | IntervalSpec

_STATUS = pa.array(["missing", "matched"])


def build_late(
    output: pa.Schema,
    side: SideName,
    rows: pa.Table,
    reason: npt.NDArray[np.str_],
    times: Instants | None = None,
    previous_watermark: int | None = None,
) -> pa.Table:
    """Rows of one input in the output schema: all columns are null except ``late``.

    ``times`` are the event times of late rows, ``previous_watermark`` the watermark that they are behind.
    """
    count = len(rows)
    dtype = output.field("late").type
    if times is None or previous_watermark is None:
        lateness, watermark = pa.nulls(count, pa.duration("us")), pa.nulls(count, INSTANT)
    else:
        lateness = pa.array(previous_watermark - times).cast(pa.duration("us"))
        watermark = pa.repeat(pa.scalar(previous_watermark).cast(INSTANT), count)
    fields = list(dtype.field(side).type)
    columns = [combine_chunks(rows.column(field.name)) for field in fields]
    values = {
        "side": pa.repeat(side, count),
        "reason": pa.array(reason, pa.string()),
        "lateness": lateness,
        "watermark": watermark,
        side: pa.StructArray.from_arrays(columns, fields=fields),
    }
    late = pa.StructArray.from_arrays(
        [values.get(field.name, pa.nulls(count, field.type)) for field in dtype], fields=list(dtype)
    )
    columns = [late if f.name == "late" else pa.nulls(count, f.type) for f in output]
    return pa.table(columns, schema=output)


def join_values(
    output: pa.Schema,
    facts: pa.Table,
    values: Sequence[pa.ChunkedArray],
    found: Ids,
    change: str | None = None,
) -> pa.Table:
    """Facts with the values at the positions found, or nulls at -1; the status, the change type."""
    index, matched = pa.array(found, mask=found < 0), found >= 0
    columns = [*facts.columns, *(combine_chunks(column).take(index) for column in values)]
    columns.append(_STATUS.take(pa.array(matched.astype(np.int8))))
    if change is not None:
        columns.append(pa.repeat(change, len(found)))
    columns += [pa.nulls(len(found), column.type) for column in list(output)[len(columns) :]]
    return pa.table(columns, schema=output)


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Rows of one input with a usable time, in microseconds, and how late they are.

    ``late`` has the rows in the side output; ``metrics`` count all rows that arrived.
    """

    side: SideName
    rows: pa.Table
    times: Instants
    on_time: Mask
    too_late: Mask
    late: pa.Table
    metrics: Metrics

    def where(self, mask: Mask) -> Arrivals:
        """The rows of the mask, with the same side output and metrics."""
        if mask.all():
            return self
        rows = np.flatnonzero(mask)
        return replace(
            self,
            rows=take(self.rows, rows),
            times=self.times[rows],
            on_time=self.on_time[rows],
            too_late=self.too_late[rows],
        )

    def build_late(self, spec: TimedSpec, which: Mask, previous_watermark: int | None) -> pa.Table:
        """Some of the rows as side output, as stragglers or as too late."""
        if not (spec.routes and which.any()) or previous_watermark is None:
            return spec.output.empty_table()
        rows: Ids = np.flatnonzero(which)
        reason = np.where(self.too_late[rows], "too_late", "straggler")
        late = take(self.rows, rows)
        return build_late(
            spec.output, self.side, late, reason, self.times[rows], previous_watermark
        )

    def split_late(
        self, spec: TimedSpec, accepted: Mask, previous_watermark: int | None
    ) -> Arrivals:
        """The accepted rows; the others are added to the side output."""
        late = concat([self.late, self.build_late(spec, ~accepted, previous_watermark)])
        return replace(self.where(accepted), late=late)


def classify_arrivals(
    spec: TimedSpec,
    side: SideName,
    rows: pa.Table,
    time: str,
    previous_watermark: int | None,
    invalid: Sequence[tuple[str, Mask]] = (),
) -> Arrivals:
    """Reject rows without a usable time, or with another reason; compare the others with the watermark.

    ``invalid`` has further reasons, and the rows that they apply to. The first reason counts.
    """
    times, present = timestamp_micros(rows.column(time))
    is_outside = (times < MIN_INSTANT) | (times > MAX_INSTANT)
    reasons = [("null_time", ~present), ("time_out_of_range", is_outside), *invalid]
    is_rejected = np.logical_or.reduce([mask for _, mask in reasons])
    total, late = len(rows), spec.output.empty_table()
    if is_rejected.any():
        if spec.routes:
            names = [name for name, _ in reasons]
            reason = np.select([mask[is_rejected] for _, mask in reasons], names, "")
            late = build_late(spec.output, side, take(rows, np.flatnonzero(is_rejected)), reason)
        usable = np.flatnonzero(~is_rejected)
        rows, times = take(rows, usable), times[usable]
    on_time, too_late, counted = classify_times(spec, times, previous_watermark)
    metrics = Metrics(rows=total, rejected=total - len(rows)) + counted
    return Arrivals(side, rows, times, on_time, too_late, late, metrics)


def classify_times(
    spec: TimedSpec, times: Instants, previous_watermark: int | None
) -> tuple[Mask, Mask, Metrics]:
    """Which times are on time, which are too late, and their numbers; the others are stragglers."""
    on_time, too_late = np.ones(len(times), np.bool_), np.zeros(len(times), np.bool_)
    if previous_watermark is not None:
        on_time, too_late = (
            times > previous_watermark,
            times <= previous_watermark - spec.allowed_lateness,
        )
    punctual, missed = int(on_time.sum()), int(too_late.sum())
    stragglers = len(times) - punctual - missed
    return on_time, too_late, Metrics(on_time=punctual, stragglers=stragglers, too_late=missed)


def is_complete(rows: pa.Table, names: Sequence[str]) -> Mask:
    """Which rows have no null in these columns."""
    complete = np.ones(len(rows), np.bool_)
    for name in names:
        column = rows.column(name)
        if column.null_count:
            complete &= np.asarray(combine_chunks(column).is_valid())
    return complete
