"""HyperLogLog: how many distinct values, within a stated error, in a few kilobytes.

A sketch is *sparse* while it has few coupons (see ``hll_registers``), which it stores: the count is
then all but exact. Beyond that it is *dense*: ``2**p`` registers. All its bytes depend on the set of
items alone.

Payload, version 1 (normative description: ``docs/state-formats.md``)::

    form    1 byte   0: sparse, 1: dense
    sparse  uint32   each coupon, little-endian, ascending
    dense   uint8    each register

The image of a sketch in Apache DataSketches (also of Spark's ``hll_*`` functions) begins with eight bytes: length of
the preamble in integers, version 1, family 7, p, log2 of the size of a table, flags, a count or a
least value, and mode and type. Then, by mode:

- LIST, up to 7 coupons, and SET, more of them: the coupons of a sparse sketch. Compact ones are in any
  order; updatable ones are in a hash table, with zeros between.
- HLL: sums for the estimators, and the registers, of 8, of 6, or of 4 bits. Those of 4 are counted
  from the least value, and 15 means that the value is in a pair behind the registers.

Images are written compact, with 8 bits. One of their estimators depends on the order of arrival, which is
not known here. The flag *out of order* makes readers use the registers. The package datasketch writes
``p`` as a byte, and the registers as one byte each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, NoReturn

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamops.kernel.columns import list_items
from streamops.kernel.errors import SketchFormatError
from streamops.kernel.group_states import make_lists, merge_groups
from streamops.kernel.groups import Floats, Groups, Ids, Ints, Mask
from streamops.sketches.core.contract import Format, Parameter
from streamops.sketches.core.hashes import items
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

__all__ = [
    "SPARSE_ERROR",
    "HyperLogLog",
    "from_images",
    "from_registers",
    "from_serialized",
    "to_images",
    "to_serialized",
]

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
        _refuse_any(sizes < 0, "nothing is in them", payloads, self.p)
        forms = np.frombuffer(flat(pc.binary_slice(payloads, 0, 1)), np.uint8)
        sparse = forms == _SPARSE
        _refuse_any(
            ~sparse & (forms != _DENSE), "their form is neither sparse nor dense", payloads, self.p
        )
        unlike = np.where(
            sparse, (sizes % 4 != 0) | (sizes > 4 * most_coupons(self.p)), sizes != 1 << self.p
        )
        _refuse_any(unlike, "their length is that of none", payloads, self.p)
        bodies = behind(payloads, 1)
        found = np.frombuffer(flat(bodies.filter(pa.array(sparse))), "<u4").astype(np.uint32)
        lengths = np.where(sparse, sizes // 4, 0)
        owners = np.repeat(np.arange(len(payloads)), lengths)
        wrong = found < 1 << ADDRESS_BITS  # no value is 0
        wrong[1:] |= (found[1:] <= found[:-1]) & (owners[1:] == owners[:-1])
        _refuse_any(
            _any_of(wrong, owners, len(payloads)),
            "their coupons do not ascend, or one has no value",
            payloads,
            self.p,
        )
        dense = np.frombuffer(flat(bodies.filter(pa.array(~sparse))), np.uint8)
        table = dense.reshape(-1, 1 << self.p)
        peaks = table.max(axis=1, initial=0)
        wrong, owners = (peaks > highest(self.p)) | (peaks == 0), np.flatnonzero(~sparse)
        _refuse_any(
            _any_of(wrong, owners, len(payloads)),
            "a register is out of range, or all are empty",
            payloads,
            self.p,
        )
        return [make_lists(pa.array(found), lengths, ~sparse), binaries(table, ~sparse)]

    def images(self, states: Sequence[pa.Array]) -> pa.Array:
        """Each state as an image of Apache DataSketches."""
        return to_images(states, self.p)

    def from_images(self, images: pa.Array) -> list[pa.Array]:
        """The states of such images: see :mod:`streamops.sketches.core.hyperloglog`."""
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


Heads = npt.NDArray[np.uint8]

_LIST, _SET, _HLL = 0, 1, 2
_INTEGERS = np.array([2, 3, 10, 0], np.uint8)  # of the preamble, by mode; there is no fourth
_EMPTY, _COMPACT, _OUT_OF_ORDER = 4, 8, 16
_EIGHT_BITS = 2
_LIST_SLOTS = 8
_START = 40  # of the registers
_PAIRED = 15
_LARGEST = 63
# Places in a table of pairs that has none, as a power of two, for p from 4 on.
_FEWEST_PAIRS = np.array([2, 2, 2, 3, 3, 3, 4, 4, 5, 5, 6, 7, 8])
_SUMS = np.dtype(
    [("hip", "<f8"), ("high", "<f8"), ("low", "<f8"), ("least", "<u4"), ("aux", "<u4")]
)


def to_images(states: Sequence[pa.Array], p: int) -> pa.Array:
    """The image of each sketch, as ``binary``."""
    found, registers = states
    counts, _ = list_items(found)
    dense = np.asarray(registers.is_valid())
    several = ~dense & (counts >= _LIST_SLOTS)
    mode = np.where(dense, _HLL, several)  # a SET is 1
    heads = np.zeros((len(found), 8), np.uint8)
    heads[:, 0], heads[:, 1], heads[:, 2], heads[:, 3] = _INTEGERS[mode], 1, 7, p
    # A table is filled to three quarters, and has 32 places at least.
    places = 5 + np.searchsorted(24 << np.arange(p), counts)
    heads[:, 4] = np.where(dense, 0, np.where(several, places, 3))
    heads[:, 5] = np.where(dense, _OUT_OF_ORDER, np.where(counts == 0, _EMPTY, 0)) | _COMPACT
    heads[:, 6] = np.where(mode == _LIST, counts, 0)
    heads[:, 7] = mode | _EIGHT_BITS << 2
    sums = _sums(matrix(registers, p)).view(np.uint8).reshape(-1, _SUMS.itemsize)
    number = counts[several].astype("<u4").view(np.uint8).reshape(-1, 4)
    middle = pc.coalesce(binaries(number, several), binaries(sums, dense), b"")
    every = np.ones(len(found), np.bool_)
    body = pc.coalesce(packed(found), registers)
    return pc.binary_join_element_wise(binaries(heads, every), middle, body, b"")


def _sums(table: Registers) -> npt.NDArray[np.void]:
    """What estimators go by: sums of powers of two, of the values below 32 and of the others."""
    sums = np.zeros(len(table), _SUMS)
    for value in range(_LARGEST + 1):
        part = "high" if value < 32 else "low"
        sums[part] += np.count_nonzero(table == value, axis=1) * 0.5**value
    sums["least"] = np.count_nonzero(table == 0, axis=1)
    return sums


def from_images(images: pa.Array, p: int) -> list[pa.Array]:
    """States of the sketches whose images these are; every byte that counts is checked.

    Raises
    ------
    SketchFormatError
        ``SKETCH_CORRUPT``: one of them is no image of a sketch. ``SKETCH_PARAMETERS``: one has
        another p.
    """
    _refuse_any(_sizes(images) < 8, "they are too short", images, p)
    heads = np.frombuffer(flat(pc.binary_slice(images, 0, 8)), np.uint8).reshape(-1, 8)
    mode = heads[:, 7] & 3
    known = (heads[:, 0] == _INTEGERS[mode]) & (heads[:, 1] == 1) & (heads[:, 2] == 7)
    _refuse_any(~known | (mode == 3), "their preamble is another", images, p)
    if (heads[:, 3] != p).any():
        _refuse_precision(int(heads[heads[:, 3] != p, 3][0]), p)
    dense = mode == _HLL
    few = np.flatnonzero(~dense)
    counts, found = _coupons_of(images.take(pa.array(few)), heads[few], p)
    sizes = np.zeros(len(images), np.int64)
    sizes[few] = counts
    table = np.zeros((len(images), 1 << p), np.uint8)
    for kind, read in enumerate((_of_4_bits, _of_6_bits, _of_8_bits, _of_no_bits)):
        rows = np.flatnonzero(dense & (heads[:, 7] >> 2 & 3 == kind))
        table[rows] = read(images.take(pa.array(rows)), heads[rows], p)
    _refuse_any(np.any(table > _LARGEST, axis=1), "a register is out of range", images, p)
    there = np.any(table, axis=1)
    table = np.minimum(table[there], np.uint8(highest(p)))
    return [make_lists(pa.array(found), sizes, there), binaries(table, there)]


def from_registers(table: Registers, p: int) -> list[pa.Array]:
    """States of sketches with these registers, none of which is greater than ``highest``."""
    there = np.any(table, axis=1)
    nothing = np.zeros(len(table), np.int64)
    return [make_lists(pa.array([], pa.uint32()), nothing, there), binaries(table[there], there)]


def to_serialized(table: Registers, p: int) -> pa.Array:
    """Registers as datasketch's ``serialize`` writes them."""
    every = np.ones(len(table), np.bool_)
    first = np.full((len(table), 1), p, np.uint8)
    return binaries(np.concatenate([first, table], axis=1), every)


