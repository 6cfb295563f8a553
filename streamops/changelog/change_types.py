"""Change types of a change stream, and the arithmetic of its rows.

The column ``_change_type`` uses the values of Spark and of Delta's change data feed. An insert or a
postimage adds a row to the table, a delete or a preimage retracts one.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamops.changelog import conditions
from streamops.kernel.columns import combine_chunks
from streamops.kernel.groups import Groups, Ids, Ints, Mask

FAULTS = {
    condition.code: condition
    for condition in (
        conditions.UNKNOWN_CHANGE,
        conditions.INSERTED_TWICE,
        conditions.PREIMAGE_NOT_PUBLISHED,
        conditions.POSTIMAGE_ALONE,
        conditions.DELETED_UNPUBLISHED,
        conditions.PREIMAGE_ALONE,
        conditions.REVISION_OUT_OF_STEP,
        conditions.NO_SEQUENCE,
    )
}
"""The conditions, by code, in the order in which they are tested."""


CHANGE_TYPE = "_change_type"
REVISION = "revision"

INSERT, PREIMAGE, POSTIMAGE, DELETE = "insert", "update_preimage", "update_postimage", "delete"

TRUNCATE = "truncate"
"""A change without key and values that deletes every row with a lower sequence."""

TRUNCATE_COPY = "truncate_copy"
"""The copy of a truncate that every shard receives. It is applied, but not counted."""

CHANGE_TYPES = (INSERT, PREIMAGE, POSTIMAGE, DELETE)
"""The change types of rows."""

RETRACTIONS = (PREIMAGE, DELETE)
"""The change types that retract a row."""

ChangeTypes: TypeAlias = pa.Array | pa.ChunkedArray


def is_change_type(types: ChangeTypes) -> Mask:
    """Which values are change types of rows; null is not."""
    return np.asarray(pc.is_in(combine_chunks(types), value_set=pa.array(CHANGE_TYPES)))


def change_weights(types: ChangeTypes) -> Ints:
    """The number of rows that each change adds: 1, -1 for a retraction, 0 for an unknown type.

    Examples
    --------
    >>> change_weights(pa.array(["insert", "update_preimage", None, "update_postimage"])).tolist()
    [1, -1, 0, 1]
    """
    retracts = np.asarray(pc.is_in(combine_chunks(types), value_set=pa.array(RETRACTIONS)))
    return np.where(is_change_type(types), np.where(retracts, -1, 1), 0)


def consolidate(rows: Ids, weight: Ints) -> tuple[Ids, Ints]:
    """Sum the weights of equal rows, and drop rows whose weights sum to 0.

    `rows` are codes, see :func:`streamops.kernel.columns.key_codes`. Returns the position of the first
    change of each row, and its sum.

    Examples
    --------
    >>> positions, net = consolidate(np.array([7, 8, 7, 9, 9]), np.array([1, 1, -1, 1, 1]))
    >>> positions.tolist(), net.tolist()
    ([1, 3], [1, 2])
    """
    groups, firsts = Groups.of(rows)
    net = groups.sum_ints(weight)
    left = np.flatnonzero(net)
    return firsts[left], net[left]
