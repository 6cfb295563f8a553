"""What KLL sketches say of their values: quantiles and ranks, of many sketches at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamops.kernel.errors import CapacityError
from streamops.kernel.group_states import list_sizes
from streamops.kernel.groups import Floats, Ids, Ints
from streamops.sketches.core.kll_levels import Runs, by_size, equal_sizes

__all__ = ["View", "rank_error", "unpack", "viewed"]

_NO_OVERFLOW = 1 << 62


def rank_error(k: int, *, mass: bool = False) -> float:
    """How far a rank is off at most, as a part of all values, with a confidence of 99 %.

    Apache's figure, fitted to the 99th percentile of the greatest errors of thousands of trials.

    Parameters
    ----------
    k : int
    mass : bool
        Of the difference of two ranks: of how many values lie between two points.

    Examples
    --------
    >>> round(rank_error(200), 4), round(rank_error(200, mass=True), 4)
    (0.0133, 0.0165)
    """
    return float(2.446 / k**0.9433 if mass else 2.296 / k**0.9723)


@dataclass(frozen=True, slots=True)
class View:
    """The items of sketches in order, each with how many values are not above it.

    Parameters
    ----------
    items : array of float64
        Of one sketch after another, ascending.
    sketch : array of int64
        Of which one.
    below : array of int64
        For how many values stand all items up to this one: of its sketch, and of those before.
    base : array of int64
        For how many stand those of the sketches before.
    count : array of int64
        Values of each sketch, 1 or more.
    least, greatest : arrays of float64
        Of its values.
    error : array of float64
        How far a rank may be off.
    """

    items: Floats
    sketch: Ids
    below: Ints
    base: Ints
    count: Ints
    least: Floats
    greatest: Floats
    error: Floats

    def at(self, shares: Floats) -> Floats:
        """Of each sketch the least value that such a share of its values does not exceed.

        Parameters
        ----------
        shares : array, sketches x questions
            From 0 to 1; what is beyond is the nearest of these.
        """
        position = self._positions(shares)
        found = self.items[np.searchsorted(self.below, self.base[:, None] + position)]
        # The first and the last value are known, whatever was left out.
        found = np.where(position == 1, self.least[:, None], found)
        return np.where(position == self.count[:, None], self.greatest[:, None], found)

    def _positions(self, shares: Floats) -> Ints:
        place = np.clip(shares, 0.0, 1.0) * self.count[:, None]
        near = np.rint(place)
        # 0.07 * 100 is a little above 7 as a double, and still the seventh value.
        whole = np.abs(place - near) <= place * 2.0**-50
        return np.clip(
            np.where(whole, near, np.ceil(place)).astype(np.int64), 1, self.count[:, None]
        )

    def ranks(self, points: Floats) -> Floats:
        """What share of the values of each sketch is not above each point."""
        weight = np.diff(self.below, prepend=0)
        result = np.empty((len(self.count), len(points)))
        for i, point in enumerate(points):
            inside = (self.items <= point) | np.isnan(point)
            total = np.zeros(len(self.count), np.int64)
            np.add.at(total, self.sketch[inside], weight[inside])
            total[(self.least <= point) & (total == 0)] = 1
            beyond = (self.greatest <= point) | np.isnan(point)
            result[:, i] = np.where(beyond, 1.0, np.minimum(total, self.count - 1) / self.count)
        return result


def unpack(states: Sequence[pa.Array]) -> tuple[Floats, Ids, Ids, Ints]:
    """The items of states; of each run of items its state, its level and its length."""
    _, _, items, sizes = states
    heights = list_sizes(sizes)
    length = np.asarray(sizes.flatten()).astype(np.int64)
    level = np.arange(len(length)) - np.repeat(np.cumsum(heights) - heights, heights)
    state = np.repeat(np.arange(len(sizes)), heights)
    held = length > 0
    return np.asarray(items.flatten()), state[held], level[held], length[held]


def viewed(states: Sequence[pa.Array], k: int) -> View:
    """The view of states, none of which is empty.

    Raises
    ------
    CapacityError
        ``SKETCH_FULL``: together they stand for more values than can be counted.
    """
    items, _, levels, sizes = unpack(states)
    if (2.0**levels * sizes).sum() >= _NO_OVERFLOW:
        raise CapacityError(
            "SKETCH_FULL",
            "so many values cannot be counted together",
            where="sketches.quantiles",
            got=f"{len(states[0]):,} sketches of {(2.0**levels * sizes).sum():.3g} values",
            expected="fewer than 2^62 values",
            fix="query fewer sketches at a time; these were hardly made of rows",
        )
    stored, heights = list_sizes(states[2]), list_sizes(states[3])
    weights = np.repeat(1 << levels, sizes)
    sketches = np.arange(len(stored))
    if (heights > 1).any():
        # Levels are sorted, and now a sketch. They are ordered by size, as rows of matrices.
        sketches = by_size(stored, np.ones(len(stored), np.bool_))
        items = Runs(items, stored).take(sketches)
        weights = Runs(weights.view(np.float64), stored).take(sketches).view(np.int64)
        for size, _, part in equal_sizes(stored[sketches]):
            rows, of_rows = items[part].reshape(-1, size), weights[part].reshape(-1, size)
            order = np.argsort(rows, axis=1)
            items[part] = np.take_along_axis(rows, order, axis=1).ravel()
            weights[part] = np.take_along_axis(of_rows, order, axis=1).ravel()
    below = np.cumsum(weights)
    ends = below[np.cumsum(stored[sketches]) - 1]
    base, count = np.empty(len(stored), np.int64), np.empty(len(stored), np.int64)
    count[sketches] = np.diff(ends, prepend=0)
    base[sketches] = ends - count[sketches]
    return View(
        items,
        np.repeat(sketches, stored[sketches]),
        below,
        base,
        count,
        np.asarray(states[0]),
        np.asarray(states[1]),
        np.where(heights > 1, rank_error(k), 0.0),
    )
