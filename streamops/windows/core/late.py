"""Rows delivered instead of counted in a result: late ones, with the windows they missed, and
those that cannot be placed in any.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamops.kernel.columns import combine_chunks, take, timestamp_micros
from streamops.kernel.time import Instants
from streamops.windows.core.entries import placed
from streamops.windows.core.spec import INSTANT, FixedSpec, WindowSpec

__all__ = ["deliver", "route"]


def route(spec: FixedSpec, rows: pa.Table, judged_by: int | None) -> tuple[pa.Table, pa.Table, int]:
    """Take out of the rows what must be delivered.

    Returns
    -------
    late : Table
        A row per window missed, in the output schema; one, without a window, for a row whose
        event time is null or cannot be placed.
    rows : Table
        The rows that can be placed, the late ones among them.
    rejected : int
        How many could not.
    """
    times, valid = placed(spec, rows)
    bad = np.flatnonzero(~valid)
    pieces = []
    if len(bad):
        present = timestamp_micros(rows.column(spec.time))[1][bad]
        reason = np.where(present, "time_out_of_range", "null_time")
        pieces.append(deliver(spec, take(rows, bad), None, reason, None))
        good = np.flatnonzero(valid)
        rows, times = take(rows, good), times[good]
    if judged_by is not None:
        missed = judged_by - spec.retention
        gone = spec.grid.last_closed(judged_by - spec.allowed_lateness)
        index, numbers = spec.grid.explode(times, _BEGINNING, spec.grid.last_closed(missed))
        if len(index):
            window = spec.grid.start_of(numbers), spec.grid.end_of(numbers)
            reason = np.where(numbers <= gone, "too_late", "straggler")
            pieces.append(deliver(spec, take(rows, index), window, reason, judged_by))
    late = pa.concat_tables(pieces) if pieces else spec.output.empty_table()
    return late, rows, len(bad)


_BEGINNING = -(1 << 62)


def deliver(
    spec: WindowSpec,
    rows: pa.Table,
    missed: tuple[Instants, ...] | None,
    reason: npt.NDArray[np.str_],
    judged_by: int | None,
) -> pa.Table:
    """The rows in the output schema, with what is said of each.

    Parameters
    ----------
    missed : tuple of arrays, optional
        What each row missed, by the columns of ``spec.place``, such as start and end of a window;
        None for rows that lie in none.
    reason : array of str
    judged_by : int, optional
        The watermark the rows were judged by.
    """
    count = len(rows)
    if judged_by is None:
        lateness, watermark = pa.nulls(count, pa.duration("us")), pa.nulls(count, INSTANT)
    else:
        times, _ = timestamp_micros(rows.column(spec.time))
        lateness = pa.array(judged_by - times).cast(pa.duration("us"))
        watermark = pa.repeat(pa.scalar(judged_by).cast(INSTANT), count)
    row = pa.StructArray.from_arrays(
        [combine_chunks(c) for c in rows.columns], fields=list(spec.input)
    )
    late = pa.StructArray.from_arrays(
        [pa.array(reason, pa.string()), lateness, watermark, row], fields=list(spec.late)
    )
    said = {name: rows.column(name) for name in spec.by} | {"late": late}
    if missed is not None:
        places = (pa.array(each).cast(INSTANT) for each in missed)
        said |= zip(spec.place, places, strict=True)
    return pa.table(
        [said.get(f.name, pa.nulls(count, f.type)) for f in spec.output], schema=spec.output
    )
