"""Aggregates with a small state: counts, sums, means, variances; and the values that are picked.

``min``, ``max``, ``first`` and ``last`` pick one of the values.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamops.aggregates import conditions
from streamops.kernel.columns import combine_chunks, to_floats
from streamops.kernel.errors import CapacityError
from streamops.kernel.groups import Floats, Groups, Ids, Ints
from streamops.kernel.ordering import ranks


class ColumnSummary:
    """A summary that reads one column."""

    __slots__ = ()
    column: str

    @property
    def inputs(self) -> tuple[str, ...]:
        """Columns that ``update`` reads."""
        return (self.column,)


@dataclass(frozen=True, slots=True)
class Count:
    """Rows, or the non-null values of a column."""

    column: str | None
    result = pa.int64()
    fields = (("count", pa.int64()),)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Columns that ``update`` reads."""
        return () if self.column is None else (self.column,)

    def update(self, groups: Groups, rows: pa.Table) -> list[pa.Array]:
        """Count the rows of each group."""
        if self.column is not None:
            groups = groups.where(np.asarray(combine_chunks(rows.column(self.column)).is_valid()))
        return [pa.array(groups.sizes())]

    def merge(self, groups: Groups, states: Sequence[pa.Array]) -> list[pa.Array]:
        """Add the counts."""
        return [pa.array(groups.sum_ints(np.asarray(states[0])))]

    def estimate(self, states: Sequence[pa.Array]) -> pa.Array:
        """The count."""
        return states[0]


class _Sum(ColumnSummary, ABC):
    """A sum; its state is the sum, null without values."""

    __slots__ = ()
    result: pa.DataType

    @property
    def fields(self) -> tuple[tuple[str, pa.DataType], ...]:
        """The sum."""
        return (("sum", self.result),)

    def update(self, groups: Groups, rows: pa.Table) -> list[pa.Array]:
        """Add up the values of each group."""
        return [self._total(groups, combine_chunks(rows.column(self.column)))]

    def merge(self, groups: Groups, states: Sequence[pa.Array]) -> list[pa.Array]:
        """Add the sums."""
        return [self._total(groups, states[0])]

    def estimate(self, states: Sequence[pa.Array]) -> pa.Array:
        """The sum."""
        return states[0]

    @abstractmethod
    def _total(self, groups: Groups, values: pa.Array) -> pa.Array:
        """The sum of the values of each group."""


@dataclass(frozen=True, slots=True)
class IntSum(_Sum):
    """Sum of integers or of day-time intervals: exact, an error if it overflows."""

    column: str
    result: pa.DataType

    def _total(self, groups: Groups, values: pa.Array) -> pa.Array:
        valid = np.asarray(values.is_valid())
        groups = groups.where(valid)
        numbers = np.asarray(values.drop_null().cast(pa.int64()))
        try:
            total = groups.sum_ints(numbers)
        except OverflowError:
            raise _overflow("sum", self.column, self.result) from None
        return pa.array(total, mask=groups.sizes() == 0).cast(self.result)


@dataclass(frozen=True, slots=True)
class FloatSum(_Sum):
    """Sum of doubles; NaN and infinities as in IEEE 754."""

    column: str
    result = pa.float64()

    def _total(self, groups: Groups, values: pa.Array) -> pa.Array:
        total, count = _float_total(groups, values)
        return pa.array(total, mask=count == 0)


@dataclass(frozen=True, slots=True)
class DecimalSum(_Sum):
    """Sum of decimals: exact, ten digits wider than its input, an error beyond 38 digits."""

    column: str
    result: pa.DataType

    def _total(self, groups: Groups, values: pa.Array) -> pa.Array:
        return _decimal_total(groups, values, self.result, self.column)


@dataclass(frozen=True, slots=True)
class Mean(ColumnSummary):
    """Mean of numbers, summed as doubles, as Spark does."""

    column: str
    result = pa.float64()
    fields = (("sum", pa.float64()), ("count", pa.int64()))

    def update(self, groups: Groups, rows: pa.Table) -> list[pa.Array]:
        """Sum and count the values of each group."""
        total, count = _float_total(groups, combine_chunks(rows.column(self.column)))
        return [pa.array(total), pa.array(count)]

    def merge(self, groups: Groups, states: Sequence[pa.Array]) -> list[pa.Array]:
        """Add sums and counts."""
        total, _ = _float_total(groups, states[0])
        return [pa.array(total), pa.array(groups.sum_ints(np.asarray(states[1])))]

    def estimate(self, states: Sequence[pa.Array]) -> pa.Array:
        """Sum divided by count; null without values."""
        total, count = np.asarray(states[0]), np.asarray(states[1])
        return pa.array(total / np.maximum(count, 1), mask=count == 0)


