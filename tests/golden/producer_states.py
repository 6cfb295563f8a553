"""A history of producers whose encoded state is stored, as in :mod:`tests.golden.states`."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from streamops.kernel.core import State
from streamops.time.core import producers
from streamops.time.core.producers import ProducersCore
from tests.golden.states import stored

SECOND = 1_000_000
NOW = 1_700_000_000 * SECOND
FILE = Path(__file__).parent / "time.producers-v1.bin"
SPEC = producers.ProducersSpec(
    producer="device",
    time="ts",
    delay=0,
    idle=60 * SECOND,
    arrival="received",
    expected=("awaited", "a"),
    producer_type=pa.string(),
)
# Micro-batches of (producer, second of the event, second of the arrival).
BATCHES = [
    [("a", 0, 1), ("ä", -7, 2), (None, 5, 2), ("gone", 9, 2)],
    [("a", 20, 40), (None, -3, 41), ("bad", None, 42)],
    [("a", 60, 61.9), ("ä", 61, 61.5), ("late", -600, 61)],
]


def state() -> State:
    """Return the state of the core after the history."""
    stored = State.empty(ProducersCore().layout(SPEC))
    for batch in BATCHES:
        columns = [
            pa.array([name for name, _, _ in batch], pa.string()),
            *(
                pa.array([None if s is None else NOW + int(s * SECOND) for s in item], pa.int64())
                for item in (
                    [time for _, time, _ in batch],
                    [arrival for _, _, arrival in batch],
                )
            ),
        ]
        rows = pa.table(columns, names=SPEC.input.names).cast(SPEC.input)
        stored = ProducersCore().step(SPEC, stored, [ProducersCore().pack(SPEC, rows)], None).state
    return stored


def files() -> dict[Path, bytes]:
    """The stored state."""
    return {FILE: stored(ProducersCore, SPEC, state(), shards=1)}
