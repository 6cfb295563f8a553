"""Overlaps: how many items audiences have, and how many each two of them share.

Each named audience of a group has a theta sketch. Two samples are compared below the lesser of
their thetas, where both are complete: so what is in both, and in one alone, adds up.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamops.kernel.columns import combine_chunks
from streamops.kernel.groups import Groups, Ids, Ints
from streamops.sketches.core.samples import WHOLE, Samples, beside, compared, lowest
from streamops.sketches.core.sampling import NUMBER, SHARE, number_of, share_of
from streamops.sketches.core.theta import Theta, hashed, merged

__all__ = ["PARTS", "Overlap", "measured", "parts"]

PARTS: tuple[tuple[str, pa.DataType], ...] = (
    ("both", NUMBER),
    ("only_left", NUMBER),
    ("only_right", NUMBER),
    ("either", NUMBER),
    ("jaccard", SHARE),
)
"""What is said of two sets: sizes, and the share of what is in either that is in both."""


def parts(both: Ints, only_left: Ints, only_right: Ints, theta: Ints) -> list[pa.Array]:
    """``PARTS``, of so many hashes found below theta."""
    either = both + only_left + only_right
    sizes = [number_of(found, theta) for found in (both, only_left, only_right, either)]
    return [*sizes, share_of(both, either, theta)]


def measured(left: Samples, right: Samples) -> pa.Array:
    """The two sets of each row, as a struct of ``PARTS``."""
    found = beside(left, right).pair(0, 1)
    return pa.StructArray.from_arrays(parts(*found), fields=list(pa.struct(PARTS)))


@dataclass(frozen=True, slots=True)
class Overlap:
    """Distinct items per audience, and what each two audiences share.

    Parameters
    ----------
    column : str
        The items.
    of : str
        Which audience a row speaks of.
    audiences : Array
        Which of them count, of the type of ``of``; each once.
    k : int
        Hashes per audience.
    """

    column: str
    of: str
    audiences: pa.Array
    k: int

    # One list of hashes per audience, in the order of ``audiences``.
    fields: ClassVar[tuple[tuple[str, pa.DataType], ...]] = (
        ("hashes", pa.list_(pa.list_(pa.int64()))),
        ("theta", pa.list_(pa.int64())),
    )

    @property
    def sketch(self) -> Theta:
        """What is kept of each audience."""
        return Theta(self.column, self.k)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Columns that ``update`` reads."""
        return (self.column, self.of)

    @property
    def result(self) -> pa.DataType:
        """The audiences with their sizes, and the pairs of them with what they share."""
        kind = self.audiences.type
        return pa.struct(
            [
                ("audiences", pa.list_(pa.struct([("audience", kind), *NUMBER]))),
                ("pairs", pa.list_(pa.struct([("left", kind), ("right", kind), *PARTS]))),
            ]
        )

    def update(self, groups: Groups, rows: pa.Table) -> list[pa.Array]:
        """Keep the lowest hashes of each audience of each group."""
        audience = pc.index_in(combine_chunks(rows.column(self.of)), value_set=self.audiences)
        hashes, there = hashed(rows.column(self.column))
        there = there & np.asarray(audience.is_valid())
        numbers = np.asarray(audience.fill_null(0)).astype(np.int64)
        each = self._each(groups.ids[there], groups.count, numbers[there])
        return self._by_group(
            lowest(each, hashes[there], np.full(each.count, WHOLE), self.k).columns()
        )

    def merge(self, groups: Groups, states: Sequence[pa.Array]) -> list[pa.Array]:
        """Unite the lists of each audience, and keep the lowest hashes."""
        width = len(self.audiences)
        numbers = np.tile(np.arange(width), len(groups.ids))
        each = self._each(np.repeat(groups.ids, width), groups.count, numbers)
        return self._by_group(merged(each, [state.flatten() for state in states], self.k))

    def estimate(self, states: Sequence[pa.Array]) -> pa.Array:
        """Sizes of the audiences, by their own thetas; what pairs share, below the lesser one."""
        samples, count, width = self._samples(states), len(states[0]), len(self.audiences)
        pairs = list(combinations(range(width), 2))
        sizes = number_of(samples.sizes, samples.theta)
        audiences = self._lists("audiences", [np.tile(np.arange(width), count)], sizes.flatten())
        beside = compared(samples, width)
        found = [beside.pair(*pair) for pair in pairs]
        # Of each group all pairs, and then of the next one.
        numbers = [np.stack(each, axis=1).ravel() for each in zip(*found, strict=True)]
        named = [np.tile([pair[side] for pair in pairs], count) for side in (0, 1)]
        shared = self._lists("pairs", named, parts(*numbers))
        return pa.StructArray.from_arrays([audiences, shared], fields=list(self.result))

    def _samples(self, states: Sequence[pa.Array]) -> Samples:
        return Samples.of(*(state.flatten() for state in states))

    def _each(self, ids: Ids, count: int, audiences: Ids) -> Groups:
        """The audiences of groups as groups."""
        width = len(self.audiences)
        return Groups(ids * width + audiences, count * width)

    def _by_group(self, columns: Sequence[pa.Array]) -> list[pa.Array]:
        width = len(self.audiences)
        return [_chopped(column, width) for column in columns]

    def _lists(self, part: str, named: Sequence[Ids], values: Sequence[pa.Array]) -> pa.Array:
        kind = self.result.field(part).type
        names = [self.audiences.take(pa.array(numbers)) for numbers in named]
        entries = pa.StructArray.from_arrays([*names, *values], fields=list(kind.value_type))
        width = len(self.audiences) if part == "audiences" else self._pairs
        return _chopped(entries, width)

    @property
    def _pairs(self) -> int:
        width = len(self.audiences)
        return width * (width - 1) // 2


def _chopped(values: pa.Array, width: int) -> pa.Array:
    """Lists of so many values each."""
    offsets = pa.array(np.arange(0, len(values) + 1, width)).cast(pa.int32())
    return pa.ListArray.from_arrays(offsets, values)
