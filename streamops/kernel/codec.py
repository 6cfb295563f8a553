"""Encode the state of a shard as one frame of bytes, and verify a frame before it is read.

Layout, little-endian (normative description: ``docs/state-formats.md``)::

    magic        4 bytes   b"SOPS"
    frame        uint16    version of this layout: 2
    version      uint16    version of the operator's state
    shards       uint32    number of shards
    kind_size    uint32    bytes of kind
    ident_size   uint32    bytes of identity
    body_size    uint64    bytes of body
    checksum     uint32    CRC-32 of everything but these four bytes
    kind         UTF-8     the operator, such as "windows.fixed"
    identity     JSON      the parameters that the state depends on
    body                   per table: uint16 name size, name, uint64 size, Arrow IPC stream,
                           with split byte streams (see :func:`split_bytes`),
                           compressed by Zstandard; in version 1 not split, and compressed by
                           LZ4

Nothing is ever unpickled. The checksum detects accidental damage, not manipulation: anyone with
write access to a checkpoint can write any state.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Literal, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamops.kernel.columns import combine_chunks
from streamops.kernel.contract import StateFormat
from streamops.kernel.errors import StateFormatError

__all__ = [
    "decode",
    "encode",
    "fingerprint",
    "ipc_read",
    "ipc_write",
    "join_bytes",
    "split_bytes",
]

MAGIC = b"SOPS"
FRAME = 2
_UNSPLIT = 1
"""The version without split byte streams."""
_HEADER = struct.Struct("<4sHHIIIQ")
_CHECKSUM = struct.Struct("<I")
_NAME = struct.Struct("<H")
_SIZE = struct.Struct("<Q")
_START = _HEADER.size + _CHECKSUM.size
_RESTART = "start from a new checkpoint, or use the code that wrote this one"

Bytes = npt.NDArray[np.uint8]


def encode(
    layout: StateFormat, identity: Mapping[str, Any], shards: int, tables: Mapping[str, pa.Table]
) -> bytes:
    """Return the frame with the tables of a shard.

    Examples
    --------
    >>> layout = StateFormat("doc.example", 1)
    >>> blob = encode(layout, {"size": 10}, 4, {"panes": pa.table({"pane": [1, 2]})})
    >>> decode(blob, layout, {"size": 10}, 4, where="doc")["panes"].column("pane").to_pylist()
    [1, 2]
    """
    kind, ident = layout.kind.encode(), _to_json(identity)
    parts = []
    for name, table in tables.items():
        stream = ipc_write(split_bytes(table), compression="zstd")
        parts += [_NAME.pack(len(name.encode())), name.encode(), _SIZE.pack(len(stream)), stream]
    body = b"".join(parts)
    header = _HEADER.pack(MAGIC, FRAME, layout.version, shards, len(kind), len(ident), len(body))
    rest = b"".join((kind, ident, body))
    return b"".join((header, _CHECKSUM.pack(zlib.crc32(rest, zlib.crc32(header))), rest))


def fingerprint(layout: StateFormat, identity: Mapping[str, Any], shards: int) -> int:
    """Return a CRC-32 that differs if :func:`decode` would refuse the frames of the other.

    Examples
    --------
    >>> layout = StateFormat("doc.example", 1)
    >>> fingerprint(layout, {"size": 10}, 4) == fingerprint(layout, {"size": 11}, 4)
    False
    """
    header = _HEADER.pack(MAGIC, FRAME, layout.version, shards, 0, 0, 0)
    return zlib.crc32(b"".join((header, layout.kind.encode(), b"\0", _to_json(identity))))


def _to_json(identity: Mapping[str, Any]) -> bytes:
    return json.dumps(identity, sort_keys=True, separators=(",", ":")).encode()


def decode(
    blob: bytes, layout: StateFormat, identity: Mapping[str, Any], shards: int, *, where: str
) -> dict[str, pa.Table]:
    """Return the tables of a frame, if the same operator with the same parameters wrote it.

    Raises
    ------
    StateFormatError
        ``STATE_FOREIGN``, ``STATE_CORRUPT``, ``STATE_VERSION``, ``STATE_KIND``,
        ``STATE_SHARDS`` or ``STATE_PARAMETERS``: with what differs.
    """
    rest, (frame, version, spread, kind_size, ident_size) = _verify(bytes(blob), where)
    if frame not in (_UNSPLIT, FRAME):  # the rest of the layout is unknown
        _refuse_version(f"frame {frame}", f"frame {_UNSPLIT} or {FRAME}", where)
    kind = rest[:kind_size].decode()
    if kind != layout.kind:
        _refuse(
            "STATE_KIND",
            "this checkpoint belongs to another operator",
            where=where,
            got=kind,
            expected=layout.kind,
            fix=_RESTART,
        )
    if version != layout.version:
        got, expected = (f"frame {frame}, {kind} version {v}" for v in (version, layout.version))
        _refuse_version(got, expected, where)
    if spread != shards:
        _refuse(
            "STATE_SHARDS",
            "this checkpoint has another number of shards",
            where=where,
            got=f"shards={shards}",
            expected=f"shards={spread}, as in the checkpoint",
            fix=f"pass shards={spread}, or start from a new checkpoint",
        )
    ident = json.loads(rest[kind_size : kind_size + ident_size])
    wanted = json.loads(json.dumps(identity))
    changed = sorted(k for k in ident.keys() | wanted.keys() if ident.get(k) != wanted.get(k))
    if changed:
        _refuse(
            "STATE_PARAMETERS",
            f"this checkpoint was written with other parameters: {', '.join(changed)}",
            where=where,
            got=", ".join(f"{k}={wanted.get(k)!r}" for k in changed),
            expected=", ".join(f"{k}={ident.get(k)!r}" for k in changed) + ", as written",
            fix="pass the parameters of the checkpoint, or start from a new checkpoint",
        )
    tables = _tables(rest[kind_size + ident_size :])
    return {name: table if frame == _UNSPLIT else join_bytes(table) for name, table in tables}


def _verify(blob: bytes, where: str) -> tuple[bytes, tuple[int, int, int, int, int]]:
    if len(blob) < _START or blob[:4] != MAGIC:
        _refuse(
            "STATE_FOREIGN",
            "these bytes are not a state of streamops",
            where=where,
            got=f"{len(blob)} bytes that begin with {blob[:4]!r}",
            expected=f"a frame that begins with {MAGIC!r}",
            fix="check that the checkpoint belongs to this query",
        )
    _, frame, version, shards, kind_size, ident_size, body_size = _HEADER.unpack_from(blob)
    (checksum,) = _CHECKSUM.unpack_from(blob, _HEADER.size)
    rest = blob[_START:]
    actual = zlib.crc32(rest, zlib.crc32(blob[: _HEADER.size]))
    if kind_size + ident_size + body_size != len(rest) or checksum != actual:
        _refuse(
            "STATE_CORRUPT",
            "this state is damaged",
            where=where,
            got=f"{len(rest)} bytes with checksum {actual:08x}",
            expected=f"{kind_size + ident_size + body_size} bytes with checksum {checksum:08x}",
            fix="restore the checkpoint from a copy, or start from a new one and replay",
        )
    return rest, (frame, version, shards, kind_size, ident_size)


def _tables(body: bytes) -> list[tuple[str, pa.Table]]:
    found, position = [], 0
    while position < len(body):
        (size,) = _NAME.unpack_from(body, position)
        position += _NAME.size
        name = body[position : position + size].decode()
        position += size
        (size,) = _SIZE.unpack_from(body, position)
        position += _SIZE.size
        found.append((name, ipc_read(body[position : position + size])))
        position += size
    return found


def _refuse_version(got: str, expected: str, where: str) -> NoReturn:
    _refuse(
        "STATE_VERSION",
        "this checkpoint was written in another state format",
        where=where,
        got=got,
        expected=expected,
        fix="use a release of streamops that reads it (docs/state-formats.md), "
        "or start from a new checkpoint",
    )


def _refuse(code: str, what: str, **facts: Any) -> NoReturn:
    raise StateFormatError(code, what, **facts)


def ipc_write(table: pa.Table, *, compression: Literal["zstd"] | None = None) -> bytes:
    """Return a table as an Arrow IPC stream."""
    sink = pa.BufferOutputStream()
    # No threads: the tables are small, and Spark already runs a task on every core.
    options = pa.ipc.IpcWriteOptions(compression=compression, use_threads=False)
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def ipc_read(stream: bytes | pa.Buffer) -> pa.Table:
    """Return the table of an Arrow IPC stream."""
    options = pa.ipc.IpcReadOptions(use_threads=False)
    with pa.ipc.open_stream(stream, options=options) as reader:
        return reader.read_all()


def split_bytes(table: pa.Table) -> pa.Table:
    """Split the bytes of numeric columns: the lowest bytes of all values first.

    The high bytes of keys, instants and counts are mostly equal and compress well if they are
    adjacent. That halves the state of a join, and makes writing and reading faster. The schema does
    not change.

    Examples
    --------
    >>> moved = split_bytes(pa.table({"n": pa.array([1, 2, 3], pa.int16())}))
    >>> moved.column("n").to_pylist(), join_bytes(moved).column("n").to_pylist()
    ([513, 3, 0], [1, 2, 3])
    """
    return _convert_columns(table, _split)


def join_bytes(table: pa.Table) -> pa.Table:
    """Invert :func:`split_bytes`."""
    return _convert_columns(table, _join)


def _split(values: Bytes, width: int) -> Bytes:
    return np.concatenate([values[at::width] for at in range(width)])


def _join(streams: Bytes, width: int) -> Bytes:
    values = np.empty_like(streams)
    for at, stream in enumerate(streams.reshape(width, -1)):
        values[at::width] = stream
    return values


def _convert_columns(table: pa.Table, convert: Callable[[Bytes, int], Bytes]) -> pa.Table:
    columns = []
    for array in map(combine_chunks, table.columns):
        dtype, start, rows = array.type, array.offset, len(array)
        if rows and _is_wide(dtype):
            width = dtype.bit_width // 8
            validity, values = array.buffers()
            data = np.frombuffer(values, np.uint8, rows * width, start * width)
            if start:  # a slice: its validity needs an offset, too
                present = array.is_valid()
                validity = present.buffers()[1] if array.null_count else None
            buffers = [validity, pa.py_buffer(convert(data, width))]
            array = pa.Array.from_buffers(dtype, rows, buffers, array.null_count)
        columns.append(array)
    return pa.table(columns, schema=table.schema)


def _is_wide(dtype: pa.DataType) -> bool:
    """Whether values of a type are contiguous and have several bytes."""
    if pa.types.is_dictionary(dtype) or dtype.num_fields or dtype.num_buffers != 2:
        return False
    return bool(dtype.bit_width % 8 == 0 and dtype.bit_width > 8)
