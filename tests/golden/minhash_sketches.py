"""Sketches of MinHash that are kept as bytes: see ``states``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from streamops.kernel.codec import ipc_write
from streamops.kernel.groups import Groups
from streamops.sketches.core.minhash import MinHash

FILE = Path(__file__).parent / "sketches.minhash-v1.bin"
# Permutations, seed, scheme, and how many integers from 0 on.
CASES = [
    (4, 1, "affine32", 0),
    (4, 1, "affine32", 100),
    (3, 7, "affine64", 100),
    (2, 0, "legacy", 100),
]


def state(permutations: int, seed: int, scheme: str, distinct: int) -> list[pa.Array]:
    """The sketch of the integers."""
    rows = pa.table({"v": pa.array(np.arange(distinct))})
    groups = Groups(np.zeros(distinct, np.int64), 1)
    return MinHash("v", permutations, seed, scheme).update(groups, rows)


def table() -> pa.Table:
    """All cases, and their payloads."""
    payloads = [MinHash("v", *case[:3]).payload(state(*case)) for case in CASES]
    columns = [pa.array(column) for column in zip(*CASES, strict=True)]
    names = ["permutations", "seed", "scheme", "distinct", "payload"]
    return pa.table([*columns, pa.concat_arrays(payloads)], names)


def files() -> dict[Path, bytes]:
    """The stored sketches."""
    return {FILE: ipc_write(table(), compression="zstd")}
