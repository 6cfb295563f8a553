"""The history of the rows of each key, as intervals of the sequence.

The changes within the horizon are stored, and the last change before it: the *base*. The intervals of
a key are computed from its changes, before and after a micro-batch, and the difference is emitted. A
change at or below the base is rejected, as the intervals there are final. Of a key without a base, a
change beyond the horizon is rejected if it is at or below the highest sequence evicted: its key may be
evicted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from streamops.changelog.batch import key_columns, max_evicted, over_limit, to_flags, to_positions
from streamops.changelog.classify import ClassifiedChanges, Conflicts
from streamops.changelog.latest import advance_clock
from streamops.changes.core.intervals import (
    IntervalChanges,
    Intervals,
    compact_changes,
    diff_intervals,
)
from streamops.changes.core.spec import METRICS, ApplySpec, ChangeMetrics, rejected_rows
from streamops.kernel.columns import combine_chunks, concat, conform, key_codes
from streamops.kernel.core import SideName, State, StateFormat, Step, finish, next_deadline
from streamops.kernel.groups import Groups, Ids, Mask, pair_codes
from streamops.kernel.ordering import ranks

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

STATE = StateFormat("changes.history", 3)
METRICS_TYPE = ChangeMetrics


def layout(spec: ApplySpec) -> Mapping[str, pa.Schema]:
    """Columns of the state's tables."""
    keys = [(f"key.{i}", spec.input.field(name).type) for i, name in enumerate(spec.by)]
    own = [
        ("sequence", spec.position),
        ("begin", spec.position),
        ("is_log", pa.bool_()),
        ("is_deleted", pa.bool_()),
        ("is_base", pa.bool_()),
        ("clock", pa.int64()),
        ("revision", pa.int32()),
        ("missing", pa.list_(pa.int32())),
    ]
    values = [(f"value.{i}", spec.input.field(name).type) for i, name in enumerate(spec.values)]
    return {
        "changes": pa.schema([*keys, *own, *values]),
        "evicted": pa.schema([("sequence", spec.position), ("clock", pa.int64())]),
    }


def empty(spec: ApplySpec) -> State:
    """The state before the first step."""
    return State(None, {name: schema.empty_table() for name, schema in layout(spec).items()})


def pack(spec: ApplySpec, rows: pa.Table, side: SideName = "left") -> pa.Table:
    """The rows as they are."""
    return conform(rows, spec.input)


def step(
    spec: ApplySpec, state: State, inputs: Sequence[pa.Table], watermark: int | None = None
) -> Step:
    """Process one micro-batch."""
    (packed,) = inputs
    received = ClassifiedChanges.of(spec, packed)
    clock = advance_clock(state.watermark, received.clock)
    cutoff = None if clock is None else spec.cutoff(clock)
    changes, untouched, duplicates = _accept_changes(spec, state, received, cutoff)
    stored = np.flatnonzero(changes.is_stored)
    before = Intervals.of(spec, changes.take(stored))[0].renumber(stored)
    remaining = np.flatnonzero(~changes.is_dropped)
    current = changes.take(remaining)
    after, effective = Intervals.of(spec, current)
    difference = diff_intervals(spec, changes, before, after.renumber(remaining))
    output = concat([difference.rows, rejected_rows(spec, received)])
    is_stale = ~current.is_effective(spec.snapshots) & ~current.is_stored
    metrics = ChangeMetrics(
        rows=len(packed),
        rejected=int(np.count_nonzero(received.is_rejected)),
        results=difference.inserts,
        corrections=difference.updates,
        deletes=difference.deletes,
        stale=int(np.count_nonzero(is_stale)),
        duplicates=duplicates,
        ignored=received.ignored,
    )
    current = replace(current, revision=difference.revision[remaining])
    current, tombstones = compact_changes(current, effective, cutoff)
    tables = {
        "changes": concat([untouched, _to_table(spec, current)]),
        "evicted": state.tables["evicted"],
    }
    if len(tombstones):
        new = pa.table([tombstones.sequence, tombstones.clock], schema=layout(spec)["evicted"])
        tables["evicted"] = max_evicted(concat([tables["evicted"], new]))
    return Step(State(clock, tables), output, spec.output.empty_table(), metrics)


