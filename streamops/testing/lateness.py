"""What an operator counts each row of a script as: on time, a straggler, too late or rejected."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa

from streamops.kernel.columns import timestamp_micros
from streamops.kernel.core import SIDES, State
from streamops.spark.operator import Operator
from streamops.spark.step import Stored
from streamops.testing.batches import Delays, to_tables
from streamops.testing.replaying import Replay

__all__ = ["classify_rows"]

_METRICS = ("on_time", "stragglers", "too_late", "rejected")

Count = Callable[[Sequence[int]], list[int]]
"""From positions of rows to the metrics of a step with these rows."""


def classify_rows(
    operator: Operator, batches: Sequence[pa.Table], *, watermark: Delays = None
) -> Iterator[tuple[int | None, list[str]]]:
    """Run an operator with one input over micro-batches, and say what it counts each row as.

    Yields, for each micro-batch, the watermark that its rows are compared with, in microseconds, and the
    metric that counts each row. It is the watermark of the micro-batch before, as in Spark. A row in several windows is "on_time" if one of them is open, else rather one of "stragglers" than
    "too_late".
    """
    query = Replay(operator, batches[0].schema, watermark=watermark, shards=1)
    for batch in batches:
        tables = to_tables(batch, query._schemas)
        yield _classify(query, tables[0])
        query._step(tables)


def _classify(query: Replay, table: pa.Table) -> tuple[int | None, list[str]]:
    stage, spark_watermark = query._stages[0], query._next
    spec, step = stage.spec, stage.run_step
    (input_,) = spec.inputs
    state = State.empty(step.core.layout(spec))
    if 0 in stage.stored:
        segments = step.open_segments(stage.stores[0], 0)
        state = Stored(*stage.stored[0]).state(step.header, segments=segments)
    watermark = spark_watermark * 1_000 + spec.lag if spark_watermark > 0 else None
    rows = table.select(input_.schema.names)

    def count(chosen: Sequence[int]) -> list[int]:
        packed = step.core.pack(spec, rows.take(pa.array(chosen, pa.int64())), SIDES[0])
        metrics = step.core.step(spec, state, (packed,), watermark).metrics
        return [getattr(metrics, name) for name in _METRICS]

    times, _ = timestamp_micros(rows.column(input_.time))
    # Lateness rises with the event time, or with a bound that rises with it: halves are often alike.
    found = _by_halves(count, np.argsort(times, kind="stable").tolist())
    return state.watermark, [found[at] for at in range(len(rows))]


def _by_halves(count: Count, chosen: list[int]) -> dict[int, str]:
    """Count rows, and each half of them where they have several metrics: a row is counted by itself."""
    used = [name for name, number in zip(_METRICS, count(chosen), strict=True) if number]
    if len(used) < 2 or len(chosen) < 2:
        return dict.fromkeys(chosen, used[0] if used else "")
    middle = len(chosen) // 2
    return _by_halves(count, chosen[:middle]) | _by_halves(count, chosen[middle:])
