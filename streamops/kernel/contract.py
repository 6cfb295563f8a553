"""The contract of a core: columns in, columns out, for all keys of one shard.

An operator is a pure function over (spec, state, rows, watermark). A *core* is a module of
such functions; Spark, the batch path and the replay of the test kit are three ways to call
it. A *summary* is the smaller contract of what is kept per group: aggregates, sketches.

States are values: nobody changes one after it was returned.
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
    """Name and version of a layout of state, as written into every checkpoint."""

    kind: str
    version: int


@dataclass(frozen=True, slots=True)
class State:
    """What a core remembers about the keys of one shard.

    Parameters
    ----------
    watermark : int, optional
        The operator's own watermark at the last step, in microseconds. Rows are judged by
        it, as Spark judges the rows of a micro-batch by the watermark of the one before.
    tables : mapping of str to Table
        The columns, under the names that ``Core.layout`` declares.
    """

    watermark: int | None
    tables: Mapping[str, pa.Table]

    @property
    def rows(self) -> int:
        """Entries kept, over all tables."""
        return sum(table.num_rows for table in self.tables.values())


@dataclass(frozen=True, slots=True)
class Counts:
    """What happened in a step, exactly. Rows, unless stated otherwise.

    Parameters
    ----------
    rows : int
        Rows that came in, good and bad.
    rejected : int
        Rows that no operator can place: event time null, or outside years 1 to 9999.
    on_time, stragglers, too_late : int
        Pairs (row, window) by how they were judged when the row came: before the window was
        on time; after it, within the allowed lateness; beyond it. In tumbling windows a row
        is one pair.
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
        kind = type(other) if isinstance(other, type(self)) else type(self)
        if not issubclass(kind, type(other)):
            return NotImplemented
        names = [each.name for each in fields(kind)]
        return kind(**{n: getattr(self, n, 0) + getattr(other, n, 0) for n in names})


@dataclass(frozen=True, slots=True)
class Step:
    """What one step leaves behind.

    Parameters
    ----------
    state : State
        For the next step.
    emitted : Table
        Results, in the spec's output schema.
    late : Table
        Rows delivered as late, in the same schema.
    counts : Counts
        What happened.
    """

    state: State
    emitted: pa.Table
    late: pa.Table
    counts: Counts = field(default_factory=Counts)


class Summary(Protocol):
    """What is kept per group: vectorised over all groups of a shard.

    ``update`` makes fresh states from rows, ``merge`` makes one state of many. Merging is
    commutative and associative, and a state merged with an empty one is itself. A state is a
    list of arrays, one per field, one entry per group.

    A summary whose states, merged in another way, may say something else has an attribute
    ``merges_exactly`` that is false: what it said once cannot be computed again from parts.
    """

    @property
    def inputs(self) -> tuple[str, ...]:
        """Columns that ``update`` reads."""

    @property
    def fields(self) -> tuple[tuple[str, pa.DataType], ...]:
        """Columns of the state: name and type."""

    @property
    def result(self) -> pa.DataType:
        """Type of the estimate."""

    def update(self, groups: Groups, rows: pa.Table) -> list[pa.Array]:
        """States of the groups over their rows."""

    def merge(self, groups: Groups, states: Sequence[pa.Array]) -> list[pa.Array]:
        """States of the groups over their members' states."""

    def estimate(self, states: Sequence[pa.Array]) -> pa.Array:
        """The value that each state stands for."""


def merges_exactly(summary: Summary) -> bool:
    """Whether its states say the same however they were merged, as those of most do."""
    return bool(getattr(summary, "merges_exactly", True))


def aggregate_identity(name: str, words: str, summary: Summary, rows: pa.Schema) -> list[str]:
    """What a state depends on for the sake of one aggregate: for ``Spec.identity``.

    The columns of a state say of which type its values are; but a sketch (or one that another
    summary is around, as its ``sketch``) keeps hashes of them. So its format and parameters are
    said as well, and the types of what it reads.
    """
    said = [name, words, *(f"{part} {kind}" for part, kind in summary.fields)]
    sketch: Any = summary
    while hasattr(sketch, "sketch"):
        sketch = sketch.sketch
    if not hasattr(sketch, "format"):
        return said
    of = [f"{column} {rows.field(column).type}" for column in summary.inputs]
    parameters = [f"{key}={value!r}" for key, value in sorted(sketch.parameters.items())]
    return [*said, f"{sketch.format.kind} {sketch.format.version}", *parameters, *of]


class Aggregation(Protocol):
    """An aggregate as a user names it, before it meets a schema.

    Its ``repr`` is written into the checkpoint: the same words, the same aggregate.
    """

    native: ClassVar[bool]
    """Whether Spark does the same by ``to_spark``, in bounded memory, so that it may."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns it reads, beside the event time."""

    def bind(self, schema: pa.Schema, *, time: str, where: str) -> Summary:
        """The summary that computes it over columns of these types."""

    def to_spark(self, *, time: str | None = None) -> Any:
        """The same as a Spark expression; not asked for by windows unless it is native."""


class Spec(Protocol):
    """An operator's settings, bound to the schema of its input."""

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
        """Columns of what is emitted."""

    @property
    def origins(self) -> Mapping[str, str]:
        """Columns of the output that hold values of one of the input, or lists of them: which one."""

    @property
    def event_time(self) -> str:
        """Column of the output that carries its event time."""

    @property
    def delay(self) -> int | None:
        """Delay of the operator's own watermark; None: the frame brings one."""

    @property
    def lag(self) -> int:
        """How far Spark's watermark must lie behind the operator's own, in microseconds.

        Rows this far back can still be accepted, and results this far back still come out.
        """

    @property
    def identity(self) -> Mapping[str, Any]:
        """Parameters that a checkpoint depends on: changing one makes its state unreadable."""


class Core(Protocol):
    """The algorithm of an operator: a module of pure functions."""

    STATE: StateFormat

    def layout(self, spec: Any) -> Mapping[str, pa.Schema]:
        """Columns of the state's tables."""

    def pack(self, spec: Any, rows: pa.Table) -> pa.Table:
        """What ``step`` wants of the rows: stateless, and done before rows are shuffled."""

    def empty(self, spec: Any) -> State:
        """The state before the first step."""

    def step(self, spec: Any, state: State, packed: pa.Table, watermark: int | None) -> Step:
        """One micro-batch: judge the rows by ``state.watermark``, close by ``watermark``."""

    def finish(self, spec: Any, state: State) -> pa.Table:
        """What is still open when the stream is over."""

    def run(self, spec: Any, packed: pa.Table) -> pa.Table:
        """The batch result over all packed rows: one step, then finish. Nothing is late."""

    def next_deadline(self, spec: Any, state: State) -> int | None:
        """Watermark at which the next step has something to do even without rows."""

    def check(self, spec: Any, state: State) -> None:
        """Fail, printing the state, if an invariant does not hold."""
