"""The contract of a core: Arrow tables in, Arrow tables out, for all keys of one shard.

An operator is a pure function of (spec, state, rows, watermark). A *core* is a module of such
functions. Spark, the batch engine and the replay of the test kit all call the same core. A
*summary* is the contract of the state per group: aggregates and sketches implement it.

States are immutable: a returned state is never modified.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from streamops.kernel.groups import Groups

__all__ = [
    "Aggregation",
    "Core",
    "Counts",
    "Spec",
    "State",
    "StateFormat",
    "Step",
    "Summary",
    "aggregate_identity",
    "merges_exactly",
]


@dataclass(frozen=True, slots=True)
class StateFormat:
    """Name and version of a state layout, written into every checkpoint."""

    kind: str
    version: int


@dataclass(frozen=True, slots=True)
class State:
    """The state of one shard of an operator.

    Parameters
    ----------
    watermark : int, optional
        The operator's watermark after the last step, in microseconds. Rows of the next step are
        compared with it to decide whether they are late, as Spark does.
    tables : mapping of str to Table
        The state tables by name, with the schemas of ``Core.layout``.
    """

    watermark: int | None
    tables: Mapping[str, pa.Table]

    @property
    def rows(self) -> int:
        """The number of rows in all state tables."""
        return sum(table.num_rows for table in self.tables.values())


@dataclass(frozen=True, slots=True)
class Counts:
    """Exact metrics of a step: numbers of rows, unless stated otherwise.

    Parameters
    ----------
    rows : int
        Input rows, including rejected ones.
    rejected : int
        Rows without a usable event time: null, or outside the years 1 to 9999.
    on_time, stragglers, too_late : int
        Pairs of a row and a window, by the time at which the row arrived: before the window
        closed; after it closed, within the allowed lateness; beyond the allowed lateness. In
        tumbling windows every row is one pair.
    results : int
        Results published for the first time.
    corrections : int
        Results published again with another value.
    """

    rows: int = 0
    rejected: int = 0
    on_time: int = 0
    stragglers: int = 0
    too_late: int = 0
    results: int = 0
    corrections: int = 0

    def __add__(self, other: Counts) -> Counts:
        result_type = type(other) if isinstance(other, type(self)) else type(self)
        if not issubclass(result_type, type(other)):
            return NotImplemented
        names = [field_.name for field_ in fields(result_type)]
        return result_type(**{n: getattr(self, n, 0) + getattr(other, n, 0) for n in names})


@dataclass(frozen=True, slots=True)
class Step:
    """The result of one step.

    Parameters
    ----------
    state : State
        The state for the next step.
    emitted : Table
        Results, in the output schema of the spec.
    late : Table
        Late rows, in the same schema.
    counts : Counts
        Metrics of the step.
    """

    state: State
    emitted: pa.Table
    late: pa.Table
    counts: Counts = field(default_factory=Counts)


class Summary(Protocol):
    """The state of an aggregate, vectorised over all groups of a shard.

    ``update`` computes states from rows, ``merge`` combines states. Merging is commutative and
    associative, and merging with an empty state changes nothing. A state is a list of arrays,
    one per field, with one entry per group.

    A summary has an attribute ``merges_exactly`` that is false if its estimate depends on the
    order in which states are merged: a published result cannot be recomputed from parts.
    """

    @property
    def inputs(self) -> tuple[str, ...]:
        """Columns that ``update`` reads."""

    @property
    def fields(self) -> tuple[tuple[str, pa.DataType], ...]:
        """Names and types of the state columns."""

    @property
    def result(self) -> pa.DataType:
        """Type of the estimate."""

    def update(self, groups: Groups, rows: pa.Table) -> list[pa.Array]:
        """Return the states of the groups, computed from their rows."""

    def merge(self, groups: Groups, states: Sequence[pa.Array]) -> list[pa.Array]:
        """Return the states of the groups, merged from the states of their members."""

    def estimate(self, states: Sequence[pa.Array]) -> pa.Array:
        """Return the value of every state."""


def merges_exactly(summary: Summary) -> bool:
    """Whether the estimate is independent of the order in which states are merged."""
    return bool(getattr(summary, "merges_exactly", True))


def aggregate_identity(name: str, description: str, summary: Summary, rows: pa.Schema) -> list[str]:
    """Return the part of ``Spec.identity`` that describes one aggregate.

    It contains the types of the state columns. A sketch, also one that another summary wraps as
    its ``sketch``, stores hashes of values only, so its format, its parameters and the types of
    its inputs are included, too.
    """
    parts = [name, description, *(f"{column} {dtype}" for column, dtype in summary.fields)]
    sketch: Any = summary
    while hasattr(sketch, "sketch"):
        sketch = sketch.sketch
    if not hasattr(sketch, "format"):
        return parts
    inputs = [f"{source} {rows.field(source).type}" for source in summary.inputs]
    parameters = [f"{key}={value!r}" for key, value in sorted(sketch.parameters.items())]
    return [*parts, f"{sketch.format.kind} {sketch.format.version}", *parameters, *inputs]


class Aggregation(Protocol):
    """An aggregate as a user writes it, before it is resolved against a schema.

    Its ``repr`` is written into the checkpoint and identifies the aggregate.
    """

    native: ClassVar[bool]
    """Whether Spark can compute it by ``to_spark``, in bounded memory."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that it reads besides the event time."""

    def bind(self, schema: pa.Schema, *, time: str, where: str) -> Summary:
        """Return the summary that computes it over columns of these types."""

    def to_spark(self, *, time: str | None = None) -> Any:
        """Return the equivalent Spark expression; windows use it only if ``native`` is true."""


