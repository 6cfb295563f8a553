"""A join of two tables, maintained incrementally: changes of both in, changes of the join out.

A step reads only the rows of join keys that occur in its changes, before and after them. What was
emitted for these keys follows from the rows before, so it is not stored.

The product rule, ``d(L * R) = dL * R_old + L_new * dR``, looks at each pair of rows once, so the
changes are net: the weight of a joined row after the micro-batch less that before. In outer joins a
row without a partner is joined with nulls: what counts is whether it has partners before all changes,
and after them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamops.changelog.change_types import CHANGE_TYPE, change_weights, consolidate
from streamops.changelog.classify import Conflicts
from streamops.changelog.emit import order_changes
from streamops.joins.core.side_state import expand
from streamops.joins.core.tables_spec import REASONS, TableSide, TablesSpec
from streamops.kernel.adapting_rows import map_columns
from streamops.kernel.columns import (
    combine_chunks,
    concat,
    is_complete,
    key_codes,
    null_table,
    take,
)
from streamops.kernel.core import SIDES, Identity, Metrics, SideName, State, StateFormat, Step
from streamops.kernel.formatted import format_rows
from streamops.kernel.groups import Groups, Ids, Ints, Mask, pair_codes
from streamops.kernel.hashing import digests
from streamops.kernel.lateness import build_late
from streamops.kernel.operator import Core, Table
from streamops.kernel.ordering import ranks
from streamops.kernel.placement import ByKey, Placement

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
    order = np.lexsort([digests(columns), descending])
    remains = np.ones(len(rows), np.bool_)
    remains[deleted[order[limit:]]] = False
    return rows.filter(pa.array(remains))


def _table(side: SideName) -> Table:
    at = SIDES.index(side)
    placement = ByKey(
        columns=lambda identity: [name for name, _ in identity[side]["columns"]],
        key=lambda identity: identity[side]["by"],
    )
    return Table(lambda spec: spec.tables[at].stored, placement)


_NONE = -1


class TablesCore(Core[TablesSpec]):
    """A join of two tables, maintained incrementally: changes of both in, changes of the join out."""

    STATE = StateFormat("joins.tables", 1)
    TABLES: ClassVar = {side: _table(side) for side in SIDES}
    PLACEMENT = Placement(key=lambda identity: identity["left"]["by"])

    def step(
        self, spec: TablesSpec, state: State, inputs: Sequence[pa.Table], watermark: int | None
    ) -> Step:
        """One micro-batch: see the module's docstring."""
        changes = [read_changes(side, rows) for side, rows in zip(spec.tables, inputs, strict=True)]
        stored = [state.tables[name] for name in SIDES]
        numbers, count, touched = _number_join_keys(spec, stored, changes)
        left, right = (
            _apply(side, stored[at], changes[at], numbers[at], numbers[2 + at], touched)
            for at, side in enumerate(spec.tables)
        )
        output, metrics = _build_output(
            spec, left, right, delta(left.weighted, right.weighted, count)
        )
        sides = list(zip(SIDES, spec.tables, (left, right), strict=True))
        late = [
            _build_rejected(spec, name, rows, side.changed.reasons)
            for rows, (name, _, side) in zip(inputs, sides, strict=True)
        ]
        total = sum(map(len, inputs))
        outdated = sum(side.changed.outdated for *_, side in sides)
        rejected = sum(int(np.count_nonzero(side.changed.reasons)) for *_, side in sides)
        on_time = total - rejected - outdated
        metrics = replace(
            metrics, rows=total, rejected=rejected, too_late=outdated, on_time=on_time
        )
        tables: dict[str, pa.Table] = {
            name: forget_deleted(table, side.state, spec.remember_per_shard)
            for name, table, side in sides
        }
        return Step(State(None, tables), output, concat(late), metrics)

    def adapt(
        self,
        spec: TablesSpec,
        stored: Identity,
        tables: Mapping[str, pa.Table],
        watermark: int | None,
    ) -> dict[str, pa.Table]:
        """Map the columns by name."""
        return {
            name: map_columns(
                side.names,
                [column for column, _ in stored[name]["columns"]],
                tables[name],
                side.stored,
            )
            for name, side in zip(SIDES, spec.tables, strict=True)
        }

    def check(self, spec: TablesSpec, state: State) -> None:
        """Every row is stored once, and deleted rows only where there is a sequence."""
        for name, side in zip(SIDES, spec.tables, strict=True):
            table = state.tables[name]
            formatted = f"{name}: {format_rows(table)}"
            identity = [*side.by, *side.key] if side.key else side.names
            columns = [table.column(side.names.index(column)) for column in identity]
            groups, _ = Groups.of(key_codes(columns, len(table)))
            assert groups.count == len(table), f"a row twice: {formatted}"
            weight = np.asarray(combine_chunks(table.column("weight")))
            limit = 0 if side.sequence is None else spec.remember_per_shard
            assert np.count_nonzero(weight == 0) <= limit, f"not forgotten: {formatted}"
            assert (weight >= 0).all(), formatted
            assert not side.key or (weight <= 1).all(), f"a key twice: {formatted}"


