"""The size of the tables of an Arrow IPC stream, without decompressing them.

Arrow allocates what a compressed buffer declares, so a few bytes can ask for any amount of memory.
The layout is that of Arrow's ``Message.fbs``: each buffer of a compressed batch begins with its size.
"""

from __future__ import annotations

import struct

import pyarrow as pa

_DICTIONARY, _BATCH = 2, 3
"""Types of messages that have buffers."""
_I64 = struct.Struct("<q")
_BUFFER = struct.Struct("<qq")
_AS_IT_IS = -1
"""In place of the size of a buffer that compression would not make smaller."""


def declared_size(stream: bytes | pa.Buffer) -> int:
    """Return the number of bytes that the buffers of a stream have when they are decompressed.

    Raises
    ------
    ValueError
        The stream is damaged.

    Examples
    --------
    >>> from streamops.kernel.codec import ipc_write
    >>> zeros = pa.table({"n": pa.array([0] * 100_000)})
    >>> stream = ipc_write(zeros, compression="zstd")
    >>> len(stream) < 1_000, declared_size(stream)
    (True, 800000)
    """
    total = 0
    try:
        # Arrow verifies the offsets in each message.
        for message in pa.ipc.MessageReader.open_stream(pa.py_buffer(stream)):
            total += _of_message(memoryview(message.metadata), memoryview(message.body or b""))
    except (pa.ArrowException, OSError, struct.error, IndexError) as error:
        raise ValueError(str(error)) from error
    return total


def _of_message(header: memoryview, body: memoryview) -> int:
    (root,) = struct.unpack_from("<I", header)
    type_at, batch_at = (_field(header, root, number) for number in (1, 2))
    if not type_at or header[type_at] not in (_DICTIONARY, _BATCH):
        return 0
    batch = _follow(header, batch_at)
    if header[type_at] == _DICTIONARY:
        batch = _follow(header, _field(header, batch, 1))
    buffers_at = _field(header, batch, 2)
    if not buffers_at:
        return 0
    vector = _follow(header, buffers_at)
    (count,) = struct.unpack_from("<I", header, vector)
    is_compressed = bool(_field(header, batch, 3))
    total = 0
    for number in range(count):
        start, size = _BUFFER.unpack_from(header, vector + 4 + number * _BUFFER.size)
        if is_compressed and size:
            (declared,) = _I64.unpack_from(body, start)
            size = size - _I64.size if declared == _AS_IT_IS else declared
        total += max(size, 0)
    return total


def _field(header: memoryview, table: int, number: int) -> int:
    """Where a field of a table is; 0 if it has none."""
    (distance,) = struct.unpack_from("<i", header, table)
    size, at = struct.unpack_from("<H", header, table - distance)[0], 4 + 2 * number
    if at >= size:
        return 0
    (offset,) = struct.unpack_from("<H", header, table - distance + at)
    return table + offset if offset else 0


def _follow(header: memoryview, at: int) -> int:
    (offset,) = struct.unpack_from("<I", header, at)
    return int(at + offset)
