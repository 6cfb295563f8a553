"""The contract of aggregates and sketches.

An *aggregation* is an aggregate as a user writes it. Resolved against a schema it is a *summary*,
which computes the state of all groups of a shard at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from streamops.kernel.groups import Groups


class Summary(Protocol):
    """The state of an aggregate, vectorised over all groups of a shard.

    ``update`` computes states from rows, ``merge`` combines states. Merging is commutative and
    associative, and merging with an empty state changes nothing. A state is a list of arrays,
    one per field, with one entry per group.

    A summary has an attribute ``merges_exactly`` that is false if its estimate depends on the
    order in which states are merged, so an emitted result cannot be recomputed from parts.
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

    def bind(self, schema: pa.Schema, *, time: str) -> Summary:
        """Return the summary that computes it over columns of these types."""

    def to_spark(self, *, time: str | None = None) -> Any:
        """Return the equivalent Spark expression; windows use it only if ``native`` is true."""
