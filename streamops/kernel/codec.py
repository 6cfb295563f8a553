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
                           with split byte streams (see :mod:`streamops.kernel.byte_split`),
                           compressed by Zstandard; in version 1 not split, and compressed by
                           LZ4

Nothing is ever unpickled. The checksum detects accidental damage, not manipulation: anyone with
write access to a checkpoint can write any state.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Mapping
from typing import Any, Literal, NoReturn

import pyarrow as pa

from streamops.kernel.byte_split import join_bytes, split_bytes
from streamops.kernel.contract import StateFormat
from streamops.kernel.errors import StateFormatError

__all__ = ["decode", "encode", "fingerprint", "ipc_read", "ipc_write"]

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