def from_serialized(blobs: pa.Array, p: int) -> list[pa.Array]:
    """States of sketches that datasketch serialized. It does not check what it reads."""
    sizes = _sizes(blobs)
    _refuse_any(sizes != 1 + (1 << p), "their length is another", blobs, p)
    table = np.frombuffer(flat(blobs), np.uint8).reshape(-1, 1 + (1 << p))
    wrong = (table[:, 0] != p) | (table[:, 1:].max(axis=1, initial=0) > highest(p))
    _refuse_any(wrong, "a register is out of range", blobs, p)
    return from_registers(table[:, 1:], p)


def _coupons_of(images: pa.Array, heads: Heads, p: int) -> tuple[Ints, Coupons]:
    """How many coupons each image has, and all of them, sorted."""
    several = heads[:, 7] & 3 == _SET
    sizes = _sizes(images) - np.where(several, 12, 8)
    _refuse_any((sizes < 0) | several & (p < 8), "they are too short", images, p)
    counts = heads[:, 6].astype(np.int64)
    number = flat(pc.binary_slice(images.filter(pa.array(several)), 8, 12))
    counts[several] = np.frombuffer(number, "<u4")
    most = np.where(several, most_coupons(p), _LIST_SLOTS - 1)
    wrong = (counts > most) | (counts > 0) & (heads[:, 5] & _EMPTY > 0)
    _refuse_any(wrong, "they have more coupons than there may be", images, p)
    tables = np.where(several, 1 << np.minimum(heads[:, 4], 30).astype(np.int64), _LIST_SLOTS)
    slots = np.where(heads[:, 5] & _COMPACT > 0, counts, tables)
    _refuse_any(sizes != 4 * slots, "their length is another", images, p)
    body = pc.if_else(pa.array(several), behind(images, 12), behind(images, 8))
    found = np.frombuffer(flat(body), "<u4").astype(np.uint32)
    ids = np.repeat(np.arange(len(images)), slots)
    ids, found = distinct(ids[found > 0], found[found > 0])
    _refuse_any(np.bincount(ids, minlength=len(images)) != counts, _MISCOUNTED, images, p)
    wrong = np.zeros(len(images), np.bool_)
    wrong[ids[found < 1 << ADDRESS_BITS]] = True
    _refuse_any(wrong, "a coupon has no value", images, p)
    return counts, found


