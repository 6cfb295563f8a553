"""States with digests of nested values that versions before `digests` wrote: by Spark's ``xxhash64``.

Nothing writes them again. They are from the commit before the one that added this file.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from streamops import changes, sketches
from streamops.changes.core.history import HistoryCore
from streamops.kernel.codec import ipc_read, ipc_write
from streamops.sketches.core.seen import SeenCore
from streamops.spark.packing import pack_rows
from streamops.spark.step import ShardStep, Stored, to_frame, to_text
from streamops.testing.replaying import MemoryStore

FOLDER = Path(__file__).parent
SEGMENTS = (1,)
_IDS = pa.list_(pa.int64())
ROWS = pa.schema([("id", _IDS), ("of", _IDS), ("n", pa.int64()), ("v", pa.int64())])
FIRST = [([1], [2, 3], 1, 0), ([4], [5], 2, 0), ([7, 7], [], 3, 0)]
"""What the states have seen. With ``xxhash64`` each of these identities is one of `ALIKE`."""
ALIKE = [([1, 2], [3], 4, 0), ([4, 5], [], 5, 0), ([7], [7], 6, 0)]


def table(rows: list[tuple[Any, ...]], schema: pa.Schema = ROWS) -> pa.Table:
    columns = zip(*rows, strict=True)
    arrays = [pa.array(c, of.type) for c, of in zip(columns, schema, strict=True)]
    return pa.table(arrays, schema=schema)


def seen_step(limit: int = 1_000) -> ShardStep[Any]:
    """The step of a filter of 32 words, which is stored apart if the limit is lower."""
    operator = sketches.seen(["id", "of"], capacity=100, again="flag")
    spec = operator.parameters.resolve((ROWS,), carried=(None,), shards=1)
    return ShardStep("sketches.seen", SeenCore(), spec, 1, segment_rows=limit)


def history_step() -> ShardStep[Any]:
    operator = changes.apply(
        ["id", "of"], sequence="n", horizon=100, history="intervals", surrogate="vid"
    )
    spec = operator.parameters.resolve((ROWS,), carried=(None,), shards=1)
    return ShardStep("changes.apply", HistoryCore(), spec, 1)


def go(
    step: ShardStep[Any], stored: Any, rows: pa.Table, store: MemoryStore | None = None
) -> tuple[Any, list[dict[str, Any]]]:
    """The stored value after a micro-batch, and the rows of the output."""
    pack = ipc_write(pack_rows(step.core, step.spec, "left", rows))
    after, frame = step(stored, [pack], store=store)
    cells = [ipc_read(cell) for cell in frame["emitted"] if cell is not None]
    return after or stored, [row for cell in cells for row in cell.to_pylist()]


def path_of(name: str) -> Path:
    layout, _, part = name.partition("-")
    return FOLDER / f"{layout}-v1-nested{part and f'-{part}'}.bin"


def read(name: str) -> Any:
    """The stored value that was written once."""
    return Stored(0, None, None, 1, to_text(path_of(name).read_bytes())).row


def segments() -> MemoryStore:
    """The segments of the filter."""
    found = {n: path_of(f"sketches.seen-{n}").read_bytes() for n in SEGMENTS}
    return MemoryStore({n: to_text(frame) for n, frame in found.items()})


if __name__ == "__main__":
    store = MemoryStore()
    for name, step, files in (
        ("sketches.seen", seen_step(), None),
        ("sketches.seen-apart", seen_step(3), store),
        ("changes.intervals", history_step(), None),
    ):
        stored = None
        for row in FIRST:
            stored, _ = go(step, stored, table([row]), files)
        path_of(name).write_bytes(Stored(*stored).frame)
        print(name, go(step, stored, table(ALIKE), files and MemoryStore(dict(files)))[1])
    for number, blob in store.items():
        path_of(f"sketches.seen-{number}").write_bytes(to_frame(blob))
    print(sorted(store))
