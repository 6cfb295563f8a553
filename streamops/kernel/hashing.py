"""Spark's ``xxhash64`` over Arrow columns, computed without a JVM.

A key must have the same shard in every process and for the lifetime of a checkpoint, so the hash
is a specified one that is also available in SQL. It is computed here and not by Spark, because an
additional column costs several times as much on the way to Python. The function is XXH64 (Y.
Collet, "xxHash fast digest algorithm", 0.1.1), chained over the values of a row: the hash of a
value is the seed of the next one, and a null leaves the hash unchanged. The bytes of a value are
those of Spark's ``HashExpression``. All arithmetic is modulo 2^64: unsigned arrays of NumPy wrap
around without a warning.

So different rows have one hash by design: ``[1], [2, 3]`` and ``[1, 2], [3]``, or two rows whose null is
in another field. It chooses shards, and makes the items of sketches that are exchanged with Spark. What
identifies, compares or orders rows uses ``digests``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamops.kernel import conditions
from streamops.kernel.columns import (
    column_not_found,
    combine_chunks,
    is_opaque,
    list_items,
    map_parts,
    type_name,
)
from streamops.kernel.errors import located

Bytes = npt.NDArray[np.uint8]
Hashes = npt.NDArray[np.uint64]
Positions = npt.NDArray[np.int64]
Digests = Callable[..., npt.NDArray[np.int64]]
"""``digests``, or ``xxhash64`` of earlier versions."""

# The five primes of XXH64.
_P1, _P2, _P3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_P4, _P5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
_M2 = np.uint32(0x5BD1E995)
"""The factor of MurmurHash2."""

_NULL = np.uint64(0x6E756C6C6E756C6C)
"""What a null adds to a seed, in the shape of a value."""

# Rows per block: small enough for the temporaries to stay in the cache of the processor.
_BLOCK = 1 << 15


def shard_of(table: pa.Table, names: Sequence[str], shards: int) -> npt.NDArray[np.int32]:
    """Return the shard of each row, equal to ``pmod(xxhash64(names...), shards)`` in Spark.

    Without a key all rows are in shard 0.

    Examples
    --------
    >>> shard_of(pa.table({"origin": ["EWR", "JFK", None]}), ["origin"], 16).tolist()
    [14, 8, 10]
    """
    assert shards > 0, shards
    for name in names:
        if name not in table.schema.names:
            raise column_not_found(name, table.schema.names, role="by", where="shard_of")
        with located(f"key column {name!r}"):
            require_hashable(table.schema.field(name).type)
    if not names:
        return np.zeros(table.num_rows, np.int32)
    # NumPy's remainder has the sign of the divisor, as Spark's pmod for a positive one.
    return (xxhash64([table.column(name) for name in names]) % shards).astype(np.int32)


def xxhash64(
    columns: Sequence[pa.Array | pa.ChunkedArray], *, seed: int = 42
) -> npt.NDArray[np.int64]:
    """Return the hash of each row, identical to Spark's ``xxhash64(columns...)``.

    There must be at least one column, and all must have the same length. Spark's seed is 42.
    Strings are hashed by their bytes, as those of Spark's default collation. Times finer than a
    microsecond are floored, as PySpark does.

    Raises
    ------
    SchemaError
        ``TYPE_UNSUPPORTED``: Spark does not hash, or does not have, the type of a column.

    Examples
    --------
    >>> xxhash64([pa.array(["1", None]), pa.array([None, 1])]).tolist()
    [-928762887014768240, -7001672635703045582]
    """
    assert columns, "a hash of no columns has no length"
    for position, column in enumerate(columns):
        with located(f"key column {position}"):
            require_hashable(column.type)
    return chained(columns, seed).view(np.int64)


def digests(
    columns: Sequence[pa.Array | pa.ChunkedArray], *, seed: int = 42
) -> npt.NDArray[np.int64]:
    """Return a digest of each row: equal rows have equal digests, and others different ones.

    There must be at least one column, and all must have the same length. All types of Spark have digests.
    Values are equal as in ``key_codes``, and the entries of a map have no order. The digests of two different
    rows are equal with a probability of 2^-64. Without nulls, arrays and maps a row has the digest
    ``xxhash64(columns...)``.

    Examples
    --------
    >>> two = [pa.array([[1], [1, 2]]), pa.array([[2, 3], [3]])]
    >>> len({*xxhash64(two).tolist()}), len({*digests(two).tolist()})
    (1, 2)
    """
    columns = [sorted_maps(column) for column in columns]
    return with_shapes(chained(columns, seed), columns, seed=seed)


def hex_digests(columns: Sequence[pa.Array], *, by: Digests = digests) -> pa.Array:
    """Return 32 hexadecimal digits of each row: two digests, of the values and of which are null.

    Examples
    --------
    >>> hex_digests([pa.array(["1", None]), pa.array([None, "1"])]).to_pylist()
    ['8516371f2e5bcf23d7c70ac9c8d15cfd', '93e08493e398e87688f0fe76965189a2']
    """
    hashed = [*columns, *(column.is_null() for column in columns)]
    both = np.stack([by(hashed, seed=seed) for seed in (42, 43)], axis=1)
    digits = pa.py_buffer(both.astype(">i8").tobytes().hex().encode())
    offsets = pa.py_buffer(np.arange(len(both) + 1, dtype=np.int32) * 32)
    return pa.StringArray.from_buffers(len(both), offsets, digits)


def murmur2(texts: pa.Array) -> npt.NDArray[np.uint32]:
    """Return the hash of the bytes of each text, by which Java's clients of Kafka choose a partition.

    The partition is ``(murmur2(key) & 0x7fffffff) % partitions``. The texts have no null.

    Examples
    --------
    >>> murmur2(pa.array(["21", "foobar", "a-little-bit-long-string"])).view(np.int32).tolist()
    [-973932308, -790332482, -985981536]
    """
    data, starts, lengths = _byte_ranges(texts)
    hashes = np.uint32(0x9747B28C) ^ lengths.astype(np.uint32)
    rows, units = np.arange(len(starts)), _units(data, 4)
    for position in range(int(lengths.max(initial=0)) >> 2):
        rows = rows[lengths[rows] >> 2 > position]
        mixed = units[starts[rows] + 4 * position] * _M2
        hashes[rows] = hashes[rows] * _M2 ^ (mixed ^ mixed >> np.uint32(24)) * _M2
    ends = starts + (lengths & ~3)
    for rest in (3, 2, 1):
        rows = np.flatnonzero(lengths & 3 >= rest)
        byte = data[ends[rows] + rest - 1].astype(np.uint32)
        hashes[rows] ^= byte << np.uint32(8 * (rest - 1))
    rows = np.flatnonzero(lengths & 3)
    hashes[rows] *= _M2
    hashes = (hashes ^ hashes >> np.uint32(13)) * _M2
    return hashes ^ hashes >> np.uint32(15)


def require_hashable(dtype: pa.DataType) -> None:
    """Refuse a type that cannot be a key, also if it is nested in another type.

    Raises
    ------
    SchemaError
        ``TYPE_UNSUPPORTED``: Spark does not hash it (maps) or have it (unsigned integers).
    """
    if pa.types.is_dictionary(dtype):
        dtype = dtype.value_type
    if dtype.id not in _RULES or is_opaque(dtype):
        raise conditions.NOT_HASHABLE.error(got=type_name(dtype))
    for position in range(dtype.num_fields):
        require_hashable(dtype.field(position).type)


def digest_version(types: Iterable[pa.DataType]) -> dict[str, int]:
    """What the identity of a state says that has digests of values of these types.

    Of nested values, earlier versions stored ``xxhash64``, without this mark.
    """
    return {} if all(map(_is_flat, types)) else {"digests": 2}


def with_shapes(
    hashes: Hashes, columns: Sequence[pa.Array | pa.ChunkedArray], *, seed: int = 42
) -> npt.NDArray[np.int64]:
    """Return the hashes of rows, mixed with the shapes of these rows.

    A shape tells where nulls are and how long arrays are, at any depth. With it, the chained values of a row
    are those of one row only. The shape is 0 without nulls and arrays.
    """
    shaped = [n for n, of in enumerate(columns) if of.null_count or not _is_flat(of.type)]
    if not shaped:
        return hashes.view(np.int64)
    shapes = np.zeros(len(hashes), np.uint64)
    for position in shaped:
        for block, rows in _blocks(columns[position]):
            shapes[rows] += _placed(_shapes(block, seed), np.uint64(position))
    return _mixed(shapes, hashes).view(np.int64)


def sorted_maps(column: pa.Array | pa.ChunkedArray, *, by_key: bool = True) -> Any:
    """Return the values with maps, at any depth, as lists of their entries, in an order of their keys."""
    if not _has_map(column.type):
        return column
    array = combine_chunks(column)
    if pa.types.is_map(array.type):
        by = (lambda keys: digests([keys])) if by_key else None
        lengths, entries = list_items(array, by=by)
        offsets = pa.array(np.append(0, np.cumsum(lengths)), pa.int32())
        array = pa.ListArray.from_arrays(offsets, entries, mask=array.is_null())
    return map_parts(partial(sorted_maps, by_key=by_key), array)


def _is_flat(dtype: pa.DataType) -> bool:
    return not (pa.types.is_nested(dtype) or pa.types.is_dictionary(dtype))


def _has_map(dtype: pa.DataType) -> bool:
    parts = (dtype.field(at).type for at in range(dtype.num_fields))
    return pa.types.is_map(dtype) or any(map(_has_map, parts))


def _shapes(array: pa.Array, seed: int) -> Hashes:
    """The shape of each value: 0 of one without nulls and arrays."""
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    shapes, dtype = np.zeros(len(array), np.uint64), array.type
    if pa.types.is_struct(dtype):
        for position in range(dtype.num_fields):
            shapes += _placed(_shapes(array.field(position), seed), np.uint64(position))
    elif pa.types.is_nested(dtype):
        lengths, items = list_items(array)
        ends = np.cumsum(lengths)
        positions = np.arange(len(items)) - np.repeat(ends - lengths, lengths)
        parts = _placed(_shapes(items, seed), positions.astype(np.uint64))
        sums = np.append(np.zeros(1, np.uint64), parts).cumsum()
        # The seed has a part in it, too, so that two digests of one value are independent.
        shapes = _hash_number((lengths + seed).view(np.uint64), sums[ends] - sums[ends - lengths])
    if array.null_count:
        null = _avalanche(np.array([seed], np.uint64) + _NULL)
        shapes = np.where(array.is_valid().to_numpy(zero_copy_only=False), shapes, null)
    return shapes


def _placed(shapes: Hashes, positions: Any) -> Hashes:
    """The shapes of parts at these positions, to be added up; 0 of shape 0."""
    return np.where(shapes == 0, shapes, _mixed(shapes, np.zeros_like(shapes) + positions))


def _mixed(shapes: Hashes, seeds: Hashes) -> Hashes:
    """The shapes hashed by the seeds; the seed where the shape is 0, as most are."""
    some = np.flatnonzero(shapes)
    if len(some):
        seeds = seeds.copy()
        seeds[some] = _hash_number(shapes[some], seeds[some])
    return seeds


def chained(columns: Sequence[pa.Array | pa.ChunkedArray], seed: int = 42) -> Hashes:
    """Return the hash of the chained values of each row: ``xxhash64``, also of types that Spark does not hash."""
    running = np.full(len(columns[0]), seed % (1 << 64), np.uint64)
    for column in columns:
        assert len(column) == len(running), (len(column), len(running))
        for block, rows in _blocks(column):
            running[rows] = _chain(block, running[rows])
    return running


def _blocks(column: pa.Array | pa.ChunkedArray) -> Iterator[tuple[pa.Array, slice]]:
    """The values in blocks, and the rows of each of them."""
    stop = 0
    for chunk in column.chunks if isinstance(column, pa.ChunkedArray) else [column]:
        for start in range(0, len(chunk), _BLOCK):
            block = chunk.slice(start, _BLOCK)
            yield block, slice(stop, stop := stop + len(block))


def _chain(array: pa.Array, seeds: Hashes) -> Hashes:
    """Return the hashes of the values; the seed where the value is null."""
    if pa.types.is_dictionary(array.type):
        # Decoded first: the dictionary may contain a null, too.
        array = array.dictionary_decode()
    hashes = _RULES.get(array.type.id, _fixed)(array, seeds)
    if array.null_count:
        return np.where(array.is_valid().to_numpy(zero_copy_only=False), hashes, seeds)
    return hashes


# One rule per family of types. Arrays are not empty, and the value of a null is arbitrary.


def _number(array: pa.Array, seeds: Hashes) -> Hashes:
    """Hash an int if the type has 32 bits or fewer (the sign is extended), else a long."""
    if array.type.bit_width < 32:
        array = array.cast(pa.int32())
    return _hash_number(_values(array, np.dtype(f"u{array.type.bit_width // 8}")), seeds)


def _float(array: pa.Array, seeds: Hashes) -> Hashes:
    """Hash the bits; -0.0 as 0.0, and every NaN as the canonical NaN of Java."""
    # Integers are compared: comparing signalling NaNs may warn.
    wide = array.type.bit_width == 64
    infinity, nan = (0x7FF << 52, 0xFFF << 51) if wide else (0xFF << 23, 0x1FF << 22)
    bits = _values(array, np.uint64 if wide else np.uint32)
    magnitude = bits << 1 >> 1
    bits = np.where(magnitude == 0, magnitude, bits)
    bits[magnitude > infinity] = nan
    return _hash_number(bits, seeds)


def _time(array: pa.Array, seeds: Hashes) -> Hashes:
    """Hash the nanoseconds of the day."""
    return _number(array.cast(pa.time64("ns")), seeds)


def _micros(array: pa.Array, seeds: Hashes) -> Hashes:
    """Hash the microseconds of a timestamp, whatever its zone, or of a duration."""
    if array.type.unit == "ns":
        return _hash_number((_values(array, np.int64) // 1000).view(np.uint64), seeds)
    exact = pa.timestamp("us", array.type.tz) if hasattr(array.type, "tz") else pa.duration("us")
    return _number(array.cast(exact), seeds)


def _decimal(array: pa.Array, seeds: Hashes) -> Hashes:
    """Hash the unscaled number: up to 18 digits as a long, else as Java's BigInteger."""
    bytes_ = _values(array, np.dtype((np.uint8, 16)))
    if array.type.precision <= 18:
        return _hash_number(bytes_[:, :8].copy().view(np.uint64).ravel(), seeds)
    # Big-endian two's complement, as short as possible with a sign bit.
    bytes_ = np.ascontiguousarray(bytes_[:, ::-1])
    digits = bytes_ ^ (bytes_[:, :1] >> 7) * np.uint8(0xFF)  # complement of a negative number
    rows = np.arange(len(digits))
    first = np.where(digits.any(axis=1), (digits != 0).argmax(axis=1), 15)
    first -= digits[rows, first] >> 7  # the sign needs a bit of its own
    return _hash_bytes(bytes_.ravel(), 16 * rows + first, 16 - first, seeds)


