"""The one hash of all sketches: of a value's typed bytes, the same in every process and language.

A value is hashed by Spark's ``xxhash64`` to a 64-bit integer: its *item*. A sketch then treats
the item as Apache DataSketches treats a long: by MurmurHash3 (x64, 128 bits, seed 9001). So a
sketch of ours over ``c`` is the sketch that Spark's own functions make of ``xxhash64(c)``, to the
bit, and the two may be merged. Null is no item.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamops.kernel.columns import combine_chunks
from streamops.kernel.groups import Ints, Mask
from streamops.kernel.hashing import xxhash64

__all__ = ["SEED", "items", "murmur3"]

Hashes = npt.NDArray[np.uint64]

SEED = 9001
"""The seed that Apache DataSketches, and Spark with it, gives to MurmurHash3."""

_C1, _C2 = np.uint64(0x87C37B91114253D5), np.uint64(0x4CF5AD432745937F)


def items(column: pa.Array | pa.ChunkedArray) -> tuple[Ints, Mask]:
    """The item of each value, and where there is one.

    Returns
    -------
    hashes : array of int64
        ``xxhash64`` of the value, any number where it is null.
    valid : array of bool

    Raises
    ------
    SchemaError
        ``KEY_NOT_HASHABLE``: Spark does not hash the type.
    """
    array = combine_chunks(column)
    return xxhash64([array]), np.asarray(array.is_valid())


def murmur3(items: Ints, *, seed: int = SEED) -> tuple[Hashes, Hashes]:
    """MurmurHash3 of 64-bit integers, as its two halves.

    A. Appleby, MurmurHash3_x64_128 (2011), of the eight little-endian bytes of a long.

    Examples
    --------
    >>> [hex(int(half[0])) for half in murmur3(np.array([1]))]
    ['0xb430d7b96fbf22b', '0xe8ea0960d4246765']
    """
    # Eight bytes are no whole block of sixteen: all of them are the tail.
    first = _rotate(items.astype(np.int64, copy=False).view(np.uint64) * _C1, 31) * _C2
    one, two = first ^ np.uint64(seed) ^ np.uint64(8), np.full_like(first, seed ^ 8)
    one = one + two
    two = two + one
    one, two = _mixed(one), _mixed(two)
    one = one + two
    return one, two + one


def _mixed(hashes: Hashes) -> Hashes:
    hashes = (hashes ^ (hashes >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    hashes = (hashes ^ (hashes >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return hashes ^ (hashes >> np.uint64(33))


def _rotate(hashes: Hashes, left: int) -> Hashes:
    return (hashes << np.uint64(left)) | (hashes >> np.uint64(64 - left))
