"""Columns of numbers byte by byte, as they compress best: first the lowest bytes of all values.

The high bytes of keys, instants and counts are mostly the same: next to one another they take no
room. Half of the state of a join goes away by it, and it is written and read sooner.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamops.kernel.columns import combine_chunks

__all__ = ["join_bytes", "split_bytes"]

Bytes = npt.NDArray[np.uint8]


def split_bytes(table: pa.Table) -> pa.Table:
    """The table with the bytes of numbers apart, under the same schema: only to be written.

    Examples
    --------
    >>> moved = split_bytes(pa.table({"n": pa.array([1, 2, 3], pa.int16())}))
    >>> moved.column("n").to_pylist(), join_bytes(moved).column("n").to_pylist()
    ([513, 3, 0], [1, 2, 3])
    """
    return _moved(table, _split)


def join_bytes(table: pa.Table) -> pa.Table:
    """The table again."""
    return _moved(table, _joined)


def _split(values: Bytes, width: int) -> Bytes:
    return np.concatenate([values[at::width] for at in range(width)])


def _joined(planes: Bytes, width: int) -> Bytes:
    values = np.empty_like(planes)
    for at, plane in enumerate(planes.reshape(width, -1)):
        values[at::width] = plane
    return values


def _moved(table: pa.Table, move: Callable[[Bytes, int], Bytes]) -> pa.Table:
    columns = []
    for array in map(combine_chunks, table.columns):
        kind, start, rows = array.type, array.offset, len(array)
        if rows and _is_wide(kind):
            width = kind.bit_width // 8
            validity, values = array.buffers()
            data = np.frombuffer(values, np.uint8, rows * width, start * width)
            if start:  # of a slice: the validity is its own, too
                present = array.is_valid()
                validity = present.buffers()[1] if array.null_count else None
            buffers = [validity, pa.py_buffer(move(data, width))]
            array = pa.Array.from_buffers(kind, rows, buffers, array.null_count)
        columns.append(array)
    return pa.table(columns, schema=table.schema)


def _is_wide(kind: pa.DataType) -> bool:
    """Whether values of a type stand one behind another, and have several bytes."""
    if pa.types.is_dictionary(kind) or kind.num_fields or kind.num_buffers != 2:
        return False
    return bool(kind.bit_width % 8 == 0 and kind.bit_width > 8)
