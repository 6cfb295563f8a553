"""Parameters of functions per key."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

import pyarrow as pa

from streamops.changelog.change_types import CHANGE_TYPE, REVISION
from streamops.kernel.adapting_rows import NOT_NULL
from streamops.kernel.lateness import INSTANT, LATE, late_field
from streamops.kernel.operator import ShardSpec, checkpointed
from streamops.kernel.parameters import (
    refuse_taken_names,
    require_columns,
    require_instant,
    require_keys,
    require_most_keys,
)
from streamops.kernel.values import field_converter
from streamops.process import conditions

Function = Callable[..., Any]
Stragglers = Literal["drop", "route"]
Errors = Literal["fail", "route"]

DEFAULT_MAX_KEYS = 1_000_000


def _fields(_: PerKeySpec, state: pa.Schema) -> list[list[str]]:
    return [[f.name, f"{f.type}{'' if f.nullable else NOT_NULL}"] for f in state]


def _initial(spec: PerKeySpec, _: object) -> list[list[str]]:
    """As :meth:`streamops.process.core.per_key.States.store` compares them."""
    values = zip(spec.state, spec.initial_values, strict=True)
    return [[field.name, repr(field_converter(field)(value))] for field, value in values]


def _waiting(spec: PerKeySpec, rows: pa.Schema) -> list[list[str]]:
    """Columns of rows that wait for the watermark."""
    return [] if spec.time is None else sorted([f.name, str(f.type)] for f in rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class PerKeySpec(ShardSpec):
    """Parameters of a function per key. Durations are microseconds.

    Parameters
    ----------
    operator : str
        Public name of the operator, for errors.
    function, on_timer : callable
        What is called with the rows of a key, and when one of its timers fires.
    by : tuple of str
        Key columns.
    state, result : Schema
        Fields of the state of a key; columns that the function yields.
    initial : tuple of (name, value)
        Values of the state of a new key. The others are None.
    time : str, optional
        Event-time column. None if rows are processed as they arrive.
    order_by : tuple of str
        Columns that order rows of one key and instant.
    expected_version : str, optional
        Column with integers that the function of ``sourcing.decide`` compares.
    delay : int, optional
        Delay of the watermark that the operator defines.
    stragglers, errors : str
        What happens to late rows, and to rows for which the function raises an exception.
    max_keys : int
        Keys whose state is stored, over all shards.
    input : Schema
        Resolved: all columns of the frame.
    limit : int
        Resolved: keys that one shard may store.
    """

    function: Function
    state: pa.Schema = checkpointed(_fields)
    result: pa.Schema = field(metadata={"parameter": "output"})
    initial: tuple[tuple[str, Any], ...] = checkpointed(_initial, default=())
    on_timer: Function | None = checkpointed(lambda _, of: of is not None, default=None)
    operator: str = checkpointed(repr=False)
    order_by: tuple[str, ...] = checkpointed(default=())
    expected_version: str | None = None
    stragglers: Stragglers = "drop"
    errors: Errors = "fail"
    max_keys: int = DEFAULT_MAX_KEYS
    input: pa.Schema = checkpointed(
        _waiting, {"parameter": "columns"}, default=pa.schema([]), repr=False
    )
    limit: int = field(default=0, repr=False)

    def __post_init__(self) -> None:
        require_most_keys(self.max_keys, DEFAULT_MAX_KEYS)
        self._require_event_time()
        self._require_functions()
        if not self.result.names:
            raise conditions.NO_OUTPUT.error(got="output without columns")
        time = [] if self.time is None else [self.time]
        given = {"by": list(self.by), "time": self.time, "output": self.result.names}
        names = [*self.by, *time, *self.result.names]
        refuse_taken_names(names, (LATE, CHANGE_TYPE, REVISION), given)

    def _require_functions(self) -> None:
        arguments = ["key", "rows", "state"]
        if self.on_timer is not None:
            arguments.append("timers")
            _require_function(self.on_timer, ["key", "time", *arguments[2:]], "on_timer", self)
        _require_function(self.function, arguments, "function", self)

    def _require_event_time(self) -> None:
        if self.time is not None:
            return
        given = {
            "order_by": self.order_by or None,
            "delay": self.delay,
            "on_timer": self.on_timer,
            "stragglers": None if self.stragglers == "drop" else self.stragglers,
        }
        for name, value in given.items():
            if value is not None:
                raise conditions.NO_EVENT_TIME.error(parameter=name, got=f"{name}=... without time")

    def resolve(
        self, schemas: Sequence[pa.Schema], *, carried: Sequence[int | None], shards: int
    ) -> Self:
        """Resolve the columns, see :class:`streamops.spark.definition.Parameters`."""
        (schema,) = schemas
        expected = self.expected_version
        required = {"by": self.by, "time": [self.time], "order_by": self.order_by}
        required["expected_version"] = [expected]
        require_columns(schema.names, required)
        dtype = pa.null() if expected is None else schema.field(expected).type
        if not pa.types.is_integer(dtype) and not pa.types.is_null(dtype):
            raise conditions.COLUMN_TYPE.error(column=expected, got=f"{expected!r} of type {dtype}")
        if self.time is not None:
            require_instant(schema, self.time)
        require_keys(schema, self.by)
        return replace(
            self,
            input=schema,
            delay=None if carried[0] is not None else self.delay,
            limit=-(-self.max_keys // shards),
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that order rows of one key and instant."""
        return self.order_by

    @property
    def keys(self) -> list[pa.Field]:
        """Fields of the key columns."""
        return [self.input.field(name) for name in self.by]

    @property
    def initial_values(self) -> list[Any]:
        """The value of each field of the state of a new key."""
        given = dict(self.initial)  # converted where they are loaded
        return [given.get(name) for name in self.state.names]

    @property
    def origins(self) -> Mapping[str, tuple[int, str]]:
        """Columns of the output with values of the input."""
        names = self.by if self.time is None else (*self.by, self.time)
        return {name: (0, name) for name in names}

    @property
    def output(self) -> pa.Schema:
        """Keys, event time, the columns of the function, and the side output."""
        time = [] if self.time is None else [(self.time, INSTANT)]
        side = [late_field(self.input)] if "route" in (self.errors, self.stragglers) else []
        columns = [pa.field(f.name, f.type) for f in self.result]
        return pa.schema([*self.keys, *time, *columns, *side])


def _require_function(
    function: Any, arguments: Sequence[str], parameter: str, spec: PerKeySpec
) -> None:
    """Refuse what is not a generator function with these arguments."""
    expected = f"def {parameter}({', '.join(arguments)}): ... yield ..."
    facts = {"parameter": parameter, "signature": expected}
    if not callable(function):
        got = f"{parameter}={function!r}"
        raise conditions.NOT_A_FUNCTION.error(got=got, **facts)
    got = f"{parameter}={getattr(function, '__qualname__', type(function).__name__)}"
    call = function if inspect.isroutine(function) else getattr(function, "func", function.__call__)
    if not (inspect.isgeneratorfunction(function) or inspect.isgeneratorfunction(call)):
        raise conditions.NOT_A_GENERATOR.error(got=got, **facts)
    try:
        inspect.signature(function).bind(*arguments)
    except TypeError as error:
        got += str(inspect.signature(function))
        raise conditions.OTHER_ARGUMENTS.error(reason=error, got=got, **facts) from error
