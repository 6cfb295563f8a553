"""A history of tracked clocks whose encoded state is stored, as in :mod:`tests.golden.states`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from streamops.kernel.core import State
from streamops.time.core.track_clock import TrackClockCore, TrackClockSpec
from tests.golden.states import FOLDER, NOW, SECOND, stored

INSTANT = pa.timestamp("us", tz="UTC")
SCHEMA = pa.schema(
    [("device", pa.string()), ("line", pa.float64()), ("sent", INSTANT), ("received", INSTANT)]
)
FILE = FOLDER / "time.track_clock-v1.bin"
SPEC = TrackClockSpec(
    time="ts",
    tolerance=0,
    longest_wait=None,
    otherwise="received",
    by=("device", "line"),
    sent="sent",
    received="received",
    horizon=3_600 * SECOND,
    step=60 * SECOND,
    largest_offset=86_400 * SECOND,
    input=SCHEMA,
)

Rows = list[tuple[Any, ...]]
"""(second of receipt, offset in seconds, device, line)."""

NAN = float("nan")
BATCHES: list[Rows] = [
    [(0, 3, "a", 0.5), (1, 2, "a", 0.5), (7, -40, None, NAN), (9, 1, "b", None)],
    [(300, 4, "a", -0.0), (310, 7, "a", 0.5), (310, 9, "a", 0.5), (900, -39, None, NAN)],
    [(1000, 200, "b", None), (1001, 201, "b", None), (1400, 5, "a", 0.5), (1500, 1, "ä", 1.5)],
]
MORE: list[Rows] = [
    [(1500, 4, "a", 0.5), (1600, 6, "a", 0.5), (1600, 205, "b", None), (1700, -38, None, NAN)],
    [(5600, 9, "a", 0.5), (5601, 8, "ä", 1.5), (9999, 7, "a", 0.5)],
]


def table(rows: Rows) -> pa.Table:
    """Return the rows as a table."""
    received = [NOW + second * SECOND for second, *_ in rows]
    sent = [r - row[1] * SECOND for r, row in zip(received, rows, strict=True)]
    columns = [pa.array([row[at] for row in rows], SCHEMA[at - 2].type) for at in (2, 3)]
    columns += [pa.array(item, pa.int64()).cast(INSTANT) for item in (sent, received)]
    return pa.table(columns, schema=SCHEMA)


def state() -> State:
    """Return the state of the core after the history."""
    after = State.empty(TrackClockCore().layout(SPEC))
    for rows in BATCHES:
        after = (
            TrackClockCore()
            .step(SPEC, after, [TrackClockCore().pack(SPEC, table(rows))], None)
            .state
        )
    return after


def files() -> dict[Path, bytes]:
    """The stored state."""
    return {FILE: stored(TrackClockCore, SPEC, state())}
