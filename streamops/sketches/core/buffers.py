"""Binary columns as flat buffers: fields and items of many payloads, read and written at once.

All payloads are adjacent in one buffer. A field is an array of positions in it. Items of numeric
types have their own width. Strings and binary values are preceded by all their lengths, as uint32.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamops.kernel.columns import combine_chunks
from streamops.kernel.errors import SketchFormatError
from streamops.kernel.groups import Groups, Ids, Ints, Mask
from streamops.sketches.core.sorting import ranges

__all__ = [
    "Bytes",
    "binary_of",
    "bytes_of",
    "corrupt",
    "cut",
    "item_sizes",
    "items_fit",
    "lengths_of",
    "make_texts",
    "put_numbers",
    "read_items",
    "require",
    "split_payloads",
    "take_numbers",
    "write_items",
]

Bytes = npt.NDArray[np.uint8]


def binary_of(ends: Ints, data: Bytes) -> pa.Array:
    """Binary values: where each ends, the first of them at 0; and their bytes.

    Examples
    --------
    >>> binary_of(np.array([0, 1, 1, 3]), np.array([97, 98, 99], np.uint8)).to_pylist()
    [b'a', b'', b'bc']
    """
    offsets = pa.array(ends).cast(pa.int32())  # a cast, so that too many bytes are an error
    buffers = [None, offsets.buffers()[1], pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(ends) - 1, buffers)


def bytes_of(array: pa.Array) -> tuple[Ints, Bytes]:
    """The same of an array: its values may be null, its bytes then have holes.

    Examples
    --------
    >>> ends, data = bytes_of(pa.array([b"a", b"", b"bc"])[1:])
    >>> ends.tolist(), data.tobytes()
    ([0, 0, 2], b'bc')
    """
    if not len(array):
        return np.zeros(1, np.int64), np.empty(0, np.uint8)
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, np.int32, len(array) + 1, 4 * array.offset).astype(np.int64)
    return ends - ends[0], np.frombuffer(data or b"", np.uint8)[ends[0] : ends[-1]]


def lengths_of(array: pa.Array) -> Ints:
    """Bytes per value."""
    return np.diff(bytes_of(array)[0])


def put_numbers(data: Bytes, at: Ids, values: npt.NDArray[Any], dtype: npt.DTypeLike) -> None:
    """Write numbers at these positions, aligned or not, of which no two overlap."""
    _at_every_byte(data, np.dtype(dtype))[at] = values


def take_numbers(data: Bytes, at: Ids, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """The numbers at these positions, aligned or not.

    Examples
    --------
    >>> take_numbers(np.array([0, 1, 2, 0, 0], np.uint8), np.array([1, 0]), "<u4").tolist()
    [513, 131328]
    """
    return _at_every_byte(data, np.dtype(dtype))[at]


def cut(data: Bytes, sizes: Ints) -> pa.Array:
    """A buffer cut into so many bytes each."""
    return binary_of(np.append(0, np.cumsum(sizes)), data)


def split_payloads(payloads: pa.Array | pa.ChunkedArray) -> tuple[Bytes, Ids, Ints]:
    """The buffer of the payloads, where each starts, and how long it is."""
    array = combine_chunks(payloads).cast(pa.binary())
    assert array.null_count == 0, "a payload is never null"
    ends, data = bytes_of(array)
    return data, ends[:-1], np.diff(ends)


def make_texts(data: Bytes, lengths: Ints, dtype: pa.DataType) -> pa.Array:
    """Strings or binary values, of so many bytes each.

    Raises
    ------
    ArrowInvalid
        They are not UTF-8.
    """
    values = cut(data, lengths)
    if pa.types.is_binary(dtype):
        return values
    values = pa.Array.from_buffers(dtype, len(values), values.buffers())
    values.validate(full=True)
    return values


def require(fine: Mask, sketch: str, expected: str) -> None:
    """Refuse payloads of which one is not fine.

    Raises
    ------
    SketchFormatError
        ``SKETCH_CORRUPT``.
    """
    if not fine.all():
        bad = np.flatnonzero(~fine)
        got = f"{len(bad):,} of {len(fine):,} payloads are otherwise, number {bad[0]} is the first"
        raise corrupt(sketch, got, expected)


def corrupt(sketch: str, got: str, expected: str) -> SketchFormatError:
    """The error of a payload that no sketch has written."""
    return SketchFormatError(
        "SKETCH_CORRUPT",
        "this sketch is damaged",
        where=f"sketches, {sketch}",
        got=got,
        expected=expected,
        fix="make it again from its rows, or merge the others without it",
    )


def _at_every_byte(data: Bytes, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """The value at every position."""
    return np.ndarray(max(len(data) - dtype.itemsize + 1, 0), dtype, data, strides=(1,))


_LENGTH = 4


def item_sizes(items: pa.Array, sizes: Ints) -> Ints:
    """How many bytes the items of each payload take, so many items each."""
    if not _has_lengths(items.type):
        return sizes * _dtype(items.type).itemsize
    return _LENGTH * sizes + _sums(_lengths(items), sizes)


def write_items(data: Bytes, at: Ids, items: pa.Array, sizes: Ints) -> None:
    """Write the items of each payload, from its position on."""
    if not _has_lengths(items.type):
        dtype = _dtype(items.type)
        put_numbers(data, ranges(at, sizes, dtype.itemsize), _numbers(items, dtype), dtype)
        return
    lengths = _lengths(items)
    put_numbers(data, ranges(at, sizes, _LENGTH), lengths, "<u4")
    characters = ranges(at + _LENGTH * sizes, _sums(lengths, sizes))
    data[characters] = _characters(items, int(lengths.sum()))


def items_fit(data: Bytes, at: Ids, room: Ints, sizes: Ints, dtype: pa.DataType) -> Mask:
    """Where so many items take exactly the room that there is."""
    if not _has_lengths(dtype):
        same: Mask = room == sizes * _dtype(dtype).itemsize
        return same
    enough = room >= _LENGTH * sizes
    known = np.where(enough, sizes, 0)
    lengths = take_numbers(data, ranges(at, known, _LENGTH), "<u4").astype(np.int64)
    result: Mask = enough & (room == _LENGTH * sizes + _sums(lengths, known))
    return result


def read_items(data: Bytes, at: Ids, sizes: Ints, dtype: pa.DataType) -> pa.Array:
    """The items again; they fit.

    Raises
    ------
    ArrowInvalid
        They are no values of the type.
    """
    if _has_lengths(dtype):
        lengths = take_numbers(data, ranges(at, sizes, _LENGTH), "<u4").astype(np.int64)
        characters = ranges(at + _LENGTH * sizes, _sums(lengths, sizes))
        return make_texts(data[characters], lengths, dtype)
    width_type = _dtype(dtype)
    numbers = take_numbers(data, ranges(at, sizes, width_type.itemsize), width_type)
    if pa.types.is_boolean(dtype):
        if numbers.max(initial=0) > 1:
            msg = "a boolean is 0 or 1"
            raise pa.ArrowInvalid(msg)
        return pa.array(numbers.astype(np.bool_))
    items = pa.Array.from_buffers(dtype, len(numbers), [None, pa.py_buffer(numbers.tobytes())])
    items.validate(full=True)
    return items


def _has_lengths(dtype: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(dtype)
        or pa.types.is_large_string(dtype)
        or pa.types.is_binary(dtype)
        or pa.types.is_large_binary(dtype)
    )


def _dtype(dtype: pa.DataType) -> np.dtype[Any]:
    if pa.types.is_decimal(dtype):
        return np.dtype("V16")
    if pa.types.is_boolean(dtype):
        return np.dtype("u1")
    letter = "f" if pa.types.is_floating(dtype) else "i"
    return np.dtype(f"<{letter}{dtype.bit_width // 8}")


def _numbers(items: pa.Array, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    if pa.types.is_boolean(items.type):
        items = items.cast(pa.uint8())
    # From the buffer: NumPy has no decimals.
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
