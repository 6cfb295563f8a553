"""Rows of one table before and after its changes, with their weights.

Without a sequence a table is a multiset: a change adds or removes its row, equal rows are one *entry*
with a weight, and the order of changes in a micro-batch does not matter. With a primary key, a row is
identified by the key and the join columns, and its weight is at most 1. With a sequence, the change of
the highest sequence determines the row: older changes and duplicates have no effect. Of conflicting
rows the greatest is effective.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamops.changelog.change_types import CHANGE_TYPE, change_weights
from streamops.changelog.classify import Conflicts
from streamops.joins.core.tables_spec import REASONS, TableSide
from streamops.kernel.columns import combine_chunks, concat, key_codes, take
from streamops.kernel.groups import Groups, Ids, Ints, Mask, pair_codes
from streamops.kernel.hashing import xxhash64
from streamops.kernel.ordering import ranks

__all__ = ["Changes", "Entries", "advanced", "read", "valid", "within"]

Reasons = npt.NDArray[np.int8]

BAD_CHANGE, NULL_KEY, NULL_SEQUENCE, NOT_THERE, CONTRADICTION = range(1, len(REASONS) + 1)


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes of one side that can be read and may matter.

    Parameters
    ----------
    rows : Table
        The rows that they are about, with the names of the state.
    adds : array of bool
        Whether a row is added, or taken away.
    place : array of int
        Where the change stands in the pack.
    refused : array of int8
        For each change of the pack, why it is rejected; 0: it is not.
    """

    rows: pa.Table
    adds: Mask
    position: Ids
    refused: Reasons


@dataclass(frozen=True, slots=True)
class Entries:
    """Entries of the keys that something came for.

    Parameters
    ----------
    rows : Table
        The row of each.
    before, after : array of int64
        How often it is in the table.
    stays : array of bool
        Whether it is kept in state.
    refused : array of int8
        As in ``Changes``, with what was found out meanwhile.
    outdated : int
        Changes that are not newer than what is kept.
    of : array of int
        For each entry, its position among the kept rows and those of the changes, one below the
        other.
    """

    rows: pa.Table
    before: Ints
    after: Ints
    stays: Mask
    refused: Reasons
    outdated: int
    of: Ids


def read(side: TableSide, pack: pa.Table) -> Changes:
    """Sort out what cannot be read, and what can never be in a result."""
    weight = change_weights(pack.column(CHANGE_TYPE))
    refused = np.where(weight == 0, BAD_CHANGE, 0).astype(np.int8)
    if side.sequence is not None:
        absent = ~valid(pack, side.key)
        refused[absent & (refused == 0)] = NULL_KEY
        unordered = ~valid(pack, (side.sequence,))
        refused[unordered & (refused == 0)] = NULL_SEQUENCE
    joins = valid(pack, side.by)
    position = np.flatnonzero((refused == 0) & (joins | side.outer))
    rows = pack.select(side.names).rename_columns(side.entries.names[:-1])
    if len(position) < len(pack):
        rows = take(rows, position)
    return Changes(rows, weight[position] > 0, position, refused)


def valid(rows: pa.Table, names: tuple[str, ...]) -> Mask:
    """Rows without a null in these columns."""
    full = np.ones(len(rows), np.bool_)
    for name in names:
        column = rows.column(name)
        if column.null_count:
            full &= np.asarray(column.is_valid())
    return full


def advanced(side: TableSide, stored: pa.Table, changes: Changes, join: Ids) -> Entries:
    """What the changes make of the entries that are kept.

    ``join`` has a code of what is joined on, for the kept rows and then for those of the changes.
    """
    rows = concat([stored.drop_columns(["weight"]), changes.rows])
    weight = np.asarray(combine_chunks(stored.column("weight")))
    if side.sequence is None:
        return _multiset(side, rows, weight, changes, join)
    return _versions(side, rows, weight, changes, join)


def _multiset(
    side: TableSide, rows: pa.Table, weight: Ints, changes: Changes, join: Ids
) -> Entries:
    groups, firsts = Groups.of(key_codes(rows.columns, len(rows)))
    # A stored row occurs once and is first: its group is its position.
    arrived = Groups(groups.ids[len(weight) :], groups.count)
    before = np.zeros(groups.count, np.int64)
    before[: len(weight)] = weight
    after = before + arrived.sum_ints(np.where(changes.adds, 1, -1))
    refused = changes.refused
    if (short := np.maximum(-after, 0)).any():
        refused = refused.copy()
        refused[changes.position[_last(arrived, ~changes.adds, short)]] = NOT_THERE
    after = np.maximum(after, 0)
    absorbed = 0
    if side.key:
        loses = _losing(side, rows, firsts, join, after)
        # What comes again is left out; of what contradicts another row, all that came is rejected.
        over = np.maximum(after - np.where(loses, before, 1), 0)
        if (over * loses).any():
            refused = refused.copy()
            refused[changes.position[_last(arrived, changes.adds, over * loses)]] = CONTRADICTION
        absorbed = int(np.sum(over[~loses]))
        after = np.where(loses, 0, np.minimum(after, 1))
    return Entries(take(rows, firsts), before, after, after > 0, refused, absorbed, firsts)


