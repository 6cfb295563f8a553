"""Heavy hitters as Apache DataSketches has them: the images of its frequent-items sketches.

Little-endian: 4 (longs of the head), 1 (version), 10 (family), log2 of the largest and of the present
size of a hash table that is full by three quarters, three unused bytes; the number of items, uint32,
and four unused bytes; the total weight and the offset, int64; the counts, int64; the items. An image
of nothing may end after eight bytes, of which the first is 1. Spark's ``approx_top_k_accumulate`` has
such an image inside, and eight bytes behind it, in which it counts nulls.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from streamops.kernel.errors import SchemaError
from streamops.kernel.groups import Ids, Ints
from streamops.sketches.core.frequent_bytes import Parts
from streamops.sketches.core.itembytes import measured, read, write
from streamops.sketches.core.layout import Bytes, pieces, put, require, seen, texts, whole
from streamops.sketches.core.sorting import ranges
from streamops.sketches.core.types import type_name

__all__ = ["read_images", "write_images"]

_KIND = "an image of heavy hitters"
_HEAD, _EMPTY_HEAD = 32, 8
_START = np.frombuffer(bytes([4, 1, 10]), np.uint8)
_EMPTY = np.frombuffer(bytes([1, 1, 10]), np.uint8)
_LEAST, _MOST = 3, 31


def write_images(parts: Parts, counters: int) -> pa.Array:
    """The images of these states: ``binary``."""
    items, sizes, counts, offset, count = parts
    _refuse_type(items.type)
    lengths = _HEAD + 8 * sizes + measured(items, sizes)
    data, starts = np.zeros(int(lengths.sum()), np.uint8), np.cumsum(lengths) - lengths
    for place, byte in enumerate(_START):
        data[starts + place] = byte
    data[starts + 3] = _tables(np.array([counters]))
    data[starts + 4] = _tables(sizes)
    put(data, starts + 8, sizes, "<u4")
    put(data, starts + 16, count, "<i8")
    put(data, starts + 24, offset, "<i8")
    put(data, ranges(starts + _HEAD, sizes, 8), counts, "<i8")
    begin = starts + _HEAD + 8 * sizes
    if pa.types.is_integer(items.type):
        write(data, begin, items, sizes)
    else:
        _write_strings(data, begin, items, sizes)
    return pieces(data, lengths)


def read_images(images: pa.Array, kind: pa.DataType) -> Parts:
    """What images have of states; their items may come in any order.

    Raises
    ------
    SketchFormatError
        ``SKETCH_CORRUPT``: they are no images of such items.
    ArrowInvalid
        The items are no values of the type.
    """
    _refuse_type(kind)
    data, starts, lengths = whole(images)
    require(lengths >= _EMPTY_HEAD, _KIND, "at least eight bytes")
    head = data[starts[:, None] + np.arange(3)]
    empty = (head == _EMPTY).all(axis=1)
    fine = (head == _START).all(axis=1) & (lengths >= _HEAD)
    require(fine | empty, _KIND, "a head of version 1, family 10")
    there = np.flatnonzero(~empty)
    sizes, offset, count = (np.zeros(len(starts), np.int64) for _ in range(3))
    sizes[there] = seen(data, starts[there] + 8, "<u4")
    count[there] = seen(data, starts[there] + 16, "<i8")
    offset[there] = seen(data, starts[there] + 24, "<i8")
    begin, ends = starts + np.where(empty, _EMPTY_HEAD, _HEAD + 8 * sizes), starts + lengths
    require(begin <= ends, _KIND, "a count for each item")
    counts = seen(data, ranges(starts + _HEAD, sizes, 8), "<i8")
    if pa.types.is_integer(kind):
        require(begin + 8 * sizes == ends, _KIND, "items, and nothing else")
        items = read(data, begin, sizes, kind)
    else:
        items = _read_strings(data, begin, ends, sizes, kind)
    return items, sizes, counts, offset, count


def _write_strings(data: Bytes, begin: Ids, items: pa.Array, sizes: Ints) -> None:
    """Write each string behind its length."""
    alone = np.ones(len(items), np.int64)
    lengths = measured(items, alone)
    flat, starts = np.empty(int(lengths.sum()), np.uint8), np.cumsum(lengths) - lengths
    write(flat, starts, items, alone)
    owners = np.repeat(np.arange(len(sizes)), sizes)
    room = np.zeros(len(sizes), np.int64)
    np.add.at(room, owners, lengths)
    data[ranges(begin, room)] = flat


def _read_strings(data: Bytes, begin: Ids, ends: Ids, sizes: Ints, kind: pa.DataType) -> pa.Array:
    """Read each string behind its length; where it begins, only the one before tells."""
    at, owners = begin.copy(), np.repeat(np.arange(len(sizes)), sizes)
    first = np.cumsum(sizes) - sizes
    starts, lengths = np.zeros(len(owners), np.int64), np.zeros(len(owners), np.int64)
    for number in range(int(sizes.max(initial=0))):
        rows = np.flatnonzero(sizes > number)
        fits = np.ones(len(sizes), np.bool_)
        fits[rows] = at[rows] + 4 <= ends[rows]
        require(fits, _KIND, "a length for each item")
        place = first[rows] + number
        lengths[place] = seen(data, at[rows], "<u4")
        starts[place] = at[rows] + 4
        at[rows] = starts[place] + lengths[place]
    require(at == ends, _KIND, "items, and nothing else")
    return texts(data[ranges(starts, lengths)], lengths, kind)


def _tables(sizes: Ints) -> Any:
    """Log2 of the size of the smallest hash table with room for so many."""
    needed = np.maximum(np.ceil(np.log2(np.maximum(sizes, 1) / 0.75)), _LEAST)
    return np.minimum(needed, _MOST).astype(np.uint8)


def _refuse_type(kind: pa.DataType) -> None:
    if not (pa.types.is_string(kind) or kind == pa.int64()):
        raise SchemaError(
            "NO_APACHE_ITEMS",
            "Apache DataSketches writes items of other types in ways of their own",
            where="sketches, heavy hitters",
            got=f"items of type {type_name(kind)}",
            expected="string or bigint",
            fix="count the column as a string or a bigint",
        )
