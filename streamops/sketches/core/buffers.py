"""Binary columns as one flat buffer, and where each value ends in it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamops.kernel.groups import Ints

__all__ = ["binary_of", "bytes_of", "lengths_of"]

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
