"""Rows of one table before and after its changes, with their weights.

Without a sequence a table is a multiset: a change adds or removes its row, equal rows are stored once
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
from streamops.kernel.columns import combine_chunks, concat, is_complete, key_codes, take
from streamops.kernel.groups import Groups, Ids, Ints, Mask, pair_codes
from streamops.kernel.hashing import xxhash64
from streamops.kernel.ordering import ranks

Reasons = npt.NDArray[np.int8]

BAD_CHANGE, NULL_KEY, NULL_SEQUENCE, NOT_THERE, CONTRADICTION = range(1, len(REASONS) + 1)


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes of one side that are valid and can affect a result."""

    rows: pa.Table  # the rows, with the column names of the state
    adds: Mask  # whether each is added, or removed
    position: Ids  # of the change in the micro-batch
    reasons: Reasons  # of every change in the micro-batch: why it is rejected, or 0


@dataclass(frozen=True, slots=True)
class TableRows:
    """The rows of the join keys that have changes."""

    rows: pa.Table
    before: Ints  # weight before and after the changes
    after: Ints
    is_stored: Mask  # whether each is in the new state
    reasons: Reasons  # as in ``Changes``, with rejections against the state
    outdated: int  # changes that are not newer than the stored row
    source: Ids  # position of each among the stored rows, then those of the changes


def read_changes(side: TableSide, rows: pa.Table) -> Changes:
    """Reject invalid changes, and leave out those that can never affect a result."""
    weight = change_weights(rows.column(CHANGE_TYPE))
    reasons = np.where(weight == 0, BAD_CHANGE, 0).astype(np.int8)
    if side.sequence is not None:
        reasons[~is_complete(rows, side.key) & (reasons == 0)] = NULL_KEY
        reasons[~is_complete(rows, (side.sequence,)) & (reasons == 0)] = NULL_SEQUENCE
    position = np.flatnonzero((reasons == 0) & (is_complete(rows, side.by) | side.outer))
    changed = rows.select(side.names).rename_columns(side.stored.names[:-1])
    if len(position) < len(rows):
        changed = take(changed, position)
    return Changes(changed, weight[position] > 0, position, reasons)


def apply_changes(side: TableSide, stored: pa.Table, changes: Changes, join: Ids) -> TableRows:
    """Apply changes to stored rows. ``join`` has the number of the join key of all of them."""
    rows = concat([stored.drop_columns(["weight"]), changes.rows])
    weight = np.asarray(combine_chunks(stored.column("weight")))
    if side.sequence is None:
        return _apply_to_multiset(side, rows, weight, changes, join)
    return _apply_by_sequence(side, rows, weight, changes, join)


def _apply_to_multiset(
    side: TableSide, rows: pa.Table, weight: Ints, changes: Changes, join: Ids
) -> TableRows:
    groups, firsts = Groups.of(key_codes(rows.columns, len(rows)))
    # A stored row occurs once and is first: its group is its position.
    arrived = Groups(groups.ids[len(weight) :], groups.count)
    before = np.zeros(groups.count, np.int64)
    before[: len(weight)] = weight
    after = before + arrived.sum_ints(np.where(changes.adds, 1, -1))
    reasons = changes.reasons
    if (short := np.maximum(-after, 0)).any():
        reasons = reasons.copy()
        reasons[changes.position[_last_rows(arrived, ~changes.adds, short)]] = NOT_THERE
    after = np.maximum(after, 0)
    duplicates = 0
    if side.key:
        loses = _loses_conflict(side, rows, firsts, join, after)
        # A duplicate has no effect; all changes that add a conflicting row are rejected.
        over = np.maximum(after - np.where(loses, before, 1), 0)
        if (over * loses).any():
            reasons = reasons.copy()
            reasons[changes.position[_last_rows(arrived, changes.adds, over * loses)]] = (
                CONTRADICTION
            )
        duplicates = int(np.sum(over[~loses]))
        after = np.where(loses, 0, np.minimum(after, 1))
    return TableRows(take(rows, firsts), before, after, after > 0, reasons, duplicates, firsts)


def _last_rows(groups: Groups, which: Mask, count: Ints) -> Ids:
    """The last rows of each group, as many as ``count`` has; which of equal rows does not matter."""
    some = np.flatnonzero(which)
    order = some[np.argsort(groups.ids[some], kind="stable")]
    ids = groups.ids[order]
    ends = np.searchsorted(ids, ids, "right")
    last: Ids = order[ends - np.arange(len(ids)) <= count[ids]]
    return last


