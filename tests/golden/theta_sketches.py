"""Theta sketches that are kept as bytes: see ``states``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from streamops.kernel.codec import ipc_write
from streamops.kernel.groups import Groups
from streamops.sketches.core.samples import Samples, beside
from streamops.sketches.core.sketch import Framed
from streamops.sketches.core.theta import Theta

FILE = Path(__file__).parent / "sketches.theta-v1.bin"
# k, and of how many integers from 0 on; less those of another sketch, if there is one.
CASES = [
    *((k, distinct, 0) for k in (16, 64) for distinct in (0, 1, 2, 16, 17, 500)),
    (16, 500, 400),
    (16, 500, 500),
]


def state(k: int, distinct: int, less: int) -> list[pa.Array]:
    """The sketch of the integers."""
    theta = Theta("v", k)
    found, other = (
        theta.update(Groups(np.zeros(size, np.int64), 1), pa.table({"v": np.arange(size)}))
        for size in (distinct, less)
    )
    if not less:
        return found
    return beside(Samples.of(*found), Samples.of(*other)).where([0], [1]).columns()


def table() -> pa.Table:
    """All cases, and their bytes, with the frame."""
    stored = [Framed(Theta("v", case[0])).estimate(state(*case)) for case in CASES]
    columns = [pa.array(item) for item in zip(*CASES, strict=True)]
    return pa.table([*columns, pa.concat_arrays(stored)], ["k", "distinct", "less", "sketch"])


def files() -> dict[Path, bytes]:
    """The stored sketches."""
    return {FILE: ipc_write(table(), compression="zstd")}
