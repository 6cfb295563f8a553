"""Rows in the order of (hash of the key, time): what a step looks for partners in.

The order is by a hash that is the same in every process, so that rows which were written into a
checkpoint in this order are in this order when they are read. Two keys can have one hash: who
looks for rows by it compares the keys of what was found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamops.kernel.columns import changed
from streamops.kernel.groups import Ids, Mask, in_order
from streamops.kernel.hashing import xxhash64
from streamops.kernel.time import Instants

__all__ = ["Line", "expanded", "hashed", "same_keys"]


@dataclass(frozen=True, slots=True)
class Line:
    """Hashes and times of rows, ascending by both.

    Parameters
    ----------
    hashes, times : arrays of int64
    """

    hashes: Ids
    times: Instants

    def __len__(self) -> int:
        return len(self.hashes)

    def spans(self, hashes: Ids, since: Instants, until: Instants) -> tuple[Ids, Ids]:
        """Where the rows of a hash with a time in ``[since, until]`` stand, both ends included.

        Returns
        -------
        starts, ends : arrays of int64
            Half-open; ``ends`` is where a row at ``until`` would be put behind its equals.

        Examples
        --------
        >>> line = Line(np.array([3, 3, 3, 8]), np.array([10, 20, 30, 5]))
        >>> asked = np.array([3, 3, 7]), np.array([15, 20, 0]), np.array([30, 20, 99])
        >>> [each.tolist() for each in line.spans(*asked)]
        [[1, 1, 3], [3, 2, 3]]
        """
        if not len(self) or not len(hashes):
            nowhere = np.zeros(len(hashes), np.int64)
            return nowhere, nowhere
        heads = np.append(True, self.hashes[1:] != self.hashes[:-1])
        distinct = self.hashes[heads]
        run = np.searchsorted(distinct, hashes)
        known = distinct[np.minimum(run, len(distinct) - 1)] == hashes
        # Even numbers lie between the runs: there belongs a hash that no row has.
        asked = 2 * run + known
        own = 2 * np.cumsum(heads) - 1
        first, last = int(self.times.min()), int(self.times.max())
        bounds = (np.clip(each, first - 1, last + 1) for each in (since, until))
        codes = in_order(np.concatenate([own, asked, asked]), np.concatenate([self.times, *bounds]))
        mine, since, until = np.split(codes, [len(own), len(own) + len(asked)])
        return np.searchsorted(mine, since), np.searchsorted(mine, until, "right")

    def merged(self, other: Line) -> tuple[Line, Ids]:
        """Both as one; equal rows of this one first.

        Returns
        -------
        line : Line
        order : array of int64
            For each place in it the row that stands there; those of the other are numbered
            behind ours.
        """
        count = len(self)
        order = np.empty(count + len(other), np.int64)
        places = self.spans(other.hashes, other.times, other.times)[1] + np.arange(len(other))
        ours = np.ones(len(order), np.bool_)
        ours[places] = False
        order[places] = count + np.arange(len(other))
        order[ours] = np.arange(count)
        hashes = np.concatenate([self.hashes, other.hashes])[order]
        return Line(hashes, np.concatenate([self.times, other.times])[order]), order


def expanded(starts: Ids, ends: Ids) -> tuple[Ids, Ids]:
    """The places of many spans, one below another.

    Returns
    -------
    which : array of int64
        The span of each place.
    places : array of int64

    Examples
    --------
    >>> [each.tolist() for each in expanded(np.array([4, 9, 0]), np.array([6, 9, 1]))]
    [[0, 0, 2], [4, 5, 0]]
    """
    sizes = ends - starts
    which = np.repeat(np.arange(len(sizes)), sizes)
    before = np.cumsum(sizes) - sizes
    return which, np.arange(len(which)) + np.repeat(starts - before, sizes)


def hashed(keys: Sequence[pa.Array], rows: int) -> Ids:
    """A hash for each row; without key columns all rows have the same."""
    return xxhash64(keys) if keys else np.zeros(rows, np.int64)


def same_keys(left: Sequence[pa.Array], right: Sequence[pa.Array], rows: int) -> Mask:
    """Where all columns are equal, and none is null; NaN equals NaN, as in Spark's joins."""
    same = np.ones(rows, np.bool_)
    for one, other in zip(left, right, strict=True):
        kind = one.type
        if pa.types.is_nested(kind) or pa.types.is_floating(kind) or pa.types.is_null(kind):
            same &= ~changed([one], [other]) & np.asarray(one.is_valid())
        else:
            same &= pc.equal(one, other).fill_null(False).to_numpy(zero_copy_only=False)
    return same