def _fixed(array: pa.Array, seeds: Hashes) -> Hashes:
    """Hash the bytes of values that Spark does not hash, such as intervals of months."""
    size = array.type.bit_width // 8
    bytes_ = _values(array, np.dtype((np.uint8, size)))
    return _hash_bytes(
        bytes_.ravel(), np.arange(len(array)) * size, np.full(len(array), size), seeds
    )


def _bytes(array: pa.Array, seeds: Hashes) -> Hashes:
    return _hash_bytes(*_byte_ranges(array), seeds)


def _byte_ranges(array: pa.Array) -> tuple[Bytes, Positions, Positions]:
    """The bytes of an array of texts, where its values start in it, and their lengths."""
    large = array.type.id in {pa.lib.Type_LARGE_STRING, pa.lib.Type_LARGE_BINARY}
    offsets = _values(array, np.int64 if large else np.int32, extra=1).astype(np.int64)
    data = np.frombuffer(array.buffers()[2] or b"", np.uint8)
    return data, offsets[:-1], np.diff(offsets)


def _struct(array: pa.Array, seeds: Hashes) -> Hashes:
    """Chain the fields like columns. The null type has none."""
    for i in range(array.type.num_fields):
        seeds = _chain(array.field(i), seeds)
    return seeds


def _list(array: pa.Array, seeds: Hashes) -> Hashes:
    """Chain the elements like columns: the first ones of all rows, the second ones, ..."""
    offsets = np.asarray(array.offsets).astype(np.int64)
    starts, lengths = offsets[:-1], np.diff(offsets)
    hashes, rows = seeds.copy(), np.arange(len(array))
    for position in range(int(lengths.max())):
        rows = rows[lengths[rows] > position]
        elements = array.values.take(pa.array(starts[rows] + position))
        hashes[rows] = _chain(elements, hashes[rows])
    return hashes


