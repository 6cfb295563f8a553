"""Classify the rows of a micro-batch, and resolve conflicts between changes.

Of different changes with the same key and sequence, the greatest by its values is effective, compared from
the left column to the right. Neither the order of arrival nor the cut into micro-batches matters. A delete
is below every row, and a missing value is below every value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamops.changelog.change_types import (
    CHANGE_TYPE,
    DELETE,
    INSERT,
    PREIMAGE,
    TRUNCATE,
    TRUNCATE_COPY,
    is_change_type,
)
from streamops.changelog.table import (
    REASONS,
    REJECTED,
    SNAPSHOT,
    TOMBSTONE,
    UNAVAILABLE,
    KeyedTable,
)
from streamops.kernel.columns import combine_chunks, timestamp_micros, value_codes
from streamops.kernel.groups import Groups, Ids, Ints, Mask, pair_codes
from streamops.kernel.ordering import ranks
from streamops.kernel.time import MAX_INSTANT, MIN_INSTANT

ACCEPTED, REJECTED_BEFORE = -1, -2
"""Instead of a reason: the row is not rejected; another operator rejected it."""


@dataclass(frozen=True, slots=True)
class Truncates:
    """The truncates of a micro-batch."""

    sequence: pa.Array
    clock: Ints  # the horizon is measured on it
    is_counted: Mask  # whether the truncate is a row of the micro-batch, and not a copy


@dataclass(frozen=True, slots=True)
class ClassifiedChanges:
    """The rows of a micro-batch, and the changes among them."""

    rows: pa.Table
    # Index of each row's reason in ``REASONS``, ``ACCEPTED`` or ``REJECTED_BEFORE``; updated by ``reject``
    reason: Ids
    positions: Ids  # positions of the changes among the rows
    sequence: pa.Array
    is_delete: Mask
    is_log: Mask  # whether the change is from the log, and not from a snapshot
    clock: Ints  # the horizon is measured on it
    missing: Mask  # which values are missing: a row per change, a column per value
    truncates: Truncates
    ignored: int  # number of rows that do not change the table
    copies: int  # number of copies of truncates, which are not counted
    received: int  # number of rows received; rows after them are deletes caused by a truncate

    def __len__(self) -> int:
        return len(self.positions)

    @staticmethod
    def of(spec: KeyedTable, rows: pa.Table) -> ClassifiedChanges:
        """Classify the rows."""
        count, names = len(rows), spec.input.names
        types = _change_types(spec, rows)
        reason = np.full(count, ACCEPTED)
        ignored = np.asarray(pc.equal(types, PREIMAGE).fill_null(False))
        if TOMBSTONE in names:
            ignored |= np.asarray(combine_chunks(rows.column(TOMBSTONE)).fill_null(False))
        is_truncate = _is_truncate(spec, types)
        sequence, has_no_sequence = _sequence(spec, rows)
        micros, clock, has_time = np.zeros(count, np.int64), np.zeros(count, np.int64), None
        if spec.time is not None:
            micros, has_time = timestamp_micros(rows.column(spec.time))
            clock = micros
        elif count:
            clock = np.asarray(combine_chunks(sequence).cast(pa.int64()).fill_null(0))
        faults = [
            ~is_change_type(types) & ~is_truncate,
            _any_null([rows.column(name) for name in spec.by], count) & ~is_truncate,
            has_no_sequence,
            np.zeros(count, np.bool_) if has_time is None else ~has_time,
            (micros < MIN_INSTANT) | (micros > MAX_INSTANT),
        ]
        for number, fault in reversed(list(enumerate(faults))):
            reason[fault] = number
        reason[ignored] = ACCEPTED
        if REJECTED in names:
            before = np.asarray(combine_chunks(rows.column(REJECTED)).is_valid())
            reason[before], ignored = REJECTED_BEFORE, ignored & ~before
        is_accepted = (reason == ACCEPTED) & ~ignored
        positions = np.flatnonzero(is_accepted & ~is_truncate)
        index = pa.array(positions)
        is_log = np.ones(len(positions), np.bool_)
        if SNAPSHOT in names:
            is_log = ~np.asarray(combine_chunks(rows.column(SNAPSHOT)).take(index).fill_null(False))
        is_delete = np.asarray(pc.equal(types.take(index), DELETE).fill_null(False))
        is_copy = np.asarray(pc.equal(types, TRUNCATE_COPY).fill_null(False)) & is_truncate
        truncates = np.flatnonzero(is_accepted & is_truncate)
        return ClassifiedChanges(
            rows,
            reason,
            positions,
            sequence.take(index),
            is_delete,
            is_log,
            clock[positions],
            _missing(spec, rows, positions, is_delete),
            Truncates(sequence.take(pa.array(truncates)), clock[truncates], ~is_copy[truncates]),
            int(np.count_nonzero(ignored)),
            int(np.count_nonzero(is_copy & is_accepted)),
            count,
        )

    def reject(self, changes: Ids, reason: str) -> None:
        """Record why these changes are rejected."""
        self.reason[self.positions[changes]] = REASONS.index(reason)

    @property
    def is_rejected(self) -> Mask:
        """Which received rows are rejected."""
        result: Mask = self.reason[: self.received] != ACCEPTED
        return result

    def reasons(self, rows: Ids) -> pa.Array:
        """The reasons of rejected rows. A row that was rejected before keeps its reason."""
        index, reason = pa.array(rows), self.reason[rows]
        names = pa.array(REASONS).take(pa.array(np.where(reason >= 0, reason, 0)))
        if REJECTED in self.rows.column_names:
            own = pc.struct_field(combine_chunks(self.rows.column(REJECTED)).take(index), "reason")
            names = pc.if_else(pa.array(reason == REJECTED_BEFORE), own, names)
        return names

    @property
    def is_received(self) -> Mask:
        """Which changes were received, and are not deletes caused by a truncate."""
        result: Mask = self.positions < self.received
        return result

    @property
    def counted(self) -> int:
        """Number of rows received, without copies of truncates."""
        return self.received - self.copies

    def without(self, dropped: Mask, reason: str | None = None) -> ClassifiedChanges:
        """Drop changes. With a reason they are rejected, unless they were rejected before."""
        if reason is not None:
            first = self.reason[self.positions] == ACCEPTED
            self.reject(np.flatnonzero(dropped & first), reason)
        rest = ~dropped
        return replace(
            self,
            positions=self.positions[rest],
            sequence=self.sequence.filter(pa.array(rest)),
            is_delete=self.is_delete[rest],
            is_log=self.is_log[rest],
            clock=self.clock[rest],
            missing=self.missing[rest],
        )

    def column(self, name: str) -> pa.Array:
        """Values of the changes."""
        return combine_chunks(self.rows.column(name)).take(pa.array(self.positions))


def copy_truncates(spec: KeyedTable, rows: pa.Table) -> pa.Table | None:
    """Copies of the truncates among these rows, for every shard; None if there are none."""
    if not spec.truncates or CHANGE_TYPE not in rows.column_names or not len(rows):
        return None
    types = combine_chunks(rows.column(CHANGE_TYPE))
    found = np.flatnonzero(np.asarray(pc.equal(types, TRUNCATE).fill_null(False)))
    if not len(found):
        return None
    copies = rows.take(pa.array(found))
    at = copies.column_names.index(CHANGE_TYPE)
    copies = copies.set_column(at, CHANGE_TYPE, pa.repeat(TRUNCATE_COPY, len(found)))
    # An invalid truncate is rejected once, as a row, and not copied.
    classified = ClassifiedChanges.of(spec, copies)
    ignored = np.zeros(len(copies), np.bool_)
    if TOMBSTONE in copies.column_names:
        ignored = np.asarray(combine_chunks(copies.column(TOMBSTONE)).fill_null(False))
    good = ~classified.is_rejected & ~ignored
    return copies.filter(pa.array(good)) if good.any() else None


def _change_types(spec: KeyedTable, rows: pa.Table) -> pa.Array:
    if CHANGE_TYPE in spec.input.names:
        return combine_chunks(rows.column(CHANGE_TYPE))
    return pa.repeat(INSERT, len(rows))


def _is_truncate(spec: KeyedTable, types: pa.Array) -> Mask:
    if not spec.truncates:
        return np.zeros(len(types), np.bool_)
    return np.asarray(pc.is_in(types, value_set=pa.array([TRUNCATE, TRUNCATE_COPY])))


def _sequence(spec: KeyedTable, rows: pa.Table) -> tuple[pa.Array, Mask]:
    """The sequence of each row, and which sequences are null or have a part that is."""
    columns = [combine_chunks(rows.column(name)) for name in spec.sequence]
    absent = np.zeros(len(rows), np.bool_)
    for column in columns:
        absent |= _has_null(column)
    if len(columns) == 1:
        return columns[0], absent
    fields = [spec.input.field(name) for name in spec.sequence]
    return pa.StructArray.from_arrays(columns, fields=fields, mask=pa.array(absent)), absent


def _has_null(sequences: pa.Array) -> Mask:
    absent = np.array(sequences.is_null())
    if pa.types.is_struct(sequences.type):
        for part in sequences.flatten():
            absent |= _has_null(part)
    return absent


def _any_null(columns: list[pa.ChunkedArray], rows: int) -> Mask:
    found = np.zeros(rows, np.bool_)
    for column in columns:
        found |= np.asarray(combine_chunks(column).is_null())
    return found


def _missing(spec: KeyedTable, rows: pa.Table, positions: Ids, is_delete: Mask) -> Mask:
    """Which values of each change are missing: unavailable, or null where nulls are ignored."""
    index = pa.array(positions)
    missing = np.zeros((len(positions), len(spec.values)), np.bool_)
    if UNAVAILABLE in spec.input.names:
        lists = combine_chunks(rows.column(UNAVAILABLE)).take(index)
        sizes = np.asarray(pc.list_value_length(lists).fill_null(0)).astype(np.int64)
        names = pc.index_in(lists.flatten(), value_set=pa.array(spec.values, pa.string()))
        known = np.asarray(names.is_valid())
        row = np.repeat(np.arange(len(lists)), sizes)[known]
        missing[row, np.asarray(names.drop_null()).astype(np.int64)] = True
    if spec.ignore_nulls:
        for number, name in enumerate(spec.values):
            missing[:, number] |= np.asarray(
                combine_chunks(rows.column(name)).take(index).is_null()
            )
    missing[is_delete] = False
    return missing


@dataclass(frozen=True, slots=True)
class Conflicts:
    """Conflict resolution for changes with the same key and sequence."""

    slot: Ids  # number of the pair of key and sequence
    content: Ids  # code of the content
    # Rank of the content among the changes of its slot: the highest is effective. 0 if all are equal.
    order: Ints

    @staticmethod
    def of(position: Ids, values: Sequence[pa.Array], missing: Mask, is_delete: Mask) -> Conflicts:
        """Compare changes. `position` is a code of key and sequence."""
        content = content_codes(values, missing, is_delete)
        slots, firsts = Groups.of(position)
        order = np.zeros(len(position), np.int64)
        differs = np.bincount(slots.ids, content != content[firsts][slots.ids], slots.count) > 0
        among = np.flatnonzero(differs[slots.ids])
        if len(among):
            keys = [(~is_delete[among]).astype(np.int64)]
            for number, column in enumerate(values):
                has_value = ~missing[among, number] & ~is_delete[among]
                value = ranks(column.take(pa.array(among)))
                keys += [has_value.astype(np.int64), np.where(has_value, value, 0)]
            rank = np.lexsort(keys[::-1])
            ranked = content[among][rank]
            order[among[rank]] = np.cumsum(np.append(True, ranked[1:] != ranked[:-1]))
        return Conflicts(slots.ids, content, order)

    def first(self, size: int) -> Conflicts:
        """The first `size` changes."""
        return Conflicts(self.slot[:size], self.content[:size], self.order[:size])

    def firsts(self) -> Ids:
        """The first change with the same slot and content, for each change."""
        groups, firsts = Groups.of(pair_codes(self.slot, self.content))
        return firsts[groups.ids]

    def is_duplicate(self) -> Mask:
        """Which changes repeat an earlier one of their slot."""
        result: Mask = self.firsts() != np.arange(len(self.slot))
        return result

    def latest_clock(self, clock: Ints) -> Ints:
        """The greatest clock in the slot of each change."""
        result: Ints = self._slots.greatest(clock)[self.slot]
        return result

    def loses(self) -> Mask:
        """Which changes are not effective, because another one of their slot is greater."""
        result: Mask = self.order != self._slots.greatest(self.order)[self.slot]
        return result

    @property
    def _slots(self) -> Groups:
        return Groups(self.slot, int(self.slot.max(initial=-1)) + 1)


def content_codes(values: Sequence[pa.Array], missing: Mask, is_delete: Mask) -> Ids:
    """A code for the content of each change. All deletes have the same content."""
    content = is_delete.astype(np.int64)
    for number, column in enumerate(values):
        code = value_codes(column)
        lowest = code.min(initial=0)
        code = np.where(missing[:, number], lowest - 1, code)
        content = pair_codes(content, np.where(is_delete, lowest - 2, code))
    return content
