"""Aggregates that need all values of a group: how many distinct ones, and exact quantiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamops.aggregates.core.lists import (
    Keep,
    gathered,
    merged,
    refuse_full,
)
from streamops.kernel.columns import combine_chunks, to_doubles
from streamops.kernel.group_states import list_sizes, make_lists
from streamops.kernel.groups import Groups, Mask
from streamops.kernel.ordering import ranks

__all__ = ["Distinct", "Quantiles"]


@dataclass(frozen=True, slots=True)
class _Values:
    """Values that are not null, sorted: one list per group, null beyond the bound.

    ``fails`` says whether a result beyond it is an error, or null.
    """

    column: str
    type: pa.DataType
    at_most: int
    fails: bool

    keep: ClassVar[Keep] = "all"

    @property
    def inputs(self) -> tuple[str, ...]:
        """Columns that ``update`` reads."""
        return (self.column,)

    @property
    def fields(self) -> tuple[tuple[str, pa.DataType], ...]:
        """The values."""
        return (("values", pa.list_(self.type)),)

    def update(self, groups: Groups, rows: pa.Table) -> list[pa.Array]:
        """Keep the values of each group."""
        values = combine_chunks(rows.column(self.column))
        if values.null_count:
            groups, values = groups.where(np.asarray(values.is_valid())), values.drop_null()
        return [self._gathered(groups, values)]

    def merge(self, groups: Groups, states: Sequence[pa.Array]) -> list[pa.Array]:
        """Unite the lists."""
        return [merged(groups, states[0], self._gathered)]

    def _gathered(self, groups: Groups, values: pa.Array, passed: Mask | None = None) -> pa.Array:
        order, at_most = ranks(values), self.at_most
        return gathered(groups, values, order, at_most=at_most, keep=self.keep, passed=passed)


@dataclass(frozen=True, slots=True)
class Distinct(_Values):
    """Exact number of distinct values; NaN is one value, and so are 0.0 and -0.0."""

    result: ClassVar[pa.DataType] = pa.int64()
    keep: ClassVar[Keep] = "distinct"

    def estimate(self, states: Sequence[pa.Array]) -> pa.Array:
        """How many there are."""
        if self.fails:
            refuse_full(states[0], "distinct", self.column, self.at_most)
        return pc.list_value_length(states[0]).cast(pa.int64())


@dataclass(frozen=True, slots=True)
class Quantiles(_Values):
    """Exact quantiles, interpolated between the two values next to them, as Spark does."""

    probabilities: tuple[float, ...]
    single: bool

    @property
    def result(self) -> pa.DataType:
        """A double, or one for each probability."""
        return pa.float64() if self.single else pa.list_(pa.float64())

    def estimate(self, states: Sequence[pa.Array]) -> pa.Array:
        """Quantile p of n values stands at position p * (n - 1), counted from 0."""
        (lists,) = states
        if self.fails:
            function = "quantile" if self.single else "quantiles"
            refuse_full(lists, function, self.column, self.at_most)
        sizes = list_sizes(lists)
        there = sizes > 0
        position = (sizes[there, None] - 1) * np.array(self.probabilities)
        lower, upper = np.floor(position), np.ceil(position)
        starts = (np.cumsum(sizes) - sizes)[there, None]
        values = lists.flatten()
        below, above = (
            values.take(pa.array((starts + rank.astype(np.int64)).ravel()))
            for rank in (lower, upper)
        )
        left, right = to_doubles(below), to_doubles(above)
        with np.errstate(invalid="ignore", over="ignore"):  # from an infinity: NaN
            between = left + (position - lower).ravel() * (right - left)
        # Equal values are not told apart, and infinities have no distance from themselves.
        found = np.where(np.asarray(pc.equal(below, above)), left, between)
        if not self.single:
            return make_lists(pa.array(found), there * len(self.probabilities), ~there)
        result = np.zeros(len(lists))
        result[there] = found
        return pa.array(result, mask=~there)
