"""Tallies: how often each item occurs, in lists, one list per group.

What heavy hitters and count-min have in common: entries of items and counts, added up within
groups.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from streamops.kernel.errors import CapacityError, SchemaError
from streamops.kernel.groups import Groups, Ids, Ints, Mask

__all__ = [
    "added",
    "adds_up",
    "are_ascending",
    "found",
    "in_groups",
    "result_type",
    "run_starts",
    "spread",
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


def in_groups(ids: Ids, hashes: Ints) -> Ids:
    """The order of rows by group, then by hash.

    Examples
    --------
    >>> in_groups(np.array([1, 0, 1]), np.array([7, 9, -7])).tolist()
    [1, 2, 0]
    """
    if not len(ids):
        return ids
    # One number of both, with as many bits of the hash as find room: sorting it is several times
    # faster. Hashes that are far apart hardly ever differ in the other bits alone.
    room = 63 - int(ids.max()).bit_length()
    lowest = int(hashes.min())
    width = (int(hashes.max()) - lowest).bit_length()
    shift = max(width - room, 0)
    above = (hashes.view(np.uint64) - np.uint64(lowest % (1 << 64))) >> np.uint64(shift)
    keys = (ids << min(width, room)) | above.view(np.int64)
    order = np.argsort(keys)
    if shift:
        keys, sorted_ = keys[order], hashes[order]
        if np.any((keys[1:] == keys[:-1]) & (sorted_[1:] != sorted_[:-1])):
            return np.lexsort((hashes, ids))
    return order


def run_starts(*columns: Ints) -> Ids:
    """Where, in sorted columns, rows begin that differ from the one before."""
    new = np.ones(len(columns[0]), np.bool_)
    new[1:] = False
    for column in columns:
        new[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(new)


def added(ids: Ids, hashes: Ints, counts: Ints | None) -> tuple[Ids, Ints, Ints]:
    """Entries with the counts of equal ones added up, by group and hash.

    ``counts`` None: each is 1. No sum may overflow.

    Examples
    --------
    >>> added(np.array([1, 0, 1]), np.array([7, 9, 7]), None)
    (array([0, 1]), array([9, 7]), array([1, 2]))
    """
    order = in_groups(ids, hashes)
    ids, hashes = ids[order], hashes[order]
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
    order = in_groups(ids, hashes)
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


def spread(starts: Ids, sizes: Ints, step: int = 1) -> Ids:
    """So many positions from each start on.

    Examples
    --------
    >>> spread(np.array([10, 50]), np.array([2, 3]), 8).tolist()
    [10, 18, 50, 58, 66]
    """
    before = np.cumsum(sizes) - sizes
    places = np.arange(int(sizes.sum())) - np.repeat(before, sizes)
    return np.repeat(starts, sizes) + places * step
