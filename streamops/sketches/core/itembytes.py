"""Items as bytes, those of one payload behind another; all payloads at once.

Numbers have their own width. Strings and binary values have all their lengths first, as uint32.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamops.kernel.groups import Groups, Ids, Ints, Mask
from streamops.sketches.core.layout import Bytes, put, seen, texts
from streamops.sketches.core.sorting import ranges

__all__ = ["fits", "measured", "read", "write"]

_LENGTH = 4


def measured(items: pa.Array, sizes: Ints) -> Ints:
    """How many bytes the items of each payload take, so many items each."""
    if not _has_lengths(items.type):
        return sizes * _dtype(items.type).itemsize
    return _LENGTH * sizes + _sums(_lengths(items), sizes)


def write(data: Bytes, at: Ids, items: pa.Array, sizes: Ints) -> None:
    """Write the items of each payload, from its position on."""
    if not _has_lengths(items.type):
        dtype = _dtype(items.type)
        put(data, ranges(at, sizes, dtype.itemsize), _numbers(items, dtype), dtype)
        return
    lengths = _lengths(items)
    put(data, ranges(at, sizes, _LENGTH), lengths, "<u4")
    characters = ranges(at + _LENGTH * sizes, _sums(lengths, sizes))
    data[characters] = _characters(items, int(lengths.sum()))


def fits(data: Bytes, at: Ids, room: Ints, sizes: Ints, kind: pa.DataType) -> Mask:
    """Where so many items take exactly the room that there is."""
    if not _has_lengths(kind):
        same: Mask = room == sizes * _dtype(kind).itemsize
        return same
    enough = room >= _LENGTH * sizes
    asked = np.where(enough, sizes, 0)
    lengths = seen(data, ranges(at, asked, _LENGTH), "<u4").astype(np.int64)
    result: Mask = enough & (room == _LENGTH * sizes + _sums(lengths, asked))
    return result


def read(data: Bytes, at: Ids, sizes: Ints, kind: pa.DataType) -> pa.Array:
    """The items again; they fit.

    Raises
    ------
    ArrowInvalid
        They are no values of the type.
    """
    if _has_lengths(kind):
        lengths = seen(data, ranges(at, sizes, _LENGTH), "<u4").astype(np.int64)
        characters = ranges(at + _LENGTH * sizes, _sums(lengths, sizes))
        return texts(data[characters], lengths, kind)
    dtype = _dtype(kind)
    numbers = seen(data, ranges(at, sizes, dtype.itemsize), dtype)
    if pa.types.is_boolean(kind):
        if numbers.max(initial=0) > 1:
            msg = "a boolean is 0 or 1"
            raise pa.ArrowInvalid(msg)
        return pa.array(numbers.astype(np.bool_))
    items = pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers.tobytes())])
    items.validate(full=True)
    return items


def _has_lengths(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    )


def _dtype(kind: pa.DataType) -> np.dtype[Any]:
    if pa.types.is_decimal(kind):
        return np.dtype("V16")
    if pa.types.is_boolean(kind):
        return np.dtype("u1")
    letter = "f" if pa.types.is_floating(kind) else "i"
    return np.dtype(f"<{letter}{kind.bit_width // 8}")


def _numbers(items: pa.Array, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    if pa.types.is_boolean(items.type):
        items = items.cast(pa.uint8())
    # Of the buffer itself: a decimal is no number of NumPy's.
    data = items.buffers()[1] or b""
    return np.frombuffer(data, dtype, len(items), items.offset * dtype.itemsize)


def _lengths(items: pa.Array) -> Ints:
    return np.asarray(pc.binary_length(items)).astype(np.int64)


def _characters(items: pa.Array, count: int) -> Bytes:
    if not count:
        return np.empty(0, np.uint8)
    _, offsets, data = items.cast(pa.large_binary()).buffers()
    (start,) = np.frombuffer(offsets, np.int64, 1, 8 * items.offset)
    return np.frombuffer(data, np.uint8, count, int(start))


def _sums(lengths: Ints, sizes: Ints) -> Ints:
    """The lengths of each payload's items, added up."""
    owners = np.repeat(np.arange(len(sizes)), sizes)
    return Groups(owners, len(sizes)).sum_ints(lengths)
