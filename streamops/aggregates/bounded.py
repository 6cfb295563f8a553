"""Aggregates that keep values, and no more of them than they are told to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import pyarrow as pa
from pyspark.sql import Column
from pyspark.sql import functions as F

from streamops.aggregates.binding import ORDERED, TIE_BREAK, is_number, wrong_type
from streamops.aggregates.core.lists import Keep
from streamops.aggregates.core.ranked import Ranked
from streamops.aggregates.core.values import Distinct, Quantiles
from streamops.aggregates.functions import Aggregate
from streamops.kernel.contract import Summary
from streamops.kernel.errors import SpecError
from streamops.kernel.ordering import is_comparable, is_orderable
from streamops.spark.columns import column as quoted
from streamops.spark.columns import require_name
from streamops.spark.transform import require_choice

__all__ = ["BoundedAggregate", "Collect", "Top", "WhenCollected", "WhenFull"]

WhenFull = Literal["fail", "null"]
WhenCollected = Literal["fail", "null", "keep_first", "keep_last"]


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class BoundedAggregate(Aggregate):
    """An aggregate that keeps at most so many values of a group: distinct and quantiles.

    Spark's own expression keeps all of them, so windows always have it computed by the kernel.

    Parameters
    ----------
    at_most : int
        Values kept per group.
    when_full : str
        What happens when there are more.
    probabilities : tuple of float
        For quantiles: which.

    Raises
    ------
    SpecError
        ``NOT_A_NAME``, ``AT_MOST_OUT_OF_RANGE``, ``UNKNOWN_CHOICE`` or
        ``PROBABILITY_OUT_OF_RANGE``.
    """

    at_most: int
    when_full: str = "fail"
    probabilities: tuple[float, ...] = ()

    native: ClassVar[bool] = False

    def __post_init__(self) -> None:
        Aggregate.__post_init__(self)
        where = f"aggregates.{self.function}"
        refuse_number(self.at_most, "at_most", where)
        choices = WhenCollected if self.function == "collect" else WhenFull
        require_choice(self.when_full, choices, parameter="when_full", where=where)
        _refuse_probabilities(self.probabilities, where)

    def __repr__(self) -> str:
        words = [repr(self.column)]
        if self.probabilities:
            words.append(repr(self._asked))
        words += [f"at_most={self.at_most}", f"when_full={self.when_full!r}"]
        words += [f"tie_break={self.tie_break!r}"] if self.tie_break is not None else []
        return f"{self.function}({', '.join(words)})"

    def bind(self, schema: pa.Schema, *, time: str, where: str) -> Summary:
        """The summary that computes this aggregate over columns of these types."""
        self.require_columns(schema, where)
        assert self.column is not None
        kind = schema.field(self.column).type
        fails = self.when_full == "fail"
        if self.function == "distinct":
            if not is_comparable(kind):
                expected = "a type whose values can be compared: any without a map in it"
                raise self._unusable(schema, self.column, expected, where)
            return Distinct(self.column, kind, self.at_most, fails)
        if not (is_number(kind) or pa.types.is_decimal(kind)):
            raise self._unusable(schema, self.column, "numbers", where)
        single = self.function == "quantile"
        return Quantiles(self.column, kind, self.at_most, fails, self.probabilities, single)

    def to_spark(self, *, time: str | None = None) -> Column:
        """The same aggregate as a Spark expression, for ``groupBy(...).agg(...)``.

        Spark keeps every value until the group is complete, and checks the bound then.
        """
        assert self.column is not None
        values = quoted(self.column)
        if self.function == "distinct":
            count = F.count_distinct(values)
            return self.within(count, count)
        return self.within(F.count(values), F.percentile(values, self._asked))

    def within(self, size: Column, value: Column) -> Column:
        """The value where the size is within the bound, else what `when_full` says."""
        bounded = F.when(size <= self.at_most, value)
        if self.when_full == "null":
            return bounded
        said = f"[AGGREGATE_FULL] {self!r}: there are more values than may be kept"
        return bounded.otherwise(F.raise_error(F.lit(said)))

    @property
    def _asked(self) -> float | list[float]:
        single = self.function == "quantile"
        return float(self.probabilities[0]) if single else [float(p) for p in self.probabilities]

    def _unusable(self, schema: pa.Schema, column: str, expected: str, where: str) -> Exception:
        return wrong_type(schema, column, shown=repr(self), expected=expected, where=where)


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class Collect(BoundedAggregate):
    """The values of a group, by event time."""

    def bind(self, schema: pa.Schema, *, time: str, where: str) -> Summary:
        """The summary that computes this aggregate over columns of these types."""
        self.require_columns(schema, where)
        assert self.column is not None
        assert self.tie_break is not None
        inputs = (self.column, time, self.tie_break)
        keeps: dict[str, Keep] = {"keep_first": "first", "keep_last": "last"}
        return Ranked(
            "collect",
            inputs,
            types_of(self, schema, inputs, where),
            required=0,
            at_most=self.at_most,
            keep=keeps.get(self.when_full, "all"),
            fails=self.when_full == "fail",
        )

    def to_spark(self, *, time: str | None = None) -> Column:
        """The same aggregate as a Spark expression, for ``groupBy(...).agg(...)``.

        Spark keeps every value until the group is complete, and checks the bound then.

        Parameters
        ----------
        time : str
            Event-time column.
        """
        assert self.column is not None
        assert self.tie_break is not None
        order, value = self.require_time(time), quoted(self.column)
        values = in_order(value, order, quoted(self.tie_break), value.isNotNull())
        size = F.size(values)
        if self.when_full == "keep_first":
            return F.slice(values, 1, self.at_most)
        if self.when_full == "keep_last":
            return F.slice(values, F.greatest(size - self.at_most + 1, F.lit(1)), self.at_most)
        return self.within(size, values)


@dataclass(frozen=True, slots=True, repr=False, kw_only=True)
class Top(Aggregate):
    """The values of the rows of a group that are greatest in another column.

    Parameters
    ----------
    k : int
        How many rows.
    ranked_by : str
        The other column.

    Raises
    ------
    SpecError
        ``NOT_A_NAME`` or ``K_OUT_OF_RANGE``.
    """

    k: int
    ranked_by: str

    native: ClassVar[bool] = False

    def __post_init__(self) -> None:
        Aggregate.__post_init__(self)
        refuse_number(self.k, "k", "aggregates.top")
        require_name(self.ranked_by, parameter="ranked_by", where="aggregates.top")

    def __repr__(self) -> str:
        ranked = f"ranked_by={self.ranked_by!r}, tie_break={self.tie_break!r}"
        return f"top({self.k}, {self.column!r}, {ranked})"

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns the aggregate reads, beside the event time."""
        assert self.column is not None
        assert self.tie_break is not None
        return (self.column, self.ranked_by, self.tie_break)

    def bind(self, schema: pa.Schema, *, time: str, where: str) -> Summary:
        """The summary that computes this aggregate over columns of these types."""
        self.require_columns(schema, where)
        value, rank, tie = self.columns
        if not is_orderable(schema.field(rank).type):
            expected = f"as ranked_by, {ORDERED}"
            raise wrong_type(schema, rank, shown=repr(self), expected=expected, where=where)
        types = types_of(self, schema, (value, rank, tie), where)
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
        values = in_order(value, rank, tie, rank.isNotNull())
        return F.slice(F.reverse(values), 1, self.k)


