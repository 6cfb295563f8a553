"""Samples of sets: the hashes of each set below its theta, for many sets at once; and their bytes.

Hashes are numbers from 1 to 2^63 - 2, uniformly distributed over the items. So the hashes of a set
below a threshold theta are a random sample of the share theta / 2^63. Samples of two sets below one
threshold can be united, intersected and subtracted like the sets.

The bytes are those of compact theta sketches of Apache DataSketches. Serial version 3, sorted, is
written: little-endian integers of 64 bits. Version 3, sorted or not, and version 4, the packed one of
Spark's functions, are read. Byte by byte: ``docs/state-formats.md``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamops.kernel.aggregation import make_lists
from streamops.kernel.columns import list_items
from streamops.kernel.groups import Floats, Groups, Ids, Ints, Mask
from streamops.sketches.core.buffers import (
    Bytes,
    argsort_rows,
    make_binary,
    refuse_payloads,
    split_binary,
)
from streamops.sketches.core.items import SEED, murmur3
from streamops.sketches.core.sketch import NUMBER

WHOLE = 2**63 - 1
"""Theta of a sample that is the whole set."""


@dataclass(frozen=True, slots=True)
class Samples:
    """The sorted, distinct hashes of each set below its theta, one set after another."""

    hashes: Ints
    """Above 0, and below the theta of their set."""
    sizes: Ints
    """Number of hashes per set."""
    theta: Ints
    """The sample of each set has all its hashes below this one."""

    @staticmethod
    def of(hashes: pa.Array, theta: pa.Array) -> Samples:
        """The samples in these columns: lists of hashes, and theta."""
        sizes, flat = list_items(hashes)
        return Samples(np.asarray(flat), sizes, np.asarray(theta))

    @property
    def owners(self) -> Ids:
        """The number of each hash's set."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    def columns(self) -> list[pa.Array]:
        """As columns: lists of hashes, and theta."""
        lists = make_lists(pa.array(self.hashes, pa.int64()), self.sizes)
        return [lists, pa.array(self.theta, pa.int64())]


def lowest(groups: Groups, hashes: Ints, theta: Ints, at_most: int) -> Samples:
    """The samples of groups: their lowest hashes below theta, at most so many.

    Hashes are in any order and may be repeated. If there are more, theta becomes the lowest hash that is
    left out. So a sample depends on the set and its theta only, not on how the set was partitioned.
    """
    ids = groups.ids
    below = hashes < theta[ids]
    if not below.all():
        ids, hashes = ids[below], hashes[below]
    rows = argsort_rows(ids, hashes, groups.count)
    ids, hashes = ids[rows], hashes[rows]
    new = ~_as_before(ids, hashes)
    if not new.all():
        ids, hashes = ids[new], hashes[new]
    sizes = np.bincount(ids, minlength=groups.count).astype(np.int64, copy=False)
    full = np.flatnonzero(sizes > at_most)
    if len(full):
        starts = np.cumsum(sizes) - sizes
        theta = theta.copy()
        theta[full] = hashes[starts[full] + at_most]
        hashes = hashes[np.arange(len(hashes)) - starts[ids] < at_most]
        sizes = np.minimum(sizes, at_most)
    return Samples(hashes, sizes, theta)


def united(groups: Groups, samples: Samples, at_most: int) -> Samples:
    """The samples of the unions of the groups' sets."""
    theta = groups.least(samples.theta)  # the maximum, WHOLE, without sets
    ids = np.repeat(groups.ids, samples.sizes)
    return lowest(Groups(ids, groups.count), samples.hashes, theta, at_most)


def _as_before(ids: Ids, hashes: Ints) -> Mask:
    """Whether a hash is equal to the one before it, of the same group."""
    same = np.zeros(len(ids), np.bool_)
    same[1:] = (hashes[1:] == hashes[:-1]) & (ids[1:] == ids[:-1])
    return same


