"""The bases of an operator: its parameters, and its algorithm for all keys of one shard.

An operator is a pure function over (spec, state, inputs, watermark). Spark's streaming queries, Spark's
batch jobs and the replay of the test kit call the same functions. States are values: nothing mutates a
state after a function returned it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from typing import Any, ClassVar, Generic, Protocol, Self, TypeVar

import pyarrow as pa

from streamops.kernel.columns import conform
from streamops.kernel.core import (
    SIDES,
    Identity,
    Input,
    Metrics,
    SideName,
    State,
    StateFormat,
    Step,
)
from streamops.kernel.errors import located
from streamops.kernel.lag import LAG
from streamops.kernel.parameters import (
    require_columns,
    require_instant,
    require_keys,
    require_name,
    show_duration,
)
from streamops.kernel.placement import BY_KEY, EVERYWHERE, Placement, Rule
from streamops.kernel.segments import UNMERGED
from streamops.kernel.time import AFTER_ALL

_CHECKPOINTED = "checkpointed"


class WithInput(Protocol):
    """Parameters that have the columns of their input."""

    @property
    def input(self) -> pa.Schema:
        """The columns."""


def as_json(spec: Spec, value: object) -> object:
    """A value in the identity of a checkpoint: tuples are lists."""
    return [as_json(spec, item) for item in value] if isinstance(value, tuple) else value


def with_types(spec: WithInput, names: tuple[str, ...]) -> list[list[str]]:
    """Columns of the input in the identity of a checkpoint: their names and types."""
    return [[name, str(spec.input.field(name).type)] for name in names]


def checkpointed(
    convert: Callable[[Any, Any], object] = as_json,
    metadata: Mapping[str, object] | None = None,
    *,
    default: Any = MISSING,
    repr: bool = True,
) -> Any:
    """A field of a spec that the state depends on: a checkpoint is refused if its value changes.

    Parameters
    ----------
    convert : callable
        From the spec and the value to what the checkpoint has: the value, or ``with_types``.
    metadata : mapping, optional
        Further metadata of the field.
    default, repr
        As of ``dataclasses.field``.
    """
    marked = {**(metadata or {}), _CHECKPOINTED: convert}
    return field(default=default, repr=repr, metadata=marked)


class Spec:
    """The parameters of an operator, as a frozen dataclass.

    A public function builds it from its arguments, and validates them. ``resolve`` checks it against the
    columns of the frames, and fills in the fields that depend on them. The algorithm reads the result.
    """

    __slots__ = ()
    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def inputs(self) -> tuple[Input, ...]:
        """One input, or the left and the right one."""
        raise NotImplementedError

    @property
    def output(self) -> pa.Schema:
        """Columns of the output: results and side output. Resolved."""
        raise NotImplementedError

    def resolve(
        self, schemas: Sequence[pa.Schema], *, carried: Sequence[int | None], shards: int
    ) -> Spec:
        """Resolve the parameters against the schemas of the inputs.

        ``carried`` has the delays, in microseconds, of watermarks that the frames bring. An input
        with such a watermark has no delay in the result.
        """
        raise NotImplementedError

    @property
    def identity(self) -> Identity:
        """Parameters that the state depends on, as JSON: a checkpoint is refused if one changes.

        By default, these are the fields that :func:`checkpointed` marks, by the names of the parameters.
        """
        marked = {
            of: of.metadata[_CHECKPOINTED] for of in fields(self) if _CHECKPOINTED in of.metadata
        }
        found = {
            of.metadata.get("parameter", of.name): convert(self, getattr(self, of.name))
            for of, convert in marked.items()
        }
        return found | ({"is_last": True} if self.is_last else {})

    @property
    def origins(self) -> Mapping[str, tuple[int, str]]:
        """Output columns with values of an input column, or lists of them: which input and column."""
        return {name: (0, name) for name in self.inputs[0].by if name in self.output.names}

    @property
    def event_time(self) -> str | None:
        """Column of the output with its event time: by default, that of the first input."""
        time = self.inputs[0].time
        return time if time in self.output.names and not self.is_last else None

    @property
    def lag(self) -> int:
        """How far Spark's watermark must lie behind the watermark of the operator, in microseconds.

        Rows this far back can still be accepted, and results this far back are still emitted.
        """
        return self.held_back

    def lag_of(self, identity: Identity) -> int:
        """The lag of an operator with this identity, whose state this one can continue."""
        return self.lag

    @property
    def held_back(self) -> int:
        """The part of ``lag`` by which results that are on time lie behind the operator's watermark.

        The next operator in a chain has so much less room for late rows.
        """
        return 0

    @property
    def is_last(self) -> bool:
        """Whether results that are held back lie behind the watermark that the input brings.

        No operator with event time may follow then, so the output has none.
        """
        return False

    def as_last(self) -> Spec:
        """The operator behind a watermark without room for results that it holds back."""
        return self

    @property
    def times(self) -> tuple[str | None, ...]:
        """The event-time column of each input."""
        return tuple(of.time for of in self.inputs)

    @property
    def reads(self) -> tuple[tuple[str, ...], ...]:
        """The columns of each input whose values are compared or computed with."""
        return tuple((*of.by, *of.columns) for of in self.inputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSpec(Spec):
    """Parameters of an operator with one input: the base of those of your own.

    A subclass is a frozen dataclass (``@dataclass(frozen=True, kw_only=True)``). It adds fields, defines
    ``output``, and overrides ``identity`` if its state depends on these fields.

    Parameters
    ----------
    operator : str
        Name of the operator, for errors and as the name of its metrics.
    by : tuple of str
        Key columns. Rows with equal keys are in one shard.
    time : str, optional
        Event-time column. None if the operator works without event time.
    delay : int, optional
        Delay of the watermark that the operator defines, in microseconds.
    input : Schema
        Resolved: the columns of the frame.
    is_last : bool
        Resolved: see :attr:`Spec.is_last`.
    """

    operator: str = field(repr=False)
    by: tuple[str, ...] = checkpointed(with_types)
    time: str | None = checkpointed(default=None)
    delay: int | None = field(default=None, metadata={"shown": show_duration})
    input: pa.Schema = field(default=pa.schema([]), repr=False)
    is_last: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        with located("process.per_shard"):
            require_name(self.operator, parameter="operator")
        for name in self.by:
            with located(self.operator):
                require_name(name, parameter="by")

    @property
    def columns(self) -> tuple[str, ...]:
        """Further columns that the operator reads. Override it to have them checked."""
        return ()

    def resolve(
        self, schemas: Sequence[pa.Schema], *, carried: Sequence[int | None], shards: int
    ) -> Self:
        """Resolve the columns against the schema of the frame."""
        (schema,) = schemas
        required = {"by": self.by, "time": [self.time], "columns": self.columns}
        require_columns(schema.names, required)
        require_keys(schema, self.by)
        read = {*self.by, *self.columns}
        if self.time is not None:
            require_instant(schema, self.time)
            read.add(self.time)
        read = read or {schema.names[0]}  # rows without columns cannot be counted
        columns = pa.schema([column for column in schema if column.name in read])
        return replace(self, input=columns, delay=None if carried[0] is not None else self.delay)

    def as_last(self) -> Self:
        """The operator behind a watermark without room for results that it holds back."""
        return replace(self, is_last=True)

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The input."""
        return (Input(self.by, self.time, self.input, self.delay, self.columns),)


