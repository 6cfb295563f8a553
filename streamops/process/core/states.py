"""The tables of the state, and the states of the keys that are called."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa

from streamops.kernel.columns import combine_chunks, null_table
from streamops.kernel.core import State
from streamops.kernel.groups import Ids
from streamops.kernel.values import field_converter
from streamops.process import conditions
from streamops.process.core.calls import Batch
from streamops.process.core.spec import PerKeySpec
from streamops.process.core.values import from_values, state_type, to_values

_STATE, TIMER = "state.", "timer"


def _key_fields(spec: PerKeySpec) -> list[tuple[str, pa.DataType]]:
    return [(f"key.{at}", field.type) for at, field in enumerate(spec.keys)]


def key_schema(spec: PerKeySpec) -> pa.Schema:
    """Columns of the keys with their state."""
    fields = [(_STATE + field.name, field.type) for field in spec.state]
    return pa.schema([*_key_fields(spec), *fields])


def timer_schema(spec: PerKeySpec) -> pa.Schema:
    """Columns of the timers."""
    return pa.schema([*_key_fields(spec), (TIMER, pa.int64())])


def row_schema(spec: PerKeySpec) -> pa.Schema:
    """Columns of rows that wait."""
    rows = sorted(spec.input, key=lambda field: field.name) if spec.time is not None else spec.keys
    return pa.schema([pa.field(field.name, field.type) for field in rows])


def packed_schema(spec: PerKeySpec) -> pa.Schema:
    """The columns of packed rows. Those that wait are stored by name."""
    return row_schema(spec) if spec.time is not None else spec.input


def keys_of(spec: PerKeySpec, table: pa.Table) -> list[pa.Array]:
    """Key columns of a table of the state, which come first."""
    return [combine_chunks(table.column(at)) for at in range(len(spec.by))]


def read_tables(spec: PerKeySpec, state: State) -> dict[str, pa.Table]:
    """The tables of a state, with the columns of this spec: columns may have been added."""
    wanted = {"keys": key_schema(spec), "timers": timer_schema(spec), "rows": row_schema(spec)}
    tables = {name: _evolve(spec, state.tables[name], wanted[name], name) for name in wanted}
    if spec.on_timer is None and len(tables["timers"]):
        _refuse_state(f"{len(tables['timers'])} timers", "no on_timer", "pass `on_timer` as before")
    return tables


def _evolve(spec: PerKeySpec, table: pa.Table, schema: pa.Schema, name: str) -> pa.Table:
    if table.schema.equals(schema):
        return table
    for column in table.schema:
        position = schema.get_field_index(column.name)
        field = column.name.removeprefix(_STATE)
        if position < 0 and name == "keys":
            fix = f"declare {field!r} again; a field that is no longer assigned may stay null"
            _refuse_state(f"the field {field!r}", "a state without it", fix)
        if position >= 0 and schema.field(position).type != column.type:
            wanted = schema.field(position).type
            fix = f"declare {field!r} as before, and add a field for the new type"
            _refuse_state(f"{field!r} of type {column.type}", f"type {wanted}", fix)
    added = [f for f in schema if f.name not in table.column_names]
    for column in added:
        field = column.name.removeprefix(_STATE)
        if name == "keys" and not spec.state.field(field).nullable:
            fix = f"declare {field!r} without NOT NULL: it is null for stored keys"
            _refuse_state(f"no field {field!r}", "one that is NOT NULL", fix)
    nulls = null_table(schema, len(table))
    columns = [table.column(f.name) if f not in added else nulls.column(f.name) for f in schema]
    return pa.table(columns, schema=schema)


def _refuse_state(stored: str, given: str, fix: str) -> None:
    raise conditions.STATE_PARAMETERS.error(remedy=fix, stored=stored, got=given)


@dataclass(slots=True)
class States:
    """The stored states of the keys that are called."""

    spec: PerKeySpec
    stored: pa.Table
    of_stored: Ids
    touched: Ids

    @property
    def positions(self) -> Ids:
        """The row of each key in the stored table, or -1."""
        found = np.full(max(int(self.touched.max(initial=-1)) + 1, 1), -1, np.int64)
        inside = self.of_stored < len(found)
        found[self.of_stored[inside]] = np.flatnonzero(inside)
        positions: Ids = found[self.touched]
        return positions

    @property
    def _type(self) -> Any:
        return state_type(tuple(self.spec.state))

    def load(self, keys: Ids | None = None) -> list[Any]:
        """New objects with the states of all keys, or of these."""
        positions = self.positions if keys is None else self.positions[keys]
        made = self._type
        if not self.spec.state.names:
            return [made() for _ in positions]
        is_new = positions < 0
        columns = []
        for field, value in zip(self.spec.state, self.spec.initial_values, strict=True):
            column = combine_chunks(self.stored.column(_STATE + field.name))
            # Initial values go through Arrow, too: no two keys share a list.
            initial = from_values([value], field, what="state")
            both = pa.concat_arrays([column, initial])
            index = np.where(is_new, len(column), positions)
            columns.append(to_values(both.take(pa.array(index))))
        return list(map(made, *columns))

    def reload(self, key: int) -> Any:
        """A new object with the state of one key."""
        return self.load(np.array([key]))[0]

    def store(self, batch: Batch, keys: list[pa.Array], schema: pa.Schema) -> pa.Table:
        """The states after the calls. A state that is as the initial one is not stored."""
        names, spec = self.spec.state.names, self.spec
        if not names:
            return schema.empty_table()
        get = attrgetter(*names)
        values = (
            [get(s) for s in batch.states] if len(names) > 1 else [(get(s),) for s in batch.states]
        )
        given = zip(spec.state, spec.initial_values, strict=True)
        first = tuple(field_converter(field)(value) for field, value in given)
        # As text, -0.0 is not 0.0, which is not the same to a function, and NaN is NaN.
        text = repr(first)
        has_nan = "nan" in text
        changed = [
            at
            for at, value in enumerate(values)
            if (value != first and not has_nan) or repr(value) != text
        ]
        columns = list(zip(*(values[at] for at in changed), strict=True)) or [()] * len(names)
        arrays = [
            from_values(list(column), field, what="state")
            for column, field in zip(columns, spec.state, strict=True)
        ]
        index = pa.array(np.array(changed, np.int64))
        return pa.table([*(key.take(index) for key in keys), *arrays], schema=schema)
