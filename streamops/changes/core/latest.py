"""The latest row of each key, emitted as a change stream with the rows before and after.

:mod:`streamops.changelog.latest` determines the effective changes and evicts tombstones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

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
    evicted_schema,
    find_effective,
    latest_schema,
)
from streamops.changelog.table import REJECTED
from streamops.changes.core.spec import (
    METRICS,
    ChangeMetrics,
    TableSpec,
    is_replaced,
    rejected_rows,
)
from streamops.kernel.columns import combine_chunks, concat
from streamops.kernel.core import State, StateFormat, Step
from streamops.kernel.groups import Ids, Ints
from streamops.kernel.operator import Core, Table
from streamops.kernel.placement import GREATEST, Placement

_REVISION = ("revision", pa.int32())


class LatestCore(Core[TableSpec]):
    """The latest row of each key, emitted as a change stream with the rows before and after."""

    STATE = StateFormat("changes.latest", 1)
    TABLES: ClassVar = {
        "rows": Table(lambda spec: latest_schema(spec, [_REVISION])),
        "evicted": Table(lambda spec: evicted_schema(spec, [_REVISION]), GREATEST),
        "truncated": Table(lambda spec: pa.schema([("sequence", spec.position)]), GREATEST),
    }
    PLACEMENT = Placement(watermark="greatest")
    METRICS_TYPE = ChangeMetrics
    METRICS = METRICS

    def step(
        self,
        spec: TableSpec,
        state: State,
        inputs: Sequence[pa.Table],
        watermark: int | None = None,
    ) -> Step:
        """Process one micro-batch."""
        (packed,) = inputs
        received = ClassifiedChanges.of(spec, packed)
        clock = advance_clock(
            advance_clock(state.watermark, received.clock), received.truncates.clock
        )
        truncation = apply_truncates(spec, state, received)
        changes = truncation.changes
        batch, duplicates = accept_changes(spec, state, changes)
        ordered = batch.ordered
        source = carry_forward(ordered, batch.missing)
        is_effective, stale = find_effective(batch, ordered)
        if spec.publish == "last":
            is_effective &= ordered.ends
        effective = np.flatnonzero(is_effective)
        sequence = batch.sequences.take(pa.array(ordered.row[effective]))
        effective = effective[
            ~is_replaced(spec, ordered.key[effective], sequence, ordered.is_delete[effective])
        ]
        values = gather_values(batch.values, ordered, source[effective])
        output, emitted, revision = _emit(spec, state, batch, ordered, effective, values)
        ends = np.flatnonzero(last_of_runs(ordered.key[effective]))
        rows = build_latest_rows(
            batch,
            ordered,
            effective[ends],
            source[effective[ends]],
            [value.take(pa.array(ends)) for value in values],
            {"revision": pa.array(revision[ends].astype(np.int32))},
        )
        metrics = ChangeMetrics(
            rows=changes.counted,
            rejected=int(np.count_nonzero(changes.is_rejected)),
            results=emitted.inserts,
            corrections=emitted.updates,
            deletes=emitted.deletes,
            stale=stale + truncation.stale,
            duplicates=duplicates + truncation.duplicates,
            ignored=changes.ignored,
        )
        tables = evict_tombstones(
            spec, clock, concat([batch.untouched, rows]), state.tables["evicted"]
        )
        tables["truncated"] = truncation.truncated
        output = concat([output, rejected_rows(spec, changes)])
        return Step(State(clock, tables), output, spec.output.empty_table(), metrics)

    def check(self, spec: TableSpec, state: State) -> None:
        """A key is stored once; tombstones are within the horizon and have no values."""
        check_latest_rows(spec, state)
        assert len(state.tables["truncated"]) <= 1, str(state.tables)


def _emit(
    spec: TableSpec,
    state: State,
    batch: KeyedBatch,
    ordered: OrderedChanges,
    effective: Ids,
    values: Sequence[pa.Array],
) -> tuple[pa.Table, EmittedChanges, Ints]:
    """Emit each version of a row that differs from the previous one.

    Each effective change makes a version. Returns rows of the output, the emitted changes, and the
    revision of the key after each version.
    """
    key, has_row, stored = ordered.key[effective], ~ordered.is_delete[effective], batch.stored
    number, begins = np.arange(len(key)), first_of_runs(key)
    before_batch = [combine_chunks(stored.column(f"value.{i}")) for i in range(len(values))]
    pools = [pa.concat_arrays(pair) for pair in zip(values, before_batch, strict=True)]
    keys = int(ordered.key.max(initial=NONE)) + 1
    previous = np.full(keys, NONE)  # position of the stored row of each key in the pools
    is_deleted = np.asarray(combine_chunks(stored.column("is_deleted")))
    previous[: len(stored)] = np.where(is_deleted, NONE, len(key) + np.arange(len(stored)))
    # An unknown key may be an evicted one: it continues above the highest revision evicted.
    evicted = state.tables["evicted"].column("revision").to_pylist()
    revision = np.full(keys, max(evicted, default=NONE))
    revision[: len(stored)] = np.asarray(combine_chunks(stored.column("revision")))

    before = np.where(begins, previous[key], number - 1)
    existed = np.where(begins, before != NONE, has_row[number - 1])
    old, new = np.flatnonzero(existed), np.flatnonzero(has_row)
    changes = emit_changes(
        [value.take(pa.array(before[old])) for value in pools],
        [value.take(pa.array(new)) for value in pools],
        (old, new),
        order=(2 * old, 2 * new + 1),
    )
    publishes = np.zeros(len(number), np.int64)
    publishes[new] = changes.is_emitted
    total = np.cumsum(publishes)
    start = (total - publishes)[begins]
    after = revision[key] + total - start[np.cumsum(begins) - 1]
    row = pa.array(changes.take_ints(before[old], new))
    emitted = changes.take_ints((after - publishes)[old], after[new])
    columns = [
        *batch.keys_of(key[changes.take_ints(old, new)]),
        *(value.take(row) for value in pools),
        pa.array(emitted.astype(np.int32)),
        changes.change_type,
        pa.nulls(len(row), spec.output.field(REJECTED).type),
    ]
    return pa.table(columns, schema=spec.output), changes, after
