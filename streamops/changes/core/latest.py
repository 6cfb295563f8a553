"""The latest row of each key, and its changes as rows before and after.

Which changes are effective, and which tombstones are evicted: :mod:`streamops.changelog.latest`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamops.changelog.batch import (
    NONE,
    KeyedBatch,
    OrderedChanges,
    carry_forward,
    first_of_runs,
    gather_values,
    last_of_runs,
)
from streamops.changelog.classify import ClassifiedChanges
from streamops.changelog.emit import EmittedChanges, emit_changes
from streamops.changelog.latest import (
    accept_changes,
    advance_clock,
    apply_truncates,
    build_latest_rows,
    check_latest_rows,
    evict_tombstones,
    find_effective,
    latest_layout,
)
from streamops.changelog.table import REJECTED
from streamops.changes.core.spec import (
    METRICS,
    ChangeMetrics,
    TableSpec,
    is_replaced,
    rejected_rows,
)
from streamops.kernel.columns import combine_chunks, concat, conform
from streamops.kernel.core import SideName, State, StateFormat, Step, finish, next_deadline
from streamops.kernel.groups import Ids, Ints, Mask

__all__ = [
    "METRICS",
    "METRICS_TYPE",
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

STATE = StateFormat("changes.latest", 4)
METRICS_TYPE = ChangeMetrics


def layout(spec: TableSpec) -> Mapping[str, pa.Schema]:
    """Columns of the state's tables."""
    truncated = pa.schema([("sequence", spec.position)])
    return {**latest_layout(spec, [("revision", pa.int32())]), "truncated": truncated}


def empty(spec: TableSpec) -> State:
    """The state before the first step."""
    return State(None, {name: schema.empty_table() for name, schema in layout(spec).items()})


def pack(spec: TableSpec, rows: pa.Table, side: SideName = "left") -> pa.Table:
    """The rows as they are."""
    return conform(rows, spec.input)


def step(
    spec: TableSpec, state: State, inputs: Sequence[pa.Table], watermark: int | None = None
) -> Step:
    """Process one micro-batch."""
    (packed,) = inputs
    received = ClassifiedChanges.of(spec, packed)
    clock = advance_clock(advance_clock(state.watermark, received.clock), received.truncates.clock)
    truncation = apply_truncates(spec, state, received)
    changes = truncation.changes
    batch, duplicates = accept_changes(spec, state, changes)
    ordered = batch.ordered
    source = carry_forward(ordered, batch.missing)
    is_effective, stale = find_effective(batch, ordered)
    if spec.publish == "last":
        is_effective &= ordered.ends
    effective = np.flatnonzero(is_effective)
    effective = effective[~_is_replaced(batch, ordered, effective)]
    values = gather_values(batch.values, ordered, source[effective])
    versions = _versions(batch, state, ordered, effective, values)
    updates = versions.emit()
    output = [_rows(spec, batch, versions, updates), rejected_rows(spec, changes)]
    ends = np.flatnonzero(last_of_runs(versions.key))
    last = [value.take(pa.array(ends)) for value in values]
    revision = {"revision": pa.array(updates.after[ends].astype(np.int32))}
    rows = build_latest_rows(
        batch, ordered, effective[ends], source[effective[ends]], last, revision
    )
    metrics = ChangeMetrics(
        rows=changes.counted,
        rejected=int(np.count_nonzero(changes.is_rejected)),
        results=updates.changes.inserts,
        corrections=updates.changes.updates,
        deletes=updates.changes.deletes,
        stale=stale + truncation.stale,
        duplicates=duplicates + truncation.duplicates,
        ignored=changes.ignored,
    )
    tables = evict_tombstones(spec, clock, concat([batch.untouched, rows]), state.tables["evicted"])
    tables["truncated"] = truncation.truncated
    return Step(State(clock, tables), concat(output), spec.output.empty_table(), metrics)


def run(spec: TableSpec, inputs: Sequence[pa.Table]) -> pa.Table:
    """The batch result: all rows in one step."""
    return step(spec, empty(spec), inputs).output


