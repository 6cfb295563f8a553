"""Rows that arrive: on time, late or rejected; and rows of the side output."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamops.kernel.columns import combine_chunks, concat, take, timestamp_micros
from streamops.kernel.core import Metrics
from streamops.kernel.time import MAX_INSTANT, MIN_INSTANT
from streamops.process.core.calls import Failure
from streamops.process.core.spec import INSTANT, PerKeySpec


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
    empty = spec.output.empty_table()
    reason = np.full(len(packed), "", "U32")
    for field in packed.schema:
        if not pa.types.is_timestamp(field.type):
            continue
        times, present = timestamp_micros(packed.column(field.name))
        is_time = field.name == spec.time
        # Python has no such instants. Of several reasons, that of the event time counts.
        outside = (times < MIN_INSTANT) | (times > MAX_INSTANT)
        unset = np.ones(len(packed), np.bool_) if is_time else reason == ""
        name = "time_out_of_range" if is_time else "timestamp_out_of_range"
        reason[outside & unset] = name
        if is_time:
            reason[~present] = "null_time"
    rejected = np.flatnonzero(reason != "")
    side = empty
    if len(rejected):
        rows = take(packed, rejected)
        side = build_side_output(spec, rows, reason[rejected], None)
        usable = take(packed, np.flatnonzero(reason == ""))
    else:
        usable = packed
    if spec.time is None:
        return usable, side, ProcessMetrics(rows=len(packed), rejected=len(rejected))
    late = 0
    if previous is not None:
        times, _ = timestamp_micros(usable.column(spec.time))
        is_late = times <= previous
        late = int(is_late.sum())
        if late:
            rows = take(usable, np.flatnonzero(is_late))
            if spec.stragglers == "route":
                reasons = np.full(late, "too_late")
                side = concat([side, build_side_output(spec, rows, reasons, previous)])
            usable = take(usable, np.flatnonzero(~is_late))
    metrics = ProcessMetrics(
        rows=len(packed), rejected=len(rejected), on_time=len(usable), too_late=late
    )
    return usable, side, metrics


def build_side_output(
    spec: PerKeySpec,
    rows: pa.Table,
    reason: npt.NDArray[np.str_],
    watermark: int | None,
    times: pa.Array | None = None,
) -> pa.Table:
    """Rows of the side output, in the output schema. Without a side output, no row.

    ``times`` are those of timers, whose rows are null.
    """
    field, count = spec.side_output, len(rows)
    if field is None:
        return spec.output.empty_table()
    if times is None:
        columns = [combine_chunks(rows.column(f.name)) for f in spec.input]
        row = pa.StructArray.from_arrays(columns, fields=list(spec.input))
    else:
        row = pa.nulls(count, field.type.field("row").type)
    values: dict[str, Any] = {"reason": pa.array(reason, pa.string()), "row": row}
    if watermark is not None and spec.time is not None:
        micros, _ = timestamp_micros(rows.column(spec.time))
        values["lateness"] = pa.array(watermark - micros).cast(pa.duration("us"))
        values["watermark"] = pa.repeat(pa.scalar(watermark).cast(INSTANT), count)
    tag = pa.StructArray.from_arrays(
        [values.get(part.name, pa.nulls(count, part.type)) for part in field.type],
        fields=list(field.type),
    )
    filled: dict[str, Any] = {name: rows.column(name) for name in spec.by} | {field.name: tag}
    if spec.time is not None:
        filled[spec.time] = rows.column(spec.time) if times is None else times
    return pa.table(
        [filled.get(f.name, pa.nulls(count, f.type)) for f in spec.output], schema=spec.output
    )


def build_failures(
    spec: PerKeySpec, failures: Sequence[Failure], keys: pa.Table, rows: pa.Table
) -> pa.Table:
    """Rows and timers for which a function raised an exception, as side output."""
    of_rows = [failure for failure in failures if failure.row >= 0]
    of_timers = [failure for failure in failures if failure.row < 0]
    late = [spec.output.empty_table()]
    if of_rows:
        failed = take(rows, np.array([failure.row for failure in of_rows]))
        late.append(build_side_output(spec, failed, _reasons(of_rows), None))
    if of_timers:
        failed = take(keys, np.array([failure.key for failure in of_timers]))
        if not spec.by:
            failed = pa.table({"": pa.nulls(len(of_timers))})
        times = pa.array([failure.time for failure in of_timers], pa.int64()).cast(INSTANT)
        late.append(build_side_output(spec, failed, _reasons(of_timers), None, times))
    return concat(late)


def _reasons(failures: Sequence[Failure]) -> npt.NDArray[np.str_]:
    return np.array([failure.reason for failure in failures], dtype=np.str_)
