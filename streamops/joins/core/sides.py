"""Rows of one input: those in state and those of a micro-batch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamops.joins.core.interval_spec import IntervalSpec
from streamops.joins.core.late import deliver
from streamops.kernel.columns import combine_chunks, concat, rows_differ, take, timestamp_micros
from streamops.kernel.core import Metrics, SideName
from streamops.kernel.groups import Ids, Mask
from streamops.kernel.hashing import xxhash64
from streamops.kernel.time import MAX_INSTANT, MIN_INSTANT, Instants

__all__ = [
    "EARLY",
    "EXPIRED",
    "LATE",
    "MATCHED",
    "NOTHING",
    "Line",
    "Rows",
    "Status",
    "accept",
    "expanded",
    "same_keys",
    "state_schema",
    "times_of",
]

_BORDERS: tuple[Literal["left"], Literal["right"]] = ("left", "right")


@dataclass(frozen=True, slots=True)
class Line:
    """Hashes and times of rows, ascending by both.

    Parameters
    ----------
    hashes, times : arrays of int64
    """

    hashes: Ids
    times: Instants

    def __len__(self) -> int:
        return len(self.hashes)

    def spans(self, hashes: Ids, since: Instants, until: Instants) -> tuple[Ids, Ids]:
        """Where the rows of a hash with a time in ``[since, until]`` stand, both ends included.

        Returns
        -------
        starts, ends : arrays of int64
            Half-open; ``ends`` is where a row at ``until`` would be put behind its equals.

        Examples
        --------
        >>> line = Line(np.array([3, 3, 3, 8]), np.array([10, 20, 30, 5]))
        >>> asked = np.array([3, 3, 7]), np.array([15, 20, 0]), np.array([30, 20, 99])
        >>> [each.tolist() for each in line.spans(*asked)]
        [[1, 1, 3], [3, 2, 3]]
        """
        lows, highs = (np.searchsorted(self.hashes, hashes, side) for side in _BORDERS)
        return self._position(lows, highs, since), self._position(lows, highs, until + 1)

    def _position(self, lows: Ids, highs: Ids, times: Instants) -> Ids:
        """The first place, in a span of one hash, of a row that is not before a time."""
        starts = lows.copy()
        left = np.flatnonzero(lows < highs)
        lows, highs, times = lows[left], highs[left], times[left]
        while len(left):  # as often as the longest span can be halved
            middle = (lows + highs) >> 1
            before = self.times[middle] < times
            lows, highs = np.where(before, middle + 1, lows), np.where(before, highs, middle)
            more = lows < highs
            starts[left] = lows
            left, lows, highs, times = left[more], lows[more], highs[more], times[more]
        return starts

    def merged(self, other: Line) -> tuple[Line, Ids]:
        """Both as one; equal rows of this one first.

        Returns
        -------
        line : Line
        order : array of int64
            For each place in it the row that stands there; those of the other are numbered
            behind ours.
        """
        count = len(self)
        order = np.empty(count + len(other), np.int64)
        positions = self.spans(other.hashes, other.times, other.times)[1] + np.arange(len(other))
        ours = np.ones(len(order), np.bool_)
        ours[positions] = False
        order[positions] = count + np.arange(len(other))
        order[ours] = np.arange(count)
        hashes = np.concatenate([self.hashes, other.hashes])[order]
        return Line(hashes, np.concatenate([self.times, other.times])[order]), order


def expanded(starts: Ids, ends: Ids) -> tuple[Ids, Ids]:
    """The places of many spans, one below another.

    Returns
    -------
    which : array of int64
        The span of each place.
    places : array of int64

    Examples
    --------
    >>> [each.tolist() for each in expanded(np.array([4, 9, 0]), np.array([6, 9, 1]))]
    [[0, 0, 2], [4, 5, 0]]
    """
    sizes = ends - starts
    which = np.repeat(np.arange(len(sizes)), sizes)
    before = np.cumsum(sizes) - sizes
    return which, np.arange(len(which)) + np.repeat(starts - before, sizes)


def hashed(keys: Sequence[pa.Array], rows: int) -> Ids:
    """A hash for each row; without key columns all rows have the same."""
    return xxhash64(keys) if keys else np.zeros(rows, np.int64)


def same_keys(left: Sequence[pa.Array], right: Sequence[pa.Array], rows: int) -> Mask:
    """Where all columns are equal, and none is null; NaN equals NaN, as in Spark's joins."""
    same = np.ones(rows, np.bool_)
    for one, other in zip(left, right, strict=True):
        dtype = one.type
        if pa.types.is_nested(dtype) or pa.types.is_floating(dtype) or pa.types.is_null(dtype):
            same &= ~rows_differ([one], [other]) & np.asarray(one.is_valid())
        else:
            same &= pc.equal(one, other).fill_null(False).to_numpy(zero_copy_only=False)
    return same


NOTHING, EARLY, EXPIRED, MATCHED, LATE = range(5)
"""What a row was last published as. ``~NOTHING`` and ``~EARLY`` are these, and tell that its answer,
not yet final, came late."""

Status = npt.NDArray[np.int8]


def state_schema(spec: IntervalSpec, side: SideName) -> pa.Schema:
    """Columns of the table of state of one side."""
    schema = spec.side(side).schema
    fields = [
        (f"column.{i}", schema.field(n).type) for i, n in enumerate(spec.stored_columns(side))
    ]
    return pa.schema([*fields, ("status", pa.int8())] if spec.remembers(side) else fields)


