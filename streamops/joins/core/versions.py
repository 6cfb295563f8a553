"""Versions of the rows of a table: which one answers a fact, which can be evicted.

A version holds from its own instant on, until the next one of its key; or until it ends, be it
that it says so itself, that it says that the row was deleted, or that it is older than the
tolerance. What is newest is decided by (version time, sequence), never by arrival. A forward search
finds the next instant of the key at which the version that is last by sequence has a value.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamops.changelog.change_types import CHANGE_TYPE, DELETE
from streamops.joins.core.asof_spec import AsofSpec
from streamops.joins.core.clashes import settled
from streamops.kernel.columns import combine_chunks, concat, take, timestamp_micros
from streamops.kernel.groups import Groups, Ids, Mask, ordered_pair_codes
from streamops.kernel.ordering import ranks
from streamops.kernel.time import Instants

__all__ = ["Merged", "Timed", "Versions", "gone"]

_NEVER, _OPEN = -(1 << 62), 1 << 62


@dataclass(frozen=True, slots=True)
class Timed:
    """Rows, and for each of them its key as a number and its instant."""

    table: pa.Table
    codes: Ids
    times: Instants

    def take(self, rows: Ids) -> Timed:
        """Those at these positions."""
        return Timed(take(self.table, rows), self.codes[rows], self.times[rows])


@dataclass(frozen=True, slots=True)
class Merged:
    """What became of kept versions and of those that came.

    Parameters
    ----------
    kept : Timed
        The kept ones, as they were.
    versions : Versions
        All of them.
    was : array of int64
        Where each kept version is now.
    replaced : array of bool
        The versions that say something else now than the kept ones at their place did.
    clashing : Timed
        Rows that contradict the version at their place, be they kept or new.
    rejected : array of bool
        Which of those that came are among them.
    """

    kept: Timed
    versions: Versions
    was: Ids
    replaced: Mask
    clashing: Timed
    rejected: Mask

    def before(self, spec: AsofSpec) -> tuple[Versions, Ids]:
        """The kept versions as they were, in order, and where each is now."""
        order = np.argsort(self.was)
        kept = self.kept.take(order)
        ends = _ends(spec, kept.table, kept.times)
        return Versions(kept.table, kept.codes, kept.times, ends), self.was[order]


@dataclass(frozen=True, slots=True)
class Versions:
    """Versions in the order of (key, version time, sequence), each once.

    Parameters
    ----------
    table : Table
    codes, times, ends : arrays of int64
        The key of each, as a number; the instants between which it can be an answer.
    """

    table: pa.Table
    codes: Ids
    times: Instants
    ends: Instants

    @staticmethod
    def of(spec: AsofSpec, kept: Timed, came: Timed) -> Merged:
        """Kept versions and those that came, one for each (key, version time, sequence)."""
        every = Timed(
            concat([kept.table, came.table]),
            np.concatenate([kept.codes, came.codes]),
            np.concatenate([kept.times, came.times]),
        )
        sequence = ranks(combine_chunks(every.table.column(spec.sequence)))
        order = np.lexsort((sequence, every.times, every.codes))
        begins = np.zeros(len(order), np.bool_)
        begins[:1] = True
        for each in (every.codes, every.times, sequence):
            begins[1:] |= each[order[1:]] != each[order[:-1]]
        ids = np.empty(len(order), np.int64)
        ids[order] = np.cumsum(begins) - 1

        size, chosen, clashing = len(kept.codes), order[begins], order[:0]
        replaced = np.zeros(len(chosen), np.bool_)
        if len(chosen) < len(order):
            groups = Groups(ids, len(chosen))
            chosen, clashing = settled(spec, every.table, groups, gone(spec, every.table))
            replaced[ids[clashing[clashing < size]]] = True
        stands = len(chosen) == len(order) and bool((chosen[1:] > chosen[:-1]).all())
        now = every if stands else every.take(chosen)
        versions = Versions(now.table, now.codes, now.times, _ends(spec, now.table, now.times))
        rejected = np.zeros(len(came.codes), np.bool_)
        rejected[clashing[clashing >= size] - size] = True
        return Merged(kept, versions, ids[:size], replaced, every.take(clashing), rejected)

    @staticmethod
    def kept(spec: AsofSpec, kept: Timed) -> Versions:
        """Versions of a state."""
        nothing = Timed(kept.table.slice(0, 0), kept.codes[:0], kept.times[:0])
        return Versions.of(spec, kept, nothing).versions

    def __len__(self) -> int:
        return len(self.times)

    def answers(self, spec: AsofSpec, codes: Ids, times: Instants) -> Ids:
        """The version that answers each of these (key, instant); -1 where there is none."""
        none = np.full(len(codes), -1, np.int64)
        if not len(self) or not len(codes):
            return none
        everything = ordered_pair_codes(
            np.concatenate([self.codes, codes]), np.concatenate([self.times, times])
        )
        index, queries = np.split(everything, [len(self)])
        older = newer = none
        if spec.direction != "forward":
            # The newest version before the instant, unless it holds no more: nothing below it counts.
            older = np.searchsorted(index, queries, "right" if spec.allow_exact else "left") - 1
            holds = (older >= 0) & (self.codes[older] == codes) & (times < self.ends[older])
            older = np.where(holds, older, -1)
        if spec.direction != "backward":
            newer = self._next(spec, index, queries, codes, times)
        # Of two that are equally far from the fact the older one is the answer.
        nearer = times - self.times[older] > self.times[newer] - times
        return np.where((newer >= 0) & ((older < 0) | nearer), newer, older)

    def _next(self, spec: AsofSpec, index: Ids, queries: Ids, codes: Ids, times: Instants) -> Ids:
        """The first version with a value after each instant; -1 where there is none."""
        effective = np.ones(len(self), np.bool_)  # the last in the sequence of its instant
        effective[:-1] = index[1:] != index[:-1]
        candidates = np.flatnonzero(effective & (self.ends > self.times))
        if not len(candidates):
            return np.full(len(codes), -1, np.int64)
        side: Literal["left", "right"] = "left" if spec.allow_exact else "right"
        at = np.searchsorted(index[candidates], queries, side)
        found = candidates[np.minimum(at, len(candidates) - 1)]
        matches = (at < len(candidates)) & (self.codes[found] == codes)
        if spec.tolerance is not None:
            matches &= self.times[found] - times <= spec.tolerance
        return np.where(matches, found, -1)

    def needed(self, spec: AsofSpec, horizon: int) -> Mask:
        """Those that can be the answer to a fact later than the horizon.

        The newest version of a key at or below the horizon is the base of all that follows: it is
        needed, and so is one that says that there is no value, which an older one would resurrect.
        Forward, no fact looks back below the horizon.
        """
        below = self.times <= horizon
        if spec.direction == "forward":
            return ~below
        base = below.copy()
        base[:-1] &= ~(below[1:] & (self.codes[1:] == self.codes[:-1]))
        needed = ~below | base
        if spec.tolerance is not None:
            needed &= self.times > horizon - spec.tolerance
        return needed

    def due(self, spec: AsofSpec) -> Instants:
        """The horizons at which one of them is not needed any more."""
        if spec.direction == "forward":
            return self.times
        follows = self.codes[1:] == self.codes[:-1]
        due: Instants = self.times[1:][follows]
        return due if spec.tolerance is None else np.append(due, self.times + spec.tolerance)


def gone(spec: AsofSpec, table: pa.Table) -> Mask:
    """The versions that say that the row was deleted."""
    flag = np.zeros(len(table), np.bool_)
    if spec.deleted is not None:
        flag |= np.asarray(combine_chunks(table.column(spec.deleted)).fill_null(False))
    if spec.changes:
        word = combine_chunks(table.column(CHANGE_TYPE))
        flag |= np.asarray(pc.equal(word, DELETE).fill_null(False))
    return flag


def _ends(spec: AsofSpec, table: pa.Table, times: Instants) -> Instants:
    ends = np.full(len(times), _OPEN)
    if spec.until is not None:
        until, closed = timestamp_micros(table.column(spec.until))
        ends[closed] = until[closed]
    if spec.tolerance is not None:
        ends = np.minimum(ends, times + spec.tolerance + 1)
    ends[gone(spec, table)] = _NEVER
    return ends
