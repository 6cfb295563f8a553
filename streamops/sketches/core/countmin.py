"""How often any item has occurred, asked afterwards: count-min.

G. Cormode, S. Muthukrishnan, "An Improved Data Stream Summary: The Count-Min Sketch and its
Applications" (2005). A table of so many rows, each of so many cells. In each row an item has a
cell, found by a hash, that counts it and whatever else falls there. The least of its cells is
never below the truth. It is above it by more than e / width of all items with a probability of
at most exp(-depth).

A table is large, and most groups are small. So a group keeps the items themselves, as hashes with
their counts, until they would take the room of the table. Until then its answers are exact. Which
of the two it is depends on the items alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamops.kernel.columns import combine_chunks
from streamops.kernel.group_states import list_sizes, make_lists, merge_groups
from streamops.kernel.groups import Groups, Ids, Ints, Mask
from streamops.sketches.core.buffers import cut, put_numbers, require, split_payloads, take_numbers
from streamops.sketches.core.contract import Format, Parameter
from streamops.sketches.core.hashes import SEED, items, murmur3
from streamops.sketches.core.sorting import argsort_groups, ranges, run_starts
from streamops.sketches.core.tallies import (
    added,
    adds_up,
    are_ascending,
    found,
    result_type,
    total,
    weighed,
)
from streamops.sketches.core.types import type_name

__all__ = ["MOST_CELLS", "CountMin", "Table", "cells_of", "depth_for", "summed", "width_for"]

Table = npt.NDArray[np.int64]

MOST_CELLS = 1 << 24
"""128 MiB of counts."""


def width_for(relative_error: float) -> int:
    """Cells in a row.

    Examples
    --------
    >>> width_for(0.01), width_for(0.001)
    (272, 2719)
    """
    return math.ceil(math.e / relative_error)


def depth_for(confidence: float) -> int:
    """Rows.

    Examples
    --------
    >>> depth_for(0.99), depth_for(0.5)
    (5, 1)
    """
    # Rounded first: 1 - 0.99 is a little more than 0.01.
    return max(math.ceil(round(-math.log(1 - confidence), 9)), 1)


def cells_of(hashes: Ints, width: int, depth: int) -> Iterator[Ids]:
    """Where each item is counted, in one row after the other.

    Examples
    --------
    >>> [cells.tolist() for cells in cells_of(np.array([1, 2]), 100, 3)]
    [[4, 23], [190, 121], [264, 273]]
    """
    for row in range(depth):
        if row % 2 == 0:
            halves = murmur3(hashes, seed=SEED + row // 2)
        # The upper 32 bits say how far along the row, as a share of it.
        share = (halves[row % 2] >> np.uint64(32)) * np.uint64(width)
        yield row * width + (share >> np.uint64(32)).astype(np.int64)


def summed(groups: Groups, tables: Table) -> Table:
    """The tables of each group, added up."""
    result = np.zeros((groups.count, tables.shape[1]), np.int64)
    order = argsort_groups(groups.ids, groups.count)
    starts = run_starts(groups.ids[order])
    if len(starts):
        result[groups.ids[order[starts]]] = np.add.reduceat(tables[order], starts, axis=0)
    return result


_HEAD = 12
_TABLE = 0xFFFFFFFF


@dataclass(frozen=True, slots=True)
class CountMin:
    """Counts of the items of a column, to be asked by item. Null is no item.

    A state has the items as ascending hashes, each with its count, or, with a null for them, the
    cells of the table, row after row; and the number of items, or the sum of their weights.

    Parameters
    ----------
    column : str
    type : DataType
        Of the items.
    width, depth : int
        Of the table.
    asked : Array, optional
        Items of this type, without a null, whose counts are the estimate.
    weight : str, optional
        A column of integers: how often an item counts.
    """

    column: str
    type: pa.DataType
    width: int
    depth: int
    asked: pa.Array | None = None
    weight: str | None = None

    format: ClassVar[Format] = Format("frequency", 1)
    fields: ClassVar[tuple[tuple[str, pa.DataType], ...]] = (
        ("items", pa.list_(pa.int64())),
        ("counts", pa.list_(pa.int64())),
        ("count", pa.int64()),
    )

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """The table, and what it counts."""
        return {"width": self.width, "depth": self.depth, "type": type_name(self.type)}

    @property
    def inputs(self) -> tuple[str, ...]:
        """Columns that ``update`` reads."""
        return (self.column,) if self.weight is None else (self.column, self.weight)

    @property
    def result(self) -> pa.DataType:
        """The items asked for, in their order, with bounds; the error; and how many were counted."""
        return result_type(self.type)

    @property
    def cells(self) -> int:
        """Of the table."""
        return self.width * self.depth

    @property
    def most_items(self) -> int:
        """That a group keeps before it has a table: hash and count take the room of two cells."""
        return self.cells // 2

    def update(self, groups: Groups, rows: pa.Table) -> list[pa.Array]:
        """Count the items of each group."""
        column = combine_chunks(rows.column(self.column))
        weights = None if self.weight is None else combine_chunks(rows.column(self.weight))
        counted, weights = weighed(column, weights, self.weight)
        hashes, _ = items(column)
        if not counted.all():
            groups, hashes = groups.where(counted), hashes[counted]
        count = total(groups, weights, self.column)
        nothing = np.empty((0, self.cells), np.int64)
        return self._kept(
            groups, hashes, weights, Groups(nothing[:, 0], groups.count), nothing, count
        )

    def merge(self, groups: Groups, states: Sequence[pa.Array]) -> list[pa.Array]:
        """Add up what is in the tables, and the counts of equal items."""
        return merge_groups(groups, states, self._unite)

    def estimate(self, states: Sequence[pa.Array]) -> pa.Array:
        """How often the items asked for have occurred, at least (see ``error``) and at most."""
        asked = pa.array([], self.type) if self.asked is None else self.asked
        groups, kinds = len(states[0]), list(self.result)
        again = asked.take(pa.array(np.tile(np.arange(len(asked)), groups)))
        lower, upper = self.counts_of(states, np.repeat(np.arange(groups), len(asked)), again)
        bounded = pa.StructArray.from_arrays(
            [again, pa.array(lower), pa.array(upper)], fields=list(kinds[0].type.value_type)
        )
        lists = make_lists(bounded, np.full(groups, len(asked)))
        return pa.StructArray.from_arrays(
            [lists, pa.array(self._error(states)), states[2]], fields=kinds
        )

    def bounds(self, states: Sequence[pa.Array]) -> tuple[pa.Array, pa.Array]:
        """How often each item asked for has occurred, at least (as ``error`` says) and at most."""
        found = self.estimate(states).field("items")
        sizes, bounded = list_sizes(found), found.flatten()
        return make_lists(bounded.field("lower"), sizes), make_lists(bounded.field("upper"), sizes)

    def counts_of(
        self, states: Sequence[pa.Array], owners: Ids, asked: pa.Array
    ) -> tuple[Ints, Ints]:
        """How often items have occurred, each in a state of its own.

        Parameters
        ----------
        states : list of Array
        owners : array of int64
            The number of the state that each item is looked up in.
        asked : Array
            The items; a null has been counted 0 times.

        Returns
        -------
        lower : array of int64
            With the confidence of the sketch. Equal to ``upper`` where the state has no table.
        upper : array of int64
            Never below the truth.
        """
        lists, kept, _ = states
        dense = np.asarray(lists.is_null())
        hashes, valid = items(asked)
        ids = np.repeat(np.arange(len(lists)), list_sizes(lists))
        counts = np.asarray(kept.filter(lists.is_valid()).flatten())
        upper = found(ids, np.asarray(lists.flatten()), counts, owners, hashes)
        rows = np.flatnonzero(dense[owners])
        if len(rows):
            table = np.asarray(kept.filter(pa.array(dense)).flatten())
            number = (np.cumsum(dense) - 1)[owners[rows]] * self.cells
            cells = cells_of(hashes[rows], self.width, self.depth)
            upper[rows] = np.minimum.reduce([table[number + cell] for cell in cells])
        upper[~valid] = 0
        return np.maximum(upper - self._error(states)[owners], 0), upper

    def payload(self, states: Sequence[pa.Array]) -> pa.Array:
        """Count, number of items, the items, their counts; or the cells of the table."""
        lists, kept, count = states
        entries, numbers = list_sizes(lists), list_sizes(kept)
        dense = np.asarray(lists.is_null())
        lengths = _HEAD + 8 * (entries + numbers)
        data, starts = np.empty(int(lengths.sum()), np.uint8), np.cumsum(lengths) - lengths
        put_numbers(data, starts, np.asarray(count), "<i8")
        put_numbers(data, starts + 8, np.where(dense, _TABLE, entries), "<u4")
        put_numbers(data, ranges(starts + _HEAD, entries, 8), np.asarray(lists.flatten()), "<i8")
        at = ranges(starts + _HEAD + 8 * entries, numbers, 8)
        put_numbers(data, at, np.asarray(kept.flatten()), "<i8")
        return cut(data, lengths)

    def revive(self, payloads: pa.Array) -> list[pa.Array]:
        """The states again; every byte is checked, for all at once.

        Raises
        ------
        SketchFormatError
            ``SKETCH_CORRUPT``: they are no payload of these parameters.
        """
        data, starts, lengths = split_payloads(payloads)
        self._require(lengths >= _HEAD, f"at least {_HEAD} bytes")
        count, said = (
            take_numbers(data, starts, "<i8"),
            take_numbers(data, starts + 8, "<u4").astype(np.int64),
        )
        dense = said == _TABLE
        self._require(dense | (said <= self.most_items), f"at most {self.most_items} items")
        entries = np.where(dense, 0, said)
        numbers = np.where(dense, self.cells, said)
        self._require(lengths == _HEAD + 8 * (entries + numbers), "counts, and nothing else")
        hashes = take_numbers(data, ranges(starts + _HEAD, entries, 8), "<i8")
        counts = take_numbers(data, ranges(starts + _HEAD + 8 * entries, numbers, 8), "<i8")
        parts = Groups(np.repeat(np.arange(len(dense)), entries), len(dense))
        self._require(are_ascending(parts, hashes), "items in order, each of them once")
        self._require(self._add_up(counts, numbers, dense, count), "counts that add up")
        return [
            make_lists(pa.array(hashes), entries, dense),
            make_lists(pa.array(counts), numbers),
            pa.array(count),
        ]

    def _unite(self, groups: Groups, states: Sequence[pa.Array]) -> list[pa.Array]:
        lists, kept, number = states
        dense = np.asarray(lists.is_null())
        count = total(groups, np.asarray(number), self.column)
        owners = np.repeat(groups.ids, list_sizes(lists))
        counts = np.asarray(kept.filter(lists.is_valid()).flatten())
        tables = np.asarray(kept.filter(pa.array(dense)).flatten()).reshape(-1, self.cells)
        return self._kept(
            Groups(owners, groups.count),
            np.asarray(lists.flatten()),
            counts,
            groups.where(dense),
            tables,
            count,
        )

    def _kept(
        self,
        groups: Groups,
        hashes: Ints,
        weights: Ints | None,
        among: Groups,
        tables: Table,
        count: Ints,
    ) -> list[pa.Array]:
        """The states of these items, which may be equal, and of these tables."""
        ids, hashes, counts = added(groups, hashes, weights)
        entries = np.bincount(ids, minlength=groups.count)
        dense = (entries > self.most_items) | (among.sizes() > 0)
        if not dense.any():
            return [
                make_lists(pa.array(hashes), entries),
                make_lists(pa.array(counts), entries),
                pa.array(count),
            ]
        number = np.cumsum(dense) - 1
        table = summed(Groups(number[among.ids], int(dense.sum())), tables)
        inside = dense[ids]
        begin = number[ids[inside]] * self.cells
        flat = table.ravel()
        for cell in cells_of(hashes[inside], self.width, self.depth):
            np.add.at(flat, begin + cell, counts[inside])
        hashes, counts = hashes[~inside], counts[~inside]
        entries[dense] = 0
        numbers = np.where(dense, self.cells, entries)
        values, starts = np.empty(int(numbers.sum()), np.int64), np.cumsum(numbers) - numbers
        values[ranges(starts, entries)] = counts
        values[ranges(starts[dense], numbers[dense])] = flat
        return [
            make_lists(pa.array(hashes), entries, dense),
            make_lists(pa.array(values), numbers),
            pa.array(count),
        ]

    def _error(self, states: Sequence[pa.Array]) -> Ints:
        """By how much a count may be above the truth, with the confidence of the sketch."""
        error = np.floor(np.asarray(states[2]) * (math.e / self.width)).astype(np.int64)
        return np.where(np.asarray(states[0].is_null()), error, 0)

    def _add_up(self, counts: Ints, numbers: Ints, dense: Mask, count: Ints) -> Mask:
        """Where the counts of the items, and those of each row of a table, are those of all."""
        groups = Groups(np.repeat(np.arange(len(dense)), numbers), len(dense))
        inside = dense[groups.ids]
        fine: Mask = groups.where(counts < np.where(inside, 0, 1)).sizes() == 0
        fine &= (count >= 0) & (~dense | (count > self.most_items))
        fine &= dense | adds_up(groups.where(~inside), counts[~inside], count)
        rows = Groups(np.arange(int(inside.sum())) // self.width, int(dense.sum()) * self.depth)
        right = adds_up(rows, counts[inside], np.repeat(count[dense], self.depth))
        fine[dense] &= right.reshape(-1, self.depth).all(axis=1)
        return fine

    def _require(self, fine: Mask, expected: str) -> None:
        require(fine, self.format.kind, expected)
