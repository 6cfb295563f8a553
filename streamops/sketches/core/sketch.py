"""What all sketches share: their contract, the frame of stored sketches, and summaries of these.

For the frame see :mod:`streamops.kernel.frame`. Sketches that can be merged have the same bytes before
their payload, except for its size and the checksum. A column of sketches is verified by comparing it
with these bytes.
"""

from __future__ import annotations

import json
import zlib
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, NoReturn, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamops.kernel.aggregation import Summary, merges_exactly
from streamops.kernel.columns import combine_chunks
from streamops.kernel.core import StateFormat
from streamops.kernel.errors import located
from streamops.kernel.frame import FRAME, START, Content, Header, read_frame
from streamops.kernel.groups import Groups, Ints, Mask
from streamops.sketches import conditions
from streamops.sketches.core.buffers import Bytes, make_binary, split_binary

Parameter = int | float | str

Format = StateFormat
"""Name and version of a layout of bytes, as written into every stored sketch."""

NUMBER = pa.struct(
    [
        ("estimate", pa.int64()),
        ("lower", pa.int64()),
        ("upper", pa.int64()),
        ("relative_error", pa.float64()),
    ]
)
"""An estimated number of items, its bounds, and its relative standard error."""


class Sketch(Summary, Protocol):
    """A summary of one column, for all groups at once, whose results are estimates.

    Its state depends on the set of items alone if the algorithm allows it. Otherwise (quantiles, heavy
    hitters) ``merges_exactly`` is false, and the stated error still holds. Groups may be empty in
    ``merge`` and ``update``: their state is that of no items.
    """

    @property
    def format(self) -> Format:
        """Format of the payload."""

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """Parameters that must be equal in sketches that are merged, as written into their bytes."""

    def bounds(self, states: Sequence[pa.Array]) -> tuple[pa.Array, pa.Array]:
        """Lower and upper bounds of the true values, as documented for the sketch."""

    def payload(self, states: Sequence[pa.Array]) -> pa.Array:
        """Each state as bytes, in the documented format: ``binary``, without nulls."""

    def revive(self, payloads: pa.Array) -> list[pa.Array]:
        """The states of payloads; every byte is checked, or ``SKETCH_CORRUPT`` is raised."""


class ColumnSketch(ABC):
    """Defaults for sketches of one column whose estimate has the fields ``lower`` and ``upper``."""

    __slots__ = ()
    column: str

    @property
    def inputs(self) -> tuple[str, ...]:
        """Columns that ``update`` reads."""
        return (self.column,)

    @abstractmethod
    def estimate(self, states: Sequence[pa.Array]) -> pa.Array:
        """The estimate of each state."""

    def bounds(self, states: Sequence[pa.Array]) -> tuple[pa.Array, pa.Array]:
        """The bounds of the estimate."""
        found = self.estimate(states)
        return found.field("lower"), found.field("upper")


class _Wrapper:
    """A summary with the state of the sketch that it wraps."""

    __slots__ = ()
    sketch: Sketch

    @property
    def merges_exactly(self) -> bool:
        """Whether the sketch does."""
        return merges_exactly(self.sketch)

    @property
    def fields(self) -> tuple[tuple[str, pa.DataType], ...]:
        """State columns of the sketch."""
        return self.sketch.fields

    def merge(self, groups: Groups, states: Sequence[pa.Array]) -> list[pa.Array]:
        """Merge the states of the sketch."""
        return self.sketch.merge(groups, states)


@dataclass(frozen=True, slots=True)
class Framed(_Wrapper):
    """A sketch whose result is itself: framed bytes, also of a group without rows."""

    sketch: Sketch

    result: ClassVar[pa.DataType] = pa.binary()

    @property
    def inputs(self) -> tuple[str, ...]:
        """Columns that ``update`` reads."""
        return self.sketch.inputs

    def update(self, groups: Groups, rows: pa.Table) -> list[pa.Array]:
        """States of the groups over their rows."""
        return self.sketch.update(groups, rows)

    def estimate(self, states: Sequence[pa.Array]) -> pa.Array:
        """The sketches as bytes."""
        sketch = self.sketch
        return pack_frames(sketch.format, sketch.parameters, sketch.payload(states))


