"""Interval join: rows of two streams with the same key whose times are close to one another.

A left row ``l`` and a right row ``r`` match if their keys are equal and ``r.time`` lies in
``[l.time + lower, l.time + upper]``, both ends included. A row is late if its time is not above the
watermark of the previous step. A straggler is a late row less than the allowed lateness behind that
watermark; it is joined only with ``retract``.

A row is *final* once the watermark has reached the last time at which it can have a partner,
``l.time + upper`` or ``r.time - lower``: all later rows on time lie above the watermark. If a final
row never had a partner, it is *expired*. It is evicted the allowed lateness later, when a straggler
cannot match it either. The status that a row was emitted with is stored with the row, not derived
from other rows in state.

With ``first`` or ``last`` a left row is joined with one of its partners, its *answer*. The first
is final once the watermark has reached its own time, the last when the left row is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import pyarrow as pa

from streamops.joins.core.interval_results import (
    build_output,
    emit_answers,
    emit_matches,
    final_at,
    find_answers,
)
from streamops.joins.core.interval_spec import IntervalSpec
from streamops.joins.core.side_state import (
    EARLY,
    EXPIRED,
    LATE,
    MATCHED,
    NOTHING,
    SideRows,
    Status,
    state_schema,
    stored_times,
)
from streamops.kernel.columns import combine_chunks, concat
from streamops.kernel.core import SIDES, Metrics, SideName, State, StateFormat, Step
from streamops.kernel.groups import Ids
from streamops.kernel.lateness import Arrivals, Lateness
from streamops.kernel.operator import Core, Table
from streamops.kernel.placement import ByKey, Placement
from streamops.kernel.time import AFTER_ALL, BEFORE_ALL, Instants, advance_watermark


def _table(side: SideName) -> Table:
    at = SIDES.index(side)
    placement = ByKey(
        columns=lambda identity: [name for name, _ in identity[side]],
        key=lambda identity: [pair[at] for pair in identity["by"]],
        is_sorted=True,
    )
    return Table(lambda spec: state_schema(spec, side), placement)


class IntervalCore(Core[IntervalSpec]):
    """Interval join: rows of two streams with the same key whose times are close to one another."""

    STATE = StateFormat("joins.interval", 1)
    TABLES: ClassVar = {side: _table(side) for side in SIDES}
    PLACEMENT = Placement(key=lambda identity: [left for left, _ in identity["by"]])

    def step(
        self, spec: IntervalSpec, state: State, inputs: Sequence[pa.Table], watermark: int | None
    ) -> Step:
        """One micro-batch: see the module's docstring."""
        previous_watermark = state.watermark
        watermark = advance_watermark(previous_watermark, watermark)
        previous = BEFORE_ALL if previous_watermark is None else previous_watermark
        current = BEFORE_ALL if watermark is None else watermark
        accepted = [
            _accept(spec, side, rows, previous_watermark)
            for side, rows in zip(SIDES, inputs, strict=True)
        ]
        left, right = (
            SideRows.of(spec, side, state.tables[side], arrivals.rows)
            for side, arrivals in zip(SIDES, accepted, strict=True)
        )
        emit = emit_answers if spec.attributes else emit_matches
        results, status = emit(spec, left, right, previous, current)
        inserted = [result.status for result in results if result.inserts]
        late = sum(int((status == LATE).sum()) for status in inserted)
        metrics = accepted[0].metrics + accepted[1].metrics
        metrics += Metrics(results=sum(map(len, inserted)) - late, corrections=late)
        tables: dict[str, pa.Table] = {
            side: _retain(spec, side, rows, status[side], current, state.tables[side])
            for side, rows in zip(SIDES, (left, right), strict=True)
        }
        return Step(
            State(watermark, tables),
            build_output(spec, left, right, results),
            concat([arrivals.late for arrivals in accepted]),
            metrics,
        )

    def next_deadline(self, spec: IntervalSpec, state: State) -> int | None:
        """The next watermark at which a row is final or evicted."""
        watermark = BEFORE_ALL if state.watermark is None else state.watermark
        due = AFTER_ALL
        for side in SIDES:
            table = state.tables[side]
            times = stored_times(spec, side, table)
            due = min(due, int(times.min(initial=AFTER_ALL)) + spec.retention(side))
            if not spec.stores_status(side):
                continue
            status = combine_chunks(table.column("status")).to_numpy()
            waiting = np.flatnonzero(status < EXPIRED)
            final = times[waiting] + spec.reach(side)
            if spec.attributes:
                final = _answers_final_at(spec, state, waiting)
            due = min(due, int(final[final > watermark].min(initial=AFTER_ALL)))
        return due if state.rows else None

    def check(self, spec: IntervalSpec, state: State) -> None:
        """Rows are sorted, none is stored beyond its retention, and each status is possible."""
        watermark = BEFORE_ALL if state.watermark is None else state.watermark
        for side, nothing in zip(SIDES, _nothing(spec), strict=True):
            table = state.tables[side]
            rows = SideRows.of(spec, side, table, nothing)
            formatted = f"{side}, watermark {state.watermark}\n{table.to_pylist()}"
            sequence = np.lexsort((rows.times, rows.hashes))
            hashes, times = rows.hashes[sequence], rows.times[sequence]
            ordered = (hashes == rows.hashes).all() and (times == rows.times).all()
            assert ordered, f"out of order: {formatted}"
            assert (rows.times + spec.retention(side) > watermark).all(), f"overdue: {formatted}"
            assert rows.has_key.all() or spec.preserves(side), f"cannot match: {formatted}"
            lowest = ~EARLY if side == "left" and spec.attributes else NOTHING
            assert ((rows.status >= lowest) & (rows.status <= LATE)).all(), f"unknown: {formatted}"
            final = rows.times + spec.reach(side) <= watermark
            if spec.preserves(side):
                assert not (final & (rows.status < EXPIRED)).any(), f"never expired: {formatted}"
            assert (final | (rows.status != EXPIRED)).all(), f"expired too soon: {formatted}"
            early = (rows.status == EARLY) | (rows.status == ~EARLY)
            assert spec.is_early or not early.any(), f"too early: {formatted}"


