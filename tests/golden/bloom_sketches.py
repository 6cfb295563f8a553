"""Bloom filters that are kept as bytes, and a history of duplicates whose state is: see ``states``.

``python -m tests.golden.bloom_sketches`` writes the bytes if there are none yet.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from streamops.kernel.codec import encode, ipc_write
from streamops.kernel.core import State
from streamops.kernel.groups import Groups
from streamops.sketches.core import seen
from streamops.sketches.core.bloom import Bloom
from tests.golden.states import FOLDER, NOW, SECOND, SHARDS
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
    identity=("order", "shop"),
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
    after = State.empty(seen.layout(SPEC))
    for batch in BATCHES:
        after, _ = seen.annotate(SPEC, after, [orders(*batch)])
    return after


def main() -> None:
    """Write what is not there yet."""
    if not FILE.exists():
        FILE.write_bytes(ipc_write(table(), compression="lz4"))
    if not SEEN_FILE.exists():
        SEEN_FILE.write_bytes(encode(seen.STATE, SPEC.identity, SHARDS, state().tables))
    print(f"{FILE.name}: {FILE.stat().st_size}, {SEEN_FILE.name}: {SEEN_FILE.stat().st_size} bytes")


if __name__ == "__main__":
    main()
