"""Compare two tables with the same rows in another order, exactly and in columns."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa

from streamops.kernel.columns import combine_chunks, take
from streamops.kernel.formatted import format_row
from streamops.kernel.hashing import digests

_BITS = {pa.float16(): pa.int16(), pa.float32(): pa.int32(), pa.float64(): pa.int64()}


def find_row(left: pa.Table, right: pa.Table) -> str:
    """Describe a row that one of two tables has more often than the other; empty if there is none.

    The order of rows does not matter. Floats are compared by their bits: NaN equals NaN, and 0.0 differs from -0.0.

    Examples
    --------
    >>> find_row(pa.table({"n": [1, 2]}), pa.table({"n": [2, 1]}))
    ''
    >>> find_row(pa.table({"n": [1, 2]}), pa.table({"n": [2, 2]}))
    "{'n': 1}: 1 row and 0"
    """
    if not left.schema.equals(right.schema):
        return f"columns {left.schema.names} and {right.schema.names}, or their types"
    if len(left) == len(right) and _first_difference(_to_bits(left), _to_bits(right), 0) is None:
        return ""
    one, other = _Sorted(left), _Sorted(right)
    length = min(len(left), len(right))
    differ = np.flatnonzero(one.hashes[:length] != other.hashes[:length])
    if len(differ) or len(left) != len(right):
        # Up to here both have the same hashes, so the lower one is of a row that the other table lacks.
        at = int(differ[0]) if len(differ) else length
        return _compare_runs(
            one, other, min(of.hashes[at] for of in (one, other) if at < len(of.hashes))
        )
    start = 0
    while (differing := _first_difference(one.bits, other.bits, start)) is not None:
        found = _compare_runs(one, other, one.hashes[differing])
        if found:
            return found
        start = int(np.searchsorted(one.hashes, one.hashes[differing], "right"))
    return ""


class _Sorted:
    """A table in the order of the digests of its rows."""

    def __init__(self, table: pa.Table) -> None:
        bits = _to_bits(table)
        hashes = digests(bits.columns) if bits.num_columns else np.zeros(len(bits), np.int64)
        order = np.argsort(hashes, kind="stable")
        self.rows, self.bits, self.hashes = take(table, order), take(bits, order), hashes[order]


def _compare_runs(one: _Sorted, other: _Sorted, hash_: np.int64) -> str:
    """Describe a difference among the few rows with this hash; empty if there is none."""
    counts: list[Counter[str]] = []
    examples: dict[str, str] = {}
    for of in (one, other):
        first, last = (int(np.searchsorted(of.hashes, hash_, side)) for side in ("left", "right"))
        bits = [format_row(of.bits, at) for at in range(first, last)]
        examples |= {key: format_row(of.rows, at) for at, key in enumerate(bits, first)}
        counts.append(Counter(bits))
    left, right = counts
    for key, row in examples.items():
        if left[key] != right[key]:
            return f"{row}: {left[key]} row{'s' * (left[key] != 1)} and {right[key]}"
    return ""


def _first_difference(left: pa.Table, right: pa.Table, start: int) -> int | None:
    """The first row from ``start`` on that differs between tables of the same length; None if none does."""
    low, high = start, len(left)
    if left.slice(low).equals(right.slice(low)):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        length = middle - low
        if left.slice(low, length).equals(right.slice(low, length)):
            low = middle
        else:
            high = middle
    return low


def _to_bits(table: pa.Table) -> pa.Table:
    """The table with integers of the same bits instead of floats, and lists of entries instead of maps."""
    columns = [combine_chunks(column) for column in table.columns]
    viewed = [of if (to := _bits_type(of.type)) == of.type else of.view(to) for of in columns]
    return pa.Table.from_arrays(viewed, table.column_names)


def _bits_type(dtype: pa.DataType) -> pa.DataType:
    if pa.types.is_map(dtype):
        entry = [("key", _bits_type(dtype.key_type)), ("value", _bits_type(dtype.item_type))]
        return pa.list_(pa.struct(entry))
    if pa.types.is_struct(dtype):
        return pa.struct([(of.name, _bits_type(of.type)) for of in dtype])
    if pa.types.is_list(dtype):
        return pa.list_(_bits_type(dtype.value_type))
    if pa.types.is_large_list(dtype):
        return pa.large_list(_bits_type(dtype.value_type))
    return _BITS.get(dtype, dtype)
