"""KLL sketches as bytes: the ``kll_doubles`` format of Apache DataSketches, little-endian.

::

    byte 0   words of preamble: 2, or 5 for two values or more
    byte 1   version: 1; 2 for a single value
    byte 2   family: 15
    byte 3   flags: 1 empty, 2 lowest level sorted, 4 a single value
    byte 4   k, uint16; then M, uint8: 8; then 0
    byte 8   nothing more of an empty sketch; the value, double, of a single one; else
    byte 8   values, uint64
    byte 16  least k ever merged, uint16: k; then levels, uint8; then 0
    byte 20  where each level begins in a buffer with room for all they may hold, uint32
             the least value, the greatest, and the items, doubles: from the lowest level up

All of it is a multiple of four bytes, and is written and read as words of four: all sketches of
a column at once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamops.kernel.errors import SketchFormatError
from streamops.kernel.group_states import list_sizes
from streamops.kernel.groups import Floats, Ids, Ints, Mask
from streamops.sketches.core.buffers import binary_of, bytes_of
from streamops.sketches.core.kll_levels import MOST, capacities, extremes, within

__all__ = ["plain", "read", "refuse_nan", "written"]

Words = npt.NDArray[np.uint32]

_EMPTY, _SINGLE, _FULL = 0x010F0102, 0x040F0202, 0x020F0105
_SORTED = 0x02000000
_M = 8
_MOST_LEVELS = 48  # the highest item stands for fewer than MOST values
_PREAMBLE = 5  # words


def plain(values: Floats) -> Floats:
    """The values with one zero and one NaN."""
    with np.errstate(invalid="ignore"):  # a NaN that signals
        values = values + 0.0
    values[np.isnan(values)] = np.nan
    return values


def written(states: Sequence[pa.Array], k: int) -> pa.Array:
    """Each state as bytes."""
    least, greatest, items, sizes = states
    kept, heights = list_sizes(items), list_sizes(sizes)
    each = np.asarray(sizes.flatten()).astype(np.int64)
    starts = np.cumsum(heights) - heights
    weight = each << within(heights)
    count = np.zeros(len(kept), np.int64)
    np.add.at(count, np.repeat(np.arange(len(kept)), heights), weight)
    full = count > 1
    words = np.where(full, 9 + heights + 2 * kept, 2 + 2 * count)
    begin = np.cumsum(words) - words
    out = np.zeros(int(words.sum()), "<u4")
    out[begin] = np.where(full, _FULL, np.where(count == 1, _SINGLE, _EMPTY))
    out[begin + 1] = k | _M << 16
    first = begin[full]
    _put(out, first + 2, count[full].astype("<u8").view("<u4"))
    out[first + 4] = k | heights[full] << 16
    room = capacities(k)[1][heights] - kept
    # Levels lie at the end of the room that they share, the highest last.
    below = np.cumsum(each) - each
    of_state = np.repeat(np.arange(len(kept)), heights)
    level = room[of_state] + below - np.append(below, 0)[starts][of_state]
    shown = full[of_state]
    out[(begin[of_state] + _PREAMBLE + within(heights))[shown]] = level[shown]
    ends = first + _PREAMBLE + heights[full]
    for i, extreme in enumerate((least, greatest)):
        _put(
            out, ends + 2 * i, np.asarray(extreme.filter(pa.array(full))).astype("<f8").view("<u4")
        )
    values = begin + np.where(full, 9 + heights, 2)
    place = np.repeat(values, kept) + 2 * within(kept)
    _put(out, place, np.asarray(items.flatten()).astype("<f8").view("<u4"))
    return binary_of(4 * np.append(0, np.cumsum(words)), out.view(np.uint8))


def _put(out: Words, place: Ints, halves: Words) -> None:
    """Write numbers of eight bytes to these places."""
    out[place], out[place + 1] = halves[::2], halves[1::2]


def refuse_nan(states: Sequence[pa.Array]) -> None:
    """Refuse states that Apache's libraries would not read as they are."""
    # It is the greatest: where there is one, it is the greatest value.
    wrong = np.flatnonzero(np.asarray(pc.is_nan(states[1]).fill_null(False)))
    if len(wrong):
        raise SketchFormatError(
            "SKETCH_HAS_NAN",
            "a sketch of Apache DataSketches has no NaN in it",
            where="sketches.kll",
            got=f"sketch {wrong[0]}: one whose greatest value is NaN",
            expected="sketches of numbers",
            fix="leave NaN out before the sketch is made: where(~isnan(column))",
        )


