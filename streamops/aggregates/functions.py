"""Aggregates with a small state: counts, sums, means, extremes, variances, first and last."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from streamops.aggregates import conditions
from streamops.aggregates.core.functions import (
    ByTime,
    Count,
    DecimalMean,
    DecimalSum,
    Extreme,
    FloatSum,
    IntSum,
    Mean,
    Variance,
)
from streamops.kernel.aggregation import Aggregation, Summary
from streamops.kernel.ordering import is_orderable
from streamops.kernel.parameters import require_columns
from streamops.sketches.aggregation import wrong_type
from streamops.spark.columns import column as quoted

ORDERED = "a type with an order: numbers, strings, binary, booleans, dates, timestamps"
TIE_BREAK = "a tie_break column of a type with an order"

_MAX_PRECISION = 38  # of Spark's decimals and of Arrow's 128-bit ones


@dataclass(frozen=True, slots=True)
class Aggregate(Aggregation):
    """An aggregate of a column, not yet bound to a schema.

    Made by the functions of this module.

    Parameters
    ----------
    function : str
        Its name, such as ``"mean"``.
    column : str, optional
        The column it reads; None only for a count of rows.
    tie_break : str, optional
        The column that orders rows which are equal in the sort column of ``first``, ``last``,
        ``collect_list`` and ``top``.
    """

    function: str
    column: str | None = None
    tie_break: str | None = None

    native: ClassVar[bool] = True

    def __repr__(self) -> str:
        arguments = [repr(self.column)] if self.column is not None else []
        arguments += [f"tie_break={self.tie_break!r}"] if self.tie_break is not None else []
        return f"{self.function}({', '.join(arguments)})"

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns the aggregate reads, beside the event time."""
        return tuple(name for name in (self.column, self.tie_break) if name is not None)

    def bind(self, schema: pa.Schema, *, time: str) -> Summary:
        """The summary that computes this aggregate over columns of these types."""
        self.require_columns(schema)
        if self.column is None:
            return Count(None)
        if self.function in ("first", "last"):
            return self._bind_by_time(self.column, schema, time)
        dtype = schema.field(self.column).type
        summary = _make_summary(self.function, self.column, dtype)
        if summary is None:
            expected = ORDERED if self.function in ("min", "max") else "numbers"
            raise wrong_type(dtype, self.column, text=repr(self), expected=expected)
        return summary

    def _bind_by_time(self, column: str, schema: pa.Schema, time: str) -> Summary:
        self.require_event_time(time)
        assert self.tie_break is not None
        tie_type = schema.field(self.tie_break).type
        if not is_orderable(tie_type):
            raise wrong_type(tie_type, self.tie_break, text=repr(self), expected=TIE_BREAK)
        return ByTime(
            column,
            time,
            self.tie_break,
            schema.field(column).type,
            schema.field(time).type,
            tie_type,
            latest=self.function == "last",
        )

    def to_spark(self, *, time: str | None = None) -> Column:
        """The same aggregate as a Spark expression, for ``groupBy(...).agg(...)``.

        Parameters
        ----------
        time : str, optional
            Event-time column, required by ``first``, ``last`` and ``collect_list``.
        """
        if self.column is None:
            return F.count(F.lit(1))
        if self.function in ("first", "last"):
            assert self.tie_break is not None
            order = F.struct(self.require_time(time), quoted(self.tie_break))
            pick = F.min_by if self.function == "first" else F.max_by
            return pick(quoted(self.column), order)
        return _NATIVE[self.function](quoted(self.column))

    def require_columns(self, schema: pa.Schema) -> None:
        """Refuse a schema without a column that the aggregate reads."""
        require_columns(schema.names, {f"agg: {self!r}": self.columns})

    def require_event_time(self, time: str) -> None:
        """Refuse an operator without event time, for an aggregate that orders rows by it."""
        if not time:
            raise conditions.AGGREGATE_BY_TIME.error(
                aggregate=self, column=self.column, got=f"agg: {self!r}"
            )

    def require_time(self, time: str | None) -> Column:
        """The event-time column, which must be given."""
        if time is None:
            raise conditions.TIME_REQUIRED.error(
                at=f"aggregates.{self.function}", aggregate=self, got="to_spark()"
            )
        return quoted(time)


def count(column: str | None = None) -> Aggregate:
    """Rows, or the non-null values of a column: ``bigint``.

    Examples
    --------
    >>> count(), count("user_id")
    (count(), count('user_id'))
    """
    return Aggregate("count", column)


