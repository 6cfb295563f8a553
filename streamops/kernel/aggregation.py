"""The contract of aggregates and sketches.

An *aggregation* is an aggregate as a user writes it. Resolved against a schema it is a *summary*,
which computes the state of all groups of a shard at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamops.kernel.columns import combine_chunks
from streamops.kernel.groups import Groups, Ints, Mask


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


States = list[pa.Array]


def list_sizes(lists: pa.Array) -> Ints:
    """Return the number of values per list; 0 where null."""
    return np.asarray(pc.list_value_length(lists).fill_null(0)).astype(np.int64)


def make_lists(values: pa.Array, sizes: Ints, missing: Mask | None = None) -> pa.Array:
    """Return lists of the given sizes, null where missing (with size 0).

    Examples
    --------
    >>> make_lists(pa.array([1, 2, 3]), np.array([2, 0, 1]), np.array([False, True, False])).to_pylist()
    [[1, 2], None, [3]]
    """
    # The cast raises an error if there are more values than a list array can contain.
    offsets = pa.array(np.append(0, np.cumsum(sizes))).cast(pa.int32())
    mask = pa.array(missing) if missing is not None and missing.any() else None
    return pa.ListArray.from_arrays(offsets, values, mask=mask)


def merge_groups(
    groups: Groups,
    states: Sequence[pa.Array],
    unite: Callable[[Groups, Sequence[pa.Array]], States],
) -> States:
    """Merge the states of every group by ``unite``; a group of one state is copied.

    In most steps most groups have one state.
    """
    single = groups.sizes() == 1
    if not single.any():
        return unite(groups, states)
    grouped = ~single[groups.ids]
    numbers = np.cumsum(~single) - 1
    subgroups = Groups(numbers[groups.ids[grouped]], groups.count - int(np.count_nonzero(single)))
    merged = unite(subgroups, [state.filter(pa.array(grouped)) for state in states])
    position = len(groups.ids) + numbers
    position[groups.ids[~grouped]] = np.flatnonzero(~grouped)
    index = pa.array(position)
    return [
        pa.concat_arrays([combine_chunks(old), new]).take(index)
        for old, new in zip(states, merged, strict=True)
    ]


def update_all(summaries: Sequence[Summary], groups: Groups, rows: pa.Table) -> States:
    """Return the states of the groups over rows, concatenated for all summaries."""
    return [state for summary in summaries for state in summary.update(groups, rows)]


def merge_all(summaries: Sequence[Summary], groups: Groups, states: Sequence[pa.Array]) -> States:
    """Return the merged states of the groups, concatenated for all summaries."""
    result: States = []
    for summary in summaries:
        width, position = len(summary.fields), len(result)
        result += summary.merge(groups, states[position : position + width])
    return result


def estimate_all(summaries: Sequence[Summary], states: Sequence[pa.Array]) -> States:
    """Return the values of the states, one column per summary."""
    result, position = [], 0
    for summary in summaries:
        width = len(summary.fields)
        result.append(summary.estimate(states[position : position + width]))
        position += width
    return result
