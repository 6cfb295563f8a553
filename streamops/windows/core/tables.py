"""Tables of the window operators: rows of state, rows of the output, and the side output.

A state table has the columns ``key.0``, ``key.1``, ... (the keys), columns that identify a period of
time, and ``agg.0.sum``, ... (the states of the aggregates).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamops.changelog.change_types import INSERT
from streamops.kernel import aggregation as states
from streamops.kernel.aggregation import merges_exactly
from streamops.kernel.columns import combine_chunks, concat, integers, key_codes, take
from streamops.kernel.core import Metrics
from streamops.kernel.groups import Groups, Ids, Mask, pair_codes
from streamops.kernel.lateness import (
    INSTANT,
    STRAGGLER,
    TOO_LATE,
    Arrivals,
    Lateness,
    build_late,
    windows,
)
from streamops.kernel.time import Instants
from streamops.windows.core.spec import AggregatingSpec, WindowSpec

EARLY, ON_TIME, LATE = range(3)
"""Timing of a published result, as stored in state."""

_TIMINGS = pa.array(["early", "on_time", "late"])


def key_fields(spec: AggregatingSpec) -> list[tuple[str, pa.DataType]]:
    """Name and type of the key columns of a state table."""
    return [(f"key.{i}", field.type) for i, field in enumerate(spec.keys)]


def state_schema(spec: AggregatingSpec, *own: tuple[str, pa.DataType]) -> pa.Schema:
    """Keys, the given columns, and the states of the aggregates."""
    aggregates = [
        (f"agg.{i}.{name}", dtype)
        for i, summary in enumerate(spec.summaries)
        for name, dtype in summary.fields
    ]
    return pa.schema([*key_fields(spec), *own, *aggregates])


def revision_schema(spec: WindowSpec, column: str) -> pa.Schema:
    """Columns of a table of revisions: one row per result that was published more than once.

    ``column`` identifies the result of a key.
    """
    own = [(column, pa.int64()), ("revision", pa.int32())]
    return pa.schema([*key_fields(spec), *own, *([("timing", pa.int8())] if spec.is_early else [])])


def convert_revisions(spec: WindowSpec, column: str, tables: dict[str, pa.Table]) -> None:
    """Add the table of revisions where these parameters have one, and remove it where they do not."""
    found = tables.pop("revisions", None)
    if spec.revises:
        schema = revision_schema(spec, column)
        found = revision_schema(spec, column).empty_table() if found is None else found
        if "timing" in schema.names and "timing" not in found.column_names:
            found = found.append_column("timing", pa.array(np.full(len(found), LATE, np.int8)))
        tables["revisions"] = found.select(schema.names)


def take_back_revisions(
    spec: WindowSpec, column: str, results: pa.Table, revisions: pa.Table, first_open: int
) -> pa.Table:
    """The revisions after early results have been taken back: open results begin with the next one.

    Parameters
    ----------
    column : str
        Identifies the result of a key.
    results : Table
        Key columns and this column of the open results.
    revisions : Table
    first_open : int
        The first of the open results in this column.
    """
    codes, others = number_keys(
        [keys_of(table, spec) for table in (results, revisions)], [len(results), len(revisions)]
    )
    raised = 1 + look_up_revisions(codes, integers(results, column), others, column, revisions)
    columns = [*results.columns, pa.array(raised)]
    if spec.is_early:
        columns.append(pa.array(np.full(len(results), EARLY, np.int8)))
    opened = pa.table(columns, schema=revision_schema(spec, column))
    published = revisions.filter(pa.array(integers(revisions, column) < first_open))
    return concat([published, opened])


def look_up_revisions(
    codes: Ids, numbers: Ids, others: Ids, column: str, revisions: pa.Table
) -> npt.NDArray[np.int32]:
    """The revisions of results by key number and ``column``; 0 for those that are not in the table."""
    if not len(revisions):
        return np.zeros(len(codes), np.int32)
    keys = np.concatenate([codes, others])
    both = np.concatenate([numbers, integers(revisions, column)])
    groups, _ = Groups.of(pair_codes(keys, both))
    wanted, known = np.split(groups.ids, [len(codes)])
    found = np.zeros(groups.count, np.int32)
    found[known] = integers(revisions, "revision")
    return found[wanted]


def keys_of(table: pa.Table, spec: AggregatingSpec) -> list[pa.Array]:
    """Key columns of a state table."""
    return [combine_chunks(table.column(f"key.{i}")) for i in range(len(spec.by))]


def number_keys(keys: Sequence[Sequence[pa.Array]], sizes: Sequence[int]) -> list[Ids]:
    """Number the keys of several tables of these sizes. Equal keys have equal numbers."""
    columns = [pa.concat_arrays(pieces) for pieces in zip(*keys, strict=True)]
    return np.split(key_codes(columns, sum(sizes)), np.cumsum(sizes)[:-1])


def states_of(table: pa.Table, spec: AggregatingSpec) -> list[pa.Array]:
    """States of all aggregates in a state table."""
    names = [f"agg.{i}.{n}" for i, s in enumerate(spec.summaries) for n, _ in s.fields]
    return [combine_chunks(table.column(name)) for name in names]


def update_states(spec: AggregatingSpec, groups: Groups, rows: pa.Table) -> list[pa.Array]:
    """Aggregate rows to one state per group."""
    return states.update_all(spec.summaries, groups, rows)


def merge_states(
    spec: AggregatingSpec, groups: Groups, members: Sequence[pa.Array]
) -> list[pa.Array]:
    """Merge states to one state per group."""
    return states.merge_all(spec.summaries, groups, members)


def estimate_values(spec: AggregatingSpec, members: Sequence[pa.Array]) -> list[pa.Array]:
    """The aggregates of the states."""
    return states.estimate_all(spec.summaries, members)


def is_order_sensitive(spec: WindowSpec) -> bool:
    """Whether a preimage may differ from the published value if states are merged in another order.

    Sums of floats differ in their last bits. Then the states must always be merged in one order.
    """
    dtypes = (dtype for summary in spec.summaries for _, dtype in summary.fields)
    has_floats = any(map(pa.types.is_floating, dtypes))
    return spec.retracts and (has_floats or not all(map(merges_exactly, spec.summaries)))


@dataclass(frozen=True, slots=True)
class Results:
    """Results of windows: key columns, start and end of each window, and aggregates."""

    keys: list[pa.Array]
    start: Instants
    end: Instants
    values: list[pa.Array]

    def __len__(self) -> int:
        return len(self.start)

    def take(self, rows: npt.NDArray[np.integer]) -> Results:
        """The results at these positions."""
        index = pa.array(rows)
        return Results(
            [key.take(index) for key in self.keys],
            self.start[rows],
            self.end[rows],
            [value.take(index) for value in self.values],
        )


def publish_windows(
    spec: WindowSpec,
    results: Results,
    revision: npt.NDArray[np.int32] | None = None,
    change: str = INSERT,
    timing: Ids | None = None,
) -> pa.Table:
    """Rows of the output for these windows. See :func:`result_rows`."""
    window = [pa.array(edge).cast(INSTANT) for edge in (results.start, results.end)]
    return result_rows(spec, [*results.keys, *window, *results.values], revision, change, timing)


def result_rows(
    spec: WindowSpec,
    columns: list[pa.Array],
    revision: npt.NDArray[np.int32] | None = None,
    change: str = INSERT,
    timing: Ids | None = None,
) -> pa.Table:
    """Rows of the output.

    Parameters
    ----------
    columns : list of Array
        Keys, window or event time, and values.
    revision, timing : arrays of int, optional
        Revision and timing of each row, if the output has these columns. The default is a first
        result on time.
    change : str
        The change type of all rows.
    """
    columns, count = list(columns), len(columns[0])
    if spec.revises:
        columns.append(pa.array(np.zeros(count, np.int32) if revision is None else revision))
    if spec.is_early:
        columns.append(
            _TIMINGS.take(pa.array(np.full(count, ON_TIME) if timing is None else timing))
        )
    if spec.retracts:
        columns.append(pa.repeat(change, count))
    if spec.routes:
        columns.append(pa.nulls(count, spec.output.field("late").type))
    return pa.table(columns, schema=spec.output)


def find_usable(
    spec: WindowSpec, rows: pa.Table, invalid: Sequence[tuple[str, Mask]] = ()
) -> Arrivals:
    """Rows with a usable event time, and without further reasons; the side output for the others."""
    lateness = Lateness.of(rows.column(spec.time), None, invalid=invalid)
    return Arrivals.classify(spec.output, rows, lateness, filled=spec.by)


@dataclass(frozen=True, slots=True)
class Classified:
    """The lateness of usable rows.

    Parameters
    ----------
    on_time, accepted : arrays of bool
        Rows that are not late; rows that are aggregated.
    late : Table
        The side output for all rows that are not accepted, and for those that are rejected.
    counts : Metrics
    """

    on_time: Mask
    accepted: Mask
    late: pa.Table
    counts: Metrics


def classify_lateness(
    spec: WindowSpec,
    arrived: Arrivals,
    window: tuple[Instants, ...],
    previous_watermark: int | None,
    on_time: Mask | None = None,
    final: Mask | None = None,
) -> Classified:
    """Compare rows with the watermark of the step before, where windows are not on a grid.

    Parameters
    ----------
    window : tuple of arrays
        The window of each row by the columns of ``spec.time_columns``. The last array is its end.
    on_time : array of bool, optional
        Rows that are not late, if the end of their window does not decide it.
    final : array of bool, optional
        Rows that are too late although the end of their window would let them pass.
    """
    allowed = 0 if previous_watermark is None else spec.allowed_by(previous_watermark)
    found = Lateness.compare(window[-1], previous_watermark, allowed)
    if final is not None:
        passes = ~found.too_late if spec.corrects else found.on_time
        found.codes[passes & final] = TOO_LATE
    if on_time is not None:
        found.codes[found.on_time & ~on_time] = STRAGGLER
    accepted = ~found.too_late if spec.corrects else found.on_time
    missed, late = np.flatnonzero(~accepted), arrived.late
    if spec.routes and len(missed):
        edges = tuple(edge[missed] for edge in window)
        by_time = replace(found, times=arrived.times).take(missed)
        late = concat([late, side_output(spec, take(arrived.rows, missed), edges, by_time)])
    before = arrived.metrics
    counts = replace(found.metrics, rows=before.rows, rejected=before.rejected)
    return Classified(found.on_time, accepted, late, counts)


def side_output(
    spec: WindowSpec, rows: pa.Table, missed: tuple[Instants, ...], lateness: Lateness
) -> pa.Table:
    """Late rows in the output schema, with the window that each missed by ``spec.time_columns``."""
    edges = [pa.array(edge).cast(INSTANT) for edge in missed[-len(spec.time_columns) :]]
    filled = dict(zip(spec.time_columns, edges, strict=True))
    fields = lateness.fields | ({"window": windows(*missed)} if len(missed) > 1 else {})
    filled |= {name: rows.column(name) for name in spec.by}
    return build_late(spec.output, rows, fields, filled=filled)
