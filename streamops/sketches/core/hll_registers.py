"""Coupons and registers of HyperLogLog: what an item leaves behind, and what many say together.

A *coupon* is what Apache DataSketches keeps of an item: 26 bits of the first half of its hash as
an address, and in the 6 bits above them the *value*: one more than the leading zeros of the
second half, of which 62 count. A *register* keeps the greatest value of the coupons whose address
ends in its number. Of ``2**p`` registers none is greater than ``65 - p``: as in datasketch, whose
hash has only so many bits left. (An item has more zeros than that once in ``2**48``.)
"""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamops.kernel.columns import list_items
from streamops.kernel.groups import Floats, Ids, Ints, Mask
from streamops.sketches.core.hashes import Hashes, murmur3
from streamops.sketches.core.sorting import argsort_rows, run_starts

__all__ = [
    "ADDRESS_BITS",
    "Coupons",
    "Registers",
    "behind",
    "binaries",
    "capped",
    "coupons",
    "distinct",
    "estimates",
    "flat",
    "greatest",
    "highest",
    "leading_zeros",
    "matrix",
    "most_coupons",
    "packed",
]

Coupons = npt.NDArray[np.uint32]
Registers = npt.NDArray[np.uint8]
Table = tuple[float, Floats, Floats]
Word = TypeVar("Word", bound=np.unsignedinteger)

ADDRESS_BITS = 26

_ADDRESS = np.uint64((1 << ADDRESS_BITS) - 1)
_MOST_ZEROS = 62
_LARGEST = np.iinfo(np.int32).max
_NEAREST = 6  # neighbours that the bias is a mean of
# Rows, or registers, at a time: their temporaries stay in the processor's cache.
_BLOCK = 1 << 15


def most_coupons(p: int) -> int:
    """Distinct coupons up to which they are kept as they are, as in Apache's sketch.

    So a sketch of Spark's has the form that ours has of the same items. It is also about where
    registers, most of them empty, take no more room when compressed.

    Examples
    --------
    >>> most_coupons(4), most_coupons(12)
    (7, 384)
    """
    return 3 << p - 5 if p >= 8 else 7


def highest(p: int) -> int:
    """Greatest value of a register."""
    return 65 - p


def coupons(items: Ints) -> Coupons:
    """The coupon of each item.

    Examples
    --------
    >>> [(each >> 26, each & 0x3FFFFFF) for each in coupons(np.array([1, 2])).tolist()]
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
    """Zeros before the first bit that is set.

    Examples
    --------
    >>> leading_zeros(np.array([0, 1, 2**64 - 1], np.uint64)).tolist()
    [64, 63, 0]
    """
    # Bits below a set one are cleared: the first stays, and rounding to a double does not add to
    # it. The exponent then is 1023 more than the number of the bit; of 0.0 it is 0.
    alone = hashes & ~(hashes >> np.uint64(1))
    exponent = alone.astype(np.float64).view(np.uint64) >> np.uint64(52)
    zeros: Hashes = np.minimum(np.uint64(1023 + 63) - exponent, np.uint64(64))
    return zeros


def capped(found: Coupons, p: int) -> tuple[Ids, Registers]:
    """Register of each coupon, and the value that it has there."""
    values = np.minimum(found >> np.uint32(ADDRESS_BITS), highest(p)).astype(np.uint8)
    return (found & np.uint32((1 << p) - 1)).astype(np.int64), values


def distinct(ids: Ids, found: Coupons) -> tuple[Ids, Coupons]:
    """Each pair once, sorted."""
    values = found.astype(np.int64)
    order = argsort_rows(ids, values, int(ids.max(initial=0)) + 1)
    ids, values = ids[order], values[order]
    new = run_starts(ids, values)
    return ids[new], values[new].astype(np.uint32)


def greatest(ids: Ids, registers: npt.NDArray[Word]) -> tuple[Ids, npt.NDArray[Word]]:
    """The greatest of each column, over the rows of each id that there is.

    Neighbours become one, and neighbours of these: as many rounds as the largest group has
    doublings.
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
    return np.frombuffer(flat(registers.drop_null()), np.uint8).reshape(-1, 1 << p)


