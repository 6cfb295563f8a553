"""Items of many KLL sketches by level, and how a level that is full is compacted: all at once.

An item of level h stands for 2^h values. A sketch with too many items takes its lowest full
level, sorted, and lets every other item of it rise to the next level, where it stands for two: the
ranks of other values change by at most 2^h, up as often as down. The higher a level, the more
items it may hold (Karnin, Lang, Liberty 2016); how many is what Apache DataSketches settled on.

Which half rises is a coin, and it is hashed from the number of values, the level and the items in
it: so a sketch depends on its content alone, and not on a generator of random numbers.
"""

from __future__ import annotations

import numpy as np

from streamops.kernel.errors import CapacityError
from streamops.kernel.groups import Floats, Ids, Ints, Mask
from streamops.sketches.core.hashes import murmur3

__all__ = ["MOST", "capacities", "extremes", "ordered", "settled", "within"]

MOST = 1 << 48
"""A sketch stands for fewer values than this."""

_NARROWEST = 8  # items that any level may hold: Apache's M
_LEVELS = 64
_ODD = np.int64(-7046029254386353131)  # 2^64 / golden ratio


def capacities(k: int) -> tuple[Ints, Ints]:
    """How many items a level may hold, and a sketch.

    Returns
    -------
    level : array of int64
        By how far it is below the top, which may hold k.
    sketch : array of int64
        By how many levels it has.

    Examples
    --------
    >>> level, sketch = capacities(200)
    >>> level[:6].tolist(), sketch[:4].tolist()
    ([200, 133, 89, 59, 40, 26], [0, 200, 333, 422])
    """
    # Whole numbers throughout: rounded otherwise, Apache would find our sketches too full.
    exact = [((2 * k << depth) // 3**depth + 1) // 2 for depth in range(_LEVELS)]
    level = np.array([max(_NARROWEST, each) for each in exact], np.int64)
    return level, np.append(0, np.cumsum(level))


def settled(
    values: Floats, ids: Ids, levels: Ids | None, count: int, k: int
) -> tuple[Floats, Ints]:
    """The items that sketches keep of these, so that each of them holds no more than it may.

    Parameters
    ----------
    values : array of float64
        Without -0.0. NaN is the greatest.
    ids : array of int64
        Of which sketch each is, from 0 to ``count``.
    levels : array of int64, optional
        On which level it stands; none: on level 0.
    count, k : int

    Returns
    -------
    items : array of float64
        By sketch, by level, by value.
    sizes : array of int64, sketches x levels
        How many of them.

    Raises
    ------
    CapacityError
        ``SKETCH_FULL``: a sketch would stand for 2^48 values or more.
    """
    # Sorted once; then a value is its rank, and ranks below the number of a sketch sort quickly.
    owner = ids if levels is None else levels * count + ids
    order, keys, shift = ordered(owner, values)
    ranked = values[order]
    deep = 1 if levels is None else int(levels.max(initial=0)) + 1
    bases = np.arange(deep + 1) * count << shift
    cuts = np.searchsorted(keys, bases)
    stacked = [keys[cuts[h] : cuts[h + 1]] - bases[h] for h in range(deep)]
    sizes = [np.bincount(level >> shift, minlength=count) for level in stacked]
    _compact(stacked, sizes, ranked, shift, k)
    table = np.stack(sizes, axis=1)
    begins = np.cumsum(table).reshape(table.shape) - table
    mask = (1 << shift) - 1
    items = np.empty(int(table.sum()))
    for h, level in enumerate(stacked):
        items[np.repeat(begins[:, h], sizes[h]) + within(sizes[h])] = ranked[level & mask]
    return items, table


def ordered(owner: Ids, values: Floats) -> tuple[Ids, Ints, int]:
    """The order of values, and keys that sort by owner, then by value.

    Returns
    -------
    order : array of int64
        Places of the values, ascending.
    keys : array of int64
        Sorted: the owner, shifted, and below it a place in ``order``.
    shift : int
        By so many bits.

    Examples
    --------
    >>> order, keys, shift = ordered(np.array([1, 0, 1]), np.array([7.0, 9.0, 5.0]))
    >>> (keys >> shift).tolist(), order[keys & (1 << shift) - 1].tolist()
    ([0, 1, 1], [1, 2, 0])
    """
    order = np.argsort(values)
    owner = owner[order]
    place = np.arange(len(owner))
    for bit in range(0, int(owner.max(initial=1)).bit_length(), 16):
        # NumPy sorts two bytes by radix: sooner done, twice, than the whole number once.
        digit = (owner[place] >> bit).astype(np.uint16)
        place = place[np.argsort(digit, kind="stable")]
    shift = max(len(owner), 2).bit_length()
    return order, owner[place] << shift | place, shift


def _compact(stacked: list[Ints], sizes: list[Ints], ranked: Floats, shift: int, k: int) -> None:
    """Compact level by level, from the lowest, until every sketch holds no more than it may."""
    of_level, of_sketch = capacities(k)
    heights = np.zeros_like(sizes[0])
    for h, each in enumerate(sizes):
        heights[each > 0] = h + 1
    total = _totals(sizes)
    kept = np.sum(sizes, axis=0)
    h = 0
    # It may add a level, with room for more: at the latest, that one is not full.
    while (crowded := kept > of_sketch[heights]).any():
        full = crowded & (sizes[h] >= of_level[np.maximum(heights - 1 - h, 0)])
        if full.any():
            if h + 1 == len(stacked):
                stacked.append(np.empty(0, np.int64))
                sizes.append(np.zeros_like(kept))
            coins = np.zeros_like(kept)
            chosen = stacked[h][np.repeat(full, sizes[h])] & ((1 << shift) - 1)
            coins[full] = _coins(ranked[chosen], sizes[h][full], total[full], h)
            stacked[h], rising = _halved(stacked[h], sizes[h], full, coins)
            above = stacked[h + 1]
            stacked[h + 1] = np.sort(np.concatenate([above, rising])) if len(above) else rising
            half = np.where(full, sizes[h] >> 1, 0)
            sizes[h] = np.where(full, sizes[h] & 1, sizes[h])
            sizes[h + 1] = sizes[h + 1] + half
            kept -= half
            heights[full & (heights == h + 1)] += 1
        h += 1


def _halved(keys: Ints, sizes: Ints, full: Mask, coins: Ints) -> tuple[Ints, Ints]:
    """What stays of a level, and what rises; of an odd number of items the least one stays."""
    starts = np.cumsum(sizes) - sizes
    odd = sizes & 1
    stays = np.repeat(~full, sizes)
    stays[starts[full & (odd == 1)]] = True
    half = np.where(full, sizes >> 1, 0)
    return keys[stays], keys[np.repeat(starts + odd + coins, half) + 2 * within(half)]


def _coins(items: Floats, sizes: Ints, total: Ints, h: int) -> Ints:
    sums = np.add.reduceat(items.view(np.int64), np.cumsum(sizes) - sizes)
    first, _ = murmur3(sums + (total * _LEVELS + h) * _ODD)
    return (first >> np.uint64(63)).astype(np.int64)


def _totals(sizes: list[Ints]) -> Ints:
    """How many values each sketch stands for."""
    # As doubles first, which do not wrap around.
    rough = sum((each * 2.0**h for h, each in enumerate(sizes)), np.zeros(len(sizes[0])))
    if rough.max(initial=0) >= MOST:
        raise CapacityError(
            "SKETCH_FULL",
            "a sketch cannot stand for so many values",
            where="sketches.quantiles",
            got=f"about {rough.max():.3g}",
            expected=f"fewer than 2^48, or {MOST:,}",
            fix="keep one sketch a month or a year, and do not merge those",
        )
    exact: Ints = sum((each << h for h, each in enumerate(sizes)), np.zeros_like(sizes[0]))
    return exact


def within(sizes: Ints) -> Ints:
    """The place of each item in its run, from 0, over runs of these sizes.

    Examples
    --------
    >>> within(np.array([2, 0, 3])).tolist()
    [0, 1, 0, 1, 2]
    """
    return np.arange(sizes.sum()) - np.repeat(np.cumsum(sizes) - sizes, sizes)


def extremes(ids: Ids, least: Floats, greatest: Floats, count: int) -> tuple[Floats, Floats]:
    """Of each sketch; NaN is the greatest, so that only of nothing else it is the least, too."""
    low, high = np.full(count, np.nan), np.full(count, -np.inf)
    with np.errstate(invalid="ignore"):  # a NaN is compared
        np.fmin.at(low, ids, least)
        np.maximum.at(high, ids, greatest)
    return low, high
