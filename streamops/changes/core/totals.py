"""Totals from which rows can be retracted exactly: counts, sums and means of weighted rows.

A retracted row has weight -1. Totals are rounded only when a value is published: rows that are added
and retracted leave an empty total, in whatever order. A total is another form of the state of a
*summary* of the same rows; that summary computes the published value, with its types and errors.

A sum of doubles is an integer multiple of the smallest double, of some 2,100 bits. It is stored as
digits of 32 bits, from the lowest to the highest nonzero digit: three or four for numbers of similar
size. All digits of a sum have the same sign, so each sum has one representation, and an empty sum has
no digits. The published value is the nearest double, ties to even.

After U. Kulisch, "Computer Arithmetic and Validity", 2008, chapter 8: the long accumulator; the small
one of R. M. Neal, "Fast Exact Summation Using Small and Large Superaccumulators", 2015.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamops.changes import conditions
from streamops.kernel.aggregation import Summary, list_sizes, make_lists
from streamops.kernel.columns import combine_chunks, to_floats
from streamops.kernel.errors import CapacityError
from streamops.kernel.groups import Floats, Groups, Ids, Ints, Mask

States = list[pa.Array]
Fields = tuple[tuple[str, pa.DataType], ...]

_BITS = 32  # of a digit of a sum of doubles, and of the lower half of a sum of integers
_MASK = np.int64((1 << _BITS) - 1)
_MANTISSA = 53
# The power of two of the lowest bit of the lowest digit: below the least double by a mantissa.
_LOWEST = -1126
_WIDE = 76  # digits of Arrow's 256-bit decimals


@dataclass(frozen=True, slots=True)
class Total(ABC):
    """State of a group from which rows can be retracted."""

    summary: Summary  # computes the published value

    @property
    @abstractmethod
    def fields(self) -> Fields:
        """Columns of the state: name and type."""

    def update(self, groups: Groups, rows: pa.Table, weights: Ints) -> States:
        """States of the groups over rows with these weights. A null has no weight."""
        values: pa.Array = pa.nulls(0)
        for name in self.summary.inputs:
            values = combine_chunks(rows.column(name))
            if values.null_count:
                is_valid = np.asarray(values.is_valid())
                groups, weights = groups.where(is_valid), weights[is_valid]
                values = values.drop_null()
        return self._add(groups, values, weights)

    @abstractmethod
    def _add(self, groups: Groups, values: pa.Array, weights: Ints) -> States:
        """States of the groups over these values."""

    def merge(self, groups: Groups, states: Sequence[pa.Array]) -> States:
        """States of the groups over their members' states."""
        return _sum_states(groups, states)

    @abstractmethod
    def estimate(self, states: Sequence[pa.Array]) -> pa.Array:
        """The value of each state."""

    def is_empty(self, states: Sequence[pa.Array]) -> Mask:
        """Which states are those of no rows."""
        return _all_zero(states)


def _sum_states(groups: Groups, states: Sequence[pa.Array]) -> States:
    return [pa.array(groups.sum_ints(np.asarray(state))) for state in states]


def _all_zero(states: Sequence[pa.Array]) -> Mask:
    zero: Mask = np.all([np.asarray(state) == 0 for state in states], axis=0)
    return zero


@dataclass(frozen=True, slots=True)
class CountTotal(Total):
    """Rows, or the values of a column that are not null."""

    @property
    def fields(self) -> Fields:
        """The count."""
        return (("count", pa.int64()),)

    def _add(self, groups: Groups, values: pa.Array, weights: Ints) -> States:
        return [pa.array(groups.sum_ints(weights))]

    def estimate(self, states: Sequence[pa.Array]) -> pa.Array:
        """The count; 0 where more values are retracted than added."""
        return self.summary.estimate([pc.max_element_wise(states[0], 0)])


@dataclass(frozen=True, slots=True)
class IntTotal(Total):
    """Sum or mean of integers or of day-time intervals, in two halves that do not overflow."""

    mean: bool

    @property
    def fields(self) -> Fields:
        """High and low half of the sum, number of values."""
        return (("high", pa.int64()), ("low", pa.int64()), ("count", pa.int64()))

    def _add(self, groups: Groups, values: pa.Array, weights: Ints) -> States:
        numbers = np.asarray(values.cast(pa.int64()))
        high, low = (numbers >> _BITS) * weights, (numbers & _MASK) * weights
        return self._halves(*map(groups.sum_ints, (high, low, weights)))

    def merge(self, groups: Groups, states: Sequence[pa.Array]) -> States:
        """Add the halves."""
        return self._halves(*(np.asarray(state) for state in _sum_states(groups, states)))

    def _halves(self, high: Ints, low: Ints, count: Ints) -> States:
        return [pa.array(high + (low >> _BITS)), pa.array(low & _MASK), pa.array(count)]

    def estimate(self, states: Sequence[pa.Array]) -> pa.Array:
        """The sum or the mean."""
        high, low, count = (np.asarray(state) for state in states)
        if self.mean:
            total = high * float(1 << _BITS) + low
            return self.summary.estimate([pa.array(total), pa.array(np.maximum(count, 0))])
        whole = (high << _BITS) + low
        has_values = count > 0
        if (has_values & (whole >> _BITS != high)).any():
            raise _overflow(self.summary, "bigint, or a day-time interval")
        return self.summary.estimate([pa.array(whole, mask=~has_values).cast(self.summary.result)])


