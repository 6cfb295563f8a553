"""The latest row of each key: which changes are effective, and which tombstones are evicted.

A change is effective if its position is above that of the stored row of its key. A delete leaves a
tombstone, which is evicted when it is older than the horizon. The highest evicted sequence is stored:
a change of an unknown key at or below it, and beyond the horizon, may be older than an evicted delete,
and is rejected. A change within the horizon is always accepted, as the sequences of two keys may not be
comparable (offsets of two partitions are not).

A truncate deletes every stored row at a lower position. Its sequence is stored, so that late changes
below it are stale.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamops.changelog.batch import (
    NONE,
    KeyedBatch,
    OrderedChanges,
    carry_forward,
    gather_values,
    key_columns,
    max_evicted,
    positions_of,
    sent_layout,
    to_flags,
    to_positions,
)
from streamops.changelog.classify import ACCEPTED, ClassifiedChanges
from streamops.changelog.table import KeyedTable
from streamops.kernel.adapting_rows import map_columns
from streamops.kernel.aggregation import list_sizes, make_lists
from streamops.kernel.columns import combine_chunks, concat, key_codes, make_structs, take
from streamops.kernel.core import Metrics, State
from streamops.kernel.groups import Groups, Ids, Ints, Mask
from streamops.kernel.ordering import ranks
from streamops.kernel.versions import table_of

Fields = Sequence[tuple[str, pa.DataType]]


def latest_schema(spec: KeyedTable, extra: Fields = ()) -> pa.Schema:
    """Columns of the stored rows."""
    keys = [(f"key.{i}", spec.input.field(name).type) for i, name in enumerate(spec.by)]
    sent = list(sent_layout(spec))
    donors = ("donors", pa.list_(pa.struct(sent)))
    row = [*keys, *sent[:3], ("clock", pa.int64()), *extra, sent[3], donors, *sent[4:]]
    return pa.schema(row)


def evicted_schema(spec: KeyedTable, extra: Fields = ()) -> pa.Schema:
    """Columns of the limits of evicted rows. The maximum of each extra column is stored."""
    return pa.schema([sent_layout(spec)[0], ("clock", pa.int64()), *extra])


def map_values(
    spec: KeyedTable, before: Sequence[str], rows: pa.Table, extra: Fields = ()
) -> pa.Table:
    """The stored rows with the values of these names; ``before`` has those of the rows."""
    donors = combine_chunks(rows.column("donors"))
    sent = _map_sent(spec, before, rows, sent_layout(spec))
    of_donors = _map_sent(spec, before, table_of(donors.flatten()), sent_layout(spec))
    mapped = {
        **{name: rows.column(name) for name in rows.column_names if "value." not in name},
        **dict(zip(sent.column_names, sent.columns, strict=True)),
        "donors": make_lists(make_structs(of_donors), list_sizes(donors)),
    }
    schema = latest_schema(spec, extra)
    return pa.table([mapped[name] for name in schema.names], schema=schema)


def _map_sent(
    spec: KeyedTable, before: Sequence[str], rows: pa.Table, schema: pa.Schema
) -> pa.Table:
    """Changes as they were sent. A value that was added is null, and not missing."""
    flags = to_flags(combine_chunks(rows.column("missing")), len(before))
    flags = np.column_stack([flags, np.zeros(len(rows), np.bool_)])
    found = [before.index(name) if name in before else len(before) for name in spec.values]
    own = ("sequence", "is_log", "is_deleted")
    sent = rows.select(own).append_column("missing", to_positions(flags[:, found]))
    names = [f"value.{i}" for i in range(len(before))]
    values = map_columns(spec.values, before, rows.select(names), pa.schema(list(schema)[4:]))
    return pa.table([*sent.columns, *values.columns], schema=schema)


@dataclass(frozen=True, slots=True)
class Truncation:
    """The effect of the truncates known to a state."""

    changes: ClassifiedChanges  # deletes of stored rows, and the changes above the highest truncate
    truncated: pa.Table  # the highest sequence of a truncate: one row, or none
    stale: int  # number of changes and truncates below it
    duplicates: int  # number of truncates received again


def apply_truncates(spec: KeyedTable, state: State, changes: ClassifiedChanges) -> Truncation:
    """Delete the stored rows below the truncates of a micro-batch; drop the changes below them."""
    known, truncates = state.tables["truncated"], changes.truncates
    before = combine_chunks(known.column("sequence"))
    pool = pa.concat_arrays([before, truncates.sequence])
    if not len(pool):
        return Truncation(changes, known, 0, 0)
    rank = ranks(pool)
    highest = int(rank.argmax())
    is_new = len(known) == 0 or bool(rank[highest] > rank[0])
    is_highest = rank[len(known) :] == rank[highest]
    counted = truncates.is_counted
    repeated = int(np.count_nonzero(is_highest & counted))
    duplicates = max(repeated - is_new, 0)
    stale = int(np.count_nonzero(counted & ~is_highest))
    limit = pool.slice(highest, 1)

    is_below = _is_below(spec, changes.sequence, changes.is_log, limit)
    stale += int(np.count_nonzero(is_below))
    changes = changes.without(is_below)
    if is_new:
        rows = state.tables["rows"]
        is_live = ~np.asarray(combine_chunks(rows.column("is_deleted")))
        deleted = np.flatnonzero(is_live & _is_truncated(spec, rows, limit))
        clock = int(truncates.clock[is_highest].max())
        changes = _with_deletes(spec, changes, rows, deleted, limit, clock)
        known = pa.table([limit], schema=known.schema)
    return Truncation(changes, known, stale, duplicates)


def _is_below(spec: KeyedTable, sequence: pa.Array, is_log: Mask, limit: pa.Array) -> Mask:
    """Which of these changes are below a truncate of the log with the sequence `limit`."""
    rank = ranks(pa.concat_arrays([sequence, limit]))
    position = positions_of(spec, rank, np.append(is_log, True))
    result: Mask = position[:-1] < position[-1]
    return result


def _is_truncated(spec: KeyedTable, rows: pa.Table, limit: pa.Array) -> Mask:
    """Which stored rows are below a truncate, or have a donor that is."""
    lists = combine_chunks(rows.column("donors"))
    owner = np.repeat(np.arange(len(rows)), list_sizes(lists))
    donors = table_of(lists.flatten())
    found = _is_below(
        spec,
        combine_chunks(rows.column("sequence")),
        np.asarray(combine_chunks(rows.column("is_log"))),
        limit,
    )
    is_log = np.asarray(combine_chunks(donors.column("is_log")))
    found[owner[_is_below(spec, combine_chunks(donors.column("sequence")), is_log, limit)]] = True
    return found


def _with_deletes(
    spec: KeyedTable,
    changes: ClassifiedChanges,
    rows: pa.Table,
    deleted: Ids,
    limit: pa.Array,
    clock: int,
) -> ClassifiedChanges:
    """Add deletes of stored rows, at the sequence of a truncate, before the changes."""
    count, index = len(deleted), pa.array(deleted)
    if not count:
        return changes
    keys = {
        name: combine_chunks(rows.column(column)).take(index)
        for column, name in zip(key_columns(spec), spec.by, strict=True)
    }
    columns = [keys.get(field.name, pa.nulls(count, field.type)) for field in spec.input]
    added = np.full(count, True)
    return replace(
        changes,
        rows=concat([changes.rows, pa.table(columns, schema=spec.input)]),
        reason=np.append(changes.reason, np.full(count, ACCEPTED)),
        positions=np.append(len(changes.rows) + np.arange(count), changes.positions),
        sequence=pa.concat_arrays(
            [limit.take(pa.array(np.zeros(count, np.int64))), changes.sequence]
        ),
        is_delete=np.append(added, changes.is_delete),
        is_log=np.append(added, changes.is_log),
        clock=np.append(np.full(count, clock), changes.clock),
        missing=np.concatenate([np.zeros((count, len(spec.values)), np.bool_), changes.missing]),
    )


def accept_changes(
    spec: KeyedTable, state: State, changes: ClassifiedChanges
) -> tuple[KeyedBatch, int]:
    """Join the stored rows and the accepted changes; count duplicates.

    A change that loses a conflict is rejected, but stays in the batch: it may supply a value to the
    greater one. It is rejected each time it is delivered, also as a duplicate, as two deletes with
    different values have the same content.
    """
    batch, is_duplicate, maybe_evicted = KeyedBatch.of(spec, state, changes)
    size = len(batch.stored)
    loses = batch.loses[size : size + len(is_duplicate)]
    changes.reject(np.flatnonzero(loses), "conflict")
    batch, is_duplicate = batch.without(maybe_evicted, "forgotten"), is_duplicate[~maybe_evicted]
    full = batch.over_capacity()
    batch, is_duplicate = batch.without(full, "full"), is_duplicate[~full]
    loses = batch.loses[size : size + len(is_duplicate)]
    return batch.without(is_duplicate), int(np.count_nonzero(is_duplicate & ~loses))


def find_effective(batch: KeyedBatch, ordered: OrderedChanges) -> tuple[Mask, int]:
    """Which changes are effective, and the number of changes below the stored row of their key."""
    size = len(batch.stored)
    stored = np.full(int(ordered.key.max(initial=NONE)) + 1, np.iinfo(np.int64).min)
    stored[:size] = batch.position[:size]
    competes = ~batch.is_donor(ordered) & ~batch.loses[ordered.row]
    effective: Mask = competes & (ordered.position >= stored[ordered.key])
    is_received = np.zeros(len(batch.key), np.bool_)
    is_received[size : size + len(batch.changes)] = batch.changes.is_received
    return effective, int(np.count_nonzero(competes & ~effective & is_received[ordered.row]))


def build_latest_rows(
    batch: KeyedBatch,
    ordered: OrderedChanges,
    last: Ids,
    source: Ids,
    values: Sequence[pa.Array],
    extra: Mapping[str, pa.Array],
) -> pa.Table:
    """The rows to store: the last change of each key.

    `source` has a row per last change and a column per value: the change that supplies the value.
    """
    spec, is_deleted = batch.spec, ordered.is_delete[last]
    row = ordered.row[last]
    schema = latest_schema(spec, [(name, column.type) for name, column in extra.items()])
    donates = (source != last[:, np.newaxis]) & (source != NONE) & ~is_deleted[:, np.newaxis]
    key, value = np.nonzero(donates)
    size = max(len(ordered.key), 1)
    pairs = np.unique(key * size + source[key, value])
    owner, donor = pairs // size, ordered.row[pairs % size]
    donors = make_structs(take(batch.rows, donor))
    donors = make_lists(donors, np.bincount(owner, minlength=len(last)))
    sent = take(batch.rows, row)
    columns = [
        *batch.keys_of(ordered.key[last]),
        *sent.columns[:3],
        pa.array(batch.clock[row]),
        *extra.values(),
        sent.column("missing"),
        donors.cast(schema.field("donors").type),
        *values,
    ]
    return pa.table(columns, schema=schema)


def apply_changes(
    spec: KeyedTable, state: State, rows: pa.Table
) -> tuple[State, ClassifiedChanges, Metrics]:
    """The state after these changes, and the changes with the reasons of those that are rejected."""
    changes = ClassifiedChanges.of(spec, rows)
    batch, duplicates = accept_changes(spec, state, changes)
    ordered = batch.ordered
    is_effective, stale = find_effective(batch, ordered)
    last = np.flatnonzero(is_effective & ordered.ends)
    source = carry_forward(ordered, batch.missing)[last]
    values = gather_values(batch.values, ordered, source)
    latest = build_latest_rows(batch, ordered, last, source, values, {})
    clock = advance_clock(state.watermark, changes.clock)
    stored = concat([batch.untouched, latest])
    tables = evict_tombstones(spec, clock, stored, state.tables["evicted"])
    rejected, late = int(np.count_nonzero(changes.is_rejected)), stale + duplicates
    on_time = len(rows) - rejected - late
    metrics = Metrics(rows=len(rows), rejected=rejected, on_time=on_time, too_late=late)
    return State(clock, tables), changes, metrics


def advance_clock(before: int | None, clock: Ints) -> int | None:
    """The maximum of the stored clock and the clocks of a micro-batch."""
    if not len(clock):
        return before
    return int(clock.max()) if before is None else max(before, int(clock.max()))


def evict_tombstones(
    spec: KeyedTable, clock: int | None, rows: pa.Table, evicted: pa.Table
) -> dict[str, pa.Table]:
    """Evict the tombstones that are older than the horizon."""
    is_old = np.zeros(len(rows), np.bool_)
    if clock is not None:
        is_deleted = np.asarray(combine_chunks(rows.column("is_deleted")))
        of_rows = np.asarray(combine_chunks(rows.column("clock")))
        is_old = is_deleted & (of_rows < spec.cutoff(clock))
    if is_old.any():
        old = rows.filter(pa.array(is_old)).select(evicted.column_names)
        evicted = max_evicted(concat([evicted, old]))
        rows = rows.filter(pa.array(~is_old))
    return {"rows": rows, "evicted": evicted}


def check_latest_rows(spec: KeyedTable, state: State) -> None:
    """A key is stored once; tombstones are within the horizon and have no values."""
    rows, found = state.tables["rows"], str(state.tables)
    groups, _ = Groups.of(key_codes([rows.column(name) for name in key_columns(spec)], len(rows)))
    assert groups.count == len(rows) <= spec.limit, f"a key twice, or too many: {found}"
    assert len(state.tables["evicted"]) <= 1, found
    tombstones = rows.filter(rows.column("is_deleted"))
    for number in range(len(spec.values)):
        assert tombstones.column(f"value.{number}").null_count == len(tombstones), found
    for name in ("missing", "donors"):
        assert not list_sizes(combine_chunks(tombstones.column(name))).any(), found
    if state.watermark is not None and len(tombstones):
        assert pc.min(tombstones.column("clock")).as_py() >= spec.cutoff(state.watermark), found
