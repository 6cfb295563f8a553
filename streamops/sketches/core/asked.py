"""Rows of a micro-batch as questions to the filters: by item, and in the order of event time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from streamops.kernel.columns import combine_chunks, take, timestamp_micros
from streamops.kernel.errors import SchemaError
from streamops.kernel.groups import Ids, Mask
from streamops.kernel.hashing import require_hashable, xxhash64
from streamops.kernel.time import MAX_INSTANT, MIN_INSTANT, Instants

__all__ = ["AGAIN", "VERDICTS", "Asked", "Judging"]

VERDICTS = ("first", "again", "too_old", "null_identity", "null_time", "time_out_of_range")
"""What a row is found to be."""

_FIRST, AGAIN, _TOO_OLD, _NO_IDENTITY, _NO_TIME, _OUT_OF_RANGE = range(len(VERDICTS))


class Judging(Protocol):
    """What must be known to judge rows."""

    @property
    def by(self) -> tuple[str, ...]:
        """The identity."""

    @property
    def time(self) -> str | None:
        """Event time."""

    @property
    def generations(self) -> int:
        """Cells behind the newest one that are remembered."""

    def cell(self, times: Instants) -> Ids:
        """The cell of each instant."""


@dataclass(frozen=True, slots=True)
class Asked:
    """The rows that have an identity and a time, by item and in the order of event time.

    Parameters
    ----------
    usable : array of int64
        For each row of the table, its verdict if it is not asked about; else ``AGAIN``.
    rows : array of int64
        Their positions in the table.
    item : array of int64
        For each, the number of its item.
    items : array of int64
        The items, each once.
    time, cell, now : arrays of int64
        For each: its event time, the cell of that, and the newest cell up to it.
    """

    usable: Ids
    rows: Ids
    item: Ids
    items: Ids
    time: Instants
    cell: Ids
    now: Ids

    @staticmethod
    def of(spec: Judging, rows: pa.Table, *, newest: int) -> Asked:
        """The rows that can be judged; ``newest`` is the newest cell up to now."""
        usable, time = _usable(spec, rows)
        chosen = np.flatnonzero(usable == AGAIN)
        table = rows if len(chosen) == len(rows) else take(rows.select(spec.by), chosen)
        found, time = xxhash64([table.column(name) for name in spec.by]), time[chosen]
        order = np.argsort(found)
        begins = np.ones(len(order), np.bool_)
        begins[1:] = found[order][1:] != found[order][:-1]
        if not begins.all():
            order = _by_time(rows, chosen, order, begins, time)
        time = time[order]
        cell = spec.cell(time)
        return Asked(
            usable,
            chosen[order],
            np.cumsum(begins) - 1,
            found[order[begins]],
            time,
            cell,
            np.maximum(cell, newest),
        )

    def newest(self, before: int | None) -> int | None:
        """The newest event time up to now."""
        if not len(self.time):
            return before
        now = int(self.time.max())
        return now if before is None else max(before, now)

    def verdicts(self, spec: Judging, last: Ids) -> tuple[Ids, Ids]:
        """The verdict of each row of the table, and which of these rows are first.

        Parameters
        ----------
        last : array of int64
            For each item, the newest cell in which it may have been seen.
        """
        verdicts, last = self.usable.copy(), last.copy()
        oldest = self.now - spec.generations
        rest = np.flatnonzero(last[self.item] < oldest)
        # Too old to be remembered, so it is none that others are judged by.
        old = self.cell[rest] < oldest[rest]
        verdicts[self.rows[rest[old]]] = _TOO_OLD
        rest, first = rest[~old], []
        while len(rest):  # once, unless an item comes again after more than a horizon
            item = self.item[rest]
            is_head = np.ones(len(rest), np.bool_)
            is_head[1:] = item[1:] != item[:-1]
            heads = rest[is_head]
            last[item[is_head]] = self.cell[heads]
            first.append(heads)
            rest = rest[~is_head]
            rest = rest[last[self.item[rest]] < oldest[rest]]
        found = np.concatenate([np.empty(0, np.int64), *first])
        verdicts[self.rows[found]] = _FIRST
        return verdicts, found


def _usable(spec: Judging, rows: pa.Table) -> tuple[Ids, Instants]:
    """Why a row cannot be judged, ``AGAIN`` where it can; and event times."""
    result = np.full(len(rows), AGAIN)
    time = np.zeros(len(rows), np.int64)
    if spec.time is not None:
        time, valid = timestamp_micros(rows.column(spec.time))
        result[(time < MIN_INSTANT) | (time > MAX_INSTANT)] = _OUT_OF_RANGE
        result[~valid] = _NO_TIME
    for name in spec.by:
        column = rows.column(name)
        if column.null_count:
            result[np.asarray(column.is_null())] = _NO_IDENTITY
    return result, time


def _by_time(rows: pa.Table, chosen: Ids, order: Ids, begins: Mask, time: Instants) -> Ids:
    """Rows of the same item in the order of event time, and of their content where that is one."""
    number = np.empty(len(order), np.int64)
    number[order] = np.cumsum(begins)
    several = ~begins | ~np.append(begins[1:], True)
    some = np.sort(order[several])
    some = some[np.lexsort((time[some], number[some]))]
    same = (np.diff(number[some]) == 0) & (np.diff(time[some]) == 0)
    tied = np.append(same, False) | np.append(False, same)
    if tied.any():
        content = np.zeros(len(some), np.int64)
        content[tied] = _content(take(rows, chosen[some[tied]]))
        some = some[np.lexsort((content, time[some], number[some]))]
    result = order.copy()
    result[several] = some
    return result


def _content(rows: pa.Table) -> Ids:
    """A hash of all columns that have one, and of where they are null."""
    columns = []
    for column in map(combine_chunks, rows.columns):
        try:
            require_hashable(column.type, where="")
        except SchemaError:
            continue
        columns += [column.is_valid(), column]
    return xxhash64(columns)
