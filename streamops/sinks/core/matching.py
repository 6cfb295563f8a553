"""Which rows of a table a micro-batch removes, found by key without the other columns of the table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from streamops.kernel.columns import combine_chunks
from streamops.kernel.formatted import format_row
from streamops.kernel.groups import Ids, Ints, Mask, ordered_pair_codes
from streamops.kernel.ordering import ranks
from streamops.sinks import conditions
from streamops.sinks.core.net import codes_of, refuse_fault

PUT, ADD, REMOVE, REPLACE = range(4)
"""What a row of a micro-batch does: it takes the place of an older one; its key is new; it is removed; it is
removed, and all of its values must be those of the table."""


class Matched(NamedTuple):
    """Pairs of a wanted row and a row of the table that are equal, by their positions."""

    wanted: Ids
    found: Ids


def match(wanted: pa.Table, found: pa.Table, by: Sequence[str]) -> Matched:
    """Return which rows of a table are equal to which wanted ones, each of which is there once.

    Examples
    --------
    >>> pairs = match(pa.table({"a": [7, 5]}), pa.table({"a": [5, 6, 5]}), ["a"])
    >>> pairs.wanted.tolist(), pairs.found.tolist()
    ([1, 1], [0, 2])
    """
    keys, codes = codes_of([wanted, found], by)
    order = np.argsort(keys)
    slot = np.searchsorted(keys[order], codes)
    is_found = np.zeros(len(codes), np.bool_)
    inside = slot < len(keys)
    is_found[inside] = keys[order[slot[inside]]] == codes[inside]
    return Matched(order[slot[is_found]], np.flatnonzero(is_found))


def keep_values(rows: pa.Table, found: pa.Table, by: Sequence[str]) -> pa.Table:
    """The rows with the columns that only the table has, whose values stay as they are, or are null in new rows.

    Examples
    --------
    >>> found = pa.table({"a": [5], "note": ["by hand"]})
    >>> keep_values(pa.table({"a": [7, 5]}), found, ["a"])["note"].to_pylist()
    [None, 'by hand']
    """
    pairs = match(rows, found, by)
    at = np.full(len(rows), -1)
    at[pairs.wanted] = pairs.found
    taken = found.take(pa.array(at, mask=at < 0))
    for name in set(found.column_names) - set(rows.column_names):
        rows = rows.append_column(found.schema.field(name), taken.column(name))
    return rows


def require_unique(
    found: pa.Table, pairs: Matched, by: Sequence[str], labels: Sequence[str]
) -> None:
    """Refuse a table in which a key has several rows."""
    first = np.unique(pairs.wanted, return_index=True)[1]
    if len(first) == len(pairs.wanted):
        return
    second = pairs.found[np.setdiff1d(np.arange(len(pairs.found)), first)[0]]
    values = format_row(found.select(by).rename_columns(labels), int(second))
    raise conditions.KEY_NOT_UNIQUE.error(key=", ".join(labels), got=values)


def is_newer(wanted: pa.Table, found: pa.Table, pairs: Matched, sequence: Sequence[str]) -> Mask:
    """Return of which pairs the wanted row is newer. Without a sequence, all are. Null is the lowest."""
    if not sequence:
        return np.ones(len(pairs.found), np.bool_)
    order = np.zeros(len(wanted) + len(found), np.int64)
    for name in sequence:
        columns = [combine_chunks(table.column(name)) for table in (wanted, found)]
        order = ordered_pair_codes(order, ranks(pa.concat_arrays(columns)))
    newer: Mask = order[pairs.wanted] > order[len(wanted) :][pairs.found]
    return newer


def check_types(wanted: pa.Table, types: Ints, pairs: Matched) -> None:
    """Compare rows of a change stream with the keys that the table has.

    Raises
    ------
    ChangeStreamError
        ``PREIMAGE_NOT_PUBLISHED``, ``DELETED_UNPUBLISHED`` or ``INSERTED_TWICE``.
    """
    exists = np.zeros(len(wanted), np.bool_)
    exists[pairs.wanted] = True
    refuse_fault(wanted, (types == REPLACE) & ~exists, "PREIMAGE_NOT_PUBLISHED")
    refuse_fault(wanted, (types == REMOVE) & ~exists, "DELETED_UNPUBLISHED")
    refuse_fault(wanted, (types == ADD) & exists, "INSERTED_TWICE")


def take_copies(wanted: pa.Table, copies: Ints, pairs: Matched) -> Matched:
    """Return as many pairs of each wanted row as there are copies of it.

    Raises
    ------
    ChangeStreamError
        ``PREIMAGE_NOT_PUBLISHED``: the table has fewer.
    """
    order = np.argsort(pairs.wanted, kind="stable")
    rows = pairs.wanted[order]
    counts = np.bincount(rows, minlength=len(wanted))
    refuse_fault(wanted, counts < copies, "PREIMAGE_NOT_PUBLISHED")
    number = np.arange(len(rows)) - (np.cumsum(counts) - counts)[rows]
    taken = order[number < copies[rows]]
    return Matched(pairs.wanted[taken], pairs.found[taken])
