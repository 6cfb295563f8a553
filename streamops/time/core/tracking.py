"""The offsets of devices' clocks, followed from message to message.

A message that was sent at ``s`` by the clock of the device, and received at ``r`` by the server's,
says that the offset of the clock is ``r - s`` less the time it was under way. That is never
negative, so the least of several such samples is the best (the clock filter of NTP, RFC 5905,
section 10). The least over a *horizon* follows a clock that drifts. A sample that differs from the
one before by more than ``step`` is not explained by the way: the clock was set, and what was known
of it is forgotten.

Samples are taken in the order of ``received``; an *instant* is what a device has of the same. A row
is judged by the instants before its own and by itself, so neither the order of equal ones matters
nor how they are cut into micro-batches. A row that was received before one that came in an earlier
micro-batch is taken for received with that.

The horizon is sixteen cells of received time, and the one that an instant lies in; of each cell the
least sample is kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streamops.kernel.columns import combine_chunks, conform, key_codes, take, timestamp_micros
from streamops.kernel.contract import State, StateFormat
from streamops.kernel.groups import Groups, Ids, Mask, pair_codes
from streamops.kernel.time import MAX_INSTANT, MIN_INSTANT, Instants
from streamops.time.core.trail import CELLS, NEVER, Blocks, Trail, numbers

__all__ = [
    "HOW",
    "OFFSET",
    "STATE",
    "TrackSpec",
    "check",
    "delivered",
    "empty",
    "layout",
    "pack",
    "run",
    "step",
]

STATE = StateFormat("time.track_clock", 1)

OFFSET, HOW = "__streamops_offset", "__streamops_how"
"""Columns that are added: microseconds, null where there is no sample; and how they came about."""

_TABLES = ("devices", "cells")
_OWN, _ESTIMATED, _STEPPED = range(3)
_WORDS = pa.array(["corrected", "estimated", "stepped"])


@dataclass(frozen=True, slots=True)
class TrackSpec:
    """Settings, bound to the schema of their input; durations in microseconds."""

    by: tuple[str, ...]
    sent: str
    received: str
    horizon: int
    step: int
    largest_offset: int | None
    input: pa.Schema

    @property
    def cell(self) -> int:
        """Length of a cell."""
        return -(-self.horizon // CELLS)

    @property
    def output(self) -> pa.Schema:
        """The rows, and what is said of them."""
        return self.input.append(pa.field(OFFSET, pa.int64())).append(pa.field(HOW, pa.string()))

    @property
    def identity(self) -> Mapping[str, Any]:
        """Everything the state depends on."""
        return {
            "by": [[name, str(self.input.field(name).type)] for name in self.by],
            "sent": self.sent,
            "received": self.received,
            "horizon": self.horizon,
            "step": self.step,
            "largest_offset": self.largest_offset,
        }


def layout(spec: TrackSpec) -> Mapping[str, pa.Schema]:
    """Columns of the state's tables."""
    keys = [(f"key.{i}", spec.input.field(name).type) for i, name in enumerate(spec.by)]
    latest = [(name, pa.int64()) for name in ("before", "before_least", "last", "last_least")]
    cells = [(name, pa.int64()) for name in ("cell", "least")]
    return {"devices": pa.schema([*keys, *latest]), "cells": pa.schema([*keys, *cells])}


def empty(spec: TrackSpec) -> State:
    """The state before the first step."""
    return State(None, {name: schema.empty_table() for name, schema in layout(spec).items()})


def pack(spec: TrackSpec, rows: pa.Table) -> pa.Table:
    """The rows as they are."""
    return conform(rows, spec.input)


def run(spec: TrackSpec, rows: pa.Table) -> pa.Table:
    """The batch result: all rows at once, in the order in which they were received."""
    return step(spec, empty(spec), rows)[1]


def step(spec: TrackSpec, state: State, rows: pa.Table) -> tuple[State, pa.Table]:
    """One micro-batch: the state after it, and its rows with what is said of them."""
    received, offset, is_sample = _samples(spec, rows)
    chosen = np.flatnonzero(is_sample)
    devices, cells, samples = *(state.tables[name] for name in _TABLES), take(rows, chosen)
    kept = [
        [combine_chunks(table.column(i)) for table in (devices, cells)] for i in range(len(spec.by))
    ]
    keys = [
        pa.concat_arrays([*columns, combine_chunks(samples.column(name))])
        for columns, name in zip(kept, spec.by, strict=True)
    ]
    sizes = [len(devices), len(cells), len(samples)]
    codes = np.split(key_codes(keys, sum(sizes)), np.cumsum(sizes)[:-1])

    trail = Trail.of(spec.cell, spec.step, devices, codes, received[chosen], offset[chosen])
    blocks = Blocks.of(trail, codes[1], cells)
    told, word = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
    told[chosen], word[chosen] = _judged(spec, trail, blocks.floor(trail), offset[chosen])
    said = [pa.array(told, mask=~is_sample), _WORDS.take(pa.array(word, mask=~is_sample))]
    result = pa.table([*rows.columns, *said], schema=spec.output)

    newest = int(received[chosen].max(initial=NEVER))
    newest = newest if state.watermark is None else max(newest, state.watermark)
    tables = _kept(spec, trail, blocks, keys, newest)
    return State(None if newest == NEVER else newest, tables), result


