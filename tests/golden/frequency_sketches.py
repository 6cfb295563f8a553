"""Heavy hitters and count-min sketches that are kept as bytes: see ``states``."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from streamops.kernel.codec import ipc_write
from streamops.kernel.groups import Groups
from streamops.sketches.core.countmin import CountMin
from streamops.sketches.core.frequent import Frequent

FOLDER = Path(__file__).parent
TYPES: dict[str, pa.DataType] = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "decimal": pa.decimal128(12, 2),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "interval": pa.duration("us"),
}

Case = tuple[str, Frequent | CountMin, pa.Array]


def column(name: str, distinct: int) -> pa.Array:
    """Item k, of so many, 1 + k % 5 times."""
    dtype = TYPES[name]
    numbers = pa.array(np.repeat(np.arange(distinct), 1 + np.arange(distinct) % 5) - 3)
    if name == "boolean":
        return pa.array(np.asarray(numbers) % 3 == 0)
    through = {"decimal": pa.int32(), "binary": pa.string(), "date": pa.int32()}
    return numbers.cast(through.get(name, pa.int64())).cast(dtype)


def heavy_hitters() -> list[Case]:
    """Of item type: none, some, and more than there are counters."""
    return [
        (f"{name} {distinct}", Frequent("v", TYPES[name], counters=9), column(name, distinct))
        for name in TYPES
        for distinct in ([4] if name == "boolean" else [0, 4, 30])
    ]


def frequency() -> list[Case]:
    """Of some types: none, some, and more than find room beside a table."""
    return [
        (f"{name} {distinct}", CountMin("v", TYPES[name], width=9, depth=3), column(name, distinct))
        for name in ("int", "bigint", "string", "decimal")
        for distinct in (0, 13, 14, 300)
    ]


SKETCHES = {"heavy_hitters": heavy_hitters, "frequency": frequency}


def file_of(name: str) -> Path:
    return FOLDER / f"sketches.{name}-v1.bin"


def state(sketch: Frequent | CountMin, values: pa.Array) -> list[pa.Array]:
    """The sketch of the values."""
    return sketch.update(Groups(np.zeros(len(values), np.int64), 1), pa.table({"v": values}))


def table(name: str) -> pa.Table:
    """All cases of a sketch, and their payloads."""
    cases = SKETCHES[name]()
    payloads = [sketch.payload(state(sketch, values)) for _, sketch, values in cases]
    return pa.table([[name for name, *_ in cases], pa.concat_arrays(payloads)], ["case", "payload"])


def files() -> dict[Path, bytes]:
    """The stored sketches."""
    return {file_of(name): ipc_write(table(name), compression="zstd") for name in SKETCHES}
