"""Sketches of quantiles whose bytes are kept for as long as anybody may have stored one."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pyarrow as pa

from streamops.kernel.groups import Groups
from streamops.sketches.core.kll import QuantileSketch

FILE = Path(__file__).parent / "sketches.kll-v1.bin"
SKETCH = QuantileSketch("ms", 20, (0.0, 0.5, 0.99, 1.0))
NAN, INFINITY = float("nan"), float("inf")

# Without a generator of random numbers: theirs may change.
VALUES: dict[str, list[float]] = {
    "empty": [],
    "single": [0.1],
    "special": [-INFINITY, -0.0, 5e-324, 1.5, INFINITY, NAN],
    "full": [float(i * 7 % 20) for i in range(20)],
    "one more": [float(i * 8 % 21) for i in range(21)],
    "many": [i * 7919 % 10_007 / 8 for i in range(10_007)],
}


def payloads() -> list[bytes]:
    """As they are made now: each sketch in one piece, and the last one merged of ten."""
    whole = [_states(values) for values in VALUES.values()]
    parts = [_states(VALUES["many"][start::10]) for start in range(10)]
    columns = [pa.concat_arrays(item) for item in zip(*parts, strict=True)]
    merged = SKETCH.merge(Groups(np.zeros(10, np.int64), 1), columns)
    return [SKETCH.payload(states)[0].as_py() for states in (*whole, merged)]


def _states(values: list[float]) -> list[pa.Array]:
    rows = pa.table({"ms": pa.array(values, pa.float64())})
    return SKETCH.update(Groups(np.zeros(len(values), np.int64), 1), rows)


def stored() -> list[bytes]:
    """As they were written once: each behind its length, uint32."""
    blob, found = FILE.read_bytes(), []
    while blob:
        (size,) = struct.unpack_from("<I", blob)
        found.append(blob[4 : 4 + size])
        blob = blob[4 + size :]
    return found


def files() -> dict[Path, bytes]:
    """The stored sketches."""
    return {FILE: b"".join(struct.pack("<I", len(item)) + item for item in payloads())}
