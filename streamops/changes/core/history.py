"""The history of the rows of each key, as intervals of the sequence.

State has the changes of each key within the horizon, and the last change before it: the *base*. The
intervals of a key are computed from its changes, before and after a micro-batch, and the difference is
emitted. Intervals before the base are final: a change at or below it is rejected. So is a change beyond
the horizon of a key without a base, at or below the highest evicted sequence: its key may be evicted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamops.changelog.batch import (
    OrderedChanges,
    carry_forward,
    first_of_runs,
    gather_values,
    join_keys,
    key_columns,
    last_of_runs,
    max_evicted,
    over_limit,
    sent_layout,
    to_flags,
    to_positions,
)
from streamops.changelog.classify import ClassifiedChanges, Conflicts
from streamops.changelog.emit import EmittedChanges, emit_changes
from streamops.changelog.latest import advance_clock, evicted_schema
from streamops.changelog.table import REJECTED
from streamops.changes.core.latest import (
    METRICS,
    ApplySpec,
    ChangeMetrics,
    is_replaced,
    rejected_rows,
)
from streamops.kernel.columns import combine_chunks, concat, key_codes, rows_differ, take
from streamops.kernel.core import Identity, State, StateFormat, Step
from streamops.kernel.groups import Groups, Ids, Ints, Mask, pair_codes, running_max
from streamops.kernel.hashing import Digests, digests, hex_digests, xxhash64
from streamops.kernel.operator import Core, Table
from streamops.kernel.ordering import ranks
from streamops.kernel.placement import EVERYWHERE, GREATEST, Placement

Columns: TypeAlias = list[pa.Array]

FORMER = "former"
"""Name of the table of a state that goes on with the identifiers that an earlier version gave to nested keys."""


def _changes_schema(spec: ApplySpec) -> pa.Schema:
    keys = [(f"key.{i}", spec.input.field(name).type) for i, name in enumerate(spec.by)]
    # A base has all values of its row, other changes have those that were sent.
    sequence, is_log, is_deleted, missing, *values = sent_layout(spec)
    own = [
        sequence,
        # Where the interval of a base begins, perhaps at a change that is no longer stored. Of other
        # changes, their sequence.
        ("begin", spec.position),
        is_log,
        is_deleted,
        ("is_base", pa.bool_()),
        ("clock", pa.int64()),
        # The one last emitted of the interval that begins here, or -1.
        ("revision", pa.int32()),
        missing,
    ]
    return pa.schema([*keys, *own, *values])


class HistoryCore(Core[ApplySpec]):
    """The history of the rows of each key, as intervals of the sequence."""

    STATE = StateFormat("changes.intervals", 1)
    TABLES: ClassVar = {
        "changes": Table(_changes_schema),
        "evicted": Table(evicted_schema, GREATEST),
        FORMER: Table(lambda spec: None, EVERYWHERE),
    }
    PLACEMENT = Placement(watermark="greatest")
    METRICS_TYPE = ChangeMetrics
    METRICS = METRICS

    def step(
        self,
        spec: ApplySpec,
        state: State,
        inputs: Sequence[pa.Table],
        watermark: int | None = None,
    ) -> Step:
        """Process one micro-batch."""
        (packed,) = inputs
        received = ClassifiedChanges.of(spec, packed)
        clock = advance_clock(state.watermark, received.clock)
        cutoff = None if clock is None else spec.cutoff(clock)
        changes, untouched, duplicates = _accept_changes(spec, state, received, cutoff)
        stored, remaining = np.flatnonzero(changes.is_stored), np.flatnonzero(~changes.is_dropped)
        before = _Intervals.of(spec, changes.take(stored))[0].renumber(stored)
        current = changes.take(remaining)
        after, effective = _Intervals.of(spec, current)
        former = {name: table for name, table in state.tables.items() if name == FORMER}
        by = xxhash64 if former else digests
        output, emitted, revision = _diff(spec, changes, before, after.renumber(remaining), by)
        is_stale = ~current.is_effective(spec.snapshots) & ~current.is_stored
        metrics = ChangeMetrics(
            rows=len(packed),
            rejected=int(np.count_nonzero(received.is_rejected)),
            results=emitted.inserts,
            corrections=emitted.updates,
            deletes=emitted.deletes,
            stale=int(np.count_nonzero(is_stale)),
            duplicates=duplicates,
            ignored=received.ignored,
        )
        current = current.with_columns(revision=pa.array(revision[remaining].astype(np.int32)))
        rows, tombstones = _evict(current, effective, cutoff)
        evicted = state.tables["evicted"]
        if len(tombstones):
            evicted = max_evicted(concat([evicted, tombstones.select(evicted.column_names)]))
        tables = {"changes": concat([untouched, rows]), "evicted": evicted, **former}
        output = concat([output, rejected_rows(spec, received)])
        return Step(State(clock, tables), output, spec.output.empty_table(), metrics)

    def adapt(
        self,
        spec: ApplySpec,
        stored: Identity,
        tables: Mapping[str, pa.Table],
        watermark: int | None,
    ) -> Mapping[str, pa.Table]:
        """A state from before ``digests``: an interval retains its identifier."""
        return {**tables, FORMER: pa.table({"digests": [1]})}

    def check(self, spec: ApplySpec, state: State) -> None:
        """A key has at most one base, below its other changes; its intervals do not overlap."""
        rows, found = state.tables["changes"], str(state.tables)
        key = key_codes([rows.column(name) for name in key_columns(spec)], len(rows))
        changes = _Changes.of(rows, key, len(rows), [])[0].sort()
        is_above = changes["is_base"] & ~changes.begins
        assert not is_above.any(), f"a base above another change: {found}"
        assert len(state.tables["evicted"]) <= 1, found
        intervals = _Intervals.of(spec, changes)[0]
        key = changes.key[intervals.start]
        since, until = np.split(ranks(pa.concat_arrays([intervals.since, intervals.until])), 2)
        is_open = np.asarray(intervals.until.is_null())
        assert (is_open | (since < until)).all(), f"an interval ends before it begins: {found}"
        same_key = key[1:] == key[:-1]
        assert not (same_key & is_open[:-1]).any(), f"two open intervals: {found}"
        assert (~same_key | (until[:-1] <= since[1:])).all(), f"intervals overlap: {found}"


@dataclass(frozen=True, slots=True)
class _Changes:
    """Changes sorted by key and sequence; at the same sequence the change of the log is first."""

    rows: pa.Table  # as they are stored
    key: Ids  # number of the key
    rank: Ids  # rank of the sequence
    interval: Ids  # code of key and begin
    is_stored: Mask  # whether the change was stored before this micro-batch
    # Whether a stored change is dropped: a change of this micro-batch is in conflict and greater
    is_dropped: Mask

    @staticmethod
    def of(rows: pa.Table, key: Ids, stored: int, others: Columns) -> tuple[_Changes, Ids]:
        """Return the unsorted changes, the stored ones first, and the ranks of other sequences."""
        count = len(rows)
        parts = [combine_chunks(rows.column(name)) for name in ("sequence", "begin")]
        rank = ranks(pa.concat_arrays([*parts, *others]))
        interval = pair_codes(key, rank[count : 2 * count])
        is_stored, nothing = np.arange(count) < stored, np.zeros(count, np.bool_)
        changes = _Changes(rows, key, rank[:count], interval, is_stored, nothing)
        return changes, rank[2 * count :]

    def __len__(self) -> int:
        return len(self.key)

    def __getitem__(self, name: str) -> npt.NDArray[Any]:
        return np.asarray(self.column(name))

    def column(self, name: str) -> pa.Array:
        """A column of the rows."""
        return combine_chunks(self.rows.column(name))

    @property
    def values(self) -> Columns:
        """The values, in the order of the spec."""
        names = (name for name in self.rows.column_names if name.startswith("value."))
        return [self.column(name) for name in names]

    @property
    def missing(self) -> Mask:
        """Changes by values: which values are missing."""
        return to_flags(self.column("missing"), len(self.values))

    @property
    def begins(self) -> Mask:
        """Which changes are the first of their key."""
        return first_of_runs(self.key)

    def take(self, positions: Ids) -> _Changes:
        """The changes at these positions."""
        arrays = (getattr(self, field.name)[positions] for field in fields(self)[1:])
        return _Changes(take(self.rows, positions), *arrays)

    def sort(self) -> _Changes:
        """Sort by key and sequence."""
        return self.take(np.lexsort((~self["is_log"], self.rank, self.key)))

    def with_columns(self, **columns: pa.Array) -> _Changes:
        """The changes with other columns."""
        arrays = [columns.get(name, self.rows.column(name)) for name in self.rows.column_names]
        return replace(self, rows=pa.table(arrays, schema=self.rows.schema))

    def is_effective(self, snapshots: str) -> Mask:
        """Which changes are effective: a row of a snapshot loses against changes of the log."""
        is_log = self["is_log"]
        loses: Mask = running_max(is_log.astype(np.int64), self.begins) == 1
        if snapshots == "by_sequence":
            follows = ~self.begins & np.append(False, self.rank[1:] == self.rank[:-1])[: len(self)]
            loses = follows & np.append(False, is_log[:-1])[: len(self)]
        effective: Mask = is_log | ~loses
        return effective


def _accept_changes(
    spec: ApplySpec, state: State, received: ClassifiedChanges, cutoff: int | None
) -> tuple[_Changes, pa.Table, int]:
    """The stored and the accepted changes of keys that have new changes, or changes to evict.

    Returns also the stored rows of the other keys, and the number of duplicates. A late change is
    never in conflict, but may be a duplicate of a stored change.
    """
    rows = state.tables["changes"]
    evicted = combine_chunks(state.tables["evicted"].column("sequence"))
    keys = join_keys(spec, rows, received)
    groups, _ = Groups.of(key_codes(keys, len(rows) + len(received)))
    stored_key, received_key = groups.ids[: len(rows)], groups.ids[len(rows) :]
    is_touched = np.zeros(groups.count, np.bool_)
    is_touched[received_key] = True
    if cutoff is not None and len(rows):
        flags = (np.asarray(combine_chunks(rows.column(n))) for n in ("is_base", "is_deleted"))
        is_base, is_deleted = flags
        clock = np.asarray(combine_chunks(rows.column("clock")))
        is_touched[stored_key[(clock < cutoff) & ~(is_base & ~is_deleted)]] = True
    touched = is_touched[stored_key]
    stored = rows.filter(pa.array(touched))
    size, key = len(stored), np.append(stored_key[touched], received_key)
    both = concat([stored, _to_rows(spec, received)])
    changes, evicted_rank = _Changes.of(both, key, size, [evicted])

    is_log, is_base = changes["is_log"], changes["is_base"]
    position = pair_codes(changes.key, pair_codes(changes.rank, is_log.astype(np.int64)))
    conflicts = Conflicts.of(position, changes.values, changes.missing, changes["is_deleted"])
    first = conflicts.firsts()
    is_duplicate = (first != np.arange(len(first))) & ~changes.is_stored
    has_base, base = np.zeros(groups.count, np.bool_), np.zeros(groups.count, np.int64)
    has_base[changes.key[is_base]] = True
    base[changes.key[is_base]] = changes.rank[is_base]
    is_below = has_base[changes.key] & (changes.rank <= base[changes.key])
    if len(evicted):
        # Changes of one key and sequence are late together, so that they can be compared.
        is_beyond = spec.is_beyond(conflicts.latest_clock(changes["clock"]), is_log, state)
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


def _to_rows(spec: ApplySpec, received: ClassifiedChanges) -> pa.Table:
    """Changes as they are stored. The values of a delete are not stored."""
    count = len(received)
    index = pa.array(np.arange(count), mask=received.is_delete)
    columns = [
        *(received.column(name) for name in spec.by),
        received.sequence,
        received.sequence,
        pa.array(received.is_log),
        pa.array(received.is_delete),
        pa.repeat(False, count),
        pa.array(received.clock),
        pa.array(np.full(count, -1, np.int32)),
        to_positions(received.missing),
        *(received.column(name).take(index) for name in spec.values),
    ]
    return pa.table(columns, schema=_changes_schema(spec))


def _is_full(spec: ApplySpec, changes: _Changes, accepted: Mask, stored: Ids) -> Mask:
    """Which changes have a new key that exceeds the limit."""
    keys, first = np.unique(changes.key[accepted], return_index=True)
    is_new = ~np.isin(keys, stored)
    index = pa.array(np.flatnonzero(accepted)[first[is_new]])
    names = [changes.column(name).take(index) for name in key_columns(spec)]
    out = over_limit(spec, names, len(stored))
    return accepted & np.isin(changes.key, keys[is_new][out])


@dataclass(frozen=True, slots=True)
class _Effective:
    """The effective changes, without deletes that are replaced in the same commit."""

    position: Ids  # position of each effective change among all
    values: Columns  # the row that each change leaves
    # Position of the change that begins the interval; the change itself if it leaves no row
    begin: Ids


@dataclass(frozen=True, slots=True)
class _Intervals:
    """Intervals ``[since, until)``, sorted by key and sequence. They do not overlap."""

    start: Ids  # position of the change that begins the interval
    since: pa.Array
    until: pa.Array  # null if the interval is open
    values: Columns  # the row, as it is at the end

    @staticmethod
    def of(spec: ApplySpec, changes: _Changes) -> tuple[_Intervals, _Effective]:
        """The intervals of sorted changes, and which of the changes are effective."""
        effective = np.flatnonzero(changes.is_effective(spec.snapshots))
        own = changes.take(effective)
        is_delete = own["is_deleted"]
        ordered = OrderedChanges(own.key, own.rank, np.arange(len(own)), is_delete)
        source = carry_forward(ordered, own.missing & ~own["is_base"][:, np.newaxis])
        values = gather_values(own.values, ordered, source)
        # A delete that is replaced stops values from being carried forward, but ends no interval.
        lasting = np.flatnonzero(~is_replaced(spec, own.key, own.column("sequence"), is_delete))
        if len(lasting) < len(own):
            effective, own, is_delete = effective[lasting], own.take(lasting), is_delete[lasting]
            values = [column.take(pa.array(lasting)) for column in values]
        size, number = len(own), np.arange(len(own))
        has_row, begins = ~is_delete, own.begins
        follows = ~begins & np.append(False, has_row[:-1])[:size]
        tracked = [values[spec.values.index(name)] for name in spec.tracked]
        differs = np.zeros(size, np.bool_)
        if tracked and size:
            pairs = [(column.slice(0, size - 1), column.slice(1)) for column in tracked]
            differs[1:] = rows_differ(*zip(*pairs, strict=True))
        starts = has_row & (~follows | differs)
        continues = has_row & ~starts
        ends = has_row & ~np.append(continues[1:], False)[:size]
        first, last = np.flatnonzero(starts), np.flatnonzero(ends)
        after = last + 1
        is_open = np.append(begins, True)[after]
        begin = np.where(has_row, np.maximum.accumulate(np.where(starts, number, 0)), number)
        intervals = _Intervals(
            effective[first],
            own.column("begin").take(pa.array(first)),
            own.column("sequence").take(pa.array(after, mask=is_open)),
            [column.take(pa.array(last)) for column in values],
        )
        return intervals, _Effective(effective, values, effective[begin])

    def renumber(self, positions: Ids) -> _Intervals:
        """The intervals after their changes were moved to these positions."""
        return replace(self, start=positions[self.start])


def _diff(
    spec: ApplySpec, changes: _Changes, before: _Intervals, after: _Intervals, by: Digests
) -> tuple[pa.Table, EmittedChanges, Ints]:
    """Emit the difference between intervals, which are identified by key and begin.

    Returns rows of the output, sorted by key, retractions first; the emitted changes; and for each
    change the revision of the interval that begins there.
    """
    groups, _ = Groups.of(changes.interval)
    revision = np.full(groups.count, -1)
    np.maximum.at(revision, groups.ids, changes["revision"])
    old, new = groups.ids[before.start], groups.ids[after.start]
    start = np.append(before.start, after.start)
    is_after = np.arange(len(start)) >= len(old)
    rank = np.empty(len(start), np.int64)
    rank[np.lexsort((changes.rank[start], is_after, changes.key[start]))] = np.arange(len(start))
    emitted = emit_changes(
        [before.until, *before.values],
        [after.until, *after.values],
        (old, new),
        (revision[old], revision[new] + 1),
        order=(rank[: len(old)], rank[len(old) :]),
    )
    revision[new] = emitted.after
    first = pa.array(start[emitted.row])
    keys = [changes.column(name).take(first) for name in key_columns(spec)]
    row = emitted.take(
        [before.since, before.until, *before.values], [after.since, after.until, *after.values]
    )
    columns = [
        *keys,
        *([] if spec.surrogate is None else [hex_digests([*keys, row[0]], by=by)]),
        *row,
        pa.array(emitted.revision.astype(np.int32)),
        emitted.change_type,
        pa.nulls(len(first), spec.output.field(REJECTED).type),
    ]
    return pa.table(columns, schema=spec.output), emitted, revision[groups.ids]


def _evict(
    changes: _Changes, effective: _Effective, cutoff: int | None
) -> tuple[pa.Table, pa.Table]:
    """Evict the changes that are older than the horizon, except the last one of each key: its base.

    A change with a clock below `cutoff` is final, and so are all changes before it. Returns the rows
    to store, and the last deletes of evicted keys.
    """
    if cutoff is None or not len(changes):
        return changes.rows, changes.rows.slice(0, 0)
    number, begins = np.arange(len(changes)), changes.begins
    is_final = running_max(changes["clock"], begins) < cutoff
    index = np.full(len(changes), -1)
    index[effective.position] = np.arange(len(effective.position))
    base = running_max(np.where(is_final & (index >= 0), number, -1), begins)
    ends = last_of_runs(changes.key)
    key = np.cumsum(begins) - 1
    base = base[ends][key]  # base of the key of each change
    is_base = number == base
    # A key whose last change is a final delete is evicted.
    last = running_max(np.where(index >= 0, number, -1), begins)[ends][key]
    is_evicted = (base >= 0) & (base == last) & changes["is_deleted"][base]
    remaining = np.flatnonzero((number >= base) & ~is_evicted)

    begin = np.where(is_base, effective.begin[index], number)
    row = np.where(is_base, len(changes) + index, number)
    pools = zip(changes.values, effective.values, strict=True)
    values = [pa.concat_arrays(pair).take(pa.array(row)) for pair in pools]
    stored = changes.with_columns(
        begin=changes.column("begin").take(pa.array(begin)),
        revision=changes.column("revision").take(pa.array(begin)),
        is_base=pa.array(is_base),
        **{f"value.{number}": column for number, column in enumerate(values)},
    )
    tombstones = take(changes.rows, np.flatnonzero(is_evicted & is_base))
    return take(stored.rows, remaining), tombstones
