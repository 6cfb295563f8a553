"""HyperLogLog: how many distinct values, within a stated error, in a few kilobytes.

A sketch is *sparse* while it has few coupons (see ``hll_registers``), which are kept as they
are: the count then is all but exact. Beyond that it is *dense*: ``2**p`` registers. Which of the
two it is depends on the items alone, and so does every byte of it: not on how they were dealt
out, in which order they came, or how often.

Payload, version 1 (normative description: ``docs/state-formats.md``)::

    form    1 byte   0: sparse, 1: dense
    sparse  uint32   each coupon, little-endian, ascending
    dense   uint8    each register
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamops.kernel.columns import list_items
from streamops.kernel.errors import SketchFormatError
from streamops.kernel.group_states import make_lists, merge_groups
from streamops.kernel.groups import Floats, Groups, Ids, Ints, Mask
from streamops.sketches.core.contract import Format, Parameter
from streamops.sketches.core.hashes import items
from streamops.sketches.core.hll_images import from_images, to_images
from streamops.sketches.core.hll_registers import (
    ADDRESS_BITS,
    Coupons,
    Registers,
    behind,
    binaries,
    capped,
    coupons,
    distinct,
    estimates,
    flat,
    greatest,
    highest,
    matrix,
    most_coupons,
    packed,
)

__all__ = ["SPARSE_ERROR", "HyperLogLog"]

SPARSE_ERROR = 1 / (6 * (1 << ADDRESS_BITS)) ** 0.5
"""Standard error of a sparse sketch, relative: two items share a coupon once in ``3 * 2**26``."""

_SPARSE, _DENSE = 0, 1
_NOTHING = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class HyperLogLog:
    """Distinct values of a column that are not null.

    Parameters
    ----------
    column : str
        Of a type that Spark's ``xxhash64`` takes.
    p : int
        Of ``2**p`` registers, 4 to 16: the standard error is ``1.04 / sqrt(2**p)``.
    """

    column: str
    p: int

    format: ClassVar[Format] = Format("hll", 1)
    fields: ClassVar[tuple[tuple[str, pa.DataType], ...]] = (
        ("coupons", pa.list_(pa.uint32())),
        ("registers", pa.binary()),
    )
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
        """The precision."""
        return {"p": self.p}

    def update(self, groups: Groups, rows: pa.Table) -> list[pa.Array]:
        """Keep the coupons of each group, or its registers."""
        hashes, valid = items(rows.column(self.column))
        if not valid.all():
            groups, hashes = groups.where(valid), hashes[valid]
        return self._made(groups, coupons(hashes))

    def merge(self, groups: Groups, states: Sequence[pa.Array]) -> list[pa.Array]:
        """Unite the coupons, and take the greater of each two registers."""
        return merge_groups(groups, states, self._united)

    def _united(self, groups: Groups, states: Sequence[pa.Array]) -> list[pa.Array]:
        found, dense = states
        sizes, values = list_items(found)
        owners = groups.ids[np.asarray(dense.is_valid())]
        holders = Groups(np.repeat(groups.ids, sizes), groups.count)
        return self._made(holders, np.asarray(values), owners, matrix(dense, self.p))

    def estimate(self, states: Sequence[pa.Array]) -> pa.Array:
        """How many there are; bounds at two standard errors; the standard error."""
        counts, certain, error = self._counted(states)
        parts = [_whole(counts), *_around(counts, certain, error), error]
        return pa.StructArray.from_arrays([pa.array(part) for part in parts], fields=[*self.result])

    def bounds(self, states: Sequence[pa.Array]) -> tuple[pa.Array, pa.Array]:
        """The estimate less and plus two standard errors.

        The lower bound is never below what is certain: the coupons, or the registers that are
        not empty.
        """
        lower, upper = _around(*self._counted(states))
        return pa.array(lower), pa.array(upper)

    def registers(self, states: Sequence[pa.Array]) -> Registers:
        """The registers of every state, also of those that are sparse: one row each."""
        found, dense = states
        result = np.zeros((len(found), 1 << self.p), np.uint8)
        result[np.asarray(dense.is_valid())] = matrix(dense, self.p)
        sizes, values = list_items(found)
        self._spread(result, np.repeat(np.arange(len(found)), sizes), np.asarray(values))
        return result

    def payload(self, states: Sequence[pa.Array]) -> pa.Array:
        """Each state as bytes."""
        found, dense = states
        sparse = np.asarray(found.is_valid())
        bodies = pc.coalesce(packed(found), dense)
        forms = pa.array([bytes([_DENSE]), bytes([_SPARSE])]).take(pa.array(sparse.astype(int)))
        return pc.binary_join_element_wise(forms, bodies, b"")

    def revive(self, payloads: pa.Array) -> list[pa.Array]:
        """The states again; every byte is checked."""
        sizes = np.asarray(pc.binary_length(payloads)).astype(np.int64) - 1
        self._refuse_any(sizes < 0, "nothing is in them", payloads)
        forms = np.frombuffer(flat(pc.binary_slice(payloads, 0, 1)), np.uint8)
        sparse = forms == _SPARSE
        self._refuse_any(
            ~sparse & (forms != _DENSE), "their form is neither sparse nor dense", payloads
        )
        unlike = np.where(
            sparse, (sizes % 4 != 0) | (sizes > 4 * most_coupons(self.p)), sizes != 1 << self.p
        )
        self._refuse_any(unlike, "their length is that of none", payloads)
        bodies = behind(payloads, 1)
        found = np.frombuffer(flat(bodies.filter(pa.array(sparse))), "<u4").astype(np.uint32)
        lengths = np.where(sparse, sizes // 4, 0)
        owners = np.repeat(np.arange(len(payloads)), lengths)
        wrong = found < 1 << ADDRESS_BITS  # no value is 0
        wrong[1:] |= (found[1:] <= found[:-1]) & (owners[1:] == owners[:-1])
        self._refuse_any(
            _any_of(wrong, owners, len(payloads)),
            "their coupons do not ascend, or one has no value",
            payloads,
        )
        dense = np.frombuffer(flat(bodies.filter(pa.array(~sparse))), np.uint8)
        table = dense.reshape(-1, 1 << self.p)
        peaks = table.max(axis=1, initial=0)
        wrong, owners = (peaks > highest(self.p)) | (peaks == 0), np.flatnonzero(~sparse)
        self._refuse_any(
            _any_of(wrong, owners, len(payloads)),
            "a register is out of range, or all are empty",
            payloads,
        )
        return [make_lists(pa.array(found), lengths, ~sparse), binaries(table, ~sparse)]

    def images(self, states: Sequence[pa.Array]) -> pa.Array:
        """Each state as an image of Apache DataSketches."""
        return to_images(states, self.p)

    def from_images(self, images: pa.Array) -> list[pa.Array]:
        """The states of such images: see :mod:`streamops.sketches.core.hll_images`."""
        return from_images(images, self.p)

    def _made(
        self,
        groups: Groups,
        found: Coupons,
        owners: Ids = _NOTHING,
        registers: Registers | None = None,
    ) -> list[pa.Array]:
        """States over coupons, by group, and over registers, by owner."""
        ids, found = distinct(groups.ids, found)
        sizes = np.bincount(ids, minlength=groups.count).astype(np.int64, copy=False)
        dense = sizes > most_coupons(self.p)
        dense[owners] = True
        row = np.cumsum(dense) - 1
        if registers is None:
            registers = np.empty((0, 1 << self.p), np.uint8)
        owners, registers = greatest(owners, registers)
        table = registers
        if len(owners) < np.count_nonzero(dense):
            table = np.zeros((int(np.count_nonzero(dense)), 1 << self.p), np.uint8)
            table[row[owners]] = registers
        elif not table.flags.writeable:
            table = table.copy()
        spread = dense[ids]
        self._spread(table, row[ids[spread]], found[spread])
        stored = make_lists(pa.array(found[~spread]), np.where(dense, 0, sizes), dense)
        return [stored, binaries(table, dense)]

    def _spread(self, table: Registers, rows: Ids, found: Coupons) -> None:
        """Raise registers to the values of coupons, which ascend within each row."""
        number, values = capped(found, self.p)
        flat, position = table.reshape(-1), (rows << self.p) + number
        # The greatest value of a register is written last, and remains.
        flat[position] = np.maximum(flat[position], values)

    def _counted(self, states: Sequence[pa.Array]) -> tuple[Floats, Ints, Floats]:
        """Estimate, what is certain, and relative standard error, of each state."""
        found, registers = states
        certain, _ = list_items(found)
        counts = certain.astype(np.float64)
        error = np.full(len(found), SPARSE_ERROR)
        dense = np.asarray(registers.is_valid())
        if dense.any():
            table = matrix(registers, self.p)
            certain = certain.copy()
            certain[dense] = np.count_nonzero(table, axis=1)
            counts[dense] = estimates(table, self.p)
            error[dense] = 1.04 / (1 << self.p) ** 0.5
        return counts, certain, error

    def _refuse_any(self, wrong: Mask, why: str, payloads: pa.Array) -> None:
        if wrong.any():
            _refuse(self.p, why, payloads[int(np.argmax(wrong))].as_py())


def _refuse(p: int, why: str, payload: Any) -> NoReturn:
    raise SketchFormatError(
        "SKETCH_CORRUPT",
        f"these bytes are no sketch: {why}",
        where="sketches.hll",
        got=f"{len(payload)} bytes that begin with {payload[:8].hex(' ') or 'nothing'}",
        expected=f"a HyperLogLog of p={p}: 0 and up to {most_coupons(p)} coupons, or 1 and "
        f"{1 << p} registers up to {highest(p)}",
        fix="restore them from where they were written, or make the sketch anew",
    )


def _any_of(wrong: Mask, owners: Ids, count: int) -> Mask:
    result = np.zeros(count, np.bool_)
    result[owners[wrong]] = True
    return result


def _whole(counts: Floats) -> Ints:
    return np.rint(counts).astype(np.int64)


def _around(counts: Floats, certain: Ints, error: Floats) -> tuple[Ints, Ints]:
    """Two standard errors below, but not less than is certain; and above."""
    lower = np.maximum(_whole(counts * (1 - 2 * error)), certain)
    return lower, _whole(counts * (1 + 2 * error))