def check(spec: TableSpec, state: State) -> None:
    """A key is stored once; tombstones are within the horizon and have no values."""
    check_latest_rows(spec, state)
    assert len(state.tables["truncated"]) <= 1, str(state.tables)


def _is_replaced(batch: KeyedBatch, ordered: OrderedChanges, effective: Ids) -> Mask:
    sequence = batch.sequences.take(pa.array(ordered.row[effective]))
    return is_replaced(batch.spec, ordered.key[effective], sequence, ordered.is_delete[effective])


@dataclass(frozen=True, slots=True)
class _Versions:
    """The rows that each key has in a micro-batch, in order, and the row before."""

    key: Ids  # Key of each version. Versions are sorted by key.
    has_row: Mask  # whether the key has a row
    values: Sequence[pa.Array]  # values of the versions, then of the stored rows
    # For each key the position of the stored row among these values; ``NONE`` without one
    previous: Ids
    revision: Ids  # for each key the revision emitted last

    def emit(self) -> _Updates:
        """Emit each version that differs from the one before."""
        number, begins = np.arange(len(self.key)), first_of_runs(self.key)
        before = np.where(begins, self.previous[self.key], number - 1)
        existed = np.where(begins, before != NONE, self.has_row[number - 1])
        old, new = np.flatnonzero(existed), np.flatnonzero(self.has_row)
        changes = emit_changes(
            [value.take(pa.array(before[old])) for value in self.values],
            [value.take(pa.array(new)) for value in self.values],
            (old, new),
            order=(2 * old, 2 * new + 1),
        )
        publishes = np.zeros(len(number), np.int64)
        publishes[new] = changes.is_emitted
        total = np.cumsum(publishes)
        start = (total - publishes)[begins]
        after = self.revision[self.key] + total - start[np.cumsum(begins) - 1]
        return _Updates(
            changes,
            changes.take_ints(before[old], new),
            self.key[changes.take_ints(old, new)],
            changes.take_ints((after - publishes)[old], after[new]),
            after,
        )


@dataclass(frozen=True, slots=True)
class _Updates:
    """The changes emitted of versions."""

    changes: EmittedChanges
    # row, key, revision: of each emitted row: position of its values, its key, its revision
    row: Ids
    key: Ids
    revision: Ints
    after: Ints  # revision of the key after each version


def _versions(
    batch: KeyedBatch,
    state: State,
    ordered: OrderedChanges,
    effective: Ids,
    values: list[pa.Array],
) -> _Versions:
    stored = batch.stored
    before = [combine_chunks(stored.column(f"value.{i}")) for i in range(len(values))]
    keys = int(ordered.key.max(initial=NONE)) + 1
    previous, revision = np.full(keys, NONE), np.full(keys, NONE)
    is_deleted = np.asarray(combine_chunks(stored.column("is_deleted")))
    previous[: len(stored)] = np.where(is_deleted, NONE, len(effective) + np.arange(len(stored)))
    # An unknown key may be an evicted one: it continues above the highest revision evicted.
    revision[:] = max(state.tables["evicted"].column("revision").to_pylist(), default=NONE)
    revision[: len(stored)] = np.asarray(combine_chunks(stored.column("revision")))
    pools = [pa.concat_arrays(pair) for pair in zip(values, before, strict=True)]
    has_row = ~ordered.is_delete[effective]
    return _Versions(ordered.key[effective], has_row, pools, previous, revision)


def _rows(spec: TableSpec, batch: KeyedBatch, versions: _Versions, updates: _Updates) -> pa.Table:
    """The emitted changes, as rows of the output."""
    index = pa.array(updates.row)
    columns = batch.keys_of(updates.key)
    columns += [value.take(index) for value in versions.values]
    columns += [pa.array(updates.revision.astype(np.int32)), updates.changes.change_type]
    columns.append(pa.nulls(len(index), spec.output.field(REJECTED).type))
    return pa.table(columns, schema=spec.output)
