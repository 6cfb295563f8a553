"""Rows of one input of an interval join: those in state and those of a micro-batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamops.joins.core.interval_spec import IntervalSpec
from streamops.kernel.columns import (
    combine_chunks,
    concat,
    is_complete,
    rows_differ,
    take,
    timestamp_micros,
)
from streamops.kernel.core import SideName
from streamops.kernel.groups import Ids, Mask
from streamops.kernel.hashing import xxhash64
from streamops.kernel.time import Instants

_SIDES: tuple[Literal["left"], Literal["right"]] = ("left", "right")


@dataclass(frozen=True, slots=True)
class SortedIndex:
    """Key hashes and times of rows, sorted by both."""

    hashes: Ids
    times: Instants

    def __len__(self) -> int:
        return len(self.hashes)

    def spans(self, hashes: Ids, since: Instants, until: Instants) -> tuple[Ids, Ids]:
        """Half-open spans of the positions with a hash and a time in ``[since, until]``.

        Examples
        --------
        >>> index = SortedIndex(np.array([3, 3, 3, 8]), np.array([10, 20, 30, 5]))
        >>> queries = np.array([3, 3, 7]), np.array([15, 20, 0]), np.array([30, 20, 99])
        >>> [positions.tolist() for positions in index.spans(*queries)]
        [[1, 1, 3], [3, 2, 3]]
        """
        lows, highs = (np.searchsorted(self.hashes, hashes, side) for side in _SIDES)
        return self._position(lows, highs, since), self._position(lows, highs, until + 1)

    def _position(self, lows: Ids, highs: Ids, times: Instants) -> Ids:
        """In each span of one hash, the first position that is not before a time."""
        starts = lows.copy()
        left = np.flatnonzero(lows < highs)
        lows, highs, times = lows[left], highs[left], times[left]
        while len(left):  # a binary search in all spans at once
            middle = (lows + highs) >> 1
            before = self.times[middle] < times
            lows, highs = np.where(before, middle + 1, lows), np.where(before, highs, middle)
            more = lows < highs
            starts[left] = lows
            left, lows, highs, times = left[more], lows[more], highs[more], times[more]
        return starts

    def merge(self, other: SortedIndex) -> tuple[SortedIndex, Ids]:
        """Both as one, and the row at each position: those of the other are numbered behind.

        Of equal rows those of this index come first.
        """
        count = len(self)
        order = np.empty(count + len(other), np.int64)
        positions = self.spans(other.hashes, other.times, other.times)[1] + np.arange(len(other))
        is_own = np.ones(len(order), np.bool_)
        is_own[positions] = False
        order[positions] = count + np.arange(len(other))
        order[is_own] = np.arange(count)
        hashes = np.concatenate([self.hashes, other.hashes])[order]
        return SortedIndex(hashes, np.concatenate([self.times, other.times])[order]), order


def expand(starts: Ids, ends: Ids) -> tuple[Ids, Ids]:
    """All positions in half-open spans: the number of the span, and the position.

    Examples
    --------
    >>> [ids.tolist() for ids in expand(np.array([4, 9, 0]), np.array([6, 9, 1]))]
    [[0, 0, 2], [4, 5, 0]]
    """
    sizes = ends - starts
    span = np.repeat(np.arange(len(sizes)), sizes)
    before = np.cumsum(sizes) - sizes
    return span, np.arange(len(span)) + np.repeat(starts - before, sizes)


def equal_keys(left: Sequence[pa.Array], right: Sequence[pa.Array], rows: int) -> Mask:
    """Where all columns are equal and not null; NaN equals NaN, as in Spark's joins."""
    equal = np.ones(rows, np.bool_)
    for one, other in zip(left, right, strict=True):
        dtype = one.type
        if pa.types.is_nested(dtype) or pa.types.is_floating(dtype) or pa.types.is_null(dtype):
            equal &= ~rows_differ([one], [other]) & np.asarray(one.is_valid())
        else:
            equal &= pc.equal(one, other).fill_null(False).to_numpy(zero_copy_only=False)
    return equal


NOTHING, EARLY, EXPIRED, MATCHED, LATE = range(5)
"""The status that a row was last emitted with. ``~NOTHING`` and ``~EARLY`` are the same, for a row
whose answer arrived late and is not final yet."""

