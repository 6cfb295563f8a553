"""The fold of an event log to the state of each entity."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from streamops.kernel.columns import combine_chunks, key_codes, take
from streamops.kernel.errors import FunctionError
from streamops.kernel.groups import Groups
from streamops.kernel.hashing import xxhash64
from streamops.kernel.parameters import require_columns, require_keys
from streamops.kernel.values import same
from streamops.process.core.calls import function_error
from streamops.process.core.values import converters, make_rows, row_type, to_rows, to_values
from streamops.sourcing import conditions


class Record:
    """Named tuples whose values have their declared types: the states, or the events, of an operator.

    Parameters
    ----------
    schema : Schema
        The fields.
    name, what : str
        Name of the named tuple, and what it is, for errors.
    """

    def __init__(self, schema: pa.Schema, name: str, *, what: str) -> None:
        self.type = row_type(tuple(schema.names), name)
        self._convert = list(converters(schema, what=what).values())
        self._is_nested = any(pa.types.is_nested(field.type) for field in schema)

    def of(self, values: Sequence[Any]) -> Any:
        """The named tuple of these values, each of which is converted."""
        pairs = zip(self._convert, values, strict=True)
        return tuple.__new__(self.type, [convert(value) for convert, value in pairs])

    def lend(self, record: Any) -> Any:
        """The same for a function, which may change a list or dict without an effect."""
        return self.of(record) if self._is_nested else record

    def evolve(self, function: Callable[[Any, Any], Any], state: Any, event: Any) -> Any:
        """The next state, as it is stored."""
        after = function(state, event)
        if type(after) is not self.type:
            raise conditions.OUTPUT_ROW.error(got=f"a value of type {type(after).__name__}")
        return self.of(after)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldSpec:
    """Parameters of a fold.

    Parameters
    ----------
    evolve : callable
        From a state and an event to the next state.
    upcast : callable, optional
        From an event of the log to an event of the current schema.
    by : tuple of str
        Key columns: the entity.
    version : str
        Column with the number of an event in its entity.
    state : Schema
        Fields of the state.
    initial : tuple of (name, value)
        Values of the state of a new entity.
    """

    evolve: Callable[[Any, Any], Any]
    upcast: Callable[[Any], Any] | None
    by: tuple[str, ...]
    version: str
    state: pa.Schema
    initial: tuple[tuple[str, Any], ...]

    def output(self, log: pa.Schema) -> pa.Schema:
        """Keys, version and state: the columns of a snapshot.

        Raises
        ------
        SchemaError, ColumnNotFound
            A column of the log is missing, or does not have a suitable type.
        """
        required = {"by": self.by, "version": [self.version]}
        require_columns(log.names, required)
        require_keys(log, self.by)
        if not pa.types.is_integer(log.field(self.version).type):
            raise conditions.COLUMN_TYPE.error(
                column=self.version, got=f"{self.version!r} of type {log.field(self.version).type}"
            )
        keys = [log.field(name) for name in self.by]
        fields = [pa.field(part.name, part.type) for part in self.state]
        return pa.schema([*keys, (self.version, pa.int64()), *fields])


def fold(spec: FoldSpec, log: pa.Table, before: pa.Table | None = None) -> pa.Table:
    """The state of each entity after its last event, from the beginning or from a snapshot."""
    output = spec.output(log.schema)
    before = output.empty_table() if before is None else before
    keys = [
        pa.concat_arrays([combine_chunks(part.column(name)) for part in (before, log)])
        for name in spec.by
    ]
    groups, firsts = Groups.of(key_codes(keys, len(before) + len(log)))
    of_before, of_log = np.split(groups.ids, [len(before)])
    columns = [key.take(pa.array(firsts)) for key in keys]
    hashes = xxhash64(columns).view(np.uint64) if columns else np.zeros(1, np.uint64)

    record = Record(spec.state, "State", what="state")
    given = dict(spec.initial)
    first = [given.get(name) for name in spec.state.names]
    # No two of them share a list.
    states = [record.of(first) for _ in range(groups.count)]
    versions = [0] * groups.count
    stored = make_rows(
        record.type, zip(*map(to_values, before.select(spec.state.names).columns), strict=True)
    )
    numbers = to_values(before.column(spec.version))
    for entity, version, state in zip(of_before.tolist(), numbers, stored, strict=True):
        versions[entity], states[entity] = version, state

    last: dict[int, int] = {}  # the row of the last event of each entity
    missing = log.column(spec.version).null_count
    if missing:
        raise conditions.EVENT_WITHOUT_VERSION.error(got=f"{missing} events without one")
    order = np.lexsort(
        (np.asarray(combine_chunks(log.column(spec.version)).cast(pa.int64())), of_log)
    )
    ordered = take(log, order)
    at = log.column_names.index(spec.version)
    for row, (entity, event) in enumerate(
        zip(of_log[order].tolist(), to_rows(ordered), strict=True)
    ):
        version = event[at]
        if version <= versions[entity]:
            # `evolve` may have changed a list of the first one: both are read once more.
            rows = np.array([last.get(entity, row), row])
            if version == versions[entity] and not same(*to_rows(take(ordered, rows))):
                got = f"version {version} twice, for the key with hash {int(hashes[entity]):016x}"
                raise conditions.VERSION_TWICE.error(got=got)
            continue  # delivered twice, or part of the snapshot
        if version != versions[entity] + 1:
            got = f"version {version} after {versions[entity]}, for the key with hash "
            got += f"{int(hashes[entity]):016x}"
            raise conditions.EVENT_MISSING.error(got=got)
        try:
            current = event if spec.upcast is None else spec.upcast(event)
            state = record.evolve(spec.evolve, states[entity], current)
        except FunctionError:
            raise
        except Exception as error:
            raise function_error(error, int(hashes[entity])) from None
        states[entity], versions[entity], last[entity] = state, version, row
    values = list(zip(*states, strict=True)) or [()] * len(spec.state.names)
    arrays = [pa.array(part, column.type) for part, column in zip(values, spec.state, strict=True)]
    numbers = pa.array(versions, pa.int64())
    return pa.table([*columns, numbers, *arrays], schema=output)
