"""Samples of sets: of each set the hashes below its theta; many sets at once.

A hash is a number from 1 to 2^63 - 2, spread evenly over the items. So the hashes of a set that
lie below a threshold theta are a fair sample of it, of the share theta / 2^63; and samples of
two sets below one threshold can be united, intersected and subtracted like the sets.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamops.kernel.columns import list_items
from streamops.kernel.group_states import make_lists
from streamops.kernel.groups import Floats, Groups, Ids, Ints, Mask
from streamops.sketches.core.sorting import argsort_rows

__all__ = [
    "NUMBER",
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
    """Of each set the hashes below its theta, sorted and distinct, one set below another.

    Parameters
    ----------
    hashes : array of int64
        Above 0, below the theta of their set.
    sizes : array of int64
        Hashes per set.
    theta : array of int64
        Below which all hashes of the set are in the sample.
    """

    hashes: Ints
    sizes: Ints
    theta: Ints

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
    """The samples of the groups over these hashes: no more than so many, the lowest.

    Theta is then the lowest hash that was left out. So a sample depends on nothing but the set
    and theta as it was: it is the same however the set was dealt out before.

    Parameters
    ----------
    groups : Groups
        Of the hashes, which may be in any order, and several times there.
    theta : array of int64
        Of each group; hashes that are not below are left out.
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
    theta = groups.least(samples.theta)  # of no set: the greatest number, which is WHOLE
    ids = np.repeat(groups.ids, samples.sizes)
    return lowest(Groups(ids, groups.count), samples.hashes, theta, at_most)


def _as_before(ids: Ids, hashes: Ints) -> Mask:
    """Where a hash is the one before it, of the same group."""
    same = np.zeros(len(ids), np.bool_)
    same[1:] = (hashes[1:] == hashes[:-1]) & (ids[1:] == ids[:-1])
    return same


@dataclass(frozen=True, slots=True)
class Compared:
    """The hashes of several sets beside one another: each once, and in which sets it is.

    Parameters
    ----------
    ids, hashes : arrays of int64
        Row of sets and hash, sorted by both.
    within : array of int64
        Bit i says whether the hash is in the i-th set of its row.
    theta : array of int64, one row per row of sets, one column per set
    """

    ids: Ids
    hashes: Ints
    within: Ints
    theta: Ints

    def pair(self, left: int, right: int) -> tuple[Ints, Ints, Ints, Ints]:
        """What two sets of each row have in common, below the theta up to which both are known.

        Returns
        -------
        both, only_left, only_right : arrays of int64
            How many hashes are in both, and in one of them only.
        theta : array of int64
        """
        theta: Ints = np.minimum(self.theta[:, left], self.theta[:, right])
        where = (self.within >> left & 1) + 2 * (self.within >> right & 1)
        below = self.hashes < theta[self.ids]
        found = np.bincount((4 * self.ids + where)[below], minlength=4 * len(theta))
        _, only_left, only_right, both = found.reshape(-1, 4).T
        return both, only_left, only_right, theta

    def where(self, inside: Sequence[int], outside: Sequence[int] = ()) -> Samples:
        """Samples of what is in all sets of the first kind and in none of the second."""
        theta: Ints = self.theta[:, [*inside, *outside]].min(axis=1)
        wanted = sum(1 << i for i in inside)
        relevant = wanted | sum(1 << i for i in outside)
        chosen = (self.within & relevant == wanted) & (self.hashes < theta[self.ids])
        sizes = np.bincount(self.ids[chosen], minlength=len(theta)).astype(np.int64, copy=False)
        return Samples(self.hashes[chosen], sizes, theta)

    def either(self, at_most: int) -> Samples:
        """Samples of the unions of all sets of a row: no more than so many hashes, the lowest."""
        theta: Ints = self.theta.min(axis=1)
        return lowest(Groups(self.ids, len(theta)), self.hashes, theta, at_most)


