"""Bloom filters as bits, and generations of them: items by the cell of event time of their first row.

B. H. Bloom, "Space/Time Trade-offs in Hash Coding with Allowable Errors" (1970). An item sets one
bit per *probe*. Every probe has its own hash: two of them are the halves of one 64-bit hash,
``xxhash64(number, item)`` as Spark computes it. So the bits of an item are independent, and the rate of
false positives is that of the formula, also for small filters and low rates. (Double hashing, as in
Kirsch and Mitzenmacher, "Less Hashing, Same Performance", 2006, takes a third of the hashes; its rate
exceeds the formula for small filters.)

Bits are numbered from the least significant one of the first byte. In memory, a filter is an array of
little-endian words of 64 bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamops.kernel.columns import combine_chunks
from streamops.kernel.errors import Condition, SpecError
from streamops.kernel.groups import Floats, Ids, Ints
from streamops.kernel.hashing import xxhash64
from streamops.sketches import conditions

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
