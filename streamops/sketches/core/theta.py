"""Theta sketches: the number of distinct items, and of those that two sketches share.

The rule is bottom-k, also called KMV: the k lowest hashes of a group's items are stored, and theta is
the lowest of the others. So the state is a function of the set of items alone. Merging unites the lists,
takes the smallest theta, and applies the rule again.

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

from streamops.kernel.aggregation import merge_groups
from streamops.kernel.columns import combine_chunks
from streamops.kernel.errors import located
from streamops.kernel.groups import Groups, Ids, Ints, Mask
from streamops.sketches.core.items import items, murmur3
from streamops.sketches.core.samples import (
    SHARE,
    WHOLE,
    Samples,
    beside,
    compared,
    image,
    lowest,
    number_of,
    read,
    refuse,
    share_of,
    united,
)
from streamops.sketches.core.sketch import NUMBER, ColumnSketch, Format, Parameter

FIELDS = (("hashes", pa.list_(pa.int64())), ("theta", pa.int64()))
"""State columns of samples: the sorted hashes below theta; and theta, 2^63 - 1 for a whole set."""


@dataclass(frozen=True, slots=True)
class Theta(ColumnSketch):
    """Distinct items of a column: at most k hashes per group, a power of two.

    The relative standard error is at most 1 / sqrt(k - 1).
    """

    column: str
    k: int

    format: ClassVar[Format] = Format("theta", 1)
    fields: ClassVar[tuple[tuple[str, pa.DataType], ...]] = FIELDS
    result: ClassVar[pa.DataType] = NUMBER

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """Maximum number of hashes."""
        return {"k": self.k}

    def update(self, groups: Groups, rows: pa.Table) -> list[pa.Array]:
        """Store the lowest hashes of each group."""
        hashes, present = hash_values(rows.column(self.column))
        theta = np.full(groups.count, WHOLE)
        return lowest(groups.where(present), hashes[present], theta, self.k).columns()

    def merge(self, groups: Groups, states: Sequence[pa.Array]) -> list[pa.Array]:
        """Unite the lists, and store the lowest hashes."""
        return merge_samples(groups, states, self.k)

    def estimate(self, states: Sequence[pa.Array]) -> pa.Array:
        """The number of items, exact up to k; its bounds; and the standard error."""
        samples = Samples.of(*states)
        return number_of(samples.sizes, samples.theta)

    def payload(self, states: Sequence[pa.Array]) -> pa.Array:
        """Each state as the compact theta sketch of Apache DataSketches."""
        return image(Samples.of(*states))

    def revive(self, payloads: pa.Array) -> list[pa.Array]:
        """The states of payloads, which are in the form that ``payload`` writes."""
        with located(at=f"sketches.{self.format.kind}"):
            samples = read(payloads)
            refuse(samples.sizes > self.k, f"more hashes than k={self.k}")
            same = np.asarray(pc.equal(image(samples), payloads))
            refuse(~same, "not in the form that streamops writes")
        return samples.columns()

    def images(self, states: Sequence[pa.Array]) -> pa.Array:
        """Each state as a compact theta sketch of Apache DataSketches: its payload."""
        return self.payload(states)

    def from_images(self, images: pa.Array) -> list[pa.Array]:
        """The states of compact theta sketches: their k lowest hashes."""
        with located(f"sketches.{self.format.kind}"):
            found = read(images)
        groups = Groups(np.arange(len(images)), len(images))
        return united(groups, found, self.k).columns()


def hash_values(column: pa.Array | pa.ChunkedArray) -> tuple[Ints, Mask]:
    """The hash of each value from 1 to 2^63 - 2, and whether it has one.

    Null has none, nor has a value whose hash would be 0 or 2^63 - 1.
    """
    longs, valid = items(column)
    first, _ = murmur3(longs)
    hashes = (first >> np.uint64(1)).view(np.int64)
    return hashes, valid & (hashes > 0) & (hashes < WHOLE)


def merge_samples(groups: Groups, states: Sequence[pa.Array], k: int) -> list[pa.Array]:
    """Merged samples of the groups."""

    def unite(members: Groups, companions: Sequence[pa.Array]) -> list[pa.Array]:
        return united(members, Samples.of(*companions), k).columns()

    return merge_groups(groups, states, unite)


PARTS: tuple[tuple[str, pa.DataType], ...] = (
    ("both", NUMBER),
    ("only_left", NUMBER),
    ("only_right", NUMBER),
    ("either", NUMBER),
    ("jaccard", SHARE),
)
"""Comparison of two sets: sizes of their parts, and the share of both among either."""


def parts(both: Ints, only_left: Ints, only_right: Ints, theta: Ints) -> list[pa.Array]:
    """``PARTS`` of sets with these numbers of hashes below theta."""
    either = both + only_left + only_right
    sizes = [number_of(found, theta) for found in (both, only_left, only_right, either)]
    return [*sizes, share_of(both, either, theta)]


def compare_samples(left: Samples, right: Samples) -> pa.Array:
    """The comparison of the two sets of each row, as a struct of ``PARTS``."""
    found = beside(left, right).pair(0, 1)
    return pa.StructArray.from_arrays(parts(*found), fields=list(pa.struct(PARTS)))


@dataclass(frozen=True, slots=True)
class Overlap:
    """Distinct items per audience, at most k hashes each, and what every two audiences share.

    Column ``of`` has the audience of a row, one of the ``audiences``: others are ignored.
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
        """The sketch of each audience."""
        return Theta(self.column, self.k)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Columns that ``update`` reads."""
        return (self.column, self.of)

    @property
    def result(self) -> pa.DataType:
        """The sizes of the audiences, and the comparison of their pairs."""
        dtype = self.audiences.type
        return pa.struct(
            [
                ("audiences", pa.list_(pa.struct([("audience", dtype), *NUMBER]))),
                ("pairs", pa.list_(pa.struct([("left", dtype), ("right", dtype), *PARTS]))),
            ]
        )

    def update(self, groups: Groups, rows: pa.Table) -> list[pa.Array]:
        """Store the lowest hashes of each audience of each group."""
        audience = pc.index_in(combine_chunks(rows.column(self.of)), value_set=self.audiences)
        hashes, present = hash_values(rows.column(self.column))
        present = present & np.asarray(audience.is_valid())
        numbers = np.asarray(audience.fill_null(0)).astype(np.int64)
        subgroups = self._subgroups(groups.ids[present], groups.count, numbers[present])
        theta = np.full(subgroups.count, WHOLE)
        return self._by_group(lowest(subgroups, hashes[present], theta, self.k).columns())

    def merge(self, groups: Groups, states: Sequence[pa.Array]) -> list[pa.Array]:
        """Unite the lists of each audience, and store the lowest hashes."""
        width = len(self.audiences)
        numbers = np.tile(np.arange(width), len(groups.ids))
        subgroups = self._subgroups(np.repeat(groups.ids, width), groups.count, numbers)
        lists = [state.flatten() for state in states]
        return self._by_group(merge_samples(subgroups, lists, self.k))

    def estimate(self, states: Sequence[pa.Array]) -> pa.Array:
        """Sizes of the audiences by their own thetas, and of their pairs by the smaller theta."""
        samples = Samples.of(*(state.flatten() for state in states))
        count, width = len(states[0]), len(self.audiences)
        pairs = list(combinations(range(width), 2))
        sizes = number_of(samples.sizes, samples.theta)
        audiences = self._lists("audiences", [np.tile(np.arange(width), count)], sizes.flatten())
        sets = compared(samples, width)
        found = [sets.pair(*pair) for pair in pairs]
        # All pairs of a group, then those of the next one.
        numbers = [np.stack(column, axis=1).ravel() for column in zip(*found, strict=True)]
        named = [np.tile([pair[side] for pair in pairs], count) for side in (0, 1)]
        shared = self._lists("pairs", named, parts(*numbers))
        return pa.StructArray.from_arrays([audiences, shared], fields=list(self.result))

    def _subgroups(self, ids: Ids, count: int, audiences: Ids) -> Groups:
        """One group per audience of a group."""
        width = len(self.audiences)
        return Groups(ids * width + audiences, count * width)

    def _by_group(self, columns: Sequence[pa.Array]) -> list[pa.Array]:
        return [_split_lists(column, len(self.audiences)) for column in columns]

    def _lists(self, part: str, named: Sequence[Ids], values: Sequence[pa.Array]) -> pa.Array:
        fields = list(self.result.field(part).type.value_type)
        names = [self.audiences.take(pa.array(numbers)) for numbers in named]
        entries = pa.StructArray.from_arrays([*names, *values], fields=fields)
        width = len(self.audiences)
        return _split_lists(entries, width if part == "audiences" else width * (width - 1) // 2)


def _split_lists(values: pa.Array, width: int) -> pa.Array:
    """Lists of this width."""
    offsets = pa.array(np.arange(0, len(values) + 1, width)).cast(pa.int32())
    return pa.ListArray.from_arrays(offsets, values)