def run(spec: ApplySpec, inputs: Sequence[pa.Table]) -> pa.Table:
    """The batch result: all rows in one step."""
    return step(spec, empty(spec), inputs).output


def check(spec: ApplySpec, state: State) -> None:
    """A key has at most one base, below its other changes; its intervals do not overlap."""
    rows, found = state.tables["changes"], str(state.tables)
    key = key_codes([rows.column(name) for name in key_columns(spec)], len(rows))
    nothing = ClassifiedChanges.of(spec, spec.input.empty_table())
    changes = _changes(spec, rows, nothing, key, [])[0].sort()
    assert not (changes.is_base & ~changes.begins).any(), f"a base above another change: {found}"
    assert len(state.tables["evicted"]) <= 1, found
    intervals = Intervals.of(spec, changes)[0]
    key = changes.key[intervals.start]
    since, until = np.split(ranks(pa.concat_arrays([intervals.since, intervals.until])), 2)
    is_open = np.asarray(intervals.until.is_null())
    assert (is_open | (since < until)).all(), f"an interval ends before it begins: {found}"
    same_key = key[1:] == key[:-1]
    assert not (same_key & is_open[:-1]).any(), f"two open intervals: {found}"
    assert (~same_key | (until[:-1] <= since[1:])).all(), f"intervals overlap: {found}"


def _accept_changes(
    spec: ApplySpec, state: State, received: ClassifiedChanges, cutoff: int | None
) -> tuple[IntervalChanges, pa.Table, int]:
    """The stored changes of keys with work to do, and the accepted changes.

    Also the stored rows of the other keys, and the number of duplicates. A final change conflicts
    with no other one; it is a duplicate of an equal stored change.
    """
    rows = state.tables["changes"]
    evicted = combine_chunks(state.tables["evicted"].column("sequence"))
    keys = [
        pa.concat_arrays([combine_chunks(rows.column(column)), received.column(name)])
        for column, name in zip(key_columns(spec), spec.by, strict=True)
    ]
    groups, _ = Groups.of(key_codes(keys, len(rows) + len(received)))
    stored_key, received_key = groups.ids[: len(rows)], groups.ids[len(rows) :]
    is_touched = np.zeros(groups.count, np.bool_)
    is_touched[received_key] = True
    if cutoff is not None and len(rows):
        is_final = _flags(rows, "is_base") & ~_flags(rows, "is_deleted")
        clock = np.asarray(combine_chunks(rows.column("clock")))
        is_touched[stored_key[(clock < cutoff) & ~is_final]] = True
    touched = is_touched[stored_key]
    stored = rows.filter(pa.array(touched))
    key = np.append(stored_key[touched], received_key)
    changes, evicted_rank = _changes(spec, stored, received, key, [evicted])

    size = len(stored)
    position = pair_codes(changes.key, pair_codes(changes.rank, changes.is_log.astype(np.int64)))
    conflicts = Conflicts.of(position, changes.values, changes.missing, changes.is_delete)
    first = conflicts.firsts()
    is_duplicate = (first != np.arange(len(first))) & ~changes.is_stored
    has_base, base = np.zeros(groups.count, np.bool_), np.zeros(groups.count, np.int64)
    has_base[changes.key[changes.is_base]] = True
    base[changes.key[changes.is_base]] = changes.rank[changes.is_base]
    is_below = has_base[changes.key] & (changes.rank <= base[changes.key])
    if len(evicted):
        # Changes of one key and sequence are late together, so that they can be compared.
        is_beyond = spec.is_beyond(conflicts.latest_clock(changes.clock), changes.is_log, state)
        is_below |= ~has_base[changes.key] & is_beyond & (changes.rank <= evicted_rank[0])
    is_late = ~changes.is_stored & is_below & (first >= size)
    loses = replace(conflicts, order=np.where(is_late, -1, conflicts.order)).loses()
    in_conflict = loses & ~changes.is_stored
    is_late &= ~in_conflict
    is_accepted = ~in_conflict & ~is_late
    is_full = _is_full(spec, changes, is_accepted, np.unique(stored_key))
    is_duplicate &= is_accepted & ~is_full
    rejected = ((in_conflict, "conflict"), (is_late, "forgotten"), (is_full, "full"))
    for dropped, reason in rejected:
        received.reject(np.flatnonzero(dropped) - size, reason)
    accepted = np.flatnonzero(is_accepted & ~is_full & ~is_duplicate)
    changes = replace(changes, is_dropped=loses & changes.is_stored).take(accepted).sort()
    return changes, rows.filter(pa.array(~touched)), int(np.count_nonzero(is_duplicate))


