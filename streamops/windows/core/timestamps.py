"""Timestamps: the instants at which a key has events, in order, and the windows that end at them.

A table of timestamps is one of entries, with the column ``timestamp``: the instant, in microseconds.
The window of a timestamp is ``(timestamp - size, timestamp]``, so it is a range of the timestamps of its key.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamops.kernel.columns import combine_chunks, take
from streamops.kernel.groups import Groups, Ids, Mask, ordered_pair_codes
from streamops.kernel.time import Instants
from streamops.windows.core.ranges import Ordered, over_windows
from streamops.windows.core.sliding_spec import SlidingSpec
from streamops.windows.core.spec import INSTANT
from streamops.windows.core.state_rows import (
    estimates,
    keys_of,
    merge_states,
    state_schema,
    states_of,
    update_states,
)

__all__ = ["Timed", "Timestamps", "timestamp_schema"]


def timestamp_schema(spec: SlidingSpec) -> pa.Schema:
    """Columns of a table of timestamps."""
    return state_schema(spec, ("timestamp", pa.int64()))


@dataclass(frozen=True, slots=True)
class Timed:
    """Rows, and for each of them its key as a number and its event time."""

    table: pa.Table
    codes: Ids
    times: Instants


@dataclass(frozen=True, slots=True)
class Timestamps:
    """Timestamps of the keys of a shard, in the order of (key, time), each once.

    Parameters
    ----------
    table : Table
    codes, times : arrays of int64
        The key of each, as a number; the instant.
    """

    table: pa.Table
    codes: Ids
    times: Instants

    @staticmethod
    def of(spec: SlidingSpec, stored: Timed, rows: Timed) -> tuple[Timestamps, Ids, Ids]:
        """Merge the stored timestamps and those of the rows: one for each key and instant.

        Returns
        -------
        timestamps : Timestamps
        was, arrived : arrays of int64
            Where each stored timestamp is now, and the timestamp of each row.
        """
        size = len(stored.codes)
        codes = np.concatenate([stored.codes, rows.codes])
        times = np.concatenate([stored.times, rows.times])
        codes_in_order = ordered_pair_codes(codes, times)
        # Rows among themselves first: what was stored stands mostly in order, and is merged fast.
        fresh, heads = _ordered(codes_in_order[size:])
        groups, first = _ordered(
            np.concatenate([codes_in_order[:size], codes_in_order[size:][heads]])
        )
        states = [
            pa.concat_arrays(pieces)
            for pieces in zip(
                states_of(stored.table, spec), update_states(spec, fresh, rows.table), strict=True
            )
        ]
        if groups.count == len(groups.ids):  # none is both stored and new
            states = [state.take(pa.array(first)) for state in states]
        else:
            states = merge_states(spec, groups, states)
        found = np.concatenate([np.arange(size), size + heads])[first]
        index = pa.array(found)
        keys = zip(
            keys_of(stored.table, spec), (rows.table.column(name) for name in spec.by), strict=True
        )
        columns = [pa.concat_arrays([a, combine_chunks(b)]).take(index) for a, b in keys]
        table = pa.table([*columns, pa.array(times[found]), *states], schema=timestamp_schema(spec))
        was, new = np.split(groups.ids, [size])
        return Timestamps(table, codes[found], times[found]), was, new[fresh.ids]

    def __len__(self) -> int:
        return len(self.times)

    def find(self, codes: Ids, times: Instants) -> Ids:
        """How many timestamps come before each of these pairs (key, instant)."""
        if not len(codes):
            return codes
        everything = ordered_pair_codes(
            np.concatenate([self.codes, codes]), np.concatenate([self.times, times])
        )
        ours, theirs = np.split(everything, [len(self)])
        return np.searchsorted(ours, theirs)

    def oldest(self, spec: SlidingSpec, rows: Ids) -> Ids:
        """Where the windows of these timestamps begin; each ends with its own timestamp."""
        return self.find(self.codes[rows], self.times[rows] - spec.size + 1)

    def seen_from(self, spec: SlidingSpec, rows: Ids) -> Mask:
        """The timestamps in whose windows at least one of these is."""
        after = self.find(self.codes[rows], self.times[rows] + spec.size)
        borders = np.bincount(rows, minlength=len(self) + 1)
        borders -= np.bincount(after, minlength=len(self) + 1)
        seen: Mask = np.cumsum(borders)[:-1] > 0
        return seen

    def about(self, spec: SlidingSpec, rows: Ids) -> list[pa.Array]:
        """Columns of the output that say what the results of these timestamps are about."""
        index = pa.array(rows)
        keys = [key.take(index) for key in keys_of(self.table, spec)]
        return [*keys, pa.array(self.times[rows]).cast(INSTANT)]

    def values(self, spec: SlidingSpec, low: Ids, rows: Ids) -> list[pa.Array]:
        """The aggregates of the timestamps from ``low`` to ``rows``, both included."""
        entries = Ordered(states_of(self.table, spec), self.codes, self.times)
        return estimates(spec, over_windows(spec, entries, low, rows))

    def values_before(
        self, spec: SlidingSpec, stored: pa.Table, was: Ids, low: Ids, rows: Ids
    ) -> list[pa.Array]:
        """The same, over no more than what was stored.

        Parameters
        ----------
        stored : Table
        was : array of int64
            Where each of its timestamps is now.
        """
        position = np.full(len(self) + 1, -1)
        position[was + 1] = np.arange(len(was))
        # The stored ones in order, and how many of them come before each timestamp.
        members = position[position >= 0]
        before: Ids = np.cumsum(position >= 0, dtype=np.int64)
        stood = np.flatnonzero(position[1:] >= 0)
        states = states_of(take(stored, members), spec)
        entries = Ordered(states, self.codes[stood], self.times[stood])
        return estimates(spec, over_windows(spec, entries, before[low], before[rows]))


def _ordered(codes_in_order: Ids) -> tuple[Groups, Ids]:
    """Equal codes_in_order as groups, numbered in their order; the first row of each."""
    order = np.argsort(codes_in_order, kind="stable")
    ordered = codes_in_order[order]
    begins = np.ones(len(order), np.bool_)
    begins[1:] = ordered[1:] != ordered[:-1]
    ids = np.empty(len(order), np.int64)
    ids[order] = np.cumsum(begins) - 1
    first = order[begins]
    return Groups(ids, len(first)), first
