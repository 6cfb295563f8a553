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
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamops.kernel.group_states import merge_groups
from streamops.kernel.groups import Groups, Ints, Mask
from streamops.sketches.core import samples
from streamops.sketches.core.contract import Format, Parameter
from streamops.sketches.core.hashes import items, murmur3
from streamops.sketches.core.samples import WHOLE, Samples, lowest
from streamops.sketches.core.sampling import NUMBER, bounds, number_of
from streamops.sketches.core.theta_image import image, read, refuse

__all__ = ["FIELDS", "Theta", "hashed", "merged"]

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