def _is_full(spec: ApplySpec, changes: IntervalChanges, accepted: Mask, stored: Ids) -> Mask:
    """Which changes have a new key that exceeds the limit."""
    keys, first = np.unique(changes.key[accepted], return_index=True)
    is_new = ~np.isin(keys, stored)
    index = pa.array(np.flatnonzero(accepted)[first[is_new]])
    out = over_limit(spec, [column.take(index) for column in changes.names], len(stored))
    return accepted & np.isin(changes.key, keys[is_new][out])


def _changes(
    spec: ApplySpec,
    rows: pa.Table,
    received: ClassifiedChanges,
    key: Ids,
    others: list[pa.Array],
) -> tuple[IntervalChanges, Ids]:
    """The stored rows and the received changes, not sorted; and the ranks of other sequences."""
    count = len(received)
    sequence = pa.concat_arrays([combine_chunks(rows.column("sequence")), received.sequence])
    begin = pa.concat_arrays([combine_chunks(rows.column("begin")), received.sequence])
    rank = ranks(pa.concat_arrays([sequence, begin, *others]))
    missing = to_flags(combine_chunks(rows.column("missing")), len(spec.values))
    # The values that a delete comes with are not stored.
    index = pa.array(np.arange(count), mask=received.is_delete)
    changes = IntervalChanges(
        key=key,
        names=[
            pa.concat_arrays([combine_chunks(rows.column(column)), received.column(name)])
            for column, name in zip(key_columns(spec), spec.by, strict=True)
        ],
        sequence=sequence,
        begin=begin,
        rank=rank[: len(sequence)],
        interval=pair_codes(key, rank[len(sequence) : 2 * len(sequence)]),
        is_log=np.append(_flags(rows, "is_log"), received.is_log),
        is_delete=np.append(_flags(rows, "is_deleted"), received.is_delete),
        is_base=np.append(_flags(rows, "is_base"), np.zeros(count, np.bool_)),
        is_stored=np.append(np.ones(len(rows), np.bool_), np.zeros(count, np.bool_)),
        is_dropped=np.zeros(len(sequence), np.bool_),
        clock=np.append(np.asarray(combine_chunks(rows.column("clock"))), received.clock),
        revision=np.append(np.asarray(combine_chunks(rows.column("revision"))), np.full(count, -1)),
        missing=np.concatenate([missing, received.missing]),
        values=[
            pa.concat_arrays(
                [combine_chunks(rows.column(f"value.{i}")), received.column(name).take(index)]
            )
            for i, name in enumerate(spec.values)
        ],
    )
    return changes, rank[2 * len(sequence) :]


def _flags(rows: pa.Table, name: str) -> Mask:
    return np.asarray(combine_chunks(rows.column(name)))


def _to_table(spec: ApplySpec, changes: IntervalChanges) -> pa.Table:
    """Changes, as they are stored."""
    columns = [
        *changes.names,
        changes.sequence,
        changes.begin,
        pa.array(changes.is_log),
        pa.array(changes.is_delete),
        pa.array(changes.is_base),
        pa.array(changes.clock),
        pa.array(changes.revision.astype(np.int32)),
        to_positions(changes.missing),
        *changes.values,
    ]
    return pa.table(columns, schema=layout(spec)["changes"])
