"""Aggregates: named and typed, the same in a kernel and in Spark's own aggregation.

Each function describes an aggregate. Hand it to an operator (``agg={"views": count()}``), or
turn it into a Spark expression with ``to_spark()``. Types are Spark's: a sum of integers is a
``bigint`` and overflows with an error, a sum of ``decimal(p,s)`` is ten digits wider, a mean of
decimals has four more digits behind the point, variance is the sample variance.

``distinct``, ``quantiles``, ``collect`` and ``top`` keep values, and say of how many: a bound, and
what happens beyond it. ``approx_distinct`` and its like keep a sketch instead: see
:mod:`streamops.sketches`.
Whatever satisfies :class:`streamops.kernel.contract.Aggregation` can stand beside these:
``docs/aggregates.md`` has one to copy.
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
from streamops.aggregates.lists import collect, distinct, quantile, quantiles, top
from streamops.sketches import (
    approx_distinct,
    approx_frequency,
    approx_heavy_hitters,
    approx_overlap,
    approx_quantiles,
    theta_distinct,
)

__all__ = [
    "Aggregate",
    "approx_distinct",
    "approx_frequency",
    "approx_heavy_hitters",
    "approx_overlap",
    "approx_quantiles",
    "collect",
    "count",
    "distinct",
    "first",
    "last",
    "max",
    "mean",
    "min",
    "quantile",
    "quantiles",
    "stddev",
    "sum",
    "theta_distinct",
    "top",
    "variance",
]