S = TypeVar("S", bound=Spec)


@dataclass(frozen=True, slots=True)
class Table:
    """A table of a state.

    Parameters
    ----------
    schema : callable
        From the spec to the columns of the table; None if an operator with this spec does not have it.
        Key columns are ``key.0``, ``key.1``, ….
    placement : ByKey, Greatest or Everywhere
        Which shard its rows belong to.
    """

    schema: Callable[[Any], pa.Schema | None]
    placement: Rule = BY_KEY


class Core(Generic[S]):
    """The algorithm of an operator over the columns of all keys of a shard.

    A subclass defines ``STATE``, ``TABLES`` and ``step``; with event time, ``next_deadline``, too.

    Attributes
    ----------
    STATE : StateFormat
        Name and version of the state.
    TABLES : mapping of str to Table
        The tables of the state by name.
    PLACEMENT : Placement
        How states are placed on shards, beyond the rules of their tables.
    METRICS_TYPE : type
        The class of the metrics of a step.
    METRICS : mapping of str to str
        The observed metrics: names, and fields of the metrics that they show.
    STEPS_WITHOUT_ROWS : bool
        Whether a step without rows emits output though no deadline has passed.
    RETAINED_BYTES : int
        How much a worker retains of the decoded states of its shards for their next steps: for states that
        take longer to decode than to compare.
    """

    STATE: ClassVar[StateFormat]
    TABLES: ClassVar[Mapping[str, Table]] = {}
    PLACEMENT: ClassVar[Placement] = Placement()
    METRICS_TYPE: ClassVar[type[Any]] = Metrics
    METRICS: ClassVar[Mapping[str, str]] = {name: name for name in Metrics.__dataclass_fields__}
    STEPS_WITHOUT_ROWS: ClassVar[bool] = False
    RETAINED_BYTES: ClassVar[int] = 0

    @property
    def placement(self) -> Placement:
        """How states are placed on shards."""
        rules = {LAG: EVERYWHERE} | {name: table.placement for name, table in self.TABLES.items()}
        if self.STATE.segmented:
            rules[UNMERGED] = BY_KEY
        return replace(self.PLACEMENT, tables=rules)

    def layout(self, spec: S) -> dict[str, pa.Schema]:
        """Schemas of the tables of the state."""
        schemas = {name: table.schema(spec) for name, table in self.TABLES.items()}
        return {name: schema for name, schema in schemas.items() if schema is not None}

    def has_segments(self, spec: S) -> bool:
        """Whether rows of a large state are stored apart, see :mod:`streamops.kernel.segments`.

        Then ``STATE`` is ``segmented``, and ``step`` and ``finish`` also accept a state with the table
        ``_unmerged``.
        """
        return False

    def pack(self, spec: S, rows: pa.Table, side: SideName = "left") -> pa.Table:
        """Prepare rows of one input for ``step``, before the shuffle and without state."""
        return conform(rows, spec.inputs[SIDES.index(side)].schema)

    def step(
        self, spec: S, state: State, inputs: Sequence[pa.Table], watermark: int | None
    ) -> Step:
        """Process one micro-batch.

        ``inputs`` has the packed rows of each input. Rows are late by ``state.watermark``, the
        watermark of the step before, and windows close by ``watermark``. It is None if there is no
        watermark yet, and always without event time.
        """
        raise NotImplementedError

    def adapt(
        self,
        spec: S,
        stored: Identity,
        tables: Mapping[str, pa.Table],
        watermark: int | None,
    ) -> Mapping[str, pa.Table]:
        """The tables of a state that was written with other parameters, as far as these may change.

        :mod:`streamops.kernel.adapting` has what may change. ``watermark`` is that of the state; ``tables`` are
        those of the state, or the one of a segment.
        """
        return tables

    def attune(
        self, spec: S, state: State, inputs: Sequence[pa.Table]
    ) -> tuple[S, State, Sequence[pa.Table]]:
        """What the next step, or ``finish``, works with, if the state was adapted before."""
        return spec, state, inputs

    def finalize(self, spec: S, until: int) -> S:
        """The parameters for a step in which rows up to an instant are final, see :mod:`streamops.kernel.lag`.

        By default they change nothing: no result of the operator lies behind its watermark.
        """
        return spec

    def settle(self, spec: S, state: State) -> State:
        """The state to store after such a step, with the parameters of the step."""
        return state

    def begin(self, spec: S, state: State, rows: pa.Table) -> State:
        """The state with packed rows of the right input that are there before the first micro-batch.

        Only operators that start with the rows of a frame define it.
        """
        raise NotImplementedError

    def finish(self, spec: S, state: State) -> pa.Table:
        """Results that are still pending when the stream ends: those of a step at the end of time."""
        if _end_of_time(spec) is None:
            return spec.output.empty_table()
        return self.step(spec, state, self.no_rows(spec), AFTER_ALL).output

    def run(self, spec: S, inputs: Sequence[pa.Table]) -> Step:
        """The batch result: one step over all packed rows at the end of time. Nothing is late."""
        return self.step(spec, State.empty(self.layout(spec)), inputs, _end_of_time(spec))

    def next_deadline(self, spec: S, state: State) -> int | None:
        """The watermark at which a step without rows has something to do. By default, there is none."""
        return None

    def check(self, spec: S, state: State) -> None:
        """Fail and print the state if an invariant is violated. By default, there is none."""

    def no_rows(self, spec: S) -> list[pa.Table]:
        """The packed rows of inputs without rows."""
        sides = zip(spec.inputs, SIDES, strict=False)
        return [self.pack(spec, of.schema.empty_table(), side) for of, side in sides]


def _end_of_time(spec: Spec) -> int | None:
    """The watermark of a batch; None without event time."""
    return None if all(of.time is None for of in spec.inputs) else AFTER_ALL
