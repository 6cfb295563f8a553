"""Totals from which rows can be retracted exactly: counts, sums and means of weighted rows.

A retracted row has weight -1. Totals are rounded only when a value is published, so that rows that are
added and retracted leave an empty total, in whatever order that happens.

A total is the state of a *summary* of the same rows in another form: the published value is that
summary's estimate, with its types and errors.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamops.changes.core import exact
from streamops.kernel.aggregation import Summary
from streamops.kernel.columns import combine_chunks, to_floats
from streamops.kernel.errors import CapacityError
from streamops.kernel.group_states import list_sizes
from streamops.kernel.groups import Groups, Ints, Mask

__all__ = ["CountTotal", "DecimalTotal", "FloatTotal", "IntTotal", "Total"]

States = list[pa.Array]
Fields = tuple[tuple[str, pa.DataType], ...]

_HALF = 32
_LOW = (1 << _HALF) - 1
_WIDE = 76  # digits of Arrow's 256-bit decimals


@dataclass(frozen=True, slots=True)
class Total(ABC):
    """State of a group from which rows can be retracted."""

    summary: Summary  # its estimate is published

    @property
    @abstractmethod
    def fields(self) -> Fields:
        """Columns of the state: name and type."""

    @abstractmethod
    def update(self, groups: Groups, rows: pa.Table, weights: Ints) -> States:
        """States of the groups over rows with these weights."""

    def merge(self, groups: Groups, states: Sequence[pa.Array]) -> States:
        """States of the groups over their members' states."""
        return _sum_states(groups, states)

    @abstractmethod
    def estimate(self, states: Sequence[pa.Array]) -> pa.Array:
        """The value of each state."""

    def is_empty(self, states: Sequence[pa.Array]) -> Mask:
        """Which states are those of no rows."""
        return _all_zero(states)


def _present(
    groups: Groups, column: pa.Array | pa.ChunkedArray, weights: Ints
) -> tuple[Groups, pa.Array, Ints]:
    """Groups, values and weights, without nulls."""
    values = combine_chunks(column)
    if values.null_count:
        is_valid = np.asarray(values.is_valid())
        groups, weights, values = groups.where(is_valid), weights[is_valid], values.drop_null()
    return groups, values, weights


def _sum_states(groups: Groups, states: Sequence[pa.Array]) -> States:
    return [pa.array(groups.sum_ints(np.asarray(state))) for state in states]


def _all_zero(states: Sequence[pa.Array]) -> Mask:
    zero = np.ones(len(states[0]), np.bool_)
    for state in states:
        zero &= np.asarray(state) == 0
    return zero


@dataclass(frozen=True, slots=True)
class CountTotal(Total):
    """Rows, or the values of a column that are not null."""

    @property
    def fields(self) -> Fields:
        """The count."""
        return (("count", pa.int64()),)

    def update(self, groups: Groups, rows: pa.Table, weights: Ints) -> States:
        """Add the weights."""
        for name in self.summary.inputs:
            groups, _, weights = _present(groups, rows.column(name), weights)
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

    def update(self, groups: Groups, rows: pa.Table, weights: Ints) -> States:
        """Add the weighted values."""
        column = rows.column(self.summary.inputs[0])
        groups, values, weights = _present(groups, column, weights)
        numbers = np.asarray(values.cast(pa.int64()))
        high, low = (numbers >> _HALF) * weights, (numbers & _LOW) * weights
        return self._halves(*map(groups.sum_ints, (high, low, weights)))

    def merge(self, groups: Groups, states: Sequence[pa.Array]) -> States:
        """Add the halves."""
        return self._halves(*(np.asarray(state) for state in _sum_states(groups, states)))

    def _halves(self, high: Ints, low: Ints, count: Ints) -> States:
        return [pa.array(high + (low >> _HALF)), pa.array(low & _LOW), pa.array(count)]

    def estimate(self, states: Sequence[pa.Array]) -> pa.Array:
        """The sum, or its share of the number of values."""
        high, low, count = (np.asarray(state) for state in states)
        if self.mean:
            total = high * float(1 << _HALF) + low
            return self.summary.estimate([pa.array(total), pa.array(np.maximum(count, 0))])
        whole = (high << _HALF) + low
        has_values = count > 0
        if (has_values & (whole >> _HALF != high)).any():
            raise _overflow(self.summary, "bigint, or a day-time interval")
        return self.summary.estimate([pa.array(whole, mask=~has_values).cast(self.summary.result)])


