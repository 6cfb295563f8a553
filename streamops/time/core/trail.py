"""What is known of the clocks of devices: their instants in order, and the cells they lie in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamops.kernel.columns import combine_chunks
from streamops.kernel.groups import Ids, Mask, ordered_pair_codes, running_max
from streamops.kernel.time import Instants

__all__ = ["CELLS", "NEVER", "Blocks", "Trail", "numbers"]

CELLS = 16
"""Cells in a horizon."""

NEVER = -(1 << 62)
"""The instant of what never was."""


@dataclass(frozen=True, slots=True)
class Trail:
    """The instants of all devices, in the order of (device, instant).

    Parameters
    ----------
    device : array of int64
        Number of the device, from 0; and its key as a number.
    codes, at, cell, least : arrays of int64
        Key, instant, cell, least sample.
    near : array of bool
        Whether there is an instant of the device before, within the horizon.
    segment : array of int64
        What lies between two settings of the clock.
    source : array of int64
        A row of all keys with the device's.
    rows : array of int64
        The instant of each new sample.
    """

    device: Ids
    codes: Ids
    at: Instants
    cell: Instants
    least: Instants
    near: Mask
    segment: Ids
    source: Ids
    rows: Ids

    @staticmethod
    def of(
        cell: int,
        step: int,
        devices: pa.Table,
        codes: list[Ids],
        received: Instants,
        offset: Instants,
    ) -> Trail:
        """The last two instants that are kept of each device, and those of the samples."""
        known, kept_cells, came = codes
        before, last = numbers(devices, "before"), numbers(devices, "last")
        two = np.flatnonzero(before != NEVER)
        key = np.concatenate([known[two], known, came])
        at = np.concatenate([before[two], last, np.maximum(received, _latest(known, last, came))])
        lasts = numbers(devices, "before_least")[two], numbers(devices, "last_least")
        samples = np.concatenate([*lasts, offset])
        rest = len(known) + len(kept_cells)
        source = np.concatenate([two, np.arange(len(known)), np.arange(len(came)) + rest])

        places = ordered_pair_codes(key, at)
        order = np.argsort(places, kind="stable")
        new = _begins(places[order])
        heads, ids = np.flatnonzero(new), np.empty(len(order), np.int64)
        ids[order] = np.cumsum(new) - 1
        key, at, source = (each[order][heads] for each in (key, at, source))
        least = np.minimum.reduceat(samples[order], heads) if len(heads) else samples
        number, first = at // cell, _begins(key)
        near = ~first
        near[1:] &= np.diff(number) <= CELLS
        starts = ~near
        starts[1:] |= np.abs(np.diff(least)) > step
        return Trail(
            np.cumsum(first) - 1,
            key,
            at,
            number,
            least,
            near,
            np.cumsum(starts) - 1,
            source,
            ids[len(two) + len(known) :],
        )


@dataclass(frozen=True, slots=True)
class Blocks:
    """Cells that are kept, and instants, in the order of (segment, cell, instant).

    Parameters
    ----------
    segment, device, cell, least : arrays of int64
        Of each of them.
    instant : array of int64
        Its number in the trail; -1 for a cell that was kept.
    """

    segment: Ids
    device: Ids
    cell: Instants
    least: Instants
    instant: Ids

    @staticmethod
    def of(trail: Trail, codes: Ids, cells: pa.Table) -> Blocks:
        """Cells belong to the segment that the first instant of their device is in."""
        home = np.searchsorted(trail.codes, codes)
        segment = np.concatenate([trail.segment[home], trail.segment])
        device = np.concatenate([trail.device[home], trail.device])
        cell = np.concatenate([numbers(cells, "cell"), trail.cell])
        least = np.concatenate([numbers(cells, "least"), trail.least])
        instant = np.concatenate([np.full(len(home), -1), np.arange(len(trail.at))])
        order = np.argsort(ordered_pair_codes(segment, cell), kind="stable")
        return Blocks(*(each[order] for each in (segment, device, cell, least, instant)))

    def floor(self, trail: Trail) -> Instants:
        """The least sample before each instant, in the segment of the one before and within the
        horizon; what stands where there is none means nothing.
        """
        if not len(self.segment):
            return trail.least
        new = _begins(ordered_pair_codes(self.segment, self.cell))
        heads, ids = np.flatnonzero(new), np.cumsum(new) - 1
        so_far = -running_max(-self.least, new)
        whole, segment, cell = (
            np.minimum.reduceat(self.least, heads),
            self.segment[heads],
            self.cell[heads],
        )
        place = np.empty(len(trail.at), np.int64)
        is_instant = self.instant >= 0
        place[self.instant[is_instant]] = np.flatnonzero(is_instant)
        before = place[np.maximum(np.arange(len(trail.at)) - 1, 0)]
        found, block = so_far[before], ids[before]
        for back in range(1, CELLS + 1):
            other = np.maximum(block - back, 0)
            reaches = (block >= back) & (segment[other] == self.segment[before])
            reaches &= cell[other] >= trail.cell - CELLS
            found = np.where(reaches, np.minimum(found, whole[other]), found)
        return found


def _latest(known: Ids, last: Instants, came: Ids) -> Instants:
    """The last instant that is kept of the device of each sample."""
    order = np.argsort(known)
    place = np.minimum(np.searchsorted(known[order], came), max(len(known) - 1, 0))
    if not len(known):
        return np.full(len(came), NEVER)
    found = order[place]
    return np.where(known[found] == came, last[found], NEVER)


def _begins(values: npt.NDArray[np.int64]) -> Mask:
    """Where a value differs from the one before."""
    new = np.ones(len(values), np.bool_)
    new[1:] = values[1:] != values[:-1]
    return new


def numbers(table: pa.Table, name: str) -> Instants:
    """An int64 column without nulls."""
    return np.asarray(combine_chunks(table.column(name)))
