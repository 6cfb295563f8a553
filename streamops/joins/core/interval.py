"""Interval joins: rows of two streams that have one key and lie close to one another in time.

A left row ``l`` and a right row ``r`` meet if their keys are equal and ``r.time`` lies in
``[l.time + lower, l.time + upper]``, both ends included. A row is judged by its own time: it is
late if that is not above the watermark of the step before; a straggler is a late row less than
the allowed lateness behind, and is joined only with ``retract``.

A row is *final* once the watermark has reached the last time at which it can have a partner,
``l.time + upper`` or ``r.time - lower``: every row that comes later and is not late lies above the
watermark. Then, if it never had one, it is *expired*. It is forgotten when even a straggler can
meet it no more, the allowed lateness later. What a row was published as is remembered with the
row, never deduced from what else is still there.

With ``first`` or ``last`` a left row is joined with one of its partners, its *answer*. The first
is final once the watermark has reached its own time, the last when the left row is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from streamops.joins.core.interval_results import answered, answers, joined, settles, told
from streamops.joins.core.interval_spec import IntervalSpec
from streamops.joins.core.line import Line
from streamops.joins.core.sides import (
    EARLY,
    EXPIRED,
    LATE,
    MATCHED,
    NOTHING,
    Rows,
    Said,
    judge,
    kept_schema,
    times_of,
)
from streamops.kernel.columns import combine_chunks, concat, conform
from streamops.kernel.contract import State, StateFormat
from streamops.kernel.core import SIDES, Metrics, SideName, Step
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

STATE = StateFormat("joins.interval", 1)

_BEGINNING, _END = -(1 << 62), 1 << 62


def layout(spec: IntervalSpec) -> Mapping[str, pa.Schema]:
    """Columns of the state's tables: one for each side."""
    return {side: kept_schema(spec, side) for side in SIDES}


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
    judged_by = state.watermark
    watermark = max((w for w in (judged_by, watermark) if w is not None), default=None)
    was_by = _BEGINNING if judged_by is None else judged_by
    now_by = _BEGINNING if watermark is None else watermark
    came_left, late_left, counts = judge(spec, "left", left, judged_by)
    came_right, late_right, counted = judge(spec, "right", right, judged_by)
    ours = Rows.of(spec, "left", state.tables["left"], came_left)
    theirs = Rows.of(spec, "right", state.tables["right"], came_right)

    play = answered if spec.attributes else joined
    results, said = play(spec, ours, theirs, was_by, now_by)
    inserted = [each.status for each in results if each.inserts]
    late = sum(int((status == LATE).sum()) for status in inserted)
    counts += counted + Metrics(results=sum(map(len, inserted)) - late, corrections=late)
    tables = {
        "left": _kept(spec, "left", ours, said["left"], now_by, state.tables["left"]),
        "right": _kept(spec, "right", theirs, said["right"], now_by, state.tables["right"]),
    }
    return Step(
        State(watermark, tables),
        told(spec, ours, theirs, results),
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
        due = min(due, int(times.min(initial=_END)) + spec.kept_for(side))
        if not spec.remembers(side):
            continue
        said = combine_chunks(table.column("said")).to_numpy()
        waits = np.flatnonzero(said < EXPIRED)
        usual = times[waits] + spec.reach(side)
        final = _awaited(spec, state, waits) if spec.attributes else usual
        due = min(due, int(final[final > now_by].min(initial=_END)))
    return due if state.rows else None


def check(spec: IntervalSpec, state: State) -> None:
    """Rows are in order, none is kept beyond its time, and what was said of each is possible."""
    watermark = _BEGINNING if state.watermark is None else state.watermark
    for side, nothing in zip(SIDES, _nothing(spec), strict=True):
        table = state.tables[side]
        rows = Rows.of(spec, side, table, nothing)
        shown = f"{side}, watermark {state.watermark}\n{table.to_pylist()}"
        sequence = np.lexsort((rows.times, rows.hashes))
        line = Line(rows.hashes[sequence], rows.times[sequence])
        ordered = (line.hashes == rows.hashes).all() and (line.times == rows.times).all()
        assert ordered, f"out of order: {shown}"
        assert (rows.times + spec.kept_for(side) > watermark).all(), f"overdue: {shown}"
        assert rows.keyed.all() or spec.preserves(side), f"cannot meet anything: {shown}"
        waits = ~EARLY if side == "left" and spec.attributes else NOTHING
        assert ((rows.said >= waits) & (rows.said <= LATE)).all(), f"unknown: {shown}"
        final = rows.times + spec.reach(side) <= watermark
        if spec.preserves(side):
            assert not (final & (rows.said < EXPIRED)).any(), f"never expired: {shown}"
        assert (final | (rows.said != EXPIRED)).all(), f"expired too soon: {shown}"
        early = (rows.said == EARLY) | (rows.said == ~EARLY)
        assert spec.is_early or not early.any(), f"too early: {shown}"


def _awaited(spec: IntervalSpec, state: State, waits: Ids) -> Instants:
    """The watermarks at which these rows of the left in state are published, as things stand."""
    ours, theirs = (
        Rows.of(spec, side, state.tables[side], came)
        for side, came in zip(SIDES, _nothing(spec), strict=True)
    )
    answer = answers(spec, ours, waits, theirs, theirs.line, theirs.order)
    final = settles(spec, ours, waits, theirs, answer)
    return final if spec.preserves("left") else final[answer >= 0]


def _kept(
    spec: IntervalSpec, side: SideName, rows: Rows, said: Said, now_by: int, before: pa.Table
) -> pa.Table:
    """The table of state: rows that can still meet others, or have yet to be published."""
    alive = rows.times + spec.kept_for(side) > now_by
    if not spec.preserves(side):
        alive &= rows.keyed
    if side == "left":
        if not spec.joins:
            alive &= said != MATCHED  # one partner is all that matters
        elif spec.attributes and not spec.corrects:
            alive &= said < EXPIRED
    same = not spec.remembers(side) or (said == rows.said).all()
    if rows.old == len(rows) and alive.all() and same:
        return before
    return rows.stored(spec, side, said, alive)


def _nothing(spec: IntervalSpec) -> tuple[pa.Table, pa.Table]:
    return spec.left.schema.empty_table(), spec.right.schema.empty_table()
