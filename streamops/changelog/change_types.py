"""Change streams: the words, and what is done with them on columns.

A change stream has a column ``_change_type`` with Spark's and Delta's words. What is inserted, or is
the image after an update, is *published*; what is the image before one, or deleted, is *taken back*.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamops.kernel.columns import combine_chunks
from streamops.kernel.groups import Groups, Ids, Ints, Mask

__all__ = [
    "CHANGE_TYPE",
    "CHANGE_TYPES",
    "DELETE",
    "INSERT",
    "POSTIMAGE",
    "PREIMAGE",
    "RETRACTIONS",
    "REVISION",
    "TRUNCATE",
    "change_weights",
    "consolidate",
    "is_change_type",
]

CHANGE_TYPE = "_change_type"
REVISION = "revision"

INSERT, PREIMAGE, POSTIMAGE, DELETE = "insert", "update_preimage", "update_postimage", "delete"

TRUNCATE = "truncate"
"""Removes every row of the table whose sequence is lower. It has no key, and no values."""

CHANGE_TYPES = (INSERT, PREIMAGE, POSTIMAGE, DELETE)
"""Every word that a change stream has."""

RETRACTIONS = (PREIMAGE, DELETE)
"""The words of rows that were published before and stand no longer."""

ChangeTypes: TypeAlias = pa.Array | pa.ChunkedArray


def is_change_type(words: ChangeTypes) -> Mask:
    """Which of these are words of a change stream. A null is none."""
    return np.asarray(pc.is_in(combine_chunks(words), value_set=pa.array(CHANGE_TYPES)))


def change_weights(words: ChangeTypes) -> Ints:
    """How often each row adds itself to the table: 1, or -1 where it is taken back.

    What is no word of a change stream is 0.

    Examples
    --------
    >>> change_weights(pa.array(["insert", "update_preimage", None, "update_postimage"])).tolist()
    [1, -1, 0, 1]
    """
    back = np.asarray(pc.is_in(combine_chunks(words), value_set=pa.array(RETRACTIONS)))
    return np.where(is_change_type(words), np.where(back, -1, 1), 0)


def consolidate(rows: Ids, weight: Ints) -> tuple[Ids, Ints]:
    """What is left of changes of equal rows after those that cancel out.

    Parameters
    ----------
    rows : array of int64
        A code per change, equal where the rows are, as :func:`streamops.kernel.columns.key_codes`
        gives them.
    weight : array of int64
        How often each adds itself.

    Returns
    -------
    positions : array of int64
        Of the first change of each row that did not cancel out, in their order.
    net : array of int64
        How often that row is added (above 0) or taken back (below 0).

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
