"""False positives of Bloom filters, measured beside what is promised: at fixed seeds.

``python -m tests.sketches.bloom_accuracy`` prints the tables of ``docs/sketches.md``.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from streamops.kernel.core import State
from streamops.kernel.groups import Groups
from streamops.sketches.core import seen
from streamops.sketches.core.bloom import (
    NEVER,
    Bloom,
    Shape,
    decode_generations,
    newest_cells,
    positions,
)
from streamops.sketches.core.items import items
from streamops.sketches.core.seen import SeenCore
from tests.sketches.seen_specs import seen_spec

__all__ = ["RATES", "measured", "suppressed"]

RATES = (1e-2, 1e-3, 1e-4)
SIZES = (10**4, 10**5, 10**6)
_AT_ONCE = 1_000_000


def measured(capacity: int, rate: float, *, requested: int, parts: int = 1, seed: int = 1) -> float:
    """Of values that are not in it, the share that a filter at its capacity says yes to.

    With parts, it is merged from as many that overlap. Nothing that is in it is ever denied.
    """
    rng = np.random.default_rng((seed, capacity, round(1 / rate)))
    sketch = Bloom.of("v", "bigint", capacity, rate)
    there = np.unique(rng.integers(0, 1 << 62, capacity + capacity // 100))[:capacity]
    states = []
    for part in range(parts):
        mine = there[max(part * capacity // parts - 10, 0) : (part + 1) * capacity // parts]
        one = Groups(np.zeros(len(mine), np.int64), 1)
        states += sketch.update(one, pa.table({"v": mine}))
    merged = sketch.merge(Groups(np.zeros(parts, np.int64), 1), [pa.concat_arrays(states)])
    found = done = 0
    while done < requested:
        count = min(requested - done, _AT_ONCE)
        others = rng.integers(1 << 62, 2**63 - 1, count)  # none of those that are there
        found += int(sketch.contains(merged, items(pa.array(others))[0]).sum())
        done += count
    assert sketch.contains(merged, items(pa.array(there))[0]).all()
    return found / requested


def suppressed(
    capacity: int, rate: float, *, shards: int, generations: int, requested: int, seed: int = 1
) -> float:
    """Of new identities, the share that one shard takes for duplicates when it is at its capacity.

    All generations are full: those of the horizon, and the one that is under way.
    """
    rng = np.random.default_rng((seed, capacity, round(1 / rate), shards))
    schema = pa.schema([("v", pa.int64()), ("ts", pa.timestamp("us", "UTC"))])
    spec = seen_spec(
        schema,
        by=("v",),
        horizon=1_000 * generations,
        generations=generations,
        capacity=capacity,
        false_positive_rate=rate,
        shards=shards,
    )
    mine = round(capacity / generations / shards)
    state = State.empty(SeenCore().layout(spec))
    for cell in range(generations + 1):
        values = rng.integers(0, 1 << 62, mine)
        times = pa.array(np.full(mine, 1_000 * cell)).cast(schema[1].type)
        rows = pa.table([pa.array(values), times], schema=schema)
        state, _ = seen.annotate(spec, state, [rows])
    stored_items = decode_generations(state.tables["generations"])
    assert len(stored_items) == generations + 1
    found = done = 0
    while done < requested:
        count = min(requested - done, _AT_ONCE // 4)
        others = rng.integers(1 << 62, 2**63 - 1, count)
        cells = newest_cells(stored_items, positions(spec.shape, others))
        found += int((cells != NEVER).sum())
        done += count
    return found / requested


def main() -> None:
    """The tables."""
    print("| values | promised | bytes | measured | merged from 7 parts |")
    print("|---|---|---|---|---|")
    for capacity in SIZES:
        for rate in RATES:
            requested = round(2_000 / rate)
            one, seven = (
                measured(capacity, rate, requested=requested, parts=parts) for parts in (1, 7)
            )
            size = Shape.of(capacity, rate).bits // 8
            print(f"| {capacity:,} | {rate:.2%} | {size:,} | {one:.4%} | {seven:.4%} |")
    print()
    print("| capacity | promised | in 1 shard | in 8 shards |")
    print("|---|---|---|---|")
    for capacity in SIZES:
        for rate in RATES:
            item = (
                suppressed(capacity, rate, shards=n, generations=4, requested=round(2_000 / rate))
                for n in (1, 8)
            )
            print(f"| {capacity:,} | {rate:.2%} | {' | '.join(f'{x:.4%}' for x in item)} |")


if __name__ == "__main__":
    main()