def _loses_conflict(side: TableSide, rows: pa.Table, firsts: Ids, join: Ids, weight: Ints) -> Mask:
    """Which rows are not effective, as another row of the same key is greater."""
    present = np.flatnonzero(weight > 0)
    which = firsts[present]
    key = [
        combine_chunks(rows.column(side.names.index(name))).take(pa.array(which))
        for name in side.key
    ]
    loses = np.zeros(len(firsts), np.bool_)
    loses[present] = _loses(rows, which, pair_codes(join[which], key_codes(key, len(which))))
    return loses


def _loses(rows: pa.Table, which: Ids, position: Ids) -> Mask:
    """Which of these rows have other values than a greater row at the same position."""
    slots, _ = Groups.of(position)
    loses = np.zeros(len(which), np.bool_)
    # Most rows are alone at their position, and their values need not be compared.
    several = np.flatnonzero((slots.sizes() > 1)[slots.ids])
    if len(several):
        columns = [combine_chunks(column) for column in take(rows, which[several]).columns]
        # Rows have all their values, and none is a delete.
        missing = np.zeros((len(several), len(columns)), np.bool_)
        is_delete = np.zeros(len(several), np.bool_)
        loses[several] = Conflicts.of(slots.ids[several], columns, missing, is_delete).loses()
    return loses


def _apply_by_sequence(
    side: TableSide, rows: pa.Table, weight: Ints, changes: Changes, join: Ids
) -> TableRows:
    assert side.sequence is not None
    stored, names = len(weight), side.names
    key = [rows.column(names.index(name)) for name in side.key]
    groups, _ = Groups.of(pair_codes(join, key_codes(key, len(rows))))
    adds = np.concatenate([weight > 0, changes.adds])
    # A preimage has the sequence of its postimage, and comes before it.
    order = 2 * _dense_ranks(rows.column(names.index(side.sequence))) + adds
    added = np.flatnonzero(adds)
    is_valid = np.ones(len(rows), np.bool_)
    is_valid[added] = ~_loses(rows, added, pair_codes(groups.ids, order)[added])
    reasons = changes.reasons.copy()
    reasons[changes.position[~is_valid[stored:]]] = CONTRADICTION

    position = np.flatnonzero(is_valid)
    newest = groups.where(is_valid).first_by(~order[position])
    newest = position[newest[newest >= 0]]  # of equal rows the stored one is first
    source = np.concatenate([np.arange(stored), newest[newest >= stored]])
    is_newest = np.zeros(len(rows), np.bool_)
    is_newest[newest] = True
    before = np.zeros(len(source), np.int64)
    before[:stored] = weight
    after = (is_newest & adds)[source].astype(np.int64)
    # A change is outdated if it is not newer than the stored row; one that is replaced within its
    # own micro-batch is not.
    known = np.full(groups.count, -1, np.int64)
    known[groups.ids[:stored]] = order[:stored] - ~is_valid[:stored]
    is_outdated = is_valid[stored:] & (order <= known[groups.ids])[stored:]
    outdated = int(np.count_nonzero(is_outdated))
    return TableRows(
        take(rows, source), before, after, is_newest[source], reasons, outdated, source
    )


def _dense_ranks(column: pa.ChunkedArray) -> Ints:
    return np.unique(ranks(combine_chunks(column)), return_inverse=True)[1]


def forget_deleted(side: TableSide, rows: pa.Table, limit: int) -> pa.Table:
    """The rows without deleted ones beyond the limit; those of the highest sequences stay."""
    weight = np.asarray(combine_chunks(rows.column("weight")))
    deleted = np.flatnonzero(weight == 0)
    if len(deleted) <= limit:
        return rows
    assert side.sequence is not None
    names = side.names
    among = take(rows, deleted)
    descending = -_dense_ranks(among.column(names.index(side.sequence)))
    # Within a sequence by hash, so that the choice does not depend on the order of arrival.
    columns = [among.column(names.index(name)) for name in dict.fromkeys((*side.key, *side.by))]
    order = np.lexsort([xxhash64(columns), descending])
    remains = np.ones(len(rows), np.bool_)
    remains[deleted[order[limit:]]] = False
    return rows.filter(pa.array(remains))