_RULES: dict[int, Callable[[pa.Array, Hashes], Hashes]] = {
    getattr(pa.lib, f"Type_{name}"): rule
    for rule, names in {
        _number: "BOOL INT8 INT16 INT32 INT64 DATE32",
        _float: "FLOAT DOUBLE",
        _decimal: "DECIMAL128",
        _time: "TIME64",
        _micros: "TIMESTAMP DURATION",
        _bytes: "STRING LARGE_STRING BINARY LARGE_BINARY",
        _struct: "NA STRUCT",
        _list: "LIST LARGE_LIST",
    }.items()
    for name in names.split()
}


def _values(array: pa.Array, dtype: npt.DTypeLike, extra: int = 0) -> npt.NDArray[Any]:
    # A view of the buffer: no copy, and nulls do not change the type.
    offset = array.offset * np.dtype(dtype).itemsize
    return np.frombuffer(array.buffers()[1], dtype, len(array) + extra, offset)


# XXH64 of many values, each with its own seed.


def _hash_number(bits: npt.NDArray[Any], seeds: Hashes) -> Hashes:
    if bits.itemsize == 4:
        return _avalanche(_mix_4(seeds + (_P5 + 4), bits.astype(np.uint64)))
    return _avalanche(_mix_8(seeds + (_P5 + 8), bits))


