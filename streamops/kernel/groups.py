"""Groups of rows, and the reductions over groups that aggregates are built from.

``ids[i]`` is the group of row ``i``. All reductions are vectorised over all groups and process
the rows of a group in order: the same rows in the same order give the same bits.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

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
        """Return the same groups over the rows of ``mask`` only; groups may become empty."""
        return Groups(self.ids[mask], self.count)

    def sizes(self) -> Ints:
        """Return the number of rows per group."""
        return np.bincount(self.ids, minlength=self.count).astype(np.int64, copy=False)

    def sum_floats(self, values: Floats) -> Floats:
        """Return the sum per group; 0.0 if it is empty."""
        total = np.bincount(self.ids, weights=values, minlength=self.count)
        return total.astype(np.float64, copy=False)

    def sum_ints(self, values: Ints) -> Ints:
        """Return the exact sum per group; 0 if it is empty.

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
        """Return the sum of decimals per group, ignoring nulls; null for a group without values.

        The result has the type that Arrow chooses. If the type of the values is wide enough, a
        later cast to a narrower type detects an overflow.
        """
        sums = (
            pa.table({"group": pa.array(self.ids), "value": values})
            .group_by("group", use_threads=False)
            .aggregate([("value", "sum")])
            .combine_chunks()
        )
        position = np.full(self.count, len(sums), np.int64)
        position[np.asarray(sums.column("group"))] = np.arange(len(sums))
        index = pa.array(position, mask=position == len(sums))
        return pa.concat_arrays(sums.column("value_sum").chunks or [values[:0]]).take(index)

    def _refuse_overflow(self, values: Ints, wrapped: Ints) -> None:
        # The high and the low 32 bits are summed separately, where neither can overflow (fewer
        # than 2^31 rows), and must give the same result as the 64-bit sum.
        high, low = np.zeros(self.count, np.int64), np.zeros(self.count, np.int64)
        np.add.at(high, self.ids, values >> 32)
        np.add.at(low, self.ids, values & 0xFFFFFFFF)
        if not np.array_equal(high + (low >> 32), wrapped >> 32):
            msg = "a sum does not fit into 64 bits"
            raise OverflowError(msg)

    def least(self, values: Ints) -> Ints:
        """Return the least value per group; no group may be empty."""
        result = np.full(self.count, _LARGEST)
        np.minimum.at(result, self.ids, values)
        return result

    def greatest(self, values: Ints) -> Ints:
        """Return the greatest value per group; no group may be empty."""
        return ~self.least(~values)

    def first_by(self, *order: Ints) -> Ids:
        """Return the position of the row of each group that sorts first by ``order``.

        Of equal rows it is the first one. A group without rows gets -1.
        """
        rows, ids = np.arange(len(self.ids)), self.ids
        for key in order:
            best = np.full(self.count, _LARGEST, np.int64)
            np.minimum.at(best, ids, key[rows])
            ties = key[rows] == best[ids]
            rows, ids = rows[ties], ids[ties]
        position = np.full(self.count, -1, np.int64)
        position[ids[::-1]] = rows[::-1]  # reversed: the first row is written last
        return position


def first_of(ids: Ids, count: int) -> Ids:
    """Return the position of the first row of each group; no group may be empty."""
    # Reversed, so that the first row of a group is written last.
    firsts = np.empty(count, np.int64)
    firsts[ids[::-1]] = np.arange(len(ids) - 1, -1, -1)
    return firsts


def pair_codes(left: Ids, right: Ids) -> Ids:
    """Return one code per pair of codes, equal where both are equal.

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
    # A wide range: number the codes densely first, which is slower.
    (a, _), (b, _) = Groups.of(left), Groups.of(right)
    return a.ids * b.count + b.ids


def ordered_pair_codes(left: Ids, right: Ids) -> Ids:
    """Return one code per pair of codes, in the order of the pairs.

    Examples
    --------
    >>> ordered_pair_codes(np.array([1, 0, 1]), np.array([-7, 2**62, 9])).argsort().tolist()
    [1, 0, 2]
    """
    if not len(left):
        return left
    (lowest, width), (base, span) = _range(left), _range(right)
    if width * span >= _NO_OVERFLOW:  # a wide range: number densely first, which is slower
        left, right = (np.unique(codes, return_inverse=True)[1] for codes in (left, right))
        (lowest, width), (base, span) = _range(left), _range(right)
    return (left - lowest) * span + (right - base)


def running_max(values: Ints, begins: Mask) -> Ints:
    """Return the running maximum, restarted at every row of ``begins`` (and at the first).

    Examples
    --------
    >>> running_max(np.array([3, 1, 5, 2, 4]), np.array([True, False, False, True, False])).tolist()
    [3, 3, 5, 2, 4]
    """
    if not len(values):
        return values
    lowest, span = _range(values)
    runs = np.cumsum(begins) - 1
    if (int(runs[-1]) + 1) * span >= _NO_OVERFLOW:
        # A wide range: use ranks, of which there are no more than values.
        distinct, ranks = np.unique(values, return_inverse=True)
        highest: Ints = distinct[running_max(ranks, begins)]
        return highest
    # Each run is shifted above the previous one, so that one pass computes all of them.
    lift = runs * span - lowest
    maxima: Ints = np.maximum.accumulate(values + lift)
    return maxima - lift


def _range(codes: Ids) -> tuple[int, int]:
    """Return the lowest code, and the width of the range."""
    lowest = int(codes.min())
    return lowest, int(codes.max()) - lowest + 1