def in_order(value: Column, by: Column, tie: Column, present: Column) -> Column:
    """The values of the rows that are there, sorted by two other columns.

    Compared by these alone: a map cannot be compared.
    """
    row = F.struct(F.struct(by, tie).alias("order"), value.alias("value"))
    rows = F.collect_list(F.when(present, row))
    ordered = F.array_sort(
        rows,
        lambda one, other: (
            F.when(one["order"] < other["order"], -1)
            .when(one["order"] > other["order"], 1)
            .otherwise(0)
        ),
    )
    return F.transform(ordered, lambda each: each["value"])


def types_of(
    aggregate: Aggregate, schema: pa.Schema, inputs: Sequence[str], where: str
) -> tuple[pa.DataType, pa.DataType, pa.DataType]:
    """Types of a value, of what it is sorted by, and of the tie-break, which must have an order."""
    value, by, tie = (schema.field(name).type for name in inputs)
    if not is_orderable(tie):
        shown = repr(aggregate)
        raise wrong_type(schema, inputs[2], shown=shown, expected=TIE_BREAK, where=where)
    return value, by, tie


def refuse_number(value: object, parameter: str, where: str) -> None:
    """Refuse what is not a number of values. 16.0 and True are not, either."""
    if type(value) is not int or value < 1:
        raise SpecError(
            f"{parameter.upper()}_OUT_OF_RANGE",
            f"`{parameter}` is not a number of values",
            where=where,
            got=f"{parameter}={value!r}",
            expected="an integer, 1 or more",
            fix=f"{parameter}=1000 keeps up to a thousand values of each group",
        )


def _refuse_probabilities(probabilities: Sequence[object], where: str) -> None:
    for value in probabilities:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not 0 <= value <= 1:  # type: ignore[operator]
            raise SpecError(
                "PROBABILITY_OUT_OF_RANGE",
                "a probability is out of range",
                where=where,
                got=f"{value!r}",
                expected="a number from 0 to 1",
                fix="0.5 is the median, 0.99 what one value in a hundred exceeds",
            )
