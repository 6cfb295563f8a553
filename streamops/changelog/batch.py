"""Join the stored rows with the changes of a micro-batch by key, and carry forward missing values.

A missing value is taken from the previous change of the key, back to the last delete. A late change can
therefore still supply a value to a stored row. So a stored row is stored together with the changes that
supplied its missing values: its *donors*.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from streamops.changelog import conditions
from streamops.changelog.classify import ClassifiedChanges, Conflicts
from streamops.changelog.table import KeyedTable
from streamops.kernel.aggregation import list_sizes, make_lists
from streamops.kernel.columns import combine_chunks, concat, key_codes, take
from streamops.kernel.core import State
from streamops.kernel.groups import (
    Groups,
    Ids,
    Ints,
    Mask,
    ordered_pair_codes,
    pair_codes,
    running_max,
)
from streamops.kernel.hashing import digests
from streamops.kernel.ordering import ranks
from streamops.kernel.versions import table_of

NONE = -1


@dataclass(frozen=True, slots=True)
class OrderedChanges:
    """Changes sorted by key and position."""

    key: Ids
    position: Ids  # position in the order of changes
    row: Ids  # index of the change, and of its values, before sorting
    is_delete: Mask

    @staticmethod
    def of(key: Ids, position: Ids, is_delete: Mask) -> OrderedChanges:
        """Sort the changes."""
        order = np.lexsort((position, key))
        return OrderedChanges(key[order], position[order], order, is_delete[order])

    @property
    def begins(self) -> Mask:
        """Which changes are the first of their key."""
        return first_of_runs(self.key)

    @property
    def ends(self) -> Mask:
        """Which changes are the last of their key."""
        return last_of_runs(self.key)


def first_of_runs(key: Ids) -> Mask:
    """Which of the sorted keys differ from the one before."""
    return np.append(True, key[1:] != key[:-1])[: len(key)]


def last_of_runs(key: Ids) -> Mask:
    """Which of the sorted keys differ from the next one."""
    return np.append(key[1:] != key[:-1], True)[: len(key)]


def carry_forward(changes: OrderedChanges, missing: Mask) -> Ids:
    """The change that supplies each value of each change, changes by values; ``NONE`` if there is none.

    `missing` has a row per change and a column per value. Values are not carried across a delete.
    """
    begins, number = changes.begins, np.arange(len(changes.key))
    result = np.full((len(changes.key), missing.shape[1]), NONE)
    for value in range(missing.shape[1]):
        supplies = ~missing[changes.row, value]
        result[:, value] = running_max(np.where(supplies, number, NONE), begins)
    return result


def gather_values(
    values: Sequence[pa.Array], changes: OrderedChanges, source: Ids
) -> list[pa.Array]:
    """Values of rows. `source` has the change that supplies each value."""
    result = []
    for number, column in enumerate(values):
        supplier = source[:, number]
        absent = (supplier == NONE) | changes.is_delete[supplier]
        result.append(column.take(pa.array(changes.row[supplier], mask=absent)))
    return result


@dataclass(frozen=True, slots=True)
class KeyedBatch:
    """The stored rows and the changes of the same keys.

    `rows`, `key`, `position` and `loses` have an entry per stored row, then per change, then per donor
    of a stored row. Keys are numbered: first those of the stored rows, in their order, then new ones.
    """

    spec: KeyedTable
    stored: pa.Table  # stored rows of the keys that have changes
    untouched: pa.Table  # stored rows of the other keys
    changes: ClassifiedChanges
    rows: pa.Table  # see ``sent_layout``
    key: Ids
    position: Ids  # changes with the same key and sequence, but other values, have other positions
    loses: Mask  # whether another change with the same key and sequence is greater

    @staticmethod
    def of(
        spec: KeyedTable, state: State, changes: ClassifiedChanges
    ) -> tuple[KeyedBatch, Mask, Mask]:
        """Join the stored rows and the changes by key.

        Returns also which changes are duplicates, and which have an unknown key and may be below an
        evicted tombstone.
        """
        rows, evicted = state.tables["rows"], state.tables["evicted"]
        count = len(changes)
        groups, _ = Groups.of(key_codes(join_keys(spec, rows, changes), len(rows) + count))
        changed = groups.ids[len(rows) :]
        present = np.unique(changed)  # a stored key occurs once, so that it has the lowest numbers
        touched = present[present < len(rows)]
        number = np.full(groups.count, NONE)
        number[present] = np.arange(len(present))
        is_untouched = np.ones(len(rows), np.bool_)
        is_untouched[touched] = False
        stored, untouched = take(rows, touched), rows.filter(pa.array(is_untouched))
        donors = combine_chunks(stored.column("donors"))
        owner = np.repeat(np.arange(len(stored)), list_sizes(donors))
        columns = [
            changes.sequence,
            pa.array(changes.is_log),
            pa.array(changes.is_delete),
            to_positions(changes.missing),
            *map(changes.column, spec.values),
        ]
        sent = [
            _drop_unsent(spec, stored.select(sent_layout(spec).names)),
            _drop_unsent(spec, pa.table(columns, schema=sent_layout(spec))),
            table_of(donors.flatten()),
        ]
        key = np.concatenate([np.arange(len(touched)), number[changed], owner])
        nothing = np.zeros(len(key), np.bool_)
        joined = KeyedBatch(spec, stored, untouched, changes, concat(sent), key, key, nothing)

        order = ranks(
            pa.concat_arrays([joined.sequences, combine_chunks(evicted.column("sequence"))])
        )
        sequence = order[: len(key)]
        position = positions_of(spec, sequence, joined.flags("is_log"))
        conflicts = Conflicts.of(
            pair_codes(key, position), joined.values, joined.missing, joined.flags("is_deleted")
        )
        size = len(stored) + count
        among = conflicts.first(size)
        nothing[:size] = among.loses()
        batch = replace(
            joined, position=ordered_pair_codes(position, conflicts.order), loses=nothing
        )
        maybe_evicted = np.zeros(count, np.bool_)
        if len(evicted):
            is_new = key[len(stored) : size] >= len(stored)
            is_below = sequence[len(stored) : size] <= order[len(key)]
            # Changes of one key and sequence are late together, so that they can be compared.
            clock = among.latest_clock(batch.clock)[len(stored) :]
            maybe_evicted = is_new & is_below & spec.is_beyond(clock, changes.is_log, state)
        return batch, among.is_duplicate()[len(stored) :], maybe_evicted

    def without(self, dropped: Mask, reason: str | None = None) -> KeyedBatch:
        """Drop changes. With a reason they are rejected, unless they were rejected before."""
        rest = np.ones(len(self.key), np.bool_)
        rest[len(self.stored) : len(self.stored) + len(dropped)] = ~dropped
        return replace(
            self,
            changes=self.changes.without(dropped, reason),
            rows=self.rows.filter(pa.array(rest)),
            key=self.key[rest],
            position=self.position[rest],
            loses=self.loses[rest],
        )

    def over_capacity(self) -> Mask:
        """Which changes have a new key that exceeds the limit."""
        size = len(self.stored)
        new = np.unique(self.key[self.key >= size])
        out = over_limit(self.spec, self.keys_of(new), size + len(self.untouched))
        return np.isin(self.key[size : size + len(self.changes)], new[out])

    def keys_of(self, numbers: Ids) -> list[pa.Array]:
        """The key columns of the keys with these numbers."""
        firsts = np.zeros(int(self.key.max(initial=NONE)) + 1, np.int64)
        firsts[self.key[::-1]] = np.arange(len(self.key) - 1, -1, -1)
        index = pa.array(firsts[numbers])
        keys = join_keys(self.spec, self.stored, self.changes)
        return [column.take(index) for column in keys]

    @property
    def ordered(self) -> OrderedChanges:
        """All entries, sorted by key and position."""
        return OrderedChanges.of(self.key, self.position, self.flags("is_deleted"))

    def is_donor(self, ordered: OrderedChanges) -> Mask:
        """Which of the sorted changes are donors."""
        result: Mask = ordered.row >= len(self.stored) + len(self.changes)
        return result

    @property
    def values(self) -> list[pa.Array]:
        """The values of all entries, as they were sent."""
        return [
            combine_chunks(self.rows.column(f"value.{i}")) for i in range(len(self.spec.values))
        ]

    @property
    def missing(self) -> Mask:
        """Which values are missing: a row per entry, a column per value."""
        return to_flags(combine_chunks(self.rows.column("missing")), len(self.spec.values))

    @property
    def sequences(self) -> pa.Array:
        """The sequences of all entries."""
        return combine_chunks(self.rows.column("sequence"))

    def flags(self, name: str) -> Mask:
        """The column ``is_log`` or ``is_deleted`` of all entries."""
        return np.asarray(combine_chunks(self.rows.column(name)))

    @property
    def clock(self) -> Ints:
        """The clock, on which the horizon is measured, of stored rows and changes."""
        stored = np.asarray(combine_chunks(self.stored.column("clock")))
        return np.append(stored, self.changes.clock)


def sent_layout(spec: KeyedTable) -> pa.Schema:
    """Columns of a change as it was sent. Values that are missing, and those of a delete, are null."""
    values = [(f"value.{i}", spec.input.field(name).type) for i, name in enumerate(spec.values)]
    flags = [("is_log", pa.bool_()), ("is_deleted", pa.bool_())]
    missing = ("missing", pa.list_(pa.int32()))
    return pa.schema([("sequence", spec.position), *flags, missing, *values])


def _drop_unsent(spec: KeyedTable, rows: pa.Table) -> pa.Table:
    """Set values to null that are missing or belong to a delete."""
    absent = to_flags(combine_chunks(rows.column("missing")), len(spec.values))
    absent[np.asarray(combine_chunks(rows.column("is_deleted")))] = True
    names, number = rows.column_names, np.arange(len(rows))
    values = [
        combine_chunks(rows.column(f"value.{i}")).take(pa.array(number, mask=absent[:, i]))
        for i in range(len(spec.values))
    ]
    return pa.table([*rows.columns[: len(names) - len(values)], *values], schema=rows.schema)


def positions_of(spec: KeyedTable, sequence: Ids, is_log: Mask) -> Ids:
    """Positions in the order of changes, from the ranks of their sequences."""
    log = is_log.astype(np.int64)
    if spec.snapshots == "below_log":
        return ordered_pair_codes(log, sequence)
    return ordered_pair_codes(sequence, log)


def to_flags(lists: pa.Array, values: int) -> Mask:
    """Convert lists of positions to a matrix of flags."""
    found = np.zeros((len(lists), values), np.bool_)
    numbers = np.asarray(lists.flatten()).astype(np.int64)
    found[np.repeat(np.arange(len(lists)), list_sizes(lists)), numbers] = True
    return found


def to_positions(flags: Mask) -> pa.Array:
    """Convert a matrix of flags to lists of positions."""
    _, found = np.nonzero(flags)
    return make_lists(pa.array(found.astype(np.int32)), flags.sum(axis=1, dtype=np.int64))


def over_limit(spec: KeyedTable, keys: Sequence[pa.Array], stored: int) -> Mask:
    """Which new keys exceed the limit, given the number of stored keys."""
    room = max(spec.limit - stored, 0)
    count = len(keys[0])
    out = np.zeros(count, np.bool_)
    if count <= room:
        return out
    if spec.when_full == "fail":
        raise conditions.KEYS_FULL.error(
            limit=spec.limit, got=f"{stored + count:,} keys in one shard"
        )
    # By hash, so that the choice does not depend on the order of arrival.
    out[np.argsort(digests(keys), kind="stable")[room:]] = True
    return out


def max_evicted(evicted: pa.Table) -> pa.Table:
    """The highest sequence among evicted tombstones, and the maximum of every other column."""
    columns = [combine_chunks(column) for column in evicted.columns]
    columns = [column.take(pa.array([int(ranks(column).argmax())])) for column in columns]
    return pa.table(columns, schema=evicted.schema)


def key_columns(spec: KeyedTable) -> list[str]:
    """Names of the key columns in a state."""
    return [f"key.{i}" for i in range(len(spec.by))]


def join_keys(spec: KeyedTable, rows: pa.Table, changes: ClassifiedChanges) -> list[pa.Array]:
    """The key columns of stored rows, followed by those of changes."""
    return [
        pa.concat_arrays([combine_chunks(rows.column(column)), changes.column(name)])
        for column, name in zip(key_columns(spec), spec.by, strict=True)
    ]
