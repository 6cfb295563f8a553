"""Aggregates: named and typed, the same in a kernel and in Spark's own aggregation.

Each function describes an aggregate. Pass it to an operator (``agg={"views": count()}``), or
turn it into a Spark expression with ``to_spark()``. Functions have the names of
``pyspark.sql.functions`` where they mean the same. Types are Spark's: a sum of integers is a ``bigint``
and raises an error if it overflows, a sum of ``decimal(p,s)`` is ten digits wider, a mean of decimals
has four more digits behind the point, variance is the sample variance.

``count_distinct``, ``percentile``, ``collect_list`` and ``top`` store values, up to a bound that you
choose. Approximate aggregates store a sketch of bounded size instead, and return an estimate with its
error: ``approx_count_distinct``, ``approx_count_distinct_theta``, ``approx_percentile``, ``approx_top_k``,
``count_min``, ``approx_overlap``, ``bloom_filter_stats``. Aggregates that return the sketch itself are in
:mod:`streamops.sketches`.

Any implementation of :class:`streamops.kernel.aggregation.Aggregation` is an aggregate, too:
``docs/aggregates.md`` has an example.
"""

from typing import TYPE_CHECKING

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
from streamops.aggregates.ordered import collect_list, count_distinct, percentile, top
from streamops.kernel.calls import explain_calls
from streamops.sketches.bloom import bloom_filter_stats
from streamops.sketches.count_min import count_min
from streamops.sketches.hll import approx_count_distinct
from streamops.sketches.kll import approx_percentile
from streamops.sketches.theta import approx_count_distinct_theta, approx_overlap
from streamops.sketches.top_k import approx_top_k

__all__ = [
    "Aggregate",
    "approx_count_distinct",
    "approx_count_distinct_theta",
    "approx_overlap",
    "approx_percentile",
    "approx_top_k",
    "bloom_filter_stats",
    "collect_list",
    "count",
    "count_distinct",
    "count_min",
    "first",
    "last",
    "max",
    "mean",
    "min",
    "percentile",
    "stddev",
    "sum",
    "top",
    "variance",
]

explain_calls(globals())

if not TYPE_CHECKING:  # type checkers report unknown names themselves
    _OTHER_NAMES = {
        "approx_distinct": "approx_count_distinct",
        "approx_quantile": "approx_percentile",
        "avg": "mean",
        "collect_set": "count_distinct",
        "distinct": "count_distinct",
        "heavy_hitters": "approx_top_k",
        "max_by": "last, or top",
        "median": "percentile",
        "min_by": "first, or top",
        "quantile": "percentile",
        "quantiles": "percentile",
        "std": "stddev",
        "stddev_samp": "stddev",
        "var": "variance",
        "var_samp": "variance",
    }

    def __getattr__(name: str) -> object:
        """Raise an error that names the aggregate of another library's name."""
        other = _OTHER_NAMES.get(name)
        hint = f". Did you mean: {other}?" if other else ""
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}{hint}")
