"""Intervals for which the rows of keys are valid: compute, compare, and seal them."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any, TypeAlias

import numpy as np
import pyarrow as pa

from streamops.changelog.batch import (
    OrderedChanges,
    carry_forward,
    first_of_runs,
    gather_values,
    last_of_runs,
)
from streamops.changelog.emit import emit_changes
from streamops.changelog.table import REJECTED
from streamops.changes.core.spec import ApplySpec, is_replaced
from streamops.kernel.columns import rows_differ
from streamops.kernel.groups import Groups, Ids, Ints, Mask, running_max

__all__ = [
    "Columns",
    "Effective",
    "IntervalChanges",
    "Intervals",
    "compact_changes",
    "diff_intervals",
]

Columns: TypeAlias = list[pa.Array]


@dataclass(frozen=True, slots=True)
class IntervalChanges:
    """Changes sorted by key and sequence; at the same sequence the change of the log is first."""

    key: Ids  # number of the key
    names: Columns  # key columns
    sequence: pa.Array  # sequence of each change
    # Where the interval begins that a base is in, which may be at a change that is no longer
    # stored. Of other changes, their sequence.
    begin: pa.Array
    rank: Ids  # rank of the sequence
    interval: Ids  # code of key and begin
    # is_log, is_delete, is_base: whether the change comes from the log; is a delete; is a base
    is_log: Mask
    is_delete: Mask
    is_base: Mask
    is_stored: Mask  # whether the change was stored before this micro-batch
    # Whether a stored change is dropped: a change of this micro-batch is in conflict and greater
    is_dropped: Mask
    # clock, revision: the measure of the horizon; the revision last emitted of the interval that
    # begins here
    clock: Ints
    revision: Ints
    missing: Mask  # changes by values: which values are missing
    values: Columns  # the values; of a base, all of the row

    def __len__(self) -> int:
        return len(self.key)

    def take(self, positions: Ids) -> IntervalChanges:
        """The changes at these positions."""
        index = pa.array(positions)
        taken: dict[str, Any] = {}
        for field in fields(self):
            column = getattr(self, field.name)
            if isinstance(column, list):
                taken[field.name] = [part.take(index) for part in column]
            elif isinstance(column, pa.Array):
                taken[field.name] = column.take(index)
            else:
                taken[field.name] = column[positions]
        return IntervalChanges(**taken)

    def sort(self) -> IntervalChanges:
        """Sort by key and sequence."""
        return self.take(np.lexsort((~self.is_log, self.rank, self.key)))

    @property
    def begins(self) -> Mask:
        """Which changes are the first of their key."""
        return first_of_runs(self.key)

    def is_effective(self, snapshots: str) -> Mask:
        """Which changes are effective: a row of a snapshot loses against changes of the log."""
        loses: Mask = running_max(self.is_log.astype(np.int64), self.begins) == 1
        if snapshots == "by_sequence":
            follows = ~self.begins & np.append(False, self.rank[1:] == self.rank[:-1])[: len(self)]
            loses = follows & np.append(False, self.is_log[:-1])[: len(self)]
        effective: Mask = self.is_log | ~loses
        return effective


@dataclass(frozen=True, slots=True)
class Effective:
    """The effective changes, without deletes that are replaced in the same commit."""

    position: Ids  # position of each effective change among all
    values: Columns  # the row that each change leaves
    # Position of the change that begins the interval; the change itself if it leaves no row
    begin: Ids


@dataclass(frozen=True, slots=True)
class Intervals:
    """Intervals sorted by key and sequence. The intervals of a key do not overlap."""

    start: Ids  # position of the change that begins the interval
    # since, until: the interval is ``[since, until)``; ``until`` is null if it is open
    since: pa.Array
    until: pa.Array
    values: Columns  # the row, as it is at the end

    @staticmethod
    def of(spec: ApplySpec, changes: IntervalChanges) -> tuple[Intervals, Effective]:
        """The intervals of sorted changes, and which of the changes are effective."""
        effective = np.flatnonzero(changes.is_effective(spec.snapshots))
        own = changes.take(effective)
        ordered = OrderedChanges(own.key, own.rank, np.arange(len(own)), own.is_delete)
        source = carry_forward(ordered, own.missing & ~own.is_base[:, np.newaxis])
        values = gather_values(own.values, ordered, source)
        # A delete that is replaced stops values from being carried forward, but ends no interval.
        lasting = np.flatnonzero(~is_replaced(spec, own.key, own.sequence, own.is_delete))
        if len(lasting) < len(own):
            effective, own = effective[lasting], own.take(lasting)
            values = [column.take(pa.array(lasting)) for column in values]
        size, number = len(own), np.arange(len(own))
        has_row, begins = ~own.is_delete, own.begins
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
        intervals = Intervals(
            effective[first],
            own.begin.take(pa.array(first)),
            own.sequence.take(pa.array(after, mask=is_open)),
            [column.take(pa.array(last)) for column in values],
        )
        return intervals, Effective(effective, values, effective[begin])

    def renumber(self, positions: Ids) -> Intervals:
        """The intervals, where the changes have these positions."""
        return replace(self, start=positions[self.start])


@dataclass(frozen=True, slots=True)
class IntervalDiff:
    """The difference between two sets of intervals."""

    rows: pa.Table  # Rows of the output. The retractions of a key come first.
    revision: Ints  # of each change: revision of the interval that begins there
    inserts: int
    updates: int
    deletes: int


def diff_intervals(
    spec: ApplySpec, changes: IntervalChanges, before: Intervals, after: Intervals
) -> IntervalDiff:
    """Emit the difference between intervals. Key and begin identify an interval."""
    groups, _ = Groups.of(changes.interval)
    revision = np.full(groups.count, -1)
    np.maximum.at(revision, groups.ids, changes.revision)
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
    latest = revision.copy()
    latest[new] = emitted.after
    first = pa.array(start[emitted.row])
    since, *row = emitted.take(
        [before.since, before.until, *before.values], [after.since, after.until, *after.values]
    )
    columns = [
        *(column.take(first) for column in changes.names),
        since,
        *row,
        pa.array(emitted.revision.astype(np.int32)),
        emitted.change_type,
        pa.nulls(len(first), spec.output.field(REJECTED).type),
    ]
    rows = pa.table(columns, schema=spec.output)
    counts = emitted.inserts, emitted.updates, emitted.deletes
    return IntervalDiff(rows, latest[groups.ids], *counts)


def compact_changes(
    changes: IntervalChanges, effective: Effective, cutoff: int | None
) -> tuple[IntervalChanges, IntervalChanges]:
    """Evict the changes older than the horizon, except the last one of each key: its base.

    Changes with a clock below `cutoff` are final, with all changes before them. Returns the changes to
    store, and the deletes of the keys that are evicted.
    """
    if cutoff is None or not len(changes):
        return changes, changes.take(np.empty(0, np.int64))
    number = np.arange(len(changes))
    is_final = running_max(changes.clock, changes.begins) < cutoff
    index = np.full(len(changes), -1)
    index[effective.position] = np.arange(len(effective.position))
    base = running_max(np.where(is_final & (index >= 0), number, -1), changes.begins)
    ends = last_of_runs(changes.key)
    key = np.cumsum(changes.begins) - 1
    base = base[ends][key]  # base of the key of each change
    is_base = number == base
    # A key whose last change is a final delete is evicted.
    last = running_max(np.where(index >= 0, number, -1), changes.begins)[ends][key]
    is_evicted = (base >= 0) & (base == last) & changes.is_delete[base]
    remaining = np.flatnonzero((number >= base) & ~is_evicted)

    begin = np.where(is_base, effective.begin[index], number)
    row = np.where(is_base, len(changes) + index, number)
    pools = zip(changes.values, effective.values, strict=True)
    stored = replace(
        changes,
        begin=changes.begin.take(pa.array(begin)),
        revision=changes.revision[begin],
        is_base=is_base,
        values=[pa.concat_arrays(pair).take(pa.array(row)) for pair in pools],
    ).take(remaining)
    return stored, changes.take(np.flatnonzero(is_evicted & is_base))
