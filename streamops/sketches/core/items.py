"""Items of sketches: hashes of values, and the types of values by the names that Spark gives them.

A value is hashed by Spark's ``xxhash64`` of its typed bytes to a 64-bit integer, its *item*: the same
in every process and language. A sketch treats the item as Apache DataSketches treats a long: by
MurmurHash3 (x64, 128 bits, seed 9001). So a sketch of ``c`` is the one that Spark's own functions
build from ``xxhash64(c)``, to the bit, and the two can be merged. Null is not an item.

An ``int`` and a ``bigint`` of the same value have different hashes. So a sketch that is queried by value
stores the type of its items.
"""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamops.kernel.columns import combine_chunks, normalize_floats
from streamops.kernel.groups import Groups, Ints, Mask
from streamops.kernel.hashing import rotate, xxhash64

Hashes = npt.NDArray[np.uint64]

SEED = 9001
"""Seed of MurmurHash3 in Apache DataSketches and Spark."""

_C1, _C2 = np.uint64(0x87C37B91114253D5), np.uint64(0x4CF5AD432745937F)


def items(column: pa.Array | pa.ChunkedArray) -> tuple[Ints, Mask]:
    """The item of each value, and whether it has one: it is any number where the value is null.

    Raises ``TYPE_UNSUPPORTED`` if Spark does not hash the type.
    """
    array = combine_chunks(column)
    return xxhash64([array]), np.asarray(array.is_valid())


def group_items(groups: Groups, column: pa.Array | pa.ChunkedArray) -> tuple[Groups, Ints]:
    """The items of a column without those of nulls, and their groups."""
    found, valid = items(column)
    return (groups, found) if valid.all() else (groups.where(valid), found[valid])


def murmur3(items: Ints, *, seed: int = SEED) -> tuple[Hashes, Hashes]:
    """MurmurHash3 of 64-bit integers, as its two halves.

    A. Appleby, MurmurHash3_x64_128 (2011), of the eight little-endian bytes of a long.

    Examples
    --------
    >>> [hex(int(half[0])) for half in murmur3(np.array([1]))]
    ['0xb430d7b96fbf22b', '0xe8ea0960d4246765']
    """
    # Eight bytes are less than a block of sixteen: all of them are the tail.
    first = rotate(items.astype(np.int64, copy=False).view(np.uint64) * _C1, 31) * _C2
    one, two = first ^ np.uint64(seed) ^ np.uint64(8), np.full_like(first, seed ^ 8)
    one = one + two
    two = two + one
    one, two = _mix(one), _mix(two)
    one = one + two
    return one, two + one


def _mix(hashes: Hashes) -> Hashes:
    hashes = (hashes ^ (hashes >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    hashes = (hashes ^ (hashes >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return hashes ^ (hashes >> np.uint64(33))


_FLAT: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "interval day to second": pa.duration("us"),
}
_NAMES = {dtype: name for name, dtype in _FLAT.items()} | {
    pa.large_string(): "string",
    pa.large_binary(): "binary",
}
_DECIMAL = re.compile(r"decimal\(([1-9]\d?),(\d\d?)\)")


def type_name(dtype: pa.DataType) -> str:
    """Spark's name of the type, without spaces between the parts of a nested one.

    Examples
    --------
    >>> type_name(pa.struct([("a", pa.list_(pa.int64())), ("b", pa.decimal128(6, 2))]))
    'struct<"a":array<bigint>,"b":decimal(6,2)>'
    """
    if pa.types.is_decimal(dtype):
        return f"decimal({dtype.precision},{dtype.scale})"
    if pa.types.is_timestamp(dtype) and dtype.tz is not None:
        return "timestamp"  # an instant, in any time zone
    if pa.types.is_list(dtype) or pa.types.is_large_list(dtype):
        return f"array<{type_name(dtype.value_type)}>"
    if pa.types.is_struct(dtype):
        quoted = [field.name.replace('"', '""') for field in dtype]
        parts = (f'"{name}":{type_name(f.type)}' for name, f in zip(quoted, dtype, strict=True))
        return f"struct<{','.join(parts)}>"
    return _NAMES.get(dtype, str(dtype))


def flat_type(name: str) -> pa.DataType | None:
    """The type of this name; None if it is nested or unknown.

    Examples
    --------
    >>> flat_type("decimal(6,2)"), flat_type("array<int>")
    (Decimal128Type(decimal128(6, 2)), None)
    """
    found = _DECIMAL.fullmatch(name)
    if found:
        precision, scale = map(int, found.groups())
        return pa.decimal128(precision, scale) if scale <= precision <= 38 else None
    return _FLAT.get(name)


def is_flat(dtype: pa.DataType) -> bool:
    """Whether :func:`flat_type` knows the type.

    Examples
    --------
    >>> is_flat(pa.string()), is_flat(pa.list_(pa.string()))
    (True, False)
    """
    return flat_type(type_name(dtype)) is not None


normal = normalize_floats
"""Values with one form of equal ones: 0.0 for -0.0, and the NaN that Java writes."""


def is_normal(items: pa.Array) -> Mask:
    """Which values are in their normal form, to the bit."""
    if not pa.types.is_floating(items.type):
        return np.ones(len(items), np.bool_)
    written, expected = (v.to_numpy(zero_copy_only=False) for v in (items, normal(items)))
    bits = f"i{written.itemsize}"
    same: Mask = written.view(bits) == expected.view(bits)
    return same
