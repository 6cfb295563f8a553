"""Aggregates that keep rows in order: collect and top."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamops.aggregates.core.lists import Keep, flat, gathered, merged, refuse_full
from streamops.kernel.columns import combine_chunks
from streamops.kernel.group_states import make_lists
from streamops.kernel.groups import Groups, Mask
from streamops.kernel.ordering import ranks

__all__ = ["Ranked"]


@dataclass(frozen=True, slots=True)
class Ranked:
    """Values of rows, sorted by two other columns.

    Parameters
    ----------
    function : str
        For whom: "collect" or "top".
    inputs : tuple of str
        The value; what is sorted by; the tie-break.
    types : tuple of DataType
        Of these.
    required : int
        Rows in which this one of them is null are left out.
    at_most : int
        The longest list.
    keep : "all", "first" or "last"
        What is kept of a longer one: nothing, its first or its last so many.
    fails : bool
        Whether a longer list is an error.
    descending : bool
        Whether the greatest comes first in the result.
    """

    function: str
    inputs: tuple[str, str, str]
    types: tuple[pa.DataType, pa.DataType, pa.DataType]
    required: int
    at_most: int
    keep: Keep
    fails: bool = False
    descending: bool = False

    @property
    def fields(self) -> tuple[tuple[str, pa.DataType], ...]:
        """The rows, with what they are sorted by."""
        return (("rows", pa.list_(pa.struct(self._parts))),)

    @property
    def result(self) -> pa.DataType:
        """The values."""
        return pa.list_(self.types[0])

    @property
    def _parts(self) -> list[pa.Field]:
        names = ("value", "by", "tie")
        return [pa.field(name, kind) for name, kind in zip(names, self.types, strict=True)]

    def update(self, groups: Groups, rows: pa.Table) -> list[pa.Array]:
        """Keep the rows of each group."""
        columns = [combine_chunks(rows.column(name)) for name in self.inputs]
        entries = pa.StructArray.from_arrays(columns, fields=self._parts)
        present = columns[self.required].is_valid()
        return [self._gathered(groups.where(np.asarray(present)), entries.filter(present))]

    def merge(self, groups: Groups, states: Sequence[pa.Array]) -> list[pa.Array]:
        """Unite the lists."""
        return [merged(groups, states[0], self._gathered)]

    def estimate(self, states: Sequence[pa.Array]) -> pa.Array:
        """The values, in order."""
        (lists,) = states
        if self.fails:
            refuse_full(lists, self.function, self.inputs[0], self.at_most)
        entries, parents = flat(lists)
        values = entries.field(0)
        sizes = np.bincount(parents, minlength=len(lists)).astype(np.int64, copy=False)
        if self.descending:
            ends = np.cumsum(sizes)
            # Row i counted from the front of its list changes places with row i from its end.
            mirrored = (2 * ends - sizes)[parents] - 1 - np.arange(len(parents))
            values = values.take(pa.array(mirrored))
        return make_lists(values, sizes, np.asarray(lists.is_null()))

    def _gathered(self, groups: Groups, rows: pa.Array, passed: Mask | None = None) -> pa.Array:
        order = [ranks(rows.field(part)) for part in (1, 2)]
        at_most, keep = self.at_most, self.keep
        return gathered(groups, rows, *order, at_most=at_most, keep=keep, passed=passed)
