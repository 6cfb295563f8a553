"""Stored rows and the changes of a micro-batch, joined by key; carry forward their missing values.

A missing value is that of the change before it, back to the last delete. A late change can therefore
still supply a value to a row that is stored already. So a stored row keeps the changes that supplied
its missing values: its *donors*.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from streamops.changelog.classify import ClassifiedChanges, Conflicts
from streamops.changelog.table import KeyedTable
from streamops.kernel.columns import combine_chunks, key_codes, take
from streamops.kernel.core import State
from streamops.kernel.errors import CapacityError
from streamops.kernel.group_states import list_sizes, make_lists
from streamops.kernel.groups import (
    Groups,
    Ids,
    Ints,
    Mask,
    ordered_pair_codes,
    pair_codes,
    running_max,
)
from streamops.kernel.hashing import xxhash64
from streamops.kernel.ordering import ranks

__all__ = [
    "NONE",
    "KeyedBatch",
    "OrderedChanges",
    "carry_forward",
    "first_of_runs",
    "gather_values",
    "key_columns",
    "last_of_runs",
    "max_evicted",
    "over_limit",
    "positions_of",
    "to_flags",
    "to_positions",
]

NONE = -1


@dataclass(frozen=True, slots=True)
class OrderedChanges:
    """Changes sorted by key and position."""

    # key, position: key of each change, and its position in the order of changes
    key: Ids
    position: Ids
    row: Ids  # position of the change, and of its values, before it was sorted
    is_delete: Mask  # whether the change is a delete

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

    `missing` tells, rows by values, which values are missing. A delete supplies nothing, and values are
    not carried across it.
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
    """Values of rows, given for each value the change that supplies it."""
    result = []
    for number, column in enumerate(values):
        supplier = source[:, number]
        absent = (supplier == NONE) | changes.is_delete[supplier]
        result.append(column.take(pa.array(changes.row[supplier], mask=absent)))
    return result


@dataclass(frozen=True, slots=True)
class KeyedBatch:
    """The stored rows and the changes of the same keys.

    An array over all has the stored rows first, then the changes, then the donors of the stored
    rows. Keys are numbered: those of stored rows in the order of these, then the others.
    """

    spec: KeyedTable
    # stored, untouched: stored rows of the keys that have changes, and of the other keys
    stored: pa.Table
    untouched: pa.Table
    changes: ClassifiedChanges
    donors: pa.Table  # ``sequence``, ``is_log``, ``is_deleted`` and values of each donor
    # key, position: Of all. Different contents of one key and sequence have different positions.
    key: Ids
    position: Ids
    missing: Mask  # all by values: which values are missing
    loses: Mask  # which of all are in conflict with a greater change

    @staticmethod
    def of(
        spec: KeyedTable, state: State, changes: ClassifiedChanges
    ) -> tuple[KeyedBatch, Mask, Mask]:
        """Join them.

        Returns
        -------
        batch : KeyedBatch
        is_duplicate : array of bool
            Changes that are known already.
        maybe_evicted : array of bool
            Changes of unknown keys that may be below an evicted tombstone.
        """
        rows, evicted = state.tables["rows"], state.tables["evicted"]
        names, count = key_columns(spec), len(changes)
        keys = [
            pa.concat_arrays([combine_chunks(rows.column(column)), changes.column(name)])
            for column, name in zip(names, spec.by, strict=True)
        ]
        groups, _ = Groups.of(key_codes(keys, len(rows) + count))
        changed = groups.ids[len(rows) :]
        present = np.unique(changed)  # a stored key occurs once, so that it has the lowest numbers
        touched = present[present < len(rows)]
        number = np.full(groups.count, NONE)
        number[present] = np.arange(len(present))
        is_untouched = np.ones(len(rows), np.bool_)
        is_untouched[touched] = False
        stored = take(rows, touched)
        donors, owner, donors_missing = _donors(spec, stored)
        missing = [
            to_flags(combine_chunks(stored.column("missing")), len(spec.values)),
            changes.missing,
            donors_missing,
        ]
        nothing = np.zeros(len(stored) + count + len(owner), np.bool_)
        key = np.concatenate([np.arange(len(touched)), number[changed], owner])
        untouched = rows.filter(pa.array(is_untouched))
        joined = KeyedBatch(
            spec, stored, untouched, changes, donors, key, key, np.concatenate(missing), nothing
        )

        order = ranks(
            pa.concat_arrays([joined.sequences, combine_chunks(evicted.column("sequence"))])
        )
        sequence = order[: len(key)]
        position = positions_of(spec, sequence, np.asarray(joined.is_log))
        conflicts = Conflicts.of(
            pair_codes(key, position), joined.values, joined.missing, joined.is_delete
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
        """The other changes. With a reason, those dropped are rejected, unless they were before."""
        rest = np.ones(len(self.key), np.bool_)
        rest[len(self.stored) : len(self.stored) + len(dropped)] = ~dropped
        return replace(
            self,
            changes=self.changes.without(dropped, reason),
            key=self.key[rest],
            position=self.position[rest],
            missing=self.missing[rest],
            loses=self.loses[rest],
        )

    def over_capacity(self) -> Mask:
        """Changes of keys for which there is no room."""
        size = len(self.stored)
        new = np.unique(self.key[self.key >= size])
        out = over_limit(self.spec, self.keys_of(new), size + len(self.untouched))
        return np.isin(self.key[size : size + len(self.changes)], new[out])

    def keys_of(self, numbers: Ids) -> list[pa.Array]:
        """Key columns of the keys with these numbers."""
        firsts = np.zeros(int(self.key.max(initial=NONE)) + 1, np.int64)
        firsts[self.key[::-1]] = np.arange(len(self.key) - 1, -1, -1)
        index = pa.array(firsts[numbers])
        keys = zip(key_columns(self.spec), self.spec.by, strict=True)
        return [
            pa.concat_arrays(
                [combine_chunks(self.stored.column(column)), self.changes.column(name)]
            ).take(index)
            for column, name in keys
        ]

    @property
    def ordered(self) -> OrderedChanges:
        """All, sorted by key and position."""
        return OrderedChanges.of(self.key, self.position, self.is_delete)

    def is_donor(self, ordered: OrderedChanges) -> Mask:
        """Which of the sorted changes are donors."""
        result: Mask = ordered.row >= len(self.stored) + len(self.changes)
        return result

    @property
    def values(self) -> list[pa.Array]:
        """Values of all."""
        return [
            self._all(f"value.{i}", self.changes.column(name))
            for i, name in enumerate(self.spec.values)
        ]

    @property
    def is_delete(self) -> Mask:
        """Which of all are deletes."""
        return np.asarray(self._all("is_deleted", pa.array(self.changes.is_delete)))

    @property
    def sequences(self) -> pa.Array:
        """Sequences of all."""
        return self._all("sequence", self.changes.sequence)

    @property
    def is_log(self) -> pa.Array:
        """Which of all come from the log."""
        return self._all("is_log", pa.array(self.changes.is_log))

    @property
    def clock(self) -> Ints:
        """Of stored rows and changes: the measure of the horizon."""
        return np.append(
            np.asarray(combine_chunks(self.stored.column("clock"))), self.changes.clock
        )

    def _all(self, name: str, changes: pa.Array) -> pa.Array:
        stored, donors = self.stored.column(name), self.donors.column(name)
        return pa.concat_arrays([combine_chunks(stored), changes, combine_chunks(donors)])


def positions_of(spec: KeyedTable, sequence: Ids, is_log: Mask) -> Ids:
    """Codes of the order of changes, from ranks of their sequences."""
    log = is_log.astype(np.int64)
    if spec.snapshots == "below_log":
        return ordered_pair_codes(log, sequence)
    return ordered_pair_codes(sequence, log)


def to_flags(lists: pa.Array, values: int) -> Mask:
    """Flags, from lists of positions."""
    found = np.zeros((len(lists), values), np.bool_)
    numbers = np.asarray(lists.flatten()).astype(np.int64)
    found[np.repeat(np.arange(len(lists)), list_sizes(lists)), numbers] = True
    return found


def to_positions(flags: Mask) -> pa.Array:
    """Lists of positions, from flags."""
    _, found = np.nonzero(flags)
    return make_lists(pa.array(found.astype(np.int32)), flags.sum(axis=1, dtype=np.int64))


def over_limit(spec: KeyedTable, keys: Sequence[pa.Array], stored: int) -> Mask:
    """Which of these new keys exceed the limit, where so many keys are stored."""
    room = max(spec.limit - stored, 0)
    count = len(keys[0])
    out = np.zeros(count, np.bool_)
    if count <= room:
        return out
    if spec.when_full == "fail":
        raise CapacityError(
            "KEYS_FULL",
            "the operator has more keys than max_keys allows",
            where=spec.where,
            got=f"{stored + count:,} keys in one shard",
            expected=f"at most {spec.limit:,} keys per shard: max_keys divided by shards",
            fix="raise max_keys, which a checkpoint survives; or have changes of further keys "
            "rejected: when_full='reject'",
        )
    # By hash, so that the choice does not depend on the order of arrival.
    out[np.argsort(xxhash64(keys), kind="stable")[room:]] = True
    return out


def max_evicted(evicted: pa.Table) -> pa.Table:
    """The highest sequence among evicted tombstones, and the maximum of every other column."""
    columns = [combine_chunks(column) for column in evicted.columns]
    columns = [column.take(pa.array([int(ranks(column).argmax())])) for column in columns]
    return pa.table(columns, schema=evicted.schema)


def key_columns(spec: KeyedTable) -> list[str]:
    """Names of the key columns in a state."""
    return [f"key.{i}" for i in range(len(spec.by))]


def _donors(spec: KeyedTable, stored: pa.Table) -> tuple[pa.Table, Ids, Mask]:
    """The donors of the stored rows, the row of each, and which of their values are missing."""
    lists = combine_chunks(stored.column("donors"))
    owner = np.repeat(np.arange(len(stored)), list_sizes(lists))
    donors = pa.Table.from_struct_array(lists.flatten())
    return donors, owner, to_flags(combine_chunks(donors.column("missing")), len(spec.values))
