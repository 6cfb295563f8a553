"""Tallies: how often each item occurs, in lists, one list per group.

What heavy hitters and count-min have in common: entries of items and counts, added up within
groups.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from streamops.kernel.errors import CapacityError, SchemaError
from streamops.kernel.groups import Groups, Ids, Ints, Mask
from streamops.sketches.core.sorting import argsort_rows, run_starts

__all__ = [
    "added",
    "adds_up",
    "are_ascending",
    "found",
    "result_type",
    "total",
    "weighed",
]


def result_type(item: pa.DataType) -> pa.DataType:
    """Items with bounds; how far these are apart at most; how many items were counted."""
    bounded = pa.struct([("item", item), ("lower", pa.int64()), ("upper", pa.int64())])
    return pa.struct([("items", pa.list_(bounded)), ("error", pa.int64()), ("count", pa.int64())])


def weighed(
    items: pa.Array, weights: pa.Array | None, weight: str | None
) -> tuple[Mask, Ints | None]:
    """Which rows count, and for how much.

    Returns
    -------
    counted : array of bool
        Neither the item nor the weight is null, and the weight is not 0.
    weights : array of int64, or None
        Of the rows that count; None where each of them is one.

    Raises
    ------
    SchemaError
        ``WEIGHT_NEGATIVE``: a sketch cannot forget.
    """
    counted = np.asarray(items.is_valid())
    if weights is None:
        return counted, None
    numbers = np.asarray(weights.cast(pa.int64()).fill_null(0))
    below = counted & (numbers < 0)
    if below.any():
        raise SchemaError(
            "WEIGHT_NEGATIVE",
            f"a sketch cannot forget, but column {weight!r} takes something away",
            where="sketches",
            got=f"weight={weight!r} with a least value of {numbers[below].min()}",
            expected="weights of 0 or more",
            fix="leave such rows out, or count exactly: aggregates.sum",
        )
    counted &= numbers > 0
    return counted, numbers[counted]


def total(groups: Groups, weights: Ints | None, column: str) -> Ints:
    """Sum of the weights per group.

    Raises
    ------
    CapacityError
        ``SUM_OVERFLOW``: as sums do.
    """
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


def added(groups: Groups, hashes: Ints, counts: Ints | None) -> tuple[Ids, Ints, Ints]:
    """Entries with the counts of equal ones added up, by group and hash.

    ``counts`` None: each is 1. No sum may overflow.

    Examples
    --------
    >>> added(Groups(np.array([1, 0, 1]), 2), np.array([7, 9, 7]), None)
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


def found(ids: Ids, hashes: Ints, counts: Ints, owners: Ids, asked: Ints) -> Ints:
    """The count of each item asked for, in a group of its own; 0 where it is not there.

    Examples
    --------
    >>> found(np.array([0, 1]), np.array([7, 7]), np.array([2, 3]), np.array([1, 1]), np.array([7, 8]))
    array([3, 0])
    """
    # What is asked stands among the entries as entries of count 0.
    ids, hashes = np.append(ids, owners), np.append(hashes, asked)
    order = argsort_rows(ids, hashes, int(ids.max(initial=0)) + 1)
    starts = run_starts(ids[order], hashes[order])
    result = np.append(counts, np.zeros_like(asked))
    if len(starts):
        sums = np.add.reduceat(result[order], starts)
        result[order] = np.repeat(sums, np.diff(np.append(starts, len(order))))
    return result[len(counts) :]


def adds_up(groups: Groups, counts: Ints, sums: Ints) -> Mask:
    """Where the counts have this sum. They may be anything; they are not negative where it is."""
    found = np.zeros(groups.count, np.int64)
    np.add.at(found, groups.ids, counts)
    # A sum that was wrapped around may be the right one by chance: it is far too large.
    right: Mask = (found == sums) & (groups.sum_floats(counts.astype(np.float64)) < 1.5 * 2**63)
    return right


def are_ascending(groups: Groups, order: Ints) -> Mask:
    """Where each entry is above the one before; the entries of a group stand together."""
    wrong = np.zeros(len(order), np.bool_)
    wrong[1:] = (order[1:] <= order[:-1]) & (groups.ids[1:] == groups.ids[:-1])
    result: Mask = groups.where(wrong).sizes() == 0
    return result
