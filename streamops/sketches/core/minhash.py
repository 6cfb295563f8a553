"""MinHash: similarity of sets, in the form of the package datasketch.

Of each of its *permutations*, functions from hashes to hashes, a sketch stores the least value over its
items. The share of functions whose least values are equal in two sketches estimates the Jaccard
similarity of their sets: the size of the intersection divided by that of the union.

The functions are those of datasketch for a `seed` and a `scheme`. The hash of a value consists of the
lowest bits of the first half of MurmurHash3 of the item: 32, or 64 in the scheme "affine64".

Payload, version 1 (normative description: ``docs/state-formats.md``): empty without items, otherwise
each least value, little-endian, of 4 bytes, or of 8 in "affine64".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamops.kernel.errors import located
from streamops.kernel.groups import Floats, Groups, Ids, Mask
from streamops.sketches.core.buffers import (
    argsort_rows,
    flat_bytes,
    lengths_of,
    refuse_payloads,
    rows_to_binary,
    run_starts,
)
from streamops.sketches.core.hyperloglog import greatest
from streamops.sketches.core.items import group_items, murmur3
from streamops.sketches.core.sketch import NUMBER, ColumnSketch, Format, Parameter

Values = npt.NDArray[Any]

SCHEMES: Mapping[str, int] = {"affine32": 4, "affine64": 8, "legacy": 4}
"""Bytes of a least value, by scheme; "legacy" is that of datasketch before its version 2."""

_PRIME = np.uint64((1 << 61) - 1)
_LOW = np.uint64((1 << 32) - 1)
# The finalizer of a hash: shift, factor, shift, factor, shift.
_MIXING: Mapping[str, tuple[int, int, int, int, int]] = {
    "affine32": (16, 0x85EBCA6B, 13, 0xC2B2AE35, 16),
    "affine64": (33, 0xFF51AFD7ED558CCD, 33, 0xC4CEB9FE1A85EC53, 33),
}


@dataclass(frozen=True, slots=True)
class MinHash(ColumnSketch):
    """The least hashes of a column's values, without nulls, under each of the permutations.

    The standard error of a similarity J is ``sqrt(J * (1 - J) / permutations)``.
    """

    column: str
    permutations: int = 128
    seed: int = 1
    scheme: str = "affine32"

    format: ClassVar[Format] = Format("minhash", 1)
    fields: ClassVar[tuple[tuple[str, pa.DataType], ...]] = (("least", pa.binary()),)
    result: ClassVar[pa.DataType] = NUMBER

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """Parameters of the functions."""
        return {"permutations": self.permutations, "scheme": self.scheme, "seed": self.seed}

    def update(self, groups: Groups, rows: pa.Table) -> list[pa.Array]:
        """Compute the least values of each group."""
        groups, found = group_items(groups, rows.column(self.column))
        order = argsort_rows(groups.ids, found, groups.count)
        ids, found = groups.ids[order], found[order]
        new = run_starts(ids, found)
        ids, hashes = ids[new], hashed(found[new], self.scheme)
        starts = run_starts(ids)
        least = np.empty((len(starts), self.permutations), self._type)
        for number, (a, b) in enumerate(permutations(self.permutations, self.seed, self.scheme)):
            values = a * hashes + b
            if self.scheme == "legacy":
                values = values % _PRIME & _LOW
            least[:, number] = np.minimum.reduceat(values, starts) if len(ids) else 0
        return [self._binary(least, ids[starts], groups.count)]

    def merge(self, groups: Groups, states: Sequence[pa.Array]) -> list[pa.Array]:
        """Take the least of each value."""
        present = self._present(states[0])
        # The greatest of the complements is the complement of the least.
        ids, values = greatest(groups.ids[present], ~self.least(states[0]))
        return [self._binary(~values, ids, groups.count)]

    def least(self, states: pa.Array) -> Values:
        """The least values of the states with items: one row each."""
        values = flat_bytes(states).view(self._type.newbyteorder("<"))
        return values.reshape(-1, self.permutations)

    def similarities(self, left: pa.Array, right: pa.Array) -> Floats:
        """The similarity of two sketches, row by row; NaN if both are empty."""
        mine, theirs = self._present(left), self._present(right)
        both = mine & theirs
        result = np.where(mine | theirs, 0.0, np.nan)
        one, other = self.least(left)[both[mine]], self.least(right)[both[theirs]]
        result[both] = np.count_nonzero(one == other, axis=1) / self.permutations
        return result

    def estimate(self, states: Sequence[pa.Array]) -> pa.Array:
        """The number of distinct items, bounds at two standard errors, and the standard error."""
        counts, error = self._counts(states), self._error
        parts = [
            np.rint(counts),
            np.rint(counts * (1 - 2 * error)),
            np.rint(counts * (1 + 2 * error)),
        ]
        numbers = [pa.array(np.maximum(part, 0).astype(np.int64)) for part in parts]
        errors = pa.array(np.full(len(counts), error))
        return pa.StructArray.from_arrays([*numbers, errors], fields=list(self.result))

    def payload(self, states: Sequence[pa.Array]) -> pa.Array:
        """Each state as bytes."""
        return states[0]

    def revive(self, payloads: pa.Array) -> list[pa.Array]:
        """The states of payloads; every byte is checked."""
        sizes = lengths_of(payloads)
        self._refuse((sizes != 0) & (sizes != self._size), "it does not have the expected length")
        empty = self.least(payloads) == np.iinfo(self._type).max
        wrong = np.zeros(len(payloads), np.bool_)
        wrong[np.flatnonzero(sizes)[empty.all(axis=1)]] = True
        self._refuse(wrong, "it has no item, and is not empty")
        return [payloads]

    @property
    def _type(self) -> np.dtype[Any]:
        return np.dtype(np.uint64 if SCHEMES[self.scheme] == 8 else np.uint32)

    @property
    def _size(self) -> int:
        return SCHEMES[self.scheme] * self.permutations

    @property
    def _error(self) -> float:
        """Relative standard error of a count: of a sum of exponential variables."""
        return float(1 / np.sqrt(self.permutations))

    def _present(self, states: pa.Array) -> Mask:
        present: Mask = lengths_of(states) > 0
        return present

    def _counts(self, states: Sequence[pa.Array]) -> Floats:
        counts = np.zeros(len(states[0]))
        shares = self.least(states[0]) / float(np.iinfo(self._type).max)
        with np.errstate(divide="ignore"):
            counts[self._present(states[0])] = self.permutations / shares.sum(axis=1) - 1.0
        return np.minimum(counts, 2.0**62)

    def _binary(self, least: Values, ids: Ids, count: int) -> pa.Array:
        """The values of some groups, which ascend; empty for the others."""
        present = np.zeros(count, np.bool_)
        present[ids] = True
        return rows_to_binary(least.astype(self._type.newbyteorder("<")), present).fill_null(b"")

    def _refuse(self, wrong: Mask, reason: str) -> None:
        functions = f"{self.permutations} permutations, {self.scheme}"
        expected = f"a MinHash of {functions}: empty, or {self._size} bytes"
        with located(at="sketches.minhash"):
            refuse_payloads(wrong, reason, expected=expected)


def hashed(items: npt.NDArray[np.int64], scheme: str) -> Values:
    """The arguments of the functions of a scheme, for each item."""
    first, _ = murmur3(items)
    if scheme == "legacy":
        return first & _LOW
    return _mix(first if scheme == "affine64" else first.astype(np.uint32), scheme)


def _mix(hashes: Values, scheme: str) -> Values:
    one, first, two, second, three = map(hashes.dtype.type, _MIXING[scheme])
    hashes = (hashes ^ (hashes >> one)) * first
    hashes = (hashes ^ (hashes >> two)) * second
    mixed: Values = hashes ^ (hashes >> three)
    return mixed


@cache
def permutations(count: int, seed: int, scheme: str) -> tuple[tuple[Any, Any], ...]:
    """Factor and summand of each function, drawn as in datasketch."""
    rng = np.random.RandomState(seed)
    if scheme == "legacy":
        limit = int(_PRIME)
        return tuple(
            (rng.randint(1, limit, dtype=np.uint64), rng.randint(0, limit, dtype=np.uint64))
            for _ in range(count)
        )
    dtype, bits = (np.uint64, 64) if scheme == "affine64" else (np.uint32, 32)
    factors = rng.randint(0, 1 << (bits - 1), count, dtype=dtype) * dtype(2) + dtype(1)
    return tuple(zip(factors, rng.randint(0, 1 << bits, count, dtype=dtype), strict=True))
