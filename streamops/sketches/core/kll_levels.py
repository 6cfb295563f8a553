"""Compaction of KLL sketches: many sketches at once, without a loop over them.

An item of level h represents 2^h values. If a sketch holds too many items, its lowest full level is
sorted and every second item moves to the next level, where it represents twice as many values. The
rank of any other value changes by at most 2^h, in either direction with the same probability. The
higher a level, the more items it may hold (Karnin, Lang, Liberty 2016); the capacities are those of
Apache DataSketches.

A coin decides which half moves up. It is hashed from the number of values, the level and the items
of the level. So a sketch is a function of its content, not of a random number generator.

The items of one level of one sketch are a *run* of a flat buffer. Runs are copied as the values of
a binary array, which costs one ``memcpy`` for each run. They are sorted as the rows of a matrix, one
matrix for all runs of the same length: n items have at most sqrt(2 n) different lengths.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pyarrow as pa

from streamops.kernel.groups import Floats, Ids, Ints, Mask
from streamops.sketches import conditions
from streamops.sketches.core.buffers import argsort_groups, ranges
from streamops.sketches.core.items import murmur3

MAX_VALUES = 1 << 48
"""A sketch represents fewer values than this."""

_MIN_CAPACITY = 8  # of any level: M of Apache DataSketches
_LEVELS = 64
_ODD = np.int64(-7046029254386353131)  # 2^64 / golden ratio
_WIDTH = 8  # bytes of an item


def capacities(k: int) -> tuple[Ints, Ints]:
    """Capacity of a level, and of a sketch.

    Returns
    -------
    level : array of int64
        By depth below the top level, whose capacity is k.
    sketch : array of int64
        By number of levels.

    Examples
    --------
    >>> level, sketch = capacities(200)
    >>> level[:6].tolist(), sketch[:4].tolist()
    ([200, 133, 89, 59, 40, 26], [0, 200, 333, 422])
    """
    # In integers: rounded differently, Apache DataSketches would reject our sketches as too full.
    exact = [((2 * k << depth) // 3**depth + 1) // 2 for depth in range(_LEVELS)]
    level = np.array([max(_MIN_CAPACITY, capacity) for capacity in exact], np.int64)
    return level, np.append(0, np.cumsum(level))


def compact(
    items: Floats, sketches: Ids, levels: Ids, sizes: Ints, count: int, k: int, *, is_sorted: bool
) -> tuple[Floats, Ints]:
    """Merge runs of items into sketches, and compact those that hold too many items.

    Runs have a sketch, from 0 to ``count``, a level, and a size, 1 or more. Their items, one run after
    another, have no -0.0, and NaN is the greatest. Runs of level 0 may be unsorted.

    Returns
    -------
    items : array of float64
        By sketch, by level, by value.
    sizes : array of int64, sketches x levels
        Number of items. A sketch that would represent 2^48 values raises ``STATE_FULL``.
    """
    runs = Runs(items, sizes)
    depth = int(levels.max(initial=0)) + 1
    owners = [np.flatnonzero(levels == h) for h in range(depth)]
    table = [_sums(sketches[runs], sizes[runs], count) for runs in owners]
    level_capacity, sketch_capacity = capacities(k)
    total = _totals(table)
    stored = np.sum(table, axis=0)
    heights = np.zeros(count, np.int64)
    for h, held in enumerate(table):
        heights[held > 0] = h + 1
    positions = []
    promoted, promoted_from = np.empty(0, np.int64), np.empty(0, np.int64)
    h = 0
    # Compaction may add a level, and capacity with it: at the latest, that level is not full.
    while h < len(table):
        owner = np.concatenate([sketches[owners[h]], promoted])
        run = np.concatenate([owners[h], promoted_from])
        held = table[h]
        full = (stored > sketch_capacity[heights]) & (
            held >= level_capacity[np.maximum(heights - 1 - h, 0)]
        )
        unsorted = full | (np.bincount(owner, minlength=count) > 1)
        if h == 0 and not is_sorted:
            unsorted |= held > 1
        numbers = np.zeros(count, np.int64)
        numbers[owner] = run
        promoted, promoted_from = np.empty(0, np.int64), np.empty(0, np.int64)
        if unsorted.any():
            chosen = by_size(held, unsorted)
            joined = runs.take(_order(owner, run, chosen, count))
            length = held[chosen]
            _sort(joined, length)
            half = np.where(full[chosen], length >> 1, 0)
            # Of an odd number of items, the least one stays.
            stays = length - 2 * half
            numbers[chosen] = runs.append(joined, np.stack([stays, 2 * half], axis=1).ravel())[::2]
            if full.any():
                promoted = chosen[full[chosen]]
                starts = np.cumsum(length) - length
                coins = _coins(joined, starts, total[chosen], h)
                begin = (starts + stays + coins)[half > 0]
                half = half[half > 0]
                promoted_from = runs.append(joined[ranges(begin, half, step=2)], half)
                table[h] = held.copy()
                table[h][chosen] = stays
                if h + 1 == len(table):
                    table.append(np.zeros(count, np.int64))
                    owners.append(np.empty(0, np.int64))
                table[h + 1] = table[h + 1] + _sums(promoted, half, count)
                stored -= held - table[h]
                stored[promoted] += half
                heights[full & (heights == h + 1)] += 1
        positions.append(numbers)
        h += 1
    result = np.stack(table, axis=1)
    return runs.take(np.stack(positions, axis=1)[result > 0]), result


class Runs:
    """Runs of flat buffers, by number."""

    def __init__(self, items: Floats, sizes: Ints) -> None:
        self.count = 0
        self.chunks: list[pa.Array] = []
        self.append(items, sizes)

    def append(self, items: Floats, sizes: Ints) -> Ids:
        """Add a buffer, and the length of each of its runs; return their numbers."""
        ends = _WIDTH * np.append(0, np.cumsum(sizes))
        buffers = [None, pa.py_buffer(ends), pa.py_buffer(np.ascontiguousarray(items))]
        self.chunks.append(pa.Array.from_buffers(pa.large_binary(), len(sizes), buffers))
        self.count += len(sizes)
        return np.arange(self.count - len(sizes), self.count)

    def take(self, runs: Ids) -> Floats:
        """The items of these runs, one run after another."""
        source = pa.chunked_array(self.chunks) if len(self.chunks) > 1 else self.chunks[0]
        taken = source.take(pa.array(runs))
        chunks = taken.chunks if isinstance(taken, pa.ChunkedArray) else [taken]
        parts = [_items(chunk) for chunk in chunks]
        return parts[0] if len(parts) == 1 else np.concatenate([np.empty(0), *parts])


def _items(runs: pa.Array) -> Floats:
    """The items of all runs of an array."""
    if not len(runs):
        return np.empty(0)
    _, ends, data = runs.buffers()
    borders = np.frombuffer(ends, np.int64, len(runs) + 1, 8 * runs.offset)
    start, end = int(borders[0]), int(borders[-1])
    return np.frombuffer(data or b"", np.float64, (end - start) // _WIDTH, start)


def _order(owner: Ids, run: Ids, chosen: Ids, count: int) -> Ids:
    """The runs of the chosen sketches, in their order."""
    rank = np.full(count, -1, np.int64)
    rank[chosen] = np.arange(len(chosen))
    rank = rank[owner]
    among = rank >= 0
    return run[among][argsort_groups(rank[among], len(chosen))]


def by_size(sizes: Ints, chosen: Mask) -> Ids:
    """The chosen positions, by ascending size.

    Examples
    --------
    >>> by_size(np.array([3, 1, 2]), np.array([True, False, True])).tolist()
    [2, 0]
    """
    positions = np.flatnonzero(chosen)
    return positions[np.argsort(sizes[positions], kind="stable")]


def equal_sizes(sizes: Ints) -> Iterator[tuple[int, slice, slice]]:
    """Every size, with its positions in ``sizes``, which ascend, and the items of these positions.

    Examples
    --------
    >>> [(size, items) for size, _, items in equal_sizes(np.array([2, 2, 3]))]
    [(2, slice(0, 4, None)), (3, slice(4, 7, None))]
    """
    if not len(sizes):
        return
    cuts = [0, *(np.flatnonzero(np.diff(sizes)) + 1).tolist(), len(sizes)]
    begin = 0
    for first, last in pairwise(cuts):
        size = int(sizes[first])
        end = begin + size * (last - first)
        yield size, slice(first, last), slice(begin, end)
        begin = end


def _sort(items: Floats, sizes: Ints) -> None:
    """Sort each of these runs, in place."""
    for size, _, part in equal_sizes(sizes):
        items[part].reshape(-1, max(size, 1)).sort(axis=1)
    items[np.isnan(items)] = (
        np.nan
    )  # NumPy 1 may return it with other bits, which a hash would show


def _coins(items: Floats, starts: Ints, total: Ints, h: int) -> Ints:
    sums = np.add.reduceat(items.view(np.int64), starts)
    first, _ = murmur3(sums + (total * _LEVELS + h) * _ODD)
    return (first >> np.uint64(63)).astype(np.int64)


def _sums(sketches: Ids, sizes: Ints, count: int) -> Ints:
    return np.bincount(sketches, weights=sizes, minlength=count).astype(np.int64)


def _totals(table: list[Ints]) -> Ints:
    """The number of values that each sketch represents."""
    # In floating point first, which does not wrap around.
    rough = sum((held * 2.0**h for h, held in enumerate(table)), np.zeros(len(table[0])))
    if rough.max(initial=0) >= MAX_VALUES:
        raise conditions.SKETCH_FULL.error(
            at="sketches.quantiles", max_values=MAX_VALUES, got=f"about {rough.max():.3g}"
        )
    exact: Ints = sum((held << h for h, held in enumerate(table)), np.zeros_like(table[0]))
    return exact


def extremes(sketches: Ids, least: Floats, greatest: Floats, count: int) -> tuple[Floats, Floats]:
    """Least and greatest value of each sketch. NaN is the greatest: least only of NaN alone."""
    low, high = np.full(count, np.nan), np.full(count, -np.inf)
    with np.errstate(invalid="ignore"):  # a NaN is compared
        np.fmin.at(low, sketches, least)
        np.maximum.at(high, sketches, greatest)
    return low, high