@dataclass(frozen=True, slots=True)
class Weighted:
    """Rows of one side: the number of their join key, and their weight before and after."""

    join: Ids
    joins: Mask  # whether they can match: no part of the join key is null
    before: Ints
    after: Ints
    outer: bool  # whether they are emitted without a partner

    def present(self, count: int) -> tuple[Mask, Mask]:
        """Which of the join keys have a row, before and after."""
        before, after = np.zeros((2, count), np.bool_)
        before[self.join[self.before > 0]] = True
        after[self.join[self.after > 0]] = True
        return before, after


@dataclass(frozen=True, slots=True)
class _Side:
    """One side after its changes."""

    changed: TableRows  # the rows of the join keys that have changes
    weighted: Weighted
    rows: pa.Table  # the same rows, under the names of the table
    state: pa.Table


def _apply(
    side: TableSide, stored: pa.Table, changes: Changes, join: Ids, arrived: Ids, touched: Mask
) -> _Side:
    """Apply the changes of one side; only the rows of touched join keys are read."""
    active = touched[join]
    mask = pa.array(active)
    join = np.concatenate([join[active], arrived])
    changed = apply_changes(side, stored.filter(mask), changes, join)
    rows = changed.rows.rename_columns(side.names)
    join, joins = join[changed.source], is_complete(rows, side.by)
    updated = pa.table([*changed.rows.columns, pa.array(changed.after)], schema=side.stored)
    return _Side(
        changed,
        Weighted(join, joins, changed.before, changed.after, side.outer),
        rows,
        concat([stored.filter(pc.invert(mask)), updated.filter(pa.array(changed.is_stored))]),
    )


def _number_join_keys(
    spec: TablesSpec, stored: list[pa.Table], changes: list[Changes]
) -> tuple[list[Ids], int, Mask]:
    """Numbers of join keys: of both stored tables, then of the changes of both sides.

    Also how many there are, and which of them have changes.
    """
    tables = [*stored, *(of_side.rows for of_side in changes)]
    positions = [[side.names.index(name) for name in side.by] for side in spec.tables]
    columns = [
        pa.concat_arrays(
            [combine_chunks(table.column(positions[i % 2][at])) for i, table in enumerate(tables)]
        )
        for at in range(len(spec.by))
    ]
    sizes = [len(table) for table in tables]
    groups, _ = Groups.of(key_codes(columns, sum(sizes)))
    numbers = np.split(groups.ids, np.cumsum(sizes)[:-1])
    touched = np.zeros(groups.count, np.bool_)
    touched[numbers[2]] = True
    touched[numbers[3]] = True
    return numbers, groups.count, touched


@dataclass(frozen=True, slots=True)
class Delta:
    """Joined rows whose weight changed: the row of each side, or -1, and the difference."""

    left: Ids
    right: Ids
    weight: Ints


def delta(left: Weighted, right: Weighted, count: int) -> Delta:
    """The difference of the joins before and after, over ``count`` join keys."""
    left_changed, right_changed = left.before != left.after, right.before != right.after
    # dL * R, and unchanged rows of L * dR.
    parts = [
        _join_pairs(left, right, left_changed & left.joins, right.joins),
        _join_pairs(left, right, ~left_changed & left.joins, right_changed & right.joins),
        _without_partner(left, right, count),
    ]
    rights, lefts, weight = _without_partner(right, left, count)
    parts.append((lefts, rights, weight))
    lefts, rights, weight = (np.concatenate(column) for column in zip(*parts, strict=True))
    differs = weight != 0
    return Delta(lefts[differs], rights[differs], weight[differs])


def _join_pairs(left: Weighted, right: Weighted, some: Mask, others: Mask) -> tuple[Ids, Ids, Ints]:
    lefts, rights = np.flatnonzero(some), np.flatnonzero(others)
    one, two = match_pairs(left.join[lefts], right.join[rights])
    one, two = lefts[one], rights[two]
    weight = left.after[one] * right.after[two] - left.before[one] * right.before[two]
    return one, two, weight


