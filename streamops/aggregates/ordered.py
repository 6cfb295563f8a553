"""Aggregates that store values, up to a bound: count_distinct, percentile, collect_list, top."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from streamops.aggregates import conditions
from streamops.aggregates.core.ordered import CountDistinct, Keep, Percentile, Ranked
from streamops.aggregates.functions import ORDERED, TIE_BREAK, Aggregate, is_number
from streamops.kernel.aggregation import Summary
from streamops.kernel.ordering import is_comparable, is_orderable
from streamops.sketches.aggregation import parse_percentages, require_percentages, wrong_type
from streamops.spark.columns import column as quoted

WhenFull = Literal["fail", "null"]
WhenCollected = Literal["fail", "null", "reject_new", "evict_oldest"]


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class BoundedAggregate(Aggregate):
    """An aggregate that stores at most so many values per group: count_distinct, percentile.

    Spark's own expression stores all of them, so windows always compute it in the kernel.
    """

    at_most: int
    when_full: str = "fail"
    percentage: float | tuple[float, ...] | None = None

    native: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_positive(self.at_most, "at_most")
        if self.percentage is not None:
            require_percentages(self._percentages)

    def __repr__(self) -> str:
        arguments = [repr(self.column)]
        if self.percentage is not None:
            arguments.append(repr(self._spark_percentage))
        arguments += [f"at_most={self.at_most}", f"when_full={self.when_full!r}"]
        arguments += [f"tie_break={self.tie_break!r}"] if self.tie_break is not None else []
        return f"{self.function}({', '.join(arguments)})"

    def bind(self, schema: pa.Schema, *, time: str) -> Summary:
        """The summary that computes this aggregate over columns of these types."""
        self.require_columns(schema)
        assert self.column is not None
        dtype = schema.field(self.column).type
        fails = self.when_full == "fail"
        if self.function == "count_distinct":
            if not is_comparable(dtype):
                expected = "a type whose values can be compared: any without a map in it"
                raise wrong_type(dtype, self.column, text=repr(self), expected=expected)
            return CountDistinct(self.column, dtype, self.at_most, fails)
        if not (is_number(dtype) or pa.types.is_decimal(dtype)):
            raise wrong_type(dtype, self.column, text=repr(self), expected="numbers")
        single = not isinstance(self.percentage, tuple)
        return Percentile(self.column, dtype, self.at_most, fails, self._percentages, single)

    def to_spark(self, *, time: str | None = None) -> Column:
        """The same aggregate as a Spark expression, for ``groupBy(...).agg(...)``.

        Spark stores every value until the group is complete, and checks the bound then.
        """
        assert self.column is not None
        values = quoted(self.column)
        if self.function == "count_distinct":
            count = F.count_distinct(values)
            return self.within_bound(count, count)
        return self.within_bound(F.count(values), F.percentile(values, self._spark_percentage))

    def within_bound(self, size: Column, value: Column) -> Column:
        """The value if the size is within the bound, else null or an error, as `when_full` says."""
        bounded = F.when(size <= self.at_most, value)
        if self.when_full == "null":
            return bounded
        message = f"[STATE_FULL] {self!r}: there are more values than `at_most`"
        return bounded.otherwise(F.raise_error(F.lit(message)))

    @property
    def _percentages(self) -> tuple[float, ...]:
        given = self.percentage
        assert given is not None
        return given if isinstance(given, tuple) else (given,)

    @property
    def _spark_percentage(self) -> float | list[float]:
        values = [float(value) for value in self._percentages]
        return values if isinstance(self.percentage, tuple) else values[0]


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class CollectList(BoundedAggregate):
    """The values of a group, by event time."""

    def bind(self, schema: pa.Schema, *, time: str) -> Summary:
        """The summary that computes this aggregate over columns of these types."""
        self.require_columns(schema)
        self.require_event_time(time)
        assert self.column is not None
        assert self.tie_break is not None
        inputs = (self.column, time, self.tie_break)
        keeps: dict[str, Keep] = {"reject_new": "first", "evict_oldest": "last"}
        return Ranked(
            "collect_list",
            inputs,
            _sorted_types(self, schema, inputs),
            required=0,
            at_most=self.at_most,
            keep=keeps.get(self.when_full, "all"),
            fails=self.when_full == "fail",
        )

    def to_spark(self, *, time: str | None = None) -> Column:
        """The same aggregate as a Spark expression, for ``groupBy(...).agg(...)``.

        Spark stores every value until the group is complete, and checks the bound then.

        Parameters
        ----------
        time : str
            Event-time column.
        """
        assert self.column is not None
        assert self.tie_break is not None
        order, value = self.require_time(time), quoted(self.column)
        values = _in_order(value, order, quoted(self.tie_break), value.isNotNull())
        size = F.size(values)
        if self.when_full == "reject_new":
            return F.slice(values, 1, self.at_most)
        if self.when_full == "evict_oldest":
            return F.slice(values, F.greatest(size - self.at_most + 1, F.lit(1)), self.at_most)
        return self.within_bound(size, values)


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class Top(Aggregate):
    """The values of the k rows of a group that are greatest in another column."""

    k: int
    ranked_by: str

    native: ClassVar[bool] = False

    def __post_init__(self) -> None:
        require_positive(self.k, "k")

    def __repr__(self) -> str:
        ranked = f"ranked_by={self.ranked_by!r}, tie_break={self.tie_break!r}"
        return f"top({self.k}, {self.column!r}, {ranked})"

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns the aggregate reads, beside the event time."""
        assert self.column is not None
        assert self.tie_break is not None
        return (self.column, self.ranked_by, self.tie_break)

    def bind(self, schema: pa.Schema, *, time: str) -> Summary:
        """The summary that computes this aggregate over columns of these types."""
        self.require_columns(schema)
        value, rank, tie = self.columns
        if not is_orderable(schema.field(rank).type):
            expected = f"as ranked_by, {ORDERED}"
            dtype = schema.field(rank).type
            raise wrong_type(dtype, rank, text=repr(self), expected=expected)
        types = _sorted_types(self, schema, (value, rank, tie))
        return Ranked(
            "top",
            (value, rank, tie),
            types,
            required=1,
            at_most=self.k,
            keep="last",
            descending=True,
        )

    def to_spark(self, *, time: str | None = None) -> Column:
        """The same aggregate as a Spark expression, for ``groupBy(...).agg(...)``."""
        value, rank, tie = map(quoted, self.columns)
        values = _in_order(value, rank, tie, rank.isNotNull())
        return F.slice(F.reverse(values), 1, self.k)


