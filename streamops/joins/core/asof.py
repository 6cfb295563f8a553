"""As-of join: for each fact the version of its key closest to its event time, in one direction or both.

A fact at ``t`` waits until the operator's watermark has reached ``t``; where it looks ahead,
``t + tolerance``. It is then *answered*: backward, by the newest version with version time <= t, or
by none; forward, by the first with version time >= t; nearest, by the closer of the two. Facts and versions are late if their time is
not above the watermark of the step before, and too late if it is the allowed lateness or more
below it.

A late version counts for every fact that is still to be answered, however late it is. Where
answers are retracted, it also counts for those given to facts less than the allowed lateness
below the watermark; these are kept for that. What a fact was answered is not kept: it is what
the versions said before the step, because every change of an answer is itself published.

Versions are kept while they can be the answer to a fact that is accepted or kept: of each key, the
newest at or below the horizon, and everything above it; forward, only the latter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from streamops.changelog.change_types import DELETE, INSERT, POSTIMAGE, PREIMAGE
from streamops.joins.core import arrivals
from streamops.joins.core.asof_spec import AsofSpec
from streamops.joins.core.versions import Merged, Timed, Versions
from streamops.kernel.columns import (
    combine_chunks,
    concat,
    conform,
    key_codes,
    take,
    timestamp_micros,
)
from streamops.kernel.core import Metrics, SideName, State, StateFormat, Step
from streamops.kernel.groups import Ids, Mask

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

STATE = StateFormat("joins.asof", 3)

_BEGINNING, _END = -(1 << 62), 1 << 62
_NO_KEY = -1

_STATUS = pa.array(["missing", "matched"])


def layout(spec: AsofSpec) -> Mapping[str, pa.Schema]:
    """Columns of the state's tables: those of the inputs, in the order of their names."""
    return {"versions": _by_name(spec.table), "facts": _by_name(spec.facts)}


def empty(spec: AsofSpec) -> State:
    """The state before the first step."""
    return State(None, {name: schema.empty_table() for name, schema in layout(spec).items()})


def pack(spec: AsofSpec, rows: pa.Table, side: SideName) -> pa.Table:
    """The rows as they are, but for the order of their columns, which a frame may change.

    Which version a fact meets is not known before they meet.
    """
    return conform(rows, _by_name(spec.facts if side == "left" else spec.table))


def step(spec: AsofSpec, state: State, inputs: Sequence[pa.Table], watermark: int | None) -> Step:
    """One micro-batch: see the module's docstring."""
    left, right = inputs
    judged_by = state.watermark
    watermark = max((w for w in (judged_by, watermark) if w is not None), default=None)
    was_by = _BEGINNING if judged_by is None else judged_by
    now_by = _BEGINNING if watermark is None else watermark
    asked = arrivals.facts(spec, left, judged_by)
    told = arrivals.versions(spec, right, judged_by)

    known, kept = state.tables["versions"], state.tables["facts"]
    # One numbering of the keys for all that is compared in this step.
    codes = _numbered(spec, [known, told.rows], [kept, asked.rows])
    merged = Versions.of(
        spec,
        Timed(known, codes[0], timestamp_micros(known.column(spec.version))[0]),
        Timed(told.rows, codes[1], told.times),
    )
    facts = Timed(
        concat([kept, asked.rows]),
        np.concatenate([codes[2], codes[3]]),
        np.concatenate([timestamp_micros(kept.column(spec.time))[0], asked.times]),
    )
    due = facts.times + spec.look_ahead  # the watermark that a fact waits for
    published = due <= was_by
    published[len(kept) :] = False

    emitted, answered = _answered(spec, facts, ~published & (due <= now_by), merged)
    counts, late = asked.counts + told.counts + answered, [asked.late, told.late]
    late.append(arrivals.missed(spec, told, merged.rejected, judged_by))
    if len(merged.clashing.codes):
        clashed = arrivals.clashed(spec, merged.clashing.table, merged.clashing.times, judged_by)
        counts, late = counts + clashed.counts, [*late, clashed.late]
    behind = told.times <= was_by
    if spec.retracts and behind.any():
        # Of a fact that is published no version above the watermark can be the answer.
        stale = published & np.isin(facts.codes, codes[1][behind])
        revised, corrections = _revised(spec, facts, np.flatnonzero(stale), merged)
        emitted, counts = concat([revised, emitted]), counts + corrections

    tables = {
        "versions": _where(
            merged.versions.table, merged.versions.needed(spec, now_by - spec.retention)
        ),
        "facts": _where(facts.table, _waiting(spec, facts, now_by)),
    }
    return Step(State(watermark, tables), emitted, concat(late), counts)


def finish(spec: AsofSpec, state: State) -> pa.Table:
    """Every fact that still waits, answered."""
    nothing = empty(spec).tables
    return step(spec, state, [nothing["facts"], nothing["versions"]], _END).output


def run(spec: AsofSpec, inputs: Sequence[pa.Table]) -> pa.Table:
    """The batch result. Nothing is late; what cannot be placed is delivered where late rows are."""
    only = step(spec, empty(spec), inputs, _END)
    return concat([only.output, only.late])


def next_deadline(spec: AsofSpec, state: State) -> int | None:
    """The first fact that waits, or the first entry that can be forgotten."""
    versions, facts = _read(spec, state)
    answered_at = facts.times + spec.look_ahead
    waits = answered_at > (_BEGINNING if state.watermark is None else state.watermark)
    if spec.retracts:  # a fact that is told nothing when it is due just stays
        waits &= facts.codes != _NO_KEY if spec.how == "inner" else True
        if spec.how == "inner":
            waits &= versions.answers(spec, facts.codes, facts.times) >= 0
    due = [versions.due(spec) + spec.retention]
    due.append(np.where(waits, answered_at, facts.times + spec.retention))
    every = np.concatenate(due)
    return int(every.min()) if len(every) else None


