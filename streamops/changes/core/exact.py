"""Sums of doubles without rounding: a value that was added can be subtracted again exactly.

A double is an integer times a power of two, so any sum of doubles is an integer multiple of the
smallest double, of some 2,100 bits. It is represented in digits of 32 bits, of which only those from
the highest to the lowest nonzero digit are stored: three or four for numbers of similar size. All
digits of a sum have the same sign, so that each sum has one representation, and the empty one has no
digits. Only the published value is rounded: to the nearest double, ties to even.

After U. Kulisch, "Computer Arithmetic and Validity", 2008, chapter 8: the long accumulator; the
small one of R. M. Neal, "Fast Exact Summation Using Small and Large Superaccumulators", 2015.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from streamops.kernel.group_states import list_sizes, make_lists
from streamops.kernel.groups import Floats, Groups, Ids, Ints

__all__ = ["FIELDS", "merge_sums", "round_sums", "sum_weighted"]

FIELDS = (("from", pa.int32()), ("digits", pa.list_(pa.int64())))
"""Position of the first digit, and the digits from the lowest to the highest."""

_BITS = 32
_MASK = np.int64((1 << _BITS) - 1)
_MANTISSA = 53
# The power of two of the lowest bit of the lowest digit: below the least double by a mantissa.
_LOWEST = -1126

Sums = list[pa.Array]


def sum_weighted(groups: Groups, values: Floats, weights: Ints) -> Sums:
    """The sums of weighted finite values per group.

    Examples
    --------
    >>> groups = Groups(np.array([0, 0, 0, 1]), 2)
    >>> sums = sum_weighted(groups, np.array([1e300, 0.1, 1e300, 7.0]), np.array([1, 1, -1, 0]))
    >>> round_sums(sums).tolist()
    [0.1, 0.0]
    """
    fraction, exponent = np.frexp(values)
    whole = np.ldexp(np.abs(fraction), _MANTISSA).astype(np.uint64)
    position = exponent.astype(np.int64) - _MANTISSA - _LOWEST
    digit, shift = position // _BITS, (position % _BITS).astype(np.uint64)
    mask = np.uint64(_MASK)
    low, high = (whole & mask) << shift, (whole >> np.uint64(_BITS)) << shift
    parts = [low & mask, (low >> np.uint64(_BITS)) + (high & mask), high >> np.uint64(_BITS)]
    signed = np.where(np.signbit(values), -weights, weights)
    digits = [part.astype(np.int64) * signed for part in parts]
    return _add_digits(
        np.tile(groups.ids, 3),
        groups.count,
        np.concatenate([digit, digit + 1, digit + 2]),
        np.concatenate(digits),
    )


def merge_sums(groups: Groups, sums: Sequence[pa.Array]) -> Sums:
    """The sums of sums."""
    first, digits = np.asarray(sums[0]).astype(np.int64), sums[1]
    ids, position = _digit_positions(digits)
    return _add_digits(
        groups.ids[ids], groups.count, first[ids] + position, np.asarray(digits.flatten())
    )


def round_sums(sums: Sequence[pa.Array]) -> Floats:
    """The double nearest to each sum; infinite where it is beyond the greatest."""
    first, digits = np.asarray(sums[0]).astype(np.int64), sums[1]
    sizes, flat = list_sizes(digits), np.asarray(digits.flatten())
    ends = np.cumsum(sizes)
    magnitude = np.abs(np.concatenate([np.zeros(3, np.int64), flat])).astype(np.uint64)
    # The highest three digits hold at least 65 bits; of the rest it only matters whether it is 0.
    first_digit, second_digit, third_digit = (
        np.where(sizes > back, magnitude[ends + 2 - back], np.uint64(0)) for back in range(3)
    )
    odd = np.append(0, np.cumsum(flat != 0))
    rest = odd[np.maximum(ends - 3, ends - sizes)] - odd[ends - sizes] > 0
    length = np.frexp(first_digit.astype(np.float64))[1].astype(np.uint64)
    up = np.uint64(_BITS) - length
    wide = ((first_digit << np.uint64(_BITS) | second_digit) << up) | (third_digit >> length)
    below = ((third_digit << up) & np.uint64(_MASK) > 0) | rest
    mantissa, over = wide >> np.uint64(11), wide & np.uint64(0x7FF)
    half = np.uint64(0x400)
    rounds = (over > half) | ((over == half) & (below | (mantissa & np.uint64(1) > 0)))
    mantissa = (mantissa + rounds).astype(np.float64)
    top = (first + sizes - 1) * _BITS + length.astype(np.int64) - 1
    with np.errstate(over="ignore"):
        value = np.ldexp(mantissa, top - (_MANTISSA - 1) + _LOWEST)
    negative = np.append(flat, 0)[ends - 1] < 0
    return np.where(sizes == 0, 0.0, np.where(negative, -value, value))


def _digit_positions(digits: pa.Array) -> tuple[Ids, Ids]:
    """List of each digit, and its position in the list."""
    sizes = list_sizes(digits)
    ids = np.repeat(np.arange(len(sizes)), sizes)
    return ids, np.arange(len(ids)) - np.repeat(np.cumsum(sizes) - sizes, sizes)


def _add_digits(ids: Ids, count: int, position: Ids, digits: Ints) -> Sums:
    nonzero = digits != 0
    ids, position, digits = ids[nonzero], position[nonzero], digits[nonzero]
    lowest = int(position.min(initial=1 << 20)) if len(position) else 0
    width = int(position.max(initial=0)) - lowest + 3 if len(position) else 1  # room for carries
    matrix = np.zeros((count, width), np.int64)
    np.add.at(matrix, (ids, position - lowest), digits)
    _carry(matrix)
    negative = matrix[:, -1] < 0
    if negative.any():
        turned = -matrix[negative]
        _carry(turned)
        matrix[negative] = -turned
    return _to_lists(matrix, lowest)


def _carry(matrix: Ints) -> None:
    """Carry, so that all digits but the last, which has the sign, are from 0 to 2^32 - 1."""
    for at in range(matrix.shape[1] - 1):
        matrix[:, at + 1] += matrix[:, at] >> _BITS
        matrix[:, at] &= _MASK


def _to_lists(matrix: Ints, lowest: int) -> Sums:
    nonzero = matrix != 0
    some = nonzero.any(axis=1)
    first = np.where(some, nonzero.argmax(axis=1), 0)
    last = np.where(some, matrix.shape[1] - nonzero[:, ::-1].argmax(axis=1), 0)
    sizes = last - first
    columns = np.arange(matrix.shape[1])
    inside = (columns >= first[:, None]) & (columns < last[:, None])
    start = np.where(some, first + lowest, 0).astype(np.int32)
    return [pa.array(start), make_lists(pa.array(matrix[inside]), sizes)]
