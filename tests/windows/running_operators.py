"""Running aggregates for tests; Spark's Python workers import from here."""

from __future__ import annotations

from typing import Any

from streamops import sketches, windows
from streamops.spark.operator import Operator
from tests.sketches.linear import count_items, linear_sketch

__all__ = ["running_count", "running_merge"]


def running_count(column: str = "v", *, into: str = "n", **parameters: Any) -> Operator:
    """The number of items per key."""
    return windows.running(agg={into: count_items(column)}, **parameters)


def running_merge(column: str, **parameters: Any) -> Operator:
    """Stored sketches merged per key: the estimate, and the sketch."""
    agg = {
        "n": sketches.merge(column, like=count_items("v")),
        "all": sketches.merge(column, like=linear_sketch("v")),
    }
    return windows.running(agg=agg, **parameters)