def _hash_bytes(data: Bytes, starts: Positions, lengths: Positions, seeds: Hashes) -> Hashes:
    """Hash ``data[start : start + length]`` of each row."""
    hashes = seeds + _P5
    long = np.flatnonzero(lengths >= 32)
    if len(long):
        hashes[long] = _hash_stripes(data, starts[long], lengths[long] >> 5, seeds[long])
    hashes += lengths.view(np.uint64)
    # The rest is shorter than a stripe: up to three words, a half word, three bytes.
    at, ends = starts + (lengths & ~31), starts + lengths
    for size, mix in [(8, _mix_8)] * 3 + [(4, _mix_4)] + [(1, _mix_1)] * 3:
        rows: Any = np.flatnonzero(ends - at >= size)
        if len(rows) == 0:
            continue
        if len(rows) == len(at):
            rows = slice(None)  # keys of one length are common, and a slice copies nothing
        hashes[rows] = mix(hashes[rows], _units(data, size)[at[rows]].astype(np.uint64))
        at[rows] += size
    return _avalanche(hashes)


def _hash_stripes(data: Bytes, starts: Positions, counts: Positions, seeds: Hashes) -> Hashes:
    """Feed four lanes with one word each of every stripe of 32 bytes, and merge them."""
    lanes = np.stack([seeds + _P1 + _P2, seeds + _P2, seeds, seeds - _P1])
    units, word_of_lane = _units(data, 8), np.array([[0], [8], [16], [24]])
    rows = np.arange(len(starts))
    for stripe in range(int(counts.max())):
        rows = rows[counts[rows] > stripe]
        at = starts[rows] + 32 * stripe + word_of_lane
        lanes[:, rows] = _round(lanes[:, rows], units[at])
    lane_1, lane_2, lane_3, lane_4 = lanes
    hashes = rotate(lane_1, 1) + rotate(lane_2, 7) + rotate(lane_3, 12) + rotate(lane_4, 18)
    for lane in lanes:
        hashes = (hashes ^ _round(np.zeros_like(lane), lane)) * _P1 + _P4
    return hashes