def count_distinct(column: str, *, at_most: int, when_full: WhenFull = "fail") -> Aggregate:
    """Exact number of distinct values, ``bigint``; nulls are not counted.

    As in Spark's ``count_distinct``, NaN is one value, and 0.0 and -0.0 are one. A struct is counted
    even if its fields are null.

    Parameters
    ----------
    column : str
        Of any type without a map in it.
    at_most : int
        Distinct values stored per group: the result is never greater.
    when_full : "fail" or "null"
        What happens if there are more: the query fails when it would publish the result
        (``STATE_FULL``), or the result is null.

    Examples
    --------
    >>> count_distinct("user_id", at_most=10_000)
    count_distinct('user_id', at_most=10000, when_full='fail')
    """
    return BoundedAggregate("count_distinct", column, at_most=at_most, when_full=when_full)


def percentile(
    column: str,
    percentage: float | Sequence[float],
    *,
    at_most: int,
    when_full: WhenFull = "fail",
) -> Aggregate:
    """Exact percentiles of the values that are not null; null if there are none.

    A ``double`` for a single percentage, an ``array<double>`` for a sequence of them. As ``percentile`` of
    Spark 4.3: percentile p of n values is at position p * (n - 1) of the sorted values, interpolated
    between the two next to it. NaN is greater than any number; between minus infinity and a greater
    value there is NaN. Spark before 4.3 rounds the last digit differently, so that a percentile could
    exceed a higher one, and returns minus infinity there.

    Parameters
    ----------
    column : str
        Numbers.
    percentage : float, or sequence of float
        From 0 (the least value) to 1 (the greatest); 0.5 is the median.
    at_most : int
        Values stored per group; duplicates count.
    when_full : "fail" or "null"
        What happens if there are more: the query fails when it would publish the result
        (``STATE_FULL``), or the result is null.

    Examples
    --------
    >>> percentile("latency", [0.5, 0.99], at_most=100_000, when_full="null")
    percentile('latency', [0.5, 0.99], at_most=100000, when_full='null')
    >>> percentile("latency", 0.5, at_most=100_000)
    percentile('latency', 0.5, at_most=100000, when_full='fail')

    References
    ----------
    Hyndman, Fan: "Sample Quantiles in Statistical Packages", 1996: definition 7.
    """
    given: Any = percentage
    if not isinstance(given, int | float) or isinstance(given, bool):
        call = f"percentile({column!r}, [0.5, 0.99], at_most=...)"
        expected = "a number from 0 to 1, or a list of at least one"
        given = parse_percentages(given, expected=expected, call=call)
    return BoundedAggregate(
        "percentile",
        column,
        at_most=at_most,
        when_full=when_full,
        percentage=given,
    )