@dataclass(frozen=True, slots=True)
class Merged(_Wrapper):
    """The merged sketches of a column of framed bytes, in which nulls are ignored.

    ``answer`` is the summary over the same states that computes the result, ``text`` is the call, for
    errors.
    """

    column: str
    sketch: Sketch
    answer: Summary
    text: str

    @property
    def inputs(self) -> tuple[str, ...]:
        """The column."""
        return (self.column,)

    @property
    def result(self) -> pa.DataType:
        """Type of the result."""
        return self.answer.result

    def update(self, groups: Groups, rows: pa.Table) -> list[pa.Array]:
        """States of the groups over the sketches in their rows."""
        blobs = combine_chunks(rows.column(self.column))
        with located(at=self.text):
            states = read_states(self.sketch, blobs)
        return self.merge(groups.where(np.asarray(blobs.is_valid())), states)

    def estimate(self, states: Sequence[pa.Array]) -> pa.Array:
        """The result of each state."""
        return self.answer.estimate(states)


def read_states(sketch: Sketch, blobs: pa.Array) -> list[pa.Array]:
    """The states of framed sketches, without those that are null; ``SketchFormatError`` if one differs."""
    payloads = unpack_frames(blobs, sketch.format, sketch.parameters)
    return sketch.revive(payloads.drop_null())


def estimate_blobs(sketch: Sketch, answer: Summary, blobs: pa.Array) -> pa.Array:
    """The estimate of each framed sketch of a column by ``answer``; null for a null."""
    found = answer.estimate(read_states(sketch, blobs))
    return fill_rows(found, np.asarray(blobs.is_valid()))


def fill_rows(found: pa.Array, present: Mask) -> pa.Array:
    """The values of the rows that are present, and null in the others."""
    if present.all():
        return found
    return found.take(pa.array(np.cumsum(present) - 1, mask=~present))


_SIZES = np.dtype([("size", "<u8"), ("checksum", "<u4")])
_COMMON = START - _SIZES.itemsize
"""Bytes before the size: the same in all sketches with one header."""

_SKETCH = Content(conditions.NOT_A_SKETCH, conditions.FRAME_CORRUPT)


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
    ends, data = split_binary(payloads)
    sizes = np.empty(len(payloads), _SIZES)
    sizes["size"] = np.diff(ends)
    sizes["checksum"] = _checksums(header, ends, data)
    middle = pa.Array.from_buffers(
        pa.binary(_SIZES.itemsize), len(sizes), [None, pa.py_buffer(sizes.tobytes())]
    ).cast(pa.binary())
    start, names, separator = (
        pa.scalar(part, pa.binary()) for part in (header.start(0)[:_COMMON], header.names, b"")
    )
    return pc.binary_join_element_wise(start, middle, names, payloads, separator)


def unpack_frames(
    blobs: pa.Array | pa.ChunkedArray,
    format: Format,
    parameters: Mapping[str, Parameter],
) -> pa.Array:
    """The payloads of frames with these parameters; null for a null.

    Raises an error for the first sketch that is not valid: ``SKETCH_CORRUPT``, ``SKETCH_UNSUPPORTED``, ``SKETCH_KIND`` or ``SKETCH_PARAMETERS``.

    Examples
    --------
    >>> known = Format("hll", 1), {"p": 12}
    >>> unpack_frames(pack_frames(*known, pa.array([b"abc"])), *known).to_pylist()
    [b'abc']
    """
    blobs = combine_chunks(blobs).cast(pa.binary())
    wrong = np.flatnonzero(~are_valid(blobs, format, parameters))
    header = Header(format, parameters)
    if len(wrong):
        with located(at=f"sketch {wrong[0]}"):
            _refuse_other(read_header(blobs[int(wrong[0])].as_py()), header)
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
    ends, data = split_binary(blobs)
    rows = np.flatnonzero(~result & (np.diff(ends) >= begin))
    starts = data[ends[rows, None] + np.arange(begin)]
    expected = np.frombuffer(
        header.start(0)[:_COMMON] + bytes(_SIZES.itemsize) + header.names, np.uint8
    )
    same = starts == expected
    same[:, _COMMON:START] = True
    alike = same.all(axis=1)
    rows, sizes = rows[alike], starts[alike, _COMMON:START].copy().view(_SIZES).ravel()
    borders, payloads = split_binary(_payloads(blobs.take(pa.array(rows)), begin))
    whole = sizes["size"] == np.diff(borders).astype(np.uint64)
    result[rows] = whole & (sizes["checksum"] == _checksums(header, borders, payloads))
    return result