def check(spec: AsofSpec, state: State) -> None:
    """Each version is there once, and nothing is kept beyond its time."""
    versions, facts = _read(spec, state)
    now_by = _BEGINNING if state.watermark is None else state.watermark
    needed = versions.needed(spec, now_by - spec.retention)
    assert len(versions) == len(state.tables["versions"]), f"a version twice: {_shown(state)}"
    assert needed.all(), f"versions overdue: {_shown(state)}"
    assert _waiting(spec, facts, now_by).all(), f"facts overdue: {_shown(state)}"


def _answered(
    spec: AsofSpec, facts: Timed, which: Mask, merged: Merged
) -> tuple[pa.Table, Metrics]:
    """Facts that are answered for the first time."""
    rows = np.flatnonzero(which)
    found = merged.versions.answers(spec, facts.codes[rows], facts.times[rows])
    if spec.how == "inner":
        rows, found = rows[found >= 0], found[found >= 0]
    emitted = _joined(spec, facts.table, rows, merged.versions.table, found, INSERT)
    return emitted, Metrics(results=len(rows))


def _revised(spec: AsofSpec, facts: Timed, rows: Ids, merged: Merged) -> tuple[pa.Table, Metrics]:
    """Facts, of those of the rows, that have another answer than before."""
    before, was = merged.before(spec)
    old = before.answers(spec, facts.codes[rows], facts.times[rows])
    new = merged.versions.answers(spec, facts.codes[rows], facts.times[rows])
    differs = np.append(was, -1)[old] != new
    differs |= np.append(merged.replaced, False)[new]  # another content at the same place
    rows, old, new = rows[differs], old[differs], new[differs]
    # An inner join has no row for a fact without a version.
    had, has = (spec.how == "left") | (old >= 0), (spec.how == "left") | (new >= 0)
    said = [
        (before, old, had & has, PREIMAGE),
        (before, old, had & ~has, DELETE),
        (merged.versions, new, had & has, POSTIMAGE),
        (merged.versions, new, ~had & has, INSERT),
    ]
    emitted = [
        _joined(spec, facts.table, rows[which], versions.table, found[which], change)
        for versions, found, which, change in said
    ]
    return concat(emitted), Metrics(corrections=int(np.count_nonzero(has)))


def _joined(
    spec: AsofSpec, facts: pa.Table, rows: Ids, versions: pa.Table, found: Ids, change: str
) -> pa.Table:
    """Facts beside versions, with nulls where there is none."""
    index, matched = pa.array(found, mask=found < 0), found >= 0
    columns = list(take(facts.select(spec.facts.names), rows).columns)
    columns += [combine_chunks(versions.column(name)).take(index) for name, _ in spec.names.right]
    columns.append(_STATUS.take(pa.array(matched.astype(np.int8))))
    if spec.retracts:
        columns.append(pa.repeat(change, len(rows)))
    if spec.routes:
        columns.append(pa.nulls(len(rows), spec.output.field("late").type))
    return pa.table(columns, schema=spec.output)


def _waiting(spec: AsofSpec, facts: Timed, now_by: int) -> Mask:
    """Facts that can still be answered, or be answered again."""
    waits = facts.times + spec.look_ahead > now_by
    if spec.how == "inner":  # what cannot match need not wait
        waits &= facts.codes != _NO_KEY
    if spec.retracts:
        waits |= (facts.times > now_by - spec.retention) & (facts.codes != _NO_KEY)
    return waits


def _numbered(spec: AsofSpec, versions: Sequence[pa.Table], facts: Sequence[pa.Table]) -> list[Ids]:
    """The key of each row of each table as a number; ``_NO_KEY`` for facts that cannot match."""
    names = [spec.right.by] * len(versions) + [spec.left.by] * len(facts)
    tables = [*versions, *facts]
    keys = [[combine_chunks(t.column(n)) for n in by] for t, by in zip(tables, names, strict=True)]
    sizes = [len(table) for table in tables]
    columns = [pa.concat_arrays(pieces) for pieces in zip(*keys, strict=True)]
    codes = key_codes(columns, sum(sizes))
    codes = codes - codes.min(initial=0)  # from 0 on
    found = np.split(codes, np.cumsum(sizes)[:-1])
    for number, rows in enumerate(facts, len(versions)):
        found[number] = np.where(arrivals.known_keys(rows, spec.left.by), found[number], _NO_KEY)
    return found


def _read(spec: AsofSpec, state: State) -> tuple[Versions, Timed]:
    """The tables of a state."""
    known, kept = state.tables["versions"], state.tables["facts"]
    codes = _numbered(spec, [known], [kept])
    versions = Versions.kept(
        spec, Timed(known, codes[0], timestamp_micros(known.column(spec.version))[0])
    )
    return versions, Timed(kept, codes[1], timestamp_micros(kept.column(spec.time))[0])


def _by_name(schema: pa.Schema) -> pa.Schema:
    return pa.schema(sorted(schema, key=lambda field: field.name))


def _where(table: pa.Table, mask: Mask) -> pa.Table:
    return table if mask.all() else table.filter(pa.array(mask)).combine_chunks()


def _shown(state: State) -> str:
    tables = (f"{name}: {table.to_string()}" for name, table in state.tables.items())
    return "\n".join([f"watermark {state.watermark}", *tables])
