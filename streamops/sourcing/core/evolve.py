"""States and events of an entity, with the values that are stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from streamops.process.core.values import converters, row_type
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