def delivered(spec: TrackSpec, rows: pa.Table) -> tuple[pa.Table, tuple[int, ...]]:
    """All rows come out; they are counted by what becomes of them."""
    return rows, ()


def check(spec: TrackSpec, state: State) -> None:
    """Each device is there once, and each cell, of which there are few."""
    devices, cells = (state.tables[name] for name in _TABLES)
    shown = f"newest {state.watermark}\n{devices.to_pylist()}\n{cells.to_pylist()}"
    keys = [key_codes(t.columns[: len(spec.by)], len(t)) for t in (devices, cells)]
    assert Groups.of(keys[0])[0].count == len(devices), f"a device twice: {shown}"
    groups, _ = Groups.of(pair_codes(keys[1], numbers(cells, "cell")))
    assert groups.count == len(cells), f"a cell twice: {shown}"
    assert len(cells) <= len(devices) * (CELLS + 1), f"too many cells: {shown}"
    assert (numbers(devices, "before") < numbers(devices, "last")).all(), shown


def _samples(spec: TrackSpec, rows: pa.Table) -> tuple[Instants, Instants, Mask]:
    """When each row was received, its offset, and whether both can be used."""
    (received, known), (sent, told) = (
        timestamp_micros(rows.column(name)) for name in (spec.received, spec.sent)
    )
    usable = known & told
    for each in (received, sent):
        usable = usable & (each >= MIN_INSTANT) & (each <= MAX_INSTANT)
    offset = np.where(usable, received - sent, 0)
    if spec.largest_offset is not None:
        usable &= np.abs(offset) <= spec.largest_offset
    return received, offset, usable


def _judged(
    spec: TrackSpec, trail: Trail, floor: Instants, offset: Instants
) -> tuple[Instants, Ids]:
    """The offset that holds for each sample, and how it came about."""
    here = trail.rows
    near = trail.near[here]
    stepped = near & (np.abs(offset - trail.least[np.maximum(here - 1, 0)]) > spec.step)
    estimated = near & ~stepped
    told = np.where(estimated, np.minimum(offset, floor[here]), offset)
    return told, np.select([stepped, estimated], [_STEPPED, _ESTIMATED], _OWN)


def _kept(
    spec: TrackSpec, trail: Trail, blocks: Blocks, keys: list[pa.Array], newest: int
) -> dict[str, pa.Table]:
    """The last two instants of each device, and the cells up to the first of the two."""
    count = len(trail.at)
    last = np.flatnonzero(np.append(np.diff(trail.device), 1)) if count else trail.device
    alive = trail.cell[last] >= newest // spec.cell - 2 * CELLS
    two = trail.near[last]
    before = np.maximum(last - 1, 0)
    source = trail.source[last]
    columns = [
        np.where(two, trail.at[before], NEVER),
        np.where(two, trail.least[before], 0),
        trail.at[last],
        trail.least[last],
    ]
    schemas = layout(spec)
    devices = _table(schemas["devices"], keys, source, columns, np.flatnonzero(alive))

    mine = blocks.device
    wanted = (alive & two)[mine] & (blocks.segment == trail.segment[before][mine])
    wanted &= (blocks.instant != last[mine]) & (blocks.cell >= trail.cell[last][mine] - CELLS)
    some = np.flatnonzero(wanted)
    groups, heads = Groups.of(pair_codes(mine[some], blocks.cell[some]))
    cells = [blocks.cell[some][heads], groups.least(blocks.least[some])]
    rows = np.arange(groups.count)
    return {
        "devices": devices,
        "cells": _table(schemas["cells"], keys, source[mine[some][heads]], cells, rows),
    }


def _table(
    schema: pa.Schema, keys: list[pa.Array], source: Ids, columns: list[Instants], rows: Ids
) -> pa.Table:
    index = pa.array(source[rows])
    said = [pa.array(column[rows]) for column in columns]
    return pa.table([*(key.take(index) for key in keys), *said], schema=schema)
