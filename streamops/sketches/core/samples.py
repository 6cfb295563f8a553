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
from streamops.kernel.groups import Groups, Ids, Ints, Mask
from streamops.sketches.core.sorting import argsort_rows

__all__ = [
    "WHOLE",
    "Compared",
    "Samples",
    "beside",
    "compared",
    "lowest",
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
        asked = wanted | sum(1 << i for i in outside)
        chosen = (self.within & asked == wanted) & (self.hashes < theta[self.ids])
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
