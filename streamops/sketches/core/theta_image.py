"""Samples as bytes: the compact theta sketch of Apache DataSketches.

Serial version 3, sorted, is written: little-endian words of 64 bits. Version 3, sorted or not, and
version 4, the packed one of Spark's functions, are read. Byte by byte: ``docs/state-formats.md``. All
images of a column are written and read at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamops.kernel.groups import Ids, Ints, Mask
from streamops.sketches.core.buffers import (
    Bytes,
    argsort_rows,
    make_binary,
    refuse_payloads,
    split_binary,
)
from streamops.sketches.core.items import SEED, murmur3
from streamops.sketches.core.samples import WHOLE, Samples

__all__ = ["SEED_HASH", "image", "read", "refuse"]

SEED_HASH = int(murmur3(np.array([SEED]), seed=0)[0][0]) & 0xFFFF
"""Identifies the seed of the hashes of an image."""

_PLAIN, _PACKED = 3, 4  # serial versions
_FAMILY = 3  # compact theta sketches
_BIG_ENDIAN, _READ_ONLY, _EMPTY, _COMPACT, _ORDERED = 1, 2, 4, 8, 16


def image(samples: Samples) -> pa.Array:
    """Each sample as bytes: ``binary``, without nulls.

    Examples
    --------
    >>> nothing = Samples(np.array([], np.int64), np.array([0]), np.array([WHOLE]))
    >>> image(nothing)[0].as_py().hex(" ")
    '01 03 03 00 00 1e cc 93'
    """
    sizes, theta = samples.sizes, samples.theta
    whole, one = theta == WHOLE, sizes == 1
    preamble = np.where(whole, np.where(one | (sizes == 0), 1, 2), 3)
    flags = _READ_ONLY | _COMPACT | _ORDERED | np.where(whole & (sizes == 0), _EMPTY, 0)
    first = (preamble | _PLAIN << 8 | _FAMILY << 16 | flags << 40).astype("<u8")
    first |= np.uint64(SEED_HASH << 48)
    longs = preamble + sizes
    ends = np.cumsum(longs)
    starts = ends - longs
    result = np.empty(int(longs.sum()), "<i8")
    result[starts] = first.view("<i8")
    result[starts[preamble > 1] + 1] = sizes[preamble > 1]
    result[starts[preamble > 2] + 2] = theta[preamble > 2]
    result[_hashes_in(len(result), starts, preamble)] = samples.hashes
    return make_binary(8 * np.append(0, ends), result)


def _hashes_in(longs: int, starts: Ids, preamble: Ints) -> Mask:
    """Which words of images are hashes: all but the one, two or three words of their preambles."""
    found = np.ones(longs, np.bool_)
    for word in range(3):
        found[starts[preamble > word] + word] = False
    return found


def read(images: pa.Array, *, where: str) -> Samples:
    """The samples of these images, ``binary`` without nulls; every word is checked."""
    head = _Images.of(images, where)
    packed = head.version == _PACKED
    if not packed.any():
        return _plain(head)
    if packed.all():
        return _packed(head)
    parts = [(_plain, ~packed), (_packed, packed)]
    found = [
        unpack(_Images.of(images.filter(pa.array(chosen)), where)).columns()
        for unpack, chosen in parts
    ]
    index = np.empty(len(images), np.int64)
    index[np.concatenate([np.flatnonzero(chosen) for _, chosen in parts])] = np.arange(len(images))
    both = [pa.concat_arrays(pieces).take(pa.array(index)) for pieces in zip(*found, strict=True)]
    return Samples.of(*both)


def refuse(wrong: Mask, reason: str, where: str) -> None:
    """Raise ``SKETCH_CORRUPT`` if an image is wrong."""
    expected = "a compact theta sketch, serial version 3 or 4, of seed 9001"
    refuse_payloads(wrong, reason, where=where, expected=expected)


@dataclass(frozen=True, slots=True)
class _Images:
    """Images in one buffer, with verified first words: eight columns of bytes. `where` is for errors."""

    where: str
    data: Bytes
    starts: Ints
    sizes: Ints
    first: Bytes

    @staticmethod
    def of(images: pa.Array, where: str) -> _Images:
        refuse(np.asarray(images.is_null()), "it is null", where)
        ends, data = split_binary(images)
        starts, sizes = ends[:-1], np.diff(ends)
        refuse(sizes < 8, "shorter than 8 bytes", where)
        first = data[starts[:, None] + np.arange(8)]
        found = _Images(where, data, starts, sizes, first)
        refuse(first[:, 2] != _FAMILY, "not of the family of compact theta sketches", where)
        known = (found.version == _PLAIN) | (found.version == _PACKED)
        refuse(~known, "of another serial version", where)
        mask, expected = _BIG_ENDIAN | _READ_ONLY | _COMPACT, _READ_ONLY | _COMPACT
        refuse(found.flags & mask != expected, "flags of another type of sketch", where)
        # Spark writes no seed into an empty sketch.
        seed = first[:, 6].astype(np.int64) | first[:, 7].astype(np.int64) << 8
        refuse((seed != SEED_HASH) & ~found.empty, "its items were hashed with another seed", where)
        return found

    @property
    def preamble(self) -> Ints:
        return self.first[:, 0].astype(np.int64) & 0x3F

    @property
    def version(self) -> Bytes:
        return self.first[:, 1]

    @property
    def flags(self) -> Bytes:
        return self.first[:, 5]

    @property
    def empty(self) -> Mask:
        found: Mask = self.flags & _EMPTY != 0
        return found

    def refuse(self, bad: Mask, reason: str) -> None:
        refuse(bad, reason, self.where)

    def checked(self, hashes: Ints, sizes: Ints, theta: Ints) -> Samples:
        """The samples, if their hashes are valid."""
        samples = Samples(hashes, sizes, theta)
        owners = samples.owners
        ordered = self.flags & _ORDERED != 0
        outside = (hashes <= 0) | (hashes >= theta[owners])
        self._refuse_hashes(owners[outside], "a hash is not between 0 and theta")
        if not ordered.all():
            by_hash = hashes[argsort_rows(owners, hashes, len(sizes))]
            hashes = np.where(ordered[owners], hashes, by_hash)
        same = (owners[1:] == owners[:-1]) & (hashes[1:] <= hashes[:-1])
        self._refuse_hashes(owners[1:][same], "hashes are not sorted, or repeated")
        return Samples(hashes, sizes, theta)

    def _refuse_hashes(self, owners: Ids, reason: str) -> None:
        self.refuse(np.bincount(owners, minlength=len(self.sizes)) > 0, reason)


def _plain(images: _Images) -> Samples:
    """Serial version 3: a preamble of one to three words, and the hashes."""
    preamble = images.preamble
    images.refuse(images.sizes % 8 != 0, "not a multiple of 8 bytes")
    images.refuse((preamble < 1) | (preamble > 3), "a preamble of no known length")
    images.refuse(images.empty & (preamble > 1), "empty, with a preamble for more")
    longs = images.data.view("<i8").astype(np.int64)
    starts, sizes = images.starts // 8, images.sizes // 8
    images.refuse(sizes < preamble, "cut within its preamble")
    found = np.where(images.empty, 0, 1)
    found[preamble > 1] = longs[starts[preamble > 1] + 1] & 0xFFFFFFFF
    theta = np.full(len(sizes), WHOLE)
    theta[preamble > 2] = longs[starts[preamble > 2] + 2]
    images.refuse(theta < 1, "theta is not above 0")
    images.refuse(preamble + found != sizes, "another length than its number of hashes has")
    return images.checked(longs[_hashes_in(len(longs), starts, preamble)], found, theta)


def _packed(images: _Images) -> Samples:
    """Serial version 4: the distances between hashes, in as many bits as the largest needs."""
    preamble = images.preamble
    bits, width = images.first[:, 3].astype(np.int64), images.first[:, 4].astype(np.int64)
    images.refuse((preamble < 1) | (preamble > 2), "a preamble of no known length")
    images.refuse((bits < 1) | (bits > 63), "bits of a hash out of range")
    images.refuse((width < 1) | (width > 4), "bytes of a count out of range")
    images.refuse(images.flags & (_EMPTY | _ORDERED) != _ORDERED, "packed, and not sorted")
    body = 8 * preamble + width
    images.refuse(images.sizes < body, "cut within its preamble")
    # Padded, so that nine bytes can be read at the end.
    data = np.append(images.data, np.zeros(16, np.uint8))
    theta = np.full(len(bits), WHOLE)
    with_theta = preamble > 1
    theta[with_theta] = _longs(data, "<i8")[images.starts[with_theta] + 8]
    images.refuse(theta < 1, "theta is not above 0")
    count = _longs(data, "<i8")[images.starts + 8 * preamble] & ((1 << 8 * width) - 1)
    expected = body + (count * bits + 7) // 8
    images.refuse(images.sizes != expected, "another length than its number of hashes has")
    owners = np.repeat(np.arange(len(count)), count)
    ends = np.cumsum(count)
    firsts = ends - count
    rank = np.arange(len(owners)) - firsts[owners]
    bit = 8 * (images.starts + body)[owners] + rank * bits[owners]
    at, over = bit >> 3, (bit & 7).astype(np.uint64)
    eight, ninth = _longs(data, ">u8")[at].astype(np.uint64), data[at + 8].astype(np.uint64)
    leading = (eight << over) | (ninth >> (np.uint64(8) - over))
    steps = leading >> (64 - bits[owners]).astype(np.uint64)
    # A running sum over all images modulo 2^64, minus the sum before each image.
    sums = np.cumsum(steps)
    before = np.append(np.uint64(0), sums)[firsts]
    return images.checked((sums - before[owners]).view(np.int64), count, theta)


def _longs(data: Bytes, dtype: str) -> npt.NDArray[np.generic]:
    """The 64-bit word that begins at each byte."""
    return np.ndarray((len(data) - 7,), dtype, data, strides=(1,))