@dataclass(frozen=True, slots=True)
class FloatTotal(Total):
    """Sum or mean of doubles, rounded only when published; NaN and infinities are counted."""

    mean: bool

    @property
    def fields(self) -> Fields:
        """The sum of the finite values; numbers of all, of NaN and of both infinities."""
        return (*exact.FIELDS, *((n, pa.int64()) for n in ("count", "nan", "above", "below")))

    def update(self, groups: Groups, rows: pa.Table, weights: Ints) -> States:
        """Add the weighted values."""
        column = rows.column(self.summary.inputs[0])
        groups, values, weights = _present(groups, column, weights)
        numbers = to_floats(values)
        special = [np.isnan(numbers), numbers == np.inf, numbers == -np.inf]
        finite = np.isfinite(numbers)
        counts = [groups.where(found).sum_ints(weights[found]) for found in special]
        sums = exact.sum_weighted(groups.where(finite), numbers[finite], weights[finite])
        return [*sums, *map(pa.array, [groups.sum_ints(weights), *counts])]

    def merge(self, groups: Groups, states: Sequence[pa.Array]) -> States:
        """Add sums and numbers."""
        return [*exact.merge_sums(groups, states[:2]), *_sum_states(groups, states[2:])]

    def estimate(self, states: Sequence[pa.Array]) -> pa.Array:
        """The double nearest to the sum, or its share of the number of values."""
        count, nan, above, below = (np.asarray(state) for state in states[2:])
        total = exact.round_sums(states[:2])
        total = np.where(above > 0, np.inf, np.where(below > 0, -np.inf, total))
        total = np.where((nan > 0) | ((above > 0) & (below > 0)), np.nan, total)
        if self.mean:
            return self.summary.estimate([pa.array(total), pa.array(np.maximum(count, 0))])
        return self.summary.estimate([pa.array(total, mask=count <= 0)])

    def is_empty(self, states: Sequence[pa.Array]) -> Mask:
        """Where there are no digits, and all numbers are 0."""
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

    def update(self, groups: Groups, rows: pa.Table, weights: Ints) -> States:
        """Add the weighted values."""
        column = rows.column(self.summary.inputs[0])
        groups, values, weights = _present(groups, column, weights)
        wide = values.cast(pa.decimal256(_WIDE - 20, self.dtype.scale))
        times = pa.array(weights).cast(pa.decimal256(19, 0))
        products = pc.multiply(wide, times).cast(self.fields[0][1])
        return [self._sum(groups, products), pa.array(groups.sum_ints(weights))]

    def merge(self, groups: Groups, states: Sequence[pa.Array]) -> States:
        """Add sums and numbers."""
        return [self._sum(groups, states[0]), *_sum_states(groups, states[1:])]

    def _sum(self, groups: Groups, values: pa.Array) -> pa.Array:
        dtype = self.fields[0][1]
        return groups.sum_decimals(values).cast(dtype).fill_null(pa.scalar(0).cast(dtype))

    def estimate(self, states: Sequence[pa.Array]) -> pa.Array:
        """The sum, or its share of the number of values."""
        there = pc.greater(states[1], 0)
        wanted = self.summary.fields[0][1]
        try:
            total = pc.if_else(there, states[0], None).cast(wanted)
        except pa.ArrowInvalid:
            raise _overflow(self.summary, f"decimal({wanted.precision},{wanted.scale})") from None
        if self.mean:
            return self.summary.estimate([total, pc.if_else(there, states[1], 0)])
        return self.summary.estimate([total])

    def is_empty(self, states: Sequence[pa.Array]) -> Mask:
        """Where sum and number are 0."""
        zero = pa.scalar(0).cast(states[0].type)
        return np.asarray(pc.equal(states[0], zero)) & _all_zero(states[1:])


def _overflow(summary: Summary, wanted: str) -> CapacityError:
    return CapacityError(
        "SUM_OVERFLOW",
        f"the sum of {summary.inputs[0]!r} does not fit into its type",
        where="changes.aggregate",
        got="a sum out of range",
        expected=f"a value of type {wanted}",
        fix="cast the column to a wider type first, such as decimal(38,0) or double",
    )
