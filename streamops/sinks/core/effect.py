"""The net effect of a micro-batch on rows of the target that were read.

For targets that cannot compare rows as Spark does: null equals null, NaN equals NaN, -0.0 equals 0.0, and
nested values are compared by their fields.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamops.changelog.faults import FAULTS
from streamops.kernel.columns import combine_chunks, key_codes, take
from streamops.kernel.groups import Ids, Ints, Mask, ordered_pair_codes
from streamops.kernel.ordering import is_orderable, ranks
from streamops.sinks.core.net import Net

_LOOKED_UP = 8
"""Up to how many bytes of a table per integer are looked up in it, which is faster than hashing."""


def check_changes(
    net: Net, current: pa.Table, *, key: Sequence[str], content: Sequence[str]
) -> None:
    """Compare a change stream with the rows that the target has.

    Parameters
    ----------
    net : Net
        The net changes, in the types of the target.
    current : Table
        All rows of the target with keys of the net changes.
    key : sequence of str
        Columns that identify a row.
    content : sequence of str
        Columns whose values a preimage repeats.

    Raises
    ------
    ChangeStreamError
        ``PREIMAGE_NOT_PUBLISHED``, ``DELETED_UNPUBLISHED`` or ``INSERTED_TWICE``.
    """
    removed, added, present = _codes([net.removed, net.added, current], key)
    rows, found = _codes([net.removed, current], list(dict.fromkeys([*key, *content])))
    known = ~net.must_match | np.isin(rows, found)
    _refuse(net.removed, ~known, "PREIMAGE_NOT_PUBLISHED")
    _refuse(net.removed, ~np.isin(removed, present), "DELETED_UNPUBLISHED")
    _refuse(net.added, ~net.replaces & np.isin(added, present), "INSERTED_TWICE")


def newer_rows(
    added: pa.Table, current: pa.Table, *, key: Sequence[str], sequence: Sequence[str]
) -> Mask:
    """Return which rows are newer than the row of the same key, or have a new key.

    A null sequence, as in rows from before the column was added, is the lowest.
    """
    rows, present = _codes([added, current], key)
    order = np.zeros(len(rows) + len(present), np.int64)
    for name in sequence:
        columns = [combine_chunks(table.column(name)) for table in (added, current)]
        order = ordered_pair_codes(order, ranks(pa.concat_arrays(columns)))
    at = np.argsort(present, kind="stable")
    keys, first = np.unique(present[at], return_index=True)
    if not len(keys):
        return np.ones(len(rows), np.bool_)
    highest = np.maximum.reduceat(order[len(rows) :][at], first)
    slot = np.minimum(np.searchsorted(keys, rows), len(keys) - 1)
    newer: Mask = (keys[slot] != rows) | (highest[slot] < order[: len(rows)])
    return newer


def remaining_rows(net: Net, current: pa.Table, *, content: Sequence[str]) -> Mask:
    """Return which rows of a multiset stay when the removed copies are taken from it.

    Raises
    ------
    ChangeStreamError
        ``PREIMAGE_NOT_PUBLISHED``: there are fewer copies.
    """
    removed, present = _codes([net.removed, current], content)
    at = np.argsort(present, kind="stable")
    ordered = present[at]
    first = np.searchsorted(ordered, removed)
    copies = np.searchsorted(ordered, removed, side="right") - first
    _refuse(net.removed, copies < net.removed_copies, "PREIMAGE_NOT_PUBLISHED")
    stays = np.ones(len(present), np.bool_)
    taken = net.removed_copies
    position = np.arange(taken.sum()) - np.repeat(np.cumsum(taken) - taken, taken)
    stays[at[np.repeat(first, taken) + position]] = False
    return stays


def is_applied(
    before: pa.Table,
    after: pa.Table,
    *,
    removed: pa.Table,
    added: pa.Table,
    key: Sequence[str],
    content: Sequence[str],
) -> bool:
    """Return whether rows that were read before and after a change are different by this change only.

    Without a key, rows are counted. With a key, all rows of it are equal to the added one.
    """
    if not key:
        codes = _codes([before, added, removed, after], content)
        size = 1 + max((int(part.max()) for part in codes if len(part)), default=0)
        old, more, less, new = (np.bincount(part, minlength=size) for part in codes)
        return bool((old + more - less == new).all())
    changed = pa.concat_tables([removed.select(list(key)), added.select(list(key))])
    others = before.filter(pa.array(~is_among(before, changed, key)))
    expected, found = _codes([pa.concat_tables([others, added]), after], content)
    return bool(np.array_equal(np.unique(expected), np.unique(found)))


def is_among(rows: pa.Table, others: pa.Table, names: Sequence[str]) -> Mask:
    """Return which rows are equal to one of the others in these columns."""
    found, codes = _codes([rows, others], names)
    return np.isin(found, codes)


def having(rows: pa.Table, wanted: pa.Table, names: Sequence[str]) -> pa.Table:
    """Return the rows that are equal to one of the wanted rows in these columns."""
    return rows.filter(pa.array(is_like(rows, wanted, names)))


def is_like(rows: pa.Table, wanted: pa.Table, names: Sequence[str]) -> Mask:
    """Return the same as :func:`is_among`, fast if most rows are not."""
    for name in names:
        dtype = rows.schema.field(name).type
        if is_orderable(dtype) and not pa.types.is_floating(dtype):
            # Of one array: for a chunked one, Arrow needs twice the time.
            is_found = _is_in(*(combine_chunks(table.column(name)) for table in (rows, wanted)))
            if len(names) > 1:  # most rows are excluded by one column
                is_found[is_found] = is_among(rows.filter(pa.array(is_found)), wanted, names)
            return is_found
    return is_among(rows, wanted, names)


def _is_in(values: pa.Array, wanted: pa.Array) -> Mask:
    """Return which values are wanted; null is equal to null."""
    has_null = values.null_count or wanted.null_count
    if pa.types.is_integer(values.type) and len(wanted) and not has_null:
        found, numbers = (np.asarray(part.cast(pa.int64())) for part in (values, wanted))
        low, high = int(numbers.min()), int(numbers.max())
        if high - low < _LOOKED_UP * (len(found) + len(numbers)):
            is_wanted = np.zeros(high - low + 1, np.bool_)
            is_wanted[numbers - low] = True
            inside = (found >= low) & (found <= high)
            looked_up: Mask = inside & is_wanted[np.where(inside, found, low) - low]
            return looked_up
    result: Mask = np.array(pc.is_in(values, value_set=wanted))
    return result


def repeat(rows: pa.Table, copies: Ints) -> pa.Table:
    """Return each row as often as given."""
    return take(rows, np.repeat(np.arange(len(rows)), copies)) if (copies != 1).any() else rows


def _codes(tables: Sequence[pa.Table], names: Sequence[str]) -> list[Ids]:
    """Codes of the rows of several tables, equal where the columns are equal."""
    lengths = [table.num_rows for table in tables]
    columns = [
        pa.concat_arrays([combine_chunks(table.column(name)) for table in tables]) for name in names
    ]
    return np.split(key_codes(columns, sum(lengths)), np.cumsum(lengths)[:-1])


def _refuse(rows: pa.Table, wrong: Mask, code: str) -> None:
    found = np.flatnonzero(wrong)
    if len(found):
        row = str(rows.slice(int(found[0]), 1).to_pylist()[0])
        raise FAULTS[code].error(got=row)
