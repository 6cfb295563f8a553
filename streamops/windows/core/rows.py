"""Rows of the state, and rows of the output.

State holds one row per key and piece of time.

A state table has the columns ``key.0``, ``key.1``, ... (the keys), some columns of its own
that say which piece of time it is about, and ``agg.0.sum``, ... (the states of the aggregates).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamops.changelog.change_types import INSERT
from streamops.kernel import group_states as states
from streamops.kernel.columns import combine_chunks, key_codes, timestamp_micros
from streamops.kernel.contract import merges_exactly
from streamops.kernel.groups import Groups, Ids
from streamops.kernel.time import MAX_INSTANT, MIN_INSTANT, Instants
from streamops.windows.core.spec import INSTANT, WindowSpec

__all__ = [
    "EARLY",
    "LATE",
    "ON_TIME",
    "Results",
    "estimates",
    "is_order_sensitive",
    "key_fields",
    "keys_of",
    "merge_states",
    "micros",
    "number_keys",
    "publish_windows",
    "result_rows",
    "state_schema",
    "states_of",
    "update_states",
    "usable_times",
]


def key_fields(spec: WindowSpec) -> list[tuple[str, pa.DataType]]:
    """The columns that hold the keys."""
    return [(f"key.{i}", field.type) for i, field in enumerate(spec.keys)]


def state_schema(spec: WindowSpec, *own: tuple[str, pa.DataType]) -> pa.Schema:
    """Columns of a table of entries with these columns of its own."""
    states = [
        (f"agg.{i}.{name}", dtype)
        for i, summary in enumerate(spec.summaries)
        for name, dtype in summary.fields
    ]
    return pa.schema([*key_fields(spec), *own, *states])


def keys_of(table: pa.Table, spec: WindowSpec) -> list[pa.Array]:
    """Key columns of a table of entries."""
    return [combine_chunks(table.column(f"key.{i}")) for i in range(len(spec.by))]


def number_keys(keys: Sequence[Sequence[pa.Array]], sizes: Sequence[int]) -> list[Ids]:
    """The keys of several tables as numbers, equal where they are equal."""
    columns = [pa.concat_arrays(pieces) for pieces in zip(*keys, strict=True)]
    return np.split(key_codes(columns, sum(sizes)), np.cumsum(sizes)[:-1])


def states_of(table: pa.Table, spec: WindowSpec) -> list[pa.Array]:
    """States of the aggregates in a table of entries."""
    names = [f"agg.{i}.{n}" for i, s in enumerate(spec.summaries) for n, _ in s.fields]
    return [combine_chunks(table.column(name)) for name in names]


def micros(table: pa.Table, name: str) -> Instants:
    """An int64 column without nulls."""
    return np.asarray(combine_chunks(table.column(name)))


def usable_times(spec: WindowSpec, rows: pa.Table) -> tuple[Instants, npt.NDArray[np.bool_]]:
    """Event times in microseconds, and which of them can be placed in a window."""
    times, valid = timestamp_micros(rows.column(spec.time))
    return times, valid & (times >= MIN_INSTANT) & (times <= MAX_INSTANT)


def update_states(spec: WindowSpec, groups: Groups, rows: pa.Table) -> list[pa.Array]:
    """States of the groups over rows."""
    return states.update_all(spec.summaries, groups, rows)


def merge_states(spec: WindowSpec, groups: Groups, members: Sequence[pa.Array]) -> list[pa.Array]:
    """States of the groups over states, those of all aggregates in one row."""
    return states.merge_all(spec.summaries, groups, members)


def is_order_sensitive(spec: WindowSpec) -> bool:
    """Whether values are taken back that tell how states were united: doubles, by their last bits.

    Then they must be united in one way only, or a preimage would not be what was published.
    """
    dtypes = (dtype for summary in spec.summaries for _, dtype in summary.fields)
    is_order_sensitive = any(map(pa.types.is_floating, dtypes)) or not all(
        map(merges_exactly, spec.summaries)
    )
    return spec.retracts and is_order_sensitive


def estimates(spec: WindowSpec, members: Sequence[pa.Array]) -> list[pa.Array]:
    """The values that the states stand for."""
    return states.estimate_all(spec.summaries, members)


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