@dataclass(frozen=True, slots=True)
class DecimalMean(ColumnSummary):
    """Mean of decimals: exact sum, four more digits behind the point, rounded half up."""

    column: str
    sum_type: pa.DataType
    result: pa.DataType

    @property
    def fields(self) -> tuple[tuple[str, pa.DataType], ...]:
        """Sum and count."""
        return (("sum", self.sum_type), ("count", pa.int64()))

    def update(self, groups: Groups, rows: pa.Table) -> list[pa.Array]:
        """Sum and count the values of each group."""
        values = combine_chunks(rows.column(self.column))
        valid = groups.where(np.asarray(values.is_valid()))
        total = _decimal_total(groups, values, self.sum_type, self.column)
        return [total, pa.array(valid.sizes())]

    def merge(self, groups: Groups, states: Sequence[pa.Array]) -> list[pa.Array]:
        """Add sums and counts."""
        total = _decimal_total(groups, states[0], self.sum_type, self.column)
        return [total, pa.array(groups.sum_ints(np.asarray(states[1])))]

    def estimate(self, states: Sequence[pa.Array]) -> pa.Array:
        """Sum divided by count; null without values."""
        total = states[0].cast(pa.decimal256(38, self.sum_type.scale))
        count = states[1].cast(pa.decimal256(19, 0))
        # Arrow truncates the quotient twenty digits further right than we round it.
        is_empty = pc.equal(count, pa.scalar(0, count.type))
        divisor = pc.if_else(is_empty, None, count)
        quotient = pc.divide(pc.if_else(total.is_valid(), total, None), divisor)
        try:
            rounded = pc.round(quotient, self.result.scale, round_mode="half_towards_infinity")
            return rounded.cast(self.result)
        except pa.ArrowInvalid:
            raise _overflow("mean", self.column, self.result) from None


@dataclass(frozen=True, slots=True)
class Variance(ColumnSummary):
    """Sample variance, or its square root: null for fewer than two values, as in Spark.

    By central differences, never as the sum of squares minus the square of the sum: on values far from
    zero that subtracts two huge, nearly equal numbers (Chan, Golub, LeVeque, "Algorithms for Computing
    the Sample Variance", The American Statistician 37(3), 1983).
    """

    column: str
    root: bool
    result = pa.float64()
    fields = (("count", pa.int64()), ("mean", pa.float64()), ("m2", pa.float64()))

    def update(self, groups: Groups, rows: pa.Table) -> list[pa.Array]:
        """Two passes: the mean of each group, then the squares of the distances from it."""
        values = combine_chunks(rows.column(self.column))
        groups = groups.where(np.asarray(values.is_valid()))
        numbers = to_floats(values.drop_null())
        count = groups.sizes()
        mean, distance = _centred(groups, numbers, np.ones(len(numbers), np.int64), count)
        with np.errstate(over="ignore"):
            return [pa.array(count), pa.array(mean), pa.array(groups.sum_floats(distance**2))]

    def merge(self, groups: Groups, states: Sequence[pa.Array]) -> list[pa.Array]:
        """Chan's formula over all members at once."""
        count, mean, m2 = (np.asarray(state) for state in states)
        total = groups.sum_ints(count)
        squares = groups.sum_floats(m2)
        present = count > 0
        groups, count = groups.where(present), count[present]
        centre, distance = _centred(groups, mean[present], count, total)
        # A single state is returned as it is, also if its mean is infinite and has no distance.
        alone = groups.sizes() == 1
        centre[alone] = mean[present][groups.first_by()[alone]]
        distance[alone[groups.ids]] = 0.0
        with np.errstate(invalid="ignore", over="ignore"):
            squares += groups.sum_floats(count * distance**2)
        return [pa.array(total), pa.array(centre), pa.array(squares)]

    def estimate(self, states: Sequence[pa.Array]) -> pa.Array:
        """The sum of squared differences divided by (count - 1)."""
        count, _, m2 = (np.asarray(state) for state in states)
        value = m2 / np.maximum(count - 1, 1)
        return pa.array(np.sqrt(value) if self.root else value, mask=count < 2)


