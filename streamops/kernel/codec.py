"""Encode the state of a shard as one frame of bytes, and verify a frame before it is read.

:mod:`streamops.kernel.frame` defines the frame. Its parameters are the identity of the spec: all that
the state depends on. Its body has, for each table: name size (uint16), name, size (uint64), and an Arrow
IPC stream, with split byte streams (see :func:`split_bytes`) and Zstandard compression. Nothing is
unpickled, and what a frame declares is compared with a limit before memory is allocated for it.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamops.kernel import conditions
from streamops.kernel.adapting import may_change, way_out
from streamops.kernel.columns import combine_chunks
from streamops.kernel.core import Identity, StateFormat
from streamops.kernel.errors import StateFormatError, located
from streamops.kernel.frame import FRAME, START, Content, Header, checksum_of, read_frame
from streamops.kernel.segments import INDEX, UNMERGED

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


LARGEST = 4 << 30
"""Bytes of the decompressed tables of a shard; documented in docs/state-formats.md."""
_NAME = struct.Struct("<H")
_SIZE = struct.Struct("<Q")
_STATE = Content(conditions.STATE_FOREIGN, conditions.STATE_CORRUPT)

Bytes = npt.NDArray[np.uint8]


def encode(
    layout: StateFormat, identity: Identity, shards: int, tables: Mapping[str, pa.Table]
) -> bytes:
    """Return the frame with the tables of a shard.

    Examples
    --------
    >>> layout = StateFormat("doc.example", 1)
    >>> blob = encode(layout, {"size": 10}, 4, {"panes": pa.table({"pane": [1, 2]})})
    >>> decode(blob, layout, {"size": 10}, 4)["panes"].column("pane").to_pylist()
    [1, 2]

    Raises
    ------
    StateFormatError
        ``STATE_FULL``.
    """
    parts, streams = [], []
    for name, table in tables.items():
        stream = ipc_write(split_bytes(table), compression="zstd")
        streams.append(stream)
        parts += [_NAME.pack(len(name.encode())), name.encode(), _SIZE.pack(len(stream)), stream]
    # What cannot be read must not be written. The exact size takes longer than this one.
    if sum(table.nbytes for table in tables.values()) > LARGEST // 2:
        with located(layout.kind):
            _require_size(streams)
    return Header(layout, identity, shards).frame(b"".join(parts))


def fingerprint(layout: StateFormat, identity: Identity, shards: int) -> int:
    """Return a CRC-32 of everything that :func:`decode` compares.

    Examples
    --------
    >>> layout = StateFormat("doc.example", 1)
    >>> fingerprint(layout, {"size": 10}, 4) == fingerprint(layout, {"size": 11}, 4)
    False
    """
    header = Header(layout, identity, shards)
    return header.checksum(0)


def decode(
    blob: bytes,
    layout: StateFormat,
    identity: Identity,
    shards: int,
    *,
    adapt: Callable[[Identity, Mapping[str, pa.Table]], Mapping[str, pa.Table]] | None = None,
    is_segment: bool = False,
) -> dict[str, pa.Table]:
    """Return the tables of a frame that the same operator with the same parameters wrote.

    The tables of segments are only accepted if the layout is ``segmented``. With `adapt`, which gets the
    stored identity and the tables, some parameters may differ; in a segment all of them, since the state
    with its index was compared after each change.

    Raises
    ------
    StateFormatError
        ``STATE_CORRUPT``, ``STATE_VERSION``, ``STATE_KIND``, ``STATE_SHARDS``,
        ``STATE_PARAMETERS`` or ``STATE_FULL``.
    """
    found = read_stored(blob)
    require_same(found, layout, found.identity if is_segment else identity, shards)
    changed = changed_parameters(found.identity, identity)
    if changed and adapt is None:
        raise _other_parameters(layout, found.identity, identity, changed)
    tables = found.tables()
    if not layout.segmented and tables.keys() & {INDEX, UNMERGED}:
        expected = f"frame {found.frame}, {layout.kind} version {layout.version}"
        raise conditions.STATE_FORMAT.error(expected=expected, got=f"{expected} with segments")
    return dict(adapt(found.identity, tables)) if changed and adapt is not None else tables


@dataclass(frozen=True, slots=True)
class StoredFrame:
    """A verified frame of a state, whichever operator wrote it.

    Parameters
    ----------
    frame : int
        Version of the frame.
    format : StateFormat
        The operator, and the version of its layout.
    shards : int
        Number of shards.
    identity : mapping
        The parameters that the state depends on.
    body : bytes
        The encoded tables.
    """

    frame: int
    format: StateFormat
    shards: int
    identity: Identity
    body: bytes

    @property
    def layout(self) -> str:
        """Name of the layout."""
        return self.format.kind

    @property
    def version(self) -> int:
        """Version of the layout."""
        return self.format.version

    def tables(self) -> dict[str, pa.Table]:
        """Decode the tables.

        Raises
        ------
        StateFormatError
            ``STATE_FULL``, or ``STATE_CORRUPT``.
        """
        return {name: join_bytes(table) for name, table in _tables(self.body)}


def require_checksum(blob: bytes, checksum: int) -> bytes:
    """Return a frame, if it is the one with this checksum. Its content is not verified.

    Raises
    ------
    StateFormatError
        ``STATE_CORRUPT``.
    """
    if len(blob) >= START and checksum_of(blob) != checksum:
        raise _STATE.corrupt(
            f"a segment with checksum {checksum_of(blob):08x}",
            f"the segment of the index, with checksum {checksum:08x}",
        )
    return blob


def require_same(found: StoredFrame, layout: StateFormat, identity: Identity, shards: int) -> None:
    """Refuse a state that another operator wrote, or the same one with other parameters.

    Those that :func:`may_change` accepts are not compared.

    Raises
    ------
    StateFormatError
        ``STATE_VERSION``, ``STATE_KIND``, ``STATE_SHARDS``, or ``STATE_PARAMETERS``.
    """
    if found.layout != layout.kind:
        raise conditions.STATE_OF_ANOTHER.error(kind=layout.kind, got=found.layout)
    if found.version != layout.version:
        raise conditions.STATE_FORMAT.error(
            expected=f"frame {found.frame}, {layout.kind} version {layout.version}",
            got=f"frame {found.frame}, {found.layout} version {found.version}",
        )
    if found.shards != shards:
        raise conditions.STATE_SHARDS.error(
            found=found.shards, shards=shards, got=f"shards={shards}"
        )
    changed = changed_parameters(found.identity, identity)
    changed -= may_change(layout.kind, changed, found.identity, identity)
    if changed:
        raise _other_parameters(layout, found.identity, identity, changed)


def changed_parameters(stored: Identity, wanted: Identity) -> set[str]:
    """Names of the parameters that differ."""
    wanted = json.loads(json.dumps(wanted))
    return {k for k in stored.keys() | wanted.keys() if stored.get(k) != wanted.get(k)}


def _other_parameters(
    layout: StateFormat, stored: Identity, wanted: Identity, changed: set[str]
) -> StateFormatError:
    names, wanted = sorted(changed), json.loads(json.dumps(wanted))
    return conditions.STATE_PARAMETERS.error(
        changed=", ".join(names),
        remedy=way_out(layout.kind, changed),
        stored=", ".join(f"{k}={stored.get(k)!r}" for k in names),
        got=", ".join(f"{k}={wanted.get(k)!r}" for k in names),
    )


def read_stored(blob: bytes) -> StoredFrame:
    """Verify a frame, and read its header. Its content is not compared with anything.

    Raises
    ------
    StateFormatError
        ``STATE_CORRUPT`` or ``STATE_VERSION`` of the frame.

    Examples
    --------
    >>> blob = encode(StateFormat("doc.example", 1), {"size": 10}, 4, {})
    >>> found = read_stored(blob)
    >>> found.layout, found.version, found.shards, found.identity
    ('doc.example', 1, 4, {'size': 10})
    """
    found = read_frame(bytes(blob), _STATE)
    if found.layout != FRAME:  # the rest of the layout is unknown
        raise conditions.STATE_FORMAT.error(expected=f"frame {FRAME}", got=f"frame {found.layout}")
    format_ = StateFormat(found.type_name.decode(), found.version)
    identity = json.loads(found.parameters)
    return StoredFrame(found.layout, format_, found.shards, identity, found.body)


def _tables(body: bytes) -> list[tuple[str, pa.Table]]:
    streams = _streams(body)
    _require_size([stream for _, stream in streams])
    try:
        return [(name, ipc_read(stream)) for name, stream in streams]
    except (OSError, pa.ArrowException) as error:
        raise _STATE.corrupt(str(error), "tables in Arrow's IPC format") from error


def _streams(body: bytes) -> list[tuple[str, bytes]]:
    found, position = [], 0
    while position < len(body):
        (size,) = _NAME.unpack_from(body, position)
        position += _NAME.size
        name = body[position : position + size].decode()
        position += size
        (size,) = _SIZE.unpack_from(body, position)
        position += _SIZE.size
        found.append((name, body[position : position + size]))
        position += size
    return found


def _require_size(streams: Sequence[bytes]) -> None:
    """Refuse tables that are too large when they are decompressed."""
    try:
        size = sum(map(declared_size, streams))
    except ValueError as error:
        raise _STATE.corrupt(str(error), "tables in Arrow's IPC format") from error
    if size > LARGEST:
        raise conditions.STATE_TOO_LARGE.error(
            limit=LARGEST, got=f"{size:,} bytes without compression"
        )


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
