"""Rolling aggregates: per key over several horizons, whenever a value changes.

At a border ``t``, a multiple of ``every``, the value of a horizon is the aggregate over the rows of the key
in ``[t - horizon, t)``. A key is published at ``t`` if a value differs from that at ``t - every``; without
rows it is the value of no rows. So what is published depends on the rows of the key only, not on when
they arrived. It is published once the operator's watermark reaches ``t``, and never corrected: a row is
late if the first border after it has been reached in the step before.

Rows are aggregated to panes of length ``every``. Values can only change where a pane enters or leaves a
horizon. A float of a sum depends on the order of addition. So rows are stored until their pane is closed
if an aggregate depends on the order, and aggregated in the order of their times; and which panes are
merged first depends on the panes in the horizon only.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, Self

import numpy as np
import pyarrow as pa

from streamops.kernel.aggregation import merges_exactly
from streamops.kernel.columns import (
    combine_chunks,
    concat,
    conform,
    integers,
    key_codes,
    rows_differ,
    take,
    timestamp_micros,
)
from streamops.kernel.core import Metrics, SideName, State, StateFormat, Step
from streamops.kernel.grids import FixedGrid
from streamops.kernel.groups import Groups, Ids, Mask, ordered_pair_codes, pair_codes
from streamops.kernel.hashing import digests
from streamops.kernel.lateness import INSTANT
from streamops.kernel.operator import Core, Table, checkpointed
from streamops.kernel.parameters import refuse_taken_names, show_duration
from streamops.kernel.time import (
    AFTER_ALL,
    BEFORE_ALL,
    MAX_INSTANT,
    Instants,
    advance_watermark,
    format_duration,
)
from streamops.windows import conditions
from streamops.windows.core.grid import check_panes, classify
from streamops.windows.core.grid_spec import GridSpec
from streamops.windows.core.panes import (
    add_panes,
    aggregate_rows,
    empty_states,
    pane_schema,
)
from streamops.windows.core.sliding import Ordered, merge_windows
from streamops.windows.core.spec import DURATION
from streamops.windows.core.tables import (
    classify_lateness,
    estimate_values,
    find_usable,
    key_fields,
    keys_of,
    result_rows,
    states_of,
)

Late = Literal["drop", "route"]

BORDER = "window_end"


def _show_horizons(horizons: tuple[tuple[str, int], ...]) -> str:
    return repr({name: format_duration(length) for name, length in horizons})


@dataclass(frozen=True, slots=True, kw_only=True)
class RollingSpec(GridSpec):
    """Parameters of rolling aggregates.

    ``every`` is the distance of the borders, and ``horizons`` has pairs of a name and a length.
    """

    every: int = checkpointed(metadata=DURATION)
    horizons: tuple[tuple[str, int], ...] = checkpointed(metadata={"shown": _show_horizons})

    def __post_init__(self) -> None:
        self.refuse_no_aggregate()
        if not self.horizons:
            raise conditions.NO_HORIZON.error(got="horizons={}")
        for name, length in self.horizons:
            if length % self.every:
                raise conditions.HORIZON_BETWEEN_BORDERS.error(
                    name=name,
                    got=f"{name!r}: {show_duration(length)}, every={show_duration(self.every)}",
                )
        given = {
            "by": list(self.by),
            "agg": [name for name, _ in self.agg],
            "horizons": [name for name, _ in self.horizons],
        }
        refuse_taken_names([*self.by, *self._names], (BORDER, "late"), given)

    def resolve(
        self, schemas: Sequence[pa.Schema], *, carried: Sequence[int | None], shards: int
    ) -> Self:
        """Resolve the parameters. A key without rows needs aggregates with a value for no rows."""
        resolved = GridSpec.resolve(self, schemas, carried=carried, shards=shards)
        resolved.refuse_without_value("agg")
        return resolved

    @property
    def grid(self) -> FixedGrid:
        """The panes."""
        return FixedGrid(self.every, self.every, 0)

    @property
    def _names(self) -> list[str]:
        return [f"{name}_{horizon}" for horizon, _ in self.horizons for name, _ in self.agg]

    @property
    def value_columns(self) -> list[tuple[str, pa.DataType]]:
        """Name and type of the values: the aggregates of the first horizon, then of the next."""
        results = [summary.result for summary in self.summaries] * len(self.horizons)
        return list(zip(self._names, results, strict=True))

    @property
    def time_columns(self) -> tuple[str, ...]:
        """The border."""
        return (BORDER,)

    @property
    def lengths(self) -> Instants:
        """The horizons in microseconds."""
        return np.array([length for _, length in self.horizons], np.int64)

    @property
    def changes(self) -> list[int]:
        """How long after its start a pane enters all horizons, and leaves each of them."""
        return [self.every, *(self.every + length for _, length in self.horizons)]

    @property
    def stores_rows(self) -> bool:
        """Whether rows are stored until their pane is closed, because their order matters."""
        dtypes = (dtype for summary in self.summaries for _, dtype in summary.fields)
        has_floats = any(map(pa.types.is_floating, dtypes))
        return has_floats or not all(map(merges_exactly, self.summaries))

    @property
    def origins(self) -> dict[str, tuple[int, str]]:
        """Output columns with values of an input column: also aggregates, under their names."""
        found = super(RollingSpec, self).origins
        named = {name: found.pop(name) for name, _ in self.agg if name in found}
        more = {f"{n}_{h}": origin for n, origin in named.items() for h, _ in self.horizons}
        return {**found, **more}


def row_schema(spec: RollingSpec) -> pa.Schema | None:
    """Columns of the table of rows: key columns, event time, and the columns that are aggregated."""
    if not spec.stores_rows:
        return None
    read = {spec.time, *(name for summary in spec.summaries for name in summary.inputs)}
    columns = [(f"row.{name}", spec.input.field(name).type) for name in sorted(read - {*spec.by})]
    return pa.schema([*key_fields(spec), *columns])


class RollingCore(Core[RollingSpec]):
    """Rolling aggregates: per key over several horizons, whenever a value changes."""

    STATE = StateFormat("windows.rolling", 1)
    TABLES: ClassVar = {"panes": Table(pane_schema), "rows": Table(row_schema)}

    def pack(self, spec: RollingSpec, rows: pa.Table, side: SideName = "left") -> pa.Table:
        """Aggregate the rows to panes, unless they are needed one by one."""
        rows = conform(rows, spec.input)
        return rows if spec.routes or spec.stores_rows else aggregate_rows(spec, rows)

    def step(
        self, spec: RollingSpec, state: State, inputs: Sequence[pa.Table], watermark: int | None
    ) -> Step:
        """Process one micro-batch. See the docstring of the module."""
        (packed,) = inputs
        previous = state.watermark
        watermark = advance_watermark(previous, watermark)
        if spec.routes or spec.stores_rows:
            late, rows, counts = _classify_rows(spec, packed, previous)
            panes = rows if spec.stores_rows else aggregate_rows(spec, rows)
        else:
            late, panes, counts = classify(spec, packed, previous)

        tables = dict(state.tables)
        if spec.stores_rows:
            tables["rows"], panes = _close_rows(spec, tables["rows"], rows, watermark)
        panes = add_panes(spec, tables["panes"], panes.select(pane_schema(spec).names))
        tables["panes"], codes = _sort(spec, panes)
        if watermark is None:
            return Step(State(None, tables), spec.output.empty_table(), late, counts)
        output = _publish(spec, tables["panes"], codes, previous, watermark)
        tables["panes"] = _evict(spec, tables["panes"], watermark)
        counts += Metrics(results=len(output))
        return Step(State(watermark, tables), output, late, counts)

    def next_deadline(self, spec: RollingSpec, state: State) -> int | None:
        """When the next pane enters or leaves a horizon: a value may change, or it may not."""
        watermark = BEFORE_ALL if state.watermark is None else state.watermark
        panes = integers(state.tables["panes"], "pane")
        due = [
            panes[panes > watermark - after].min(initial=AFTER_ALL - after) + after
            for after in spec.changes
        ]
        if spec.stores_rows:
            ends = _panes_of(spec, state.tables["rows"]) + spec.every
            due.append(ends.min(initial=AFTER_ALL))
        deadline = int(min(due))
        return None if deadline == AFTER_ALL else deadline

    def check(self, spec: RollingSpec, state: State) -> None:
        """Panes lie on the grid and are unique per key, and nothing is stored for too long."""
        panes = state.tables["panes"]
        details = f"watermark {state.watermark}\n{state.tables}"
        check_panes(spec, panes, details)
        if state.watermark is None:
            return
        assert len(_evict(spec, panes, state.watermark)) == len(panes), f"overdue: {details}"
        if spec.stores_rows:
            ends = _panes_of(spec, state.tables["rows"]) + spec.every
            assert (ends > state.watermark).all(), f"rows of a closed pane: {details}"


def _classify_rows(
    spec: RollingSpec, rows: pa.Table, previous: int | None
) -> tuple[pa.Table, pa.Table, Metrics]:
    """The side output, the accepted rows, and metrics."""
    arrived = find_usable(spec, rows)
    pane = spec.grid.pane_of(arrived.times)
    found = classify_lateness(spec, arrived, (pane, pane + spec.every), previous)
    return found.late, arrived.where(found.accepted).rows, found.counts


def _panes_of(spec: RollingSpec, rows: pa.Table) -> Instants:
    """The start of the pane of each stored row."""
    return spec.grid.pane_of(timestamp_micros(rows.column(f"row.{spec.time}"))[0])


def _close_rows(
    spec: RollingSpec, stored: pa.Table, rows: pa.Table, watermark: int | None
) -> tuple[pa.Table, pa.Table]:
    """The rows whose pane is open, and the panes of the others."""
    schema = stored.schema
    names = [*spec.by, *(name.removeprefix("row.") for name in schema.names[len(spec.by) :])]
    columns = [combine_chunks(rows.column(name)) for name in names]
    stored = concat([stored, pa.table(columns, schema=schema)])
    ends = _panes_of(spec, stored) + spec.every
    is_closed = ends <= (BEFORE_ALL if watermark is None else watermark)
    closed = take(stored, np.flatnonzero(is_closed))
    # Equal times are ordered by digest: rows with the same one have the same values.
    times = timestamp_micros(closed.column(f"row.{spec.time}"))[0]
    order = np.lexsort((digests(closed.columns), times))
    closed = take(closed, order).rename_columns(names)
    if is_closed.any():
        stored = stored.filter(pa.array(~is_closed)).combine_chunks()
    return stored, aggregate_rows(spec, closed)


def _evict(spec: RollingSpec, panes: pa.Table, watermark: int) -> pa.Table:
    """Remove panes that have left all horizons."""
    alive = integers(panes, "pane") + spec.every + spec.lengths.max() > watermark
    return panes if alive.all() else panes.filter(pa.array(alive)).combine_chunks()


def _sort(spec: RollingSpec, panes: pa.Table) -> tuple[pa.Table, Ids]:
    """The panes by key and time, and the numbers of their keys. Stored ones are in order already."""
    keys = keys_of(panes, spec)
    codes = key_codes(keys, len(panes))
    if len(keys) > 1:  # number them as they appear, as the codes of one column are
        codes = Groups.of(codes)[0].ids
    positions = ordered_pair_codes(codes, integers(panes, "pane"))
    if (positions[1:] > positions[:-1]).all():
        return panes, codes
    order = np.argsort(positions, kind="stable")
    return take(panes, order), codes[order]


def _publish(
    spec: RollingSpec, panes: pa.Table, codes: Ids, previous: int | None, watermark: int
) -> pa.Table:
    """The values that changed after the previous watermark, up to this one."""
    low, high = BEFORE_ALL if previous is None else previous, min(watermark, MAX_INSTANT)
    starts = integers(panes, "pane")
    due = [
        np.flatnonzero((starts > low - after) & (starts <= high - after)) for after in spec.changes
    ]
    rows = np.concatenate(due)
    if not len(rows):
        return spec.output.empty_table()
    borders = np.concatenate(
        [starts[of] + after for of, after in zip(due, spec.changes, strict=True)]
    )
    candidates = codes[rows]
    firsts = np.unique(ordered_pair_codes(candidates, borders), return_index=True)[1]
    rows, candidates, borders = rows[firsts], candidates[firsts], borders[firsts]
    is_touched = np.zeros(codes.max() + 1, np.bool_)
    is_touched[candidates] = True
    of_keys = is_touched[codes]
    states = panes if of_keys.all() else take(panes, np.flatnonzero(of_keys))
    entries = Ordered(states_of(states, spec), codes[of_keys], starts[of_keys] // spec.every)
    values = _Values.of(spec, entries, candidates, borders)
    changed = np.flatnonzero(values.differ)
    index = pa.array(rows[changed])
    keys = [key.take(index) for key in keys_of(panes, spec)]
    columns = [*keys, pa.array(borders[changed]).cast(INSTANT), *values.after(changed)]
    return result_rows(spec, columns)


@dataclass(frozen=True, slots=True)
class _Values:
    """The values of keys at borders.

    Parameters
    ----------
    distinct : list of Array
        Per aggregate, the values that occur.
    position : array of int64
        Which value it is, by horizon, before or at the border, and pair of key and border.
    """

    distinct: list[pa.Array]
    position: Ids

    @staticmethod
    def of(spec: RollingSpec, panes: Ordered, codes: Ids, borders: Instants) -> _Values:
        """Merge the panes of each horizon."""
        at = np.stack([borders - spec.every, borders]) // spec.every
        lengths = (spec.lengths // spec.every)[:, None, None]
        numbers = np.concatenate([(at - lengths).ravel(), at.ravel()])
        everything = ordered_pair_codes(
            np.concatenate([panes.codes, np.tile(codes, len(numbers) // len(codes))]),
            np.concatenate([panes.times, numbers]),
        )
        ours, theirs = np.split(everything, [len(panes.codes)])
        found = np.searchsorted(ours, theirs)
        low, beyond = np.split(found, [at.size * len(lengths)])
        beyond = np.tile(beyond, len(lengths))
        # Equal panes have equal values. Without panes, it is the first value.
        ranges, position = np.unique(
            np.where(low < beyond, low * len(ours) + beyond, 0), return_inverse=True
        )
        ranges = ranges[ranges > 0]
        last = (ranges - 1) % len(ours)
        merged = merge_windows(spec, panes, (ranges - 1) // len(ours), last, None)
        nothing = empty_states(spec, 1)
        states = [pa.concat_arrays(pair) for pair in zip(nothing, merged, strict=True)]
        has_empty = (low >= beyond).any()
        position = position.reshape(len(lengths), 2, len(codes)) + (not has_empty)
        return _Values(estimate_values(spec, states), position)

    @property
    def differ(self) -> Mask:
        """Which pairs have another value than at the border before."""
        pairs, found = np.unique(
            pair_codes(self.position[:, 0].ravel(), self.position[:, 1].ravel()),
            return_index=True,
            return_inverse=True,
        )[1:]
        before, after = (
            [v.take(pa.array(self.position[:, side].ravel()[pairs])) for v in self.distinct]
            for side in (0, 1)
        )
        differs: Mask = rows_differ(before, after)[found].reshape(self.position[:, 0].shape)
        changed: Mask = np.logical_or.reduce(differs, axis=0)
        return changed

    def after(self, pairs: Ids) -> list[pa.Array]:
        """The values at the border: the aggregates of the first horizon, then of the next."""
        indexes = [pa.array(of[1, pairs]) for of in self.position]
        return [values.take(index) for index in indexes for values in self.distinct]
