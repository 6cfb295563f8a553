"""Sketches of HyperLogLog that are kept as bytes: see ``states``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from streamops.kernel.codec import ipc_write
from streamops.kernel.groups import Groups
from streamops.sketches.core.hyperloglog import HyperLogLog

FILE = Path(__file__).parent / "sketches.hll-v1.bin"
# Precision, and how many integers from 0 on: on both sides of the switch.
CASES = [(4, 0), (4, 7), (4, 8), (4, 10**5), (8, 24), (8, 25), (12, 3), (12, 384), (12, 10**4)]


def state(p: int, distinct: int) -> list[pa.Array]:
    """The sketch of the integers."""
    rows = pa.table({"v": pa.array(np.arange(distinct))})
    return HyperLogLog("v", p).update(Groups(np.zeros(distinct, np.int64), 1), rows)


def table() -> pa.Table:
    """All cases, and their payloads."""
    payloads = [HyperLogLog("v", p).payload(state(p, distinct)) for p, distinct in CASES]
    precisions, sizes = zip(*CASES, strict=True)
    names = ["p", "distinct", "payload"]
    return pa.table([pa.array(precisions), pa.array(sizes), pa.concat_arrays(payloads)], names)


def files() -> dict[Path, bytes]:
    """The stored sketches."""
    return {FILE: ipc_write(table(), compression="zstd")}
