"""Windows as rows of the output."""

from __future__ import annotations

from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamops.changelog.change_types import INSERT
from streamops.kernel.columns import combine_chunks, timestamp_micros
from streamops.kernel.groups import Ids
from streamops.kernel.time import Instants
from streamops.windows.core.spec import INSTANT, WindowSpec

__all__ = ["EARLY", "LATE", "ON_TIME", "Results", "publish_windows", "result_rows"]

EARLY, ON_TIME, LATE = range(3)
"""When a result is publish_windows, as state has it."""

_TIMINGS = pa.array(["early", "on_time", "late"])


class Results(Protocol):
    """Results to publish: keys, windows and aggregates as columns of one length."""

    @property
    def keys(self) -> list[pa.Array]:
        """Key columns."""

    @property
    def start(self) -> Instants:
        """Start of each window."""

    @property
    def end(self) -> Instants:
        """End of each window."""

    @property
    def values(self) -> list[pa.Array]:
        """The aggregates."""


def publish_windows(
    spec: WindowSpec,
    results: Results,
    revision: npt.NDArray[np.int32] | None = None,
    change: str = INSERT,
    timing: Ids | None = None,
) -> pa.Table:
    """Result rows of these windows.

    Parameters
    ----------
    revision : array of int32, optional
        One per window; 0, the on-time value, if not given.
    change : str
        The change type of all of them.
    timing : array of int64, optional
        Whether each is early, on time or late, where the output says so; on time if not given.
    """
    window = [pa.array(edge).cast(INSTANT) for edge in (results.start, results.end)]
    return result_rows(spec, [*results.keys, *window, *results.values], revision, change, timing)


def result_rows(
    spec: WindowSpec,
    columns: list[pa.Array],
    revision: npt.NDArray[np.int32] | None = None,
    change: str = INSERT,
    timing: Ids | None = None,
) -> pa.Table:
    """The same of columns up to the last aggregate."""
    columns, count = list(columns), len(columns[0])
    if spec.revises:
        columns.append(pa.array(np.zeros(count, np.int32) if revision is None else revision))
    if spec.is_early:
        when = np.full(count, ON_TIME) if timing is None else timing
        columns.append(_TIMINGS.take(pa.array(when)))
    if spec.retracts:
        columns.append(pa.repeat(change, count))
    if spec.routes:
        columns.append(pa.nulls(count, spec.late))
    return pa.table(columns, schema=spec.output)


def deliver(
    spec: WindowSpec,
    rows: pa.Table,
    missed: tuple[Instants, ...] | None,
    reason: npt.NDArray[np.str_],
    previous_watermark: int | None,
) -> pa.Table:
    """The rows in the output schema, with the reason, lateness and watermark of each.

    Parameters
    ----------
    missed : tuple of arrays, optional
        What each row missed, by the columns of ``spec.time_columns``, such as start and end of a window;
        None for rows that lie in none.
    reason : array of str
    previous_watermark : int, optional
        The watermark the rows were classified by.
    """
    count = len(rows)
    if previous_watermark is None:
        lateness, watermark = pa.nulls(count, pa.duration("us")), pa.nulls(count, INSTANT)
    else:
        times, _ = timestamp_micros(rows.column(spec.time))
        lateness = pa.array(previous_watermark - times).cast(pa.duration("us"))
        watermark = pa.repeat(pa.scalar(previous_watermark).cast(INSTANT), count)
    row = pa.StructArray.from_arrays(
        [combine_chunks(c) for c in rows.columns], fields=list(spec.input)
    )
    late = pa.StructArray.from_arrays(
        [pa.array(reason, pa.string()), lateness, watermark, row], fields=list(spec.late)
    )
    filled = {name: rows.column(name) for name in spec.by} | {"late": late}
    if missed is not None:
        edges = (pa.array(edge).cast(INSTANT) for edge in missed)
        filled |= zip(spec.time_columns, edges, strict=True)
    return pa.table(
        [filled.get(f.name, pa.nulls(count, f.type)) for f in spec.output], schema=spec.output
    )
