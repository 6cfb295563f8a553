"""Versions of the rows of a table: which one is effective at an instant, and which can be evicted.

A version is effective from its own instant until the next one of its key, or until it ends: by its
`until`, by a deletion, or by the tolerance. The order of versions is (version time, sequence) and does
not depend on arrival. A forward search finds the next instant of the key whose last version by sequence
has a value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamops.changelog.change_types import CHANGE_TYPE, DELETE
from streamops.changelog.table import TOMBSTONE
from streamops.kernel.columns import combine_chunks, concat, key_codes, take, timestamp_micros
from streamops.kernel.groups import Groups, Ids, Ints, Mask, ordered_pair_codes
from streamops.kernel.ordering import ranks
from streamops.kernel.time import AFTER_ALL, BEFORE_ALL, Instants

Direction = Literal["backward", "forward", "nearest"]


class VersionedTable(Protocol):
    """The columns of versions, and which of them an event can find."""

    @property
    def right_by(self) -> tuple[str, ...]:
        """Key columns."""

    @property
    def version(self) -> str:
        """Column with the instant from which on a version is effective."""

    @property
    def sequence(self) -> str:
        """Column that orders versions of one instant."""

    @property
    def until(self) -> str | None:
        """Column with the instant at which a version ends."""

    @property
    def deleted(self) -> str | None:
        """Boolean column: whether the version is a delete."""

    @property
    def changes(self) -> bool:
        """Whether the versions have a change type."""

    @property
    def tolerance(self) -> int | None:
        """Greatest distance between an event and its version, inclusive."""

    @property
    def direction(self) -> Direction:
        """Whether the version before an event, after it, or the closer of the two is searched."""

    @property
    def allow_exact(self) -> bool:
        """Whether a version at exactly the time of the event is a candidate."""


@dataclass(frozen=True, slots=True)
class KeyedRows:
    """Rows with the number of their key and their time."""

    table: pa.Table
    keys: Ids
    times: Instants

    def take(self, rows: Ids) -> KeyedRows:
        """The rows at these positions."""
        return KeyedRows(take(self.table, rows), self.keys[rows], self.times[rows])


@dataclass(frozen=True, slots=True)
class MergedVersions:
    """Stored versions merged with those that arrived."""

    stored: KeyedRows
    versions: Versions
    position: Ids  # of every stored version, among the merged ones
    is_replaced: (
        Mask  # which merged versions have other values than the stored one at their position
    )
    conflicting: KeyedRows  # stored and new rows that are in conflict with an effective version
    is_rejected: Mask  # which of the rows that arrived are among them

    def before(self, spec: VersionedTable) -> tuple[Versions, Ids]:
        """The stored versions in order, and the position of each among the merged ones."""
        order = np.argsort(self.position)
        stored = self.stored.take(order)
        return Versions.in_order(spec, stored), self.position[order]


@dataclass(frozen=True, slots=True)
class Versions:
    """Versions in the order of (key, version time, sequence), each once.

    A version is effective in ``[times, ends)``, unless another one follows.
    """

    table: pa.Table
    keys: Ids
    times: Instants
    ends: Instants

    @staticmethod
    def in_order(spec: VersionedTable, rows: KeyedRows) -> Versions:
        """Rows that are in order already."""
        ends = np.full(len(rows.times), AFTER_ALL)
        if spec.until is not None:
            until, is_closed = timestamp_micros(rows.table.column(spec.until))
            ends[is_closed] = until[is_closed]
        if spec.tolerance is not None:
            ends = np.minimum(ends, rows.times + spec.tolerance + 1)
        ends[is_deleted(spec, rows.table)] = BEFORE_ALL
        return Versions(rows.table, rows.keys, rows.times, ends)

    @staticmethod
    def merge(spec: VersionedTable, stored: KeyedRows, arrived: KeyedRows) -> MergedVersions:
        """Merge stored versions with new ones: one per (key, version time, sequence)."""
        both = KeyedRows(
            concat([stored.table, arrived.table]),
            np.concatenate([stored.keys, arrived.keys]),
            np.concatenate([stored.times, arrived.times]),
        )
        sequence = ranks(combine_chunks(both.table.column(spec.sequence)))
        order = np.lexsort((sequence, both.times, both.keys))
        begins = np.zeros(len(order), np.bool_)
        begins[:1] = True
        for codes in (both.keys, both.times, sequence):
            begins[1:] |= codes[order[1:]] != codes[order[:-1]]
        ids = np.empty(len(order), np.int64)
        ids[order] = np.cumsum(begins) - 1

        size, chosen, conflicting = len(stored.keys), order[begins], order[:0]
        is_replaced = np.zeros(len(chosen), np.bool_)
        if len(chosen) < len(order):
            chosen, conflicting = _resolve_conflicts(spec, both.table, Groups(ids, len(chosen)))
            is_replaced[ids[conflicting[conflicting < size]]] = True
        is_ordered = len(chosen) == len(order) and bool((chosen[1:] > chosen[:-1]).all())
        versions = Versions.in_order(spec, both if is_ordered else both.take(chosen))
        is_rejected = np.zeros(len(arrived.keys), np.bool_)
        is_rejected[conflicting[conflicting >= size] - size] = True
        return MergedVersions(
            stored, versions, ids[:size], is_replaced, both.take(conflicting), is_rejected
        )

    @staticmethod
    def read(spec: VersionedTable, stored: KeyedRows) -> Versions:
        """The versions of a state."""
        nothing = KeyedRows(stored.table.slice(0, 0), stored.keys[:0], stored.times[:0])
        return Versions.merge(spec, stored, nothing).versions

    def __len__(self) -> int:
        return len(self.times)

    def find(self, spec: VersionedTable, keys: Ids, times: Instants) -> Ids:
        """The version to join with each (key, time); -1 if there is none."""
        none = np.full(len(keys), -1, np.int64)
        if not len(self) or not len(keys):
            return none
        codes = ordered_pair_codes(
            np.concatenate([self.keys, keys]), np.concatenate([self.times, times])
        )
        index, queries = np.split(codes, [len(self)])
        older = newer = none
        if spec.direction != "forward":
            # The newest version before the time, unless it has ended: it hides all older ones.
            older = np.searchsorted(index, queries, "right" if spec.allow_exact else "left") - 1
            found = (older >= 0) & (self.keys[older] == keys) & (times < self.ends[older])
            older = np.where(found, older, -1)
        if spec.direction != "backward":
            newer = self._find_next(spec, index, queries, keys, times)
        # At equal distance the older version is joined.
        is_nearer = times - self.times[older] > self.times[newer] - times
        return np.where((newer >= 0) & ((older < 0) | is_nearer), newer, older)

    def _find_next(
        self, spec: VersionedTable, index: Ids, queries: Ids, keys: Ids, times: Instants
    ) -> Ids:
        """The first version with a value after each time; -1 if there is none."""
        is_last = np.ones(len(self), np.bool_)  # by sequence, of all versions at its instant
        is_last[:-1] = index[1:] != index[:-1]
        # Only a deletion ends at or before its start; forward, the tolerance is applied below.
        candidates = np.flatnonzero(is_last & (self.ends > self.times))
        if not len(candidates):
            return np.full(len(keys), -1, np.int64)
        side: Literal["left", "right"] = "left" if spec.allow_exact else "right"
        at = np.searchsorted(index[candidates], queries, side)
        found = candidates[np.minimum(at, len(candidates) - 1)]
        matches = (at < len(candidates)) & (self.keys[found] == keys)
        if spec.tolerance is not None:
            matches &= self.times[found] - times <= spec.tolerance
        return np.where(matches, found, -1)

    def is_needed(self, spec: VersionedTable, horizon: int) -> Mask:
        """Which versions can be joined with a fact later than the horizon.

        A backward search needs the newest version at or below the horizon. This also holds for a
        delete, as without it an older version would be found.
        """
        is_below = self.times <= horizon
        if spec.direction == "forward":
            return ~is_below
        is_base = is_below.copy()
        is_base[:-1] &= ~(is_below[1:] & (self.keys[1:] == self.keys[:-1]))
        needed = ~is_below | is_base
        if spec.tolerance is not None:
            needed &= self.times > horizon - spec.tolerance
        return needed

    def evicted_at(self, spec: VersionedTable) -> Instants:
        """The horizons at which a version is no longer needed."""
        if spec.direction == "forward":
            return self.times
        has_next = self.keys[1:] == self.keys[:-1]
        horizons: Instants = self.times[1:][has_next]
        if spec.tolerance is None:
            return horizons
        return np.append(horizons, self.times + spec.tolerance)


def is_deleted(spec: VersionedTable, table: pa.Table) -> Mask:
    """Which versions are deletes."""
    flag = np.zeros(len(table), np.bool_)
    if spec.deleted is not None:
        flag |= np.asarray(combine_chunks(table.column(spec.deleted)).fill_null(False))
    if spec.changes:
        types = combine_chunks(table.column(CHANGE_TYPE))
        flag |= np.asarray(pc.equal(types, DELETE).fill_null(False))
    return flag


def _resolve_conflicts(spec: VersionedTable, table: pa.Table, groups: Groups) -> tuple[Ids, Ids]:
    """The effective row of each group, and the rows in conflict with it.

    Of several contents the greatest is effective, compared by the columns in the order of their names:
    neither arrival nor the order of columns matters. A delete is below all others; in a change stream
    it is no conflict, as an update deletes the row that it replaces.
    """
    members = np.flatnonzero(groups.sizes()[groups.ids] > 1)
    slots, firsts = Groups.of(groups.ids[members])
    rows = take(table, members)
    deleted = is_deleted(spec, rows)
    others = {*spec.right_by, spec.version, spec.sequence, spec.deleted, CHANGE_TYPE, TOMBSTONE}
    content = [combine_chunks(rows.column(n)) for n in rows.column_names if n not in others]
    # The other columns decide which of several rows with the same content is stored.
    rest = [combine_chunks(rows.column(name)) for name in rows.column_names if name in others]
    codes = Groups.of(key_codes(content, len(rows)))[0].ids
    # Most rows are duplicates, whose values need not be ranked.
    differs = np.bincount(slots.ids, codes != codes[firsts][slots.ids], slots.count) > 0
    unequal = np.flatnonzero(differs[slots.ids])
    order = [deleted.astype(np.int64), *(_descending(column, unequal) for column in content)]
    winners = slots.first_by(*order, *(~ranks(column) for column in rest))
    codes[deleted] = -1
    conflicts = codes != codes[winners][slots.ids]
    if spec.changes:
        conflicts &= ~deleted

    chosen = np.empty(groups.count, np.int64)
    chosen[groups.ids] = np.arange(len(groups.ids))
    chosen[groups.ids[members[firsts]]] = members[winners]
    return chosen, members[conflicts]


def _descending(column: pa.Array, rows: Ids) -> Ints:
    """Ranks of the values in these rows, the greatest first; 0 in all other rows."""
    order = np.zeros(len(column), np.int64)
    if len(rows):
        order[rows] = ~ranks(column.take(pa.array(rows)))
    return order
