"""Changes of one key at one place: what they say, and which of them counts if they say different things.

It is the greatest by its values, from the left column to the right: a choice that neither the order
of arrival nor the cutting into micro-batches has a part in. A delete is below every row, and a value
that was not sent below every value that was.
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
    """Changes, compared with the others at their place.

    Parameters
    ----------
    slot : array of int64
        Number of key and place.
    content : array of int64
        What it says.
    order : array of int64
        Where it stands among the changes at its place, the one that counts last; equal content is
        equal. 0 where there is no other content.
    """

    slot: Ids
    content: Ids
    order: Ints

    @staticmethod
    def of(place: Ids, values: Sequence[pa.Array], lacks: Mask, is_delete: Mask) -> Conflicts:
        """Compare changes with these codes of key and place."""
        content = content_codes(values, lacks, is_delete)
        slots, firsts = Groups.of(place)
        order = np.zeros(len(place), np.int64)
        differs = np.bincount(slots.ids, content != content[firsts][slots.ids], slots.count) > 0
        among = np.flatnonzero(differs[slots.ids])
        if len(among):
            keys = [(~is_delete[among]).astype(np.int64)]
            for number, each in enumerate(values):
                sent = ~lacks[among, number] & ~is_delete[among]
                value = ranks(each.take(pa.array(among)))
                keys += [sent.astype(np.int64), np.where(sent, value, 0)]
            rank = np.lexsort(keys[::-1])
            said = content[among][rank]
            order[among[rank]] = np.cumsum(np.append(True, said[1:] != said[:-1]))
        return Conflicts(slots.ids, content, order)

    def first(self, size: int) -> Conflicts:
        """The first so many."""
        return Conflicts(self.slot[:size], self.content[:size], self.order[:size])

    def firsts(self) -> Ids:
        """Of each, the first that says the same at the same place: another one, or it."""
        groups, firsts = Groups.of(pair_codes(self.slot, self.content))
        return firsts[groups.ids]

    def again(self) -> Mask:
        """Which say what another one above them says at the same place."""
        result: Mask = self.firsts() != np.arange(len(self.slot))
        return result

    def newest(self, ages: Ints) -> Ints:
        """The greatest age at the place of each."""
        result: Ints = self._slots.greatest(ages)[self.slot]
        return result

    def loses(self) -> Mask:
        """Which do not count, as another one at their place is above them."""
        result: Mask = self.order != self._slots.greatest(self.order)[self.slot]
        return result

    @property
    def _slots(self) -> Groups:
        return Groups(self.slot, int(self.slot.max(initial=-1)) + 1)


def content_codes(values: Sequence[pa.Array], lacks: Mask, is_delete: Mask) -> Ids:
    """A code for what each change says: that of two deletes is the same."""
    content = is_delete.astype(np.int64)
    for number, each in enumerate(values):
        code = value_codes(each)
        lowest = code.min(initial=0)
        code = np.where(lacks[:, number], lowest - 1, code)
        content = pair_codes(content, np.where(is_delete, lowest - 2, code))
    return content