def collect_list(
    column: str, *, at_most: int, tie_break: str, when_full: WhenCollected = "fail"
) -> Aggregate:
    """The values that are not null, by event time: an array of the column's type.

    Without values it is an empty array.

    Parameters
    ----------
    column : str
        The value, of any type; a struct if more than one column is needed.
    at_most : int
        Values stored per group.
    tie_break : str
        Orders rows of the same event time, least first, null before everything. It must be
        unique among them: see :func:`first`.
    when_full : "fail", "null", "reject_new" or "evict_oldest"
        What happens if there are more: the query fails when it would publish the result
        (``STATE_FULL``), the result is null, or values with a later ("reject_new") or an earlier
        event time ("evict_oldest") are left out.

    Examples
    --------
    >>> collect_list("page", at_most=20, tie_break="seq", when_full="evict_oldest")
    collect_list('page', at_most=20, when_full='evict_oldest', tie_break='seq')
    """
    return CollectList("collect_list", column, tie_break, at_most=at_most, when_full=when_full)


def top(k: int, column: str, *, ranked_by: str, tie_break: str) -> Aggregate:
    """Values of the k rows that are greatest in another column, greatest first: an array.

    Rows in which `ranked_by` is null are left out; the value may be null. With fewer than k rows
    the array is shorter, without any it is empty.

    Parameters
    ----------
    k : int
        Rows stored per group.
    column : str
        The value, of any type; a struct if the rank is needed, too.
    ranked_by : str
        The column to rank by, of a type with an order. NaN is greater than any number.
    tie_break : str
        Orders rows of the same rank; the greatest is first. It must be unique among them:
        which of two rows of the same rank and the same tie-break is taken depends on the order
        of arrival.

    Examples
    --------
    >>> top(3, "page", ranked_by="views", tie_break="page")
    top(3, 'page', ranked_by='views', tie_break='page')
    """
    return Top("top", column, tie_break, k=k, ranked_by=ranked_by)


def require_positive(value: object, parameter: str) -> None:
    """Refuse anything but an integer above 0. 16.0 and True are refused, too."""
    if type(value) is not int or value < 1:
        raise conditions.PARAMETER_OUT_OF_RANGE.error(
            parameter=parameter, got=f"{parameter}={value!r}"
        )


def _in_order(value: Column, by: Column, tie: Column, present: Column) -> Column:
    """The values of the present rows, sorted by two other columns.

    Compared by these alone: a map cannot be compared.
    """
    row = F.struct(F.struct(by, tie).alias("order"), value.alias("value"))
    rows = F.collect_list(F.when(present, row))
    ordered = F.array_sort(
        rows,
        lambda left, right: (
            F.when(left["order"] < right["order"], -1)
            .when(left["order"] > right["order"], 1)
            .otherwise(0)
        ),
    )
    return F.transform(ordered, lambda element: element["value"])


def _sorted_types(
    aggregate: Aggregate, schema: pa.Schema, inputs: Sequence[str]
) -> tuple[pa.DataType, pa.DataType, pa.DataType]:
    """Types of the value, the sort column and the tie-break, which must have an order."""
    value, by, tie = (schema.field(name).type for name in inputs)
    if not is_orderable(tie):
        text = repr(aggregate)
        raise wrong_type(tie, inputs[2], text=text, expected=TIE_BREAK)
    return value, by, tie