def _accept(
    spec: IntervalSpec, side: SideName, rows: pa.Table, previous_watermark: int | None
) -> Arrivals:
    """The rows that are joined; the others are emitted as side output or counted."""
    time = spec.side(side).time
    assert time is not None
    lateness = Lateness.of(rows.column(time), previous_watermark, spec.allowed_lateness)
    arrivals = Arrivals.classify(spec.output, rows, lateness, side=side)
    lateness = arrivals.lateness
    return arrivals.accept(~lateness.too_late if spec.corrects else lateness.on_time)


def _answers_final_at(spec: IntervalSpec, state: State, waiting: Ids) -> Instants:
    """The watermarks at which these left rows in state are emitted, if no partner arrives."""
    left, right = (
        SideRows.of(spec, side, state.tables[side], arrived)
        for side, arrived in zip(SIDES, _nothing(spec), strict=True)
    )
    answer = find_answers(spec, left, waiting, right, right.index, right.order)
    final = final_at(spec, left, waiting, right, answer)
    return final if spec.preserves("left") else final[answer >= 0]


def _retain(
    spec: IntervalSpec,
    side: SideName,
    rows: SideRows,
    status: Status,
    current: int,
    before: pa.Table,
) -> pa.Table:
    """The state table: rows that can still match others, or that are still to be emitted."""
    alive = rows.times + spec.retention(side) > current
    if not spec.preserves(side):
        alive &= rows.has_key
    if side == "left":
        if not spec.joins:
            alive &= status != MATCHED  # one partner is enough
        elif spec.attributes and not spec.corrects:
            alive &= status < EXPIRED
    unchanged = not spec.stores_status(side) or (status == rows.status).all()
    if rows.stored == len(rows) and alive.all() and unchanged:
        return before
    return rows.to_state(spec, side, status, alive)


def _nothing(spec: IntervalSpec) -> tuple[pa.Table, pa.Table]:
    return spec.left.schema.empty_table(), spec.right.schema.empty_table()