def compared(samples: Samples, width: int) -> Compared:
    """Rows of so many sets, compared within each row; one row below another.

    At most 62 sets make a row.
    """
    owners = samples.owners
    theta = samples.theta.reshape(-1, width)
    return _compared(samples.hashes, owners // width, owners % width, theta)


def beside(left: Samples, right: Samples) -> Compared:
    """The sets of the one, and in the same row those of the other."""
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


NUMBER = pa.struct(
    [
        ("estimate", pa.int64()),
        ("lower", pa.int64()),
        ("upper", pa.int64()),
        ("relative_error", pa.float64()),
    ]
)
"""A number of items, between which bounds it lies, and its relative standard error."""

SHARE = pa.struct([("estimate", pa.float64()), ("lower", pa.float64()), ("upper", pa.float64())])
"""A share, and between which bounds it lies."""

_ERRORS = 2.0  # how many standard errors the bounds are away
_LARGEST = 2.0**63 - 1024  # the largest double that is an int64


def number(found: Ints, theta: Ints) -> Ints:
    """How many items the sets have of which so many were found below theta.

    Examples
    --------
    >>> number(np.array([7, 7]), np.array([WHOLE, 2**60])).tolist()
    [7, 56]
    """
    return _whole(np.rint(found / _probability(theta)))


def bounds(found: Ints, theta: Ints) -> tuple[Ints, Ints]:
    """Between which numbers that of the items lies, in 95 cases of 100; exactly, in a whole set.

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
    reach = spread / 2 * np.sqrt(spread**2 + 4 * centre)
    edge: Floats = centre + spread**2 / 2 + side * reach
    return edge


def relative_error(found: Ints, theta: Ints) -> Floats:
    """Standard error of the estimate, as a part of it; NaN where nothing was found.

    It is 0 for a whole set, and not above 1 / sqrt(found - 1).
    """
    error = np.sqrt((1 - _probability(theta)) / np.maximum(found - 1, 1))
    return np.where((found == 0) & (theta < WHOLE), np.nan, error)


def number_of(found: Ints, theta: Ints) -> pa.Array:
    """All of this, as ``NUMBER``."""
    error = relative_error(found, theta)
    parts = [pa.array(part) for part in (number(found, theta), *bounds(found, theta))]
    parts.append(pa.array(error, mask=np.isnan(error)))
    return pa.StructArray.from_arrays(parts, fields=list(NUMBER))


def share_of(found: Ints, among: Ints, theta: Ints) -> pa.Array:
    """Which share of the items of a set has something that so many of the sampled ones have.

    Returns
    -------
    array of ``SHARE``
        The estimate is null where the sample is empty.
    """
    whole, nothing = theta == WHOLE, among == 0
    n = np.maximum(among, 1)
    # Of a finite set: what was sampled is known.
    spread = np.where(whole, 0.0, _ERRORS**2 * (1 - _probability(theta)))
    step = np.where(whole, 0.0, 0.5)
    lower = _score(np.maximum(found - step, 0), n, spread, -1)
    upper = _score(np.minimum(found + step, n), n, spread, +1)
    unknown = nothing & ~whole
    parts = [
        pa.array(found / n, mask=nothing),
        pa.array(np.where(unknown, 0.0, np.maximum(lower, 0.0)), mask=nothing & whole),
        pa.array(np.where(unknown, 1.0, np.minimum(upper, 1.0)), mask=nothing & whole),
    ]
    return pa.StructArray.from_arrays(parts, fields=list(SHARE))


def _score(found: Floats, n: Ints, spread: Floats, side: int) -> Floats:
    reach = np.sqrt(spread * (spread / 4 + found * (1 - found / n)))
    edge: Floats = (found + spread / 2 + side * reach) / (n + spread)
    return edge


def _probability(theta: Ints) -> Floats:
    return theta / 2.0**63


def _whole(numbers: Floats) -> Ints:
    return np.minimum(numbers, _LARGEST).astype(np.int64)
