"""Rows in the order of (hash of the key, time): what a step looks for partners in.

The order is by a hash that is the same in every process, so that rows which were written into a
checkpoint in this order are in this order when they are read. Two keys can have one hash: who
looks for rows by it compares the keys of what was found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamops.kernel.columns import rows_differ
from streamops.kernel.groups import Ids, Mask
from streamops.kernel.hashing import xxhash64
from streamops.kernel.time import Instants

__all__ = ["Line", "expanded", "hashed", "same_keys"]

_BORDERS: tuple[Literal["left"], Literal["right"]] = ("left", "right")


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
        lows, highs = (np.searchsorted(self.hashes, hashes, side) for side in _BORDERS)
        return self._position(lows, highs, since), self._position(lows, highs, until + 1)

    def _position(self, lows: Ids, highs: Ids, times: Instants) -> Ids:
        """The first place, in a span of one hash, of a row that is not before a time."""
        starts = lows.copy()
        left = np.flatnonzero(lows < highs)
        lows, highs, times = lows[left], highs[left], times[left]
        while len(left):  # as often as the longest span can be halved
            middle = (lows + highs) >> 1
            before = self.times[middle] < times
            lows, highs = np.where(before, middle + 1, lows), np.where(before, highs, middle)
            more = lows < highs
            starts[left] = lows
            left, lows, highs, times = left[more], lows[more], highs[more], times[more]
        return starts

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
        positions = self.spans(other.hashes, other.times, other.times)[1] + np.arange(len(other))
        ours = np.ones(len(order), np.bool_)
        ours[positions] = False
        order[positions] = count + np.arange(len(other))
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
        dtype = one.type
        if pa.types.is_nested(dtype) or pa.types.is_floating(dtype) or pa.types.is_null(dtype):
            same &= ~rows_differ([one], [other]) & np.asarray(one.is_valid())
        else:
            same &= pc.equal(one, other).fill_null(False).to_numpy(zero_copy_only=False)
    return same
