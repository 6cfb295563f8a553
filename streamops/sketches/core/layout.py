"""Payloads as bytes: the fields of many of them, written and read at once.

All payloads stand one behind another in one buffer. A field is an array of positions in it.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamops.kernel.columns import combine_chunks
from streamops.kernel.errors import SketchFormatError
from streamops.kernel.groups import Ids, Ints, Mask

__all__ = ["Bytes", "corrupt", "pieces", "put", "require", "seen", "texts", "whole"]

Bytes = npt.NDArray[np.uint8]


def put(data: Bytes, at: Ids, values: npt.NDArray[Any], dtype: npt.DTypeLike) -> None:
    """Write numbers at these positions, aligned or not, of which no two overlap."""
    _words(data, np.dtype(dtype))[at] = values


def seen(data: Bytes, at: Ids, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """The numbers at these positions, aligned or not.

    Examples
    --------
    >>> seen(np.array([0, 1, 2, 0, 0], np.uint8), np.array([1, 0]), "<u4").tolist()
    [513, 131328]
    """
    return _words(data, np.dtype(dtype))[at]


def pieces(data: Bytes, sizes: Ints) -> pa.Array:
    """A buffer cut into so many bytes each."""
    # Cast, so that more bytes than an array can hold are an error.
    offsets = pa.array(np.append(0, np.cumsum(sizes))).cast(pa.int32())
    buffers = [None, offsets.buffers()[1], pa.py_buffer(data)]
    return pa.Array.from_buffers(pa.binary(), len(sizes), buffers)


def whole(payloads: pa.Array | pa.ChunkedArray) -> tuple[Bytes, Ids, Ints]:
    """The buffer that the payloads stand in, where each starts, and how long it is."""
    array = combine_chunks(payloads).cast(pa.large_binary())
    assert array.null_count == 0, "a payload is never null"
    if not len(array):
        return np.empty(0, np.uint8), np.empty(0, np.int64), np.empty(0, np.int64)
    offsets = np.frombuffer(array.buffers()[1], np.int64, len(array) + 1, 8 * array.offset)
    return np.frombuffer(array.buffers()[2] or b"", np.uint8), offsets[:-1], np.diff(offsets)


def texts(data: Bytes, lengths: Ints, kind: pa.DataType) -> pa.Array:
    """Strings or binary values, of so many bytes each.

    Raises
    ------
    ArrowInvalid
        They are not UTF-8.
    """
    values = pieces(data, lengths)
    if pa.types.is_binary(kind):
        return values
    values = pa.Array.from_buffers(kind, len(values), values.buffers())
    values.validate(full=True)
    return values


def require(fine: Mask, kind: str, expected: str) -> None:
    """Refuse payloads of which one is not fine.

    Raises
    ------
    SketchFormatError
        ``SKETCH_CORRUPT``.
    """
    if not fine.all():
        bad = np.flatnonzero(~fine)
        got = f"{len(bad):,} of {len(fine):,} payloads are otherwise, number {bad[0]} is the first"
        raise corrupt(kind, got, expected)


def corrupt(kind: str, got: str, expected: str) -> SketchFormatError:
    """The error of a payload that no sketch has written."""
    return SketchFormatError(
        "SKETCH_CORRUPT",
        "this sketch is damaged",
        where=f"sketches, {kind}",
        got=got,
        expected=expected,
        fix="make it again from its rows, or merge the others without it",
    )


def _words(data: Bytes, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """The value at every position."""
    return np.ndarray(max(len(data) - dtype.itemsize + 1, 0), dtype, data, strides=(1,))
