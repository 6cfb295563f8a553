"""Quantiles of numbers by KLL sketches.

The parameter, the capacities, the bytes (``kll_doubles``) and the rank error are those of Apache
DataSketches. Two things differ: rows are inserted in bulk, sorted, into many sketches at once; and coins
are hashed from the content of a sketch instead of drawn.

NaN is a value, and the greatest, as in ``aggregates.percentile``; Apache's sketches ignore it.

References
----------
Karnin, Lang, Liberty: "Optimal Quantile Approximation in Streams", FOCS 2016.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa

from streamops.kernel.aggregation import list_sizes, make_lists
from streamops.kernel.columns import combine_chunks, plain_floats, to_doubles
from streamops.kernel.errors import located
from streamops.kernel.groups import Floats, Groups, Ids, Ints
from streamops.sketches import conditions
from streamops.sketches.core import kll_levels
from streamops.sketches.core.buffers import argsort_groups
from streamops.sketches.core.kll_levels import Runs, by_size, compact, equal_sizes, extremes
from streamops.sketches.core.sketch import ColumnSketch, Format, Parameter

_NO_OVERFLOW = 1 << 62


def rank_error(k: int, *, mass: bool = False) -> float:
    """Maximum error of a rank, or with ``mass`` of a difference of ranks, with a confidence of 99 %.

    As a share of all values. Apache DataSketches fitted it to the maximum errors of thousands of trials.

    Examples
    --------
    >>> round(rank_error(200), 4), round(rank_error(200, mass=True), 4)
    (0.0133, 0.0165)
    """
    return float(2.446 / k**0.9433 if mass else 2.296 / k**0.9723)


@dataclass(frozen=True, slots=True)
class View:
    """The items of sketches, sorted by sketch and value, with their cumulative weights."""

    items: Floats
    sketch: Ids
    """The sketch of each item."""
    below: Ints
    """Number of values that the items up to this one represent, including those of earlier sketches."""
    base: Ints
    """Number of values of the earlier sketches, by sketch."""
    count: Ints
    """Number of values of each sketch, 1 or more."""
    least: Floats
    greatest: Floats
    error: Floats
    """Rank error of each sketch."""

    def at(self, shares: Floats) -> Floats:
        """The quantiles of each sketch for a matrix of shares, sketches x quantiles, clipped to [0, 1].

        A quantile is the least value that such a share of the values does not exceed.
        """
        position = self._positions(shares)
        found = self.items[np.searchsorted(self.below, self.base[:, None] + position)]
        # The first and the last value are exact.
        found = np.where(position == 1, self.least[:, None], found)
        return np.where(position == self.count[:, None], self.greatest[:, None], found)

    def _positions(self, shares: Floats) -> Ints:
        rank = np.clip(shares, 0.0, 1.0) * self.count[:, None]
        near = np.rint(rank)
        # 0.07 * 100 is a little above 7 as a double: the seventh value.
        whole = np.abs(rank - near) <= rank * 2.0**-50
        return np.clip(
            np.where(whole, near, np.ceil(rank)).astype(np.int64), 1, self.count[:, None]
        )

    def ranks(self, points: Floats) -> Floats:
        """The share of the values of each sketch that do not exceed each point."""
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
    """The items of states; and the state, the level and the length of each run of items."""
    _, _, items, sizes = states
    heights = list_sizes(sizes)
    length = np.asarray(sizes.flatten()).astype(np.int64)
    level = np.arange(len(length)) - np.repeat(np.cumsum(heights) - heights, heights)
    state = np.repeat(np.arange(len(sizes)), heights)
    held = length > 0
    return np.asarray(items.flatten()), state[held], level[held], length[held]


def make_view(states: Sequence[pa.Array], k: int) -> View:
    """The view of states, none of which is empty; ``STATE_FULL`` if they represent 2^62 values."""
    items, _, levels, sizes = unpack(states)
    if (2.0**levels * sizes).sum() >= _NO_OVERFLOW:
        raise conditions.SKETCHES_FULL.error(
            at="sketches.quantiles",
            got=f"{len(states[0]):,} sketches of {(2.0**levels * sizes).sum():.3g} values",
        )
    stored, heights = list_sizes(states[2]), list_sizes(states[3])
    weights = np.repeat(1 << levels, sizes)
    sketches = np.arange(len(stored))
    if (heights > 1).any():
        # Sort the items of each sketch, as rows of one matrix per size.
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


_NUMBERS = pa.list_(pa.float64())
STATE = (
    ("least", pa.float64()),
    ("greatest", pa.float64()),
    ("items", _NUMBERS),
    ("sizes", pa.list_(pa.int32())),
)
ANSWER = pa.struct(
    [
        ("estimate", _NUMBERS),
        ("lower", _NUMBERS),
        ("upper", _NUMBERS),
        ("rank_error", pa.float64()),
        ("count", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True)
class QuantileSketch(ColumnSketch):
    """A sketch of numbers, and the probabilities of the quantiles that it estimates.

    It stores all of up to k values, and about 3 k items of more.
    """

    column: str
    k: int = 200
    probabilities: tuple[float, ...] = (0.5,)

    format: ClassVar[Format] = Format("kll", 1)
    merges_exactly: ClassVar[bool] = False
    fields: ClassVar[tuple[tuple[str, pa.DataType], ...]] = STATE
    result: ClassVar[pa.DataType] = ANSWER
    image_types: ClassVar[tuple[str, ...]] = (*kll_levels.ITEMS,)

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """The size, without the probabilities."""
        return {"k": self.k}

    def update(self, groups: Groups, rows: pa.Table) -> list[pa.Array]:
        """Sketch the values of each group that are not null."""
        column = combine_chunks(rows.column(self.column))
        if column.null_count:
            groups, column = groups.where(np.asarray(column.is_valid())), column.drop_null()
        values = plain_floats(to_doubles(column))
        ids, count = groups.ids, groups.count
        if not (ids[1:] >= ids[:-1]).all():
            order = argsort_groups(ids, count)
            values, ids = values[order], ids[order]
        held = np.bincount(ids, minlength=count)
        present = np.flatnonzero(held)
        sizes, level = held[present], np.zeros(len(present), np.int64)
        least, greatest = np.zeros(count), np.zeros(count)
        if len(present):
            starts = np.cumsum(sizes) - sizes
            with np.errstate(invalid="ignore"):  # a NaN is compared
                least[present] = np.fmin.reduceat(values, starts)
                greatest[present] = np.maximum.reduceat(values, starts)
        items, table = compact(values, present, level, sizes, count, self.k, is_sorted=False)
        return _states(least, greatest, items, table)

    def merge(self, groups: Groups, states: Sequence[pa.Array]) -> list[pa.Array]:
        """Join the levels of each group's members, and compact those with too many items."""
        return self._merge(groups, states, is_sorted=True)

    def _merge(
        self, groups: Groups, states: Sequence[pa.Array], *, is_sorted: bool
    ) -> list[pa.Array]:
        items, state, levels, sizes = unpack(states)
        present = np.asarray(states[0].is_valid())
        ids, count = groups.ids, groups.count
        items, table = compact(items, ids[state], levels, sizes, count, self.k, is_sorted=is_sorted)
        least, greatest = (np.asarray(extreme.filter(pa.array(present))) for extreme in states[:2])
        return _states(*extremes(ids[present], least, greatest, count), items, table)

    def estimate(self, states: Sequence[pa.Array]) -> pa.Array:
        """The quantiles, their bounds, the rank error, and the number of values.

        A quantile is a value that occurs, as in Spark's ``percentile_disc``.
        """
        present, view = self._view(states)
        quantiles, lower, upper = (self._quantiles(present, view, side) for side in (0, -1, 1))
        error, count = np.zeros(len(present)), np.zeros(len(present), np.int64)
        error[present], count[present] = view.error, view.count
        columns = [quantiles, lower, upper, pa.array(error), pa.array(count)]
        return pa.StructArray.from_arrays(columns, fields=list(ANSWER))

    def bounds(self, states: Sequence[pa.Array]) -> tuple[pa.Array, pa.Array]:
        """Bounds of the true quantiles, for all of them with a confidence of 99 %."""
        present, view = self._view(states)
        return self._quantiles(present, view, -1), self._quantiles(present, view, 1)

    def ranks(self, states: Sequence[pa.Array], points: Sequence[float]) -> pa.Array:
        """The shares of the values that do not exceed each point, as lists."""
        present, view = self._view(states)
        found = view.ranks(np.array(points, np.float64))
        return make_lists(pa.array(found.ravel()), present * len(points), ~present)

    def payload(self, states: Sequence[pa.Array]) -> pa.Array:
        """Each state in the format of Apache DataSketches, its lowest level sorted."""
        return kll_levels.write(states, self.k)

    @located(at="sketches.kll")
    def revive(self, payloads: pa.Array) -> list[pa.Array]:
        """The states of payloads; every byte is checked."""
        return _states(*kll_levels.read(payloads, self.k))

    def images(self, states: Sequence[pa.Array]) -> pa.Array:
        """The payloads, which Apache DataSketches and Spark read; ``SKETCH_UNSUPPORTED`` if one has a NaN."""
        kll_levels.refuse_nan(states)
        return self.payload(states)

    def from_images(self, images: pa.Array, *, dtype: str | None = None) -> list[pa.Array]:
        """The states of sketches of Apache DataSketches or Spark with the same ``k``."""
        states = _states(*kll_levels.read(images, self.k, foreign=True, dtype=dtype))
        # Their lowest level need not be sorted.
        return self._merge(Groups(np.arange(len(images)), len(images)), states, is_sorted=False)

    def _view(self, states: Sequence[pa.Array]) -> tuple[np.ndarray, View]:
        present = list_sizes(states[2]) > 0
        if not present.all():
            states = [column.filter(pa.array(present)) for column in states]
        return present, make_view(states, self.k)

    def _quantiles(self, present: np.ndarray, view: View, side: int) -> pa.Array:
        shares = np.array(self.probabilities)[None, :] + side * view.error[:, None]
        found = view.at(shares)
        return make_lists(pa.array(found.ravel()), present * len(self.probabilities), ~present)


def _states(least: Floats, greatest: Floats, items: Floats, sizes: Ints) -> list[pa.Array]:
    stored = sizes.sum(axis=1)
    empty = stored == 0
    # Levels up to the highest with an item.
    used = np.cumsum(sizes[:, ::-1], axis=1)[:, ::-1] > 0
    levels = pa.array(sizes[used].astype(np.int32))
    return [
        pa.array(least, mask=empty),
        pa.array(greatest, mask=empty),
        make_lists(pa.array(items), stored),
        make_lists(levels, used.sum(axis=1)),
    ]
