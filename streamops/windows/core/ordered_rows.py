"""Rows of each key in the order of event time: what ``windows.over`` and ``windows.resample`` share.

A row is *known* once the watermark has reached its event time: then all rows before it have arrived.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

import numpy as np
import pyarrow as pa

from streamops.kernel.adapting_rows import map_columns
from streamops.kernel.columns import (
    combine_chunks,
    concat,
    filter_rows,
    key_codes,
    take,
    timestamp_micros,
)
from streamops.kernel.core import Identity, Input, Metrics, State, Step
from streamops.kernel.formatted import format_rows
from streamops.kernel.groups import Ids, ordered_pair_codes
from streamops.kernel.lateness import Arrivals
from streamops.kernel.operator import Core, ShardSpec, checkpointed, with_types
from streamops.kernel.ordering import ranks
from streamops.kernel.parameters import MILLISECOND, require_choice
from streamops.kernel.time import BEFORE_ALL, Instants, advance_watermark

Late = Literal["drop", "route"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderedSpec(ShardSpec):
    """Parameters of operators that store rows in the order of event time.

    Parameters
    ----------
    tie_break : tuple of str
        Columns that order rows with the same event time.
    stragglers : "drop" or "route"
        What happens to late rows.
    """

    time: str = checkpointed()
    tie_break: tuple[str, ...] = checkpointed()
    stragglers: Late

    def __post_init__(self) -> None:
        require_choice(self.stragglers, Late, parameter="stragglers")

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The input, whose rows are late one by one."""
        (rows,) = super(OrderedSpec, self).inputs
        return (replace(rows, is_late_by_time=True),)

    @property
    def stored(self) -> pa.Schema:
        """The columns of the input that are stored."""
        return self.input

    @property
    def identity(self) -> Identity:
        """Also the columns that are stored."""
        columns = with_types(self, tuple(sorted(self.stored.names)))
        return {**super(OrderedSpec, self).identity, "columns": columns}

    @property
    def routes(self) -> bool:
        """Whether late rows go to the side output."""
        return self.stragglers == "route"


S = TypeVar("S", bound=OrderedSpec)


class OrderedCore(Core[S]):
    """The algorithm of an operator over rows in the order of event time. A subclass defines ``emit``."""

    @abstractmethod
    def emit(self, spec: S, known: pa.Table, previous: int, now: int) -> tuple[pa.Table, pa.Table]:
        """The results that the watermark decides between ``previous`` and ``now``, and the rows to store.

        ``known`` has all stored rows that are known now.
        """

    def step(
        self, spec: S, state: State, inputs: Sequence[pa.Table], watermark: int | None
    ) -> Step:
        """Process one micro-batch. See the docstring of the module."""
        (packed,) = inputs
        watermark = advance_watermark(state.watermark, watermark)
        previous, now = (BEFORE_ALL if w is None else w for w in (state.watermark, watermark))
        arrived = Arrivals.of(spec, packed, state.watermark)
        table = concat([state.tables["rows"], _as_stored(spec, arrived.rows, self.layout(spec))])
        is_known = times_of(spec, table) <= now
        output, stored = self.emit(spec, filter_rows(table, is_known), previous, now)
        tables = {"rows": concat([stored, filter_rows(table, ~is_known)])}
        metrics = arrived.metrics + Metrics(results=len(output))
        return Step(State(watermark, tables), output, arrived.late, metrics)

    def adapt(
        self,
        spec: S,
        stored: Identity,
        tables: Mapping[str, pa.Table],
        watermark: int | None,
    ) -> dict[str, pa.Table]:
        """Map the columns of stored rows by name: null where one was added."""
        schema = self.layout(spec)["rows"]
        rows = tables["rows"]
        return {**tables, "rows": map_columns(schema.names, rows.column_names, rows, schema)}

    def check(self, spec: S, state: State) -> None:
        """No known row is stored for too long, and none has a result that is not emitted."""
        rows, now = state.tables["rows"], state.watermark
        now = BEFORE_ALL if now is None else now
        known = filter_rows(rows, times_of(spec, rows) <= now)
        output, stored = self.emit(spec, known, now, now)
        details = f"watermark {now}\n{format_rows(rows)}"
        assert not len(output), f"not emitted: {details}"
        assert len(stored) == len(known), f"overdue: {details}"


def whole_milliseconds(micros: int) -> int:
    """A duration in microseconds, rounded up to what Spark's watermarks have."""
    return -(-micros // MILLISECOND) * MILLISECOND


def stored_columns(spec: OrderedSpec) -> dict[str, str]:
    """Where the state has the columns of the input."""
    columns = {name: f"row.{name}" for name in sorted(spec.stored.names)}
    return columns | {name: f"key.{at}" for at, name in enumerate(spec.by)}


def row_schema(spec: OrderedSpec) -> pa.Schema:
    """Columns of the stored rows: key columns, and the others by name."""
    columns = stored_columns(spec)
    names = [*spec.by, *(name for name in columns if name not in spec.by)]
    return pa.schema([(columns[name], spec.input.field(name).type) for name in names])


def _as_stored(spec: OrderedSpec, rows: pa.Table, layout: Mapping[str, pa.Schema]) -> pa.Table:
    """Rows of the input in the columns of the state. Columns that only the state has are null."""
    schema = layout["rows"]
    names = {of: name for name, of in stored_columns(spec).items()}
    columns = [
        rows.column(names[f.name]) if f.name in names else pa.nulls(len(rows), f.type)
        for f in schema
    ]
    return pa.table(columns, schema=schema)


def times_of(spec: OrderedSpec, table: pa.Table) -> Instants:
    """The event times of stored rows."""
    return timestamp_micros(table.column(stored_columns(spec)[spec.time]))[0]


def in_order(spec: OrderedSpec, table: pa.Table) -> tuple[pa.Table, Ids, Instants]:
    """Sort stored rows by key, event time, and what breaks ties.

    Returns
    -------
    table : Table
        The rows in this order.
    codes, times : arrays of int64
        Their keys, as codes that are equal where keys are; their event times.
    """
    keys = [combine_chunks(table.column(f"key.{at}")) for at in range(len(spec.by))]
    codes, times = key_codes(keys, len(table)), times_of(spec, table)
    keyed = ordered_pair_codes(codes, times)
    order = np.argsort(keyed, kind="stable")
    tied = np.flatnonzero(np.diff(keyed[order]) == 0)
    if len(tied):
        tied = np.union1d(tied, tied + 1)
        order[tied] = order[tied][_tie_order(spec, take(table, order[tied]), keyed[order[tied]])]
    return take(table, order), codes[order], times[order]


def _tie_order(spec: OrderedSpec, tied: pa.Table, keyed: Ids) -> Ids:
    """The order of rows that share a key and an event time: by the tie-break, then by all columns."""
    columns = stored_columns(spec)
    names = dict.fromkeys([*spec.tie_break, *columns])
    by = [ranks(combine_chunks(tied.column(columns[name]))) for name in names]
    return np.lexsort([*by[::-1], keyed])
