"""Carry forward the missing values of partial changes.

A missing value is that of the change before it, back to the last delete. A late change can therefore
still supply a value to a row that is stored already. So a stored row keeps the changes that supplied
its missing values: its *donors*.
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
    """Changes sorted by key and position.

    Parameters
    ----------
    key, position : array of int64
        Key of each change, and its position in the order of changes.
    row : array of int64
        Position of the change, and of its values, before it was sorted.
    is_delete : array of bool
        Whether the change is a delete.
    """

    key: Ids
    position: Ids
    row: Ids
    is_delete: Mask

    @staticmethod
    def of(key: Ids, position: Ids, is_delete: Mask) -> OrderedChanges:
        """Sort the changes."""
        order = np.lexsort((position, key))
        return OrderedChanges(key[order], position[order], order, is_delete[order])

    @property
    def begins(self) -> Mask:
        """Which changes are the first of their key."""
        return np.append(True, self.key[1:] != self.key[:-1])[: len(self.key)]

    @property
    def ends(self) -> Mask:
        """Which changes are the last of their key."""
        return np.append(self.key[1:] != self.key[:-1], True)[: len(self.key)]


def carry_forward(changes: OrderedChanges, missing: Mask) -> Ids:
    """The change that supplies each value of each change; ``NONE`` if there is none.

    Parameters
    ----------
    changes : OrderedChanges
    missing : array of bool
        Rows by values: which values are missing.

    Returns
    -------
    array of int64
        Changes by values. A delete supplies nothing, and values are not carried across it.
    """
    begins, number = changes.begins, np.arange(len(changes.key))
    result = np.full((len(changes.key), missing.shape[1]), NONE)
    for value in range(missing.shape[1]):
        supplies = ~missing[changes.row, value]
        result[:, value] = running_max(np.where(supplies, number, NONE), begins)
    return result


def gather_values(
    values: Sequence[pa.Array], changes: OrderedChanges, source: Ids
) -> list[pa.Array]:
    """Values of rows, given for each value the change that supplies it."""
    result = []
    for number, column in enumerate(values):
        supplier = source[:, number]
        absent = (supplier == NONE) | changes.is_delete[supplier]
        result.append(column.take(pa.array(changes.row[supplier], mask=absent)))
    return result
