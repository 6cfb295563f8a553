"""Flat buffers of groups: sorted rows, ranges of positions, and the bytes of binary columns.

Rows of sketches are either grouped, or consist of the sorted rows of several states. NumPy sorts
numbers of 16 bits by radix, and merges runs that are sorted already: both take a fraction of the time
of its sort for arbitrary numbers.

The payloads of a binary column are adjacent in one buffer, and are read and written at once: a field
of all of them is an array of positions. Items of numeric types have their own width. Strings and binary
values are preceded by all their lengths, as uint32.
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
from streamops.sketches import conditions

Bytes = npt.NDArray[np.uint8]

_BITS = 63
_RUN = 32  # average rows of a run from which on runs are merged
_LENGTH = 4
_LARGEST = np.iinfo(np.int32).max


def argsort_groups(ids: Ids, count: int) -> Ids:
    """Positions by group, in their order within each.

    Examples
    --------
    >>> argsort_groups(np.array([1, 0, 1, 0]), 2).tolist()
    [1, 3, 0, 2]
    """
    order = np.argsort((ids & 0xFFFF).astype(np.uint16), kind="stable")
    for bit in range(16, count.bit_length(), 16):
        digit = (ids[order] >> bit).astype(np.uint16)
        order = order[np.argsort(digit, kind="stable")]
    return order


def argsort_rows(ids: Ids, values: Ints, count: int) -> Ids:
    """Positions by group, from 0 to ``count``, then by value, then by position.

    Examples
    --------
    >>> argsort_rows(np.array([1, 0, 1]), np.array([7, 9, -7]), 2).tolist()
    [1, 2, 0]
    """
    if not len(ids):
        return np.empty(0, np.int64)
    # One key: the group, and as many leading bits of the value as there is room for.
    room = _BITS - max(count - 1, 0).bit_length()
    least = int(values.min())
    width = (int(values.max()) - least).bit_length()
    shift = max(width - room, 0)
    above = (values.view(np.uint64) - np.uint64(least % (1 << 64))) >> np.uint64(shift)
    keys = (ids << min(width, room)) | above.view(np.int64)
    if np.count_nonzero(ids[1:] < ids[:-1]) * _RUN > len(ids):
        order = argsort_groups(ids, count)
        order = order[np.argsort(keys[order], kind="stable")]
    else:
        order = np.argsort(keys, kind="stable")
    if shift:
        keys, sorted_ = keys[order], values[order]
        if np.any((keys[1:] == keys[:-1]) & (sorted_[1:] < sorted_[:-1])):
            # Values of a group that differ in the other bits alone, which hashes hardly ever do.
            return np.lexsort((values, ids))
    return order


def run_starts(*columns: npt.NDArray[Any]) -> Ids:
    """Positions, in sorted columns, of the rows that differ from the one before.

    Examples
    --------
    >>> run_starts(np.array([0, 0, 1]), np.array([7, 7, 7])).tolist()
    [0, 2]
    """
    new = np.ones(len(columns[0]), np.bool_)
    new[1:] = False
    for column in columns:
        new[1:] |= column[1:] != column[:-1]
    return np.flatnonzero(new)


def ranges(starts: Ids, sizes: Ints, step: int = 1) -> Ids:
    """Positions from each start on: as many as its size, ``step`` apart.

    Examples
    --------
    >>> ranges(np.array([10, 50]), np.array([2, 3]), 8).tolist()
    [10, 18, 50, 58, 66]
    """
    offsets = starts - step * (np.cumsum(sizes) - sizes)
    return np.repeat(offsets, sizes) + step * np.arange(int(sizes.sum()))


def make_binary(ends: Ints, data: npt.NDArray[Any], valid: Mask | None = None) -> pa.Array:
    """Binary values from the positions where each ends, the first of them 0, and their bytes.

    Examples
    --------
    >>> make_binary(np.array([0, 1, 1, 3]), np.array([97, 98, 99], np.uint8)).to_pylist()
    [b'a', b'', b'bc']
    """
    offsets = pa.array(ends).cast(pa.int32())  # a cast, so that too many bytes are an error
    bitmap = None if valid is None else pa.array(valid).buffers()[1]
    buffers = [bitmap, offsets.buffers()[1], pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(pa.binary(), len(ends) - 1, buffers)


def split_binary(array: pa.Array) -> tuple[Ints, Bytes]:
    """The positions where each value ends, and the bytes: unused ones where values are null.

    Examples
    --------
    >>> ends, data = split_binary(pa.array([b"a", b"", b"bc"])[1:])
    >>> ends.tolist(), data.tobytes()
    ([0, 0, 2], b'bc')
    """
    if not len(array):  # perhaps without buffers
        return np.zeros(1, np.int64), np.empty(0, np.uint8)
    _, offsets, data = array.buffers()
    ends = np.frombuffer(offsets, np.int32, len(array) + 1, 4 * array.offset).astype(np.int64)
    return ends - ends[0], np.frombuffer(data or b"", np.uint8)[ends[0] : ends[-1]]


def flat_bytes(array: pa.Array) -> Bytes:
    """The bytes of a binary array without nulls, one value after another."""
    return split_binary(array)[1]


def lengths_of(array: pa.Array) -> Ints:
    """Bytes per value."""
    return np.diff(split_binary(array)[0])


def drop_prefix(array: pa.Array, start: int) -> pa.Array:
    """The bytes of each value from a position on."""
    return pc.binary_slice(array, start, _LARGEST)  # without an end, Arrow miscounts some


def rows_to_binary(rows: npt.NDArray[Any], valid: Mask | None = None) -> pa.Array:
    """Each row of a matrix as bytes; its rows are the values that are valid, the others are null."""
    valid = np.ones(len(rows), np.bool_) if valid is None else valid
    width = rows.shape[1] * rows.itemsize
    return make_binary(np.append(0, np.cumsum(valid) * width), rows, valid)


def cut(data: Bytes, sizes: Ints) -> pa.Array:
    """A buffer as binary values of these sizes."""
    return make_binary(np.append(0, np.cumsum(sizes)), data)


def put_numbers(data: Bytes, at: Ids, values: npt.NDArray[Any], dtype: npt.DTypeLike) -> None:
    """Write numbers at these positions, aligned or not; they do not overlap."""
    _at_every_byte(data, np.dtype(dtype))[at] = values


def take_numbers(data: Bytes, at: Ids, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """The numbers at these positions, aligned or not.

    Examples
    --------
    >>> take_numbers(np.array([0, 1, 2, 0, 0], np.uint8), np.array([1, 0]), "<u4").tolist()
    [513, 131328]
    """
    return _at_every_byte(data, np.dtype(dtype))[at]


def _at_every_byte(data: Bytes, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """The value at every position."""
    return np.ndarray(max(len(data) - dtype.itemsize + 1, 0), dtype, data, strides=(1,))


def split_payloads(payloads: pa.Array | pa.ChunkedArray) -> tuple[Bytes, Ids, Ints]:
    """The buffer of the payloads, where each starts, and its length."""
    array = combine_chunks(payloads).cast(pa.binary())
    assert array.null_count == 0, "a payload is never null"
    ends, data = split_binary(array)
    return data, ends[:-1], np.diff(ends)


def refuse_payloads(wrong: Mask, reason: str, *, expected: str) -> None:
    """Raise ``SKETCH_CORRUPT`` if a payload is wrong."""
    if wrong.any():
        raise payload_error(wrong, reason, expected=expected)


def payload_error(wrong: Mask, reason: str, *, expected: str) -> SketchFormatError:
    """The error ``SKETCH_CORRUPT`` about these payloads."""
    return conditions.SKETCH_CORRUPT.error(
        reason=reason,
        expected=expected,
        got=f"{np.count_nonzero(wrong):,} of {len(wrong):,} payloads, "
        f"the first is number {int(np.argmax(wrong))}",
    )


def make_texts(data: Bytes, lengths: Ints, dtype: pa.DataType) -> pa.Array:
    """Strings or binary values of these lengths; ``ArrowInvalid`` if they are not UTF-8."""
    values = cut(data, lengths)
    if pa.types.is_binary(dtype):
        return values
    values = pa.Array.from_buffers(dtype, len(values), values.buffers())
    values.validate(full=True)
    return values


def item_sizes(items: pa.Array, sizes: Ints) -> Ints:
    """Bytes of the items of each payload, which has as many items as its size."""
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
    """Whether the items of each payload take exactly its room."""
    if not _has_lengths(dtype):
        same: Mask = room == sizes * _dtype(dtype).itemsize
        return same
    enough = room >= _LENGTH * sizes
    known = np.where(enough, sizes, 0)
    lengths = take_numbers(data, ranges(at, known, _LENGTH), "<u4").astype(np.int64)
    result: Mask = enough & (room == _LENGTH * sizes + _sums(lengths, known))
    return result


def read_items(data: Bytes, at: Ids, sizes: Ints, dtype: pa.DataType) -> pa.Array:
    """The items of payloads whose items fit; ``ArrowInvalid`` if they are no values of the type."""
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
    return dtype in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary())


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
    """Sum of the lengths of each payload's items."""
    owners = np.repeat(np.arange(len(sizes)), sizes)
    return Groups(owners, len(sizes)).sum_ints(lengths)
