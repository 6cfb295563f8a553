"""The aggregates that keep values, as a user names them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from streamops.aggregates.bounded import (
    BoundedAggregate,
    Collect,
    Top,
    WhenCollected,
    WhenFull,
)
from streamops.aggregates.functions import Aggregate
from streamops.kernel.errors import SpecError

__all__ = ["collect", "distinct", "quantile", "quantiles", "top"]


def distinct(column: str, *, at_most: int, when_full: WhenFull = "fail") -> Aggregate:
    """Exact number of distinct values, ``bigint``; nulls are not counted.

    As in Spark's ``count_distinct``, NaN is one value, and 0.0 and -0.0 are one. A struct counts
    also where its fields are null.

    Parameters
    ----------
    column : str
        Of any type without a map in it.
    at_most : int
        Distinct values that are kept of each group: the result is never greater.
    when_full : "fail" or "null"
        Where there are more, the query fails when it would publish the result
        (``AGGREGATE_FULL``), or the result is null.

    Examples
    --------
    >>> distinct("user_id", at_most=10_000)
    distinct('user_id', at_most=10000, when_full='fail')
    """
    return BoundedAggregate("distinct", column, at_most=at_most, when_full=when_full)


def quantiles(
    column: str, probabilities: Sequence[float], *, at_most: int, when_full: WhenFull = "fail"
) -> Aggregate:
    """Exact quantiles of the values that are not null, ``array<double>``; null where there are none.

    As ``percentile`` of Spark 4.3: quantile p of n values stands at position p * (n - 1) of the
    sorted values, interpolated between the two next to it. NaN is greater than any number;
    between minus infinity and a greater value there is NaN. Spark before 4.3 rounds otherwise in
    the last digit, so that a quantile could exceed a higher one, and has minus infinity there.

    Parameters
    ----------
    column : str
        Numbers.
    probabilities : sequence of float
        Which quantiles, from 0 (the least value) to 1 (the greatest).
    at_most : int
        Values that are kept of each group; equal ones count each.
    when_full : "fail" or "null"
        Where there are more, the query fails when it would publish the result
        (``AGGREGATE_FULL``), or the result is null.

    Examples
    --------
    >>> quantiles("latency", [0.5, 0.99], at_most=100_000, when_full="null")
    quantiles('latency', [0.5, 0.99], at_most=100000, when_full='null')

    References
    ----------
    Hyndman, Fan: "Sample Quantiles in Statistical Packages", 1996: definition 7.
    """
    asked = _several(probabilities, column)
    return BoundedAggregate(
        "quantiles", column, at_most=at_most, when_full=when_full, probabilities=asked
    )


def quantile(
    column: str, probability: float, *, at_most: int, when_full: WhenFull = "fail"
) -> Aggregate:
    """One exact quantile, ``double``: see :func:`quantiles`.

    Examples
    --------
    >>> quantile("latency", 0.5, at_most=100_000)
    quantile('latency', 0.5, at_most=100000, when_full='fail')
    """
    return BoundedAggregate(
        "quantile", column, at_most=at_most, when_full=when_full, probabilities=(probability,)
    )


def collect(
    column: str, *, at_most: int, tie_break: str, when_full: WhenCollected = "fail"
) -> Aggregate:
    """The values that are not null, by event time: an array of the column's type.

    Without values it is an empty array.

    Parameters
    ----------
    column : str
        The value, of any type; a struct where more than one column is wanted.
    at_most : int
        Values that are kept of each group.
    tie_break : str
        Orders rows of the same event time, least first, null before everything. It must be
        unique among them: see :func:`first`.
    when_full : "fail", "null", "keep_first" or "keep_last"
        Where there are more, the query fails when it would publish the result
        (``AGGREGATE_FULL``), the result is null, or it has the earliest or the latest so many
        values.

    Examples
    --------
    >>> collect("page", at_most=20, tie_break="seq", when_full="keep_last")
    collect('page', at_most=20, when_full='keep_last', tie_break='seq')
    """
    return Collect("collect", column, tie_break, at_most=at_most, when_full=when_full)


def top(k: int, column: str, *, ranked_by: str, tie_break: str) -> Aggregate:
    """Values of the k rows that are greatest in another column, greatest first: an array.

    Rows in which `ranked_by` is null are left out; the value may be null. With fewer than k rows
    the array is shorter, without any it is empty.

    Parameters
    ----------
    k : int
        How many rows are kept of each group.
    column : str
        The value, of any type; a struct where the rank is wanted, too.
    ranked_by : str
        What the rows are ranked by, of a type with an order. NaN is greater than any number.
    tie_break : str
        Orders rows of the same rank; the greatest comes first. It must be unique among them:
        which of two rows of the same rank and the same tie-break is taken depends on the order
        of arrival.

    Examples
    --------
    >>> top(3, "page", ranked_by="views", tie_break="page")
    top(3, 'page', ranked_by='views', tie_break='page')
    """
    return Top("top", column, tie_break, k=k, ranked_by=ranked_by)


def _several(probabilities: object, column: str) -> tuple[float, ...]:
    asked: tuple[float, ...] = ()
    if isinstance(probabilities, Iterable) and not isinstance(probabilities, str):
        asked = tuple(probabilities)
    if not asked:
        raise SpecError(
            "NO_PROBABILITY",
            "no quantile is asked for",
            where="aggregates.quantiles",
            got=f"probabilities={probabilities!r}",
            expected="a list of at least one number from 0 to 1",
            fix=f"quantiles({column!r}, [0.5, 0.99], at_most=...)",
        )
    return asked