@dataclass(frozen=True, slots=True)
class FloatTotal(Total):
    """Sum or mean of doubles, rounded only when published; NaN and infinities are counted."""

    mean: bool

    @property
    def fields(self) -> Fields:
        """The sum of the finite values; numbers of all values, of NaN, and of both infinities."""
        # Position of the first digit, and the digits from the lowest to the highest.
        digits = (("from", pa.int32()), ("digits", pa.list_(pa.int64())))
        return (*digits, *((n, pa.int64()) for n in ("count", "nan", "above", "below")))

    def _add(self, groups: Groups, values: pa.Array, weights: Ints) -> States:
        numbers = to_floats(values)
        special = [np.isnan(numbers), numbers == np.inf, numbers == -np.inf]
        finite = np.isfinite(numbers)
        counts = [groups.where(found).sum_ints(weights[found]) for found in special]
        sums = sum_weighted(groups.where(finite), numbers[finite], weights[finite])
        return [*sums, *map(pa.array, [groups.sum_ints(weights), *counts])]

    def merge(self, groups: Groups, states: Sequence[pa.Array]) -> States:
        """Add sums and numbers."""
        return [*merge_sums(groups, states[:2]), *_sum_states(groups, states[2:])]

    def estimate(self, states: Sequence[pa.Array]) -> pa.Array:
        """The double nearest to the sum, or the mean."""
        count, nan, above, below = (np.asarray(state) for state in states[2:])
        total = round_sums(states[:2])
        total = np.where(above > 0, np.inf, np.where(below > 0, -np.inf, total))
        total = np.where((nan > 0) | ((above > 0) & (below > 0)), np.nan, total)
        if self.mean:
            return self.summary.estimate([pa.array(total), pa.array(np.maximum(count, 0))])
        return self.summary.estimate([pa.array(total, mask=count <= 0)])

    def is_empty(self, states: Sequence[pa.Array]) -> Mask:
        """Which states have no digits and only zeros."""
        empty: Mask = (list_sizes(states[1]) == 0) & _all_zero(states[2:])
        return empty


@dataclass(frozen=True, slots=True)
class DecimalTotal(Total):
    """Sum or mean of decimals."""

    dtype: pa.DataType
    mean: bool

    @property
    def fields(self) -> Fields:
        """The sum, twice as wide as the published value, and the number of values."""
        return (("sum", pa.decimal256(_WIDE, self.dtype.scale)), ("count", pa.int64()))

    def _add(self, groups: Groups, values: pa.Array, weights: Ints) -> States:
        wide = values.cast(pa.decimal256(_WIDE - 20, self.dtype.scale))
        factors = pa.array(weights).cast(pa.decimal256(19, 0))
        products = pc.multiply(wide, factors).cast(self.fields[0][1])
        return [self._sum(groups, products), pa.array(groups.sum_ints(weights))]

    def merge(self, groups: Groups, states: Sequence[pa.Array]) -> States:
        """Add sums and numbers."""
        return [self._sum(groups, states[0]), *_sum_states(groups, states[1:])]

    def _sum(self, groups: Groups, values: pa.Array) -> pa.Array:
        dtype = self.fields[0][1]
        return groups.sum_decimals(values).cast(dtype).fill_null(pa.scalar(0).cast(dtype))

    def estimate(self, states: Sequence[pa.Array]) -> pa.Array:
        """The sum or the mean."""
        has_values = pc.greater(states[1], 0)
        wanted = self.summary.fields[0][1]
        try:
            total = pc.if_else(has_values, states[0], None).cast(wanted)
        except pa.ArrowInvalid:
            raise _overflow(self.summary, f"decimal({wanted.precision},{wanted.scale})") from None
        if self.mean:
            return self.summary.estimate([total, pc.if_else(has_values, states[1], 0)])
        return self.summary.estimate([total])

    def is_empty(self, states: Sequence[pa.Array]) -> Mask:
        """Which states are 0."""
        zero = pa.scalar(0).cast(states[0].type)
        return np.asarray(pc.equal(states[0], zero)) & _all_zero(states[1:])


def _overflow(summary: Summary, wanted: str) -> CapacityError:
    return conditions.SUM_OVERFLOW.error(
        inputs=summary.inputs[0], wanted=wanted, got="a sum out of range"
    )


def sum_weighted(groups: Groups, values: Floats, weights: Ints) -> States:
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


def merge_sums(groups: Groups, sums: Sequence[pa.Array]) -> States:
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


def _add_digits(ids: Ids, count: int, position: Ids, digits: Ints) -> States:
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


def _to_lists(matrix: Ints, lowest: int) -> States:
    nonzero = matrix != 0
    some = nonzero.any(axis=1)
    first = np.where(some, nonzero.argmax(axis=1), 0)
    last = np.where(some, matrix.shape[1] - nonzero[:, ::-1].argmax(axis=1), 0)
    sizes = last - first
    columns = np.arange(matrix.shape[1])
    inside = (columns >= first[:, None]) & (columns < last[:, None])
    start = np.where(some, first + lowest, 0).astype(np.int32)
    return [pa.array(start), make_lists(pa.array(matrix[inside]), sizes)]
