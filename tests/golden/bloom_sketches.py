"""Bloom filters that are kept as bytes, and a history of duplicates whose state is: see ``states``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from streamops.kernel.codec import ipc_write
from streamops.kernel.core import State
from streamops.kernel.groups import Groups
from streamops.sketches.core import seen
from streamops.sketches.core.bloom import Bloom
from streamops.sketches.core.seen import SeenCore
from streamops.spark.packing import pack_rows
from streamops.spark.step import ShardStep, Stored, to_frame
from streamops.testing.replaying import MemoryStore
from tests.golden.states import FOLDER, NOW, SECOND, SHARDS, stored
from tests.sketches.seen_specs import seen_spec

FILE = FOLDER / "sketches.bloom-v1.bin"
# Capacity, rate, and how many integers from 0 on: on both sides of the switch.
CASES = [(100, 0.01, 0), (100, 0.01, 15), (100, 0.01, 16), (100, 0.01, 300), (5_000, 1e-6, 9_000)]

SEEN_FILE = FOLDER / "sketches.seen-v1.bin"
SCHEMA = pa.schema(
    [("order", pa.int64()), ("shop", pa.string()), ("ts", pa.timestamp("us", tz="UTC"))]
)
SPEC = seen_spec(
    SCHEMA,
    by=("order", "shop"),
    horizon=400 * SECOND,
    capacity=120,
    false_positive_rate=1e-6,
    when_full="flag",
    shards=SHARDS,
)
# Orders from .. to .., at a second: more than one generation has room for, some of them again.
BATCHES = [(0, 30, 0), (20, 40, 90), (35, 50, 210), (0, 5, 399), (50, 52, 450)]


def state_of(capacity: int, rate: float, distinct: int) -> list[pa.Array]:
    """The filter of the integers."""
    rows = pa.table({"v": pa.array(np.arange(distinct))})
    sketch = Bloom.of("v", "bigint", capacity, rate)
    return sketch.update(Groups(np.zeros(distinct, np.int64), 1), rows)


def table() -> pa.Table:
    """All cases, and their payloads."""
    payloads = [state_of(*case)[0] for case in CASES]
    capacities, rates, sizes = zip(*CASES, strict=True)
    columns = [pa.array(capacities), pa.array(rates), pa.array(sizes), pa.concat_arrays(payloads)]
    return pa.table(columns, ["capacity", "rate", "distinct", "payload"])


def orders(first: int, last: int, second: int) -> pa.Table:
    """Rows of these orders."""
    count = last - first
    times = np.full(count, NOW + second * SECOND)
    shops = pa.array([f"shop {number % 3}" for number in range(first, last)])
    columns = [pa.array(np.arange(first, last)), shops, pa.array(times).cast(SCHEMA[2].type)]
    return pa.table(columns, schema=SCHEMA)


def state() -> State:
    """The core's state after the history."""
    after = State.empty(SeenCore().layout(SPEC))
    for batch in BATCHES:
        after, _ = seen.annotate(SPEC, after, [orders(*batch)])
    return after


SEGMENTED = "sketches.seen-v1-segments"
"""Name of the files of a state with filters in segments."""
MORE = (52, 54, 451)
"""The batch after which it was written."""


def pack(step: ShardStep, rows: pa.Table) -> bytes:
    """Rows as a worker packs them."""
    return ipc_write(pack_rows(step.core, step.spec, "left", rows))


def step_with(limit: int) -> ShardStep:
    """The step of the history, with filters of more words than the limit in segments."""
    return ShardStep("sketches.seen", SeenCore(), SPEC, SHARDS, segment_rows=limit)


def segmented() -> tuple[Stored, MemoryStore]:
    """The stored state and its segments after the history."""
    step, files, stored = step_with(3), MemoryStore(), None
    for batch in (*BATCHES, MORE):
        after, _ = step(stored, [pack(step, orders(*batch))], store=files)
        stored = stored if after is None else after
    assert stored is not None
    return Stored(*stored), files


def path_of(number: int | None) -> Path:
    """The file of a segment, or of the value."""
    return FOLDER / f"{SEGMENTED}{'' if number is None else f'-{number}'}.bin"


def files() -> dict[Path, bytes]:
    """The stored filters and states."""
    value, segments = segmented()
    frames = {path_of(number): to_frame(blob) for number, blob in segments.items()}
    payloads = ipc_write(table(), compression="zstd")
    states = {SEEN_FILE: stored(SeenCore, SPEC, state()), path_of(None): value.frame}
    return {FILE: payloads} | states | frames
