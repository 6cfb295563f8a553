"""The clock of a stream whose rows come from many producers.

A producer is *active* from a row of its until it has been silent for `idle`, by the arrival of
rows: then it is forgotten. Its newest event time is the greatest since it became active. The
clock is the least of these over the active producers that are not behind it, so it never goes
back. One that comes, or comes back, with times behind the clock does not stop it: it is one of
those that hold the clock as soon as it has caught up.

Producers that are *expected* are active from the first micro-batch that has a usable row. Before
their own first row they have no newest event time, and then there is no clock.

Unlike the cores of windows this one has no key and no watermark: all producers meet in one place,
and what leaves it is a clock, which the watermark follows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from streamops.kernel.clocks import ClockMetrics, ClockStep
from streamops.kernel.columns import combine_chunks, concat, key_codes, take, timestamp_micros
from streamops.kernel.contract import State, StateFormat
from streamops.kernel.groups import Groups, Ints, Mask
from streamops.kernel.time import MAX_INSTANT, MIN_INSTANT

__all__ = [
    "STATE",
    "ProducersSpec",
    "check",
    "empty",
    "layout",
    "pack",
    "step",
]

STATE = StateFormat("time.producers", 1)

PRODUCER, NEWEST, SEEN = "key.0", "newest", "seen"
_ROWS, _REJECTED = "rows", "rejected"
_INSTANT = pa.timestamp("us", tz="UTC")
_NEVER = -(1 << 62)  # before every instant


@dataclass(frozen=True, slots=True)
class ProducersSpec:
    """Settings of a clock, bound to the columns of a frame; durations in microseconds.

    Parameters
    ----------
    producer, time : str
        Columns.
    arrival : str, optional
        Column; None: the start of the micro-batch.
    kind : DataType
        Type of the column `producer`.
    idle : int
        How long a silent producer stays active.
    expected : Array
        Producers that are waited for at the start.
    """

    producer: str
    time: str
    arrival: str | None
    kind: pa.DataType
    idle: int
    expected: pa.Array

    @property
    def input(self) -> pa.Schema:
        """Columns that :func:`pack` reads, under names of their own."""
        return pa.schema([("producer", self.kind), ("time", _INSTANT), ("arrival", _INSTANT)])

    @property
    def identity(self) -> Mapping[str, Any]:
        """What a checkpoint depends on. Not `idle`: another one holds from the next step on. Nor
        `expected`, which matters only at the start.
        """
        return {
            "producer": [self.producer, str(self.kind)],
            "time": self.time,
            "arrival": self.arrival,
        }


def layout(spec: ProducersSpec) -> dict[str, pa.Schema]:
    """Columns of the state's tables."""
    return {"producers": pa.schema([(PRODUCER, spec.kind), *_instants(NEWEST, SEEN)])}


def empty(spec: ProducersSpec) -> State:
    """The state before the first step."""
    return State(None, {name: schema.empty_table() for name, schema in layout(spec).items()})


def pack(spec: ProducersSpec, rows: pa.Table) -> pa.Table:
    """One row per producer: its greatest event time and arrival, and its numbers of rows."""
    groups, firsts = Groups.of(key_codes([rows.column("producer")], len(rows)))
    times, good = _usable(rows, "time")
    arrivals, arrived = _usable(rows, "arrival")
    good &= arrived
    packed = {
        NEWEST: groups.greatest(np.where(good, times, _NEVER)),
        SEEN: groups.greatest(np.where(good, arrivals, _NEVER)),
        _ROWS: groups.sizes(),
        _REJECTED: groups.where(~good).sizes(),
    }
    producer = take(rows.select(["producer"]), firsts).column(0)
    schema = pa.schema([(PRODUCER, spec.kind), *_instants(*packed)])
    return pa.table([producer, *packed.values()], schema=schema)