def _units(data: Bytes, size: int) -> npt.NDArray[Any]:
    """View the little-endian number of ``size`` bytes at every position, aligned or not."""
    return np.ndarray(max(len(data) - size + 1, 0), f"<u{size}", data, strides=(1,))


def _round(lanes: Hashes, units: Hashes) -> Hashes:
    return rotate(lanes + units * _P2, 31) * _P1


def _mix_8(hashes: Hashes, units: Hashes) -> Hashes:
    return rotate(hashes ^ rotate(units * _P2, 31) * _P1, 27) * _P1 + _P4


def _mix_4(hashes: Hashes, halves: Hashes) -> Hashes:
    return rotate(hashes ^ halves * _P1, 23) * _P2 + _P3


def _mix_1(hashes: Hashes, bytes_: Hashes) -> Hashes:
    return rotate(hashes ^ bytes_ * _P5, 11) * _P1


def rotate(hashes: Hashes, left: int) -> Hashes:
    """64 bits rotated to the left."""
    return (hashes << np.uint64(left)) | (hashes >> np.uint64(64 - left))


def _avalanche(hashes: Hashes) -> Hashes:
    hashes = (hashes ^ (hashes >> np.uint64(33))) * _P2
    hashes = (hashes ^ (hashes >> np.uint64(29))) * _P3
    return hashes ^ (hashes >> np.uint64(32))
