"""Heavy hitters: the items that occur most, counted by few counters per group.

J. Misra, D. Gries, "Finding Repeated Elements" (1982), in the form that merges: P. Agarwal et
al., "Mergeable Summaries" (2012). Counts of equal items are added. If there are more items than
counters, the count of the first item too many is subtracted from all, and items whose count is then
not positive are removed. The sum of what was subtracted is the *offset*: an item has occurred at least
as often as its count, and at most `offset` times more. With m counters, the offset is at most n / (m + 1).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from streamops.kernel.aggregation import list_sizes, make_lists, merge_groups
from streamops.kernel.columns import value_codes
from streamops.kernel.groups import Groups, Ids, Ints, Mask, pair_codes
from streamops.kernel.ordering import ranks
from streamops.sketches import conditions
from streamops.sketches.core.buffers import (
    Bytes,
    argsort_rows,
    cut,
    item_sizes,
    items_fit,
    make_texts,
    put_numbers,
    ranges,
    read_items,
    split_payloads,
    take_numbers,
    write_items,
)
from streamops.sketches.core.countmin import (
    CountingSketch,
    are_ascending,
    find_counts,
    total,
    wrapped_sums,
)
from streamops.sketches.core.items import is_flat, is_normal, normal, type_name
from streamops.sketches.core.sketch import Format, Parameter

Parts = tuple[pa.Array, Ints, Ints, Ints, Ints]
"""Items of all states, number of items of each, counts of the items; offset and count of each state."""

MOST_COUNTERS = 1_000_000
# Tolerance of a product of doubles: an item with exactly the share must not be lost by rounding.
_ALMOST = 1 - 2.0**-50

_HEAD = 20
# Images of Apache DataSketches.
_IMAGE_HEAD, _EMPTY_HEAD = 32, 8
_START = np.frombuffer(bytes([4, 1, 10]), np.uint8)
_EMPTY = np.frombuffer(bytes([1, 1, 10]), np.uint8)
_LEAST, _MOST = 3, 31


def counters_for(at_least: float) -> int:
    """Number of counters that find all items of this share, with bounds four times as narrow.

    Examples
    --------
    >>> counters_for(0.01), counters_for(0.3)
    (400, 14)
    """
    return math.ceil(4 / at_least)


@dataclass(frozen=True, slots=True)
class Frequent(CountingSketch):
    """The most frequent items of a column, of a type with an order. Null is not an item, NaN is one.

    A state has the list of the items with a counter, ascending, each with its count; the offset; and
    the number of items, or the sum of their weights. The estimate has the items whose share is
    ``at_least`` this one, and the ``top`` most frequent of them; None: all stored items.
    """

    column: str
    type: pa.DataType
    counters: int
    at_least: float | None = None
    top: int | None = None
    weight: str | None = None

    format: ClassVar[Format] = Format("heavy_hitters", 1)
    merges_exactly: ClassVar[bool] = False

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """Number of counters, and type of the items."""
        return {"counters": self.counters, "type": type_name(self.type)}

    @property
    def fields(self) -> tuple[tuple[str, pa.DataType], ...]:
        """The counters, the offset, and the number of items."""
        return (
            ("items", pa.list_(pa.struct(self._entry))),
            ("offset", pa.int64()),
            ("count", pa.int64()),
        )

    @property
    def _entry(self) -> list[pa.Field]:
        return [pa.field("item", self.type), pa.field("count", pa.int64())]

    def update(self, groups: Groups, rows: pa.Table) -> list[pa.Array]:
        """Count the items of each group."""
        groups, items, weights, count = self.counted(groups, rows)
        return self._build(groups, items, weights, np.zeros(groups.count, np.int64), count)

    def merge(self, groups: Groups, states: Sequence[pa.Array]) -> list[pa.Array]:
        """Add the counters of equal items, and the offsets."""
        return merge_groups(groups, states, self._unite)

    def estimate(self, states: Sequence[pa.Array]) -> pa.Array:
        """Items of at least the share, most frequent first, then ascending."""
        lists, offset, count = states
        entries, owners, counts = _flat(lists)
        error = np.asarray(offset)
        order = np.lexsort((-counts, owners))  # stable: items are ascending already
        owners, counts = owners[order], counts[order]
        upper = counts + error[owners]
        chosen = np.ones(len(order), np.bool_)
        if self.at_least is not None:
            chosen = upper >= np.ceil(self.at_least * np.asarray(count) * _ALMOST)[owners]
        if self.top is not None:
            # Items are most frequent first: those with the share precede the others.
            sizes = list_sizes(lists)
            chosen &= np.arange(len(order)) - (np.cumsum(sizes) - sizes)[owners] < self.top
        items = entries.field(0).take(pa.array(order[chosen]))
        sizes = np.bincount(owners[chosen], minlength=len(lists))
        return self.make_result(items, counts[chosen], upper[chosen], sizes, error, count)

    def counts_of(
        self, states: Sequence[pa.Array], owners: Ids, queries: pa.Array
    ) -> tuple[Ints, Ints]:
        """Bounds of the counts of items, each in the state with the number of its owner; 0 for null."""
        lists, offset, _ = states
        entries, ids, counts = _flat(lists)
        known = value_codes(pa.concat_arrays([entries.field(0), queries]))
        lower = find_counts(ids, known[: len(ids)], counts, owners, known[len(ids) :])
        return lower, lower + np.where(queries.is_valid(), np.asarray(offset)[owners], 0)

    def payload(self, states: Sequence[pa.Array]) -> pa.Array:
        """Count, offset, number of items; their counts; the items: ascending."""
        assert is_flat(self.type), "items of nested types have no bytes"
        items, sizes, counts, offset, count = self._parts(states)
        lengths = _HEAD + 8 * sizes + item_sizes(items, sizes)
        data, starts = np.empty(int(lengths.sum()), np.uint8), np.cumsum(lengths) - lengths
        put_numbers(data, starts, count, "<i8")
        put_numbers(data, starts + 8, offset, "<i8")
        put_numbers(data, starts + 16, sizes, "<u4")
        put_numbers(data, ranges(starts + _HEAD, sizes, 8), counts, "<i8")
        write_items(data, starts + _HEAD + 8 * sizes, items, sizes)
        return cut(data, lengths)

    def revive(self, payloads: pa.Array) -> list[pa.Array]:
        """The states of payloads; every byte is checked, for all at once."""
        try:
            items, sizes, counts, offset, count = self._read_payloads(payloads)
        except pa.ArrowInvalid as error:
            every = np.ones(len(payloads), np.bool_)
            raise self.error(every, f"items of type {type_name(self.type)}") from error
        groups = self._verify(sizes, counts, offset, count)
        known = are_ascending(groups, ranks(items)) & _all(groups, is_normal(items))
        self.require(known, "items in order, each of them once")
        entries = pa.StructArray.from_arrays([items, pa.array(counts)], fields=self._entry)
        return [make_lists(entries, sizes), pa.array(offset), pa.array(count)]

    def images(self, states: Sequence[pa.Array]) -> pa.Array:
        """Each state as an image of Apache DataSketches: ``binary``."""
        items, sizes, counts, offset, count = self._parts(states)
        self._refuse_type()
        lengths = _IMAGE_HEAD + 8 * sizes + item_sizes(items, sizes)
        data, starts = np.zeros(int(lengths.sum()), np.uint8), np.cumsum(lengths) - lengths
        for position, byte in enumerate(_START):
            data[starts + position] = byte
        data[starts + 3] = _table_size(np.array([self.counters]))
        data[starts + 4] = _table_size(sizes)
        put_numbers(data, starts + 8, sizes, "<u4")
        put_numbers(data, starts + 16, count, "<i8")
        put_numbers(data, starts + 24, offset, "<i8")
        put_numbers(data, ranges(starts + _IMAGE_HEAD, sizes, 8), counts, "<i8")
        begin = starts + _IMAGE_HEAD + 8 * sizes
        if pa.types.is_integer(self.type):
            write_items(data, begin, items, sizes)
        else:
            _write_strings(data, begin, items, sizes)
        return cut(data, lengths)

    def from_images(self, images: pa.Array) -> list[pa.Array]:
        """The states of images, reduced to as many counters.

        Raises ``SKETCH_CORRUPT`` if the bytes are not images, or if their error exceeds the error of this sketch.
        """
        try:
            items, sizes, counts, offset, count = self._read_images(images)
        except pa.ArrowInvalid as error:
            raise self.error(np.ones(len(images), np.bool_), "items in UTF-8") from error
        groups = self._verify(sizes, counts, offset, count)
        return self._build(groups, items, counts, offset, count)

    def _read_payloads(self, payloads: pa.Array) -> Parts:
        """The parts of payloads; ``ArrowInvalid`` if the items are no values of the type."""
        data, starts, lengths = split_payloads(payloads)
        self.require(lengths >= _HEAD, f"at least {_HEAD} bytes")
        count, offset = take_numbers(data, starts, "<i8"), take_numbers(data, starts + 8, "<i8")
        sizes = take_numbers(data, starts + 16, "<u4").astype(np.int64)
        self.require(sizes <= self.counters, f"at most {self.counters} items")
        self.require(lengths >= _HEAD + 8 * sizes, "a count for each item")
        counts = take_numbers(data, ranges(starts + _HEAD, sizes, 8), "<i8")
        begin, room = starts + _HEAD + 8 * sizes, lengths - _HEAD - 8 * sizes
        self.require(items_fit(data, begin, room, sizes, self.type), "items, and nothing else")
        return read_items(data, begin, sizes, self.type), sizes, counts, offset, count

    def _read_images(self, images: pa.Array) -> Parts:
        """The parts of images, whose items are in any order; ``ArrowInvalid`` as for payloads."""
        self._refuse_type()
        data, starts, lengths = split_payloads(images)
        self.require(lengths >= _EMPTY_HEAD, "at least eight bytes")
        head = data[starts[:, None] + np.arange(3)]
        empty = (head == _EMPTY).all(axis=1)
        filled = (head == _START).all(axis=1) & (lengths >= _IMAGE_HEAD)
        self.require(filled | empty, "a head of version 1, family 10")
        present = np.flatnonzero(~empty)
        sizes, offset, count = (np.zeros(len(starts), np.int64) for _ in range(3))
        sizes[present] = take_numbers(data, starts[present] + 8, "<u4")
        count[present] = take_numbers(data, starts[present] + 16, "<i8")
        offset[present] = take_numbers(data, starts[present] + 24, "<i8")
        begin = starts + np.where(empty, _EMPTY_HEAD, _IMAGE_HEAD + 8 * sizes)
        ends = starts + lengths
        self.require(begin <= ends, "a count for each item")
        counts = take_numbers(data, ranges(starts + _IMAGE_HEAD, sizes, 8), "<i8")
        if pa.types.is_integer(self.type):
            self.require(begin + 8 * sizes == ends, "items, and nothing else")
            items = read_items(data, begin, sizes, self.type)
        else:
            items = self._read_strings(data, begin, ends, sizes)
        return items, sizes, counts, offset, count

    def _read_strings(self, data: Bytes, begin: Ids, ends: Ids, sizes: Ints) -> pa.Array:
        """Read strings, each after its length: a loop, since each begins where the last one ends."""
        at, owners = begin.copy(), np.repeat(np.arange(len(sizes)), sizes)
        first = np.cumsum(sizes) - sizes
        starts, lengths = np.zeros(len(owners), np.int64), np.zeros(len(owners), np.int64)
        for number in range(int(sizes.max(initial=0))):
            rows = np.flatnonzero(sizes > number)
            fits = np.ones(len(sizes), np.bool_)
            fits[rows] = at[rows] + 4 <= ends[rows]
            self.require(fits, "a length for each item")
            index = first[rows] + number
            lengths[index] = take_numbers(data, at[rows], "<u4")
            starts[index] = at[rows] + 4
            at[rows] = starts[index] + lengths[index]
        self.require(at == ends, "items, and nothing else")
        return make_texts(data[ranges(starts, lengths)], lengths, self.type)

    def _unite(self, groups: Groups, states: Sequence[pa.Array]) -> list[pa.Array]:
        lists, offset, count = states
        entries, owners, counts = _flat(lists)
        number = total(groups, np.asarray(count), self.column)
        error = groups.sum_ints(np.asarray(offset))  # smaller than the sum of the counts
        parts = Groups(groups.ids[owners], groups.count)
        return self._build(parts, entries.field(0), counts, error, number)

    def _build(
        self, groups: Groups, items: pa.Array, weights: Ints | None, offset: Ints, count: Ints
    ) -> list[pa.Array]:
        """The states of these items, which may be equal."""
        items = normal(items)
        alike, firsts = Groups.of(pair_codes(groups.ids, value_codes(items)))
        counts = alike.sizes() if weights is None else alike.sum_ints(weights)
        ids, items = groups.ids[firsts], items.take(pa.array(firsts))
        excess = self._excess(Groups(ids, groups.count), counts)
        if excess.any():
            counts = counts - excess[ids]
            stays = counts > 0
            ids, items, counts = ids[stays], items.filter(pa.array(stays)), counts[stays]
        order = argsort_rows(ids, ranks(items), groups.count)
        entries = pa.StructArray.from_arrays(
            [items.take(pa.array(order)), pa.array(counts[order])],
            fields=self._entry,
        )
        sizes = np.bincount(ids, minlength=groups.count)
        return [make_lists(entries, sizes), pa.array(offset + excess), pa.array(count)]

    def _excess(self, groups: Groups, counts: Ints) -> Ints:
        """The count of the first item too many of each group, 0 if there is none."""
        result, sizes = np.zeros(groups.count, np.int64), groups.sizes()
        full = sizes > self.counters
        if full.any():
            rows = np.flatnonzero(full[groups.ids])
            # The order of equal counts does not matter: all of them are removed.
            order = rows[argsort_rows(groups.ids[rows], -counts[rows], groups.count)]
            starts = np.cumsum(sizes[full]) - sizes[full]
            result[full] = counts[order[starts + self.counters]]
        return result

    def _parts(self, states: Sequence[pa.Array]) -> Parts:
        lists, offset, count = states
        entries, _, counts = _flat(lists)
        return entries.field(0), list_sizes(lists), counts, np.asarray(offset), np.asarray(count)

    def _verify(self, sizes: Ints, counts: Ints, offset: Ints, count: Ints) -> Groups:
        """The groups of these counts, if all are positive and the error is within its bound."""
        groups = Groups(np.repeat(np.arange(len(sizes)), sizes), len(sizes))
        sums, valid = wrapped_sums(groups, counts)
        valid &= (sums >= 0) & _all(groups, counts >= 1)
        valid &= (count >= 0) & (offset >= 0) & (offset <= count // (self.counters + 1))
        room = count - np.where(valid, offset, 0) * (self.counters + 1)
        valid &= np.where(offset == 0, sums == count, sums <= room)
        self.require(valid, "counts within the bounds of the sketch")
        return groups

    def _refuse_type(self) -> None:
        if not (pa.types.is_string(self.type) or self.type == pa.int64()):
            raise conditions.NO_APACHE_ITEMS.error(
                at="sketches, heavy hitters", got=f"items of type {type_name(self.type)}"
            )


def _write_strings(data: Bytes, begin: Ids, items: pa.Array, sizes: Ints) -> None:
    """Write each string after its length."""
    alone = np.ones(len(items), np.int64)
    lengths = item_sizes(items, alone)
    flat, starts = np.empty(int(lengths.sum()), np.uint8), np.cumsum(lengths) - lengths
    write_items(flat, starts, items, alone)
    owners = np.repeat(np.arange(len(sizes)), sizes)
    room = np.zeros(len(sizes), np.int64)
    np.add.at(room, owners, lengths)
    data[ranges(begin, room)] = flat


def _table_size(sizes: Ints) -> Any:
    """Log2 of the size of the smallest hash table with room for so many."""
    needed = np.maximum(np.ceil(np.log2(np.maximum(sizes, 1) / 0.75)), _LEAST)
    return np.minimum(needed, _MOST).astype(np.uint8)


def _all(groups: Groups, valid: Mask) -> Mask:
    """Whether all entries of each group are valid."""
    result: Mask = groups.where(~valid).sizes() == 0
    return result


def _flat(lists: pa.Array) -> tuple[pa.Array, Ids, Ints]:
    """The entries of all lists, the number of the list of each, and its count."""
    entries = lists.flatten()
    owners = np.repeat(np.arange(len(lists)), list_sizes(lists))
    return entries, owners, np.asarray(entries.field(1))