def sum(column: str) -> Aggregate:
    """Sum of the non-null values; null if there are none.

    Integers give ``bigint``, ``decimal(p,s)`` gives ``decimal(p+10,s)``; both raise an error
    if they overflow. Floats give ``double``: NaN and infinities as in IEEE 754, so one NaN
    makes the sum NaN. Day-time intervals give day-time intervals.
    """
    return Aggregate("sum", column)


def mean(column: str) -> Aggregate:
    """Mean of the non-null values; null if there are none.

    ``double``, or ``decimal(p+4,s+4)`` rounded half up for ``decimal(p,s)``. A NaN makes it NaN.
    """
    return Aggregate("mean", column)


def min(column: str) -> Aggregate:
    """Least non-null value, of the column's type. NaN is greater than any number."""
    return Aggregate("min", column)


def max(column: str) -> Aggregate:
    """Greatest non-null value, of the column's type. NaN is greater than any number."""
    return Aggregate("max", column)


def variance(column: str) -> Aggregate:
    """Sample variance, ``double``; null for fewer than two values, NaN if one is NaN or infinite.

    Numerically stable: values far from zero lose no digits to cancellation. Each value is a double before
    that, as in Spark: integers beyond 2^53 and long decimals are rounded. Subtract a constant before, if
    they differ in their last digits only.

    References
    ----------
    Chan, Golub, LeVeque: "Algorithms for Computing the Sample Variance", 1983.
    """
    return Aggregate("variance", column)


def stddev(column: str) -> Aggregate:
    """Sample standard deviation, ``double``: the square root of :func:`variance`."""
    return Aggregate("stddev", column)


def first(column: str, *, tie_break: str) -> Aggregate:
    """Value of the earliest row by event time; null if it is null there.

    Parameters
    ----------
    column : str
        The value, of any type.
    tie_break : str
        Orders rows of the same event time, least first, null before everything: a sequence
        number, an offset. It must be unique among the rows of a key at one event time: which
        of two rows with the same event time and the same tie-break is taken depends on the
        order of arrival.
    """
    return Aggregate("first", column, tie_break)


def last(column: str, *, tie_break: str) -> Aggregate:
    """Value of the latest row by event time; null if it is null there.

    Parameters
    ----------
    column : str
        The value, of any type.
    tie_break : str
        Orders rows of the same event time; the greatest wins. It must be unique among them:
        see :func:`first`.
    """
    return Aggregate("last", column, tie_break)


def is_number(dtype: pa.DataType) -> bool:
    """Whether values of this type are integers or floats."""
    return bool(pa.types.is_integer(dtype) or pa.types.is_floating(dtype))


def _make_summary(function: str, column: str, dtype: pa.DataType) -> Summary | None:
    """The summary of a function over this type; None if it does not support the type."""
    is_decimal = pa.types.is_decimal(dtype)
    match function:
        case "count":
            return Count(column)
        case "sum" if pa.types.is_integer(dtype):
            return IntSum(column, pa.int64())
        case "sum" if pa.types.is_duration(dtype):
            return IntSum(column, dtype)
        case "sum" if pa.types.is_floating(dtype):
            return FloatSum(column)
        case "sum" if is_decimal:
            return DecimalSum(column, _widen(dtype, 10, 0))
        case "mean" if is_decimal:
            return DecimalMean(column, _widen(dtype, 10, 0), _widen(dtype, 4, 4))
        case "mean" if is_number(dtype):
            return Mean(column)
        case "variance" | "stddev" if is_decimal or is_number(dtype):
            return Variance(column, root=function == "stddev")
        case "min" | "max" if is_orderable(dtype):
            return Extreme(column, dtype, function == "max")
    return None


def _widen(dtype: pa.DataType, digits: int, scale: int) -> pa.DataType:
    precision, wider_scale = dtype.precision + digits, dtype.scale + scale
    within = (
        item if item < _MAX_PRECISION else _MAX_PRECISION for item in (precision, wider_scale)
    )
    return pa.decimal128(*within)


_NATIVE: dict[str, Callable[[Column], Column]] = {
    "count": F.count,
    "sum": F.sum,
    "mean": F.avg,
    "min": F.min,
    "max": F.max,
    "variance": F.var_samp,
    "stddev": F.stddev_samp,
}
