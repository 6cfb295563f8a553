"""Tracking of device clock offsets from message to message.

A message sent at ``s`` by the clock of the device and received at ``r`` by the server's clock is a
sample of the clock offset: ``r - s`` is the offset plus the network delay. Delays are never
negative, so the minimum of several samples is the best estimate (the clock filter of NTP, RFC 5905,
section 10). The minimum over a *horizon* follows a clock that drifts. If a sample differs from the
previous one by more than ``step``, the clock was set, and earlier samples are discarded: a new
*epoch* begins.

Samples are processed in the order of ``received``. An *instant* is the set of samples of a device
with the same ``received``. The estimate for a row uses the earlier instants and the row itself, so
the result depends neither on the order of ties nor on how rows are split into micro-batches. If a
row was received before a row of an earlier micro-batch, it is assigned to the instant of that row.

The horizon consists of sixteen cells of received time plus the cell of the current instant. State
holds the minimum sample of each cell.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamops.kernel.columns import combine_chunks, integers, key_codes, take, timestamp_micros
from streamops.kernel.core import Input, State, StateFormat, Step
from streamops.kernel.formatted import format_rows
from streamops.kernel.groups import Groups, Ids, Mask, ordered_pair_codes, pair_codes, running_max
from streamops.kernel.operator import Core, Spec, Table, checkpointed, with_types
from streamops.kernel.parameters import require_distinct_columns, require_keys, show_duration
from streamops.kernel.placement import Placement
from streamops.kernel.time import (
    BEFORE_ALL,
    MAX_INSTANT,
    MIN_INSTANT,
    Duration,
    Instants,
    parse_duration,
)

Otherwise = Literal["received", "device", "null"]
CORRECTED, PLAUSIBLE = "corrected", "plausible"
_REASONS = (
    "no_event_time",
    "no_received_time",
    "no_sent_time",
    "sent_before_event",
    "waited_too_long",
    "offset_too_large",
)
QUALITIES = (CORRECTED, PLAUSIBLE, *_REASONS)


@dataclass(frozen=True, slots=True, kw_only=True)
class CorrectClockSpec:
    """The parameters of a clock correction; durations in microseconds."""

    where: ClassVar[str] = "time.correct_clock"
    qualities: ClassVar[tuple[str, ...]] = QUALITIES
    adds: ClassVar[tuple[str, ...]] = ("corrected_time", "clock_offset", "clock_quality")
    """Columns that are added to the input."""

    time: str
    sent: str = checkpointed()
    received: str = checkpointed()
    tolerance: int = field(metadata={"shown": show_duration})
    longest_wait: int | None = field(metadata={"shown": show_duration})
    largest_offset: int | None = checkpointed(metadata={"shown": show_duration})
    otherwise: Otherwise

    def __post_init__(self) -> None:
        columns = {"time": self.time, "sent": self.sent, "received": self.received}
        require_distinct_columns(**columns)

    @property
    def marked(self) -> str:
        """The corrected time: downstream operators read it."""
        return self.adds[0]


def correct(
    spec: CorrectClockSpec, rows: pa.Table, offsets: pa.ChunkedArray, good: pa.ChunkedArray
) -> tuple[pa.Array, pa.Array, pa.Array]:
    """Return corrected times, the clock offsets that were applied, and the clock qualities.

    `offsets` are microseconds, null if unknown; `good` is the quality of a time corrected by them.
    """
    (event, has_event), (sent, has_sent), (received, has_received) = (
        calendar_micros(rows.column(name)) for name in (spec.time, spec.sent, spec.received)
    )
    offset, has_offset = timestamp_micros(offsets)
    wait = sent - event
    too_long = has_offset & (event + offset < MIN_INSTANT)
    if spec.longest_wait is not None:
        too_long |= wait > spec.longest_wait
    limit = MAX_INSTANT - MIN_INSTANT if spec.largest_offset is None else spec.largest_offset
    near = has_offset & (offset >= 0) & (offset <= spec.tolerance)
    conditions = [~has_event, ~has_received, ~has_sent, wait < 0, too_long]
    conditions += [np.abs(received - sent) > limit, near]
    index = np.select(conditions, range(len(conditions)), len(conditions))
    quality = pa.array([*_REASONS, PLAUSIBLE, None]).take(pa.array(index))
    quality = pc.coalesce(quality, combine_chunks(good))
    is_good = (index == len(conditions)) & np.asarray(combine_chunks(good).is_valid())
    is_near = index == len(_REASONS)
    if spec.otherwise == "received":
        fallback, has_fallback = received, has_received
    else:
        fallback = np.where(has_received, np.minimum(event, received), event)
        has_fallback = has_event & (spec.otherwise == "device")
    time = np.select([is_near, is_good], [event, event + offset], fallback)
    is_null = ~(is_near | is_good | has_fallback)
    instant = pa.array(time, mask=is_null).cast(pa.timestamp("us", tz="UTC"))
    return instant, pa.array(offset, mask=~has_offset).cast(pa.duration("us")), quality


def calendar_micros(column: pa.ChunkedArray) -> tuple[Instants, Mask]:
    """Convert timestamps to microseconds, and return whether they are in the years 1 to 9999.

    Nulls, and instants outside this range, are 0.
    """
    micros, valid = timestamp_micros(column)
    valid = valid & (micros >= MIN_INSTANT) & (micros <= MAX_INSTANT)
    return np.where(valid, micros, 0), valid


def parse_limit(value: Duration | None, *, parameter: str) -> int | None:
    """Convert a duration >= 0 to microseconds. None is no limit."""
    if value is None:
        return None
    return parse_duration(value, parameter=parameter, minimum=0)


OFFSET, METHOD = "__streamops_offset", "__streamops_method"
"""Columns of the output: the offset in microseconds, null without a sample; how it was determined."""

CELLS = 16
"""Number of cells in a horizon."""

_TABLES = ("devices", "cells")
_OWN, _ESTIMATED, _STEPPED = range(3)
_METHODS = pa.array([CORRECTED, "estimated", "stepped"])


@dataclass(frozen=True, slots=True, kw_only=True)
class TrackClockSpec(CorrectClockSpec, Spec):
    """The parameters of clock tracking; durations in microseconds."""

    where: ClassVar[str] = "time.track_clock"
    qualities: ClassVar[tuple[str, ...]] = ("estimated", "stepped", *QUALITIES)

    by: tuple[str, ...] = checkpointed(with_types)
    horizon: int = checkpointed(metadata={"shown": show_duration})
    step: int = checkpointed(metadata={"shown": show_duration})
    input: pa.Schema = field(default=pa.schema([]), repr=False)
    """Schema of the input, set by ``resolve``."""

    def resolve(
        self, schemas: Sequence[pa.Schema], *, carried: Sequence[int | None], shards: int
    ) -> TrackClockSpec:
        """Return the specification with the schema of its input."""
        (schema,) = schemas
        require_keys(schema, self.by)
        return replace(self, input=schema)

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The rows of each device meet in one shard."""
        return (Input(self.by, schema=self.input, accepts_revisions=True),)

    @property
    def cell(self) -> int:
        """Length of a cell."""
        return -(-self.horizon // CELLS)

    @property
    def output(self) -> pa.Schema:
        """The input columns, the offset, and how it was determined."""
        return self.input.append(pa.field(OFFSET, pa.int64())).append(pa.field(METHOD, pa.string()))


_DEVICE, _CELL = ("before", "before_least", "last", "last_least"), ("cell", "least")


def _state_schema(spec: TrackClockSpec, *columns: str) -> pa.Schema:
    keys = [(f"key.{i}", spec.input.field(name).type) for i, name in enumerate(spec.by)]
    return pa.schema([*keys, *((name, pa.int64()) for name in columns)])


class TrackClockCore(Core[TrackClockSpec]):
    """Tracking of device clock offsets from message to message."""

    STATE = StateFormat("time.track_clock", 1)
    TABLES: ClassVar = {
        "devices": Table(lambda spec: _state_schema(spec, *_DEVICE)),
        "cells": Table(lambda spec: _state_schema(spec, *_CELL)),
    }
    PLACEMENT = Placement(watermark="greatest")
    METRICS: ClassVar = {}
    """Rows are counted by quality, after the correction."""

    def step(
        self, spec: TrackClockSpec, state: State, inputs: Sequence[pa.Table], watermark: int | None
    ) -> Step:
        """Process one micro-batch: add the offset and its method to each row."""
        (rows,) = inputs
        received, offset, is_sample = _samples(spec, rows)
        sampled = np.flatnonzero(is_sample)
        devices, cells, samples = *(state.tables[name] for name in _TABLES), take(rows, sampled)
        stored = [
            [combine_chunks(table.column(i)) for table in (devices, cells)]
            for i in range(len(spec.by))
        ]
        keys = [
            pa.concat_arrays([*columns, combine_chunks(samples.column(name))])
            for columns, name in zip(stored, spec.by, strict=True)
        ]
        sizes = [len(devices), len(cells), len(samples)]
        codes = np.split(key_codes(keys, sum(sizes)), np.cumsum(sizes)[:-1])

        instants = _Instants.of(spec, devices, codes, received[sampled], offset[sampled])
        history = _Cells.of(instants, codes[1], cells)
        offsets, methods = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
        minimum = history.minimum_before(instants)
        offsets[sampled], methods[sampled] = _estimate(spec, instants, minimum, offset[sampled])
        added = [
            pa.array(offsets, mask=~is_sample),
            _METHODS.take(pa.array(methods, mask=~is_sample)),
        ]
        result = pa.table([*rows.columns, *added], schema=spec.output)

        newest = int(received[sampled].max(initial=BEFORE_ALL))
        newest = newest if state.watermark is None else max(newest, state.watermark)
        tables = _next_tables(spec, instants, history, keys, newest)
        state = State(None if newest == BEFORE_ALL else newest, tables)
        return Step(state, result, spec.output.empty_table(), None)

    def check(self, spec: TrackClockSpec, state: State) -> None:
        """Assert that devices and cells are unique, and that the number of cells is bounded."""
        devices, cells = (state.tables[name] for name in _TABLES)
        text = f"newest {state.watermark}\n{format_rows(devices)}\n{format_rows(cells)}"
        keys = [key_codes(t.columns[: len(spec.by)], len(t)) for t in (devices, cells)]
        assert Groups.of(keys[0])[0].count == len(devices), f"a duplicate device: {text}"
        groups, _ = Groups.of(pair_codes(keys[1], integers(cells, "cell")))
        assert groups.count == len(cells), f"a duplicate cell: {text}"
        assert len(cells) <= len(devices) * (CELLS + 1), f"too many cells: {text}"
        assert (integers(devices, "before") < integers(devices, "last")).all(), text


def add_corrected_time(spec: TrackClockSpec, rows: pa.Table) -> pa.Table:
    """Replace offset and method by the columns of the result."""
    values = correct(spec, rows, rows.column(OFFSET), rows.column(METHOD))
    result = rows.drop_columns([OFFSET, METHOD])
    for name, column in zip(spec.adds, values, strict=True):
        result = result.append_column(name, column)
    return result


def _samples(spec: TrackClockSpec, rows: pa.Table) -> tuple[Instants, Instants, Mask]:
    """Return the time of receipt and the offset of each row, and whether the row is a sample."""
    (received, has_received), (sent, has_sent) = (
        calendar_micros(rows.column(name)) for name in (spec.received, spec.sent)
    )
    is_sample = has_received & has_sent
    offset = np.where(is_sample, received - sent, 0)
    if spec.largest_offset is not None:
        is_sample &= np.abs(offset) <= spec.largest_offset
    return received, offset, is_sample


def _estimate(
    spec: TrackClockSpec, instants: _Instants, minimum: Instants, offset: Instants
) -> tuple[Instants, Ids]:
    """Return the effective offset of each sample, and how it was determined."""
    rows = instants.rows
    near = instants.near[rows]
    stepped = near & (np.abs(offset - instants.least[np.maximum(rows - 1, 0)]) > spec.step)
    estimated = near & ~stepped
    offsets = np.where(estimated, np.minimum(offset, minimum[rows]), offset)
    return offsets, np.select([stepped, estimated], [_STEPPED, _ESTIMATED], _OWN)


def _next_tables(
    spec: TrackClockSpec,
    instants: _Instants,
    history: _Cells,
    keys: list[pa.Array],
    newest: int,
) -> dict[str, pa.Table]:
    """Return the last two instants of each device, and the cells up to the first of the two."""
    count = len(instants.at)
    last = np.flatnonzero(np.append(np.diff(instants.device), 1)) if count else instants.device
    active = instants.cell[last] >= newest // spec.cell - 2 * CELLS
    has_two = instants.near[last]
    before = np.maximum(last - 1, 0)
    source = instants.source[last]
    columns = [
        np.where(has_two, instants.at[before], BEFORE_ALL),
        np.where(has_two, instants.least[before], 0),
        instants.at[last],
        instants.least[last],
    ]
    schemas = TrackClockCore().layout(spec)
    devices = _table(schemas["devices"], keys, source, columns, np.flatnonzero(active))

    device = history.device
    retained = (active & has_two)[device] & (history.epoch == instants.epoch[before][device])
    retained &= history.instant != last[device]
    retained &= history.cell >= instants.cell[last][device] - CELLS
    index = np.flatnonzero(retained)
    groups, heads = Groups.of(pair_codes(device[index], history.cell[index]))
    cells = [history.cell[index][heads], groups.least(history.least[index])]
    rows = np.arange(groups.count)
    return {
        "devices": devices,
        "cells": _table(schemas["cells"], keys, source[device[index][heads]], cells, rows),
    }


def _table(
    schema: pa.Schema, keys: list[pa.Array], source: Ids, columns: list[Instants], rows: Ids
) -> pa.Table:
    index = pa.array(source[rows])
    values = [pa.array(column[rows]) for column in columns]
    return pa.table([*(key.take(index) for key in keys), *values], schema=schema)


@dataclass(frozen=True, slots=True)
class _Instants:
    """The instants of all devices, sorted by (device, instant)."""

    device: Ids  # number of the device, from 0
    codes: Ids  # key code of the device
    at: Instants  # time of receipt
    cell: Instants
    least: Instants  # minimum sample
    near: Mask  # whether the device has an earlier instant within the horizon
    epoch: Ids  # number of the epoch: the instants between two settings of the clock
    source: Ids  # row of the concatenated keys with the key of the device
    rows: Ids  # the instant of each new sample

    @staticmethod
    def of(
        spec: TrackClockSpec,
        devices: pa.Table,
        codes: list[Ids],
        received: Instants,
        offset: Instants,
    ) -> _Instants:
        """Merge the last two stored instants of each device with those of the new samples."""
        stored, stored_cells, arrived = codes
        before, last = integers(devices, "before"), integers(devices, "last")
        two = np.flatnonzero(before != BEFORE_ALL)
        key = np.concatenate([stored[two], stored, arrived])
        effective = np.maximum(received, _latest(stored, last, arrived))
        at = np.concatenate([before[two], last, effective])
        lasts = integers(devices, "before_least")[two], integers(devices, "last_least")
        samples = np.concatenate([*lasts, offset])
        rest = len(stored) + len(stored_cells)
        source = np.concatenate([two, np.arange(len(stored)), np.arange(len(arrived)) + rest])

        sequence = ordered_pair_codes(key, at)
        order = np.argsort(sequence, kind="stable")
        new = _begins(sequence[order])
        heads, ids = np.flatnonzero(new), np.empty(len(order), np.int64)
        ids[order] = np.cumsum(new) - 1
        key, at, source = (values[order][heads] for values in (key, at, source))
        least = np.minimum.reduceat(samples[order], heads) if len(heads) else samples
        cell, first = at // spec.cell, _begins(key)
        near = ~first
        near[1:] &= np.diff(cell) <= CELLS
        starts = ~near
        starts[1:] |= np.abs(np.diff(least)) > spec.step
        return _Instants(
            device=np.cumsum(first) - 1,
            codes=key,
            at=at,
            cell=cell,
            least=least,
            near=near,
            epoch=np.cumsum(starts) - 1,
            source=source,
            rows=ids[len(two) + len(stored) :],
        )


@dataclass(frozen=True, slots=True)
class _Cells:
    """Stored cells and instants, sorted by (epoch, cell, instant)."""

    epoch: Ids
    device: Ids
    cell: Instants
    least: Instants  # minimum sample
    instant: Ids  # index of the instant in :class:`_Instants`; -1 for a stored cell

    @staticmethod
    def of(instants: _Instants, codes: Ids, cells: pa.Table) -> _Cells:
        """Merge stored cells and instants; a cell belongs to the first epoch of its device."""
        home = np.searchsorted(instants.codes, codes)
        epoch = np.concatenate([instants.epoch[home], instants.epoch])
        device = np.concatenate([instants.device[home], instants.device])
        cell = np.concatenate([integers(cells, "cell"), instants.cell])
        least = np.concatenate([integers(cells, "least"), instants.least])
        instant = np.concatenate([np.full(len(home), -1), np.arange(len(instants.at))])
        order = np.argsort(ordered_pair_codes(epoch, cell), kind="stable")
        columns = (epoch, device, cell, least, instant)
        return _Cells(*(values[order] for values in columns))

    def minimum_before(self, instants: _Instants) -> Instants:
        """Return the minimum sample before each instant, within its epoch and the horizon.

        The value is undefined for instants without an earlier one.
        """
        if not len(self.epoch):
            return instants.least
        new = _begins(ordered_pair_codes(self.epoch, self.cell))
        heads, ids = np.flatnonzero(new), np.cumsum(new) - 1
        prefix = -running_max(-self.least, new)
        least, epoch, cell = (
            np.minimum.reduceat(self.least, heads),
            self.epoch[heads],
            self.cell[heads],
        )
        position = np.empty(len(instants.at), np.int64)
        is_instant = self.instant >= 0
        position[self.instant[is_instant]] = np.flatnonzero(is_instant)
        before = position[np.maximum(np.arange(len(instants.at)) - 1, 0)]
        found, block = prefix[before], ids[before]
        for back in range(1, CELLS + 1):
            other = np.maximum(block - back, 0)
            covered = (block >= back) & (epoch[other] == self.epoch[before])
            covered &= cell[other] >= instants.cell - CELLS
            found = np.where(covered, np.minimum(found, least[other]), found)
        return found


def _latest(stored: Ids, last: Instants, arrived: Ids) -> Instants:
    """Return the last stored instant of the device of each sample."""
    if not len(stored):
        return np.full(len(arrived), BEFORE_ALL)
    order = np.argsort(stored)
    position = np.minimum(np.searchsorted(stored[order], arrived), len(stored) - 1)
    found = order[position]
    return np.where(stored[found] == arrived, last[found], BEFORE_ALL)


def _begins(values: npt.NDArray[np.int64]) -> Mask:
    """Return where a value differs from the previous one."""
    new = np.ones(len(values), np.bool_)
    new[1:] = values[1:] != values[:-1]
    return new
