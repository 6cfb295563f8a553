"""Changes of the keys of a shard in their order, and the rows they make.

A value that was not sent is that of the change before it, back to the last delete. So a change that
comes too late to be told may still give a value to a row that lacks it: beside a row stand the
changes that its other values came of, its *givers*.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamops.kernel.groups import Ids, Mask, running_max

__all__ = ["NONE", "OrderedChanges", "carry_forward", "gather_values"]

NONE = -1


@dataclass(frozen=True, slots=True)
class OrderedChanges:
    """Changes, by key and place.

    Parameters
    ----------
    key, place : array of int64
        Of which key, and where in the order of its changes.
    row : array of int64
        Position of the change, and so of its values, before it was sorted.
    is_delete : array of bool
        Whether it leaves no row.
    """

    key: Ids
    place: Ids
    row: Ids
    is_delete: Mask

    @staticmethod
    def of(key: Ids, place: Ids, is_delete: Mask) -> OrderedChanges:
        """The entries in order."""
        order = np.lexsort((place, key))
        return OrderedChanges(key[order], place[order], order, is_delete[order])

    @property
    def begins(self) -> Mask:
        """Which are the first of their key."""
        return np.append(True, self.key[1:] != self.key[:-1])[: len(self.key)]

    @property
    def ends(self) -> Mask:
        """Which are the last of their key."""
        return np.append(self.key[1:] != self.key[:-1], True)[: len(self.key)]


def carry_forward(entries: OrderedChanges, lacks: Mask) -> Ids:
    """Which entry each value of each entry comes of: ``NONE`` where nothing is known.

    Parameters
    ----------
    entries : Entries
    lacks : array of bool
        Rows by values: which were not sent.

    Returns
    -------
    array of int64
        Entries by values. An entry that deletes gives no value, and it ends what came before.
    """
    begins, number = entries.begins, np.arange(len(entries.key))
    result = np.full((len(entries.key), lacks.shape[1]), NONE)
    for value in range(lacks.shape[1]):
        gives = ~lacks[entries.row, value]
        result[:, value] = running_max(np.where(gives, number, NONE), begins)
    return result


def gather_values(
    values: Sequence[pa.Array], entries: OrderedChanges, source: Ids
) -> list[pa.Array]:
    """Values of rows, given the entries that they come of: one column of these for each value."""
    result = []
    for number, each in enumerate(values):
        of = source[:, number]
        missing = (of == NONE) | entries.is_delete[of]
        result.append(each.take(pa.array(entries.row[of], mask=missing)))
    return result