def _of_8_bits(images: pa.Array, heads: Heads, p: int) -> Registers:
    return _bodies(images, np.full(len(images), 1 << p), 1 << p, p)


def _of_6_bits(images: pa.Array, heads: Heads, p: int) -> Registers:
    used = 3 << p >> 2
    body = _bodies(images, np.full(len(images), used + 1), used, p).reshape(-1, 3)
    first, second, third = body.T
    registers = [first, first >> 6 | second << 2, second >> 4 | third << 4, third >> 2]
    return (np.stack(registers, axis=1) & np.uint8(_LARGEST)).reshape(-1, 1 << p)


def _of_4_bits(images: pa.Array, heads: Heads, p: int) -> Registers:
    used = 1 << p >> 1
    _refuse_any(_sizes(images) < _START, "they are too short", images, p)
    pairs = np.frombuffer(flat(pc.binary_slice(images, 36, 40)), "<u4").astype(np.int64)
    places = np.maximum(np.minimum(heads[:, 4], 30).astype(np.int64), _FEWEST_PAIRS[p - 4])
    slots = np.where(heads[:, 5] & _COMPACT > 0, pairs, 1 << places)
    body = _bodies(images, used + 4 * slots, used, p)
    registers = np.stack([body & np.uint8(_PAIRED), body >> 4], axis=2).reshape(-1, 1 << p)
    least = heads[:, 6]
    _refuse_any(least > _LARGEST, "a register is out of range", images, p)
    marked = registers == _PAIRED
    registers += least[:, None]
    found = np.frombuffer(flat(behind(images, _START + used)), "<u4").astype(np.uint32)
    ids = np.repeat(np.arange(len(images)), slots)[found > 0]
    found = found[found > 0]
    number = (found & np.uint32((1 << p) - 1)).astype(np.int64)
    values = found >> np.uint32(ADDRESS_BITS)
    wrong = np.bincount(ids, minlength=len(images)) != pairs
    wrong |= np.count_nonzero(marked, axis=1) != pairs
    wrong[ids[~marked[ids, number] | (values < _PAIRED + least[ids].astype(np.uint32))]] = True
    _refuse_any(wrong, _MISCOUNTED, images, p)
    registers[marked] = 0
    registers[ids, number] = values
    _refuse_any(np.any(marked & (registers == 0), axis=1), _MISCOUNTED, images, p)
    return registers


