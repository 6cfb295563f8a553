"""The aggregates a user can name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from streamops.aggregates.binding import Request, summary
from streamops.aggregates.core.sums import Count
from streamops.kernel.contract import Aggregation, Summary
from streamops.kernel.errors import ColumnNotFound, SpecError
from streamops.spark.columns import column as quoted
from streamops.spark.columns import require_name

__all__ = [
    "Aggregate",
    "count",
    "first",
    "last",
    "max",
    "mean",
    "min",
    "stddev",
    "sum",
    "variance",
]


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
        What decides between rows that are equal in what ``first``, ``last``, ``collect`` and
        ``top`` go by.

    Raises
    ------
    SpecError
        ``NOT_A_NAME``: a column is given otherwise than by its name.
    """

    function: str
    column: str | None = None
    tie_break: str | None = None

    native: ClassVar[bool] = True

    def __post_init__(self) -> None:
        where = f"aggregates.{self.function}"
        if self.function != "count" or self.column is not None:
            require_name(self.column, parameter="column", where=where)
        if self.function in ("first", "last", "collect", "top"):
            require_name(self.tie_break, parameter="tie_break", where=where)

    def __repr__(self) -> str:
        words = [repr(self.column)] if self.column is not None else []
        words += [f"tie_break={self.tie_break!r}"] if self.tie_break is not None else []
        return f"{self.function}({', '.join(words)})"

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns the aggregate reads, beside the event time."""
        return tuple(name for name in (self.column, self.tie_break) if name is not None)

    def bind(self, schema: pa.Schema, *, time: str, where: str) -> Summary:
        """The summary that computes this aggregate over columns of these types."""
        self.require_columns(schema, where)
        if self.column is None:
            return Count(None)
        request = Request(self.function, self.column, self.tie_break, time, schema)
        return summary(request, shown=repr(self), where=where)

    def to_spark(self, *, time: str | None = None) -> Column:
        """The same aggregate as a Spark expression, for ``groupBy(...).agg(...)``.

        Parameters
        ----------
        time : str, optional
            Event-time column, which ``first``, ``last`` and ``collect`` need.
        """
        if self.column is None:
            return F.count(F.lit(1))
        if self.function in ("first", "last"):
            return self._by_time(self.column, time)
        return _NATIVE[self.function](quoted(self.column))

    def _by_time(self, column: str, time: str | None) -> Column:
        assert self.tie_break is not None
        order = F.struct(self.require_time(time), quoted(self.tie_break))
        return (F.min_by if self.function == "first" else F.max_by)(quoted(column), order)

    def require_columns(self, schema: pa.Schema, where: str) -> None:
        """Refuse a schema without a column that the aggregate reads."""
        for name in self.columns:
            if name not in schema.names:
                raise ColumnNotFound(name, schema.names, where=where, role=f"agg: {self!r}")

    def require_time(self, time: str | None) -> Column:
        """The event-time column, which must be told."""
        if time is None:
            raise SpecError(
                "TIME_REQUIRED",
                f"{self!r} goes by event time",
                where=f"aggregates.{self.function}",
                got="to_spark()",
                expected="to_spark(time=...)",
                fix='name the event-time column: to_spark(time="ts")',
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
    """Sum of the non-null values; null where there are none.

    Integers give ``bigint``, ``decimal(p,s)`` gives ``decimal(p+10,s)``; both raise an error
    where they overflow. Floats give ``double``: NaN and infinities as in IEEE 754, so one NaN
    makes the sum NaN. Day-time intervals give day-time intervals.
    """
    return Aggregate("sum", column)


def mean(column: str) -> Aggregate:
    """Mean of the non-null values; null where there are none.

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
    """Sample variance, ``double``; null for fewer than two values, NaN where one is NaN or infinite.

    Numerically stable: values far from zero lose no digits to cancellation.

    References
    ----------
    Chan, Golub, LeVeque: "Algorithms for Computing the Sample Variance", 1983.
    """
    return Aggregate("variance", column)


def stddev(column: str) -> Aggregate:
    """Sample standard deviation, ``double``: the root of :func:`variance`."""
    return Aggregate("stddev", column)


def first(column: str, *, tie_break: str) -> Aggregate:
    """Value of the earliest row by event time, null if it is null there.

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
    """Value of the latest row by event time, null if it is null there.

    Parameters
    ----------
    column : str
        The value, of any type.
    tie_break : str
        Orders rows of the same event time; the greatest wins. It must be unique among them:
        see :func:`first`.
    """
    return Aggregate("last", column, tie_break)


_NATIVE: dict[str, Callable[[Column], Column]] = {
    "count": F.count,
    "sum": F.sum,
    "mean": F.avg,
    "min": F.min,
    "max": F.max,
    "variance": F.var_samp,
    "stddev": F.stddev_samp,
}
