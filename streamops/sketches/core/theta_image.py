"""Samples as bytes: the compact theta sketch of Apache DataSketches.

What is written is its serial version 3, sorted, in little-endian words of 64 bits; what is read is
version 3, sorted or not, and version 4, which is packed, as Spark's functions write it. Byte by
byte: ``docs/state-formats.md``. All images of a column are written and read at once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamops.kernel.errors import SketchFormatError
from streamops.kernel.groups import Ids, Ints, Mask
from streamops.sketches.core.buffers import bytes_of
from streamops.sketches.core.hashes import SEED, murmur3
from streamops.sketches.core.samples import WHOLE, Samples
from streamops.sketches.core.sorting import argsort_rows

__all__ = ["SEED_HASH", "image", "read", "refuse"]

Bytes = npt.NDArray[np.uint8]

SEED_HASH = int(murmur3(np.array([SEED]), seed=0)[0][0]) & 0xFFFF
"""By which an image says with which seed its items were hashed."""

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
    words = preamble + sizes
    ends = np.cumsum(words)
    starts = ends - words
    result = np.empty(int(words.sum()), "<i8")
    result[starts] = first.view("<i8")
    result[starts[preamble > 1] + 1] = sizes[preamble > 1]
    result[starts[preamble > 2] + 2] = theta[preamble > 2]
    result[_hashes_in(len(result), starts, preamble)] = samples.hashes
    # Cast, so that more bytes than a binary array can hold are an error.
    offsets = pa.array(8 * np.append(0, ends)).cast(pa.int32())
    buffers = [None, offsets.buffers()[1], pa.py_buffer(result)]
    return pa.Array.from_buffers(pa.binary(), len(words), buffers)


def _hashes_in(words: int, starts: Ids, preamble: Ints) -> Mask:
    """Which of the words of images are hashes: all but the first one, two or three of each."""
    found = np.ones(words, np.bool_)
    for place in range(3):
        found[starts[preamble > place] + place] = False
    return found


def read(images: pa.Array, *, where: str) -> Samples:
    """The samples of these images, ``binary`` without nulls; every word of them is checked.

    Raises
    ------
    SketchFormatError
        ``SKETCH_CORRUPT``: they are no compact theta sketches, or of another seed.
    """
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
    place = np.empty(len(images), np.int64)
    place[np.concatenate([np.flatnonzero(chosen) for _, chosen in parts])] = np.arange(len(images))
    both = [pa.concat_arrays(pieces).take(pa.array(place)) for pieces in zip(*found, strict=True)]
    return Samples.of(*both)


def refuse(bad: Mask, reason: str, where: str) -> None:
    """Fail where an image is bad, and say which is the first of them."""
    if bad.any():
        first = int(np.argmax(bad))
        raise SketchFormatError(
            "SKETCH_CORRUPT",
            "these bytes are no theta sketch that can be read",
            where=where,
            got=f"{int(np.count_nonzero(bad))} of {len(bad)}, the first is number {first}: {reason}",
            expected="a compact theta sketch, serial version 3 or 4, of seed 9001",
            fix="check which column it is, and whether it was cut or changed on its way",
        )


@dataclass(frozen=True, slots=True)
class _Images:
    """Images side by side, of which the first word is checked.

    Parameters
    ----------
    where : str
        For whom they are read.
    data : array of uint8
        Their bytes.
    starts, sizes : arrays of int64
        Where each begins, and how long it is.
    first : array of uint8, eight columns
        The first word of each.
    """

    where: str
    data: Bytes
    starts: Ints
    sizes: Ints
    first: Bytes

    @staticmethod
    def of(images: pa.Array, where: str) -> _Images:
        refuse(np.asarray(images.is_null()), "it is null", where)
        ends, data = bytes_of(images)
        starts, sizes = ends[:-1], np.diff(ends)
        refuse(sizes < 8, "shorter than 8 bytes", where)
        first = data[starts[:, None] + np.arange(8)]
        found = _Images(where, data, starts, sizes, first)
        refuse(first[:, 2] != _FAMILY, "not of the family of compact theta sketches", where)
        known = (found.version == _PLAIN) | (found.version == _PACKED)
        refuse(~known, "of another serial version", where)
        asked, wanted = _BIG_ENDIAN | _READ_ONLY | _COMPACT, _READ_ONLY | _COMPACT
        refuse(found.flags & asked != wanted, "flags of another kind of sketch", where)
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
        """The samples, if that is what they are."""
        samples = Samples(hashes, sizes, theta)
        owners = samples.owners
        ordered = self.flags & _ORDERED != 0
        outside = (hashes <= 0) | (hashes >= theta[owners])
        self._refuse_hashes(owners[outside], "a hash is not between 0 and theta")
        if not ordered.all():
            by_hash = hashes[argsort_rows(owners, hashes, len(sizes))]
            hashes = np.where(ordered[owners], hashes, by_hash)
        same = (owners[1:] == owners[:-1]) & (hashes[1:] <= hashes[:-1])
        self._refuse_hashes(owners[1:][same], "hashes are not sorted, or there twice")
        return Samples(hashes, sizes, theta)

    def _refuse_hashes(self, owners: Ids, reason: str) -> None:
        self.refuse(np.bincount(owners, minlength=len(self.sizes)) > 0, reason)


def _plain(images: _Images) -> Samples:
    """Serial version 3: a preamble of one to three words, and the hashes."""
    preamble = images.preamble
    images.refuse(images.sizes % 8 != 0, "not of whole words")
    images.refuse((preamble < 1) | (preamble > 3), "a preamble of no known length")
    images.refuse(images.empty & (preamble > 1), "empty, with a preamble for more")
    words = images.data.view("<i8").astype(np.int64)
    starts, sizes = images.starts // 8, images.sizes // 8
    images.refuse(sizes < preamble, "cut within its preamble")
    found = np.where(images.empty, 0, 1)
    found[preamble > 1] = words[starts[preamble > 1] + 1] & 0xFFFFFFFF
    theta = np.full(len(sizes), WHOLE)
    theta[preamble > 2] = words[starts[preamble > 2] + 2]
    images.refuse(theta < 1, "theta is not above 0")
    images.refuse(preamble + found != sizes, "not as long as its number of hashes says")
    return images.checked(words[_hashes_in(len(words), starts, preamble)], found, theta)


def _packed(images: _Images) -> Samples:
    """Serial version 4: the distances between hashes, in as many bits as the largest needs."""
    preamble = images.preamble
    bits, width = images.first[:, 3].astype(np.int64), images.first[:, 4].astype(np.int64)
    images.refuse((preamble < 1) | (preamble > 2), "a preamble of no known length")
    images.refuse((bits < 1) | (bits > 63), "no number of bits that a hash can have")
    images.refuse((width < 1) | (width > 4), "no number of bytes that a count can have")
    images.refuse(images.flags & (_EMPTY | _ORDERED) != _ORDERED, "packed, and not sorted")
    body = 8 * preamble + width
    images.refuse(images.sizes < body, "cut within its preamble")
    data = np.append(
        images.data, np.zeros(16, np.uint8)
    )  # so that nine bytes can be read at the end
    theta = np.full(len(bits), WHOLE)
    with_theta = preamble > 1
    theta[with_theta] = _words(data, "<i8")[images.starts[with_theta] + 8]
    images.refuse(theta < 1, "theta is not above 0")
    count = _words(data, "<i8")[images.starts + 8 * preamble] & ((1 << 8 * width) - 1)
    expected = body + (count * bits + 7) // 8
    images.refuse(images.sizes != expected, "not as long as its number of hashes says")
    owners = np.repeat(np.arange(len(count)), count)
    ends = np.cumsum(count)
    firsts = ends - count
    place = np.arange(len(owners)) - firsts[owners]
    bit = 8 * (images.starts + body)[owners] + place * bits[owners]
    at, over = bit >> 3, (bit & 7).astype(np.uint64)
    eight, ninth = _words(data, ">u8")[at].astype(np.uint64), data[at + 8].astype(np.uint64)
    leading = (eight << over) | (ninth >> (np.uint64(8) - over))
    steps = leading >> (64 - bits[owners]).astype(np.uint64)
    # Summed up over all images modulo 2^64, and what was before an image is taken off again.
    sums = np.cumsum(steps)
    before = np.append(np.uint64(0), sums)[firsts]
    return images.checked((sums - before[owners]).view(np.int64), count, theta)


def _words(data: Bytes, kind: str) -> npt.NDArray[np.generic]:
    """The 64-bit word that begins at each byte."""
    return np.ndarray((len(data) - 7,), kind, data, strides=(1,))