def _without_partner(side: Weighted, other: Weighted, count: int) -> tuple[Ids, Ids, Ints]:
    """Rows of an outer side joined with nothing."""
    if not side.outer:
        nothing = np.zeros(0, np.int64)
        return nothing, nothing, nothing
    was, is_ = other.present(count)
    before = side.before * ~(was[side.join] & side.joins)
    after = side.after * ~(is_[side.join] & side.joins)
    return np.arange(len(side.join)), np.full(len(side.join), _NONE), after - before


def match_pairs(left: Ids, right: Ids) -> tuple[Ids, Ids]:
    """Positions of all pairs of equal numbers, in the order of the left.

    Examples
    --------
    >>> one, two = match_pairs(np.array([7, 8, 7]), np.array([7, 9, 7]))
    >>> one.tolist(), two.tolist()
    ([0, 0, 2, 2], [0, 2, 0, 2])
    """
    if not len(left) or not len(right):
        nothing = np.zeros(0, np.int64)
        return nothing, nothing
    order = np.argsort(right, kind="stable")
    ordered = right[order]
    starts = np.searchsorted(ordered, left, "left")
    one, positions = expand(starts, np.searchsorted(ordered, left, "right"))
    return one, order[positions]


def _build_output(
    spec: TablesSpec, left: _Side, right: _Side, change: Delta
) -> tuple[pa.Table, Metrics]:
    """The rows of the output, and the numbers of results and corrections."""
    rows = _join_rows(spec, left.rows, right.rows, change)
    if spec.how != "inner":
        # A row without a partner may equal a row with a partner of nulls, so that they cancel out.
        first, weight = consolidate(key_codes(rows.columns, len(rows)), change.weight)
        if len(first) < len(rows):
            rows = take(rows, first)
            change = Delta(change.left[first], change.right[first], weight)
    is_update = _is_update(spec, left, right, change)
    copies, change_type = order_changes(change.weight, is_update)
    late = null_table(pa.schema(list(spec.output)[len(spec.names.schema) + 1 :]), len(copies))
    columns = [*take(rows, copies).columns, change_type, *late.columns]
    added = np.maximum(change.weight, 0)
    metrics = Metrics(results=int(added[~is_update].sum()), corrections=int(added[is_update].sum()))
    return pa.table(columns, schema=spec.output), metrics


def _join_rows(spec: TablesSpec, left: pa.Table, right: pa.Table, change: Delta) -> pa.Table:
    """Rows of both sides, with nulls where there is no row."""
    left_index, right_index = (pa.array(at, mask=at < 0) for at in (change.left, change.right))
    columns = {
        name: combine_chunks(left.column(name)).take(left_index)
        for name in spec.tables[0].rows.names
    }
    if spec.tables[1].outer:
        # Without a left row, the join columns have the values of the right row.
        is_alone = pa.array(change.left < 0)
        for name, other in spec.by:
            value = combine_chunks(right.column(other)).take(right_index)
            columns[name] = pc.if_else(is_alone, value, columns[name])
    columns |= {
        name: combine_chunks(right.column(own)).take(right_index) for own, name in spec.names.right
    }
    return pa.table(list(columns.values()), schema=spec.names.schema)


def _is_update(spec: TablesSpec, left: _Side, right: _Side, change: Delta) -> Mask:
    """Where a row is replaced by another with the same identity: both primary keys and the join key."""
    if not spec.tables[0].key:
        return np.zeros(len(change.weight), np.bool_)
    identity = np.zeros(len(change.weight), np.int64)
    sides = zip(spec.tables, (left, right), (change.left, change.right), strict=True)
    for table, side, at in sides:
        key = key_codes([side.rows.column(name) for name in table.key], len(side.rows))
        codes = pair_codes(key, side.weighted.join)
        code_of_none = codes.min(initial=0) - 1  # at position -1
        identity = pair_codes(identity, np.append(codes, code_of_none)[at])
    groups, _ = Groups.of(identity)
    removed = groups.sum_ints(np.maximum(-change.weight, 0))
    added = groups.sum_ints(np.maximum(change.weight, 0))
    is_update: Mask = ((removed == 1) & (added == 1))[groups.ids]
    return is_update


def _build_rejected(spec: TablesSpec, side: SideName, rows: pa.Table, reasons: Reasons) -> pa.Table:
    """The rejected changes of one side, as side output."""
    if spec.rejected == "drop":
        return spec.output.empty_table()
    at = np.flatnonzero(reasons)
    reason = pa.array(np.array(REASONS)[reasons[at] - 1], pa.string())
    return build_late(spec.output, take(rows, at), {"reason": reason}, side=side)
