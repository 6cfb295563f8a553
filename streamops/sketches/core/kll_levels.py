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

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamops.kernel.aggregation import list_sizes
from streamops.kernel.columns import plain_floats
from streamops.kernel.groups import Floats, Ids, Ints, Mask
from streamops.sketches import conditions
from streamops.sketches.core.buffers import argsort_groups, make_binary, ranges, split_binary
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


Units = npt.NDArray[np.uint32]

_EMPTY, _SINGLE, _FULL = 0x010F0102, 0x040F0202, 0x020F0105
_SORTED = 0x02000000
_M = 8
_MAX_LEVELS = 48  # the highest item represents fewer than MAX_VALUES values
_PREAMBLE = 5  # units

ITEMS = {"double": "<f8", "float": "<f4", "bigint": "<i8"}
"""The items of images that Spark's ``kll_sketch_agg_double``, ``_float`` and ``_bigint`` return."""
_NAMES = {"double": "doubles", "float": "floats", "bigint": "longs"}
_LARGEST = 1 << 53
_TINY = 1e-150
"""The bits of an integer up to 2^61 are those of a smaller double, or those of -1 of a large or no number."""


def write(states: Sequence[pa.Array], k: int) -> pa.Array:
    """Each state as bytes."""
    least, greatest, items, sizes = states
    stored, heights = list_sizes(items), list_sizes(sizes)
    held = np.asarray(sizes.flatten()).astype(np.int64)
    starts = np.cumsum(heights) - heights
    state, level = np.repeat(np.arange(len(stored)), heights), ranges(0 * starts, heights)
    count = np.zeros(len(stored), np.int64)
    np.add.at(count, state, held << level)
    full = count > 1
    units = np.where(full, _PREAMBLE + heights + 4, 2)
    begin = np.cumsum(units) - units
    heads = np.zeros(int(units.sum()), "<u4")
    heads[begin] = np.where(full, _FULL, np.where(count == 1, _SINGLE, _EMPTY))
    heads[begin + 1] = k | _M << 16
    first = begin[full]
    _put(heads, first + 2, count[full].astype("<u8"))
    heads[first + 4] = k | heights[full] << 16
    capacity = capacities(k)[1][heights] - stored
    # Levels are at the end of the buffer, the highest last.
    below = np.cumsum(held) - held
    position = capacity[state] + below - np.append(below, 0)[starts][state]
    written = full[state]
    heads[(begin[state] + _PREAMBLE + level)[written]] = position[written]
    ends = first + _PREAMBLE + heights[full]
    for i, extreme in enumerate((least, greatest)):
        _put(heads, ends + 2 * i, np.asarray(extreme.filter(pa.array(full))).astype("<f8"))
    head = make_binary(4 * np.append(0, np.cumsum(units)), heads.view(np.uint8))
    values = np.asarray(items.flatten()).astype("<f8", copy=False).view(np.uint8)
    body = make_binary(8 * np.append(0, np.cumsum(stored)), values)
    return pc.binary_join_element_wise(head, body, pa.scalar(b"", pa.binary()))


def _put(data: Units, positions: Ids, numbers: np.ndarray) -> None:
    """Write numbers of eight bytes at these units."""
    halves = numbers.view("<u4")
    data[positions], data[positions + 1] = halves[::2], halves[1::2]


def refuse_nan(states: Sequence[pa.Array]) -> None:
    """Refuse states with a NaN, which Apache DataSketches does not support."""
    # A NaN is the greatest value.
    wrong = np.flatnonzero(np.asarray(pc.is_nan(states[1]).fill_null(False)))
    if len(wrong):
        raise conditions.SKETCH_HAS_NAN.error(
            at="sketches.kll", got=f"sketch {wrong[0]}, whose greatest value is NaN"
        )


def read(
    payloads: pa.Array, k: int, *, foreign: bool = False, dtype: str | None = None
) -> tuple[Floats, Floats, Floats, Ints]:
    """Least and greatest value of each sketch, all items, and the number of items per level.

    ``foreign`` payloads are from Apache DataSketches: their lowest level may be unsorted, and they have
    two zeros but no NaN. ``dtype`` is a key of ``ITEMS``. ``SKETCH_CORRUPT`` names the first invalid sketch
    and the reason, ``SKETCH_KIND`` the first one with items of another type.
    """
    try:
        found = _read(payloads, k, foreign=foreign, dtype=np.dtype(ITEMS[dtype or "double"]))
        if foreign and dtype is None:
            _require_doubles(*found[:2], found[3].sum(axis=1))
        return found
    except _OtherItemsError as error:
        raise conditions.SKETCH_ITEM_TYPE.error(
            dtype=dtype or "double", got=f"sketch {error}"
        ) from None
    except _InvalidSketchError as error:
        condition = conditions.QUANTILES_FOREIGN if foreign else conditions.QUANTILES_CORRUPT
        raise condition.error(type=_NAMES[dtype or "double"], k=k, got=f"sketch {error}") from None


