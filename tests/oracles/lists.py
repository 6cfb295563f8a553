"""Aggregates that store values, in simple Python."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

Row = dict[str, Any]
Rank = Callable[[Any], Any]

KEEPING = ("collect_list", "count_distinct", "percentile", "top")


def stored_value(aggregate: Any, rows: Sequence[Row], time: str, ranked: Rank) -> Any:
    """The aggregate over these rows; ``ranked`` is the order of values."""
    if aggregate.function == "top":

        def rank(row: Row) -> Any:
            return ranked(row[aggregate.ranked_by]), ranked(row[aggregate.tie_break])

        there = [row for row in rows if row[aggregate.ranked_by] is not None]
        best = sorted(there, key=rank, reverse=True)[: aggregate.k]
        return [row[aggregate.column] for row in best]
    there = [row for row in rows if row[aggregate.column] is not None]
    values = [row[aggregate.column] for row in there]
    if aggregate.function == "count_distinct":
        unlike = {"NaN" if value != value else value for value in values}
        return bounded(aggregate, len(unlike), len(unlike))
    if aggregate.function == "collect_list":
        inside = sorted(there, key=lambda row: (row[time], ranked(row[aggregate.tie_break])))
        values = [row[aggregate.column] for row in inside]
        if aggregate.when_full == "reject_new":
            return values[: aggregate.at_most]
        if aggregate.when_full == "evict_oldest":
            return values[-aggregate.at_most :]
        return bounded(aggregate, len(values), values)
    if not values:
        return None
    given = aggregate.percentage
    several = given if isinstance(given, tuple) else (given,)
    found = [at(sorted(values, key=ranked), p) for p in several]
    return bounded(aggregate, len(values), found if isinstance(given, tuple) else found[0])


def bounded(aggregate: Any, count: int, value: Any) -> Any:
    """The value, or null if there are too many values."""
    if count <= aggregate.at_most:
        return value
    assert aggregate.when_full == "null"
    return None


def at(values: Sequence[Any], probability: float) -> float:
    """The quantile, as Spark computes it."""
    position = (len(values) - 1) * probability
    lower, upper = math.floor(position), math.ceil(position)
    below, above = values[lower], values[upper]
    if below == above:
        return float(below)
    return float(below) + (position - lower) * (float(above) - float(below))
