"""Running values of keys over scripted micro-batches: without Spark, and what Spark told of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streamops.kernel.codec import ipc_read
from streamops.kernel.columns import concat, conform
from streamops.kernel.contract import Counts
from streamops.spark.packing import NOTHING, packer
from streamops.spark.running import Keeping, RunningTransform, told_by
from streamops.testing.batches import canonical, to_table
from streamops.testing.results import BatchResult

if TYPE_CHECKING:
    from streamops.testing.batches import Batch

__all__ = ["replayed", "told"]


def replayed(
    transform: RunningTransform,
    script: Iterable[Batch],
    schema: pa.Schema,
    *,
    shards: int | None = None,
    restart: bool = False,
) -> list[BatchResult]:
    """What each micro-batch puts out, by the drive's own code. Nothing is ever open."""
    schema = canonical(schema)
    count = transform.options.shards if shards is None else shards
    spec = transform.settings.bind(schema, shards=count)
    step = Keeping(transform.operator, transform.core, spec, count)
    pack: Any = packer(partial(transform.core.pack, spec), spec, count, newest=False)
    stored: dict[int, Sequence[Any]] = {}
    results, names = [], (*told_by(transform.core), "state_rows", "state_bytes")
    for number, batch in enumerate(script):
        if restart:  # state is kept as bytes in any case; the rest is made anew
            spec = transform.settings.bind(schema, shards=count)
            step = Keeping(transform.operator, transform.core, spec, count)
        rows = to_table(batch, schema).select(spec.input.names)
        packs: dict[int, list[bytes]] = {}
        for row in pack(iter(rows.to_batches())):
            (shard,), (packed,), _ = (column.to_pylist() for column in row.columns)
            packs.setdefault(shard, []).extend([] if packed == NOTHING else [packed])
        emitted, totals = [spec.output.empty_table()], dict.fromkeys(names, 0)
        for shard, came in packs.items():
            kept, frame = step(stored.get(shard), came)
            if kept is not None:
                stored[shard] = kept
            for name, value in zip(names, frame["counts"][0], strict=True):
                totals[name] += value
            cells = [cell for cell in frame["emitted"] if cell is not None]
            emitted += [conform(ipc_read(cell), spec.output) for cell in cells]
        results.append(told(transform, number, concat(emitted), totals))
    return results


def told(
    transform: RunningTransform, number: int, table: pa.Table, metrics: Mapping[str, Any]
) -> BatchResult:
    """The result of a micro-batch with these counts; what is ignored is counted as rejected."""
    names = told_by(transform.core)
    said = {field: metrics.get(name) or 0 for name, field in names.items()}
    kind: type[Counts] = getattr(transform.core, "COUNTS", Counts)
    rows, size = (metrics.get(name) or 0 for name in ("state_rows", "state_bytes"))
    return BatchResult(number, table, pa.table({}), None, kind(**said), rows, size)