def read_header(blob: bytes) -> Header:
    """The header of a sketch of any type and parameters.

    Raises ``SKETCH_CORRUPT`` or ``SKETCH_UNSUPPORTED`` of the frame.
    """
    frame = read_frame(blob, _SKETCH)
    if frame.layout != FRAME:  # the rest of the layout is unknown
        raise conditions.OTHER_FORMAT.error(expected=f"frame {FRAME}", got=f"frame {frame.layout}")
    header = _parse(frame.type_name, frame.version, frame.parameters)
    # Equal parameters have equal bytes.
    if header is None or header.names != frame.type_name + frame.parameters or frame.shards:
        expected = "a type in UTF-8, and parameters in JSON with sorted keys and no spaces"
        raise _SKETCH.corrupt(repr(frame.type_name + frame.parameters), expected)
    return header


def _checksums(header: Header, ends: Ints, data: Bytes) -> npt.NDArray[np.uint32]:
    # A loop over sketches, of 0.3 microseconds each: zlib is several times faster than NumPy.
    before = {size: header.checksum(size) for size in np.unique(np.diff(ends)).tolist()}
    view, borders = memoryview(data.data), ends.tolist()
    sums = [zlib.crc32(view[begin:end], before[end - begin]) for begin, end in pairwise(borders)]
    return np.array(sums, np.uint32)


def _payloads(blobs: pa.Array, begin: int) -> pa.Array:
    """The bytes of each value from a position on; null for a null."""
    valid = np.asarray(blobs.is_valid())
    ends, data = split_binary(blobs.drop_null())
    borders = np.repeat(ends, 2)[:-1]
    borders[1::2] += begin
    payload = pa.array(2 * np.cumsum(valid) - 1, mask=~valid)
    return make_binary(borders, data).take(payload)


def _parse(type_name: bytes, version: int, text: bytes) -> Header | None:
    try:
        parameters = json.loads(text)
        format = Format(type_name.decode(), version)
    except (ValueError, RecursionError):
        return None
    if not isinstance(parameters, dict):
        return None
    plain = all(isinstance(value, int | float | str) for value in parameters.values())
    return Header(format, parameters) if plain else None


def _refuse_other(found: Header, expected: Header) -> NoReturn:
    """Refuse a whole frame of another sketch."""
    ours, theirs = expected.format, found.format
    if theirs.kind != ours.kind:
        raise conditions.OTHER_SKETCH.error(kind=ours.kind, got=theirs.kind)
    if theirs.version != ours.version:
        got, known = (f"{of.kind} version {of.version}" for of in (theirs, ours))
        raise conditions.OTHER_FORMAT.error(expected=known, got=got)
    wanted, given = dict(expected.parameters), dict(found.parameters)
    # Compared as text: 12 and 12.0 differ in JSON.
    names = sorted(wanted.keys() | given.keys())
    differing = [name for name in names if repr(wanted.get(name)) != repr(given.get(name))]
    raise conditions.OTHER_PARAMETERS.error(
        differing=", ".join(differing),
        parameters=", ".join(f"{k}={wanted.get(k)!r}" for k in differing),
        got=", ".join(f"{k}={given.get(k)!r}" for k in differing),
    )
