"""Latest-value join: each fact beside what the local copy of a table says when it is processed.

In a step the changes of the table are applied first, then the facts are answered, all of them: none
waits, and what was answered is not revised. What the copy is, and which changes count, is that of
:mod:`streamops.changelog.latest`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from streamops.changelog.batch import carry_forward, gather_values, key_columns
from streamops.changelog.change_types import CHANGE_TYPE, INSERT
from streamops.changelog.classify import ClassifiedChanges
from streamops.changelog.latest import (
    accept_changes,
    advance_clock,
    build_latest_rows,
    check_latest_rows,
    evict_tombstones,
    find_effective,
    latest_layout,
)
from streamops.changelog.table import SNAPSHOT
from streamops.joins.core.enrich_spec import EnrichSpec
from streamops.joins.core.late import deliver
from streamops.kernel.columns import combine_chunks, concat, conform, key_codes, take
from streamops.kernel.core import Metrics, SideName, State, StateFormat, Step, finish, next_deadline
from streamops.kernel.groups import Groups, Ids

__all__ = [
    "STATE",
    "begin",
    "check",
    "empty",
    "finish",
    "layout",
    "next_deadline",
    "pack",
    "run",
    "step",
]

STATE = StateFormat("joins.latest", 4)

_STATUS = pa.array(["missing", "matched"])


def layout(spec: EnrichSpec) -> Mapping[str, pa.Schema]:
    """Columns of the state's tables: what is known, and rows of a snapshot that no step has seen."""
    table = spec.table
    waiting = [(f"column.{i}", table.came.field(name).type) for i, name in enumerate(table.row)]
    return {**latest_layout(table), "snapshot": pa.schema(waiting)}


def empty(spec: EnrichSpec) -> State:
    """The state before the first step."""
    return State(None, {name: schema.empty_table() for name, schema in layout(spec).items()})


def begin(spec: EnrichSpec, state: State, snapshot: pa.Table) -> State:
    """The state with packed rows of a snapshot, which the first step takes in before all else.

    That step is where counts are told and rejected rows are delivered.
    """
    columns = snapshot.select(list(spec.table.row)).columns
    rows = pa.table(columns, schema=layout(spec)["snapshot"])
    return State(
        state.watermark,
        {**state.tables, "snapshot": concat([state.tables["snapshot"], rows])},
    )


def pack(spec: EnrichSpec, rows: pa.Table, side: SideName) -> pa.Table:
    """The rows as they are; without a word of theirs, changes are of no snapshot."""
    if side == "left":
        return conform(rows, spec.facts)
    rows, wanted = conform(rows, spec.table.came), spec.table.input
    if len(wanted) > len(rows.schema):
        rows = rows.append_column(wanted.field(SNAPSHOT), pa.nulls(len(rows), pa.bool_()))
    return rows


def step(spec: EnrichSpec, state: State, inputs: Sequence[pa.Table], watermark: int | None) -> Step:
    """One micro-batch: see the module's docstring. The watermark does not matter."""
    left, right = inputs
    waiting = state.tables["snapshot"]
    if len(waiting):
        right = concat([_of_snapshot(spec, waiting), right])
    late, counts = spec.output.empty_table(), Metrics()
    if len(right):
        state, late, counts = _applied(spec, state, right)
    emitted = _answered(spec, state.tables["rows"], left)
    counts += Metrics(rows=len(left), on_time=len(left), results=len(emitted))
    return Step(state, emitted, late, counts)


def run(spec: EnrichSpec, inputs: Sequence[pa.Table]) -> pa.Table:
    """The batch result: all in one step, and so what the table says in the end."""
    only = step(spec, empty(spec), inputs, None)
    return concat([only.output, only.late])


def check(spec: EnrichSpec, state: State) -> None:
    """Each key is there once, deletes are not too old, and what is deleted has no values."""
    check_latest_rows(spec.table, state)


def _of_snapshot(spec: EnrichSpec, waiting: pa.Table) -> pa.Table:
    """Rows of a snapshot as changes."""
    known = dict(zip(spec.table.row, waiting.columns, strict=True))
    said = {SNAPSHOT: True, CHANGE_TYPE: INSERT}
    columns = []
    for field in spec.table.input:
        if field.name in known:
            columns.append(known[field.name])
        else:
            value = pa.scalar(said.get(field.name), field.type)
            columns.append(pa.repeat(value, len(waiting)))
    return pa.table(columns, schema=spec.table.input)


def _applied(spec: EnrichSpec, state: State, changes: pa.Table) -> tuple[State, pa.Table, Metrics]:
    """The state after the changes; what is delivered of them; their counts."""
    table = spec.table
    received = ClassifiedChanges.of(table, changes)
    batch, duplicates = accept_changes(table, state, received)
    ordered = batch.ordered
    is_effective, stale = find_effective(batch, ordered)
    last = np.flatnonzero(is_effective & ordered.ends)
    source = carry_forward(ordered, batch.missing)[last]
    values = gather_values(batch.values, ordered, source)
    rows = build_latest_rows(batch, ordered, last, source, values, {})
    clock = advance_clock(state.watermark, received.clock)
    stored = concat([batch.untouched, rows])
    tables = evict_tombstones(table, clock, stored, state.tables["evicted"])
    tables["snapshot"] = state.tables["snapshot"].slice(0, 0)

    bad = np.flatnonzero(received.is_rejected)
    late = spec.output.empty_table()
    if spec.rejected == "route" and len(bad):
        came = take(changes.select(table.came.names), bad)
        reasons = received.reasons(bad).to_numpy(zero_copy_only=False).astype(np.str_)
        late = deliver(spec.output, "right", came, reasons, None, None)
    counts = Metrics(
        rows=len(changes),
        rejected=len(bad),
        on_time=len(changes) - len(bad) - stale - duplicates,
        too_late=stale + duplicates,
    )
    return State(clock, tables), late, counts


def _answered(spec: EnrichSpec, rows: pa.Table, facts: pa.Table) -> pa.Table:
    """Facts beside the rows of their keys, with nulls where there is none."""
    if not len(facts):
        return spec.output.empty_table()
    found = _found(spec, rows, facts)
    if spec.how == "inner":
        chosen = np.flatnonzero(found >= 0)
        facts, found = take(facts, chosen), found[chosen]
    index, matched = pa.array(found, mask=found < 0), found >= 0
    columns = list(facts.columns)
    for name, _ in spec.names.right:
        column = rows.column(f"value.{spec.table.values.index(name)}")
        columns.append(combine_chunks(column).take(index))
    columns.append(_STATUS.take(pa.array(matched.astype(np.int8))))
    if spec.rejected == "route":
        columns.append(pa.nulls(len(facts), spec.output.field("late").type))
    return pa.table(columns, schema=spec.output)


def _found(spec: EnrichSpec, rows: pa.Table, facts: pa.Table) -> Ids:
    """For each fact the row of its key; -1 where there is none. No row has a null in its key."""
    pairs = zip(key_columns(spec.table), spec.left.by, strict=True)
    keys = [
        pa.concat_arrays([combine_chunks(rows.column(own)), combine_chunks(facts.column(name))])
        for own, name in pairs
    ]
    groups, _ = Groups.of(key_codes(keys, len(rows) + len(facts)))
    number = groups.ids[len(rows) :]  # rows, each of a key of its own, are numbered as they stand
    there = np.flatnonzero(~np.asarray(combine_chunks(rows.column("is_deleted"))))
    place = np.full(groups.count, -1, np.int64)
    place[there] = there
    found: Ids = place[number]
    return found
