"""Bloom filters: a set of items as bits, that may say yes to an item that is not in it.

B. H. Bloom, "Space/Time Trade-offs in Hash Coding with Allowable Errors" (1970). An item sets one
bit per *probe*. Every probe has a hash of its own: two of them are the halves of one 64-bit hash,
``xxhash64(number, item)`` as Spark computes it. So the bits that an item sets are those of as many
independent numbers, and the rate of false positives is that of the formula, for small filters and
low rates, too. (Double hashing, as in Kirsch and Mitzenmacher, "Less Hashing, Same Performance",
2006, takes a third of the hashes; its rate is above the formula where filters are small.)

Bits are numbered from the least significant one of the first byte. A filter is at hand as
little-endian words of 64 bits.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamops.kernel.errors import SpecError
from streamops.kernel.groups import Floats, Ids, Ints
from streamops.kernel.hashing import xxhash64

__all__ = [
    "MOST_BITS",
    "FilterBits",
    "Positions",
    "Shape",
    "contained",
    "filled",
    "ones",
    "positions",
    "require_capacity",
    "require_rate",
    "too_large",
]

FilterBits = npt.NDArray[np.uint64]
Positions = npt.NDArray[np.uint64]
"""One row per probe, one column per item: the number of a bit."""

MOST_BITS = 1 << 28
"""Of one filter. With more, 32 bits of hash would not reach all of them equally often."""

_LEAST_RATE, _MOST_RATE = 1e-9, 0.5
_WORD = 64
_SIX, _LOW, _HALF = np.uint64(6), np.uint64(63), np.uint64(32)
_LOWER = np.uint64(0xFFFFFFFF)

# Fewer bits to set than this share of a filter: one by one, else by a byte for each bit.
_FEW = 32


@dataclass(frozen=True, slots=True)
class Shape:
    """How many bits a filter has, a multiple of 64; and how many of them an item sets."""

    bits: int
    probes: int

    @classmethod
    def of(cls, capacity: int, rate: float) -> Shape:
        """The smallest whose rate of false positives is not above this one with so many items.

        Examples
        --------
        >>> Shape.of(1_000_000, 0.01)
        Shape(bits=9593024, probes=7)
        """
        best = math.log2(1 / rate)
        whole = {max(1, math.floor(best)), max(1, math.ceil(best))}
        least, probes = min((_bits(capacity, rate, probes), probes) for probes in sorted(whole))
        # As many more as there are probes: the formula is for the mean of the bits that are set,
        # and a rate grows faster than in proportion to them.
        return cls(-(-(least + probes) // _WORD) * _WORD, probes)

    @property
    def length(self) -> int:
        """Length of the array, in words of 64 bits."""
        return self.bits // _WORD

    def rate(self, items: float) -> float:
        """False positives to be expected, as a share of items that are not in it.

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
        # The part of the filter that the number is of 2^32: without a division, and in order.
        result[probe] = ((hashes >> _HALF) * bits) >> _HALF
        if probe + 1 < shape.probes:
            result[probe + 1] = ((hashes & _LOWER) * bits) >> _HALF
    return result


def _seed(number: int) -> int:
    """A hash chained to that of a number: as ``xxhash64(number, item)`` is in SQL."""
    return int(xxhash64([pa.array([number], pa.int32())])[0])


def contained(array: FilterBits, probes: Positions, among: Ids) -> Ids:
    """Which of these items, given by their columns, may be in the filter."""
    for probe in probes:
        if not len(among):
            break
        bits = probe[among]
        there = (array[(bits >> _SIX).view(np.int64)] >> (bits & _LOW)) & np.uint64(1)
        among = among[there.astype(np.bool_)]
    return among


def filled(array: FilterBits, probes: Positions) -> FilterBits:
    """The filter with these bits set as well."""
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
    """How many bits are set in each word.

    Examples
    --------
    >>> ones(np.array([0, 5, 2**64 - 1], np.uint64)).tolist()
    [0.0, 2.0, 64.0]
    """
    found = _ONES[array.view(np.uint8)].reshape(-1, 8)
    return np.asarray(found.sum(axis=1, dtype=np.float64))


_ONES = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1).sum(axis=1, dtype=np.uint8)


def require_capacity(capacity: object, *, where: str) -> None:
    """Refuse a capacity that is not a positive integer.

    Raises
    ------
    SpecError
        ``CAPACITY_OUT_OF_RANGE``.
    """
    if type(capacity) is not int or capacity < 1:
        raise SpecError(
            "CAPACITY_OUT_OF_RANGE",
            "`capacity` is out of range",
            where=where,
            got=f"capacity={capacity!r}",
            expected="an integer >= 1",
            fix="the maximum number of distinct values, such as capacity=1_000_000",
        )


def require_rate(rate: object, *, where: str) -> float:
    """Refuse a rate that is out of range.

    Raises
    ------
    SpecError
        ``RATE_OUT_OF_RANGE``.
    """
    if type(rate) is float and _LEAST_RATE <= rate <= _MOST_RATE:
        return rate
    raise SpecError(
        "RATE_OUT_OF_RANGE",
        "`false_positive_rate` is out of range",
        where=where,
        got=f"false_positive_rate={rate!r}",
        expected=f"a float from {_LEAST_RATE:g} to {_MOST_RATE:g}",
        fix="0.001: one of a thousand values that are not in the filter is a false positive",
    )


def too_large(got: str, *, fix: str, where: str) -> SpecError:
    """The error for a filter with too many bits."""
    return SpecError(
        "FILTER_TOO_LARGE",
        "a Bloom filter would be too large",
        where=where,
        got=got,
        expected=f"at most {MOST_BITS} bits ({MOST_BITS // 8 // 1024**2} MiB) in one filter",
        fix=fix,
    )
