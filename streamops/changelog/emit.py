"""Emit the difference between two sets of rows as a change stream."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from streamops.changelog.change_types import DELETE, INSERT, POSTIMAGE, PREIMAGE
from streamops.kernel.columns import rows_differ
from streamops.kernel.groups import Groups, Ids, Ints, Mask

Columns: TypeAlias = Sequence[pa.Array]

_TYPES = pa.array([DELETE, PREIMAGE, POSTIMAGE, INSERT])
_DELETE, _PREIMAGE, _POSTIMAGE, _INSERT = range(4)


@dataclass(frozen=True, slots=True)
class EmittedChanges:
    """The rows of a change stream: retractions first."""

    row: Ids  # index of each emitted row in the rows before, followed by the rows after
    change_type: pa.Array
    revision: Ints
    is_emitted: Mask  # which rows after are emitted
    after: Ints  # revision of each row after, emitted or not
    inserts: int
    updates: int  # number of updates; the two images of an update count once
    deletes: int

    def take(self, before: Columns, after: Columns) -> list[pa.Array]:
        """The values of the emitted rows, from the columns of the rows before and after."""
        index = pa.array(self.row)
        pairs = zip(before, after, strict=True)
        return [pa.concat_arrays(pair).take(index) for pair in pairs]

    def take_ints(self, before: Ints, after: Ints) -> Ints:
        """The values of one column of integers."""
        result: Ints = np.append(before, after)[self.row]
        return result


def emit_changes(
    before: Columns,
    after: Columns,
    key: tuple[Ids, Ids],
    revision: tuple[Ints, Ints] | None = None,
    *,
    reemit: Mask | None = None,
    preimages: bool = True,
    order: tuple[Ints, Ints] | None = None,
) -> EmittedChanges:
    """The changes that turn the rows before into the rows after.

    A row without a successor of its key is deleted, one without a predecessor is inserted. Where both
    exist and a value differs, the update is emitted as its two images.

    Parameters
    ----------
    before, after
        Values to compare, in the same columns.
    key, revision, order
        Pairs of arrays: for the rows before, and for the rows after. A key occurs once in each. An insert
        has the revision of its row after; an update has the revision of its row before plus 1. Rows are
        ordered by change type (deletes, preimages, postimages, inserts), or by `order`.
    reemit
        Which rows after are emitted as updates even if no value differs.
    preimages
        Whether an update is emitted with its preimage.

    Examples
    --------
    >>> before, after = [pa.array([1, 2, 3])], [pa.array([2, 5, 9])]
    >>> emitted = emit_changes(before, after, (np.array([7, 8, 9]), np.array([8, 9, 10])))
    >>> emitted.change_type.to_pylist(), emitted.take(before, after)[0].to_pylist()
    (['delete', 'update_preimage', 'update_postimage', 'insert'], [1, 3, 5, 9])
    >>> emitted.revision.tolist()
    [0, 0, 1, 0]
    """
    size, count = len(key[0]), len(key[1])
    groups, _ = Groups.of(np.append(key[0], key[1]))
    previous = np.full(groups.count, -1, np.int64)
    previous[groups.ids[:size]] = np.arange(size)
    previous = previous[groups.ids[size:]]
    matched = np.flatnonzero(previous >= 0)
    is_updated = np.zeros(count, np.bool_)
    if len(matched) and before:
        old, new = pa.array(previous[matched]), pa.array(matched)
        pairs = [(b.take(old), a.take(new)) for b, a in zip(before, after, strict=True)]
        is_updated[matched] = rows_differ(*zip(*pairs, strict=True))
    if reemit is not None:
        is_updated |= reemit & (previous >= 0)
    is_inserted = previous < 0
    is_deleted = np.ones(size, np.bool_)
    is_deleted[previous[matched]] = False

    updated, deleted = np.flatnonzero(is_updated), np.flatnonzero(is_deleted)
    inserted = np.flatnonzero(is_inserted)
    retracted = previous[updated] if preimages else previous[:0]
    row = np.concatenate([deleted, retracted, size + updated, size + inserted])
    types = np.repeat(np.arange(4), [len(deleted), len(retracted), len(updated), len(inserted)])
    if order is not None:
        ranking = np.argsort(np.append(*order)[row], kind="stable")
        row, types = row[ranking], types[ranking]
    zeros = (np.zeros(size, np.int64), np.zeros(count, np.int64))
    revision_before, revision_after = zeros if revision is None else revision
    revision_after = np.array(revision_after, np.int64)
    revision_after[matched] = revision_before[previous[matched]] + is_updated[matched]
    return EmittedChanges(
        row,
        _TYPES.take(pa.array(types)),
        np.append(revision_before, revision_after)[row],
        is_updated | is_inserted,
        revision_after,
        len(inserted),
        len(updated),
        len(deleted),
    )


def order_changes(weight: Ints, is_update: Mask) -> tuple[Ids, pa.Array]:
    """The order in which changes of a multiset of rows are emitted, and their change types.

    A row is emitted as often as its weight, and retracted if the weight is negative. `is_update` has
    the rows that replace another row of their key, or are replaced by one.
    """
    types = np.where(weight < 0, _DELETE, _INSERT)
    types[is_update] = np.where(weight[is_update] < 0, _PREIMAGE, _POSTIMAGE)
    row = np.repeat(np.arange(len(weight)), np.abs(weight))
    row = row[np.argsort(types[row], kind="stable")]
    return row, _TYPES.take(pa.array(types[row]))