def _last(groups: Groups, which: Mask, count: Ints) -> Ids:
    """Of these rows the last so many of each group: which of equal ones, that does not matter."""
    some = np.flatnonzero(which)
    order = some[np.argsort(groups.ids[some], kind="stable")]
    ids = groups.ids[order]
    ends = np.searchsorted(ids, ids, "right")
    last: Ids = order[ends - np.arange(len(ids)) <= count[ids]]
    return last


def _losing(side: TableSide, rows: pa.Table, firsts: Ids, join: Ids, weight: Ints) -> Mask:
    """Entries that another entry of the same key is above, of those that are there."""
    there = np.flatnonzero(weight > 0)
    which = firsts[there]
    key = [
        combine_chunks(rows.column(side.names.index(name))).take(pa.array(which))
        for name in side.key
    ]
    loses = np.zeros(len(firsts), np.bool_)
    loses[there] = _beaten(rows, which, pair_codes(join[which], key_codes(key, len(which))))
    return loses


def _beaten(rows: pa.Table, which: Ids, position: Ids) -> Mask:
    """Of these rows, those that another one at the same place contradicts and is above."""
    slots, _ = Groups.of(position)
    beaten = np.zeros(len(which), np.bool_)
    # Most are alone at their place, and their values need not be looked at.
    several = np.flatnonzero((slots.sizes() > 1)[slots.ids])
    if len(several):
        columns = [combine_chunks(column) for column in take(rows, which[several]).columns]
        # Rows have all their values, and none is a delete.
        lacks = np.zeros((len(several), len(columns)), np.bool_)
        removed = np.zeros(len(several), np.bool_)
        beaten[several] = Conflicts.of(slots.ids[several], columns, lacks, removed).loses()
    return beaten


def _versions(
    side: TableSide, rows: pa.Table, weight: Ints, changes: Changes, join: Ids
) -> Entries:
    assert side.sequence is not None
    stored, names = len(weight), side.names
    key = [rows.column(names.index(name)) for name in side.key]
    groups, _ = Groups.of(pair_codes(join, key_codes(key, len(rows))))
    adds = np.concatenate([weight > 0, changes.adds])
    # What is taken away has the sequence of what replaces it, and comes before that.
    order = 2 * _dense(combine_chunks(rows.column(names.index(side.sequence)))) + adds
    good = _agreeing(rows, groups, order, adds)
    refused = changes.refused.copy()
    refused[changes.position[~good[stored:]]] = CONTRADICTION

    position = np.flatnonzero(good)
    newest = groups.where(good).first_by(~order[position])
    newest = position[newest[newest >= 0]]  # equal ones: the stored one is first
    of = np.concatenate([np.arange(stored), newest[newest >= stored]])
    is_newest = np.zeros(len(rows), np.bool_)
    is_newest[newest] = True
    before = np.zeros(len(of), np.int64)
    before[:stored] = weight
    after = (is_newest & adds)[of].astype(np.int64)
    # Not newer than what is kept; what something newer of its own micro-batch replaces is not late.
    known = np.full(groups.count, -1, np.int64)
    known[groups.ids[:stored]] = order[:stored] - ~good[:stored]
    outdated = int(np.count_nonzero(good[stored:] & (order <= known[groups.ids])[stored:]))
    return Entries(take(rows, of), before, after, is_newest[of], refused, outdated, of)


def _dense(column: pa.Array) -> Ints:
    return np.unique(ranks(column), return_inverse=True)[1]


def _agreeing(rows: pa.Table, groups: Groups, order: Ints, adds: Mask) -> Mask:
    """Rows that no other row of the same identity and sequence contradicts and is above."""
    good = np.ones(len(rows), np.bool_)
    added = np.flatnonzero(adds)
    good[added] = ~_beaten(rows, added, pair_codes(groups.ids, order)[added])
    return good


def within(side: TableSide, entries: pa.Table, limit: int) -> pa.Table:
    """The entries, and of those that are gone no more than so many, of the highest sequences."""
    weight = np.asarray(combine_chunks(entries.column("weight")))
    removed = np.flatnonzero(weight == 0)
    if len(removed) <= limit:
        return entries
    assert side.sequence is not None
    names = side.names
    among = take(entries, removed)
    newest = -_dense(combine_chunks(among.column(names.index(side.sequence))))
    # Of one transaction: by their hash, so that it is not the order of arrival that says which.
    columns = [among.column(names.index(name)) for name in dict.fromkeys((*side.key, *side.by))]
    order = np.lexsort([xxhash64(columns), newest])
    stays = np.ones(len(entries), np.bool_)
    stays[removed[order[limit:]]] = False
    return entries.filter(pa.array(stays))