@dataclass(frozen=True, slots=True)
class Compared:
    """The distinct hashes of rows of sets, sorted by row and hash."""

    ids: Ids
    hashes: Ints
    within: Ints
    """Bit i is set if the hash is in the i-th set of its row."""
    theta: Ints
    """One row per row of sets, one column per set."""

    def pair(self, left: int, right: int) -> tuple[Ints, Ints, Ints, Ints]:
        """Hashes of two sets of each row below the smaller theta: in both, left only, right only.

        The fourth array is this theta.
        """
        theta: Ints = np.minimum(self.theta[:, left], self.theta[:, right])
        sides = (self.within >> left & 1) + 2 * (self.within >> right & 1)
        below = self.hashes < theta[self.ids]
        found = np.bincount((4 * self.ids + sides)[below], minlength=4 * len(theta))
        _, only_left, only_right, both = found.reshape(-1, 4).T
        return both, only_left, only_right, theta

    def where(self, inside: Sequence[int], outside: Sequence[int] = ()) -> Samples:
        """Samples of the items that are in all sets of the first list and in none of the second."""
        theta: Ints = self.theta[:, [*inside, *outside]].min(axis=1)
        wanted = sum(1 << i for i in inside)
        relevant = wanted | sum(1 << i for i in outside)
        chosen = (self.within & relevant == wanted) & (self.hashes < theta[self.ids])
        sizes = np.bincount(self.ids[chosen], minlength=len(theta)).astype(np.int64, copy=False)
        return Samples(self.hashes[chosen], sizes, theta)

    def either(self, at_most: int) -> Samples:
        """Samples of the unions of all sets of a row: their lowest hashes, at most so many."""
        theta: Ints = self.theta.min(axis=1)
        return lowest(Groups(self.ids, len(theta)), self.hashes, theta, at_most)