def step(spec: ProducersSpec, state: State, packed: pa.Table) -> ClockStep:
    """One micro-batch: merge what came, forget who is silent, move the clock."""
    before = state.tables["producers"]
    came = packed.filter(pc.not_equal(packed.column(NEWEST), _NEVER))
    came = came.select(before.column_names).cast(before.schema)
    both = concat([before, came, _awaited(spec, before, came)])
    groups, firsts = Groups.of(key_codes([both.column(PRODUCER)], len(both)))
    newest, seen = (groups.greatest(_ints(both, name)) for name in (NEWEST, SEEN))
    is_active = seen.max(initial=_NEVER) - seen < spec.idle
    known = firsts < len(before)

    rows = np.flatnonzero(is_active)
    producers = take(both.select([PRODUCER]), firsts[rows]).column(0)
    kept = pa.table([producers, newest[rows], seen[rows]], schema=before.schema)
    holds = _holds(newest[rows], state.watermark)
    clock = state.watermark
    if holds.any():
        least = int(newest[rows][holds].min())
        clock = None if least == _NEVER else least
    told = ClockMetrics(
        rows=int(_ints(packed, _ROWS).sum()),
        rejected=int(_ints(packed, _REJECTED).sum()),
        active=len(rows),
        behind=int((~holds).sum()),
        joined=int((is_active & ~known).sum()),
        forgotten=int((~is_active & known).sum()),
        clock=clock,
        **_extremes(kept, holds),
    )
    return ClockStep(State(clock, {"producers": kept}), told)


def check(spec: ProducersSpec, state: State) -> None:
    """Fail, printing the state, if an invariant does not hold."""
    table = state.tables["producers"]
    codes = key_codes([table.column(PRODUCER)], len(table))
    newest, seen = _ints(table, NEWEST), _ints(table, SEEN)
    rules = {
        "a producer is there once": len(np.unique(codes)) == len(codes),
        "none has been silent for too long": (seen.max(initial=_NEVER) - seen < spec.idle).all(),
        "times are in the calendar": ((newest >= MIN_INSTANT) | (newest == _NEVER)).all()
        and (seen >= MIN_INSTANT).all(),
        "there is a clock once there are producers, and all have been heard": (
            state.watermark is not None
        )
        == (len(table) > 0 and bool((newest != _NEVER).all())),
    }
    broken = [rule for rule, holds in rules.items() if not holds]
    assert not broken, f"{'; '.join(broken)}: clock {state.watermark}, {table.to_pylist()}"


def _awaited(spec: ProducersSpec, before: pa.Table, came: pa.Table) -> pa.Table:
    """What is known of the expected producers, at the start: that they are not silent yet."""
    if len(before) or not len(came):
        return before.slice(0, 0)
    since = int(_ints(came, SEEN).max())
    count = len(spec.expected)
    columns = [spec.expected, np.full(count, _NEVER), np.full(count, since)]
    return pa.table(columns, schema=before.schema)


def _holds(newest: Ints, clock: int | None) -> Mask:
    """Who of the active producers holds the clock: those that have not fallen behind it.

    The clock is never ahead of those that hold it, so whoever is behind came so.
    """
    return newest >= (_NEVER if clock is None else clock)


def _extremes(kept: pa.Table, holds: Mask) -> dict[str, Any]:
    newest = _ints(kept, NEWEST)
    if not len(newest):
        return {}
    greatest = int(newest.max())
    said: dict[str, Any] = {"newest": greatest, "led_by": _first(kept, newest == greatest)}
    if holds.any():
        said["held_by"] = _first(kept, newest == newest[holds].min())
    return said


def _first(kept: pa.Table, mask: Mask) -> str:
    """The first in the alphabet: of equals the same one, in whatever order they came."""
    producers = combine_chunks(kept.column(PRODUCER).filter(pa.array(mask)))
    try:
        names = producers.cast(pa.string())
    except pa.ArrowException:  # structs, lists, bytes that are no text
        names = pa.array([None if p is None else str(p) for p in producers.to_pylist()])
    return str(pc.min(names.fill_null("null")))


def _usable(rows: pa.Table, name: str) -> tuple[Ints, npt.NDArray[np.bool_]]:
    micros, valid = timestamp_micros(rows.column(name))
    return micros, valid & (micros >= MIN_INSTANT) & (micros <= MAX_INSTANT)


def _ints(table: pa.Table, name: str) -> Ints:
    return np.asarray(combine_chunks(table.column(name)))


def _instants(*names: str) -> list[pa.Field]:
    return [pa.field(name, pa.int64(), nullable=False) for name in names]
