"""Bloom filters of groups: which values there are, and about how many.

A sketch is *sparse* while its items take less room than the bits of its filter: it stores the items.
Beyond that it is *dense*, and stores the bits. Both depend on the set of items alone, and so does every
byte. Queries give the same results in both: a sparse sketch is queried as the filter of its items.

Payload, version 1 (``docs/state-formats.md``): the ascending items as int64, fewer than the filter has
words of 64 bits; or these words.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamops.kernel.errors import located
from streamops.kernel.group_states import merge_groups
from streamops.kernel.groups import Floats, Groups, Ids, Ints, Mask
from streamops.sketches import conditions
from streamops.sketches.core.buffers import (
    argsort_rows,
    lengths_of,
    make_binary,
    refuse_payloads,
    run_starts,
    split_binary,
)
from streamops.sketches.core.filters import FilterBits, Shape, contained, filled, ones, positions
from streamops.sketches.core.items import group_items
from streamops.sketches.core.sketch import NUMBER, ColumnSketch, Format, Parameter

_LARGEST = np.iinfo(np.int64).max
_MOST_BYTES = (1 << 31) - 1  # of a column with Arrow's 32-bit offsets
_BITS_AT_ONCE = 1 << 24  # one byte per bit
_NO_OWNERS = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Bloom(ColumnSketch):
    """The distinct values of a column that are not null, as Bloom filters.

    ``type`` is Spark's name of the column's type: equal values of other types have other hashes. With
    ``capacity`` items, the share of false positives is ``rate``. The shape follows from both, and is
    stored because it is computed from logarithms.
    """

    column: str
    type: str
    capacity: int
    rate: float
    shape: Shape

    format: ClassVar[Format] = Format("bloom", 1)
    fields: ClassVar[tuple[tuple[str, pa.DataType], ...]] = (("filter", pa.binary()),)
    result: ClassVar[pa.DataType] = pa.struct(
        [*NUMBER, ("false_positive_rate", pa.float64()), ("full", pa.bool_())]
    )

    @classmethod
    def of(cls, column: str, type: str, capacity: int, rate: float) -> Bloom:
        """The smallest one with this capacity and rate."""
        return cls(column, type, capacity, rate, Shape.of(capacity, rate))

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """Capacity and rate, and the shape that follows from them."""
        return {
            "type": self.type,
            "capacity": self.capacity,
            "false_positive_rate": self.rate,
            "bits": self.shape.bits,
            "probes": self.shape.probes,
        }

    def update(self, groups: Groups, rows: pa.Table) -> list[pa.Array]:
        """Store the items of each group, or set their bits."""
        return self._build(*group_items(groups, rows.column(self.column)))

    def merge(self, groups: Groups, states: Sequence[pa.Array]) -> list[pa.Array]:
        """Unite the items and the bits."""
        return merge_groups(groups, states, self._unite)

    def _unite(self, groups: Groups, states: Sequence[pa.Array]) -> list[pa.Array]:
        sizes, data = self._split(states[0])
        dense = sizes == self.shape.length
        is_dense = np.repeat(dense, sizes)
        holders = Groups(np.repeat(groups.ids, sizes)[~is_dense], groups.count)
        table = data[is_dense].reshape(-1, self.shape.length)
        return self._build(holders, data[~is_dense].view(np.int64), groups.ids[dense], table)

    def estimate(self, states: Sequence[pa.Array]) -> pa.Array:
        """The number of items, with bounds and standard error, and how full the filter is.

        The rate is the current one; ``full`` means that there are certainly more items than the capacity.
        """
        counts, error, rate = self._count(states)
        unbounded = np.isinf(error)
        spread = np.where(unbounded, 0.0, error)
        lower = np.rint(np.maximum(counts - 2 * spread, 0)).astype(np.int64)
        upper = np.where(unbounded, _LARGEST, np.rint(counts + 2 * spread).astype(np.int64))
        with np.errstate(invalid="ignore"):
            relative = np.where(counts > 0, error / counts, 0.0)
        whole = np.rint(counts).astype(np.int64)
        parts = [whole, lower, upper, relative, rate, lower > self.capacity]
        return pa.StructArray.from_arrays([pa.array(part) for part in parts], fields=[*self.result])

    def payload(self, states: Sequence[pa.Array]) -> pa.Array:
        """Each state as bytes."""
        return states[0]

    def revive(self, payloads: pa.Array) -> list[pa.Array]:
        """The states of payloads; every byte is checked."""
        lengths, width = lengths_of(payloads), 8 * self.shape.length
        self._refuse((lengths % 8 != 0) | (lengths > width), "no filter has its length")
        sizes, data = self._split(payloads)
        owners = np.repeat(np.arange(len(sizes)), sizes)
        is_dense = sizes == self.shape.length
        dense = is_dense[owners]
        listed, owner = data[~dense].view(np.int64), owners[~dense]
        wrong = (listed[1:] <= listed[:-1]) & (owner[1:] == owner[:-1])
        unsorted = np.bincount(owner[1:][wrong], minlength=len(sizes)) > 0
        self._refuse(unsorted, "its items do not ascend")
        bits = np.bincount(owners[dense], ones(data[dense]), len(sizes))
        self._refuse(is_dense & (bits == 0), "none of its bits is set")
        return [payloads]

    def contains(self, states: Sequence[pa.Array], items: Ints) -> Mask:
        """Whether each of these items may be in the first state."""
        result = np.zeros(len(items), np.bool_)
        probes = positions(self.shape, items)
        result[contained(self.filter(states), probes, np.arange(len(items)))] = True
        return result

    def filter(self, states: Sequence[pa.Array]) -> FilterBits:
        """The filter of the first state, dense or sparse."""
        _, data = self._split(states[0][:1])
        if len(data) == self.shape.length:
            return data
        empty = np.zeros(self.shape.length, np.uint64)
        return filled(empty, positions(self.shape, data.view(np.int64)))

    def _build(
        self,
        groups: Groups,
        found: Ints,
        owners: Ids = _NO_OWNERS,
        filters: npt.NDArray[np.uint64] | None = None,
    ) -> list[pa.Array]:
        """States of items, by group, and of filters, by owner."""
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

        listed = ~dense[ids]
        rank = np.arange(len(ids)) - (np.cumsum(sizes) - sizes)[ids]
        result[(ends[ids] + rank)[listed]] = found[listed].view(np.uint64)

        index = np.cumsum(dense) - 1
        table = np.zeros((int(np.count_nonzero(dense)), width), np.uint64)
        if filters is not None and len(owners):
            order = np.argsort(owners, kind="stable")
            begins = np.flatnonzero(np.diff(owners[order], prepend=-1))
            table[index[owners[order][begins]]] = np.bitwise_or.reduceat(filters[order], begins)
        self._fill(table, index[ids[~listed]], found[~listed])
        at = ends[:-1][dense]
        result[(at[:, None] + np.arange(width)).ravel()] = table.ravel()
        return [make_binary(8 * ends, result.view(np.uint8))]

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

    def _split(self, filters: pa.Array) -> tuple[Ints, FilterBits]:
        """Number of 64-bit words of each state, and those of all states."""
        ends, data = split_binary(filters)
        return np.diff(ends) // 8, data.view(np.uint64)

    def _count(self, states: Sequence[pa.Array]) -> tuple[Floats, Floats, Floats]:
        """Items of each state, their standard error, and the rate of false positives."""
        sizes, data = self._split(states[0])
        bits, probes = self.shape.bits, self.shape.probes
        is_dense = sizes == self.shape.length
        owners = np.repeat(np.arange(len(sizes)), sizes)
        dense = is_dense[owners]
        present = np.bincount(owners[dense], ones(data[dense]), len(sizes))
        # Linear counting: if all bits are set, one is taken as not set.
        load = -np.log1p(-np.minimum(present, bits - 1) / bits)
        counts = np.where(is_dense, bits / probes * load, sizes)
        error = np.where(is_dense, np.sqrt(bits * (np.expm1(load) - load)) / probes, 0.0)
        error[present == bits] = np.inf
        certain = -np.expm1(-probes * counts / bits)  # of a sparse sketch, from the number of items
        rate = np.where(is_dense, present / bits, certain) ** probes
        return counts, error, rate

    def _refuse(self, wrong: Mask, reason: str) -> None:
        expected = f"ascending items, or {8 * self.shape.length} bytes"
        with located(at="sketches, bloom"):
            refuse_payloads(wrong, reason, expected=expected)

    def _refuse_size(self, size: int, count: int) -> None:
        raise conditions.FILTERS_TOO_LARGE.error(
            at=f"bloom, column {self.column!r}",
            most_bytes=_MOST_BYTES,
            got=f"{size} bytes, in {count} filters of {8 * self.shape.length} bytes and others",
        )
