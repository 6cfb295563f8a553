"""Bloom filters of groups: which values there are, and about how many.

A sketch is *sparse* while its items take less room than the bits of its filter: it stores the items.
Beyond that it is *dense*, and stores the bits. Both depend on the set of items alone, and so does every
byte. Queries give the same results in both: a sparse sketch is queried as the filter of its items.

Payload, version 1 (``docs/state-formats.md``): the ascending items as int64, fewer than the filter has
words of 64 bits; or these words.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamops.kernel.aggregation import merge_groups
from streamops.kernel.columns import combine_chunks
from streamops.kernel.errors import Condition, SpecError, located
from streamops.kernel.groups import Floats, Groups, Ids, Ints, Mask
from streamops.kernel.hashing import xxhash64
from streamops.sketches import conditions
from streamops.sketches.core.buffers import (
    argsort_rows,
    lengths_of,
    make_binary,
    refuse_payloads,
    run_starts,
    split_binary,
)
from streamops.sketches.core.items import group_items
from streamops.sketches.core.sketch import NUMBER, ColumnSketch, Format, Parameter

FilterBits = npt.NDArray[np.uint64]
Positions = npt.NDArray[np.uint64]
"""One row per probe, one column per item: the number of a bit."""

MOST_BITS = 1 << 28
"""Maximum bits of one filter: 32 bits of a hash reach so many equally often."""

_LEAST_RATE, _MOST_RATE = 1e-9, 0.5
_WORD = 64
_SIX, _LOW, _HALF = np.uint64(6), np.uint64(63), np.uint64(32)
_LOWER = np.uint64(0xFFFFFFFF)

_FEW = 32
"""Bits are set one by one if they are fewer than this fraction of the filter."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Bits of a filter, a multiple of 64, and probes: bits that an item sets."""

    bits: int
    probes: int

    @classmethod
    def of(cls, capacity: int, rate: float) -> Shape:
        """The smallest shape whose rate of false positives with `capacity` items is at most `rate`.

        Examples
        --------
        >>> Shape.of(1_000_000, 0.01)
        Shape(bits=9593024, probes=7)
        """
        best = math.log2(1 / rate)
        whole = {max(1, math.floor(best)), max(1, math.ceil(best))}
        least, probes = min((_bits(capacity, rate, probes), probes) for probes in sorted(whole))
        # One bit more per probe: the formula is for the mean number of bits that are set, and the
        # rate grows faster than that number.
        return cls(-(-(least + probes) // _WORD) * _WORD, probes)

    @property
    def length(self) -> int:
        """Length of the array, in words of 64 bits."""
        return self.bits // _WORD

    def rate(self, items: float) -> float:
        """Expected share of false positives among items that are not in the filter.

        Examples
        --------
        >>> round(Shape(bits=9593024, probes=7).rate(1_000_000), 4)
        0.01
        """
        return float(-math.expm1(-self.probes * items / self.bits)) ** self.probes


def _bits(capacity: int, rate: float, probes: int) -> int:
    return math.ceil(-probes * capacity / math.log1p(-(rate ** (1 / probes))))


def positions(shape: Shape, items: Ints) -> Positions:
    """The bits that each item sets.

    Examples
    --------
    >>> positions(Shape(bits=640, probes=3), np.array([7, -7])).tolist()
    [[412, 490], [88, 432], [516, 102]]
    """
    result = np.empty((shape.probes, len(items)), np.uint64)
    column, bits = pa.array(items), np.uint64(shape.bits)
    for probe in range(0, shape.probes, 2):
        hashes = xxhash64([column], seed=_seed(probe // 2)).view(np.uint64)
        # Scaled from 2^32 to the size of the filter, without a division.
        result[probe] = ((hashes >> _HALF) * bits) >> _HALF
        if probe + 1 < shape.probes:
            result[probe + 1] = ((hashes & _LOWER) * bits) >> _HALF
    return result


def _seed(number: int) -> int:
    """The seed of ``xxhash64(number, item)`` in SQL: the hash of the number."""
    return int(xxhash64([pa.array([number], pa.int32())])[0])


def contained(array: FilterBits, probes: Positions, among: Ids) -> Ids:
    """The positions, out of `among`, of items that may be in the filter."""
    for probe in probes:
        if not len(among):
            break
        bits = probe[among]
        there = (array[(bits >> _SIX).view(np.int64)] >> (bits & _LOW)) & np.uint64(1)
        among = among[there.astype(np.bool_)]
    return among


def filled(array: FilterBits, probes: Positions) -> FilterBits:
    """A copy of the filter in which these bits are set, too."""
    if probes.size * _FEW < len(array) * _WORD:
        result = array.copy()
        bits = probes.ravel()
        masks = np.uint64(1) << (bits & _LOW)
        np.bitwise_or.at(result, (bits >> _SIX).view(np.int64), masks)
        return result
    spread = np.unpackbits(array.view(np.uint8), bitorder="little")
    spread[probes.ravel().view(np.int64)] = 1
    return np.packbits(spread, bitorder="little").view(np.uint64)


def ones(array: FilterBits) -> Floats:
    """Number of bits that are set in each word.

    Examples
    --------
    >>> ones(np.array([0, 5, 2**64 - 1], np.uint64)).tolist()
    [0.0, 2.0, 64.0]
    """
    found = _ONES[array.view(np.uint8)].reshape(-1, 8)
    return np.asarray(found.sum(axis=1, dtype=np.float64))


_ONES = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(axis=1, dtype=np.uint8)


def require_capacity(capacity: object) -> None:
    """Refuse a capacity that is not a positive integer."""
    if type(capacity) is not int or capacity < 1:
        raise conditions.CAPACITY_OUT_OF_RANGE.error(got=f"capacity={capacity!r}")


def require_rate(rate: object) -> float:
    """Refuse a rate that is out of range."""
    if type(rate) is float and _LEAST_RATE <= rate <= _MOST_RATE:
        return rate
    raise conditions.RATE_OUT_OF_RANGE.error(
        least_rate=_LEAST_RATE, most_rate=_MOST_RATE, got=f"false_positive_rate={rate!r}"
    )


def refuse_large(condition: Condition[SpecError], got: str, **facts: Any) -> NoReturn:
    """Refuse a filter with too many bits."""
    size = MOST_BITS // 8 // 1024**2
    raise condition.error(bits=MOST_BITS, size=size, got=got, **facts)


LAYOUT = pa.schema([("cell", pa.int64()), ("items", pa.int64()), ("filter", pa.binary())])

NEVER = -(1 << 62)
"""The cell of an item that was never seen."""

_ALMOST = 1 + 1e-9  # tolerance for the rounding of a sum of rates


_NO_ITEMS = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Generation:
    """A filter of the items that were first seen in one cell.

    Parameters
    ----------
    cell : int
    items : int
        How many they are.
    bits : array of uint64
    segment : int
        Number of the segment with the filter; 0 if there is none.
    recent : array of int64
        Those of the items that were added after the segment was written.
    """

    cell: int
    items: int
    bits: FilterBits
    segment: int = 0
    recent: Ints = field(default_factory=lambda: _NO_ITEMS)

    def add(self, items: Ints, probes: Positions) -> Generation:
        """With further items and their bits."""
        recent = np.concatenate([self.recent, items])
        bits = filled(self.bits, probes)
        return Generation(self.cell, self.items + len(items), bits, self.segment, recent)


@dataclass(frozen=True, slots=True)
class Rotation:
    """Rules by which generations are filled, and new ones begin."""

    shape: Shape
    room: int
    """Items that a generation is meant for. The next item begins another one of the same cell."""
    rate: float
    """Limit of the false positive rate of all generations together."""
    most: int
    """Number of generations from which on a full one takes further items."""

    def is_full(self, generations: Sequence[Generation], others: float = 0.0) -> bool:
        """Whether the rate is exceeded. The rate of several filters is at most the sum of theirs.

        ``others`` is the rate of other filters.
        """
        rates = (self.shape.rate(generation.items) for generation in generations)
        return sum(rates) + others > self.rate * _ALMOST

    def add(
        self, generations: Sequence[Generation], cell: int, items: Ints, probes: Positions
    ) -> list[Generation]:
        """Add items with these bits to a cell. The result is sorted by cell."""
        result = list(generations)
        done, count = 0, len(items)
        while done < count:
            end = sum(other.cell <= cell for other in result)  # behind the last one of the cell
            last = result[end - 1] if end else None
            is_closed = last is not None and last.items >= self.room and len(result) < self.most
            if last is None or last.cell != cell or is_closed:
                last = Generation(cell, 0, np.zeros(self.shape.length, np.uint64))
                result.insert(end, last)
                end += 1
            free = self.room - last.items
            stop = min(count, done + free) if free > 0 else count
            result[end - 1] = last.add(items[done:stop], probes[:, done:stop])
            done = stop
        return result


def newest_cells(generations: Sequence[Generation], probes: Positions) -> Ids:
    """The newest cell of a generation that contains each item, or ``NEVER``."""
    count = probes.shape[1]
    found, rest = np.full(count, NEVER), np.arange(count)
    for generation in reversed(generations):
        there = contained(generation.bits, probes, rest)
        if len(there):
            found[there] = generation.cell
            rest = np.flatnonzero(found == NEVER)
    return found


def encode_generations(generations: Sequence[Generation]) -> pa.Table:
    """The generations as a table of the state."""
    columns = [
        [generation.cell for generation in generations],
        [generation.items for generation in generations],
        [generation.bits.tobytes() for generation in generations],
    ]
    arrays = [pa.array(c, dtype) for c, dtype in zip(columns, LAYOUT.types, strict=True)]
    return pa.table(arrays, schema=LAYOUT)


def decode_generations(table: pa.Table) -> list[Generation]:
    """The generations of a table of the state."""
    cells, items = (table.column(i).to_pylist() for i in (0, 1))
    filters = combine_chunks(table.column(2))
    arrays = [np.frombuffer(filters[i].as_buffer(), np.uint64) for i in range(len(filters))]
    return [Generation(*values) for values in zip(cells, items, arrays, strict=True)]


_LARGEST = np.iinfo(np.int64).max
_MOST_BYTES = (1 << 31) - 1  # of a column with Arrow's 32-bit offsets
_BITS_AT_ONCE = 1 << 24  # one byte per bit
_NO_OWNERS = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Bloom(ColumnSketch):
    """The distinct values of a column that are not null, as Bloom filters.

    ``type`` is Spark's name of the column's type: equal values of other types have other hashes. With
    ``capacity`` items, the share of false positives is ``rate``. The shape follows from both, and is
    stored because it is computed from logarithms.
    """

    column: str
    type: str
    capacity: int
    rate: float
    shape: Shape

    format: ClassVar[Format] = Format("bloom", 1)
    fields: ClassVar[tuple[tuple[str, pa.DataType], ...]] = (("filter", pa.binary()),)
    result: ClassVar[pa.DataType] = pa.struct(
        [*NUMBER, ("false_positive_rate", pa.float64()), ("full", pa.bool_())]
    )

    @classmethod
    def of(cls, column: str, type: str, capacity: int, rate: float) -> Bloom:
        """The smallest one with this capacity and rate."""
        return cls(column, type, capacity, rate, Shape.of(capacity, rate))

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """Capacity and rate, and the shape that follows from them."""
        return {
            "type": self.type,
            "capacity": self.capacity,
            "false_positive_rate": self.rate,
            "bits": self.shape.bits,
            "probes": self.shape.probes,
        }

    def update(self, groups: Groups, rows: pa.Table) -> list[pa.Array]:
        """Store the items of each group, or set their bits."""
        return self._build(*group_items(groups, rows.column(self.column)))

    def merge(self, groups: Groups, states: Sequence[pa.Array]) -> list[pa.Array]:
        """Unite the items and the bits."""
        return merge_groups(groups, states, self._unite)

    def _unite(self, groups: Groups, states: Sequence[pa.Array]) -> list[pa.Array]:
        sizes, data = self._split(states[0])
        dense = sizes == self.shape.length
        is_dense = np.repeat(dense, sizes)
        holders = Groups(np.repeat(groups.ids, sizes)[~is_dense], groups.count)
        table = data[is_dense].reshape(-1, self.shape.length)
        return self._build(holders, data[~is_dense].view(np.int64), groups.ids[dense], table)

    def estimate(self, states: Sequence[pa.Array]) -> pa.Array:
        """The number of items, with bounds and standard error, and how full the filter is.

        The rate is the current one; ``full`` means that there are certainly more items than the capacity.
        """
        counts, error, rate = self._count(states)
        unbounded = np.isinf(error)
        spread = np.where(unbounded, 0.0, error)
        lower = np.rint(np.maximum(counts - 2 * spread, 0)).astype(np.int64)
        upper = np.where(unbounded, _LARGEST, np.rint(counts + 2 * spread).astype(np.int64))
        with np.errstate(invalid="ignore"):
            relative = np.where(counts > 0, error / counts, 0.0)
        whole = np.rint(counts).astype(np.int64)
        parts = [whole, lower, upper, relative, rate, lower > self.capacity]
        return pa.StructArray.from_arrays([pa.array(part) for part in parts], fields=[*self.result])

    def payload(self, states: Sequence[pa.Array]) -> pa.Array:
        """Each state as bytes."""
        return states[0]

    def revive(self, payloads: pa.Array) -> list[pa.Array]:
        """The states of payloads; every byte is checked."""
        lengths, width = lengths_of(payloads), 8 * self.shape.length
        self._refuse((lengths % 8 != 0) | (lengths > width), "no filter has its length")
        sizes, data = self._split(payloads)
        owners = np.repeat(np.arange(len(sizes)), sizes)
        is_dense = sizes == self.shape.length
        dense = is_dense[owners]
        listed, owner = data[~dense].view(np.int64), owners[~dense]
        wrong = (listed[1:] <= listed[:-1]) & (owner[1:] == owner[:-1])
        unsorted = np.bincount(owner[1:][wrong], minlength=len(sizes)) > 0
        self._refuse(unsorted, "its items do not ascend")
        bits = np.bincount(owners[dense], ones(data[dense]), len(sizes))
        self._refuse(is_dense & (bits == 0), "none of its bits is set")
        return [payloads]

    def contains(self, states: Sequence[pa.Array], items: Ints) -> Mask:
        """Whether each of these items may be in the first state."""
        result = np.zeros(len(items), np.bool_)
        probes = positions(self.shape, items)
        result[contained(self.filter(states), probes, np.arange(len(items)))] = True
        return result

    def filter(self, states: Sequence[pa.Array]) -> FilterBits:
        """The filter of the first state, dense or sparse."""
        _, data = self._split(states[0][:1])
        if len(data) == self.shape.length:
            return data
        empty = np.zeros(self.shape.length, np.uint64)
        return filled(empty, positions(self.shape, data.view(np.int64)))

    def _build(
        self,
        groups: Groups,
        found: Ints,
        owners: Ids = _NO_OWNERS,
        filters: npt.NDArray[np.uint64] | None = None,
    ) -> list[pa.Array]:
        """States of items, by group, and of filters, by owner."""
        order = argsort_rows(groups.ids, found, groups.count)
        ids, found = groups.ids[order], found[order]
        new = run_starts(ids, found)
        ids, found = ids[new], found[new]
        width = self.shape.length
        sizes = np.bincount(ids, minlength=groups.count)
        dense = sizes >= width
        dense[owners] = True
        lengths = np.where(dense, width, sizes)
        ends = np.append(0, np.cumsum(lengths))
        if 8 * int(ends[-1]) > _MOST_BYTES:
            self._refuse_size(8 * int(ends[-1]), int(np.count_nonzero(dense)))
        result = np.empty(ends[-1], np.uint64)

        listed = ~dense[ids]
        rank = np.arange(len(ids)) - (np.cumsum(sizes) - sizes)[ids]
        result[(ends[ids] + rank)[listed]] = found[listed].view(np.uint64)

        index = np.cumsum(dense) - 1
        table = np.zeros((int(np.count_nonzero(dense)), width), np.uint64)
        if filters is not None and len(owners):
            order = np.argsort(owners, kind="stable")
            begins = np.flatnonzero(np.diff(owners[order], prepend=-1))
            table[index[owners[order][begins]]] = np.bitwise_or.reduceat(filters[order], begins)
        self._fill(table, index[ids[~listed]], found[~listed])
        at = ends[:-1][dense]
        result[(at[:, None] + np.arange(width)).ravel()] = table.ravel()
        return [make_binary(8 * ends, result.view(np.uint8))]

    def _fill(self, table: npt.NDArray[np.uint64], owners: Ids, found: Ints) -> None:
        """Set the bits of items, in the order of their owners: some filters at a time."""
        step = max(1, _BITS_AT_ONCE // self.shape.bits)
        starts = np.arange(0, len(table), step)
        borders = np.append(np.searchsorted(owners, starts), len(owners))
        for start, begin, end in zip(starts.tolist(), borders[:-1], borders[1:], strict=True):
            piece = table[start : start + step]
            probes = positions(self.shape, found[begin:end])
            probes += ((owners[begin:end] - start) * self.shape.bits).astype(np.uint64)
            piece[:] = filled(piece.ravel(), probes).reshape(piece.shape)

    def _split(self, filters: pa.Array) -> tuple[Ints, FilterBits]:
        """Number of 64-bit words of each state, and those of all states."""
        ends, data = split_binary(filters)
        return np.diff(ends) // 8, data.view(np.uint64)

    def _count(self, states: Sequence[pa.Array]) -> tuple[Floats, Floats, Floats]:
        """Items of each state, their standard error, and the rate of false positives."""
        sizes, data = self._split(states[0])
        bits, probes = self.shape.bits, self.shape.probes
        is_dense = sizes == self.shape.length
        owners = np.repeat(np.arange(len(sizes)), sizes)
        dense = is_dense[owners]
        present = np.bincount(owners[dense], ones(data[dense]), len(sizes))
        # Linear counting: if all bits are set, one is taken as not set.
        load = -np.log1p(-np.minimum(present, bits - 1) / bits)
        counts = np.where(is_dense, bits / probes * load, sizes)
        error = np.where(is_dense, np.sqrt(bits * (np.expm1(load) - load)) / probes, 0.0)
        error[present == bits] = np.inf
        certain = -np.expm1(-probes * counts / bits)  # of a sparse sketch, from the number of items
        rate = np.where(is_dense, present / bits, certain) ** probes
        return counts, error, rate

    def _refuse(self, wrong: Mask, reason: str) -> None:
        expected = f"ascending items, or {8 * self.shape.length} bytes"
        with located(at="sketches, bloom"):
            refuse_payloads(wrong, reason, expected=expected)

    def _refuse_size(self, size: int, count: int) -> None:
        raise conditions.FILTERS_TOO_LARGE.error(
            at=f"bloom, column {self.column!r}",
            most_bytes=_MOST_BYTES,
            got=f"{size} bytes, in {count} filters of {8 * self.shape.length} bytes and others",
        )
