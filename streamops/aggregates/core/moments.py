"""Variance and standard deviation, by central moments.

Never the sum of squares minus the square of the sum: on values far from zero that subtracts
two huge, nearly equal numbers (Chan, Golub, LeVeque, "Algorithms for Computing the Sample
Variance", The American Statistician 37(3), 1983).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamops.kernel.columns import combine_chunks, to_floats
from streamops.kernel.groups import Floats, Groups, Ints

__all__ = ["Variance"]


@dataclass(frozen=True, slots=True)
class Variance:
    """Sample variance, or its square root: null for fewer than two values, as in Spark."""

    column: str
    root: bool
    result = pa.float64()
    fields = (("count", pa.int64()), ("mean", pa.float64()), ("m2", pa.float64()))

    @property
    def inputs(self) -> tuple[str, ...]:
        """Columns that ``update`` reads."""
        return (self.column,)

    def update(self, groups: Groups, rows: pa.Table) -> list[pa.Array]:
        """Two passes: the mean of each group, then the squares of the distances from it."""
        values = combine_chunks(rows.column(self.column))
        groups = groups.where(np.asarray(values.is_valid()))
        numbers = to_floats(values.drop_null())
        count = groups.sizes()
        mean, distance = _centred(groups, numbers, np.ones(len(numbers), np.int64), count)
        with np.errstate(over="ignore"):
            return [pa.array(count), pa.array(mean), pa.array(groups.sum_floats(distance**2))]

    def merge(self, groups: Groups, states: Sequence[pa.Array]) -> list[pa.Array]:
        """Chan's formula over all members at once."""
        count, mean, m2 = (np.asarray(state) for state in states)
        total = groups.sum_ints(count)
        moment = groups.sum_floats(m2)
        there = count > 0
        groups, count = groups.where(there), count[there]
        centre, distance = _centred(groups, mean[there], count, total)
        # A lone state stays itself, also where its mean is infinite and has no distance.
        alone = groups.sizes() == 1
        centre[alone] = mean[there][groups.first_by()[alone]]
        distance[alone[groups.ids]] = 0.0
        with np.errstate(invalid="ignore", over="ignore"):
            moment += groups.sum_floats(count * distance**2)
        return [pa.array(total), pa.array(centre), pa.array(moment)]

    def estimate(self, states: Sequence[pa.Array]) -> pa.Array:
        """Second central moment over (count - 1)."""
        count, _, m2 = (np.asarray(state) for state in states)
        value = m2 / np.maximum(count - 1, 1)
        return pa.array(np.sqrt(value) if self.root else value, mask=count < 2)


def _centred(groups: Groups, numbers: Floats, weight: Ints, total: Ints) -> tuple[Floats, Floats]:
    """Mean of each group, and the distance of each number from it.

    Taken from the first number of the group: equal numbers are exactly 0 apart, and the mean of
    a lone one is itself to the last bit, so that merging a state with nothing changes nothing.
    """
    first = groups.first_by()
    pivot = np.append(numbers, 0.0)[first]  # position -1, of an empty group, is the 0 at the end
    # The distance of an infinity from itself is NaN; sums and squares may overflow to infinity.
    with np.errstate(invalid="ignore", over="ignore"):
        offset = numbers - pivot[groups.ids]
        shift = groups.sum_floats(weight * offset) / np.maximum(total, 1)
        return pivot + shift, offset - shift[groups.ids]
