"""Interval joins: rows of two streams that have one key and lie close to one another in time.

A left row ``l`` and a right row ``r`` meet if their keys are equal and ``r.time`` lies in
``[l.time + lower, l.time + upper]``, both ends included. A row is late if its time is not above the
watermark of the step before. A straggler is a late row less than the allowed lateness behind that
watermark; it is joined only with ``retract``.

A row is *final* once the watermark has reached the last time at which it can have a partner,
``l.time + upper`` or ``r.time - lower``: all later rows on time lie above the watermark. If a final
row never had a partner, it is *expired*. It is evicted the allowed lateness later, when a straggler
cannot meet it either. The status that a row was emitted with is stored with the row, not derived
from other rows in state.

With ``first`` or ``last`` a left row is joined with one of its partners, its *answer*. The first
is final once the watermark has reached its own time, the last when the left row is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from streamops.joins.core.interval_results import answered, answers, build_output, joined, settles
from streamops.joins.core.interval_spec import IntervalSpec
from streamops.joins.core.sides import (
    EARLY,
    EXPIRED,
    LATE,
    MATCHED,
    NOTHING,
    Line,
    Rows,
    Status,
    accept,
    state_schema,
    times_of,
)
from streamops.kernel.columns import combine_chunks, concat, conform
from streamops.kernel.core import SIDES, Metrics, SideName, State, StateFormat, Step
from streamops.kernel.groups import Ids
from streamops.kernel.time import Instants

__all__ = [
    "STATE",
    "check",
    "empty",
    "finish",
    "layout",
    "next_deadline",
    "pack",
    "run",
    "step",
]

STATE = StateFormat("joins.interval", 2)

_BEGINNING, _END = -(1 << 62), 1 << 62


def layout(spec: IntervalSpec) -> Mapping[str, pa.Schema]:
    """Columns of the state's tables: one for each side."""
    return {side: state_schema(spec, side) for side in SIDES}


def empty(spec: IntervalSpec) -> State:
    """The state before the first step."""
    return State(None, {name: schema.empty_table() for name, schema in layout(spec).items()})


def pack(spec: IntervalSpec, rows: pa.Table, side: SideName) -> pa.Table:
    """Return the rows unchanged: nothing can be summarised before rows meet."""
    return conform(rows, spec.side(side).schema)


def step(
    spec: IntervalSpec, state: State, inputs: Sequence[pa.Table], watermark: int | None
) -> Step:
    """One micro-batch: see the module's docstring."""
    left, right = inputs
    late_watermark = state.watermark
    watermark = max((w for w in (late_watermark, watermark) if w is not None), default=None)
    was_by = _BEGINNING if late_watermark is None else late_watermark
    now_by = _BEGINNING if watermark is None else watermark
    arrived_left, late_left, counts = accept(spec, "left", left, late_watermark)
    arrived_right, late_right, counted = accept(spec, "right", right, late_watermark)
    ours = Rows.of(spec, "left", state.tables["left"], arrived_left)
    theirs = Rows.of(spec, "right", state.tables["right"], arrived_right)

    play = answered if spec.attributes else joined
    results, status = play(spec, ours, theirs, was_by, now_by)
    inserted = [result.status for result in results if result.inserts]
    late = sum(int((status == LATE).sum()) for status in inserted)
    counts += counted + Metrics(results=sum(map(len, inserted)) - late, corrections=late)
    tables = {
        "left": _retain(spec, "left", ours, status["left"], now_by, state.tables["left"]),
        "right": _retain(spec, "right", theirs, status["right"], now_by, state.tables["right"]),
    }
    return Step(
        State(watermark, tables),
        build_output(spec, ours, theirs, results),
        concat([late_left, late_right]),
        counts,
    )


def finish(spec: IntervalSpec, state: State) -> pa.Table:
    """What waits for partners that do not come any more."""
    return step(spec, state, _nothing(spec), _END).output


