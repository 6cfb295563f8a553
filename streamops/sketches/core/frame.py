"""The frame around a sketch that is stored: what it is, and whether it is whole.

Layout, little-endian (normative description: ``docs/state-formats.md``)::

    magic        4 bytes   b"SOSK"
    frame        uint16    version of this layout: 1
    version      uint16    version of the payload's format
    kind_size    uint16    bytes of kind
    params_size  uint16    bytes of parameters
    kind         UTF-8     the sketch, such as "hll"
    parameters   JSON      what sketches must have in common to be merged
    size         uint32    bytes of payload
    checksum     uint64    of the payload, seeded by the hash of everything before ``size``
    payload

Everything before ``size`` is the *header*: the same bytes in all sketches that may be merged. So a
column of sketches is read by comparing it with one header. The checksum stops accidents, not
attackers: whoever may write a table may write any sketch.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamops.kernel.columns import combine_chunks
from streamops.kernel.errors import SketchFormatError
from streamops.kernel.groups import Mask
from streamops.sketches.core.buffers import binary_of, bytes_of, lengths_of
from streamops.sketches.core.checksums import checksums, seed_of
from streamops.sketches.core.contract import Format, Parameter

__all__ = ["FRAME", "MAGIC", "Header", "header_of", "opened", "sealed", "sound"]

MAGIC = b"SOSK"
FRAME = 1
_START = struct.Struct("<4sHHHH")
_TAIL = np.dtype([("size", "<u4"), ("checksum", "<u8")])


@dataclass(frozen=True, slots=True)
class Header:
    """What sketches have in common that may be merged."""

    format: Format
    parameters: Mapping[str, Parameter]

    def to_bytes(self) -> bytes:
        r"""As it stands at the beginning of each of them.

        Examples
        --------
        >>> Header(Format("hll", 1), {"p": 12}).to_bytes()
        b'SOSK\x01\x00\x01\x00\x03\x00\x08\x00hll{"p":12}'
        """
        kind = self.format.kind.encode()
        said = json.dumps(dict(self.parameters), sort_keys=True, separators=(",", ":")).encode()
        start = _START.pack(MAGIC, FRAME, self.format.version, len(kind), len(said))
        return b"".join((start, kind, said))


def sealed(format: Format, parameters: Mapping[str, Parameter], payloads: pa.Array) -> pa.Array:
    """The payloads, each in a frame.

    Examples
    --------
    >>> (blob,) = sealed(Format("hll", 1), {"p": 12}, pa.array([b"abc"])).to_pylist()
    >>> blob[-3:], len(blob) - len(Header(Format("hll", 1), {"p": 12}).to_bytes())
    (b'abc', 15)
    """
    assert payloads.null_count == 0, "a payload is never null"
    header = Header(format, parameters).to_bytes()
    tails = np.empty(len(payloads), _TAIL)
    tails["size"] = lengths_of(payloads)
    tails["checksum"] = checksums(payloads, seed_of(header))
    width = pa.binary(_TAIL.itemsize)
    between = pa.Array.from_buffers(width, len(tails), [None, pa.py_buffer(tails.tobytes())])
    start, nothing = (pa.scalar(each, pa.binary()) for each in (header, b""))
    return pc.binary_join_element_wise(start, between.cast(pa.binary()), payloads, nothing)


def opened(
    blobs: pa.Array | pa.ChunkedArray,
    format: Format,
    parameters: Mapping[str, Parameter],
    *,
    where: str,
) -> pa.Array:
    """The payloads of frames with these parameters; null where there is no sketch.

    Raises
    ------
    SketchFormatError
        ``SKETCH_FOREIGN``, ``SKETCH_CORRUPT``, ``SKETCH_VERSION``, ``SKETCH_KIND`` or
        ``SKETCH_PARAMETERS``: what is wrong with the first of them that is not sound.

    Examples
    --------
    >>> known = Format("hll", 1), {"p": 12}
    >>> opened(sealed(*known, pa.array([b"abc"])), *known, where="doc").to_pylist()
    [b'abc']
    """
    blobs = combine_chunks(blobs).cast(pa.binary())
    wanted = Header(format, parameters)
    wrong = np.flatnonzero(~sound(blobs, format, parameters))
    if len(wrong):
        place = f"{where}, sketch {wrong[0]}"
        _refuse_other(header_of(blobs[int(wrong[0])].as_py(), where=place), wanted, place)
    return _payloads(blobs, len(wanted.to_bytes()) + _TAIL.itemsize)


def sound(blobs: pa.Array, format: Format, parameters: Mapping[str, Parameter]) -> Mask:
    """Which of these bytes are whole frames with these parameters; a null is nothing wrong.

    Examples
    --------
    >>> known = Format("hll", 1), {"p": 12}
    >>> (blob,) = sealed(*known, pa.array([b"abc"])).to_pylist()
    >>> sound(pa.array([blob, None, blob[:-1], b""]), *known).tolist()
    [True, True, False, False]
    """
    header = np.frombuffer(Header(format, parameters).to_bytes(), np.uint8)
    begin = len(header) + _TAIL.itemsize
    result: Mask = ~np.asarray(blobs.is_valid())
    ends, data = bytes_of(blobs)
    rows = np.flatnonzero(~result & (np.diff(ends) >= begin))
    starts = data[ends[rows, None] + np.arange(begin)]
    alike = (starts[:, : len(header)] == header).all(axis=1)
    rows, tails = rows[alike], starts[alike, len(header) :].copy().view(_TAIL).ravel()
    payloads = _payloads(blobs.take(pa.array(rows)), begin)
    whole = tails["size"] == lengths_of(payloads)
    result[rows] = whole & (tails["checksum"] == checksums(payloads, seed_of(header.tobytes())))
    return result


def _payloads(blobs: pa.Array, begin: int) -> pa.Array:
    """What stands behind so many bytes of each; null where there is none."""
    there = np.asarray(blobs.is_valid())
    ends, data = bytes_of(blobs.drop_null())
    borders = np.repeat(ends, 2)[:-1]
    borders[1::2] += begin
    behind = pa.array(2 * np.cumsum(there) - 1, mask=~there)
    return binary_of(borders, data).take(behind)


def header_of(blob: bytes, *, where: str) -> Header:
    """What a sketch says of itself, once it is known to be whole.

    Raises
    ------
    SketchFormatError
        ``SKETCH_FOREIGN``, ``SKETCH_CORRUPT``, or ``SKETCH_VERSION`` of the frame.
    """
    if len(blob) < _START.size or blob[:4] != MAGIC:
        _refuse(
            "SKETCH_FOREIGN",
            "these bytes are not a sketch of streamops",
            where=where,
            got=f"{len(blob)} bytes that begin with {blob[:4]!r}",
            expected=f"a frame that begins with {MAGIC!r}",
            fix="name the column that has the sketches; a sketch of another library has no frame",
        )
    _, frame, version, kind_size, params_size = _START.unpack_from(blob)
    if frame != FRAME:  # nothing inside can be known
        _refuse_version(f"frame {frame}", f"frame {FRAME}", where)
    middle = _START.size + kind_size
    end = middle + params_size
    begin = end + _TAIL.itemsize
    if len(blob) < begin:
        _refuse_corrupt(f"{len(blob)} bytes", f"{begin} bytes or more", where)
    (tail,) = np.frombuffer(blob, _TAIL, 1, end)
    (checksum,) = checksums(pa.array([blob[begin:]], pa.binary()), seed_of(blob[:end]))
    if len(blob) - begin != tail["size"] or checksum != tail["checksum"]:
        _refuse_corrupt(
            f"{len(blob) - begin} bytes of payload with checksum {checksum:016x}",
            f"{tail['size']} bytes of payload with checksum {tail['checksum']:016x}",
            where,
        )
    header = _parsed(blob[_START.size : middle], version, blob[middle:end])
    # Written otherwise, equal parameters would be other bytes.
    if header is None or header.to_bytes() != blob[:end]:
        said = "a kind in UTF-8, and parameters in JSON with sorted keys and no spaces"
        _refuse_corrupt(repr(blob[_START.size : end]), said, where)
    return header


def _parsed(kind: bytes, version: int, parameters: bytes) -> Header | None:
    try:
        said = json.loads(parameters)
        header = Header(Format(kind.decode(), version), said)
    except (ValueError, RecursionError):
        return None
    if not isinstance(said, dict):
        return None
    plain = all(isinstance(value, int | float | str) for value in said.values())
    return header if plain else None


def _refuse_other(found: Header, wanted: Header, where: str) -> NoReturn:
    """A whole frame, but of another sketch."""
    if found.format.kind != wanted.format.kind:
        _refuse(
            "SKETCH_KIND",
            "this is a sketch of another kind",
            where=where,
            got=found.format.kind,
            expected=wanted.format.kind,
            fix="sketches of one kind can be merged: name the one that these were made by",
        )
    if found.format.version != wanted.format.version:
        kind = found.format.kind
        was, known = (f"{kind} version {each.format.version}" for each in (found, wanted))
        _refuse_version(was, known, where)
    ours, theirs = dict(wanted.parameters), dict(found.parameters)
    # By their text: to JSON, 12 and 12.0 are two things.
    names = sorted(ours.keys() | theirs.keys())
    differing = [name for name in names if repr(ours.get(name)) != repr(theirs.get(name))]
    _refuse(
        "SKETCH_PARAMETERS",
        f"this sketch was made with other parameters: {', '.join(differing)}",
        where=where,
        got=", ".join(f"{k}={theirs.get(k)!r}" for k in differing),
        expected=", ".join(f"{k}={ours.get(k)!r}" for k in differing),
        fix="sketches of equal parameters can be merged: name those that these were made with",
    )


def _refuse_version(got: str, expected: str, where: str) -> NoReturn:
    _refuse(
        "SKETCH_VERSION",
        "this sketch was written in another format",
        where=where,
        got=got,
        expected=expected,
        fix="use a release of streamops that reads it (docs/state-formats.md)",
    )


def _refuse_corrupt(got: str, expected: str, where: str) -> NoReturn:
    _refuse(
        "SKETCH_CORRUPT",
        "this sketch is damaged",
        where=where,
        got=got,
        expected=expected,
        fix="make it again from its rows, or merge the others without it",
    )


def _refuse(code: str, what: str, **facts: Any) -> NoReturn:
    raise SketchFormatError(code, what, **facts)
