"""Heavy hitters: the items that occur most, counted by few counters per group.

J. Misra, D. Gries, "Finding Repeated Elements" (1982), in the form that merges: P. Agarwal et
al., "Mergeable Summaries" (2012). Counts of equal items are added up; where more items are left
than there are counters, the count of the first one too many is taken off all, and what is not
above 0 goes. What was taken off is the *offset*: an item has occurred at least as often as it
has been counted, and at most so much more. With m counters, the offset is at most n / (m + 1).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from streamops.kernel.columns import combine_chunks, value_codes
from streamops.kernel.errors import SchemaError
from streamops.kernel.group_states import list_sizes, make_lists, merge_groups
from streamops.kernel.groups import Groups, Ids, Ints, Mask, pair_codes
from streamops.kernel.ordering import ranks
from streamops.sketches.core.buffers import (
    Bytes,
    corrupt,
    cut,
    item_sizes,
    items_fit,
    make_texts,
    put_numbers,
    read_items,
    require,
    split_payloads,
    take_numbers,
    write_items,
)
from streamops.sketches.core.contract import Format, Parameter
from streamops.sketches.core.sorting import argsort_rows, ranges
from streamops.sketches.core.tallies import (
    are_ascending,
    found,
    result_type,
    total,
    weighed,
)
from streamops.sketches.core.types import is_flat, is_normal, normal, type_name

__all__ = [
    "MOST_COUNTERS",
    "Frequent",
    "Parts",
    "counters_for",
    "read_images",
    "read_payloads",
    "write_images",
    "write_payloads",
]

Parts = tuple[pa.Array, Ints, Ints, Ints, Ints]
"""The items of all states, how many each has, their counts; offset and count of each state."""

_HEAD = 20


def write_payloads(parts: Parts) -> pa.Array:
    """Count, offset, number of items; their counts; the items."""
    items, sizes, counts, offset, count = parts
    lengths = _HEAD + 8 * sizes + item_sizes(items, sizes)
    data, starts = np.empty(int(lengths.sum()), np.uint8), np.cumsum(lengths) - lengths
    put_numbers(data, starts, count, "<i8")
    put_numbers(data, starts + 8, offset, "<i8")
    put_numbers(data, starts + 16, sizes, "<u4")
    put_numbers(data, ranges(starts + _HEAD, sizes, 8), counts, "<i8")
    write_items(data, starts + _HEAD + 8 * sizes, items, sizes)
    return cut(data, lengths)


def read_payloads(payloads: pa.Array, kind: pa.DataType, counters: int, what: str) -> Parts:
    """The same again.

    Raises
    ------
    SketchFormatError
        ``SKETCH_CORRUPT``: lengths do not fit.
    ArrowInvalid
        The items are no values of the type.
    """
    data, starts, lengths = split_payloads(payloads)
    require(lengths >= _HEAD, what, f"at least {_HEAD} bytes")
    count, offset = take_numbers(data, starts, "<i8"), take_numbers(data, starts + 8, "<i8")
    sizes = take_numbers(data, starts + 16, "<u4").astype(np.int64)
    require(sizes <= counters, what, f"at most {counters} items")
    require(lengths >= _HEAD + 8 * sizes, what, "a count for each item")
    counts = take_numbers(data, ranges(starts + _HEAD, sizes, 8), "<i8")
    begin, room = starts + _HEAD + 8 * sizes, lengths - _HEAD - 8 * sizes
    require(items_fit(data, begin, room, sizes, kind), what, "items, and nothing else")
    return read_items(data, begin, sizes, kind), sizes, counts, offset, count


_KIND = "an image of heavy hitters"
_IMAGE_HEAD, _EMPTY_HEAD = 32, 8
_START = np.frombuffer(bytes([4, 1, 10]), np.uint8)
_EMPTY = np.frombuffer(bytes([1, 1, 10]), np.uint8)
_LEAST, _MOST = 3, 31


def write_images(parts: Parts, counters: int) -> pa.Array:
    """The images of these states: ``binary``."""
    items, sizes, counts, offset, count = parts
    _refuse_type(items.type)
    lengths = _IMAGE_HEAD + 8 * sizes + item_sizes(items, sizes)
    data, starts = np.zeros(int(lengths.sum()), np.uint8), np.cumsum(lengths) - lengths
    for place, byte in enumerate(_START):
        data[starts + place] = byte
    data[starts + 3] = _tables(np.array([counters]))
    data[starts + 4] = _tables(sizes)
    put_numbers(data, starts + 8, sizes, "<u4")
    put_numbers(data, starts + 16, count, "<i8")
    put_numbers(data, starts + 24, offset, "<i8")
    put_numbers(data, ranges(starts + _IMAGE_HEAD, sizes, 8), counts, "<i8")
    begin = starts + _IMAGE_HEAD + 8 * sizes
    if pa.types.is_integer(items.type):
        write_items(data, begin, items, sizes)
    else:
        _write_strings(data, begin, items, sizes)
    return cut(data, lengths)


def read_images(images: pa.Array, kind: pa.DataType) -> Parts:
    """What images have of states; their items may come in any order.

    Raises
    ------
    SketchFormatError
        ``SKETCH_CORRUPT``: they are no images of such items.
    ArrowInvalid
        The items are no values of the type.
    """
    _refuse_type(kind)
    data, starts, lengths = split_payloads(images)
    require(lengths >= _EMPTY_HEAD, _KIND, "at least eight bytes")
    head = data[starts[:, None] + np.arange(3)]
    empty = (head == _EMPTY).all(axis=1)
    fine = (head == _START).all(axis=1) & (lengths >= _IMAGE_HEAD)
    require(fine | empty, _KIND, "a head of version 1, family 10")
    there = np.flatnonzero(~empty)
    sizes, offset, count = (np.zeros(len(starts), np.int64) for _ in range(3))
    sizes[there] = take_numbers(data, starts[there] + 8, "<u4")
    count[there] = take_numbers(data, starts[there] + 16, "<i8")
    offset[there] = take_numbers(data, starts[there] + 24, "<i8")
    begin, ends = starts + np.where(empty, _EMPTY_HEAD, _IMAGE_HEAD + 8 * sizes), starts + lengths
    require(begin <= ends, _KIND, "a count for each item")
    counts = take_numbers(data, ranges(starts + _IMAGE_HEAD, sizes, 8), "<i8")
    if pa.types.is_integer(kind):
        require(begin + 8 * sizes == ends, _KIND, "items, and nothing else")
        items = read_items(data, begin, sizes, kind)
    else:
        items = _read_strings(data, begin, ends, sizes, kind)
    return items, sizes, counts, offset, count


def _write_strings(data: Bytes, begin: Ids, items: pa.Array, sizes: Ints) -> None:
    """Write each string behind its length."""
    alone = np.ones(len(items), np.int64)
    lengths = item_sizes(items, alone)
    flat, starts = np.empty(int(lengths.sum()), np.uint8), np.cumsum(lengths) - lengths
    write_items(flat, starts, items, alone)
    owners = np.repeat(np.arange(len(sizes)), sizes)
    room = np.zeros(len(sizes), np.int64)
    np.add.at(room, owners, lengths)
    data[ranges(begin, room)] = flat


def _read_strings(data: Bytes, begin: Ids, ends: Ids, sizes: Ints, kind: pa.DataType) -> pa.Array:
    """Read each string behind its length; where it begins, only the one before tells."""
    at, owners = begin.copy(), np.repeat(np.arange(len(sizes)), sizes)
    first = np.cumsum(sizes) - sizes
    starts, lengths = np.zeros(len(owners), np.int64), np.zeros(len(owners), np.int64)
    for number in range(int(sizes.max(initial=0))):
        rows = np.flatnonzero(sizes > number)
        fits = np.ones(len(sizes), np.bool_)
        fits[rows] = at[rows] + 4 <= ends[rows]
        require(fits, _KIND, "a length for each item")
        place = first[rows] + number
        lengths[place] = take_numbers(data, at[rows], "<u4")
        starts[place] = at[rows] + 4
        at[rows] = starts[place] + lengths[place]
    require(at == ends, _KIND, "items, and nothing else")
    return make_texts(data[ranges(starts, lengths)], lengths, kind)


def _tables(sizes: Ints) -> Any:
    """Log2 of the size of the smallest hash table with room for so many."""
    needed = np.maximum(np.ceil(np.log2(np.maximum(sizes, 1) / 0.75)), _LEAST)
    return np.minimum(needed, _MOST).astype(np.uint8)


def _refuse_type(kind: pa.DataType) -> None:
    if not (pa.types.is_string(kind) or kind == pa.int64()):
        raise SchemaError(
            "NO_APACHE_ITEMS",
            "Apache DataSketches writes items of other types in ways of their own",
            where="sketches, heavy hitters",
            got=f"items of type {type_name(kind)}",
            expected="string or bigint",
            fix="count the column as a string or a bigint",
        )


MOST_COUNTERS = 1_000_000
# Of a product of doubles: that a share is written in binary must not cost an item its place.
_ALMOST = 1 - 2.0**-50


def counters_for(at_least: float) -> int:
    """How many counters find all items of this share, with bounds four times as sharp.

    Examples
    --------
    >>> counters_for(0.01), counters_for(0.3)
    (400, 14)
    """
    return math.ceil(4 / at_least)


@dataclass(frozen=True, slots=True)
class Frequent:
    """The most frequent items of a column. Null is no item, and NaN is one.

    A state is the list of the items that have a counter, ascending, each with its count; the
    offset; and the number of items, or the sum of their weights.

    Parameters
    ----------
    column : str
    type : DataType
        Of the items: one whose values can be ordered, nested or not.
    counters : int
        Items kept per group.
    at_least : float, optional
        The share of an item that is told; without, all that are kept are.
    top : int, optional
        How many are told at most.
    weight : str, optional
        A column of integers: how often an item counts.
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
        """How many counters, and of what."""
        return {"counters": self.counters, "type": type_name(self.type)}

    @property
    def inputs(self) -> tuple[str, ...]:
        """Columns that ``update`` reads."""
        return (self.column,) if self.weight is None else (self.column, self.weight)

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

    @property
    def result(self) -> pa.DataType:
        """The items, most frequent first, between which bounds each of them lies, and how many."""
        return result_type(self.type)

    def update(self, groups: Groups, rows: pa.Table) -> list[pa.Array]:
        """Count the items of each group."""
        items = combine_chunks(rows.column(self.column))
        weights = None if self.weight is None else combine_chunks(rows.column(self.weight))
        counted, weights = weighed(items, weights, self.weight)
        if not counted.all():
            groups, items = groups.where(counted), items.filter(pa.array(counted))
        count = total(groups, weights, self.column)
        return self._kept(groups, items, weights, np.zeros(groups.count, np.int64), count)

    def merge(self, groups: Groups, states: Sequence[pa.Array]) -> list[pa.Array]:
        """Add up the counters of equal items; offsets add up, too."""
        return merge_groups(groups, states, self._unite)

    def estimate(self, states: Sequence[pa.Array]) -> pa.Array:
        """The items of at least the share asked for, most frequent first, then ascending."""
        lists, offset, count = states
        entries, owners, counts = _flat(lists)
        error = np.asarray(offset)
        order = np.lexsort((-counts, owners))  # stable: items are ascending already
        owners, counts = owners[order], counts[order]
        upper = counts + error[owners]
        told = np.ones(len(order), np.bool_)
        if self.at_least is not None:
            told = upper >= np.ceil(self.at_least * np.asarray(count) * _ALMOST)[owners]
        if self.top is not None:
            # Most frequent first: what is told stands before what is not.
            sizes = list_sizes(lists)
            told &= np.arange(len(order)) - (np.cumsum(sizes) - sizes)[owners] < self.top
        bounded = pa.StructArray.from_arrays(
            [
                entries.field(0).take(pa.array(order[told])),
                pa.array(counts[told]),
                pa.array(upper[told]),
            ],
            fields=list(self.result.field("items").type.value_type),
        )
        sizes = np.bincount(owners[told], minlength=len(lists))
        return pa.StructArray.from_arrays(
            [make_lists(bounded, sizes), offset, count], fields=list(self.result)
        )

    def bounds(self, states: Sequence[pa.Array]) -> tuple[pa.Array, pa.Array]:
        """How often each item told has occurred, at least and at most."""
        items = self.estimate(states).field("items")
        sizes, bounded = list_sizes(items), items.flatten()
        return make_lists(bounded.field("lower"), sizes), make_lists(bounded.field("upper"), sizes)

    def counts_of(
        self, states: Sequence[pa.Array], owners: Ids, asked: pa.Array
    ) -> tuple[Ints, Ints]:
        """How often items have occurred, each in a state of its own: at least, and at most.

        Parameters
        ----------
        states : list of Array
        owners : array of int64
            The number of the state that each item is looked up in.
        asked : Array
            The items, of the type of the sketch; a null has been counted 0 times.
        """
        lists, offset, _ = states
        entries, ids, counts = _flat(lists)
        known = value_codes(pa.concat_arrays([entries.field(0), asked]))
        lower = found(ids, known[: len(ids)], counts, owners, known[len(ids) :])
        return lower, lower + np.where(asked.is_valid(), np.asarray(offset)[owners], 0)

    def payload(self, states: Sequence[pa.Array]) -> pa.Array:
        """Count, offset, number of items; their counts; the items: ascending."""
        assert is_flat(self.type), "items of nested types have no bytes"
        return write_payloads(self._parts(states))

    def revive(self, payloads: pa.Array) -> list[pa.Array]:
        """The states again; every byte is checked, for all at once.

        Raises
        ------
        SketchFormatError
            ``SKETCH_CORRUPT``: they are no payload of these parameters.
        """
        kind = self.format.kind
        try:
            items, sizes, *rest = read_payloads(payloads, self.type, self.counters, kind)
        except pa.ArrowInvalid as error:
            raise corrupt(kind, str(error), f"items of type {type_name(self.type)}") from None
        counts, offset, count = rest
        groups = self._promised(sizes, counts, offset, count)
        known = are_ascending(groups, ranks(items)) & _all(groups, is_normal(items))
        require(known, kind, "items in order, each of them once")
        entries = pa.StructArray.from_arrays([items, pa.array(counts)], fields=self._entry)
        return [make_lists(entries, sizes), pa.array(offset), pa.array(count)]

    def images(self, states: Sequence[pa.Array]) -> pa.Array:
        """Each state as Apache's image: ``binary``."""
        return write_images(self._parts(states), self.counters)

    def from_images(self, images: pa.Array) -> list[pa.Array]:
        """The states of Apache's images, cut to as many counters.

        Raises
        ------
        SketchFormatError
            ``SKETCH_CORRUPT``: no such images, or their error is above what is promised here.
        """
        try:
            items, sizes, counts, offset, count = read_images(images, self.type)
        except pa.ArrowInvalid as error:
            raise corrupt(self.format.kind, str(error), "items in UTF-8") from None
        groups = self._promised(sizes, counts, offset, count)
        return self._kept(groups, items, counts, offset, count)

    def _unite(self, groups: Groups, states: Sequence[pa.Array]) -> list[pa.Array]:
        lists, offset, count = states
        entries, owners, counts = _flat(lists)
        number = total(groups, np.asarray(count), self.column)
        error = groups.sum_ints(np.asarray(offset))  # which is far below
        parts = Groups(groups.ids[owners], groups.count)
        return self._kept(parts, entries.field(0), counts, error, number)

    def _kept(
        self, groups: Groups, items: pa.Array, weights: Ints | None, offset: Ints, count: Ints
    ) -> list[pa.Array]:
        """The states of these items, which may be equal."""
        items = normal(items)
        alike, firsts = Groups.of(pair_codes(groups.ids, value_codes(items)))
        counts = alike.sizes() if weights is None else alike.sum_ints(weights)
        ids, items = groups.ids[firsts], items.take(pa.array(firsts))
        cut = self._cut(Groups(ids, groups.count), counts)
        if cut.any():
            counts = counts - cut[ids]
            kept = counts > 0
            ids, items, counts = ids[kept], items.filter(pa.array(kept)), counts[kept]
        order = argsort_rows(ids, ranks(items), groups.count)
        entries = pa.StructArray.from_arrays(
            [items.take(pa.array(order)), pa.array(counts[order])],
            fields=self._entry,
        )
        sizes = np.bincount(ids, minlength=groups.count)
        return [make_lists(entries, sizes), pa.array(offset + cut), pa.array(count)]

    def _cut(self, groups: Groups, counts: Ints) -> Ints:
        """The count of the first item too many of each group, 0 where there is none."""
        result, sizes = np.zeros(groups.count, np.int64), groups.sizes()
        full = sizes > self.counters
        if full.any():
            rows = np.flatnonzero(full[groups.ids])
            # Which of several equal counts stands there does not matter: all of them go.
            order = rows[argsort_rows(groups.ids[rows], -counts[rows], groups.count)]
            starts = np.cumsum(sizes[full]) - sizes[full]
            result[full] = counts[order[starts + self.counters]]
        return result

    def _parts(self, states: Sequence[pa.Array]) -> Parts:
        lists, offset, count = states
        entries, _, counts = _flat(lists)
        return entries.field(0), list_sizes(lists), counts, np.asarray(offset), np.asarray(count)

    def _promised(self, sizes: Ints, counts: Ints, offset: Ints, count: Ints) -> Groups:
        """The groups of these counts, of which none is below 1, and whose error is within its bound."""
        groups = Groups(np.repeat(np.arange(len(sizes)), sizes), len(sizes))
        summed = np.zeros(groups.count, np.int64)
        np.add.at(summed, groups.ids, counts)
        # Wrapped around once, a sum is negative; beyond that, it is out of the range of two.
        fine = (summed >= 0) & (groups.sum_floats(counts.astype(np.float64)) < 1.5 * 2**63)
        fine &= _all(groups, counts >= 1)
        fine &= (count >= 0) & (offset >= 0) & (offset <= count // (self.counters + 1))
        room = count - np.where(fine, offset, 0) * (self.counters + 1)
        fine &= np.where(offset == 0, summed == count, summed <= room)
        require(fine, self.format.kind, "counts as promised")
        return groups


def _all(groups: Groups, fine: Mask) -> Mask:
    """Where it is so of every entry."""
    result: Mask = groups.where(~fine).sizes() == 0
    return result


def _flat(lists: pa.Array) -> tuple[pa.Array, Ids, Ints]:
    """The entries of all lists, the number of each one's list, and its count."""
    entries = lists.flatten()
    owners = np.repeat(np.arange(len(lists)), list_sizes(lists))
    return entries, owners, np.asarray(entries.field(1))
