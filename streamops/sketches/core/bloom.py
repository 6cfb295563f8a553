"""Bloom filters of groups: which values there are, and about how many.

A sketch is *sparse* while its items take less room than the bits of its filter: then it is the items
themselves. Beyond that it is *dense*: the bits. Which of the two it is depends on the set of items
alone, and so does every byte of it. What it says of an item is the same in both: a sparse sketch is
asked as the filter that it stands for.

Payload, version 1 (normative description: ``docs/state-formats.md``)::

    sparse  int64     each item, little-endian, ascending; fewer than the filter has words
    dense   uint64    each word of the filter, little-endian
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamops.kernel.errors import CapacityError, SketchFormatError
from streamops.kernel.group_states import merge_groups
from streamops.kernel.groups import Floats, Groups, Ids, Ints, Mask
from streamops.sketches.core.buffers import binary_of, bytes_of, lengths_of
from streamops.sketches.core.contract import Format, Parameter
from streamops.sketches.core.filters import FilterBits, Shape, contained, filled, ones, positions
from streamops.sketches.core.hashes import items
from streamops.sketches.core.sorting import argsort_rows, run_starts

__all__ = ["Bloom"]

_LARGEST = np.iinfo(np.int64).max
_MOST_BYTES = (1 << 31) - 1  # of all values of a column, as Arrow counts them
_BITS_AT_ONCE = 1 << 24  # a byte for each
_NOBODY = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Bloom:
    """The distinct values of a column that are not null, as Bloom filters.

    Parameters
    ----------
    column : str
        Of a type that Spark's ``xxhash64`` takes.
    type : str
        That type, by Spark's name: an item of another one has another hash.
    capacity : int
        Distinct items that it is made for.
    rate : float
        With so many, the share of other items that it says yes to.
    shape : Shape
        What follows of the two; kept, since it comes of logarithms.
    """

    column: str
    type: str
    capacity: int
    rate: float
    shape: Shape

    format: ClassVar[Format] = Format("bloom", 1)
    fields: ClassVar[tuple[tuple[str, pa.DataType], ...]] = (("filter", pa.binary()),)
    result: ClassVar[pa.DataType] = pa.struct(
        [
            ("estimate", pa.int64()),
            ("lower", pa.int64()),
            ("upper", pa.int64()),
            ("relative_error", pa.float64()),
            ("false_positive_rate", pa.float64()),
            ("full", pa.bool_()),
        ]
    )

    @classmethod
    def of(cls, column: str, type: str, capacity: int, rate: float) -> Bloom:
        """The smallest that keeps the promise."""
        return cls(column, type, capacity, rate, Shape.of(capacity, rate))

    @property
    def inputs(self) -> tuple[str, ...]:
        """Columns that ``update`` reads."""
        return (self.column,)

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """What is promised, and the filter that follows of it."""
        return {
            "type": self.type,
            "capacity": self.capacity,
            "false_positive_rate": self.rate,
            "bits": self.shape.bits,
            "probes": self.shape.probes,
        }

    def update(self, groups: Groups, rows: pa.Table) -> list[pa.Array]:
        """Keep the items of each group, or set their bits."""
        found, valid = items(rows.column(self.column))
        if not valid.all():
            groups, found = groups.where(valid), found[valid]
        return self._made(groups, found)

    def merge(self, groups: Groups, states: Sequence[pa.Array]) -> list[pa.Array]:
        """Unite the items, and set the bits that are set in any."""
        return merge_groups(groups, states, self._united)

    def _united(self, groups: Groups, states: Sequence[pa.Array]) -> list[pa.Array]:
        sizes, words = self._words(states[0])
        dense = sizes == self.shape.length
        is_dense = np.repeat(dense, sizes)
        holders = Groups(np.repeat(groups.ids, sizes)[~is_dense], groups.count)
        table = words[is_dense].reshape(-1, self.shape.length)
        return self._made(holders, words[~is_dense].view(np.int64), groups.ids[dense], table)

    def estimate(self, states: Sequence[pa.Array]) -> pa.Array:
        """How many items there are, with bounds and the standard error; and how full it is.

        The rate is that of other items that it says yes to, as it is now; ``full`` is whether there
        are certainly more items than it was made for.
        """
        counts, error, rate = self._counted(states)
        lower, upper = self._around(counts, error)
        with np.errstate(invalid="ignore"):
            relative = np.where(counts > 0, error / counts, 0.0)
        whole = np.rint(counts).astype(np.int64)
        parts = [whole, lower, upper, relative, rate, lower > self.capacity]
        return pa.StructArray.from_arrays([pa.array(part) for part in parts], fields=[*self.result])

    def bounds(self, states: Sequence[pa.Array]) -> tuple[pa.Array, pa.Array]:
        """The estimate less and plus two standard errors; without an upper bound, the largest number."""
        counts, error, _ = self._counted(states)
        lower, upper = self._around(counts, error)
        return pa.array(lower), pa.array(upper)

    def payload(self, states: Sequence[pa.Array]) -> pa.Array:
        """Each state as bytes."""
        return states[0]

    def revive(self, payloads: pa.Array) -> list[pa.Array]:
        """The states again; every byte is checked."""
        lengths, width = lengths_of(payloads), 8 * self.shape.length
        self._refuse_any(
            (lengths % 8 != 0) | (lengths > width), "their length is that of none", payloads
        )
        sizes, words = self._words(payloads)
        owners = np.repeat(np.arange(len(sizes)), sizes)
        dense = (sizes == self.shape.length)[owners]
        listed, owner = words[~dense].view(np.int64), owners[~dense]
        wrong = (listed[1:] <= listed[:-1]) & (owner[1:] == owner[:-1])
        wrong_ones = np.bincount(owner[1:][wrong], minlength=len(sizes)) > 0
        self._refuse_any(wrong_ones, "their items do not ascend", payloads)
        bits = np.bincount(owners[dense], ones(words[dense]), len(sizes))
        self._refuse_any(
            (sizes == self.shape.length) & (bits == 0), "no bit of them is set", payloads
        )
        return [payloads]

    def contains(self, states: Sequence[pa.Array], asked: Ints) -> Mask:
        """Whether each of these items may be in the first state."""
        result = np.zeros(len(asked), np.bool_)
        probes = positions(self.shape, asked)
        result[contained(self.filter(states), probes, np.arange(len(asked)))] = True
        return result

    def filter(self, states: Sequence[pa.Array]) -> FilterBits:
        """The filter of the first state, also of one that is sparse."""
        _, words = self._words(states[0][:1])
        if len(words) == self.shape.length:
            return words
        nothing = np.zeros(self.shape.length, np.uint64)
        return filled(nothing, positions(self.shape, words.view(np.int64)))

    def _made(
        self,
        groups: Groups,
        found: Ints,
        owners: Ids = _NOBODY,
        filters: npt.NDArray[np.uint64] | None = None,
    ) -> list[pa.Array]:
        """States over items, by group, and over filters, by owner."""
        order = argsort_rows(groups.ids, found, groups.count)
        ids, found = groups.ids[order], found[order]
        new = run_starts(ids, found)
        ids, found = ids[new], found[new]
        width = self.shape.length
        sizes = np.bincount(ids, minlength=groups.count)
        dense = sizes >= width
        dense[owners] = True
        lengths = np.where(dense, width, sizes)
        ends = np.append(0, np.cumsum(lengths))
        if 8 * int(ends[-1]) > _MOST_BYTES:
            self._refuse_size(8 * int(ends[-1]), int(np.count_nonzero(dense)))
        result = np.empty(ends[-1], np.uint64)

        single = ~dense[ids]
        rank = np.arange(len(ids)) - (np.cumsum(sizes) - sizes)[ids]
        result[(ends[ids] + rank)[single]] = found[single].view(np.uint64)

        place = np.cumsum(dense) - 1
        table = np.zeros((int(np.count_nonzero(dense)), width), np.uint64)
        if filters is not None and len(owners):
            order = np.argsort(owners, kind="stable")
            begins = np.flatnonzero(np.diff(owners[order], prepend=-1))
            table[place[owners[order][begins]]] = np.bitwise_or.reduceat(filters[order], begins)
        self._fill(table, place[ids[~single]], found[~single])
        at = ends[:-1][dense]
        result[(at[:, None] + np.arange(width)).ravel()] = table.ravel()
        return [binary_of(8 * ends, result.view(np.uint8))]

    def _fill(self, table: npt.NDArray[np.uint64], owners: Ids, found: Ints) -> None:
        """Set the bits of items, in the order of their owners: some filters at a time."""
        step = max(1, _BITS_AT_ONCE // self.shape.bits)
        starts = np.arange(0, len(table), step)
        borders = np.append(np.searchsorted(owners, starts), len(owners))
        for start, begin, end in zip(starts.tolist(), borders[:-1], borders[1:], strict=True):
            piece = table[start : start + step]
            probes = positions(self.shape, found[begin:end])
            probes += ((owners[begin:end] - start) * self.shape.bits).astype(np.uint64)
            piece[:] = filled(piece.ravel(), probes).reshape(piece.shape)

    def _words(self, filters: pa.Array) -> tuple[Ints, FilterBits]:
        """Words per state, and those of all."""
        ends, data = bytes_of(filters)
        return np.diff(ends) // 8, data.view(np.uint64)

    def _counted(self, states: Sequence[pa.Array]) -> tuple[Floats, Floats, Floats]:
        """Items of each state, the standard error of that, and the rate of false positives."""
        sizes, words = self._words(states[0])
        bits, probes = self.shape.bits, self.shape.probes
        is_dense = sizes == self.shape.length
        owners = np.repeat(np.arange(len(sizes)), sizes)
        dense = is_dense[owners]
        there = np.bincount(owners[dense], ones(words[dense]), len(sizes))
        # Linear counting: of a filter all of whose bits are set, one is taken for not.
        load = -np.log1p(-np.minimum(there, bits - 1) / bits)
        counts = np.where(is_dense, bits / probes * load, sizes)
        error = np.where(is_dense, np.sqrt(bits * (np.expm1(load) - load)) / probes, 0.0)
        error[there == bits] = np.inf
        certain = -np.expm1(-probes * counts / bits)  # of few items, from their number
        rate = np.where(is_dense, there / bits, certain) ** probes
        return counts, error, rate

    def _around(self, counts: Floats, error: Floats) -> tuple[Ints, Ints]:
        endless = np.isinf(error)
        error = np.where(endless, 0.0, error)
        lower = np.rint(np.maximum(counts - 2 * error, 0)).astype(np.int64)
        upper = np.rint(counts + 2 * error).astype(np.int64)
        return lower, np.where(endless, _LARGEST, upper)

    def _refuse_any(self, wrong: Mask, why: str, payloads: pa.Array) -> None:
        if not wrong.any():
            return
        first = int(np.argmax(wrong))
        raise SketchFormatError(
            "SKETCH_CORRUPT",
            f"these bytes are no Bloom filter: {why}",
            where=f"bloom, sketch {first}",
            got=f"{len(payloads[first].as_py())} bytes",
            expected=f"ascending items, or {8 * self.shape.length} bytes",
            fix="make it again from its rows, or merge the others without it",
        )

    def _refuse_size(self, size: int, count: int) -> None:
        raise CapacityError(
            "FILTERS_TOO_LARGE",
            "the Bloom filters of a shard do not fit into one column",
            where=f"bloom, column {self.column!r}",
            got=f"{size} bytes, in {count} filters of {8 * self.shape.length} bytes and others",
            expected=f"at most {_MOST_BYTES} bytes",
            fix="more shards, fewer keys, a smaller capacity or a higher rate",
        )
