"""Aggregates: named and typed, the same in a kernel and in Spark's own aggregation.

Each function describes an aggregate. Hand it to an operator (``agg={"views": count()}``), or
turn it into a Spark expression with ``to_spark()``. Types are Spark's: a sum of integers is a
``bigint`` and overflows with an error, a sum of ``decimal(p,s)`` is ten digits wider, a mean of
decimals has four more digits behind the point, variance is the sample variance.
"""

from streamops.aggregates.functions import (
    Aggregate,
    count,
    first,
    last,
    max,
    mean,
    min,
    stddev,
    sum,
    variance,
)

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