class _InvalidSketchError(Exception):
    """Number of the sketch, and the reason."""


class _OtherItemsError(_InvalidSketchError):
    """Number of the sketch, and what its items are."""


def _require_doubles(least: Floats, greatest: Floats, sizes: Ints) -> None:
    """Refuse sketches whose items are the bits of integers, as far as least and greatest show it."""
    ends = np.stack([least, greatest])
    size = np.abs(ends)
    wrong = ((size < _TINY) & (size > 0)) | ((ends < -1 / _TINY) & np.isfinite(ends))
    reason = "doubles such as the bits of integers are"
    _require(~(wrong.any(axis=0) & (sizes > 0)), reason, error=_OtherItemsError)


def _to_doubles(raw: np.ndarray, sizes: Ints | None = None) -> Floats:
    """Items as doubles. Integers that no double has are refused."""
    if np.issubdtype(raw.dtype, np.integer):
        wrong = (raw > _LARGEST) | (raw < -_LARGEST)
        reason = "an integer beyond 2^53, which a double does not have"
        _require(_none_of(wrong, sizes), reason, error=_OtherItemsError)
    return raw.astype(np.float64)


def _read(
    payloads: pa.Array, k: int, *, foreign: bool, dtype: np.dtype[Any]
) -> tuple[Floats, Floats, Floats, Ints]:
    width = dtype.itemsize // 4
    data, begin, units = _flat(payloads)
    types = data[begin]
    mask = np.uint32(~_SORTED & 0xFFFFFFFF if foreign else 0xFFFFFFFF)
    empty, single, full = (types & mask == type_ & int(mask) for type_ in (_EMPTY, _SINGLE, _FULL))
    _require(empty | single | full, "bytes 0 to 3: not a kll_doubles sketch in compact form")
    _require(data[begin + 1] == (k | _M << 16), f"bytes 4 to 7: another k than {k}, or another M")
    _require(~empty | (units == 2), "an empty sketch with a length other than 8 bytes")
    _require(
        ~single | (units == 2 + width),
        f"a sketch of one value with a length other than {8 + 4 * width} bytes",
    )
    _require(
        ~full | (units >= 6 + 3 * width),
        f"a sketch of several values with less than {24 + 12 * width} bytes",
    )
    count = single.astype(np.int64)
    heights, stored = count.copy(), count.copy()
    first = begin[full]
    claimed = _take(data, first + 2, "<u8")
    heights[full] = data[first + 4] >> np.uint32(16)
    _require(data[first + 4] & np.uint32(0xFFFF) == k, "byte 16: merged with a smaller k", full)
    in_range = (claimed >= 2) & (claimed < MAX_VALUES)
    _require(in_range, f"byte 8: not from 2 to {MAX_VALUES} values", full)
    _require((heights <= _MAX_LEVELS) & (~full | (heights > 0)), "byte 18: not a number of levels")
    count[full] = claimed
    # Units of the items, after preamble, levels, least and greatest.
    left = units[full] - _PREAMBLE - 2 * width - heights[full]
    _require((left > 0) & (left % width == 0), "a length that no number of items has", full)
    stored[full] = left // width
    table = _sizes(data, begin, heights, stored, full, k)
    weights = (table * 2.0 ** np.arange(table.shape[1])).sum(axis=1)
    _require(weights == count, "levels that represent another number of values than byte 8")
    borders = np.append(np.repeat(begin, 2), len(data))
    borders[1::2] += np.where(full, _PREAMBLE + 2 * width + heights, 2)
    parts = make_binary(4 * borders, data.view(np.uint8))
    bodies = parts.take(pa.array(2 * np.arange(len(begin)) + 1))
    items = _to_doubles(split_binary(bodies)[1].view(dtype), table.sum(axis=1))
    extremes = np.zeros((2, len(begin)), dtype)
    only = _take(data, begin[single] + 2, dtype)
    ends = first + _PREAMBLE + heights[full]
    for i, extreme in enumerate(extremes):
        extreme[single], extreme[full] = only, _take(data, ends + width * i, dtype)
    least, greatest = map(_to_doubles, extremes)
    return _verify(least, greatest, items, table, foreign=foreign)


