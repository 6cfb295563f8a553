"""Histories of events for the tests of rewritten checkpoints."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa

from streamops.testing import at

EVENT = pa.schema([("k", pa.string()), ("ts", pa.timestamp("us", tz="UTC")), ("v", pa.int64())])
KEYS = [f"key-{number}" for number in range(23)]


def events(batch: int, *, seed: int = 7, rows: int = 60) -> list[dict[str, Any]]:
    """A micro-batch of random events of many keys, some of them late, and some without a key."""
    rng = random.Random(seed * 1_000 + batch)
    return [
        {
            "k": rng.choice([*KEYS, None]),
            "ts": at(batch * 15 + rng.randrange(20) - rng.randrange(12)),
            "v": rng.randrange(100),
        }
        for _ in range(rows)
    ]
