"""Rows that arrive: on time, late or rejected; and rows of the side output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace

import numpy as np
import pyarrow as pa

from streamops.kernel.columns import concat, take, timestamp_micros
from streamops.kernel.core import Metrics
from streamops.kernel.lateness import INSTANT, Arrivals, Lateness, build_late
from streamops.kernel.time import MAX_INSTANT, MIN_INSTANT
from streamops.process.core.calls import Failure
from streamops.process.core.spec import PerKeySpec


@dataclass(frozen=True, slots=True)
class ProcessMetrics(Metrics):
    """Metrics of functions per key.

    Parameters
    ----------
    failed : int
        Rows and timers for which a function raised an exception, with ``errors="route"``.
    ignored : int
        Outputs that count and have no row, such as commands that were repeated.
    """

    failed: int = 0
    ignored: int = 0


def accept(
    spec: PerKeySpec, packed: pa.Table, previous: int | None
) -> tuple[pa.Table, pa.Table, ProcessMetrics]:
    """The rows to process, the side output, and metrics."""
    invalid = []
    for field in packed.schema:
        if pa.types.is_timestamp(field.type) and field.name != spec.time:
            times, _ = timestamp_micros(packed.column(field.name))
            outside = (times < MIN_INSTANT) | (times > MAX_INSTANT)
            invalid.append(("timestamp_out_of_range", outside))  # Python has no such instants
    has_time = spec.time is not None
    column = packed.column(spec.time) if has_time else pa.array(np.zeros(len(packed), np.int64))
    lateness = Lateness.of(column, previous, invalid=invalid)
    filled = [name for name in (*spec.by, spec.time) if name is not None]
    arrived = Arrivals.classify(spec.output, packed, lateness, filled=filled)
    on_time = arrived.lateness.on_time
    arrived = arrived.accept(on_time, routed=~on_time & (spec.stragglers == "route"))
    metrics = ProcessMetrics(**asdict(arrived.metrics))
    return arrived.rows, arrived.late, metrics if has_time else replace(metrics, on_time=0)


def build_failures(
    spec: PerKeySpec, failures: Sequence[Failure], keys: pa.Table, rows: pa.Table
) -> pa.Table:
    """Rows and timers for which a function raised an exception, as side output."""
    of_rows = [failure for failure in failures if failure.row >= 0]
    of_timers = [failure for failure in failures if failure.row < 0]
    late = [spec.output.empty_table()]
    if of_rows:
        failed = take(rows, np.array([failure.row for failure in of_rows]))
        names = [name for name in (*spec.by, spec.time) if name is not None]
        filled = {name: failed.column(name) for name in names}
        late.append(build_late(spec.output, failed, _reasons(of_rows), filled=filled))
    if of_timers:
        index = pa.array([failure.key for failure in of_timers])
        filled = {name: keys.column(name).take(index) for name in spec.by}
        times = pa.array([failure.time for failure in of_timers], pa.int64()).cast(INSTANT)
        filled |= {str(spec.time): times}
        late.append(build_late(spec.output, None, _reasons(of_timers), filled=filled))
    return concat(late)


def _reasons(failures: Sequence[Failure]) -> dict[str, pa.Array]:
    return {"reason": pa.array([failure.reason for failure in failures], pa.string())}
