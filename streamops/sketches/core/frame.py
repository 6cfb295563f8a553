"""Columns of sketches in frames: see :mod:`streamops.kernel.frame`.

Sketches that can be merged have the same bytes before their payload, but for its size and the
checksum. A column of sketches is verified by comparing it with these bytes.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamops.kernel.columns import combine_chunks
from streamops.kernel.errors import SketchFormatError
from streamops.kernel.frame import FRAME, START, Content, Header, read_frame
from streamops.kernel.groups import Ints, Mask
from streamops.sketches.core.buffers import binary_of, bytes_of
from streamops.sketches.core.contract import Format, Parameter

__all__ = ["are_valid", "pack_frames", "read_header", "unpack_frames"]

Bytes = npt.NDArray[np.uint8]

_SIZES = np.dtype([("size", "<u8"), ("checksum", "<u4")])
_SAME = START - _SIZES.itemsize
"""Bytes before the size: the same in all sketches with one header."""

_SKETCH = Content(
    "sketch",
    SketchFormatError,
    "name the column that has the sketches; a sketch of another library has no frame",
    "make it again from its rows, or merge the others without it",
)


def pack_frames(
    format: Format, parameters: Mapping[str, Parameter], payloads: pa.Array
) -> pa.Array:
    """The payloads, each in a frame.

    Examples
    --------
    >>> (blob,) = pack_frames(Format("hll", 1), {"p": 12}, pa.array([b"abc"])).to_pylist()
    >>> blob[:4], blob[32:]
    (b'SOPS', b'hll{"p":12}abc')
    """
    assert payloads.null_count == 0, "a payload is never null"
    header = Header(format, parameters)
    ends, data = bytes_of(payloads)
    sizes = np.empty(len(payloads), _SIZES)
    sizes["size"] = np.diff(ends)
    sizes["checksum"] = _checksums(header, ends, data)
    between = pa.Array.from_buffers(
        pa.binary(_SIZES.itemsize), len(sizes), [None, pa.py_buffer(sizes.tobytes())]
    ).cast(pa.binary())
    start, names, nothing = (
        pa.scalar(part, pa.binary()) for part in (header.start(0)[:_SAME], header.names, b"")
    )
    return pc.binary_join_element_wise(start, between, names, payloads, nothing)


def unpack_frames(
    blobs: pa.Array | pa.ChunkedArray,
    format: Format,
    parameters: Mapping[str, Parameter],
    *,
    where: str,
) -> pa.Array:
    """The payloads of frames with these parameters; null for a null.

    Raises
    ------
    SketchFormatError
        ``SKETCH_FOREIGN``, ``SKETCH_CORRUPT``, ``SKETCH_VERSION``, ``SKETCH_KIND`` or
        ``SKETCH_PARAMETERS``: of the first sketch that is not valid.

    Examples
    --------
    >>> known = Format("hll", 1), {"p": 12}
    >>> unpack_frames(pack_frames(*known, pa.array([b"abc"])), *known, where="doc").to_pylist()
    [b'abc']
    """
    blobs = combine_chunks(blobs).cast(pa.binary())
    wrong = np.flatnonzero(~are_valid(blobs, format, parameters))
    header = Header(format, parameters)
    if len(wrong):
        where = f"{where}, sketch {wrong[0]}"
        _refuse_other(read_header(blobs[int(wrong[0])].as_py(), where=where), header, where)
    return _payloads(blobs, START + len(header.names))


def are_valid(blobs: pa.Array, format: Format, parameters: Mapping[str, Parameter]) -> Mask:
    """Which of these bytes are whole frames with these parameters. A null is valid.

    Examples
    --------
    >>> known = Format("hll", 1), {"p": 12}
    >>> (blob,) = pack_frames(*known, pa.array([b"abc"])).to_pylist()
    >>> are_valid(pa.array([blob, None, blob[:-1], b""]), *known).tolist()
    [True, True, False, False]
    """
    header = Header(format, parameters)
    begin = START + len(header.names)
    result: Mask = ~np.asarray(blobs.is_valid())
    ends, data = bytes_of(blobs)
    rows = np.flatnonzero(~result & (np.diff(ends) >= begin))
    starts = data[ends[rows, None] + np.arange(begin)]
    expected = np.frombuffer(
        header.start(0)[:_SAME] + bytes(_SIZES.itemsize) + header.names, np.uint8
    )
    same = starts == expected
    same[:, _SAME:START] = True
    alike = same.all(axis=1)
    rows, sizes = rows[alike], starts[alike, _SAME:START].copy().view(_SIZES).ravel()
    borders, payloads = bytes_of(_payloads(blobs.take(pa.array(rows)), begin))
    whole = sizes["size"] == np.diff(borders).astype(np.uint64)
    result[rows] = whole & (sizes["checksum"] == _checksums(header, borders, payloads))
    return result


def read_header(blob: bytes, *, where: str) -> Header:
    """The header of a sketch whose type and parameters are not known.

    Raises
    ------
    SketchFormatError
        ``SKETCH_FOREIGN``, ``SKETCH_CORRUPT``, or ``SKETCH_VERSION`` of the frame.
    """
    frame = read_frame(blob, _SKETCH, where=where)
    if frame.layout != FRAME:  # the rest of the layout is unknown
        _refuse_version(f"frame {frame.layout}", f"frame {FRAME}", where)
    header = _parse(frame.type_name, frame.version, frame.parameters)
    # Equal parameters have equal bytes.
    if header is None or header.names != frame.type_name + frame.parameters or frame.shards:
        expected = "a kind in UTF-8, and parameters in JSON with sorted keys and no spaces"
        raise _SKETCH.corrupt(repr(frame.type_name + frame.parameters), expected, where)
    return header


def _checksums(header: Header, ends: Ints, data: Bytes) -> npt.NDArray[np.uint32]:
    # A loop over sketches, of 0.3 microseconds each: zlib is several times faster than what NumPy
    # can compute of all of them at once.
    before = {size: header.checksum(size) for size in np.unique(np.diff(ends)).tolist()}
    view, borders = memoryview(data.data), ends.tolist()
    sums = [zlib.crc32(view[begin:end], before[end - begin]) for begin, end in pairwise(borders)]
    return np.array(sums, np.uint32)


def _payloads(blobs: pa.Array, begin: int) -> pa.Array:
    """The bytes of each from a position on; null for a null."""
    valid = np.asarray(blobs.is_valid())
    ends, data = bytes_of(blobs.drop_null())
    borders = np.repeat(ends, 2)[:-1]
    borders[1::2] += begin
    behind = pa.array(2 * np.cumsum(valid) - 1, mask=~valid)
    return binary_of(borders, data).take(behind)


def _parse(kind: bytes, version: int, text: bytes) -> Header | None:
    try:
        parameters = json.loads(text)
        format = Format(kind.decode(), version)
    except (ValueError, RecursionError):
        return None
    if not isinstance(parameters, dict):
        return None
    plain = all(isinstance(value, int | float | str) for value in parameters.values())
    return Header(format, parameters) if plain else None


def _refuse_other(found: Header, expected: Header, where: str) -> NoReturn:
    """Refuse a whole frame of another sketch."""
    if found.format.kind != expected.format.kind:
        _refuse(
            "SKETCH_KIND",
            "this is a sketch of another kind",
            where=where,
            got=found.format.kind,
            expected=expected.format.kind,
            fix="sketches of one kind can be merged: name the one that these were made by",
        )
    if found.format.version != expected.format.version:
        got, known = (f"{h.format.kind} version {h.format.version}" for h in (found, expected))
        _refuse_version(got, known, where)
    ours, theirs = dict(expected.parameters), dict(found.parameters)
    # By their text: in JSON, 12 and 12.0 differ.
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


def _refuse(code: str, what: str, **facts: Any) -> NoReturn:
    raise SketchFormatError(code, what, **facts)
