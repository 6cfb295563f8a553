"""Rows of one input: those in state and those of a micro-batch."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamops.joins.core.interval_spec import IntervalSpec
from streamops.joins.core.late import deliver
from streamops.joins.core.line import Line, hashed
from streamops.kernel.columns import combine_chunks, concat, take, timestamp_micros
from streamops.kernel.core import Metrics, SideName
from streamops.kernel.groups import Ids, Mask
from streamops.kernel.time import MAX_INSTANT, MIN_INSTANT, Instants

__all__ = [
    "EARLY",
    "EXPIRED",
    "LATE",
    "MATCHED",
    "NOTHING",
    "Rows",
    "Status",
    "accept",
    "state_schema",
    "times_of",
]

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