def flat(array: pa.Array) -> bytes | memoryview:
    """The bytes of a binary array without nulls, one value after another."""
    if not len(array):  # perhaps without buffers
        return b""
    offsets = np.frombuffer(array.buffers()[1], np.int32, len(array) + 1, 4 * array.offset)
    return memoryview(array.buffers()[2] or b"")[int(offsets[0]) : int(offsets[-1])]


def binaries(registers: Registers, where: Mask) -> pa.Array:
    """Each row as bytes, where the mask is true; null elsewhere."""
    offsets = np.append(0, np.cumsum(where) * registers.shape[1])
    buffers = [
        pa.array(where).buffers()[1],
        pa.array(offsets).cast(pa.int32()).buffers()[1],  # cast, so that too many are an error
        pa.py_buffer(np.ascontiguousarray(registers)),
    ]
    return pa.Array.from_buffers(pa.binary(), len(where), buffers)


def behind(array: pa.Array, start: int) -> pa.Array:
    """The bytes of each from a position on."""
    return pc.binary_slice(array, start, _LARGEST)  # without an end, Arrow miscounts some


def packed(found: pa.Array) -> pa.Array:
    """The coupons of each list as bytes, little-endian; null where the list is."""
    sizes, values = list_items(found)
    buffers = [
        pa.array(np.asarray(found.is_valid())).buffers()[1],
        pa.array(np.append(0, np.cumsum(4 * sizes))).cast(pa.int32()).buffers()[1],
        pa.py_buffer(np.asarray(values).astype("<u4")),
    ]
    return pa.Array.from_buffers(pa.binary(), len(found), buffers)


def estimates(registers: Registers, p: int) -> Floats:
    """Distinct items by the estimator of HyperLogLog++, as datasketch has it.

    Linear counting while it says fewer than a threshold; above it the harmonic mean, up to five
    times the registers less its bias.

    References
    ----------
    Heule, Nunkesser, Hall: "HyperLogLog in Practice", 2013.
    """
    count = 1 << p
    threshold, middles, biases = _table(p)
    sums, rows = np.empty(len(registers)), max(_BLOCK >> p, 1)
    for start in range(0, len(registers), rows):
        block = slice(start, start + rows)
        # A power of two is its exponent and no other bit: faster than to look it up.
        powers = (np.uint32(127) - registers[block].astype(np.uint32)) << np.uint32(23)
        sums[block] = powers.view(np.float32).sum(axis=1, dtype=np.float64)
    raw = _alpha(p) * float(count**2) / sums
    mean = np.where(raw <= 5 * count, raw - biases[np.searchsorted(middles, raw)], raw)
    with np.errstate(divide="ignore"):  # without an empty register: infinite, so not below
        linear = count * np.log(count / (count - np.count_nonzero(registers, axis=1)))
    return np.where(linear <= threshold, linear, mean)


def _alpha(p: int) -> float:
    return {4: 0.673, 5: 0.697, 6: 0.709}.get(p, 0.7213 / (1.0 + 1.079 / (1 << p)))


@cache
def _table(p: int) -> Table:
    """Threshold of linear counting; and the bias by raw estimate.

    The bias is the mean over the nearest raw estimates of the table. Sorted, these stand side by
    side, and the window of them moves on where the next one is as near as its first: half way
    between the two. Returned are these middles, and the mean of each window.
    """
    known = _constants()
    raw, bias = np.asarray(known._raw_estimate[p - 4]), np.asarray(known._bias[p - 4])
    order = np.argsort(raw, kind="stable")
    raw = raw[order]
    means = np.lib.stride_tricks.sliding_window_view(bias[order], _NEAREST).mean(axis=1)
    return float(known._thresholds[p - 4]), (raw[:-_NEAREST] + raw[_NEAREST:]) / 2, means


@cache
def _constants() -> Any:
    """The tables of datasketch, without the package around them.

    That would bring SciPy, and cost each worker of Spark 0.4 seconds.
    """
    package = find_spec("datasketch")
    assert package is not None
    assert package.submodule_search_locations is not None
    (folder,) = package.submodule_search_locations
    spec = spec_from_file_location("_hyperloglog_const", Path(folder) / "hyperloglog_const.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
