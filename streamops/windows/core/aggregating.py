"""The base of operators that aggregate: other aggregates after a restart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

import pyarrow as pa

from streamops.kernel.added import drop_known, map_aggregates, mark_known, unknown_aggregates
from streamops.kernel.core import Identity, State
from streamops.kernel.operator import Core

A = TypeVar("A", bound=Any)


class AggregatingCore(Core[A]):
    """A core whose tables have states of aggregates, see :mod:`streamops.windows.core.tables`."""

    def adapt(
        self, spec: A, stored: Identity, tables: Mapping[str, pa.Table]
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

    def settle(self, state: State) -> State:
        """Forget which states are unknown if none is, in the tables or in segments."""
        if state.segments is not None and state.segments.index:
            return state
        return replace(state, tables=drop_known(state.tables))