@dataclass(frozen=True, slots=True)
class Rows:
    """Rows of one side: those that were kept, then those that came. Each part is in order.

    Parameters
    ----------
    table : Table
        The columns that are kept, under their own names.
    line : Line
        All of them in order.
    order : array of int64
        The row at each place of the line.
    hashes, times : arrays of int64
    status : array of int8
        The status that each was emitted with.
    keyed : array of bool
        Whether it has a key: no part of which is null.
    old : int
        How many were kept.
    """

    table: pa.Table
    line: Line
    order: Ids
    hashes: Ids
    times: Instants
    status: Status
    keyed: Mask
    old: int

    @staticmethod
    def of(spec: IntervalSpec, side: SideName, state: pa.Table, arrived: pa.Table) -> Rows:
        """The rows of state, and those that came and were accepted, in any order."""
        names = spec.stored_columns(side)
        status = np.zeros(len(state) + len(arrived), np.int8)
        if spec.remembers(side):
            status[: len(state)] = combine_chunks(state.column("status")).to_numpy()
        stored = state.select(range(len(names))).rename_columns(list(names))
        before, hashes_before, times_before = _line(spec, side, stored)
        if not len(arrived):
            order = np.arange(len(stored))
            keyed = _keyed(spec, side, stored)
            return Rows(
                stored, before, order, hashes_before, times_before, status, keyed, len(stored)
            )
        arrived = pa.table(arrived.select(list(names)).columns, schema=stored.schema)
        _, hashes, times = _line(spec, side, arrived)
        sequence = np.lexsort((times, hashes))
        arrived, hashes, times = take(arrived, sequence), hashes[sequence], times[sequence]
        line, order = before.merged(Line(hashes, times))
        table = concat([stored, arrived])
        return Rows(
            table=table,
            line=line,
            order=order,
            hashes=np.concatenate([hashes_before, hashes]),
            times=np.concatenate([times_before, times]),
            status=status,
            keyed=_keyed(spec, side, table),
            old=len(stored),
        )

    def __len__(self) -> int:
        return len(self.hashes)

    @property
    def fresh(self) -> Ids:
        """Those that came."""
        return np.arange(self.old, len(self))

    @property
    def before(self) -> Line:
        """The line of those that were kept; the row at each place is its number."""
        return Line(self.hashes[: self.old], self.times[: self.old])

    def keys(self, by: tuple[str, ...], rows: Ids) -> list[pa.Array]:
        """Key columns of these rows."""
        index = pa.array(rows)
        return [combine_chunks(self.table.column(name)).take(index) for name in by]

    def stored(self, spec: IntervalSpec, side: SideName, status: Status, alive: Mask) -> pa.Table:
        """The table of state of those that are alive."""
        chosen = self.order[alive[self.order]]
        schema = state_schema(spec, side)
        table = self.table
        if len(chosen) < len(self) or self.old < len(self):
            table = take(table, chosen)
        columns = list(table.columns)
        if spec.remembers(side):
            columns.append(pa.array(status[chosen]))
        return pa.table(columns, schema=schema)


def times_of(spec: IntervalSpec, side: SideName, table: pa.Table) -> Instants:
    """Event times of rows of state."""
    names = spec.stored_columns(side)
    return timestamp_micros(table.column(names.index(spec.side(side).time or "")))[0]


def _line(spec: IntervalSpec, side: SideName, table: pa.Table) -> tuple[Line, Ids, Instants]:
    of = spec.side(side)
    assert of.time is not None
    hashes = hashed([combine_chunks(table.column(name)) for name in of.by], len(table))
    times, _ = timestamp_micros(table.column(of.time))
    return Line(hashes, times), hashes, times


def _keyed(spec: IntervalSpec, side: SideName, table: pa.Table) -> Mask:
    keyed = np.ones(len(table), np.bool_)
    for name in spec.side(side).by:
        column = table.column(name)
        if column.null_count:
            keyed &= column.is_valid().to_numpy()
    return keyed


def accept(
    spec: IntervalSpec, side: SideName, rows: pa.Table, late_watermark: int | None
) -> tuple[pa.Table, pa.Table, Metrics]:
    """Separate accepted from late rows of one side, by their event times.

    Returns
    -------
    accepted : Table
        The rows that are joined.
    late : Table
        The others, as they are delivered.
    counts : Metrics
    """
    of = spec.side(side)
    assert of.time is not None
    times, present = timestamp_micros(rows.column(of.time))
    usable = present & (times >= MIN_INSTANT) & (times <= MAX_INSTANT)
    total, pieces = len(rows), [spec.output.empty_table()]
    if not usable.all():
        if spec.routes:
            bad = np.flatnonzero(~usable)
            reason = np.where(present[bad], "time_out_of_range", "null_time")
            pieces.append(deliver(spec.output, side, take(rows, bad), reason, None, None))
        good = np.flatnonzero(usable)
        rows, times = take(rows, good), times[good]
    counts = Metrics(rows=total, rejected=total - len(rows))
    if late_watermark is None:
        return rows, concat(pieces), counts + Metrics(on_time=len(rows))
    on_time, too_late = times > late_watermark, times <= late_watermark - spec.allowed_lateness
    counts += Metrics(
        on_time=int(on_time.sum()),
        stragglers=int((~on_time & ~too_late).sum()),
        too_late=int((~on_time & too_late).sum()),
    )
    accepted = ~too_late if spec.corrects else on_time
    if not accepted.all():
        missed = np.flatnonzero(~accepted)
        if spec.routes:
            reason = np.where(too_late[missed], "too_late", "straggler")
            late = take(rows, missed)
            pieces.append(deliver(spec.output, side, late, reason, times[missed], late_watermark))
        rows = take(rows, np.flatnonzero(accepted))
    return rows, concat(pieces), counts