def read(
    payloads: pa.Array, k: int, *, where: str, foreign: bool = False
) -> tuple[Floats, Floats, Floats, Ints]:
    """Least and greatest value of each sketch, all items, and how many of each level.

    Parameters
    ----------
    payloads : Array
        Binary.
    k : int
    where : str
        For errors.
    foreign : bool
        Whether Apache's own code wrote them, which sorts the lowest level when it likes, and knows
        two zeros but no NaN.

    Raises
    ------
    SketchFormatError
        ``SKETCH_CORRUPT``: the first of them that is no such sketch, and why.
    """
    try:
        return _read(payloads, k, foreign=foreign)
    except _UnsoundError as error:
        raise SketchFormatError(
            "SKETCH_CORRUPT",
            "these bytes are no such sketch of quantiles",
            where=where,
            got=f"sketch {error}",
            expected=f"a compact kll_doubles sketch of Apache DataSketches, with k={k}",
            fix="make it again from its rows, or merge the others without it",
        ) from None


class _UnsoundError(Exception):
    """Which one, and why."""


def _read(payloads: pa.Array, k: int, *, foreign: bool) -> tuple[Floats, Floats, Floats, Ints]:
    data, begin, words = _flat(payloads)
    kinds = data[begin]
    sort = np.uint32(~_SORTED & 0xFFFFFFFF if foreign else 0xFFFFFFFF)
    empty, single, full = (kinds & sort == each & int(sort) for each in (_EMPTY, _SINGLE, _FULL))
    _require(empty | single | full, "bytes 0 to 3: no kll_doubles sketch, not in compact form")
    _require(data[begin + 1] == (k | _M << 16), f"bytes 4 to 7: another k than {k}, or another M")
    _require(~empty | (words == 2), "an empty sketch of other than 8 bytes")
    _require(~single | (words == 4), "a sketch of one value of other than 16 bytes")
    _require(~full | (words >= 12), "a sketch of several values of less than 48 bytes")
    count = single.astype(np.int64)
    heights, kept = count.copy(), count.copy()
    first = begin[full]
    claimed = _take(data, first + 2, "<u8")
    heights[full] = data[first + 4] >> np.uint32(16)
    _require(data[first + 4] & np.uint32(0xFFFF) == k, "byte 16: merged with a smaller k", full)
    _require((claimed >= 2) & (claimed < MOST), f"byte 8: not from 2 to {MOST} values", full)
    _require((heights <= _MOST_LEVELS) & (~full | (heights > 0)), "byte 18: no number of levels")
    count[full] = claimed
    # What is left for items, after preamble, levels, least and greatest.
    left = words[full] - 9 - heights[full]
    _require((left > 0) & (left % 2 == 0), "of a length that no number of items has", full)
    kept[full] = left // 2
    table = _sizes(data, begin, heights, kept, full, k)
    weights = (table * 2.0 ** np.arange(table.shape[1])).sum(axis=1)
    _require(weights == count, "levels that do not stand for as many values as byte 8 says")
    values = begin + np.where(full, 9 + heights, 2)
    items = _take(data, np.repeat(values, kept) + 2 * within(kept), "<f8")
    least, greatest = np.zeros(len(begin)), np.zeros(len(begin))
    only = _take(data, begin[single] + 2, "<f8")
    ends = first + _PREAMBLE + heights[full]
    for i, extreme in enumerate((least, greatest)):
        extreme[single], extreme[full] = only, _take(data, ends + 2 * i, "<f8")
    return _sound(least, greatest, items, table, foreign=foreign)


