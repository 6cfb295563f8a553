"""Aggregates that store values: collect_list, top, count_distinct and percentile.

The state of a group is a sorted list. A group that exceeds its bound has a null instead, and keeps it
whatever it is merged with: so the order in which states are merged does not matter, and a full group
takes no memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamops.aggregates import conditions
from streamops.aggregates.core.functions import ColumnSummary
from streamops.kernel.aggregation import list_sizes, make_lists, merge_groups
from streamops.kernel.columns import combine_chunks, to_doubles
from streamops.kernel.groups import Groups, Ids, Ints, Mask
from streamops.kernel.ordering import ranks

Keep = Literal["all", "distinct", "first", "last"]


def flatten(lists: pa.Array) -> tuple[pa.Array, Ids]:
    """The elements of all lists in order, and the index of the list of each."""
    return lists.flatten(), np.repeat(np.arange(len(lists)), list_sizes(lists))


def bounded_lists(
    groups: Groups,
    values: pa.Array,
    *order: Ints,
    at_most: int,
    keep: Keep,
    full: Mask | None = None,
) -> pa.Array:
    """One list per group of its values, sorted by ``order``, the most significant key first.

    ``keep`` "all" and "distinct": all values, or one of those that are equal in order; a list longer than
    ``at_most`` is null. "first" and "last": the first or last ``at_most`` values. Groups that are
    ``full`` are null.
    """
    rows = np.lexsort((*reversed(order), groups.ids))
    ids = groups.ids[rows]
    if keep == "distinct":
        new = np.append(True, ids[1:] != ids[:-1])[: len(ids)]
        for key in order:
            sorted_ = key[rows]
            new[1:] |= sorted_[1:] != sorted_[:-1]
        rows, ids = rows[new], ids[new]
    sizes = np.bincount(ids, minlength=groups.count).astype(np.int64, copy=False)
    missing = np.zeros(groups.count, np.bool_) if full is None else full
    if keep in ("all", "distinct"):
        missing = missing | (sizes > at_most)
    stored = ~missing[ids]
    if sizes.max(initial=0) > at_most and keep in ("first", "last"):
        ends = np.cumsum(sizes)
        position = np.arange(len(ids))
        rank = position - (ends - sizes)[ids] if keep == "first" else ends[ids] - 1 - position
        stored &= rank < at_most
    sizes = np.where(missing, 0, np.minimum(sizes, at_most))
    return make_lists(values.take(pa.array(rows[stored])), sizes, missing)


def merge_lists(
    groups: Groups, lists: pa.Array, bound: Callable[[Groups, pa.Array, Mask], pa.Array]
) -> pa.Array:
    """The lists of the groups over the lists of their members.

    ``bound`` makes the lists of the groups from values and the mask of groups with a null member.
    A list that is alone in its group is returned as it is: in most steps, most of them are.
    """

    def unite(members: Groups, states: Sequence[pa.Array]) -> list[pa.Array]:
        (companions,) = states
        full = np.zeros(members.count, np.bool_)
        full[members.ids[np.asarray(companions.is_null())]] = True
        values, parents = flatten(companions)
        return [bound(Groups(members.ids[parents], members.count), values, full)]

    return merge_groups(groups, [lists], unite)[0]


def refuse_full(lists: pa.Array, function: str, column: str, at_most: int) -> None:
    """Fail if a group has exceeded its bound."""
    if lists.null_count:
        raise conditions.AGGREGATE_FULL.error(
            at=f"aggregates.{function}",
            column=column,
            at_most=at_most,
            got=f"more than {at_most:,} in {lists.null_count:,} of {len(lists):,} results",
        )


@dataclass(frozen=True, slots=True)
class _Values(ColumnSummary):
    """Values that are not null, sorted: one list per group, null beyond the bound.

    ``fails``: whether a result beyond the bound is an error, or null.
    """

    column: str
    type: pa.DataType
    at_most: int
    fails: bool

    keep: ClassVar[Keep] = "all"

    @property
    def fields(self) -> tuple[tuple[str, pa.DataType], ...]:
        """The values."""
        return (("values", pa.list_(self.type)),)

    def update(self, groups: Groups, rows: pa.Table) -> list[pa.Array]:
        """Lists of the values of each group."""
        values = combine_chunks(rows.column(self.column))
        if values.null_count:
            groups, values = groups.where(np.asarray(values.is_valid())), values.drop_null()
        return [self._bounded(groups, values)]

    def merge(self, groups: Groups, states: Sequence[pa.Array]) -> list[pa.Array]:
        """Unite the lists."""
        return [merge_lists(groups, states[0], self._bounded)]

    def _bounded(self, groups: Groups, values: pa.Array, full: Mask | None = None) -> pa.Array:
        order, at_most = ranks(values), self.at_most
        return bounded_lists(groups, values, order, at_most=at_most, keep=self.keep, full=full)


@dataclass(frozen=True, slots=True)
class CountDistinct(_Values):
    """Exact number of distinct values; NaN is one value, and so are 0.0 and -0.0."""

    result: ClassVar[pa.DataType] = pa.int64()
    keep: ClassVar[Keep] = "distinct"

    def estimate(self, states: Sequence[pa.Array]) -> pa.Array:
        """Number of values."""
        if self.fails:
            refuse_full(states[0], "count_distinct", self.column, self.at_most)
        return pc.list_value_length(states[0]).cast(pa.int64())


@dataclass(frozen=True, slots=True)
class Percentile(_Values):
    """Exact percentiles, interpolated between the two values next to them, as Spark does."""

    percentages: tuple[float, ...]
    single: bool

    @property
    def result(self) -> pa.DataType:
        """A double, or one for each percentage."""
        return pa.float64() if self.single else pa.list_(pa.float64())

    def estimate(self, states: Sequence[pa.Array]) -> pa.Array:
        """Percentile p of n values is at position p * (n - 1), counted from 0."""
        (lists,) = states
        if self.fails:
            refuse_full(lists, "percentile", self.column, self.at_most)
        sizes = list_sizes(lists)
        present = sizes > 0
        position = (sizes[present, None] - 1) * np.array(self.percentages)
        lower, upper = np.floor(position), np.ceil(position)
        starts = (np.cumsum(sizes) - sizes)[present, None]
        values = lists.flatten()
        below, above = (
            values.take(pa.array((starts + rank.astype(np.int64)).ravel()))
            for rank in (lower, upper)
        )
        left, right = to_doubles(below), to_doubles(above)
        with np.errstate(invalid="ignore", over="ignore"):  # from an infinity: NaN
            between = left + (position - lower).ravel() * (right - left)
        # Equal values need no interpolation, and infinities have no distance from themselves.
        found = np.where(np.asarray(pc.equal(below, above)), left, between)
        if not self.single:
            return make_lists(pa.array(found), present * len(self.percentages), ~present)
        result = np.zeros(len(lists))
        result[present] = found
        return pa.array(result, mask=~present)


@dataclass(frozen=True, slots=True)
class Ranked:
    """Values of rows, sorted by two other columns: of ``collect_list`` and ``top``."""

    function: str
    inputs: tuple[str, str, str]
    """The value, the column to sort by, and the tie-break."""
    types: tuple[pa.DataType, pa.DataType, pa.DataType]
    required: int
    """Index of the input that must not be null: other rows are ignored."""
    at_most: int
    keep: Keep
    """What is stored of a longer list: nothing ("all"), its first or its last elements."""
    fails: bool = False
    """Whether a longer list is an error."""
    descending: bool = False
    """Whether the greatest is first in the result."""

    @property
    def fields(self) -> tuple[tuple[str, pa.DataType], ...]:
        """The rows, with the columns to sort by."""
        return (("rows", pa.list_(pa.struct(self._parts))),)

    @property
    def result(self) -> pa.DataType:
        """The values."""
        return pa.list_(self.types[0])

    @property
    def _parts(self) -> list[pa.Field]:
        names = ("value", "by", "tie")
        return [pa.field(name, dtype) for name, dtype in zip(names, self.types, strict=True)]

    def update(self, groups: Groups, rows: pa.Table) -> list[pa.Array]:
        """Lists of the rows of each group."""
        columns = [combine_chunks(rows.column(name)) for name in self.inputs]
        entries = pa.StructArray.from_arrays(columns, fields=self._parts)
        present = columns[self.required].is_valid()
        return [self._bounded(groups.where(np.asarray(present)), entries.filter(present))]

    def merge(self, groups: Groups, states: Sequence[pa.Array]) -> list[pa.Array]:
        """Unite the lists."""
        return [merge_lists(groups, states[0], self._bounded)]

    def estimate(self, states: Sequence[pa.Array]) -> pa.Array:
        """The values, in order."""
        (lists,) = states
        if self.fails:
            refuse_full(lists, self.function, self.inputs[0], self.at_most)
        entries, parents = flatten(lists)
        values = entries.field(0)
        sizes = np.bincount(parents, minlength=len(lists)).astype(np.int64, copy=False)
        if self.descending:
            ends = np.cumsum(sizes)
            # Row i of a list swaps with row i from its end.
            mirrored = (2 * ends - sizes)[parents] - 1 - np.arange(len(parents))
            values = values.take(pa.array(mirrored))
        return make_lists(values, sizes, np.asarray(lists.is_null()))

    def _bounded(self, groups: Groups, rows: pa.Array, full: Mask | None = None) -> pa.Array:
        order = [ranks(rows.field(part)) for part in (1, 2)]
        at_most, keep = self.at_most, self.keep
        return bounded_lists(groups, rows, *order, at_most=at_most, keep=keep, full=full)
