"""The net effect of a micro-batch on its target, for all forms of rows.

==============  =========================================================  ===========================
form            columns                                                    effect
==============  =========================================================  ===========================
append          no key                                                     all rows are added
upsert          a key, and a sequence such as ``revision``, or none        the latest row of each key
changes         a key, and ``_change_type``                                the first row that a key had
                                                                           and the last that it has
multiset        ``_change_type``, no key                                   the net number of equal rows
==============  =========================================================  ===========================

The order of the rows of a micro-batch does not matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamops.changelog.change_types import (
    CHANGE_TYPE,
    FAULTS,
    INSERT,
    POSTIMAGE,
    PREIMAGE,
    RETRACTIONS,
    REVISION,
    change_weights,
    consolidate,
    is_change_type,
)
from streamops.changelog.table import CHANGE_COLUMNS, COMMIT_COLUMNS, REJECTED
from streamops.kernel.columns import combine_chunks, key_codes, list_items, take
from streamops.kernel.formatted import format_row
from streamops.kernel.groups import Ids, Ints, Mask, ordered_pair_codes
from streamops.kernel.hashing import chained, digests, sorted_maps, with_shapes
from streamops.kernel.ordering import is_orderable, ranks, require_sequence
from streamops.sinks import conditions

Form = Literal["append", "upsert", "changes", "multiset"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Net:
    """The net effect of a micro-batch.

    Parameters
    ----------
    removed : Table
        Rows that the target must have, and loses.
    must_match : array of bool
        Of which removed rows the target must have all values. Of the others, the key is enough.
    is_replaced : array of bool
        Which removed rows are replaced by an added row of the same key.
    removed_copies : array of int
        How often each removed row occurs: 1, except in a multiset.
    added : Table
        Rows that the target gets.
    replaces : array of bool
        Which added rows replace a removed row. In the form "changes", the keys of the others are new.
    added_copies : array of int
        How often each added row occurs: 1, except in a multiset.
    """

    removed: pa.Table
    must_match: Mask
    is_replaced: Mask
    removed_copies: Ints
    added: pa.Table
    replaces: Mask
    added_copies: Ints


def form_of(columns: Sequence[str], key: Sequence[str] | None) -> Form:
    """The form of rows with these columns."""
    if CHANGE_TYPE in columns:
        return "multiset" if key is None else "changes"
    return "append" if key is None else "upsert"


def compute_net(rows: pa.Table, *, key: Sequence[str] | None, sequence: Sequence[str]) -> Net:
    """Return the net effect of a micro-batch.

    Parameters
    ----------
    rows : Table
        The rows of the micro-batch, without side output.
    key : sequence of str, optional
        Columns that identify a row of the target.
    sequence : sequence of str
        Columns that order the rows of a key. Empty: a key has at most one row in a micro-batch.

    Raises
    ------
    ChangeStreamError
        The rows contradict each other, see ``changes.fold``.
    """
    form = form_of(rows.column_names, key)
    if form == "append":
        return _added_only(rows)
    if form == "multiset":
        return _net_multiset(rows)
    require_sequence(rows.schema, sequence)
    keys = key_codes([rows.column(name) for name in key or ()], len(rows))
    order = _order_of(rows, sequence)
    if form == "upsert":
        return _latest(rows, keys, order)
    return _net_changes(rows, key or (), keys, order, sequence)


def digest(rows: pa.Table) -> tuple[int, int]:
    """Return a sum over the digests of all rows, which does not depend on their order.

    The second number is what a ledger has that an earlier version wrote. It does not tell where nulls are, and
    where arrays end.

    Examples
    --------
    >>> table = pa.table({"a": [1, 2], "b": ["x", None]})
    >>> digest(table) == digest(table.take([1, 0])), digest(table) == digest(table.slice(1))
    (True, False)
    """
    if not rows.num_rows or not rows.num_columns:
        return 0, 0
    columns = rows.columns
    given = [sorted_maps(column, by_key=False) for column in columns]
    hashes = chained(given)
    has_maps = any(one is not other for one, other in zip(given, columns, strict=True))
    found = digests(columns) if has_maps else with_shapes(hashes, columns)
    return int(found.sum()), int(hashes.view(np.int64).sum())  # wraps around


def content_columns(names: Sequence[str], sequence: Sequence[str]) -> list[str]:
    """The columns whose values a retraction must repeat, among columns without the change type.

    A revision is one of them. Another sequence, and columns that describe the change, are not.
    """
    ignored: set[str] = set()
    if tuple(sequence) != (REVISION,):
        ignored = {*CHANGE_COLUMNS, *COMMIT_COLUMNS, *sequence} - {REJECTED, REVISION}
    return [name for name in names if name not in ignored]


def _added_only(rows: pa.Table) -> Net:
    none = np.zeros(0, np.bool_)
    return Net(
        removed=rows.slice(0, 0),
        must_match=none,
        is_replaced=none,
        removed_copies=np.zeros(0, np.int64),
        added=rows,
        replaces=np.zeros(len(rows), np.bool_),
        added_copies=np.ones(len(rows), np.int64),
    )


def _order_of(rows: pa.Table, sequence: Sequence[str]) -> Ints:
    """Ranks of the rows by the sequence, which has no null."""
    order = np.zeros(len(rows), np.int64)
    for name in sequence:
        column = combine_chunks(rows.column(name))
        _refuse(rows, _has_null(column), np.arange(len(rows)), "NO_SEQUENCE")
        order = ordered_pair_codes(order, ranks(column))
    return order


def _has_null(array: pa.Array) -> Mask:
    """Where a value, or a field or item of it at any depth, is null."""
    result: Mask = np.array(array.is_null())
    if pa.types.is_struct(array.type):
        for child in array.flatten():
            result = result | _has_null(child)
    elif pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
        # Databases do not agree with Spark on whether a null item is the lowest.
        lengths, items = list_items(array)
        result[np.repeat(np.arange(len(array)), lengths)[_has_null(items)]] = True
    return result


def _latest(rows: pa.Table, keys: Ids, order: Ints) -> Net:
    at = np.lexsort((order, keys))
    keys, order = keys[at], order[at]
    same_key = keys[1:] == keys[:-1]
    repeated = same_key & (order[1:] == order[:-1])
    _refuse(rows, repeated, at[1:], "REVISION_OUT_OF_STEP")
    is_last = np.append(~same_key, True)[: len(at)]
    if is_last.all():
        return _added_only(rows)  # without a copy
    return _added_only(take(rows, np.sort(at[is_last])))


def _net_changes(
    rows: pa.Table, key: Sequence[str], keys: Ids, order: Ints, sequence: Sequence[str]
) -> Net:
    types = combine_chunks(rows.column(CHANGE_TYPE))
    is_known = is_change_type(types)
    values = rows.drop_columns([CHANGE_TYPE])
    _refuse(rows, ~is_known, np.arange(len(rows)), "UNKNOWN_CHANGE")
    # Rows of one key are compared, so the key need not be.
    names = [n for n in content_columns(values.column_names, sequence) if n not in key]
    content = key_codes([values.column(name) for name in names], len(rows))
    retracts = np.asarray(pc.is_in(types, value_set=pa.array(RETRACTIONS)))
    # A retraction has the revision of the row that it retracts; otherwise the sequence of the next.
    rank = retracts if tuple(sequence) == (REVISION,) else ~retracts
    at = np.lexsort((rank, order, keys))
    keys, content, retracts = keys[at], content[at], retracts[at]
    is_insert, is_preimage, is_postimage = (
        np.asarray(pc.equal(types, name))[at] for name in (INSERT, PREIMAGE, POSTIMAGE)
    )
    same_key = np.append(False, keys[1:] == keys[:-1])[: len(at)]
    exists = same_key & np.append(False, ~retracts[:-1])[: len(at)]  # by the row before
    after_preimage = same_key & np.append(False, is_preimage[:-1])[: len(at)]
    same_row = exists & np.append(False, content[1:] == content[:-1])[: len(at)]
    is_last = np.append(~same_key[1:], True)[: len(at)]
    # The row before the first of a key is in the target, which is checked there.
    for wrong, code in (
        (is_insert & (exists | after_preimage), "INSERTED_TWICE"),
        (is_preimage & same_key & ~same_row, "PREIMAGE_NOT_PUBLISHED"),
        (is_postimage & ~after_preimage, "POSTIMAGE_ALONE"),
        (retracts & ~is_preimage & same_key & ~exists, "DELETED_UNPUBLISHED"),
        (is_preimage & is_last, "PREIMAGE_ALONE"),
    ):
        _refuse(rows, wrong, at, code)
    first = np.flatnonzero(~same_key & retracts)
    last = np.flatnonzero(is_last & ~retracts)
    return Net(
        removed=take(values, at[first]),
        must_match=is_preimage[first],
        is_replaced=np.isin(keys[first], keys[last]),
        removed_copies=np.ones(len(first), np.int64),
        added=take(values, at[last]),
        replaces=np.isin(keys[last], keys[first]),
        added_copies=np.ones(len(last), np.int64),
    )


def _net_multiset(rows: pa.Table) -> Net:
    types = rows.column(CHANGE_TYPE)
    _refuse(rows, ~is_change_type(types), np.arange(len(rows)), "UNKNOWN_CHANGE")
    values = rows.drop_columns([CHANGE_TYPE])
    names = content_columns(values.column_names, ())
    content = key_codes([values.column(name) for name in names], len(rows))
    firsts, net = consolidate(content, change_weights(types))
    loses = net < 0
    lost, added = firsts[loses], firsts[~loses]
    return Net(
        removed=take(values, lost),
        must_match=np.ones(len(lost), np.bool_),
        is_replaced=np.zeros(len(lost), np.bool_),
        removed_copies=-net[loses],
        added=take(values, added),
        replaces=np.zeros(len(added), np.bool_),
        added_copies=net[~loses],
    )


def _refuse(rows: pa.Table, wrong: Mask, at: npt.NDArray[np.int64], code: str) -> None:
    found = np.flatnonzero(wrong)
    if len(found):
        raise FAULTS[code].error(got=format_row(rows, at[found[0]]))


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
    removed, added, present = codes_of([net.removed, net.added, current], key)
    rows, found = codes_of([net.removed, current], list(dict.fromkeys([*key, *content])))
    known = ~net.must_match | np.isin(rows, found)
    refuse_fault(net.removed, ~known, "PREIMAGE_NOT_PUBLISHED")
    refuse_fault(net.removed, ~np.isin(removed, present), "DELETED_UNPUBLISHED")
    refuse_fault(net.added, ~net.replaces & np.isin(added, present), "INSERTED_TWICE")


def check_stored(
    form: Form, net: Net, found: pa.Table, *, key: Sequence[str], content: Sequence[str]
) -> Mask:
    """Compare removed and added rows with those of a table, and return which of these stay.

    Parameters
    ----------
    form : "changes" or "multiset"
        The form of the rows.
    net : Net
        The net changes, in the types of the table.
    found : Table
        All rows of the table with keys, or the content, of the net changes.
    key, content : sequence of str
        Columns that identify a row, and columns whose values a retraction repeats.

    Raises
    ------
    SinkError
        ``TARGET_KEY``: a key has several rows.
    ChangeStreamError
        As ``check_changes`` and ``remaining_rows``.
    """
    if form != "changes":
        return remaining_rows(net, found, content=content)
    require_unique(found, key)
    check_changes(net, found, key=key, content=content)
    return np.zeros(len(found), np.bool_)


def require_unique(found: pa.Table, key: Sequence[str]) -> None:
    """Refuse a table in which a key has several rows.

    Raises
    ------
    SinkError
        ``TARGET_KEY``.
    """
    codes = key_codes([found.column(name) for name in key], len(found))
    first = np.unique(codes, return_index=True)[1]
    if len(first) == len(found):
        return
    second = int(np.setdiff1d(np.arange(len(found)), first)[0])
    row = format_row(found.select(list(key)), second)
    raise conditions.KEY_NOT_UNIQUE.error(key=", ".join(key), got=row)


def newer_rows(
    added: pa.Table, current: pa.Table, *, key: Sequence[str], sequence: Sequence[str]
) -> Mask:
    """Return which rows are newer than the row of the same key, or have a new key.

    A null sequence, as in rows from before the column was added, is the lowest.
    """
    rows, present = codes_of([added, current], key)
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
    removed, present = codes_of([net.removed, current], content)
    at = np.argsort(present, kind="stable")
    ordered = present[at]
    first = np.searchsorted(ordered, removed)
    copies = np.searchsorted(ordered, removed, side="right") - first
    refuse_fault(net.removed, copies < net.removed_copies, "PREIMAGE_NOT_PUBLISHED")
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
        codes = codes_of([before, added, removed, after], content)
        size = 1 + max((int(part.max()) for part in codes if len(part)), default=0)
        old, more, less, new = (np.bincount(part, minlength=size) for part in codes)
        return bool((old + more - less == new).all())
    changed = pa.concat_tables([removed.select(list(key)), added.select(list(key))])
    others = before.filter(pa.array(~is_among(before, changed, key)))
    expected, found = codes_of([pa.concat_tables([others, added]), after], content)
    return bool(np.array_equal(np.unique(expected), np.unique(found)))


def is_among(rows: pa.Table, others: pa.Table, names: Sequence[str]) -> Mask:
    """Return which rows are equal to one of the others in these columns."""
    found, codes = codes_of([rows, others], names)
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


def codes_of(tables: Sequence[pa.Table], names: Sequence[str]) -> list[Ids]:
    """Codes of the rows of several tables, equal where the columns are equal."""
    lengths = [table.num_rows for table in tables]
    columns = [
        pa.concat_arrays([combine_chunks(table.column(name)) for table in tables]) for name in names
    ]
    return np.split(key_codes(columns, sum(lengths)), np.cumsum(lengths)[:-1])


def refuse_fault(rows: pa.Table, wrong: Mask, code: str) -> None:
    """Refuse the first row whose effect on the target is wrong."""
    found = np.flatnonzero(wrong)
    if len(found):
        raise FAULTS[code].error(got=format_row(rows, found[0]))
