"""The bases of operators that aggregate: other aggregates and other parameters after a restart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import pyarrow as pa

from streamops.kernel.added import drop_known, map_aggregates, mark_known, unknown_aggregates
from streamops.kernel.core import Identity, State
from streamops.kernel.lag import note_lag
from streamops.kernel.operator import Core
from streamops.kernel.placement import EVERYWHERE, GREATEST, Placement
from streamops.kernel.segments import ROWS
from streamops.kernel.time import BEFORE_ALL
from streamops.windows import conditions
from streamops.windows.core.spec import WindowSpec, is_corrected, is_early

A = TypeVar("A", bound=Any)
W = TypeVar("W", bound=WindowSpec)

CLOSED = "_closed"
"""Name of a table with one row: the bounds of the parameters. It is there as long as they matter."""

BOUNDS = ("closed", "settled")
"""Names of these parameters. Windows without one of them have no such column."""

TURNED = "_turned"
"""Name of a table with ``WindowSpec.turned``, until the next step."""


class AggregatingCore(Core[A]):
    """A core whose tables have states of aggregates, see :mod:`streamops.windows.core.tables`."""

    def adapt(
        self,
        spec: A,
        stored: Identity,
        tables: Mapping[str, pa.Table],
        watermark: int | None,
    ) -> Mapping[str, pa.Table]:
        """Map the aggregates by name."""
        return map_aggregates(stored["agg"], spec.aggregates, spec.input, tables)

    def attune(
        self, spec: A, state: State, inputs: Sequence[pa.Table]
    ) -> tuple[A, State, Sequence[pa.Table]]:
        """Compute with unknown states, if there are some."""
        numbers = unknown_aggregates(state.tables.values())
        if not numbers:
            return spec, state, inputs
        summaries, segments = spec.summaries, state.segments

        def complete(table: pa.Table) -> pa.Table:
            return mark_known(table, numbers, summaries)

        if segments is not None:
            load = segments.load
            segments = replace(segments, load=lambda of: complete(load(of)))
        tables = {name: complete(table) for name, table in state.tables.items()}
        attuned = replace(state, tables=tables, segments=segments)
        return spec.with_added(numbers), attuned, [complete(table) for table in inputs]

    def settle(self, spec: A, state: State) -> State:
        """Forget which states are unknown if none is, in the tables or in segments."""
        if state.segments is not None and state.segments.index:
            return state
        return replace(state, tables=drop_known(state.tables))


class WindowCore(AggregatingCore[W]):
    """A core of windows that close: what happens to stragglers may change at a restart."""

    @property
    def placement(self) -> Placement:
        """How states are placed on shards: all have the same bounds."""
        found = super().placement
        return replace(found, tables={CLOSED: GREATEST, TURNED: EVERYWHERE, **found.tables})

    def adapt(
        self,
        spec: W,
        stored: Identity,
        tables: Mapping[str, pa.Table],
        watermark: int | None,
    ) -> Mapping[str, pa.Table]:
        """Continue with other parameters: note what has left the state, and convert the tables."""
        tables = super().adapt(spec, stored, tables, watermark)
        if ROWS in tables:  # a segment
            return tables
        tables = note_lag(tables, spec.lag - spec.lag_of(stored))
        spec = _with_bounds(spec, tables)
        tables.pop(CLOSED, None)
        if is_early(stored["early"]) != spec.is_early:
            if TURNED in tables:  # of a migration: results of that change are not published yet
                raise conditions.EARLY_TURNED_AGAIN.error(
                    stored=stored["early"], got=f"early={spec.early!r}"
                )
            spec = replace(spec, turned="on" if spec.is_early else "off")
        adapted = self.convert(spec, stored, tables, watermark)
        if spec.turned:
            adapted[TURNED] = pa.table({"turned": [spec.turned]})
        if watermark is None:
            return adapted
        retained = stored["allowed_lateness"] if is_corrected(stored["stragglers"]) else 0
        closed = max(spec.closed, watermark - retained)
        final = {"closed": closed, "settled": closed - stored.get("gap", 0)}
        bounds = {name: max(getattr(spec, name), final[name]) for name in _bounds_of(spec)}
        return {**adapted, **_note_bounds(replace(spec, **bounds), watermark)}

    def convert(
        self,
        spec: W,
        stored: Identity,
        tables: Mapping[str, pa.Table],
        watermark: int | None,
    ) -> dict[str, pa.Table]:
        """The tables in the layout of the parameters."""
        raise NotImplementedError

    def attune(
        self, spec: W, state: State, inputs: Sequence[pa.Table]
    ) -> tuple[W, State, Sequence[pa.Table]]:
        """Compute with what has left the state."""
        if state.tables.keys() & {CLOSED, TURNED}:
            tables = dict(state.tables)
            spec = _with_bounds(spec, tables)
            tables.pop(CLOSED, None)
            if TURNED in tables:
                spec = replace(spec, turned=tables.pop(TURNED).column(0)[0].as_py())
            state = replace(state, tables=tables)
        return super().attune(spec, state, inputs)

    def finalize(self, spec: W, until: int) -> W:
        """Windows are final after this step."""
        return replace(spec, final=until)

    def settle(self, spec: W, state: State) -> State:
        """Forget what has left the state once it does not matter any more."""
        state = super().settle(spec, state)
        spec = spec if spec.final == BEFORE_ALL else spec.finalized()
        noted = _note_bounds(spec, state.watermark)
        return replace(state, tables={**state.tables, **noted}) if noted else state


def _bounds_of(spec: WindowSpec) -> list[str]:
    return [name for name in BOUNDS if hasattr(spec, name)]


def _with_bounds(spec: W, tables: Mapping[str, pa.Table]) -> W:
    """The parameters, with the bounds in a table of the state."""
    (found,) = tables[CLOSED].to_pylist() if CLOSED in tables else [{}]
    return replace(spec, **found)


def _note_bounds(spec: WindowSpec, watermark: int | None) -> dict[str, pa.Table]:
    """The table, if rows would be accepted without it."""
    if watermark is None or not spec.is_bound_at(watermark):
        return {}
    values = {name: pa.array([getattr(spec, name)], pa.int64()) for name in _bounds_of(spec)}
    return {CLOSED: pa.table(values)}