class Spec(Protocol):
    """The parameters of an operator, resolved against the schema of its input."""

    @property
    def by(self) -> tuple[str, ...]:
        """Key columns."""

    @property
    def time(self) -> str:
        """Event-time column."""

    @property
    def input(self) -> pa.Schema:
        """Columns that ``Core.pack`` reads."""

    @property
    def output(self) -> pa.Schema:
        """Schema of the output."""

    @property
    def origins(self) -> Mapping[str, str]:
        """Output columns that contain values of an input column, or lists of them, and its name."""

    @property
    def event_time(self) -> str:
        """Event-time column of the output."""

    @property
    def delay(self) -> int | None:
        """Delay of the operator's watermark; None if the frame already has a watermark."""

    @property
    def lag(self) -> int:
        """How far Spark's watermark must stay behind the operator's own, in microseconds.

        Rows this old can still be accepted, and results this old can still be emitted.
        """

    @property
    def identity(self) -> Mapping[str, Any]:
        """Parameters that the state depends on: changing one makes a checkpoint unreadable."""


class Core(Protocol):
    """The algorithm of an operator: a module of pure functions."""

    STATE: StateFormat

    def layout(self, spec: Any) -> Mapping[str, pa.Schema]:
        """Return the schemas of the state tables by name."""

    def pack(self, spec: Any, rows: pa.Table) -> pa.Table:
        """Prepare the rows for ``step``: stateless, executed before the shuffle."""

    def empty(self, spec: Any) -> State:
        """Return the state before the first step."""

    def step(self, spec: Any, state: State, packed: pa.Table, watermark: int | None) -> Step:
        """Process a micro-batch: rows late by ``state.watermark``, results due by ``watermark``."""

    def finish(self, spec: Any, state: State) -> pa.Table:
        """Return the results that are still open when the stream ends."""

    def run(self, spec: Any, packed: pa.Table) -> pa.Table:
        """Return the batch result over all packed rows: one step, then finish. Nothing is late."""

    def next_deadline(self, spec: Any, state: State) -> int | None:
        """Return the watermark at which the next step has output even without rows."""

    def check(self, spec: Any, state: State) -> None:
        """Raise an AssertionError that shows the state if an invariant is violated."""
