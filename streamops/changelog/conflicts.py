"""Conflict resolution for changes with the same key and sequence.

The greatest change by its values is effective, compared from the left column to the right. Neither
the order of arrival nor the cut into micro-batches matters. A delete is below every row, and a
missing value is below every value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamops.kernel.columns import value_codes
from streamops.kernel.groups import Groups, Ids, Ints, Mask, pair_codes
from streamops.kernel.ordering import ranks

__all__ = ["Conflicts", "content_codes"]


@dataclass(frozen=True, slots=True)
class Conflicts:
    """Changes, compared with the others of their key and sequence.

    Parameters
    ----------
    slot : array of int64
        Number of the key and sequence.
    content : array of int64
        Code of the content.
    order : array of int64
        Rank of the content among the changes of the slot; the highest is effective. 0 where all
        contents of the slot are equal.
    """

    slot: Ids
    content: Ids
    order: Ints

    @staticmethod
    def of(position: Ids, values: Sequence[pa.Array], missing: Mask, is_delete: Mask) -> Conflicts:
        """Compare changes with these codes of key and sequence."""
        content = content_codes(values, missing, is_delete)
        slots, firsts = Groups.of(position)
        order = np.zeros(len(position), np.int64)
        differs = np.bincount(slots.ids, content != content[firsts][slots.ids], slots.count) > 0
        among = np.flatnonzero(differs[slots.ids])
        if len(among):
            keys = [(~is_delete[among]).astype(np.int64)]
            for number, column in enumerate(values):
                has_value = ~missing[among, number] & ~is_delete[among]
                value = ranks(column.take(pa.array(among)))
                keys += [has_value.astype(np.int64), np.where(has_value, value, 0)]
            rank = np.lexsort(keys[::-1])
            ranked = content[among][rank]
            order[among[rank]] = np.cumsum(np.append(True, ranked[1:] != ranked[:-1]))
        return Conflicts(slots.ids, content, order)

    def first(self, size: int) -> Conflicts:
        """The first `size` changes."""
        return Conflicts(self.slot[:size], self.content[:size], self.order[:size])

    def firsts(self) -> Ids:
        """For each change the first one of its slot with the same content."""
        groups, firsts = Groups.of(pair_codes(self.slot, self.content))
        return firsts[groups.ids]

    def is_duplicate(self) -> Mask:
        """Which changes repeat an earlier one of their slot."""
        result: Mask = self.firsts() != np.arange(len(self.slot))
        return result

    def latest_clock(self, clock: Ints) -> Ints:
        """The greatest clock in the slot of each change."""
        result: Ints = self._slots.greatest(clock)[self.slot]
        return result

    def loses(self) -> Mask:
        """Which changes are not effective, as another one of their slot is greater."""
        result: Mask = self.order != self._slots.greatest(self.order)[self.slot]
        return result

    @property
    def _slots(self) -> Groups:
        return Groups(self.slot, int(self.slot.max(initial=-1)) + 1)


def content_codes(values: Sequence[pa.Array], missing: Mask, is_delete: Mask) -> Ids:
    """A code for the content of each change. All deletes have the same content."""
    content = is_delete.astype(np.int64)
    for number, column in enumerate(values):
        code = value_codes(column)
        lowest = code.min(initial=0)
        code = np.where(missing[:, number], lowest - 1, code)
        content = pair_codes(content, np.where(is_delete, lowest - 2, code))
    return content
