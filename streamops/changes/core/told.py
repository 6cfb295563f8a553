"""Rows of keys, one after the other, told as what was before and what is after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamops.changelog.carry_forward import NONE
from streamops.changelog.change_types import DELETE, INSERT, POSTIMAGE, PREIMAGE
from streamops.kernel.columns import rows_differ
from streamops.kernel.groups import Ids, Mask

__all__ = ["Told", "Versions"]

_WORDS = pa.array([DELETE, PREIMAGE, INSERT, POSTIMAGE])
_DELETE, _PREIMAGE, _INSERT, _POSTIMAGE = range(4)


@dataclass(frozen=True, slots=True)
class Versions:
    """What there is of each key, in order, and what was before.

    Parameters
    ----------
    key : array of int64
        Of each version; those of a key stand together.
    is_there : array of bool
        Whether there is a row.
    values : list of Array
        Of the versions, and below them of the rows that were published before.
    was : array of int64
        Position among these values of what the first version of each key replaces; ``NONE``.
    revision : array of int64
        Of each key: of what was published last.
    """

    key: Ids
    is_there: Mask
    values: Sequence[pa.Array]
    was: Ids
    revision: Ids

    @property
    def begins(self) -> Mask:
        """The first version of each key."""
        return np.append(True, self.key[1:] != self.key[:-1])[: len(self.key)]

    @property
    def ends(self) -> Mask:
        """The last version of each key."""
        return np.append(self.key[1:] != self.key[:-1], True)[: len(self.key)]


@dataclass(frozen=True, slots=True)
class Told:
    """What is published of versions.

    Parameters
    ----------
    row : array of int64
        Position of the values of each row that is published.
    key : array of int64
        Of each.
    words : Array
        Change types.
    revision : array of int64
        Of each.
    after : array of int64
        Revision of each key after each version.
    inserts, updates, deletes : int
    """

    row: Ids
    key: Ids
    words: pa.Array
    revision: Ids
    after: Ids
    inserts: int
    updates: int
    deletes: int

    @staticmethod
    def of(versions: Versions) -> Told:
        """Tell each version that is not what was before it."""
        number, begins = np.arange(len(versions.key)), versions.begins
        before = np.where(begins, versions.was[versions.key], number - 1)
        there = versions.is_there
        was_there = np.where(begins, before != NONE, there[number - 1])
        both = np.flatnonzero(there & was_there)
        differs = np.zeros(len(number), np.bool_)
        now, then = pa.array(both), pa.array(before[both])
        pairs = [(each.take(then), each.take(now)) for each in versions.values]
        if pairs:
            differs[both] = rows_differ(*zip(*pairs, strict=True))
        came, went = there & ~was_there, was_there & ~there

        publishes = (came | differs).astype(np.int64)
        total = np.cumsum(publishes)
        start = (total - publishes)[begins]
        after = versions.revision[versions.key] + total - start[np.cumsum(begins) - 1]
        back = np.flatnonzero(went | differs)
        forth = np.flatnonzero(came | differs)
        order = np.argsort(np.append(2 * back, 2 * forth + 1), kind="stable")
        word = np.append(
            np.where(went, _DELETE, _PREIMAGE)[back], np.where(came, _INSERT, _POSTIMAGE)[forth]
        )
        return Told(
            np.append(before[back], forth)[order],
            versions.key[np.append(back, forth)][order],
            _WORDS.take(pa.array(word[order])),
            np.append((after - publishes)[back], after[forth])[order],
            after,
            int(np.count_nonzero(came)),
            int(np.count_nonzero(differs)),
            int(np.count_nonzero(went)),
        )
