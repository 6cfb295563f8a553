"""Item counts per group: what heavy hitters and count-min sketches share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import pyarrow as pa

from streamops.kernel.columns import combine_chunks
from streamops.kernel.errors import CapacityError, SchemaError
from streamops.kernel.group_states import list_sizes, make_lists
from streamops.kernel.groups import Groups, Ids, Ints, Mask
from streamops.sketches.core.buffers import argsort_rows, refuse_payloads, run_starts
from streamops.sketches.core.sketch import Format

__all__ = [
    "CountingSketch",
    "add_counts",
    "are_ascending",
    "find_counts",
    "result_type",
    "sums_match",
    "total",
    "weigh",
    "wrapped_sums",
]


class CountingSketch(ABC):
    """Defaults of sketches that count items, or the sums of their weights."""

    __slots__ = ()
    column: str
    type: pa.DataType
    weight: str | None
    format: ClassVar[Format]

    @property
    def inputs(self) -> tuple[str, ...]:
        """Columns that ``update`` reads."""
        return (self.column,) if self.weight is None else (self.column, self.weight)

    @property
    def result(self) -> pa.DataType:
        """Items with their bounds, the distance of these, and the number of all counted items."""
        return result_type(self.type)

    @abstractmethod
    def estimate(self, states: Sequence[pa.Array]) -> pa.Array:
        """Items with their bounds."""

    def bounds(self, states: Sequence[pa.Array]) -> tuple[pa.Array, pa.Array]:
        """Lower and upper bounds of the count of each item of the estimate."""
        found = self.estimate(states).field("items")
        sizes, bounded = list_sizes(found), found.flatten()
        return make_lists(bounded.field("lower"), sizes), make_lists(bounded.field("upper"), sizes)

    def counted(self, groups: Groups, rows: pa.Table) -> tuple[Groups, pa.Array, Ints | None, Ints]:
        """The rows that count: their groups, items and weights; and the total of each group."""
        items = combine_chunks(rows.column(self.column))
        weights = None if self.weight is None else combine_chunks(rows.column(self.weight))
        valid, weights = weigh(items, weights, self.weight)
        if not valid.all():
            groups, items = groups.where(valid), items.filter(pa.array(valid))
        return groups, items, weights, total(groups, weights, self.column)

    def make_result(
        self,
        items: pa.Array,
        lower: Ints,
        upper: Ints,
        sizes: Ints,
        error: pa.Array,
        count: pa.Array,
    ) -> pa.Array:
        """The estimates, of bounded items in lists of these sizes."""
        fields = list(self.result)
        bounded = pa.StructArray.from_arrays(
            [items, pa.array(lower), pa.array(upper)], fields=list(fields[0].type.value_type)
        )
        parts = [make_lists(bounded, sizes), error, count]
        return pa.StructArray.from_arrays(parts, fields=fields)

    def require(self, valid: Mask, expected: str) -> None:
        """Refuse payloads that are not as expected."""
        where = f"sketches, {self.format.kind}"
        refuse_payloads(~valid, "its bytes are no such sketch", where=where, expected=expected)


def result_type(item: pa.DataType) -> pa.DataType:
    """Items with their bounds, the distance of these, and the number of all counted items."""
    bounded = pa.struct([("item", item), ("lower", pa.int64()), ("upper", pa.int64())])
    return pa.struct([("items", pa.list_(bounded)), ("error", pa.int64()), ("count", pa.int64())])


def weigh(
    items: pa.Array, weights: pa.Array | None, weight: str | None
) -> tuple[Mask, Ints | None]:
    """Which rows count, and the weights of these; None without weights.

    A row counts if neither its item nor its weight is null, and the weight is not 0. A negative one
    raises ``WEIGHT_NEGATIVE``.
    """
    counted = np.asarray(items.is_valid())
    if weights is None:
        return counted, None
    numbers = np.asarray(weights.cast(pa.int64()).fill_null(0))
    below = counted & (numbers < 0)
    if below.any():
        raise SchemaError(
            "WEIGHT_NEGATIVE",
            f"a sketch cannot forget, but column {weight!r} has negative weights",
            where="sketches",
            got=f"weight={weight!r} with a minimum of {numbers[below].min()}",
            expected="weights >= 0",
            fix="leave such rows out, or count exactly: aggregates.sum",
        )
    counted &= numbers > 0
    return counted, numbers[counted]


def total(groups: Groups, weights: Ints | None, column: str) -> Ints:
    """Sum of the weights per group; ``SUM_OVERFLOW`` if it does not fit."""
    if weights is None:
        return groups.sizes()
    try:
        return groups.sum_ints(weights)
    except OverflowError:
        raise CapacityError(
            "SUM_OVERFLOW",
            f"the number of items counted of {column!r} does not fit into its type",
            where="sketches",
            got="a sum of weights out of range",
            expected="a value of type bigint",
            fix="use smaller weights: a coarser unit, such as kilobytes for bytes",
        ) from None


def add_counts(groups: Groups, hashes: Ints, counts: Ints | None) -> tuple[Ids, Ints, Ints]:
    """Entries by group and hash, with the counts of equal ones added; None: each is 1.

    Examples
    --------
    >>> add_counts(Groups(np.array([1, 0, 1]), 2), np.array([7, 9, 7]), None)
    (array([0, 1]), array([9, 7]), array([1, 2]))
    """
    order = argsort_rows(groups.ids, hashes, groups.count)
    ids, hashes = groups.ids[order], hashes[order]
    starts = run_starts(ids, hashes)
    if counts is None:
        sums = np.diff(np.append(starts, len(ids)))
    else:
        sums = np.add.reduceat(counts[order], starts) if len(starts) else counts[:0]
    return ids[starts], hashes[starts], sums


def find_counts(ids: Ids, hashes: Ints, counts: Ints, owners: Ids, queries: Ints) -> Ints:
    """The count of each queried hash in its own group; 0 if it is not there.

    Examples
    --------
    >>> entries = np.array([0, 1]), np.array([7, 7]), np.array([2, 3])
    >>> find_counts(*entries, np.array([1, 1]), np.array([7, 8]))
    array([3, 0])
    """
    # Queries are sorted among the entries, as entries of count 0.
    ids, hashes = np.append(ids, owners), np.append(hashes, queries)
    order = argsort_rows(ids, hashes, int(ids.max(initial=0)) + 1)
    starts = run_starts(ids[order], hashes[order])
    result = np.append(counts, np.zeros_like(queries))
    if len(starts):
        sums = np.add.reduceat(result[order], starts)
        result[order] = np.repeat(sums, np.diff(np.append(starts, len(order))))
    return result[len(counts) :]


def sums_match(groups: Groups, counts: Ints, sums: Ints) -> Mask:
    """Whether the counts of each group have this sum; they may be any integers."""
    found, is_small = wrapped_sums(groups, counts)
    result: Mask = (found == sums) & is_small
    return result


def wrapped_sums(groups: Groups, counts: Ints) -> tuple[Ints, Mask]:
    """Sums that may have wrapped around, and whether they are too small for more than one wrap."""
    found = np.zeros(groups.count, np.int64)
    np.add.at(found, groups.ids, counts)
    return found, groups.sum_floats(counts.astype(np.float64)) < 1.5 * 2**63


def are_ascending(groups: Groups, order: Ints) -> Mask:
    """Whether the entries of each group, which are adjacent, ascend."""
    wrong = np.zeros(len(order), np.bool_)
    wrong[1:] = (order[1:] <= order[:-1]) & (groups.ids[1:] == groups.ids[:-1])
    result: Mask = groups.where(wrong).sizes() == 0
    return result
