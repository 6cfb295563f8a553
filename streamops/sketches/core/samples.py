"""Samples of sets: the hashes of each set below its theta, for many sets at once.

Hashes are numbers from 1 to 2^63 - 2, uniformly distributed over the items. So the hashes of a set
below a threshold theta are a random sample of the share theta / 2^63. Samples of two sets below one
threshold can be united, intersected and subtracted like the sets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamops.kernel.columns import list_items
from streamops.kernel.group_states import make_lists
from streamops.kernel.groups import Floats, Groups, Ids, Ints, Mask
from streamops.sketches.core.buffers import argsort_rows
from streamops.sketches.core.sketch import NUMBER

__all__ = [
    "SHARE",
    "WHOLE",
    "Compared",
    "Samples",
    "beside",
    "bounds",
    "compared",
    "lowest",
    "number",
    "number_of",
    "relative_error",
    "share_of",
    "united",
]

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
