"""Item counts: what its sketches share; and count-min, for the counts of all items.

G. Cormode, S. Muthukrishnan, "An Improved Data Stream Summary: The Count-Min Sketch and its
Applications" (2005). A table has ``depth`` rows of ``width`` cells. In each row an item has a cell,
chosen by a hash, that counts it and all other items of that cell. The smallest of its cells is never
below the true count. It exceeds it by more than e / width of all items with a probability of at most
exp(-depth).

A table is large, and most groups are small. So a group stores its items, as hashes with their counts,
until they would take the room of the table, and its results are exact until then. Which of both it
stores depends on the items alone.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamops.kernel.aggregation import list_sizes, make_lists, merge_groups
from streamops.kernel.columns import combine_chunks
from streamops.kernel.errors import SketchFormatError
from streamops.kernel.groups import Groups, Ids, Ints, Mask
from streamops.sketches import conditions
from streamops.sketches.core.buffers import (
    argsort_groups,
    argsort_rows,
    cut,
    payload_error,
    put_numbers,
    ranges,
    run_starts,
    split_payloads,
    take_numbers,
)
from streamops.sketches.core.items import SEED, items, murmur3, type_name
from streamops.sketches.core.sketch import Format, Parameter

Table = npt.NDArray[np.int64]

MOST_CELLS = 1 << 24
"""128 MiB of counts."""

_HEAD = 12
_TABLE = 0xFFFFFFFF


COUNT = pa.struct([("estimate", pa.int64()), ("lower", pa.int64()), ("upper", pa.int64())])
"""How often an item has occurred."""


class CountingSketch(ABC):
    """Defaults of sketches that count items, or the sums of their weights."""

    __slots__ = ()
    column: str
    type: pa.DataType
    weight: str | None
    format: ClassVar[Format]

    @property
    def inputs(self) -> tuple[str, ...]:
        """Columns that ``update`` reads."""
        return (self.column,) if self.weight is None else (self.column, self.weight)

    @property
    def result(self) -> pa.DataType:
        """Items with estimates, their error as a share of the count, and the number of all items."""
        items = pa.list_(pa.struct([("item", self.type), *COUNT]))
        return pa.struct(
            [("items", items), ("relative_error", pa.float64()), ("count", pa.int64())]
        )

    @abstractmethod
    def estimate(self, states: Sequence[pa.Array]) -> pa.Array:
        """Items with their bounds."""

    def bounds(self, states: Sequence[pa.Array]) -> tuple[pa.Array, pa.Array]:
        """Lower and upper bounds of the count of each item of the estimate."""
        found = self.estimate(states).field("items")
        sizes, bounded = list_sizes(found), found.flatten()
        return make_lists(bounded.field("lower"), sizes), make_lists(bounded.field("upper"), sizes)

    def counted(self, groups: Groups, rows: pa.Table) -> tuple[Groups, pa.Array, Ints | None, Ints]:
        """The rows that count: their groups, items and weights; and the total of each group."""
        items = combine_chunks(rows.column(self.column))
        weights = None if self.weight is None else combine_chunks(rows.column(self.weight))
        valid, weights = weigh(items, weights, self.weight)
        if not valid.all():
            groups, items = groups.where(valid), items.filter(pa.array(valid))
        return groups, items, weights, total(groups, weights, self.column)

    def make_result(
        self,
        items: pa.Array,
        lower: Ints,
        upper: Ints,
        sizes: Ints,
        error: Ints,
        count: pa.Array,
    ) -> pa.Array:
        """The estimates, of bounded items in lists of these sizes."""
        fields = list(self.result)
        bounded = pa.StructArray.from_arrays(
            [items, *count_fields(lower, upper)], fields=list(fields[0].type.value_type)
        )
        relative = pa.array(error / np.maximum(np.asarray(count), 1))
        parts = [make_lists(bounded, sizes), relative, count]
        return pa.StructArray.from_arrays(parts, fields=fields)

    def require(self, valid: Mask, expected: str) -> None:
        """Refuse payloads that are not as expected."""
        if not valid.all():
            raise self.error(~valid, expected)

    def error(self, wrong: Mask, expected: str) -> SketchFormatError:
        """The error about payloads that are not as expected."""
        error = payload_error(wrong, "its bytes are no such sketch", expected=expected)
        error.locate(at=f"sketches, {self.format.kind}")
        return error


def count_fields(lower: Ints, upper: Ints) -> list[pa.Array]:
    """The fields of ``COUNT``: the estimate of both algorithms is the upper bound."""
    return [pa.array(upper), pa.array(lower), pa.array(upper)]


def weigh(
    items: pa.Array, weights: pa.Array | None, weight: str | None
) -> tuple[Mask, Ints | None]:
    """Which rows count, and the weights of these; None without weights.

    A row counts if neither its item nor its weight is null, and the weight is not 0. A negative one
    raises ``CHANGE_STREAM_INPUT``.
    """
    counted = np.asarray(items.is_valid())
    if weights is None:
        return counted, None
    numbers = np.asarray(weights.cast(pa.int64()).fill_null(0))
    below = counted & (numbers < 0)
    if below.any():
        raise conditions.WEIGHT_NEGATIVE.error(
            at="sketches",
            column=weight,
            got=f"weight={weight!r} with a minimum of {numbers[below].min()}",
        )
    counted &= numbers > 0
    return counted, numbers[counted]


def total(groups: Groups, weights: Ints | None, column: str) -> Ints:
    """Sum of the weights per group; ``NUMERIC_OVERFLOW`` if it does not fit."""
    if weights is None:
        return groups.sizes()
    try:
        return groups.sum_ints(weights)
    except OverflowError:
        raise conditions.SUM_OVERFLOW.error(
            at="sketches", column=column, got="a sum of weights out of range"
        ) from None


def add_counts(groups: Groups, hashes: Ints, counts: Ints | None) -> tuple[Ids, Ints, Ints]:
    """Entries by group and hash, with the counts of equal ones added; None: each is 1.

    Examples
    --------
    >>> add_counts(Groups(np.array([1, 0, 1]), 2), np.array([7, 9, 7]), None)
    (array([0, 1]), array([9, 7]), array([1, 2]))
    """
    order = argsort_rows(groups.ids, hashes, groups.count)
    ids, hashes = groups.ids[order], hashes[order]
    starts = run_starts(ids, hashes)
    if counts is None:
        sums = np.diff(np.append(starts, len(ids)))
    else:
        sums = np.add.reduceat(counts[order], starts) if len(starts) else counts[:0]
    return ids[starts], hashes[starts], sums


def find_counts(ids: Ids, hashes: Ints, counts: Ints, owners: Ids, queries: Ints) -> Ints:
    """The count of each queried hash in its own group; 0 if it is not there.

    Examples
    --------
    >>> entries = np.array([0, 1]), np.array([7, 7]), np.array([2, 3])
    >>> find_counts(*entries, np.array([1, 1]), np.array([7, 8]))
    array([3, 0])
    """
    # Queries are sorted among the entries, as entries of count 0.
    ids, hashes = np.append(ids, owners), np.append(hashes, queries)
    order = argsort_rows(ids, hashes, int(ids.max(initial=0)) + 1)
    starts = run_starts(ids[order], hashes[order])
    result = np.append(counts, np.zeros_like(queries))
    if len(starts):
        sums = np.add.reduceat(result[order], starts)
        result[order] = np.repeat(sums, np.diff(np.append(starts, len(order))))
    return result[len(counts) :]


def sums_match(groups: Groups, counts: Ints, sums: Ints) -> Mask:
    """Whether the counts of each group have this sum; they may be any integers."""
    found, is_small = wrapped_sums(groups, counts)
    result: Mask = (found == sums) & is_small
    return result


def wrapped_sums(groups: Groups, counts: Ints) -> tuple[Ints, Mask]:
    """Sums that may have wrapped around, and whether they are too small for more than one wrap."""
    found = np.zeros(groups.count, np.int64)
    np.add.at(found, groups.ids, counts)
    return found, groups.sum_floats(counts.astype(np.float64)) < 1.5 * 2**63


def are_ascending(groups: Groups, order: Ints) -> Mask:
    """Whether the entries of each group, which are adjacent, ascend."""
    wrong = np.zeros(len(order), np.bool_)
    wrong[1:] = (order[1:] <= order[:-1]) & (groups.ids[1:] == groups.ids[:-1])
    result: Mask = groups.where(wrong).sizes() == 0
    return result


def width_for(relative_error: float) -> int:
    """Cells in a row.

    Examples
    --------
    >>> width_for(0.01), width_for(0.001)
    (272, 2719)
    """
    return math.ceil(math.e / relative_error)


def depth_for(confidence: float) -> int:
    """Number of rows.

    Examples
    --------
    >>> depth_for(0.99), depth_for(0.5)
    (5, 1)
    """
    # Rounded first: 1 - 0.99 is a little more than 0.01.
    return max(math.ceil(round(-math.log(1 - confidence), 9)), 1)


def cells_of(hashes: Ints, width: int, depth: int) -> Iterator[Ids]:
    """The cell of each item, for one row after the other.

    Examples
    --------
    >>> [cells.tolist() for cells in cells_of(np.array([1, 2]), 100, 3)]
    [[4, 23], [190, 121], [264, 273]]
    """
    for row in range(depth):
        if row % 2 == 0:
            halves = murmur3(hashes, seed=SEED + row // 2)
        # The upper 32 bits, scaled to the width.
        share = (halves[row % 2] >> np.uint64(32)) * np.uint64(width)
        yield row * width + (share >> np.uint64(32)).astype(np.int64)


def add_tables(groups: Groups, tables: Table) -> Table:
    """The sum of the tables of each group."""
    result = np.zeros((groups.count, tables.shape[1]), np.int64)
    order = argsort_groups(groups.ids, groups.count)
    starts = run_starts(groups.ids[order])
    if len(starts):
        result[groups.ids[order[starts]]] = np.add.reduceat(tables[order], starts, axis=0)
    return result


@dataclass(frozen=True, slots=True)
class CountMin(CountingSketch):
    """Counts of the items of a column. Null is not an item.

    A state has ascending hashes of items with their counts, or null and the cells of the table, row
    after row; and the number of items, or the sum of their weights. ``queries`` are the items, without
    nulls, whose counts are the estimate; ``weight`` is a column of integers.
    """

    column: str
    type: pa.DataType
    width: int
    depth: int
    queries: pa.Array | None = None
    weight: str | None = None

    format: ClassVar[Format] = Format("frequency", 1)
    fields: ClassVar[tuple[tuple[str, pa.DataType], ...]] = (
        ("items", pa.list_(pa.int64())),
        ("counts", pa.list_(pa.int64())),
        ("count", pa.int64()),
    )

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """Size of the table, and type of the items."""
        return {"width": self.width, "depth": self.depth, "type": type_name(self.type)}

    @property
    def cells(self) -> int:
        """Cells of the table."""
        return self.width * self.depth

    @property
    def most_items(self) -> int:
        """Maximum number of stored items: hash and count take the room of two cells."""
        return self.cells // 2

    def update(self, groups: Groups, rows: pa.Table) -> list[pa.Array]:
        """Count the items of each group."""
        groups, column, weights, count = self.counted(groups, rows)
        empty = np.empty((0, self.cells), np.int64)
        owners = Groups(empty[:, 0], groups.count)
        return self._build(groups, items(column)[0], weights, owners, empty, count)

    def merge(self, groups: Groups, states: Sequence[pa.Array]) -> list[pa.Array]:
        """Add the tables, and the counts of equal items."""
        return merge_groups(groups, states, self._unite)

    def estimate(self, states: Sequence[pa.Array]) -> pa.Array:
        """Bounds of the counts of the queried items."""
        queries = pa.array([], self.type) if self.queries is None else self.queries
        groups, width = len(states[0]), len(queries)
        repeated = queries.take(pa.array(np.tile(np.arange(width), groups)))
        lower, upper = self.counts_of(states, np.repeat(np.arange(groups), width), repeated)
        error = self._error(states)
        return self.make_result(repeated, lower, upper, np.full(groups, width), error, states[2])

    def counts_of(
        self, states: Sequence[pa.Array], owners: Ids, queries: pa.Array
    ) -> tuple[Ints, Ints]:
        """Bounds of the counts of items, each in the state with the number of its owner; 0 for null.

        The upper bound is never below the truth. The lower one holds with the confidence of the sketch,
        and is equal to it while the state has no table.
        """
        lists, numbers, _ = states
        dense = np.asarray(lists.is_null())
        hashes, valid = items(queries)
        ids = np.repeat(np.arange(len(lists)), list_sizes(lists))
        counts = np.asarray(numbers.filter(lists.is_valid()).flatten())
        upper = find_counts(ids, np.asarray(lists.flatten()), counts, owners, hashes)
        rows = np.flatnonzero(dense[owners])
        if len(rows):
            table = np.asarray(numbers.filter(pa.array(dense)).flatten())
            start = (np.cumsum(dense) - 1)[owners[rows]] * self.cells
            cells = cells_of(hashes[rows], self.width, self.depth)
            upper[rows] = np.minimum.reduce([table[start + cell] for cell in cells])
        upper[~valid] = 0
        return np.maximum(upper - self._error(states)[owners], 0), upper

    def payload(self, states: Sequence[pa.Array]) -> pa.Array:
        """Count, number of items, the items, their counts; or the cells of the table."""
        lists, numbers, count = states
        entries, values = list_sizes(lists), list_sizes(numbers)
        dense = np.asarray(lists.is_null())
        lengths = _HEAD + 8 * (entries + values)
        data, starts = np.empty(int(lengths.sum()), np.uint8), np.cumsum(lengths) - lengths
        put_numbers(data, starts, np.asarray(count), "<i8")
        put_numbers(data, starts + 8, np.where(dense, _TABLE, entries), "<u4")
        put_numbers(data, ranges(starts + _HEAD, entries, 8), np.asarray(lists.flatten()), "<i8")
        at = ranges(starts + _HEAD + 8 * entries, values, 8)
        put_numbers(data, at, np.asarray(numbers.flatten()), "<i8")
        return cut(data, lengths)

    def revive(self, payloads: pa.Array) -> list[pa.Array]:
        """The states of payloads; every byte is checked, for all at once."""
        data, starts, lengths = split_payloads(payloads)
        self.require(lengths >= _HEAD, f"at least {_HEAD} bytes")
        count = take_numbers(data, starts, "<i8")
        header = take_numbers(data, starts + 8, "<u4").astype(np.int64)
        dense = header == _TABLE
        self.require(dense | (header <= self.most_items), f"at most {self.most_items} items")
        entries = np.where(dense, 0, header)
        values = np.where(dense, self.cells, header)
        self.require(lengths == _HEAD + 8 * (entries + values), "counts, and nothing else")
        hashes = take_numbers(data, ranges(starts + _HEAD, entries, 8), "<i8")
        counts = take_numbers(data, ranges(starts + _HEAD + 8 * entries, values, 8), "<i8")
        parts = Groups(np.repeat(np.arange(len(dense)), entries), len(dense))
        self.require(are_ascending(parts, hashes), "items in order, each of them once")
        self.require(self._are_valid(counts, values, dense, count), "counts that add up")
        return _states(hashes, entries, dense, counts, values, count)

    def _unite(self, groups: Groups, states: Sequence[pa.Array]) -> list[pa.Array]:
        lists, numbers, number = states
        dense = np.asarray(lists.is_null())
        count = total(groups, np.asarray(number), self.column)
        owners = Groups(np.repeat(groups.ids, list_sizes(lists)), groups.count)
        counts = np.asarray(numbers.filter(lists.is_valid()).flatten())
        tables = np.asarray(numbers.filter(pa.array(dense)).flatten()).reshape(-1, self.cells)
        hashes = np.asarray(lists.flatten())
        return self._build(owners, hashes, counts, groups.where(dense), tables, count)

    def _build(
        self,
        groups: Groups,
        hashes: Ints,
        weights: Ints | None,
        owners: Groups,
        tables: Table,
        count: Ints,
    ) -> list[pa.Array]:
        """The states of these items, which may be equal, and of these tables."""
        ids, hashes, counts = add_counts(groups, hashes, weights)
        entries = np.bincount(ids, minlength=groups.count)
        dense = (entries > self.most_items) | (owners.sizes() > 0)
        if not dense.any():
            return _states(hashes, entries, dense, counts, entries, count)
        index = np.cumsum(dense) - 1
        table = add_tables(Groups(index[owners.ids], int(dense.sum())), tables)
        inside = dense[ids]
        begin = index[ids[inside]] * self.cells
        flat = table.ravel()
        for cell in cells_of(hashes[inside], self.width, self.depth):
            np.add.at(flat, begin + cell, counts[inside])
        hashes, counts = hashes[~inside], counts[~inside]
        entries[dense] = 0
        sizes = np.where(dense, self.cells, entries)
        values, starts = np.empty(int(sizes.sum()), np.int64), np.cumsum(sizes) - sizes
        values[ranges(starts, entries)] = counts
        values[ranges(starts[dense], sizes[dense])] = flat
        return _states(hashes, entries, dense, values, sizes, count)

    def _error(self, states: Sequence[pa.Array]) -> Ints:
        """Maximum by which a count exceeds the truth, with the confidence of the sketch."""
        error = np.floor(np.asarray(states[2]) * (math.e / self.width)).astype(np.int64)
        return np.where(np.asarray(states[0].is_null()), error, 0)

    def _are_valid(self, counts: Ints, sizes: Ints, dense: Mask, count: Ints) -> Mask:
        """Whether the counts of items, and those of each row of a table, add up to the total."""
        groups = Groups(np.repeat(np.arange(len(dense)), sizes), len(dense))
        inside = dense[groups.ids]
        valid: Mask = groups.where(counts < np.where(inside, 0, 1)).sizes() == 0
        valid &= (count >= 0) & (~dense | (count > self.most_items))
        valid &= dense | sums_match(groups.where(~inside), counts[~inside], count)
        rows = Groups(np.arange(int(inside.sum())) // self.width, int(dense.sum()) * self.depth)
        right = sums_match(rows, counts[inside], np.repeat(count[dense], self.depth))
        valid[dense] &= right.reshape(-1, self.depth).all(axis=1)
        return valid


def _states(
    hashes: Ints, entries: Ints, dense: Mask, values: Ints, sizes: Ints, count: Ints
) -> list[pa.Array]:
    return [
        make_lists(pa.array(hashes), entries, dense),
        make_lists(pa.array(values), sizes),
        pa.array(count),
    ]
