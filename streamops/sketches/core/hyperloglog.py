"""HyperLogLog: the number of distinct values, within a stated error, in a few kilobytes.

A sketch with few coupons (see ``hll_registers``) is *sparse*: it stores them, and its count is almost
exact. With more it is *dense*: it stores ``2**p`` registers. All its bytes depend on the set of items
alone.

Payload, version 1 (``docs/state-formats.md``): a byte, 0 for sparse or 1 for dense; then the ascending
coupons as uint32, or the registers as uint8.

Images are the format of Apache DataSketches and of Spark's ``hll_*`` functions. They begin with eight
bytes: length of the preamble in integers, version 1, family 7, p, log2 of the size of a table, flags, a
count or a least value, and mode and type. The rest depends on the mode:

- LIST, up to 7 coupons, and SET, more of them: the coupons of a sparse sketch. Compact ones are in any
  order; updatable ones are in a hash table, with zeros between.
- HLL: sums for the estimators, and the registers, of 8, of 6, or of 4 bits. Those of 4 are counted
  from the least value, and 15 means that the value is in a pair behind the registers.

Images are written compact, with 8 bits per register. One of their estimators depends on the order of
arrival, which is not known here: the flag *out of order* makes readers use the registers. The package
datasketch writes ``p`` as a byte, and the registers as one byte each.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamops.kernel.aggregation import make_lists, merge_groups
from streamops.kernel.columns import list_items
from streamops.kernel.errors import located
from streamops.kernel.groups import Floats, Groups, Ids, Ints, Mask
from streamops.sketches import conditions
from streamops.sketches.core.buffers import (
    argsort_rows,
    drop_prefix,
    flat_bytes,
    lengths_of,
    make_binary,
    refuse_payloads,
    rows_to_binary,
    run_starts,
)
from streamops.sketches.core.items import Hashes, group_items, murmur3
from streamops.sketches.core.sketch import NUMBER, ColumnSketch, Format, Parameter

Coupons = npt.NDArray[np.uint32]
Registers = npt.NDArray[np.uint8]
Word = TypeVar("Word", bound=np.unsignedinteger)

ADDRESS_BITS = 26

_ADDRESS = np.uint64((1 << ADDRESS_BITS) - 1)
_MOST_ZEROS = 62
# Rows, or registers, at a time: their temporaries stay in the processor's cache.
_BLOCK = 1 << 15


def most_coupons(p: int) -> int:
    """Maximum number of coupons of a sparse sketch: as in Apache DataSketches and Spark.

    At about this number, compressed registers take no more room, since most of them are empty.

    Examples
    --------
    >>> most_coupons(4), most_coupons(12)
    (7, 384)
    """
    return 3 << p - 5 if p >= 8 else 7


def highest(p: int) -> int:
    """Maximum value of a register."""
    return 65 - p


def coupons(items: Ints) -> Coupons:
    """The coupon of each item.

    Examples
    --------
    >>> [(c >> 26, c & 0x3FFFFFF) for c in coupons(np.array([1, 2])).tolist()]
    [(1, 50065963), (3, 33107846)]
    """
    result = np.empty(len(items), np.uint32)
    for start in range(0, len(items), _BLOCK):
        rows = slice(start, start + _BLOCK)
        first, second = murmur3(items[rows])
        value = np.minimum(leading_zeros(second), np.uint64(_MOST_ZEROS)) + np.uint64(1)
        result[rows] = (value << np.uint64(ADDRESS_BITS)) | (first & _ADDRESS)
    return result


def leading_zeros(hashes: Hashes) -> Hashes:
    """Number of zeros before the first bit that is set.

    Examples
    --------
    >>> leading_zeros(np.array([0, 1, 2**64 - 1], np.uint64)).tolist()
    [64, 63, 0]
    """
    # Bits below a set one are cleared, so that rounding to a double does not raise the first one.
    # The exponent is 1023 more than the number of the bit; that of 0.0 is 0.
    alone = hashes & ~(hashes >> np.uint64(1))
    exponent = alone.astype(np.float64).view(np.uint64) >> np.uint64(52)
    zeros: Hashes = np.minimum(np.uint64(1023 + 63) - exponent, np.uint64(64))
    return zeros


def capped(found: Coupons, p: int) -> tuple[Ids, Registers]:
    """Register of each coupon, and its value there, at most the maximum."""
    values = np.minimum(found >> np.uint32(ADDRESS_BITS), highest(p)).astype(np.uint8)
    return (found & np.uint32((1 << p) - 1)).astype(np.int64), values


def distinct(ids: Ids, found: Coupons) -> tuple[Ids, Coupons]:
    """The distinct pairs, sorted."""
    values = found.astype(np.int64)
    order = argsort_rows(ids, values, int(ids.max(initial=0)) + 1)
    ids, values = ids[order], values[order]
    new = run_starts(ids, values)
    return ids[new], values[new].astype(np.uint32)


def greatest(ids: Ids, registers: npt.NDArray[Word]) -> tuple[Ids, npt.NDArray[Word]]:
    """The maximum of each column over the rows of each id.

    Neighbouring rows are combined in pairs, in log2 of the size of the largest group rounds.
    """
    if (ids[1:] < ids[:-1]).any():
        order = np.argsort(ids, kind="stable")
        ids, registers = ids[order], registers[order]
    while True:
        begins = np.append(True, ids[1:] != ids[:-1])[: len(ids)]
        firsts = np.flatnonzero(begins)
        position = np.arange(len(ids)) - np.repeat(firsts, np.diff(np.append(firsts, len(ids))))
        left = np.flatnonzero(position % 2 == 0)
        if len(left) == len(ids):
            return ids, registers
        paired = np.append(~begins, False)[left + 1]
        united = registers[left]
        united[paired] = np.maximum(united[paired], registers[left[paired] + 1])
        ids, registers = ids[left], united


def matrix(registers: pa.Array, p: int) -> Registers:
    """The registers that are not null, one row each."""
    return flat_bytes(registers.drop_null()).reshape(-1, 1 << p)


def packed(found: pa.Array) -> pa.Array:
    """The coupons of each list as bytes, little-endian; null for a null."""
    sizes, values = list_items(found)
    ends = np.append(0, np.cumsum(4 * sizes))
    return make_binary(ends, np.asarray(values).astype("<u4"), np.asarray(found.is_valid()))


def estimates(registers: Registers, p: int) -> Floats:
    """Number of distinct items by Ertl's improved raw estimator, which needs no table.

    It has no thresholds: terms for the registers that are empty, and for those with the highest value,
    take the place of linear counting and of corrections. The constant is that of a finite number of
    registers (Flajolet and others, 2007); its limit would be 7 % too high for 16 of them.

    References
    ----------
    Ertl: "New cardinality estimation algorithms for HyperLogLog sketches", 2017, section 4.
    """
    count, top = 1 << p, highest(p)
    sums, rows = np.empty(len(registers)), max(_BLOCK >> p, 1)
    empty, full = np.empty_like(sums), np.empty_like(sums)
    for start in range(0, len(registers), rows):
        block = slice(start, start + rows)
        # A power of two is its exponent and no other bit: faster than a table.
        powers = (np.uint32(127) - registers[block].astype(np.uint32)) << np.uint32(23)
        sums[block] = powers.view(np.float32).sum(axis=1, dtype=np.float64)
        empty[block] = count - np.count_nonzero(registers[block], axis=1)
        full[block] = np.count_nonzero(registers[block] == top, axis=1)
    between = sums - empty - full * 0.5**top
    total = between + count * (_sigma(empty / count) + 0.5 ** (top - 1) * _tau(1 - full / count))
    with np.errstate(divide="ignore"):  # infinite if every register has the highest value
        found: Floats = count**2 / (2 * np.log(2) * (1 + 1.079 / count)) / total
    return found


def _sigma(x: Floats) -> Floats:
    """``x + x**2 + 2 * x**4 + 4 * x**8 + ...``, infinite for 1."""
    result = np.where(x == 1, np.inf, x)
    term, weight = x.copy(), 1.0
    while (term[x < 1] * weight > 1e-20).any():
        term = term * term
        result += weight * term
        weight *= 2
    return result


def _tau(x: Floats) -> Floats:
    """A third of ``1 - x - (1 - x**(1/2))**2 / 2 - (1 - x**(1/4))**2 / 4 - ...``, 0 for 0 and 1."""
    result, root, weight = 1 - x, x.copy(), 1.0
    while weight > 1e-20:
        root = np.sqrt(root)
        weight /= 2
        result -= weight * (1 - root) ** 2
    return np.where(x > 0, result / 3, 0.0)


SPARSE_ERROR = 1 / (6 * (1 << ADDRESS_BITS)) ** 0.5
"""Relative standard error of a sparse sketch: two items share a coupon once in ``3 * 2**26``."""

_SPARSE, _DENSE = 0, 1
_LARGEST_NUMBER = 2.0**63 - 1024  # the largest double that is an int64
_NO_OWNERS = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class HyperLogLog(ColumnSketch):
    """Distinct values of a column that are not null, by ``2**p`` registers, p from 4 to 16.

    The standard error is ``1.04 / sqrt(2**p)``.
    """

    column: str
    p: int

    format: ClassVar[Format] = Format("hll", 1)
    fields: ClassVar[tuple[tuple[str, pa.DataType], ...]] = (
        ("coupons", pa.list_(pa.uint32())),
        ("registers", pa.binary()),
    )
    result: ClassVar[pa.DataType] = NUMBER

    @property
    def parameters(self) -> Mapping[str, Parameter]:
        """The precision."""
        return {"p": self.p}

    def update(self, groups: Groups, rows: pa.Table) -> list[pa.Array]:
        """Store the coupons of each group, or set its registers."""
        groups, hashes = group_items(groups, rows.column(self.column))
        return self._build(groups, coupons(hashes))

    def merge(self, groups: Groups, states: Sequence[pa.Array]) -> list[pa.Array]:
        """Unite the coupons, and take the maximum of each register."""
        return merge_groups(groups, states, self._unite)

    def _unite(self, groups: Groups, states: Sequence[pa.Array]) -> list[pa.Array]:
        found, dense = states
        sizes, values = list_items(found)
        owners = groups.ids[np.asarray(dense.is_valid())]
        holders = Groups(np.repeat(groups.ids, sizes), groups.count)
        return self._build(holders, np.asarray(values), owners, matrix(dense, self.p))

    def estimate(self, states: Sequence[pa.Array]) -> pa.Array:
        """The number of items, bounds at two standard errors, and the standard error.

        The lower bound is at least the number of coupons, or of registers that are not empty.
        """
        counts, certain, error = self._count(states)
        lower = np.maximum(_whole(counts * (1 - 2 * error)), certain)
        parts = [_whole(counts), lower, _whole(counts * (1 + 2 * error)), error]
        return pa.StructArray.from_arrays([pa.array(part) for part in parts], fields=[*self.result])

    def registers(self, states: Sequence[pa.Array]) -> Registers:
        """The registers of every state, dense or sparse: one row each."""
        found, dense = states
        result = np.zeros((len(found), 1 << self.p), np.uint8)
        result[np.asarray(dense.is_valid())] = matrix(dense, self.p)
        sizes, values = list_items(found)
        self._raise(result, np.repeat(np.arange(len(found)), sizes), np.asarray(values))
        return result

    def payload(self, states: Sequence[pa.Array]) -> pa.Array:
        """Each state as bytes."""
        found, dense = states
        sparse = np.asarray(found.is_valid())
        bodies = pc.coalesce(packed(found), dense)
        forms = pa.array([bytes([_DENSE]), bytes([_SPARSE])]).take(pa.array(sparse.astype(int)))
        return pc.binary_join_element_wise(forms, bodies, b"")

    def revive(self, payloads: pa.Array) -> list[pa.Array]:
        """The states of payloads; every byte is checked."""
        p, count = self.p, len(payloads)
        sizes = lengths_of(payloads) - 1
        _refuse(sizes < 0, "it is empty", p)
        forms = flat_bytes(pc.binary_slice(payloads, 0, 1))
        sparse = forms == _SPARSE
        _refuse(~sparse & (forms != _DENSE), "its form is neither sparse nor dense", p)
        is_list = (sizes % 4 == 0) & (sizes <= 4 * most_coupons(p))
        _refuse(~np.where(sparse, is_list, sizes == 1 << p), "no form has its length", p)
        bodies = drop_prefix(payloads, 1)
        found = flat_bytes(bodies.filter(pa.array(sparse))).view("<u4").astype(np.uint32)
        lengths = np.where(sparse, sizes // 4, 0)
        owners = np.repeat(np.arange(count), lengths)
        wrong = found < 1 << ADDRESS_BITS  # no value is 0
        wrong[1:] |= (found[1:] <= found[:-1]) & (owners[1:] == owners[:-1])
        reason = "its coupons do not ascend, or one has no value"
        _refuse(_any_of(wrong, owners, count), reason, p)
        table = flat_bytes(bodies.filter(pa.array(~sparse))).reshape(-1, 1 << p)
        peaks = table.max(axis=1, initial=0)
        wrong, owners = (peaks > highest(p)) | (peaks == 0), np.flatnonzero(~sparse)
        reason = "a register is out of range, or all are empty"
        _refuse(_any_of(wrong, owners, count), reason, p)
        return [make_lists(pa.array(found), lengths, ~sparse), rows_to_binary(table, ~sparse)]

    def images(self, states: Sequence[pa.Array]) -> pa.Array:
        """Each state as an image of Apache DataSketches."""
        return to_images(states, self.p)

    def from_images(self, images: pa.Array) -> list[pa.Array]:
        """The states of such images."""
        return from_images(images, self.p)

    def _build(
        self,
        groups: Groups,
        found: Coupons,
        owners: Ids = _NO_OWNERS,
        registers: Registers | None = None,
    ) -> list[pa.Array]:
        """States of coupons, by group, and of registers, by owner."""
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
        else:
            table = table.copy()  # it may be a view of the state before, which stays as it is
        inside = dense[ids]
        self._raise(table, row[ids[inside]], found[inside])
        stored = make_lists(pa.array(found[~inside]), np.where(dense, 0, sizes), dense)
        return [stored, rows_to_binary(table, dense)]

    def _raise(self, table: Registers, rows: Ids, found: Coupons) -> None:
        """Raise registers to the values of coupons, which ascend within each row."""
        number, values = capped(found, self.p)
        flat, position = table.reshape(-1), (rows << self.p) + number
        # Coupons ascend: the greatest value of a register is written last.
        flat[position] = np.maximum(flat[position], values)

    def _count(self, states: Sequence[pa.Array]) -> tuple[Floats, Ints, Floats]:
        """Estimate, certain number of items, and relative standard error of each state."""
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
    return np.rint(np.minimum(counts, _LARGEST_NUMBER)).astype(np.int64)


Heads = npt.NDArray[np.uint8]

_LIST, _SET, _HLL = 0, 1, 2
_INTEGERS = np.array(
    [2, 3, 10, 0], np.uint8
)  # integers of the preamble, by mode; the fourth is unused
_EMPTY, _COMPACT, _OUT_OF_ORDER = 4, 8, 16
_EIGHT_BITS = 2
_LIST_SLOTS = 8
_START = 40  # position of the registers
_PAIRED = 15
_LARGEST = 63
# Log2 of the size of an empty table of pairs, for p from 4 on.
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
    # A table is filled to three quarters, and has at least 32 slots.
    log_slots = 5 + np.searchsorted(24 << np.arange(p), counts)
    heads[:, 4] = np.where(dense, 0, np.where(several, log_slots, 3))
    heads[:, 5] = np.where(dense, _OUT_OF_ORDER, np.where(counts == 0, _EMPTY, 0)) | _COMPACT
    heads[:, 6] = np.where(mode == _LIST, counts, 0)
    heads[:, 7] = mode | _EIGHT_BITS << 2
    sums = _sums(matrix(registers, p)).view(np.uint8).reshape(-1, _SUMS.itemsize)
    number = counts[several].astype("<u4").view(np.uint8).reshape(-1, 4)
    middle = pc.coalesce(rows_to_binary(number, several), rows_to_binary(sums, dense), b"")
    body = pc.coalesce(packed(found), registers)
    return pc.binary_join_element_wise(rows_to_binary(heads), middle, body, b"")


def _sums(table: Registers) -> npt.NDArray[np.void]:
    """Sums of powers of two for the estimators: of the values below 32, and of the others."""
    sums = np.zeros(len(table), _SUMS)
    for value in range(_LARGEST + 1):
        part = "high" if value < 32 else "low"
        sums[part] += np.count_nonzero(table == value, axis=1) * 0.5**value
    sums["least"] = np.count_nonzero(table == 0, axis=1)
    return sums


def from_images(images: pa.Array, p: int) -> list[pa.Array]:
    """The states of images; every byte in use is checked.

    Raises ``SKETCH_CORRUPT``, or ``SKETCH_PARAMETERS`` for another p.
    """
    _refuse(lengths_of(images) < 8, "it is too short", p)
    heads = flat_bytes(pc.binary_slice(images, 0, 8)).reshape(-1, 8)
    mode = heads[:, 7] & 3
    known = (heads[:, 0] == _INTEGERS[mode]) & (heads[:, 1] == 1) & (heads[:, 2] == 7)
    _refuse(~known | (mode == 3), "its preamble is another", p)
    if (heads[:, 3] != p).any():
        got = int(heads[heads[:, 3] != p, 3][0])
        raise conditions.OTHER_PRECISION.error(at="sketches.hll", found=got, p=p, got=f"p={got}")
    dense = mode == _HLL
    few = np.flatnonzero(~dense)
    counts, found = _coupons_of(images.take(pa.array(few)), heads[few], p)
    sizes = np.zeros(len(images), np.int64)
    sizes[few] = counts
    table = np.zeros((len(images), 1 << p), np.uint8)
    for code, read in enumerate((_of_4_bits, _of_6_bits, _of_8_bits, _of_no_bits)):
        rows = np.flatnonzero(dense & (heads[:, 7] >> 2 & 3 == code))
        table[rows] = read(images.take(pa.array(rows)), heads[rows], p)
    _refuse(np.any(table > _LARGEST, axis=1), "a register is out of range", p)
    present = np.any(table, axis=1)
    table = np.minimum(table[present], np.uint8(highest(p)))
    return [make_lists(pa.array(found), sizes, present), rows_to_binary(table, present)]


def from_registers(table: Registers) -> list[pa.Array]:
    """States of sketches with these registers, none of which exceeds the maximum."""
    present = np.any(table, axis=1)
    sizes = np.zeros(len(table), np.int64)
    stored = make_lists(pa.array([], pa.uint32()), sizes, present)
    return [stored, rows_to_binary(table[present], present)]


def from_serialized(blobs: pa.Array, p: int) -> list[pa.Array]:
    """States of sketches that datasketch serialized. It does not check what it reads."""
    _refuse(lengths_of(blobs) != 1 + (1 << p), "it does not have the expected length", p)
    table = flat_bytes(blobs).reshape(-1, 1 + (1 << p))
    wrong = (table[:, 0] != p) | (table[:, 1:].max(axis=1, initial=0) > highest(p))
    _refuse(wrong, "a register is out of range", p)
    return from_registers(table[:, 1:])


def _coupons_of(images: pa.Array, heads: Heads, p: int) -> tuple[Ints, Coupons]:
    """The number of coupons of each image, and all of them, sorted."""
    several = heads[:, 7] & 3 == _SET
    sizes = lengths_of(images) - np.where(several, 12, 8)
    _refuse((sizes < 0) | several & (p < 8), "it is too short", p)
    counts = heads[:, 6].astype(np.int64)
    number = flat_bytes(pc.binary_slice(images.filter(pa.array(several)), 8, 12))
    counts[several] = number.view("<u4")
    most = np.where(several, most_coupons(p), _LIST_SLOTS - 1)
    wrong = (counts > most) | (counts > 0) & (heads[:, 5] & _EMPTY > 0)
    _refuse(wrong, "it has too many coupons", p)
    tables = np.where(several, 1 << np.minimum(heads[:, 4], 30).astype(np.int64), _LIST_SLOTS)
    slots = np.where(heads[:, 5] & _COMPACT > 0, counts, tables)
    _refuse(sizes != 4 * slots, "it does not have the expected length", p)
    body = pc.if_else(pa.array(several), drop_prefix(images, 12), drop_prefix(images, 8))
    found = flat_bytes(body).view("<u4").astype(np.uint32)
    ids = np.repeat(np.arange(len(images)), slots)
    ids, found = distinct(ids[found > 0], found[found > 0])
    _refuse(np.bincount(ids, minlength=len(images)) != counts, _MISCOUNTED, p)
    _refuse(_any_of(found < 1 << ADDRESS_BITS, ids, len(images)), "a coupon has no value", p)
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
    _refuse(lengths_of(images) < _START, "it is too short", p)
    pairs = flat_bytes(pc.binary_slice(images, 36, 40)).view("<u4").astype(np.int64)
    log_slots = np.maximum(np.minimum(heads[:, 4], 30).astype(np.int64), _FEWEST_PAIRS[p - 4])
    slots = np.where(heads[:, 5] & _COMPACT > 0, pairs, 1 << log_slots)
    body = _bodies(images, used + 4 * slots, used, p)
    registers = np.stack([body & np.uint8(_PAIRED), body >> 4], axis=2).reshape(-1, 1 << p)
    least = heads[:, 6]
    _refuse(least > _LARGEST, "a register is out of range", p)
    marked = registers == _PAIRED
    registers += least[:, None]
    found = flat_bytes(drop_prefix(images, _START + used)).view("<u4").astype(np.uint32)
    ids = np.repeat(np.arange(len(images)), slots)[found > 0]
    found = found[found > 0]
    number = (found & np.uint32((1 << p) - 1)).astype(np.int64)
    values = found >> np.uint32(ADDRESS_BITS)
    wrong = np.bincount(ids, minlength=len(images)) != pairs
    wrong |= np.count_nonzero(marked, axis=1) != pairs
    wrong[ids[~marked[ids, number] | (values < _PAIRED + least[ids].astype(np.uint32))]] = True
    _refuse(wrong, _MISCOUNTED, p)
    registers[marked] = 0
    registers[ids, number] = values
    _refuse(np.any(marked & (registers == 0), axis=1), _MISCOUNTED, p)
    return registers


def _of_no_bits(images: pa.Array, heads: Heads, p: int) -> Registers:
    _refuse(np.ones(len(images), np.bool_), "its type is unknown", p)
    return np.empty((0, 1 << p), np.uint8)


def _bodies(images: pa.Array, expected: Ints, used: int, p: int) -> Registers:
    """The used bytes after the preamble of each image, which must be as long as expected."""
    _refuse(lengths_of(images) != _START + expected, "it does not have the expected length", p)
    return flat_bytes(pc.binary_slice(images, _START, _START + used)).reshape(-1, used)


_MISCOUNTED = "it does not contain the stated number of values"


def _refuse(wrong: Mask, reason: str, p: int) -> None:
    expected = (
        f"a HyperLogLog of p={p}: up to {most_coupons(p)} coupons, or {1 << p} registers up to"
    )
    with located(at="sketches.hll"):
        refuse_payloads(wrong, reason, expected=f"{expected} {highest(p)}")
