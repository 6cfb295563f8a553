"""The newest row of each key: remembered, and its changes told as before and after.

Which changes count, and which deletes are forgotten: :mod:`streamops.changelog.latest`.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from streamops.changelog.batch import KeyedBatch
from streamops.changelog.carry_forward import NONE, OrderedChanges, carry_forward, gather_values
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
from streamops.changelog.table import REJECTED
from streamops.changes.core.rejects import rejected_rows
from streamops.changes.core.replaced import is_replaced
from streamops.changes.core.spec import TOLD, ChangeCounts, TableSpec
from streamops.changes.core.told import Told, Versions
from streamops.kernel.columns import combine_chunks, concat, conform
from streamops.kernel.contract import State, StateFormat, Step
from streamops.kernel.groups import Ids, Mask
from streamops.kernel.without_event_time import finish, next_deadline

__all__ = [
    "COUNTS",
    "STATE",
    "TOLD",
    "check",
    "empty",
    "finish",
    "layout",
    "next_deadline",
    "pack",
    "run",
    "step",
]

STATE = StateFormat("changes.latest", 3)
COUNTS = ChangeCounts


def layout(spec: TableSpec) -> Mapping[str, pa.Schema]:
    """Columns of the state's tables."""
    return latest_layout(spec, [("revision", pa.int32())])


def empty(spec: TableSpec) -> State:
    """The state before the first step."""
    return State(None, {name: schema.empty_table() for name, schema in layout(spec).items()})


def pack(spec: TableSpec, rows: pa.Table) -> pa.Table:
    """The rows as they are."""
    return conform(rows, spec.input)


def step(spec: TableSpec, state: State, packed: pa.Table, watermark: int | None) -> Step:
    """One micro-batch: see the module's docstring. The watermark does not matter."""
    judged = ClassifiedChanges.of(spec, packed)
    meeting, duplicates = accept_changes(spec, state, judged)
    entries = meeting.entries
    source = carry_forward(entries, meeting.lacks)
    standing, stale = find_effective(meeting, entries)
    counted = np.flatnonzero(standing & entries.ends if spec.publish == "last" else standing)
    counted = counted[~_is_replaced(meeting, entries, counted)]
    values = gather_values(meeting.values, entries, source[counted])
    versions = _versions(meeting, state, entries, counted, values)
    told = Told.of(versions)
    emitted = [_rows(spec, meeting, versions, told), rejected_rows(spec, judged)]
    ends = np.flatnonzero(versions.ends)
    now = [value.take(pa.array(ends)) for value in values]
    revision = {"revision": pa.array(told.after[ends].astype(np.int32))}
    rows = build_latest_rows(meeting, entries, counted[ends], source[counted[ends]], now, revision)
    counts = ChangeCounts(
        rows=len(packed),
        rejected=int(np.count_nonzero(judged.is_rejected)),
        results=told.inserts,
        corrections=told.updates,
        deletes=told.deletes,
        stale=stale,
        duplicates=duplicates,
        ignored=judged.ignored,
    )
    newest = advance_clock(state.watermark, judged.age)
    kept = concat([meeting.rest, rows])
    tables = evict_tombstones(spec, newest, kept, state.tables["forgotten"])
    return Step(State(newest, tables), concat(emitted), spec.output.empty_table(), counts)


def run(spec: TableSpec, packed: pa.Table) -> pa.Table:
    """The batch result: all rows in one step."""
    return step(spec, empty(spec), packed, None).emitted


def check(spec: TableSpec, state: State) -> None:
    """Each key is there once, deletes are not too old, and what is deleted has no values."""
    check_latest_rows(spec, state)


def _is_replaced(meeting: KeyedBatch, entries: OrderedChanges, counted: Ids) -> Mask:
    places = meeting.places.take(pa.array(entries.row[counted]))
    return is_replaced(meeting.spec, entries.key[counted], places, entries.is_delete[counted])


def _versions(
    meeting: KeyedBatch, state: State, entries: OrderedChanges, counted: Ids, values: list[pa.Array]
) -> Versions:
    kept = meeting.kept
    before = [combine_chunks(kept.column(f"value.{i}")) for i in range(len(values))]
    number = int(entries.key.max(initial=NONE)) + 1
    was, revision = np.full(number, NONE), np.full(number, NONE)
    was[: len(kept)] = np.where(
        np.asarray(combine_chunks(kept.column("is_deleted"))),
        NONE,
        len(counted) + np.arange(len(kept)),
    )
    # A key that comes back goes on from the highest revision that was forgotten.
    revision[:] = max(state.tables["forgotten"].column("revision").to_pylist(), default=NONE)
    revision[: len(kept)] = np.asarray(combine_chunks(kept.column("revision")))
    pools = [pa.concat_arrays(both) for both in zip(values, before, strict=True)]
    return Versions(entries.key[counted], ~entries.is_delete[counted], pools, was, revision)


def _rows(spec: TableSpec, meeting: KeyedBatch, versions: Versions, told: Told) -> pa.Table:
    """What is told, as rows of the output."""
    index = pa.array(told.row)
    columns = meeting.keys_of(told.key)
    columns += [value.take(index) for value in versions.values]
    columns += [pa.array(told.revision.astype(np.int32)), told.words]
    columns.append(pa.nulls(len(index), spec.output.field(REJECTED).type))
    return pa.table(columns, schema=spec.output)
