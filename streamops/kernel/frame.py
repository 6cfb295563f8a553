"""The frame of stored states and sketches: a header with format, parameters and a checksum.

Layout, little-endian (normative description: ``docs/state-formats.md``)::

    magic        4 bytes   b"SOPS"
    frame        uint16    version of this layout: 1
    version      uint16    version of the format of the body
    shards       uint32    number of shards; 0 for a sketch
    kind_size    uint32    bytes of kind
    params_size  uint32    bytes of parameters
    body_size    uint64    bytes of body
    checksum     uint32    CRC-32 of everything but these four bytes
    kind         UTF-8     an operator, such as "windows.grid", or a sketch, such as "hll"
    parameters   JSON      keys sorted, no spaces
    body

The checksum detects accidental damage, not manipulation: anyone with write access to a checkpoint
or a table can write any state and any sketch.
"""

from __future__ import annotations

import json
import struct
import zlib
from dataclasses import dataclass

from streamops.kernel.core import Identity, StateFormat
from streamops.kernel.errors import Condition, StreamopsError

MAGIC = b"SOPS"
FRAME = 1
_HEADER = struct.Struct("<4sHHIIIQ")
_CHECKSUM = struct.Struct("<I")
START = _HEADER.size + _CHECKSUM.size
"""Bytes before the kind."""


@dataclass(frozen=True, slots=True)
class Header:
    """The format and the parameters of a frame. Frames with equal headers are interchangeable."""

    format: StateFormat
    parameters: Identity
    shards: int = 0

    @property
    def names(self) -> bytes:
        """The bytes of kind and parameters, which precede the body.

        Examples
        --------
        >>> Header(StateFormat("hll", 1), {"p": 12}).names
        b'hll{"p":12}'
        """
        return self._type + self._json

    def start(self, size: int) -> bytes:
        """Return the first bytes of a frame with a body of this size, without the checksum."""
        type_size, params = len(self._type), len(self._json)
        version = self.format.version
        return _HEADER.pack(MAGIC, FRAME, version, self.shards, type_size, params, size)

    def checksum(self, size: int) -> int:
        """Return the checksum of everything before a body of this size."""
        return zlib.crc32(self.names, zlib.crc32(self.start(size)))

    def frame(self, body: bytes) -> bytes:
        """Return the frame with this body."""
        checksum = zlib.crc32(body, self.checksum(len(body)))
        return b"".join((self.start(len(body)), _CHECKSUM.pack(checksum), self.names, body))

    @property
    def _type(self) -> bytes:
        return self.format.kind.encode()

    @property
    def _json(self) -> bytes:
        return json.dumps(dict(self.parameters), sort_keys=True, separators=(",", ":")).encode()


@dataclass(frozen=True, slots=True)
class Frame:
    """The parts of a verified frame. Kind and parameters are not parsed."""

    layout: int
    version: int
    shards: int
    type_name: bytes
    parameters: bytes
    body: bytes


def checksum_of(frame: bytes) -> int:
    """The checksum that a frame has, without verifying it."""
    return int(_CHECKSUM.unpack_from(frame, _HEADER.size)[0])


@dataclass(frozen=True, slots=True)
class Content:
    """The expected content of a frame: the conditions if it is another, and if it is damaged."""

    is_foreign: Condition[StreamopsError]
    is_corrupt: Condition[StreamopsError]

    def foreign(self, blob: bytes) -> StreamopsError:
        """Return the error for bytes that are not a frame."""
        got = f"{len(blob)} bytes that begin with {blob[:4]!r}"
        return self.is_foreign.error(expected=f"a frame that begins with {MAGIC!r}", got=got)

    def corrupt(self, got: str, expected: str) -> StreamopsError:
        """Return the error for a damaged frame."""
        return self.is_corrupt.error(expected=expected, got=got)


def read_frame(blob: bytes, content: Content) -> Frame:
    """Verify length and checksum of a frame, and split it into its parts.

    Raises
    ------
    StreamopsError
        ``content.is_foreign`` or ``content.is_corrupt``.
    """
    if len(blob) < START or blob[:4] != MAGIC:
        raise content.foreign(blob)
    _, layout, version, shards, type_size, params, size = _HEADER.unpack_from(blob)
    (checksum,) = _CHECKSUM.unpack_from(blob, _HEADER.size)
    rest = blob[START:]
    actual = zlib.crc32(rest, zlib.crc32(blob[: _HEADER.size]))
    if type_size + params + size != len(rest) or checksum != actual:
        raise content.corrupt(
            f"{len(rest)} bytes with checksum {actual:08x}",
            f"{type_size + params + size} bytes with checksum {checksum:08x}",
        )
    end = type_size + params
    return Frame(layout, version, shards, rest[:type_size], rest[type_size:end], rest[end:])