def _sizes(data: Units, begin: Ints, heights: Ints, stored: Ints, full: Mask, k: int) -> Ints:
    """Number of items of each level, from the starts of the levels."""
    depth = int(heights.max(initial=1))
    capacity = capacities(k)[1][heights]
    # A missing level starts at the end.
    starts = np.repeat(capacity[:, None], depth + 1, axis=1)
    starts[~full, 0] -= stored[~full]
    present = full[:, None] & (np.arange(depth + 1) < heights[:, None])
    position = begin[:, None] + _PREAMBLE + np.arange(depth + 1)
    starts[present] = data[position[present]]
    sizes = np.diff(starts, axis=1)
    _require(sizes.min(axis=1) >= 0, "levels that overlap, or exceed their capacity")
    _require(capacity - starts[:, 0] == stored, "levels of another length than the items")
    top = sizes[np.arange(len(sizes)), np.maximum(heights, 1) - 1]
    _require((top > 0) | (heights == 0), "a highest level without an item")
    return sizes


def _verify(
    least: Floats, greatest: Floats, items: Floats, table: Ints, *, foreign: bool
) -> tuple[Floats, Floats, Floats, Ints]:
    """The values, if they are valid."""
    stored = table.sum(axis=1)
    given, clean = (least, greatest, items), tuple(map(plain_floats, (least, greatest, items)))
    for raw, value, sizes in zip(given, clean, (None, None, stored), strict=True):
        wrong = np.isnan(raw) if foreign else raw.view(np.int64) != value.view(np.int64)
        reason = "a value that is NaN" if foreign else "-0.0, or a NaN with other bits"
        _require(_none_of(wrong, sizes), reason)
    least, greatest, items = clean
    # Runs: the items of one level of one sketch.
    sketch, level = np.nonzero(table)
    sizes = table[sketch, level]
    ends = np.cumsum(sizes)
    falling = ~((items[:-1] <= items[1:]) | np.isnan(items[1:]))
    falling[ends[:-1] - 1] = False
    run = np.searchsorted(ends, np.flatnonzero(falling), side="right")
    if foreign:
        run = run[level[run] > 0]
    valid = np.ones(len(table), np.bool_)
    valid[sketch[run]] = False
    _require(valid, "a level that is not sorted")
    low, high = np.empty(0), np.empty(0)
    if len(items):
        with np.errstate(invalid="ignore"):  # a NaN is compared
            low, high = (f.reduceat(items, ends - sizes) for f in (np.fmin, np.maximum))
    inside = (least[sketch] <= low) | np.isnan(low)
    inside &= (high <= greatest[sketch]) | np.isnan(greatest[sketch])
    valid = np.ones(len(table), np.bool_)
    valid[sketch[~inside]] = False
    _require(valid, "an item below the least value, or above the greatest")
    # While all values are stored, least and greatest are among the items.
    exact = (table[:, 1:].sum(axis=1) == 0)[sketch]
    for claim, true in zip((least, greatest), (low, high), strict=True):
        right = (claim[sketch] == true) | (np.isnan(claim[sketch]) & np.isnan(true))
        valid[sketch[exact & ~right]] = False
    _require(valid, "a least or greatest value that no item has")
    return least, greatest, items, table


def _flat(payloads: pa.Array) -> tuple[Units, Ints, Ints]:
    """The units of all payloads; the start and the number of units of each."""
    _require(np.asarray(payloads.is_valid()), "null")
    ends, data = split_binary(payloads.cast(pa.binary()))
    lengths = np.diff(ends)
    _require(
        (lengths >= 8) & (lengths % 4 == 0), "shorter than 8 bytes, or not a multiple of 4 bytes"
    )
    if data.ctypes.data % 4:
        data = data.copy()
    return data.view("<u4"), ends[:-1] // 4, lengths // 4


def _take(data: Units, positions: Ids, dtype: str | np.dtype[Any]) -> np.ndarray:
    """Numbers of four or eight bytes from these units."""
    width = np.dtype(dtype).itemsize // 4
    parts = [data[positions + unit] for unit in range(width)]
    return np.stack(parts, axis=1).ravel().view(dtype)


def _none_of(wrong: Mask, sizes: Ints | None) -> Mask:
    """Whether no value of a sketch is wrong; each has one value, or as many as its size."""
    if sizes is None:
        return ~wrong
    result = np.ones(len(sizes), np.bool_)
    if wrong.any():
        result[np.repeat(np.arange(len(sizes)), sizes)[wrong]] = False
    return result


def _require(
    valid: Mask,
    reason: str,
    of: Mask | None = None,
    error: type[_InvalidSketchError] = _InvalidSketchError,
) -> None:
    """Refuse the first sketch that is not valid; ``of`` selects the sketches that were checked."""
    if valid.all():
        return
    wrong = int(np.flatnonzero(~valid)[0])
    number = wrong if of is None else int(np.flatnonzero(of)[wrong])
    raise error(f"{number}: {reason}")
