"""Counts, sums and means."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamops.kernel.columns import combine_chunks, to_floats
from streamops.kernel.errors import CapacityError
from streamops.kernel.groups import Groups

__all__ = ["Count", "DecimalMean", "DecimalSum", "FloatSum", "IntSum", "Mean"]


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


class _Sum:
    """What the sums share: the state of a group is its sum, null while it has no value."""

    __slots__ = ()
    column: str

    @property
    def inputs(self) -> tuple[str, ...]:
        """Columns that ``update`` reads."""
        return (self.column,)

    def update(self, groups: Groups, rows: pa.Table) -> list[pa.Array]:
        """Add up the values of each group."""
        return [self._total(groups, combine_chunks(rows.column(self.column)))]

    def merge(self, groups: Groups, states: Sequence[pa.Array]) -> list[pa.Array]:
        """Add the sums."""
        return [self._total(groups, states[0])]

    def estimate(self, states: Sequence[pa.Array]) -> pa.Array:
        """The sum."""
        return states[0]

    def _total(self, groups: Groups, values: pa.Array) -> pa.Array:
        raise AssertionError  # pragma: no cover  (each sum has its own)


@dataclass(frozen=True, slots=True)
class IntSum(_Sum):
    """Sum of integers or of day-time intervals: exact, an error where it overflows."""

    column: str
    result: pa.DataType

    @property
    def fields(self) -> tuple[tuple[str, pa.DataType], ...]:
        """The sum."""
        return (("sum", self.result),)

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
    """Sum of doubles; NaN and infinities as IEEE 754 has them."""

    column: str
    result = pa.float64()
    fields = (("sum", pa.float64()),)

    def _total(self, groups: Groups, values: pa.Array) -> pa.Array:
        total, count = _float_total(groups, values)
        return pa.array(total, mask=count == 0)


@dataclass(frozen=True, slots=True)
class DecimalSum(_Sum):
    """Sum of decimals: exact, ten digits wider than its input, an error beyond 38 digits."""

    column: str
    result: pa.DataType

    @property
    def fields(self) -> tuple[tuple[str, pa.DataType], ...]:
        """The sum."""
        return (("sum", self.result),)

    def _total(self, groups: Groups, values: pa.Array) -> pa.Array:
        return _decimal_total(groups, values, self.result, self.column)


@dataclass(frozen=True, slots=True)
class Mean:
    """Mean of numbers, summed as doubles, as Spark does."""

    column: str
    result = pa.float64()
    fields = (("sum", pa.float64()), ("count", pa.int64()))

    @property
    def inputs(self) -> tuple[str, ...]:
        """Columns that ``update`` reads."""
        return (self.column,)

    def update(self, groups: Groups, rows: pa.Table) -> list[pa.Array]:
        """Sum and count the values of each group."""
        total, count = _float_total(groups, combine_chunks(rows.column(self.column)))
        return [pa.array(total), pa.array(count)]

    def merge(self, groups: Groups, states: Sequence[pa.Array]) -> list[pa.Array]:
        """Add sums and counts."""
        total, _ = _float_total(groups, states[0])
        return [pa.array(total), pa.array(groups.sum_ints(np.asarray(states[1])))]

    def estimate(self, states: Sequence[pa.Array]) -> pa.Array:
        """Sum over count; null where there was no value."""
        total, count = np.asarray(states[0]), np.asarray(states[1])
        return pa.array(total / np.maximum(count, 1), mask=count == 0)


@dataclass(frozen=True, slots=True)
class DecimalMean:
    """Mean of decimals: exact sum, four more digits behind the point, rounded half up."""

    column: str
    sum_type: pa.DataType
    result: pa.DataType

    @property
    def inputs(self) -> tuple[str, ...]:
        """Columns that ``update`` reads."""
        return (self.column,)

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
        """Sum over count; null where there was no value."""
        total = states[0].cast(pa.decimal256(38, self.sum_type.scale))
        count = states[1].cast(pa.decimal256(19, 0))
        # Arrow truncates the quotient twenty digits further right than we round it.
        quotient = pc.divide(pc.if_else(total.is_valid(), total, None), _not_zero(count))
        try:
            rounded = pc.round(quotient, self.result.scale, round_mode="half_towards_infinity")
            return rounded.cast(self.result)
        except pa.ArrowInvalid:
            raise _overflow("mean", self.column, self.result) from None


def _not_zero(count: pa.Array) -> pa.Array:
    return pc.if_else(pc.equal(count, pa.scalar(0, count.type)), None, count)


def _float_total(
    groups: Groups, values: pa.Array
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    if values.null_count:
        groups, values = groups.where(np.asarray(values.is_valid())), values.drop_null()
    return groups.sum_floats(to_floats(values)), groups.sizes()


def _decimal_total(groups: Groups, values: pa.Array, result: pa.DataType, column: str) -> pa.Array:
    # Twice as wide while adding, so that what does not fit is seen and not wrapped around.
    wide = values.cast(pa.decimal256(76, result.scale))
    try:
        return groups.sum_decimals(wide).cast(result)
    except pa.ArrowInvalid:
        raise _overflow("sum", column, result) from None


def _overflow(function: str, column: str, kind: pa.DataType) -> CapacityError:
    spark = {pa.int64(): "bigint", pa.duration("us"): "interval day to second"}
    wanted = spark.get(kind) or f"decimal({kind.precision},{kind.scale})"
    return CapacityError(
        "SUM_OVERFLOW",
        f"the {function} of {column!r} does not fit into its type",
        where=f"aggregates.{function}",
        got=f"a {function} out of range",
        expected=f"a value of type {wanted}",
        fix="cast the column to a wider type first, such as decimal(38,0) or double",
    )