def compared(samples: Samples, width: int) -> Compared:
    """Sets compared in rows of this width, at most 62; one row after another."""
    owners = samples.owners
    theta = samples.theta.reshape(-1, width)
    return _compared(samples.hashes, owners // width, owners % width, theta)


def beside(left: Samples, right: Samples) -> Compared:
    """The sets of both, compared row by row."""
    hashes = np.concatenate([left.hashes, right.hashes])
    ids = np.concatenate([left.owners, right.owners])
    sets = np.repeat([0, 1], [len(left.hashes), len(right.hashes)])
    return _compared(hashes, ids, sets, np.stack([left.theta, right.theta], axis=1))


def _compared(hashes: Ints, ids: Ids, sets: Ids, theta: Ints) -> Compared:
    rows = argsort_rows(ids, hashes, len(theta))
    ids, hashes = ids[rows], hashes[rows]
    bits = np.int64(1) << sets[rows]
    firsts = np.flatnonzero(~_as_before(ids, hashes))
    within = np.bitwise_or.reduceat(bits, firsts) if len(firsts) else bits
    return Compared(ids[firsts], hashes[firsts], within, theta)


SHARE = pa.struct([("estimate", pa.float64()), ("lower", pa.float64()), ("upper", pa.float64())])
"""An estimated share, and its bounds."""

_ERRORS = 2.0  # standard errors between estimate and bounds
_LARGEST = 2.0**63 - 1024  # the largest double that is an int64


def number(found: Ints, theta: Ints) -> Ints:
    """Estimated sizes of sets with this number of hashes below theta.

    Examples
    --------
    >>> number(np.array([7, 7]), np.array([WHOLE, 2**60])).tolist()
    [7, 56]
    """
    return _whole(np.rint(found / _probability(theta)))


def bounds(found: Ints, theta: Ints) -> tuple[Ints, Ints]:
    """Bounds of the sizes of sets, with a confidence of 95 %; exact for a whole set.

    Examples
    --------
    >>> [bound.tolist() for bound in bounds(np.array([7, 4096]), np.array([WHOLE, 2**60]))]
    [[7, 31820], [7, 33745]]
    """
    p = _probability(theta)
    spread = _ERRORS * np.sqrt((1 - p) / p)
    lower = _edge(np.maximum(found - 0.5, 0) / p, spread, -1)
    upper = _edge((found + 0.5) / p, spread, +1)
    whole = theta == WHOLE
    lower = np.where(whole, found, np.maximum(np.floor(lower), found))
    return _whole(lower), _whole(np.where(whole, found, np.ceil(upper)))


def _edge(centre: Floats, spread: Floats, side: int) -> Floats:
    """The N for which (N - centre)^2 = spread^2 N."""
    distance = spread / 2 * np.sqrt(spread**2 + 4 * centre)
    edge: Floats = centre + spread**2 / 2 + side * distance
    return edge


def relative_error(found: Ints, theta: Ints) -> Floats:
    """Relative standard error, at most 1 / sqrt(found - 1); 0 for a whole set, NaN without hashes."""
    error = np.sqrt((1 - _probability(theta)) / np.maximum(found - 1, 1))
    return np.where((found == 0) & (theta < WHOLE), np.nan, error)


def number_of(found: Ints, theta: Ints) -> pa.Array:
    """Estimate, bounds and error of the sizes of sets, as ``NUMBER``."""
    error = relative_error(found, theta)
    parts = [pa.array(part) for part in (number(found, theta), *bounds(found, theta))]
    parts.append(pa.array(error, mask=np.isnan(error)))
    return pa.StructArray.from_arrays(parts, fields=list(NUMBER))


def share_of(found: Ints, among: Ints, theta: Ints) -> pa.Array:
    """The share of the items of a set that have a property, as ``SHARE``; null for an empty sample.

    ``found`` of ``among`` hashes below theta have the property.
    """
    whole, empty = theta == WHOLE, among == 0
    n = np.maximum(among, 1)
    # Without the variance of the part that was sampled.
    spread = np.where(whole, 0.0, _ERRORS**2 * (1 - _probability(theta)))
    step = np.where(whole, 0.0, 0.5)
    lower = _score(np.maximum(found - step, 0), n, spread, -1)
    upper = _score(np.minimum(found + step, n), n, spread, +1)
    unknown = empty & ~whole
    parts = [
        pa.array(found / n, mask=empty),
        pa.array(np.where(unknown, 0.0, np.maximum(lower, 0.0)), mask=empty & whole),
        pa.array(np.where(unknown, 1.0, np.minimum(upper, 1.0)), mask=empty & whole),
    ]
    return pa.StructArray.from_arrays(parts, fields=list(SHARE))


def _score(found: Floats, n: Ints, spread: Floats, side: int) -> Floats:
    distance = np.sqrt(spread * (spread / 4 + found * (1 - found / n)))
    edge: Floats = (found + spread / 2 + side * distance) / (n + spread)
    return edge


def _probability(theta: Ints) -> Floats:
    return theta / 2.0**63


def _whole(numbers: Floats) -> Ints:
    return np.minimum(numbers, _LARGEST).astype(np.int64)


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


def read(images: pa.Array) -> Samples:
    """The samples of these images, ``binary`` without nulls; every word is checked."""
    head = _Images.of(images)
    packed = head.version == _PACKED
    if not packed.any():
        return _plain(head)
    if packed.all():
        return _packed(head)
    parts = [(_plain, ~packed), (_packed, packed)]
    found = [
        unpack(_Images.of(images.filter(pa.array(chosen)))).columns() for unpack, chosen in parts
    ]
    index = np.empty(len(images), np.int64)
    index[np.concatenate([np.flatnonzero(chosen) for _, chosen in parts])] = np.arange(len(images))
    both = [pa.concat_arrays(pieces).take(pa.array(index)) for pieces in zip(*found, strict=True)]
    return Samples.of(*both)


def refuse(wrong: Mask, reason: str) -> None:
    """Raise ``SKETCH_CORRUPT`` if an image is wrong."""
    expected = "a compact theta sketch, serial version 3 or 4, of seed 9001"
    refuse_payloads(wrong, reason, expected=expected)


@dataclass(frozen=True, slots=True)
class _Images:
    """Images in one buffer, with verified first words: eight columns of bytes."""

    data: Bytes
    starts: Ints
    sizes: Ints
    first: Bytes

    @staticmethod
    def of(images: pa.Array) -> _Images:
        refuse(np.asarray(images.is_null()), "it is null")
        ends, data = split_binary(images)
        starts, sizes = ends[:-1], np.diff(ends)
        refuse(sizes < 8, "shorter than 8 bytes")
        first = data[starts[:, None] + np.arange(8)]
        found = _Images(data, starts, sizes, first)
        refuse(first[:, 2] != _FAMILY, "not of the family of compact theta sketches")
        known = (found.version == _PLAIN) | (found.version == _PACKED)
        refuse(~known, "of another serial version")
        mask, expected = _BIG_ENDIAN | _READ_ONLY | _COMPACT, _READ_ONLY | _COMPACT
        refuse(found.flags & mask != expected, "flags of another type of sketch")
        # Spark writes no seed into an empty sketch.
        seed = first[:, 6].astype(np.int64) | first[:, 7].astype(np.int64) << 8
        refuse((seed != SEED_HASH) & ~found.empty, "its items were hashed with another seed")
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
        refuse(bad, reason)

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