@dataclass(frozen=True, slots=True)
class Extreme(ColumnSummary):
    """Least or greatest value; nulls are ignored."""

    column: str
    result: pa.DataType
    greatest: bool

    @property
    def fields(self) -> tuple[tuple[str, pa.DataType], ...]:
        """The value."""
        return (("value", self.result),)

    def update(self, groups: Groups, rows: pa.Table) -> list[pa.Array]:
        """Pick from the values of each group."""
        return self.merge(groups, [combine_chunks(rows.column(self.column))])

    def merge(self, groups: Groups, states: Sequence[pa.Array]) -> list[pa.Array]:
        """Pick from the picked values."""
        (values,) = states
        if values.null_count:
            groups, values = groups.where(np.asarray(values.is_valid())), values.drop_null()
        order = ranks(values)
        return [_pick(values, groups.first_by(~order if self.greatest else order))]

    def estimate(self, states: Sequence[pa.Array]) -> pa.Array:
        """The value."""
        return states[0]


@dataclass(frozen=True, slots=True)
class ByTime:
    """Value of the earliest or latest row by (event time, tie-break); it may be null."""

    column: str
    time: str
    tie_break: str
    result: pa.DataType
    time_type: pa.DataType
    tie_type: pa.DataType
    latest: bool

    @property
    def inputs(self) -> tuple[str, ...]:
        """Columns that ``update`` reads."""
        return (self.column, self.time, self.tie_break)

    @property
    def fields(self) -> tuple[tuple[str, pa.DataType], ...]:
        """The value, and its sort columns. Time is null in an empty state."""
        return (("value", self.result), ("time", self.time_type), ("tie", self.tie_type))

    def update(self, groups: Groups, rows: pa.Table) -> list[pa.Array]:
        """Pick from the rows of each group."""
        return self.merge(groups, [combine_chunks(rows.column(name)) for name in self.inputs])

    def merge(self, groups: Groups, states: Sequence[pa.Array]) -> list[pa.Array]:
        """Pick from the picked rows."""
        present = np.asarray(states[1].is_valid())
        if not present.all():
            groups = groups.where(present)
            states = [state.filter(pa.array(present)) for state in states]
        order = [ranks(states[1]), ranks(states[2])]
        rows = groups.first_by(*(~key if self.latest else key for key in order))
        return [_pick(state, rows) for state in states]

    def estimate(self, states: Sequence[pa.Array]) -> pa.Array:
        """The value."""
        return states[0]


def _pick(values: pa.Array, rows: Ids) -> pa.Array:
    return values.take(pa.array(rows, mask=rows < 0))


def _float_total(groups: Groups, values: pa.Array) -> tuple[Floats, Ints]:
    if values.null_count:
        groups, values = groups.where(np.asarray(values.is_valid())), values.drop_null()
    return groups.sum_floats(to_floats(values)), groups.sizes()


def _decimal_total(groups: Groups, values: pa.Array, result: pa.DataType, column: str) -> pa.Array:
    # Twice as wide while adding, so that an overflow is an error.
    wide = values.cast(pa.decimal256(76, result.scale))
    try:
        return groups.sum_decimals(wide).cast(result)
    except pa.ArrowInvalid:
        raise _overflow("sum", column, result) from None


def _overflow(function: str, column: str, dtype: pa.DataType) -> CapacityError:
    spark = {pa.int64(): "bigint", pa.duration("us"): "interval day to second"}
    wanted = spark.get(dtype) or f"decimal({dtype.precision},{dtype.scale})"
    return conditions.SUM_OVERFLOW.error(
        at=f"aggregates.{function}",
        function=function,
        column=column,
        wanted=wanted,
        got=f"a {function} out of range",
    )


def _centred(groups: Groups, numbers: Floats, weight: Ints, total: Ints) -> tuple[Floats, Floats]:
    """Mean of each group, and the distance of each number from it.

    Computed relative to the first number of the group: equal numbers have distance exactly 0, and the
    mean of a single number is itself to the last bit, so that merging a single state returns it.
    """
    first = groups.first_by()
    pivot = np.append(numbers, 0.0)[first]  # position -1, of an empty group, is the 0 at the end
    # The distance of an infinity from itself is NaN; sums and squares may overflow to infinity.
    with np.errstate(invalid="ignore", over="ignore"):
        offset = numbers - pivot[groups.ids]
        shift = groups.sum_floats(weight * offset) / np.maximum(total, 1)
        return pivot + shift, offset - shift[groups.ids]
