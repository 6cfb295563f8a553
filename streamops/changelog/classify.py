"""The rows of a micro-batch, judged one by one: which are changes, and what is wrong with others."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamops.changelog.change_types import CHANGE_TYPE, DELETE, INSERT, PREIMAGE, is_change_type
from streamops.changelog.table import (
    REASONS,
    REJECTED,
    SNAPSHOT,
    TOMBSTONE,
    UNAVAILABLE,
    KeyedTable,
)
from streamops.kernel.columns import combine_chunks, timestamp_micros
from streamops.kernel.groups import Ids, Ints, Mask
from streamops.kernel.time import MAX_INSTANT, MIN_INSTANT

__all__ = ["ClassifiedChanges"]

ACCEPTED, REJECTED_BEFORE = -1, -2
"""Of a row that is a change or ignored; of one that was rejected before."""


@dataclass(frozen=True, slots=True)
class ClassifiedChanges:
    """Rows, and what they are.

    Parameters
    ----------
    rows : Table
    reason : array of int64
        Position in ``REASONS``; ``ACCEPTED`` or ``REJECTED_BEFORE``. Filled further while the rows are taken in.
    changes : array of int64
        Positions of the rows that change something.
    sequence : Array
        Of each change.
    is_delete, is_log : arrays of bool
        Of each change: whether it deletes; whether it comes of the log, and not of a snapshot.
    age : array of int64
        Of each change: by which deletes grow old.
    lacks : array of bool
        Changes by values: which were not sent.
    ignored : int
        Rows that are no change to a state.
    """

    rows: pa.Table
    reason: Ids
    changes: Ids
    sequence: pa.Array
    is_delete: Mask
    is_log: Mask
    age: Ints
    lacks: Mask
    ignored: int

    @staticmethod
    def of(spec: KeyedTable, rows: pa.Table) -> ClassifiedChanges:
        """Judge the rows."""
        count, names = len(rows), spec.input.names
        words = (
            combine_chunks(rows.column(CHANGE_TYPE))
            if CHANGE_TYPE in names
            else pa.repeat(INSERT, count)
        )
        reason = np.full(count, ACCEPTED)
        ignored = np.asarray(pc.equal(words, PREIMAGE).fill_null(False))
        if TOMBSTONE in names:
            ignored |= np.asarray(combine_chunks(rows.column(TOMBSTONE)).fill_null(False))
        sequence, is_nowhere = _sequence(spec, rows)
        micros, age, has_time = np.zeros(count, np.int64), np.zeros(count, np.int64), None
        if spec.time is not None:
            micros, has_time = timestamp_micros(rows.column(spec.time))
            age = micros
        elif count:
            age = np.asarray(combine_chunks(sequence).cast(pa.int64()).fill_null(0))
        faults = [
            ~is_change_type(words),
            _any_null([rows.column(name) for name in spec.by], count),
            is_nowhere,
            np.zeros(count, np.bool_) if has_time is None else ~has_time,
            (micros < MIN_INSTANT) | (micros > MAX_INSTANT),
        ]
        for number, fault in reversed(list(enumerate(faults))):
            reason[fault] = number
        reason[ignored] = ACCEPTED
        if REJECTED in names:
            own = np.asarray(combine_chunks(rows.column(REJECTED)).is_valid())
            reason[own], ignored = REJECTED_BEFORE, ignored & ~own
        changes = np.flatnonzero((reason == ACCEPTED) & ~ignored)
        index = pa.array(changes)
        is_log = np.ones(len(changes), np.bool_)
        if SNAPSHOT in names:
            is_log = ~np.asarray(combine_chunks(rows.column(SNAPSHOT)).take(index).fill_null(False))
        is_delete = np.asarray(pc.equal(words.take(index), DELETE).fill_null(False))
        lacks = np.zeros((len(changes), len(spec.values)), np.bool_)
        if UNAVAILABLE in names:
            lacks = _lacks(spec, combine_chunks(rows.column(UNAVAILABLE)).take(index))
            lacks[is_delete] = False
        return ClassifiedChanges(
            rows,
            reason,
            changes,
            sequence.take(index),
            is_delete,
            is_log,
            age[changes],
            lacks,
            int(np.count_nonzero(ignored)),
        )

    def reject(self, which: Ids, reason: str) -> None:
        """Note why these changes are rejected."""
        self.reason[self.changes[which]] = REASONS.index(reason)

    @property
    def is_rejected(self) -> Mask:
        """Which rows are rejected, so far."""
        result: Mask = self.reason != ACCEPTED
        return result

    def reasons(self, which: Ids) -> pa.Array:
        """Why these rows, which are rejected, are; those that were before keep their reason."""
        index, reason = pa.array(which), self.reason[which]
        words = pa.array(REASONS).take(pa.array(np.where(reason >= 0, reason, 0)))
        if REJECTED in self.rows.column_names:
            own = pc.struct_field(combine_chunks(self.rows.column(REJECTED)).take(index), "reason")
            words = pc.if_else(pa.array(reason == REJECTED_BEFORE), own, words)
        return words

    def without(self, dropped: Mask, reason: str | None = None) -> ClassifiedChanges:
        """Without these changes, which are rejected if there is a reason and was none before."""
        if reason is not None:
            first = self.reason[self.changes] == ACCEPTED
            self.reject(np.flatnonzero(dropped & first), reason)
        kept = ~dropped
        return ClassifiedChanges(
            self.rows,
            self.reason,
            self.changes[kept],
            self.sequence.filter(pa.array(kept)),
            self.is_delete[kept],
            self.is_log[kept],
            self.age[kept],
            self.lacks[kept],
            self.ignored,
        )

    def column(self, name: str) -> pa.Array:
        """Values of the changes."""
        return combine_chunks(self.rows.column(name)).take(pa.array(self.changes))


def _sequence(spec: KeyedTable, rows: pa.Table) -> tuple[pa.Array, Mask]:
    """Places, and which of them are none, as a part is null."""
    columns = [combine_chunks(rows.column(name)) for name in spec.sequence]
    missing = np.zeros(len(rows), np.bool_)
    for each in columns:
        missing |= _lacks_part(each)
    if len(columns) == 1:
        return columns[0], missing
    fields = [spec.input.field(name) for name in spec.sequence]
    return pa.StructArray.from_arrays(columns, fields=fields, mask=pa.array(missing)), missing


def _lacks_part(places: pa.Array) -> Mask:
    missing = np.array(places.is_null())
    if pa.types.is_struct(places.type):
        for part in places.flatten():
            missing |= _lacks_part(part)
    return missing


def _any_null(columns: list[pa.ChunkedArray], rows: int) -> Mask:
    found = np.zeros(rows, np.bool_)
    for column in columns:
        found |= np.asarray(combine_chunks(column).is_null())
    return found


def _lacks(spec: KeyedTable, lists: pa.Array) -> Mask:
    """Which values each list of names names."""
    sizes = np.asarray(pc.list_value_length(lists).fill_null(0)).astype(np.int64)
    names = pc.index_in(lists.flatten(), value_set=pa.array(spec.values, pa.string()))
    found = np.zeros((len(lists), len(spec.values)), np.bool_)
    known = np.asarray(names.is_valid())
    row = np.repeat(np.arange(len(lists)), sizes)[known]
    found[row, np.asarray(names.drop_null()).astype(np.int64)] = True
    return found