def _of_no_bits(images: pa.Array, heads: Heads, p: int) -> Registers:
    _refuse_any(np.ones(len(images), np.bool_), "their type is none", images, p)
    return np.empty((0, 1 << p), np.uint8)


def _bodies(images: pa.Array, expected: Ints, used: int, p: int) -> Registers:
    """So many bytes behind the preamble of each, of which there must be as many as expected."""
    _refuse_any(_sizes(images) != _START + expected, "their length is another", images, p)
    bytes_ = flat(pc.binary_slice(images, _START, _START + used))
    return np.frombuffer(bytes_, np.uint8).reshape(-1, used)


def _sizes(images: pa.Array) -> Ids:
    return np.asarray(pc.binary_length(images)).astype(np.int64)


_MISCOUNTED = "their values are more or fewer than they say"


def _refuse_any(wrong: Mask, why: str, blobs: pa.Array, p: int) -> None:
    if not wrong.any():
        return
    blob = blobs[int(np.argmax(wrong))].as_py()
    raise SketchFormatError(
        "SKETCH_CORRUPT",
        f"these bytes are no sketch: {why}",
        where="sketches.hll",
        got=f"{len(blob)} bytes that begin with {blob[:8].hex(' ') or 'nothing'}",
        expected=f"a HyperLogLog of p={p}: 0 and up to {most_coupons(p)} coupons, or 1 and "
        f"{1 << p} registers up to {highest(p)}",
        fix="restore them from where they were written, or make the sketch anew",
    )


def _refuse_precision(got: int, p: int) -> NoReturn:
    raise SketchFormatError(
        "SKETCH_PARAMETERS",
        "this sketch has another precision",
        where="sketches.hll",
        got=f"p={got}",
        expected=f"p={p}",
        fix=f"ask for p={got}, or make the sketch anew",
    )
