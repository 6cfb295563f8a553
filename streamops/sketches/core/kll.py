"""Quantiles by KLL sketches: which value a share of the values does not exceed, in little memory.

As Apache DataSketches has it, over doubles: the same parameter, the same room, the same bytes
(``kll_doubles``), and the same promise about ranks. What differs is how many sketches are kept at
once, and where chance comes from: rows enter in bulk, sorted, and coins are hashed from content.

NaN is a value, and the greatest, as in the exact ``quantiles``; Apache's sketches leave it out.

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

from streamops.kernel.columns import combine_chunks, to_doubles
from streamops.kernel.group_states import list_sizes, make_lists
from streamops.kernel.groups import Floats, Groups, Ints
from streamops.sketches.core import kll_bytes
from streamops.sketches.core.contract import Format, Parameter
from streamops.sketches.core.kll_levels import compact, extremes
from streamops.sketches.core.kll_view import View, unpack, viewed
from streamops.sketches.core.sorting import argsort_groups

__all__ = ["ANSWER", "STATE", "QuantileSketch"]

_WHERE = "sketches.kll"
_NUMBERS = pa.list_(pa.float64())
STATE = (
    ("least", pa.float64()),
    ("greatest", pa.float64()),
    ("items", _NUMBERS),
    ("sizes", pa.list_(pa.int32())),
)
ANSWER = pa.struct(
    [
        ("quantiles", _NUMBERS),
        ("lower", _NUMBERS),
        ("upper", _NUMBERS),
        ("rank_error", pa.float64()),
        ("count", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True)
class QuantileSketch:
    """A sketch of numbers, and which quantiles are asked of it.

    Parameters
    ----------
    column : str
    k : int
        From 8 to 65535. Up to so many values are all kept; of more, no more than about 3 k.
    probabilities : tuple of float
        From 0 to 1.
    """

    column: str
    k: int = 200
    probabilities: tuple[float, ...] = (0.5,)

    format: ClassVar[Format] = Format("kll", 1)
    merges_exactly: ClassVar[bool] = False
    fields: ClassVar[tuple[tuple[str, pa.DataType], ...]] = STATE
    result: ClassVar[pa.DataType] = ANSWER

    @property
    def inputs(self) -> tuple[str, ...]:
        """Columns that ``update`` reads."""
        return (self.column,)

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """What two sketches must have in common: not what is asked of them."""
        return {"k": self.k}

    def update(self, groups: Groups, rows: pa.Table) -> list[pa.Array]:
        """Sketch the values of each group; null is none."""
        column = combine_chunks(rows.column(self.column))
        if column.null_count:
            groups, column = groups.where(np.asarray(column.is_valid())), column.drop_null()
        values = kll_bytes.plain(to_doubles(column))
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
        """Join the levels of each group's members, and compact those that hold too many items."""
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
        """The quantiles, what they lie between, and of how many values.

        A quantile is a value that occurs: the least one that such a share of the values does not
        exceed, as in Spark's ``percentile_disc``. While no value was left out, that is exact.
        """
        there, view = self._viewed(states)
        quantiles, lower, upper = (self._asked(there, view, side) for side in (0, -1, 1))
        error, count = np.zeros(len(there)), np.zeros(len(there), np.int64)
        error[there], count[there] = view.error, view.count
        columns = [quantiles, lower, upper, pa.array(error), pa.array(count)]
        return pa.StructArray.from_arrays(columns, fields=list(ANSWER))

    def bounds(self, states: Sequence[pa.Array]) -> tuple[pa.Array, pa.Array]:
        """Between which values the true quantiles lie, all of them, with a confidence of 99 %."""
        there, view = self._viewed(states)
        return self._asked(there, view, -1), self._asked(there, view, 1)

    def ranks(self, states: Sequence[pa.Array], points: Sequence[float]) -> pa.Array:
        """What share of the values is not above each of these points: lists, as long as they."""
        there, view = self._viewed(states)
        found = view.ranks(np.array(points, np.float64))
        return make_lists(pa.array(found.ravel()), there * len(points), ~there)

    def payload(self, states: Sequence[pa.Array]) -> pa.Array:
        """Each state in Apache's format, its lowest level sorted."""
        return kll_bytes.write(states, self.k)

    def revive(self, payloads: pa.Array) -> list[pa.Array]:
        """The states again.

        Raises
        ------
        SketchFormatError
            ``SKETCH_CORRUPT``: they are not what ``payload`` writes.
        """
        return _states(*kll_bytes.read(payloads, self.k, where=_WHERE))

    def images(self, states: Sequence[pa.Array]) -> pa.Array:
        """Each state as Apache's libraries and Spark read it: the payload.

        Raises
        ------
        SketchFormatError
            ``SKETCH_HAS_NAN``: their sketches have none.
        """
        kll_bytes.refuse_nan(states)
        return self.payload(states)

    def from_images(self, images: pa.Array, *, where: str = _WHERE) -> list[pa.Array]:
        """The states of sketches that Apache's libraries or Spark made, with the same ``k``.

        Raises
        ------
        SketchFormatError
            ``SKETCH_CORRUPT``: they are no such sketches.
        """
        states = _states(*kll_bytes.read(images, self.k, where=where, foreign=True))
        # The lowest level of theirs need not be sorted.
        return self._merge(Groups(np.arange(len(images)), len(images)), states, is_sorted=False)

    def _viewed(self, states: Sequence[pa.Array]) -> tuple[np.ndarray, View]:
        there = list_sizes(states[2]) > 0
        if not there.all():
            states = [each.filter(pa.array(there)) for each in states]
        return there, viewed(states, self.k)

    def _asked(self, there: np.ndarray, view: View, side: int) -> pa.Array:
        shares = np.array(self.probabilities)[None, :] + side * view.error[:, None]
        found = view.at(shares)
        return make_lists(pa.array(found.ravel()), there * len(self.probabilities), ~there)


def _states(least: Floats, greatest: Floats, items: Floats, sizes: Ints) -> list[pa.Array]:
    kept = sizes.sum(axis=1)
    empty = kept == 0
    # Levels up to the highest that has an item.
    used = np.cumsum(sizes[:, ::-1], axis=1)[:, ::-1] > 0
    levels = pa.array(sizes[used].astype(np.int32))
    return [
        pa.array(least, mask=empty),
        pa.array(greatest, mask=empty),
        make_lists(pa.array(items), kept),
        make_lists(levels, used.sum(axis=1)),
    ]