def _sizes(data: Words, begin: Ints, heights: Ints, kept: Ints, full: Mask, k: int) -> Ints:
    """How many items each level has, by where it begins."""
    deep = int(heights.max(initial=1))
    room = capacities(k)[1][heights]
    # A level that is not there begins where all end.
    starts = np.repeat(room[:, None], deep + 1, axis=1)
    starts[~full, 0] -= kept[~full]
    there = full[:, None] & (np.arange(deep + 1) < heights[:, None])
    place = begin[:, None] + _PREAMBLE + np.arange(deep + 1)
    starts[there] = data[place[there]]
    sizes = np.diff(starts, axis=1)
    _require(sizes.min(axis=1) >= 0, "levels that overlap, or exceed the room they have")
    _require(room - starts[:, 0] == kept, "levels of another length than the items")
    top = sizes[np.arange(len(sizes)), np.maximum(heights, 1) - 1]
    _require((top > 0) | (heights == 0), "a highest level without an item")
    return sizes


def _sound(
    least: Floats, greatest: Floats, items: Floats, table: Ints, *, foreign: bool
) -> tuple[Floats, Floats, Floats, Ints]:
    """The values, if they can be those of sketches."""
    kept = table.sum(axis=1)
    owner = np.repeat(np.arange(len(table)), kept)
    parts = least, greatest, items
    tidy = tuple(plain(each) for each in parts)
    for given, clean, of in zip(parts, tidy, (None, None, owner), strict=True):
        wrong = np.isnan(given) if foreign else given.view(np.int64) != clean.view(np.int64)
        said = "a value that is NaN" if foreign else "-0.0, or a NaN with other bits"
        _require(_all(~wrong, of, len(table)), said)
    least, greatest, items = tidy
    levels = np.repeat(np.tile(np.arange(table.shape[1]), len(table)), table.ravel())
    same = (owner[1:] == owner[:-1]) & (levels[1:] == levels[:-1])
    same &= (levels[1:] > 0) | (not foreign)
    ordered = (items[:-1] <= items[1:]) | np.isnan(items[1:]) | ~same
    _require(_all(ordered, owner[1:], len(table)), "a level that is not sorted")
    high, low = greatest[owner], least[owner]
    inside = (low <= items) | np.isnan(items)
    inside &= (items <= high) | np.isnan(high)
    _require(
        _all(inside, owner, len(table)), "an item below the least value, or above the greatest"
    )
    # While nothing was left out, least and greatest are among the items.
    alone = (table[:, 1:].sum(axis=1) == 0) & (kept > 0)
    found = extremes(owner, items, items, len(table))
    for claim, true in zip((least, greatest), found, strict=True):
        right = (claim == true) | (np.isnan(claim) & np.isnan(true))
        _require(~alone | right, "a least or greatest value that no item has")
    return least, greatest, items, table


def _flat(payloads: pa.Array) -> tuple[Words, Ints, Ints]:
    """All of them as words; where each begins, and how many it has."""
    _require(np.asarray(payloads.is_valid()), "null")
    ends, data = bytes_of(payloads.cast(pa.binary()))
    lengths = np.diff(ends)
    _require((lengths >= 8) & (lengths % 4 == 0), "shorter than 8 bytes, or no multiple of 4 bytes")
    # Copied, because words begin where a number may.
    return data.copy().view("<u4"), ends[:-1] // 4, lengths // 4


def _take(data: Words, place: Ints, kind: str) -> np.ndarray:
    """Numbers of eight bytes from these places."""
    return np.stack([data[place], data[place + 1]], axis=1).ravel().view(kind)


def _all(good: Mask, owner: Ids | None, count: int) -> Mask:
    """Whether all that a sketch has are good."""
    if owner is None:
        return good
    result = np.ones(count, np.bool_)
    result[owner[~good]] = False
    return result


def _require(good: Mask, said: str, of: Mask | None = None) -> None:
    """Refuse the first sketch that is not good; ``of`` says which ones were looked at."""
    if good.all():
        return
    wrong = int(np.flatnonzero(~good)[0])
    number = wrong if of is None else int(np.flatnonzero(of)[wrong])
    raise _UnsoundError(f"{number}: {said}")
