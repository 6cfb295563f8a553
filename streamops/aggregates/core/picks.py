"""Aggregates that pick one of the values: min, max, first and last by event time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamops.kernel.columns import combine_chunks
from streamops.kernel.groups import Groups, Ids
from streamops.kernel.ordering import ranks

__all__ = ["ByTime", "Extreme"]


@dataclass(frozen=True, slots=True)
class Extreme:
    """Least or greatest value; nulls are ignored."""

    column: str
    result: pa.DataType
    greatest: bool

    @property
    def inputs(self) -> tuple[str, ...]:
        """Columns that ``update`` reads."""
        return (self.column,)

    @property
    def fields(self) -> tuple[tuple[str, pa.DataType], ...]:
        """The value."""
        return (("value", self.result),)

    def update(self, groups: Groups, rows: pa.Table) -> list[pa.Array]:
        """Pick from the values of each group."""
        return self.merge(groups, [combine_chunks(rows.column(self.column))])

    def merge(self, groups: Groups, states: Sequence[pa.Array]) -> list[pa.Array]:
        """Pick from the values picked before."""
        (values,) = states
        if values.null_count:
            groups, values = groups.where(np.asarray(values.is_valid())), values.drop_null()
        order = ranks(values)
        return [_pick(values, groups.first_by(~order if self.greatest else order))]

    def estimate(self, states: Sequence[pa.Array]) -> pa.Array:
        """The value."""
        return states[0]


@dataclass(frozen=True, slots=True)
class ByTime:
    """Value of the earliest or latest row by (event time, tie-break); it may be null."""

    column: str
    time: str
    tie_break: str
    result: pa.DataType
    time_type: pa.DataType
    tie_type: pa.DataType
    latest: bool

    @property
    def inputs(self) -> tuple[str, ...]:
        """Columns that ``update`` reads."""
        return (self.column, self.time, self.tie_break)

    @property
    def fields(self) -> tuple[tuple[str, pa.DataType], ...]:
        """The value, and what it was picked by. Time is null in an empty state."""
        return (("value", self.result), ("time", self.time_type), ("tie", self.tie_type))

    def update(self, groups: Groups, rows: pa.Table) -> list[pa.Array]:
        """Pick from the rows of each group."""
        return self.merge(groups, [combine_chunks(rows.column(name)) for name in self.inputs])

    def merge(self, groups: Groups, states: Sequence[pa.Array]) -> list[pa.Array]:
        """Pick from the rows picked before."""
        present = np.asarray(states[1].is_valid())
        if not present.all():
            groups = groups.where(present)
            states = [state.filter(pa.array(present)) for state in states]
        order = [ranks(states[1]), ranks(states[2])]
        rows = groups.first_by(*(~key if self.latest else key for key in order))
        return [_pick(state, rows) for state in states]

    def estimate(self, states: Sequence[pa.Array]) -> pa.Array:
        """The value."""
        return states[0]


def _pick(values: pa.Array, rows: Ids) -> pa.Array:
    return values.take(pa.array(rows, mask=rows < 0))
