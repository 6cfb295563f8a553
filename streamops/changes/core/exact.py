"""Sums of doubles without rounding: what was added can be taken away again, to the last bit.

A double is a whole number times a power of two, so any sum of doubles is a whole number of the
least double there is, of some 2,100 bits. It is kept in digits of 32 bits, of which only those from
the highest to the lowest that is not 0 are stored: three or four for numbers of like size. All
digits of a sum have one sign, so that each sum has one form and an empty one is empty. Rounded is
only what is published: the double nearest to the sum, ties to even.

After U. Kulisch, "Computer Arithmetic and Validity", 2008, chapter 8: the long accumulator; the
small one of R. M. Neal, "Fast Exact Summation Using Small and Large Superaccumulators", 2015.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from streamops.kernel.group_states import list_sizes, make_lists
from streamops.kernel.groups import Floats, Groups, Ids, Ints

__all__ = ["FIELDS", "added", "nearest", "weighed"]

FIELDS = (("from", pa.int32()), ("digits", pa.list_(pa.int64())))
"""Which digit the first one is, and the digits from the lowest to the highest."""

_BITS = 32
_MASK = np.int64((1 << _BITS) - 1)
_MANTISSA = 53
# The power of two of the lowest bit of the lowest digit: below the least double by a mantissa.
_LOWEST = -1126

Sums = list[pa.Array]


def weighed(groups: Groups, values: Floats, weights: Ints) -> Sums:
    """The sums per group of finite values, each so many times.

    Examples
    --------
    >>> groups = Groups(np.array([0, 0, 0, 1]), 2)
    >>> sums = weighed(groups, np.array([1e300, 0.1, 1e300, 7.0]), np.array([1, 1, -1, 0]))
    >>> nearest(sums).tolist()
    [0.1, 0.0]
    """
    fraction, exponent = np.frexp(values)
    whole = np.ldexp(np.abs(fraction), _MANTISSA).astype(np.uint64)
    place = exponent.astype(np.int64) - _MANTISSA - _LOWEST
    digit, shift = place // _BITS, (place % _BITS).astype(np.uint64)
    mask = np.uint64(_MASK)
    low, high = (whole & mask) << shift, (whole >> np.uint64(_BITS)) << shift
    parts = [low & mask, (low >> np.uint64(_BITS)) + (high & mask), high >> np.uint64(_BITS)]
    signed = np.where(np.signbit(values), -weights, weights)
    digits = [part.astype(np.int64) * signed for part in parts]
    return _summed(
        np.tile(groups.ids, 3),
        groups.count,
        np.concatenate([digit, digit + 1, digit + 2]),
        np.concatenate(digits),
    )


def added(groups: Groups, sums: Sequence[pa.Array]) -> Sums:
    """The sums of sums."""
    first, digits = np.asarray(sums[0]).astype(np.int64), sums[1]
    ids, place = _places(digits)
    return _summed(groups.ids[ids], groups.count, first[ids] + place, np.asarray(digits.flatten()))


def nearest(sums: Sequence[pa.Array]) -> Floats:
    """The double nearest to each sum; infinite where it is beyond the greatest."""
    first, digits = np.asarray(sums[0]).astype(np.int64), sums[1]
    sizes, flat = list_sizes(digits), np.asarray(digits.flatten())
    ends = np.cumsum(sizes)
    magnitude = np.abs(np.concatenate([np.zeros(3, np.int64), flat])).astype(np.uint64)
    # The highest three digits hold at least 65 bits; of the rest only whether it is 0 matters.
    one, two, three = (
        np.where(sizes > back, magnitude[ends + 2 - back], np.uint64(0)) for back in range(3)
    )
    odd = np.append(0, np.cumsum(flat != 0))
    rest = odd[np.maximum(ends - 3, ends - sizes)] - odd[ends - sizes] > 0
    length = np.frexp(one.astype(np.float64))[1].astype(np.uint64)
    up = np.uint64(_BITS) - length
    wide = ((one << np.uint64(_BITS) | two) << up) | (three >> length)
    below = ((three << up) & np.uint64(_MASK) > 0) | rest
    mantissa, over = wide >> np.uint64(11), wide & np.uint64(0x7FF)
    half = np.uint64(0x400)
    rounds = (over > half) | ((over == half) & (below | (mantissa & np.uint64(1) > 0)))
    mantissa = (mantissa + rounds).astype(np.float64)
    top = (first + sizes - 1) * _BITS + length.astype(np.int64) - 1
    with np.errstate(over="ignore"):
        value = np.ldexp(mantissa, top - (_MANTISSA - 1) + _LOWEST)
    negative = np.append(flat, 0)[ends - 1] < 0
    return np.where(sizes == 0, 0.0, np.where(negative, -value, value))


def _places(digits: pa.Array) -> tuple[Ids, Ids]:
    """List and place in it of each digit."""
    sizes = list_sizes(digits)
    ids = np.repeat(np.arange(len(sizes)), sizes)
    return ids, np.arange(len(ids)) - np.repeat(np.cumsum(sizes) - sizes, sizes)


def _summed(ids: Ids, count: int, place: Ids, digits: Ints) -> Sums:
    there = digits != 0
    ids, place, digits = ids[there], place[there], digits[there]
    lowest = int(place.min(initial=1 << 20)) if len(place) else 0
    width = int(place.max(initial=0)) - lowest + 3 if len(place) else 1  # room for what is carried
    matrix = np.zeros((count, width), np.int64)
    np.add.at(matrix, (ids, place - lowest), digits)
    _carry(matrix)
    negative = matrix[:, -1] < 0
    if negative.any():
        turned = -matrix[negative]
        _carry(turned)
        matrix[negative] = -turned
    return _stored(matrix, lowest)


def _carry(matrix: Ints) -> None:
    """Make digits from 0 to 2^32 - 1 of all but the last, which has the sign."""
    for at in range(matrix.shape[1] - 1):
        matrix[:, at + 1] += matrix[:, at] >> _BITS
        matrix[:, at] &= _MASK


def _stored(matrix: Ints, lowest: int) -> Sums:
    there = matrix != 0
    some = there.any(axis=1)
    first = np.where(some, there.argmax(axis=1), 0)
    last = np.where(some, matrix.shape[1] - there[:, ::-1].argmax(axis=1), 0)
    sizes = last - first
    columns = np.arange(matrix.shape[1])
    inside = (columns >= first[:, None]) & (columns < last[:, None])
    start = np.where(some, first + lowest, 0).astype(np.int32)
    return [pa.array(start), make_lists(pa.array(matrix[inside]), sizes)]
