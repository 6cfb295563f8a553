"""MinHash: how alike two sets are, as datasketch computes and keeps it.

Of as many functions as there are *permutations*, each from hashes to hashes, a sketch keeps the
least value over its items. Of two sets, the share of functions whose least values are equal
estimates the share of items that they have in common: of their intersection in their union.

The functions are those of datasketch, by `seed` and `scheme`. Its hash of a value is here the
lowest bits of the first half of MurmurHash3 of the item: 32, or 64 in the scheme "affine64".

Payload, version 1 (normative description: ``docs/state-formats.md``): nothing where no item was
seen, else each least value, little-endian, of 4 bytes, or of 8 in "affine64".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamops.kernel.errors import SketchFormatError
from streamops.kernel.groups import Floats, Groups, Ids, Mask
from streamops.sketches.core.contract import Format, Parameter
from streamops.sketches.core.hashes import items, murmur3
from streamops.sketches.core.hll_registers import binaries, flat, greatest
from streamops.sketches.core.sorting import argsort_rows, run_starts

__all__ = ["SCHEMES", "MinHash", "Values", "hashed", "permutations"]

Values = npt.NDArray[Any]

SCHEMES: Mapping[str, int] = {"affine32": 4, "affine64": 8, "legacy": 4}
"""Bytes of a least value, by scheme."""

_PRIME = np.uint64((1 << 61) - 1)
_LOW = np.uint64((1 << 32) - 1)
# What mixes the bits of a hash once more: shift, factor, shift, factor, shift.
_MIXING: Mapping[str, tuple[int, int, int, int, int]] = {
    "affine32": (16, 0x85EBCA6B, 13, 0xC2B2AE35, 16),
    "affine64": (33, 0xFF51AFD7ED558CCD, 33, 0xC4CEB9FE1A85EC53, 33),
}


@dataclass(frozen=True, slots=True)
class MinHash:
    """The least values of a column's values that are not null.

    Parameters
    ----------
    column : str
        Of a type that Spark's ``xxhash64`` takes.
    permutations : int
        How many functions. The standard error of a similarity J is
        ``sqrt(J * (1 - J) / permutations)``.
    seed : int
        Of the functions, 0 to ``2**32 - 1``.
    scheme : "affine32", "affine64" or "legacy"
        How they compute. The last is that of datasketch before its version 2.
    """

    column: str
    permutations: int = 128
    seed: int = 1
    scheme: str = "affine32"

    format: ClassVar[Format] = Format("minhash", 1)
    fields: ClassVar[tuple[tuple[str, pa.DataType], ...]] = (("least", pa.binary()),)
    result: ClassVar[pa.DataType] = pa.struct(
        [
            ("estimate", pa.int64()),
            ("lower", pa.int64()),
            ("upper", pa.int64()),
            ("relative_error", pa.float64()),
        ]
    )

    @property
    def inputs(self) -> tuple[str, ...]:
        """Columns that ``update`` reads."""
        return (self.column,)

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """The functions."""
        return {"permutations": self.permutations, "scheme": self.scheme, "seed": self.seed}

    def update(self, groups: Groups, rows: pa.Table) -> list[pa.Array]:
        """Keep the least values of each group."""
        found, valid = items(rows.column(self.column))
        ids, found = groups.ids[valid], found[valid]
        order = argsort_rows(ids, found, groups.count)
        ids, found = ids[order], found[order]
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
        """Take the lesser of each two values."""
        there = self._there(states[0])
        # The greatest of the complements is the complement of the least.
        ids, values = greatest(groups.ids[there], ~self.least(states[0]))
        return [self._binary(~values, ids, groups.count)]

    def least(self, states: pa.Array) -> Values:
        """The least values of those that have seen an item: one row each."""
        return np.frombuffer(flat(states), self._type.newbyteorder("<")).reshape(
            -1, self.permutations
        )

    def similarities(self, left: pa.Array, right: pa.Array) -> Floats:
        """How alike two sketches are, row by row; NaN where both are empty."""
        mine, theirs = self._there(left), self._there(right)
        both = mine & theirs
        result = np.where(mine | theirs, 0.0, np.nan)
        one, other = self.least(left)[both[mine]], self.least(right)[both[theirs]]
        result[both] = np.count_nonzero(one == other, axis=1) / self.permutations
        return result

    def estimate(self, states: Sequence[pa.Array]) -> pa.Array:
        """How many distinct items there are; bounds at two standard errors; the standard error."""
        counts, error = self._counts(states), self._error
        parts = [
            np.rint(counts),
            np.rint(counts * (1 - 2 * error)),
            np.rint(counts * (1 + 2 * error)),
        ]
        said = [pa.array(np.maximum(part, 0).astype(np.int64)) for part in parts]
        errors = pa.array(np.full(len(counts), error))
        return pa.StructArray.from_arrays([*said, errors], fields=list(self.result))

    def bounds(self, states: Sequence[pa.Array]) -> tuple[pa.Array, pa.Array]:
        """The estimate of distinct items less and plus two standard errors."""
        said = self.estimate(states)
        return said.field("lower"), said.field("upper")

    def payload(self, states: Sequence[pa.Array]) -> pa.Array:
        """Each state as bytes."""
        return states[0]

    def revive(self, payloads: pa.Array) -> list[pa.Array]:
        """The states again; every byte is checked."""
        sizes = np.asarray(pc.binary_length(payloads)).astype(np.int64)
        self._refuse_any((sizes != 0) & (sizes != self._size), "their length is another", payloads)
        there = np.flatnonzero(sizes)
        empty = self.least(payloads) == np.iinfo(self._type).max
        wrong = np.zeros(len(payloads), np.bool_)
        wrong[there[empty.all(axis=1)]] = True
        self._refuse_any(wrong, "no item was seen, and they do not say so", payloads)
        return [payloads]

    @property
    def _type(self) -> np.dtype[Any]:
        return np.dtype(np.uint64 if SCHEMES[self.scheme] == 8 else np.uint32)

    @property
    def _size(self) -> int:
        return SCHEMES[self.scheme] * self.permutations

    @property
    def _error(self) -> float:
        """Standard error of a count, relative: of a sum of so many exponential variables."""
        return float(1 / np.sqrt(self.permutations))

    def _there(self, states: pa.Array) -> Mask:
        return np.asarray(pc.binary_length(states)) > 0

    def _counts(self, states: Sequence[pa.Array]) -> Floats:
        counts = np.zeros(len(states[0]))
        shares = self.least(states[0]) / float(np.iinfo(self._type).max)
        with np.errstate(divide="ignore"):
            counts[self._there(states[0])] = self.permutations / shares.sum(axis=1) - 1.0
        return np.minimum(counts, 2.0**62)

    def _binary(self, least: Values, ids: Ids, count: int) -> pa.Array:
        """The values of some of the groups, which ascend; nothing for the others."""
        there = np.zeros(count, np.bool_)
        there[ids] = True
        rows = least.astype(self._type.newbyteorder("<")).view(np.uint8).reshape(-1, self._size)
        return binaries(rows, there).fill_null(b"")

    def _refuse_any(self, wrong: Mask, why: str, payloads: pa.Array) -> None:
        if not wrong.any():
            return
        payload = payloads[int(np.argmax(wrong))].as_py()
        raise SketchFormatError(
            "SKETCH_CORRUPT",
            f"these bytes are no sketch: {why}",
            where="sketches.minhash",
            got=f"{len(payload)} bytes that begin with {payload[:8].hex(' ')}",
            expected=f"a MinHash of {self.permutations} permutations, {self.scheme}: nothing, or "
            f"{self._size} bytes",
            fix="restore them from where they were written, or make the sketch anew",
        )


def hashed(items: npt.NDArray[np.int64], scheme: str) -> Values:
    """What the functions of a scheme are given for each item."""
    first, _ = murmur3(items)
    if scheme == "legacy":
        return first & _LOW
    return _mixed(first if scheme == "affine64" else first.astype(np.uint32), scheme)


def _mixed(hashes: Values, scheme: str) -> Values:
    kind = hashes.dtype.type
    one, first, two, second, three = (kind(each) for each in _MIXING[scheme])
    hashes = (hashes ^ (hashes >> one)) * first
    hashes = (hashes ^ (hashes >> two)) * second
    mixed: Values = hashes ^ (hashes >> three)
    return mixed


@cache
def permutations(count: int, seed: int, scheme: str) -> tuple[tuple[Any, Any], ...]:
    """Factor and summand of each function, as datasketch draws them."""
    rng = np.random.RandomState(seed)
    if scheme == "legacy":
        limit = int(_PRIME)
        return tuple(
            (rng.randint(1, limit, dtype=np.uint64), rng.randint(0, limit, dtype=np.uint64))
            for _ in range(count)
        )
    kind, bits = (np.uint64, 64) if scheme == "affine64" else (np.uint32, 32)
    factors = rng.randint(0, 1 << (bits - 1), count, dtype=kind) * kind(2) + kind(1)
    return tuple(zip(factors, rng.randint(0, 1 << bits, count, dtype=kind), strict=True))