def run(spec: IntervalSpec, inputs: Sequence[pa.Table]) -> pa.Table:
    """The batch result. Nothing is late; what cannot be placed is delivered where rows are."""
    only = step(spec, empty(spec), inputs, _END)
    return concat([only.output, only.late])


def next_deadline(spec: IntervalSpec, state: State) -> int | None:
    """The first watermark at which a row is final or forgotten."""
    now_by = _BEGINNING if state.watermark is None else state.watermark
    due = _END
    for side in SIDES:
        table = state.tables[side]
        times = times_of(spec, side, table)
        due = min(due, int(times.min(initial=_END)) + spec.retention(side))
        if not spec.remembers(side):
            continue
        status = combine_chunks(table.column("status")).to_numpy()
        waits = np.flatnonzero(status < EXPIRED)
        usual = times[waits] + spec.reach(side)
        final = _awaited(spec, state, waits) if spec.attributes else usual
        due = min(due, int(final[final > now_by].min(initial=_END)))
    return due if state.rows else None


def check(spec: IntervalSpec, state: State) -> None:
    """Rows are in order, none is stored beyond its retention, and each status is possible."""
    watermark = _BEGINNING if state.watermark is None else state.watermark
    for side, nothing in zip(SIDES, _nothing(spec), strict=True):
        table = state.tables[side]
        rows = Rows.of(spec, side, table, nothing)
        formatted = f"{side}, watermark {state.watermark}\n{table.to_pylist()}"
        sequence = np.lexsort((rows.times, rows.hashes))
        line = Line(rows.hashes[sequence], rows.times[sequence])
        ordered = (line.hashes == rows.hashes).all() and (line.times == rows.times).all()
        assert ordered, f"out of order: {formatted}"
        assert (rows.times + spec.retention(side) > watermark).all(), f"overdue: {formatted}"
        assert rows.keyed.all() or spec.preserves(side), f"cannot meet anything: {formatted}"
        waits = ~EARLY if side == "left" and spec.attributes else NOTHING
        assert ((rows.status >= waits) & (rows.status <= LATE)).all(), f"unknown: {formatted}"
        final = rows.times + spec.reach(side) <= watermark
        if spec.preserves(side):
            assert not (final & (rows.status < EXPIRED)).any(), f"never expired: {formatted}"
        assert (final | (rows.status != EXPIRED)).all(), f"expired too soon: {formatted}"
        early = (rows.status == EARLY) | (rows.status == ~EARLY)
        assert spec.is_early or not early.any(), f"too early: {formatted}"


def _awaited(spec: IntervalSpec, state: State, waits: Ids) -> Instants:
    """The watermarks at which these rows of the left in state are published, as things stand."""
    ours, theirs = (
        Rows.of(spec, side, state.tables[side], arrived)
        for side, arrived in zip(SIDES, _nothing(spec), strict=True)
    )
    answer = answers(spec, ours, waits, theirs, theirs.line, theirs.order)
    final = settles(spec, ours, waits, theirs, answer)
    return final if spec.preserves("left") else final[answer >= 0]


def _retain(
    spec: IntervalSpec, side: SideName, rows: Rows, status: Status, now_by: int, before: pa.Table
) -> pa.Table:
    """The table of state: rows that can still meet others, or have yet to be published."""
    alive = rows.times + spec.retention(side) > now_by
    if not spec.preserves(side):
        alive &= rows.keyed
    if side == "left":
        if not spec.joins:
            alive &= status != MATCHED  # one partner is all that matters
        elif spec.attributes and not spec.corrects:
            alive &= status < EXPIRED
    same = not spec.remembers(side) or (status == rows.status).all()
    if rows.old == len(rows) and alive.all() and same:
        return before
    return rows.stored(spec, side, status, alive)


def _nothing(spec: IntervalSpec) -> tuple[pa.Table, pa.Table]:
    return spec.left.schema.empty_table(), spec.right.schema.empty_table()
