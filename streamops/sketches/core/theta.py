"""Theta sketches: how many distinct items, and of two sketches how many they share.

The rule is bottom-k, also called KMV: of the hashes of a group's items the k lowest are kept, and
theta is the lowest of the others. So the state is a function of the set of items alone. A merge
is a union of the lists, the least of the thetas, and the same rule again.

References: Z. Bar-Yossef et al., "Counting Distinct Elements in a Data Stream", 2002; K. Beyer et
al., "On Synopses for Distinct-Value Estimation Under Multiset Operations", 2007; A. Dasgupta et
al., "A Framework for Estimating Stream Expression Cardinalities", 2016.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamops.kernel.columns import combine_chunks
from streamops.kernel.group_states import merge_groups
from streamops.kernel.groups import Groups, Ids, Ints, Mask
from streamops.sketches.core import samples
from streamops.sketches.core.contract import Format, Parameter
from streamops.sketches.core.hashes import items, murmur3
from streamops.sketches.core.samples import (
    NUMBER,
    SHARE,
    WHOLE,
    Samples,
    beside,
    bounds,
    compared,
    lowest,
    number_of,
    share_of,
)
from streamops.sketches.core.theta_image import image, read, refuse

__all__ = ["FIELDS", "PARTS", "Overlap", "Theta", "hashed", "measured", "merged", "parts"]

FIELDS = (("hashes", pa.list_(pa.int64())), ("theta", pa.int64()))
"""Columns of samples as state: the hashes below theta, sorted; theta, 2^63 - 1 for a whole set."""


@dataclass(frozen=True, slots=True)
class Theta:
    """Distinct items of a column: at most k hashes per group.

    Parameters
    ----------
    column : str
    k : int
        A power of two. The relative standard error is not above 1 / sqrt(k - 1).
    """

    column: str
    k: int

    format: ClassVar[Format] = Format("theta", 1)
    fields: ClassVar[tuple[tuple[str, pa.DataType], ...]] = FIELDS
    result: ClassVar[pa.DataType] = NUMBER

    @property
    def inputs(self) -> tuple[str, ...]:
        """Columns that ``update`` reads."""
        return (self.column,)

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """What two sketches must have in common to be merged."""
        return {"k": self.k}

    def update(self, groups: Groups, rows: pa.Table) -> list[pa.Array]:
        """Keep the lowest hashes of each group."""
        hashes, there = hashed(rows.column(self.column))
        theta = np.full(groups.count, WHOLE)
        return lowest(groups.where(there), hashes[there], theta, self.k).columns()

    def merge(self, groups: Groups, states: Sequence[pa.Array]) -> list[pa.Array]:
        """Unite the lists, and keep the lowest hashes."""
        return merged(groups, states, self.k)

    def estimate(self, states: Sequence[pa.Array]) -> pa.Array:
        """How many there are, exactly while no more than k; bounds; the standard error."""
        samples = Samples.of(*states)
        return number_of(samples.sizes, samples.theta)

    def bounds(self, states: Sequence[pa.Array]) -> tuple[pa.Array, pa.Array]:
        """Between which numbers the truth lies: two standard errors."""
        samples = Samples.of(*states)
        lower, upper = bounds(samples.sizes, samples.theta)
        return pa.array(lower), pa.array(upper)

    def payload(self, states: Sequence[pa.Array]) -> pa.Array:
        """Each state as the compact theta sketch of Apache DataSketches."""
        return image(Samples.of(*states))

    def revive(self, payloads: pa.Array) -> list[pa.Array]:
        """The states again, of bytes that ``payload`` would write, and of no others.

        Raises
        ------
        SketchFormatError
            ``SKETCH_CORRUPT``.
        """
        where = f"sketches.{self.format.kind}"
        samples = read(payloads, where=where)
        refuse(samples.sizes > self.k, f"more hashes than k={self.k}", where)
        same = np.asarray(pc.equal(image(samples), payloads))
        refuse(~same, "not in the form that streamops writes", where)
        return samples.columns()

    def images(self, states: Sequence[pa.Array]) -> pa.Array:
        """Each state as a compact theta sketch of Apache DataSketches: its payload."""
        return self.payload(states)

    def from_images(self, images: pa.Array) -> list[pa.Array]:
        """The states of compact theta sketches; of longer ones the k lowest hashes.

        Raises
        ------
        SketchFormatError
            ``SKETCH_CORRUPT``.
        """
        found = read(images, where=f"sketches.{self.format.kind}")
        each = Groups(np.arange(len(images)), len(images))
        return samples.united(each, found, self.k).columns()


def hashed(column: pa.Array | pa.ChunkedArray) -> tuple[Ints, Mask]:
    """The hash of each value from 1 to 2^63 - 2, and where it has one.

    Null has none; nor has a value whose hash would be one of the bounds, 0 or 2^63 - 1.
    """
    longs, there = items(column)
    first, _ = murmur3(longs)
    hashes = (first >> np.uint64(1)).view(np.int64)
    return hashes, there & (hashes > 0) & (hashes < WHOLE)


def merged(groups: Groups, states: Sequence[pa.Array], k: int) -> list[pa.Array]:
    """States of the groups over their members' states."""

    def unite(members: Groups, companions: Sequence[pa.Array]) -> list[pa.Array]:
        return samples.united(members, Samples.of(*companions), k).columns()

    return merge_groups(groups, states, unite)


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