Status = npt.NDArray[np.int8]


def state_schema(spec: IntervalSpec, side: SideName) -> pa.Schema:
    """Columns of the state table of one side."""
    schema = spec.side(side).schema
    fields = [
        (f"column.{i}", schema.field(n).type) for i, n in enumerate(spec.stored_columns(side))
    ]
    return pa.schema([*fields, ("status", pa.int8())] if spec.stores_status(side) else fields)


@dataclass(frozen=True, slots=True)
class SideRows:
    """Rows of one side: those in state, then those that arrived. Each part is sorted."""

    table: pa.Table  # the columns that are stored, under their own names
    index: SortedIndex  # of all rows
    order: Ids  # the row at each position of the index
    hashes: Ids
    times: Instants
    status: Status  # that each row was emitted with
    has_key: Mask  # whether no part of the key is null
    stored: int  # how many rows come from the state

    @staticmethod
    def of(spec: IntervalSpec, side: SideName, state: pa.Table, arrived: pa.Table) -> SideRows:
        """Rows of a state, and rows that arrived and were accepted, in any order."""
        names = spec.stored_columns(side)
        status = np.zeros(len(state) + len(arrived), np.int8)
        if spec.stores_status(side):
            status[: len(state)] = combine_chunks(state.column("status")).to_numpy()
        table = state.select(range(len(names))).rename_columns(list(names))
        index, stored = _build_index(spec, side, table), len(table)
        hashes, times, order = index.hashes, index.times, np.arange(stored)
        if len(arrived):
            arrived = pa.table(arrived.select(list(names)).columns, schema=table.schema)
            new = _build_index(spec, side, arrived)
            sequence = np.lexsort((new.times, new.hashes))
            new = SortedIndex(new.hashes[sequence], new.times[sequence])
            table = concat([table, take(arrived, sequence)])
            hashes = np.concatenate([index.hashes, new.hashes])
            times = np.concatenate([index.times, new.times])
            index, order = index.merge(new)
        has_key = is_complete(table, spec.side(side).by)
        return SideRows(table, index, order, hashes, times, status, has_key, stored)

    def __len__(self) -> int:
        return len(self.hashes)

    @property
    def arrived(self) -> Ids:
        """The rows that arrived."""
        return np.arange(self.stored, len(self))

    @property
    def arrived_with_key(self) -> Ids:
        """The rows that arrived and can match."""
        return self.arrived[self.has_key[self.stored :]]

    @property
    def stored_index(self) -> SortedIndex:
        """The index of the rows in state; a position in it is the number of a row."""
        return SortedIndex(self.hashes[: self.stored], self.times[: self.stored])

    def keys(self, by: tuple[str, ...], rows: Ids) -> list[pa.Array]:
        """Key columns of these rows."""
        index = pa.array(rows)
        return [combine_chunks(self.table.column(name)).take(index) for name in by]

    def to_state(self, spec: IntervalSpec, side: SideName, status: Status, alive: Mask) -> pa.Table:
        """The state table of the rows that are alive."""
        chosen = self.order[alive[self.order]]
        table = self.table
        if len(chosen) < len(self) or self.stored < len(self):
            table = take(table, chosen)
        columns = list(table.columns)
        if spec.stores_status(side):
            columns.append(pa.array(status[chosen]))
        return pa.table(columns, schema=state_schema(spec, side))


def stored_times(spec: IntervalSpec, side: SideName, table: pa.Table) -> Instants:
    """Event times of rows in state."""
    names = spec.stored_columns(side)
    return timestamp_micros(table.column(names.index(spec.side(side).time or "")))[0]


def _build_index(spec: IntervalSpec, side: SideName, table: pa.Table) -> SortedIndex:
    """Hashes and times of rows, in the order of the rows."""
    side_input = spec.side(side)
    assert side_input.time is not None
    # The order of the rows in the state, see `ByKey.is_sorted`. Pairs with the hash of another key are filtered.
    hashes = xxhash64([combine_chunks(table.column(name)) for name in side_input.by])
    return SortedIndex(hashes, timestamp_micros(table.column(side_input.time))[0])
