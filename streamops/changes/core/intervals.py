"""Changes of keys in their order, and the intervals in which the rows they make are valid."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import pyarrow as pa

from streamops.changelog.carry_forward import OrderedChanges, carry_forward, gather_values
from streamops.changes.core.replaced import is_replaced
from streamops.changes.core.spec import HistorySpec
from streamops.kernel.columns import rows_differ
from streamops.kernel.groups import Ids, Ints, Mask, running_max

__all__ = ["Changes", "Intervals", "Lists"]

Lists = list[pa.Array]


@dataclass(frozen=True, slots=True)
class Changes:
    """Changes, by key and place; at one place that of the log first.

    Parameters
    ----------
    key : array of int64
        Number of the key.
    names : list of Array
        The key.
    place, since : Array
        Where the change stands, and where the interval begins that it is in: of a base, which may
        go on from a change that is remembered no longer; of the others, their place.
    at : array of int64
        The place, in order.
    interval : array of int64
        A code of key and ``since``.
    is_log, is_delete, is_base, is_old, is_lost : arrays of bool
        Whether it is of the log; deletes; is a base; was remembered before; is no more, as another
        one that came contradicts it.
    age, revision : array of int64
        By which it is sealed; of the interval that begins here, as it was told last.
    lacks : array of bool
        Changes by values: which were not sent.
    values : list of Array
        The values; of a base, all of the row.
    """

    key: Ids
    names: Lists
    place: pa.Array
    since: pa.Array
    at: Ids
    interval: Ids
    is_log: Mask
    is_delete: Mask
    is_base: Mask
    is_old: Mask
    is_lost: Mask
    age: Ints
    revision: Ints
    lacks: Mask
    values: Lists

    def __len__(self) -> int:
        return len(self.key)

    def take(self, which: Ids) -> Changes:
        """The changes at these positions."""
        index = pa.array(which)
        taken: dict[str, Any] = {}
        for each in fields(self):
            column = getattr(self, each.name)
            if isinstance(column, list):
                taken[each.name] = [part.take(index) for part in column]
            elif isinstance(column, pa.Array):
                taken[each.name] = column.take(index)
            else:
                taken[each.name] = column[which]
        return Changes(**taken)

    def in_order(self) -> Changes:
        """By key and place."""
        return self.take(np.lexsort((~self.is_log, self.at, self.key)))

    @property
    def begins(self) -> Mask:
        """Which are the first of their key."""
        return np.append(True, self.key[1:] != self.key[:-1])[: len(self)]

    def counts(self, snapshots: str) -> Mask:
        """Which count: rows of a snapshot lose against the log, all of it or at their place."""
        beaten: Mask = running_max(self.is_log.astype(np.int64), self.begins) == 1
        if snapshots == "by_sequence":
            twin = ~self.begins & np.append(False, self.at[1:] == self.at[:-1])[: len(self)]
            beaten = twin & np.append(False, self.is_log[:-1])[: len(self)]
        counted: Mask = self.is_log | ~beaten
        return counted


@dataclass(frozen=True, slots=True)
class Intervals:
    """Intervals, by key and place, no two of a key at the same time.

    Parameters
    ----------
    start : array of int64
        Position of the change that each begins with.
    since, until : Array
        From which place up to which, not included; null where it is open.
    values : list of Array
        The row, as it is at the end.
    """

    start: Ids
    since: pa.Array
    until: pa.Array
    values: Lists

    @staticmethod
    def of(spec: HistorySpec, changes: Changes) -> tuple[Intervals, Ids, Lists, Ids]:
        """The intervals of changes in order.

        Returns
        -------
        intervals : Intervals
        counted : array of int64
            Positions of the changes that count, but for deletes that are replaced.
        values : list of Array
            The rows they make.
        begun : array of int64
            For each of them, position of the change that its interval begins with; its own where it
            leaves no row.
        """
        counted = np.flatnonzero(changes.counts(spec.snapshots))
        own = changes.take(counted)
        entries = OrderedChanges(own.key, own.at, np.arange(len(own)), own.is_delete)
        source = carry_forward(entries, own.lacks & ~own.is_base[:, np.newaxis])
        values = gather_values(own.values, entries, source)
        # A delete that is replaced ends what is carried over, but no interval.
        lasting = np.flatnonzero(~is_replaced(spec, own.key, own.place, own.is_delete))
        if len(lasting) < len(own):
            counted, own = counted[lasting], own.take(lasting)
            values = [each.take(pa.array(lasting)) for each in values]
        size, number = len(own), np.arange(len(own))
        there, begins = ~own.is_delete, own.begins
        follows = ~begins & np.append(False, there[:-1])[:size]
        tracked = [values[spec.values.index(name)] for name in spec.track]
        differs = np.zeros(size, np.bool_)
        if tracked and size:
            pairs = [(each.slice(0, size - 1), each.slice(1)) for each in tracked]
            differs[1:] = rows_differ(*zip(*pairs, strict=True))
        starts = there & (~follows | differs)
        goes_on = there & ~starts
        ends = there & ~np.append(goes_on[1:], False)[:size]
        first, last = np.flatnonzero(starts), np.flatnonzero(ends)
        after = last + 1
        is_open = np.append(begins, True)[after]
        begun = np.where(there, np.maximum.accumulate(np.where(starts, number, 0)), number)
        intervals = Intervals(
            counted[first],
            own.since.take(pa.array(first)),
            own.place.take(pa.array(after, mask=is_open)),
            [each.take(pa.array(last)) for each in values],
        )
        return intervals, counted, values, counted[begun]

    def renumbered(self, position: Ids) -> Intervals:
        """The same, of changes that stand elsewhere."""
        return replace(self, start=position[self.start])
