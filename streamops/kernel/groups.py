"""Groups of rows, and the few reductions over them that every aggregate is made of.

``ids[i]`` is the group of row ``i``. All reductions are vectorised over all groups, and they
take the rows of a group in the order in which they stand: the same rows in the same order
give the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = [
    "Floats",
    "Groups",
    "Ids",
    "Ints",
    "Mask",
    "first_of",
    "ordered_pair_codes",
    "pair_codes",
    "running_max",
]

Ids = npt.NDArray[np.int64]
Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Mask = npt.NDArray[np.bool_]

_NO_OVERFLOW = 1 << 62
_LARGEST = np.iinfo(np.int64).max


@dataclass(frozen=True, slots=True)
class Groups:
    """Rows assigned to ``count`` groups numbered from 0.

    Examples
    --------
    >>> groups = Groups(np.array([0, 1, 0]), 2)
    >>> groups.sizes().tolist(), groups.sum_ints(np.array([1, 2, 3])).tolist()
    ([2, 1], [4, 2])
    """

    ids: Ids
    count: int

    @staticmethod
    def of(codes: Ids) -> tuple[Groups, Ids]:
        """Number the distinct codes in order of first appearance.

        Returns
        -------
        groups : Groups
        firsts : array of int
            Position of the first row of each group.
        """
        encoded = pc.dictionary_encode(pa.array(codes))
        ids = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64, copy=False)
        count = len(encoded.dictionary)
        return Groups(ids, count), first_of(ids, count)

    def where(self, mask: Mask) -> Groups:
        """The same groups over the rows of ``mask`` only (a group may become empty)."""
        return Groups(self.ids[mask], self.count)

    def sizes(self) -> Ints:
        """Rows per group."""
        return np.bincount(self.ids, minlength=self.count).astype(np.int64, copy=False)

    def sum_floats(self, values: Floats) -> Floats:
        """Sum per group; 0.0 for an empty one."""
        total = np.bincount(self.ids, weights=values, minlength=self.count)
        return total.astype(np.float64, copy=False)

    def sum_ints(self, values: Ints) -> Ints:
        """Exact sum per group; 0 for an empty one.

        Raises
        ------
        OverflowError
            A sum does not fit into 64 bits.
        """
        total = np.zeros(self.count, np.int64)
        np.add.at(total, self.ids, values)
        if (
            len(values)
            and max(abs(int(values.min())), abs(int(values.max()))) * len(values) >= _NO_OVERFLOW
        ):
            self._refuse_overflow(values, total)
        return total

    def sum_decimals(self, values: pa.Array) -> pa.Array:
        """Sum per group of decimals, nulls left out; null for a group without any.

        As wide as Arrow makes it: with room enough in the values' type, what does not fit into
        another is seen when it is cast, and not wrapped around.
        """
        sums = (
            pa.table({"group": pa.array(self.ids), "value": values})
            .group_by("group", use_threads=False)
            .aggregate([("value", "sum")])
            .combine_chunks()
        )
        place = np.full(self.count, len(sums), np.int64)
        place[np.asarray(sums.column("group"))] = np.arange(len(sums))
        index = pa.array(place, mask=place == len(sums))
        return pa.concat_arrays(sums.column("value_sum").chunks or [values[:0]]).take(index)

    def _refuse_overflow(self, values: Ints, wrapped: Ints) -> None:
        # The high and the low 32 bits are summed apart, where neither can overflow (fewer
        # than 2^31 rows), and must say the same as the 64-bit sum.
        high, low = np.zeros(self.count, np.int64), np.zeros(self.count, np.int64)
        np.add.at(high, self.ids, values >> 32)
        np.add.at(low, self.ids, values & 0xFFFFFFFF)
        if not np.array_equal(high + (low >> 32), wrapped >> 32):
            msg = "a sum does not fit into 64 bits"
            raise OverflowError(msg)

    def least(self, values: Ints) -> Ints:
        """Least value per group, none of which is empty."""
        result = np.full(self.count, _LARGEST)
        np.minimum.at(result, self.ids, values)
        return result

    def greatest(self, values: Ints) -> Ints:
        """Greatest value per group, none of which is empty."""
        return ~self.least(~values)

    def first_by(self, *order: Ints) -> Ids:
        """Position of the row of each group that sorts first by ``order``.

        Equal rows: the one that stands first. A group without rows gets -1.
        """
        rows, ids = np.arange(len(self.ids)), self.ids
        for key in order:
            best = np.full(self.count, _LARGEST, np.int64)
            np.minimum.at(best, ids, key[rows])
            ties = key[rows] == best[ids]
            rows, ids = rows[ties], ids[ties]
        position = np.full(self.count, -1, np.int64)
        position[ids[::-1]] = rows[::-1]  # from behind: the first one is written last and stays
        return position


def first_of(ids: Ids, count: int) -> Ids:
    """Position of the first row of each group from 0 to ``count``, none of which is empty."""
    # Written from behind, so that the first row of a group is written last and stays.
    firsts = np.empty(count, np.int64)
    firsts[ids[::-1]] = np.arange(len(ids) - 1, -1, -1)
    return firsts


def pair_codes(left: Ids, right: Ids) -> Ids:
    """One code per pair of codes: equal where both are equal.

    Examples
    --------
    >>> pair_codes(np.array([0, 0, 1]), np.array([7, 9, 7])).tolist()
    [0, 2, 3]
    """
    if not len(left):
        return left
    (lowest, width), (base, span) = _range(left), _range(right)
    if width * span < _NO_OVERFLOW:
        return (left - lowest) * span + (right - base)
    # Far apart: numbered densely first, which takes longer.
    (a, _), (b, _) = Groups.of(left), Groups.of(right)
    return a.ids * b.count + b.ids


def ordered_pair_codes(left: Ids, right: Ids) -> Ids:
    """One code per pair of codes, which sort as the pairs do.

    Examples
    --------
    >>> ordered_pair_codes(np.array([1, 0, 1]), np.array([-7, 2**62, 9])).argsort().tolist()
    [1, 0, 2]
    """
    if not len(left):
        return left
    (lowest, width), (base, span) = _range(left), _range(right)
    if width * span >= _NO_OVERFLOW:  # far apart: numbered densely first, which takes longer
        left, right = (np.unique(codes, return_inverse=True)[1] for codes in (left, right))
        (lowest, width), (base, span) = _range(left), _range(right)
    return (left - lowest) * span + (right - base)


def running_max(values: Ints, begins: Mask) -> Ints:
    """The greatest value so far, starting anew at each row of ``begins`` (the first is one).

    Examples
    --------
    >>> running_max(np.array([3, 1, 5, 2, 4]), np.array([True, False, False, True, False])).tolist()
    [3, 3, 5, 2, 4]
    """
    if not len(values):
        return values
    lowest, span = _range(values)
    segments = np.cumsum(begins) - 1
    if (int(segments[-1]) + 1) * span >= _NO_OVERFLOW:
        # Far apart: by their ranks, of which there are no more than values.
        distinct, ranks = np.unique(values, return_inverse=True)
        highest: Ints = distinct[running_max(ranks, begins)]
        return highest
    # Each segment is lifted above the one before, so that one pass does for all of them.
    lift = segments * span - lowest
    reached: Ints = np.maximum.accumulate(values + lift)
    return reached - lift


def _range(codes: Ids) -> tuple[int, int]:
    """The lowest code, and how many there can be."""
    lowest = int(codes.min())
    return lowest, int(codes.max()) - lowest + 1
