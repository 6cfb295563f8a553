"""Coupons and registers of HyperLogLog, and the estimates from registers.

A *coupon* is what Apache DataSketches stores of an item: 26 bits of the first half of its hash as an
address, and in the 6 bits above them the *value*: one more than the number of leading zeros of the
second half, at most 62. A *register* stores the greatest value of the coupons whose address ends in its
number. No register of ``2**p`` exceeds ``65 - p``: as in datasketch, whose hash has only so many bits
left. (An item has more zeros once in ``2**48``.)
"""

from __future__ import annotations

from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamops.kernel.columns import list_items
from streamops.kernel.groups import Floats, Ids, Ints
from streamops.sketches.core.buffers import argsort_rows, flat_bytes, make_binary, run_starts
from streamops.sketches.core.items import Hashes, murmur3

Coupons = npt.NDArray[np.uint32]
Registers = npt.NDArray[np.uint8]
Word = TypeVar("Word", bound=np.unsignedinteger)

ADDRESS_BITS = 26

_ADDRESS = np.uint64((1 << ADDRESS_BITS) - 1)
_MOST_ZEROS = 62
# Rows, or registers, at a time: their temporaries stay in the processor's cache.
_BLOCK = 1 << 15


def most_coupons(p: int) -> int:
    """Maximum number of coupons of a sparse sketch: as in Apache DataSketches and Spark.

    At about this number, compressed registers take no more room, since most of them are empty.

    Examples
    --------
    >>> most_coupons(4), most_coupons(12)
    (7, 384)
    """
    return 3 << p - 5 if p >= 8 else 7


def highest(p: int) -> int:
    """Maximum value of a register."""
    return 65 - p


def coupons(items: Ints) -> Coupons:
    """The coupon of each item.

    Examples
    --------
    >>> [(c >> 26, c & 0x3FFFFFF) for c in coupons(np.array([1, 2])).tolist()]
    [(1, 50065963), (3, 33107846)]
    """
    result = np.empty(len(items), np.uint32)
    for start in range(0, len(items), _BLOCK):
        rows = slice(start, start + _BLOCK)
        first, second = murmur3(items[rows])
        value = np.minimum(leading_zeros(second), np.uint64(_MOST_ZEROS)) + np.uint64(1)
        result[rows] = (value << np.uint64(ADDRESS_BITS)) | (first & _ADDRESS)
    return result


def leading_zeros(hashes: Hashes) -> Hashes:
    """Number of zeros before the first bit that is set.

    Examples
    --------
    >>> leading_zeros(np.array([0, 1, 2**64 - 1], np.uint64)).tolist()
    [64, 63, 0]
    """
    # Bits below a set one are cleared, so that rounding to a double does not raise the first one.
    # The exponent is 1023 more than the number of the bit; that of 0.0 is 0.
    alone = hashes & ~(hashes >> np.uint64(1))
    exponent = alone.astype(np.float64).view(np.uint64) >> np.uint64(52)
    zeros: Hashes = np.minimum(np.uint64(1023 + 63) - exponent, np.uint64(64))
    return zeros


def capped(found: Coupons, p: int) -> tuple[Ids, Registers]:
    """Register of each coupon, and its value there, at most the maximum."""
    values = np.minimum(found >> np.uint32(ADDRESS_BITS), highest(p)).astype(np.uint8)
    return (found & np.uint32((1 << p) - 1)).astype(np.int64), values


def distinct(ids: Ids, found: Coupons) -> tuple[Ids, Coupons]:
    """The distinct pairs, sorted."""
    values = found.astype(np.int64)
    order = argsort_rows(ids, values, int(ids.max(initial=0)) + 1)
    ids, values = ids[order], values[order]
    new = run_starts(ids, values)
    return ids[new], values[new].astype(np.uint32)


def greatest(ids: Ids, registers: npt.NDArray[Word]) -> tuple[Ids, npt.NDArray[Word]]:
    """The maximum of each column over the rows of each id.

    Neighbouring rows are combined in pairs, in log2 of the size of the largest group rounds.
    """
    if (ids[1:] < ids[:-1]).any():
        order = np.argsort(ids, kind="stable")
        ids, registers = ids[order], registers[order]
    while True:
        begins = np.append(True, ids[1:] != ids[:-1])[: len(ids)]
        firsts = np.flatnonzero(begins)
        position = np.arange(len(ids)) - np.repeat(firsts, np.diff(np.append(firsts, len(ids))))
        left = np.flatnonzero(position % 2 == 0)
        if len(left) == len(ids):
            return ids, registers
        paired = np.append(~begins, False)[left + 1]
        united = registers[left]
        united[paired] = np.maximum(united[paired], registers[left[paired] + 1])
        ids, registers = ids[left], united


def matrix(registers: pa.Array, p: int) -> Registers:
    """The registers that are not null, one row each."""
    return flat_bytes(registers.drop_null()).reshape(-1, 1 << p)


def packed(found: pa.Array) -> pa.Array:
    """The coupons of each list as bytes, little-endian; null for a null."""
    sizes, values = list_items(found)
    ends = np.append(0, np.cumsum(4 * sizes))
    return make_binary(ends, np.asarray(values).astype("<u4"), np.asarray(found.is_valid()))


def estimates(registers: Registers, p: int) -> Floats:
    """Number of distinct items by Ertl's improved raw estimator, which needs no table.

    It has no thresholds: terms for the registers that are empty, and for those with the highest value,
    take the place of linear counting and of corrections. The constant is that of a finite number of
    registers (Flajolet and others, 2007); its limit would be 7 % too high for 16 of them.

    References
    ----------
    Ertl: "New cardinality estimation algorithms for HyperLogLog sketches", 2017, section 4.
    """
    count, top = 1 << p, highest(p)
    sums, rows = np.empty(len(registers)), max(_BLOCK >> p, 1)
    empty, full = np.empty_like(sums), np.empty_like(sums)
    for start in range(0, len(registers), rows):
        block = slice(start, start + rows)
        # A power of two is its exponent and no other bit: faster than a table.
        powers = (np.uint32(127) - registers[block].astype(np.uint32)) << np.uint32(23)
        sums[block] = powers.view(np.float32).sum(axis=1, dtype=np.float64)
        empty[block] = count - np.count_nonzero(registers[block], axis=1)
        full[block] = np.count_nonzero(registers[block] == top, axis=1)
    between = sums - empty - full * 0.5**top
    total = between + count * (_sigma(empty / count) + 0.5 ** (top - 1) * _tau(1 - full / count))
    with np.errstate(divide="ignore"):  # infinite if every register has the highest value
        found: Floats = count**2 / (2 * np.log(2) * (1 + 1.079 / count)) / total
    return found


def _sigma(x: Floats) -> Floats:
    """``x + x**2 + 2 * x**4 + 4 * x**8 + ...``, infinite for 1."""
    result = np.where(x == 1, np.inf, x)
    term, weight = x.copy(), 1.0
    while (term[x < 1] * weight > 1e-20).any():
        term = term * term
        result += weight * term
        weight *= 2
    return result


def _tau(x: Floats) -> Floats:
    """A third of ``1 - x - (1 - x**(1/2))**2 / 2 - (1 - x**(1/4))**2 / 4 - ...``, 0 for 0 and 1."""
    result, root, weight = 1 - x, x.copy(), 1.0
    while weight > 1e-20:
        root = np.sqrt(root)
        weight /= 2
        result -= weight * (1 - root) ** 2
    return np.where(x > 0, result / 3, 0.0)
