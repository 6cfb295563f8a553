"""Rows of keys, one after the other, told as what was before and what is after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamops.changelog.carry_forward import NONE
from streamops.changelog.emit import emit_changes
from streamops.kernel.groups import Ids, Mask

__all__ = ["Told", "Versions"]


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
        existed = np.where(begins, before != NONE, versions.is_there[number - 1])
        old, new = np.flatnonzero(existed), np.flatnonzero(versions.is_there)
        changes = emit_changes(
            [value.take(pa.array(before[old])) for value in versions.values],
            [value.take(pa.array(new)) for value in versions.values],
            (old, new),
            order=(2 * old, 2 * new + 1),
        )
        publishes = np.zeros(len(number), np.int64)
        publishes[new] = changes.is_emitted
        total = np.cumsum(publishes)
        start = (total - publishes)[begins]
        after = versions.revision[versions.key] + total - start[np.cumsum(begins) - 1]
        version = changes.take_ints(old, new)
        return Told(
            changes.take_ints(before[old], new),
            versions.key[version],
            changes.change_type,
            changes.take_ints((after - publishes)[old], after[new]),
            after,
            changes.inserts,
            changes.updates,
            changes.deletes,
        )
