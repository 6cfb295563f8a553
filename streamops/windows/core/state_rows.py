"""Entries of state: what is stored per key and piece of time, as columns.

A table of entries has the columns ``key.0``, ``key.1``, ... (the keys), some columns of its own
that say which piece of time it is about, and ``agg.0.sum``, ... (the states of the aggregates).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamops.kernel import group_states as states
from streamops.kernel.aggregation import merges_exactly
from streamops.kernel.columns import combine_chunks, key_codes, timestamp_micros
from streamops.kernel.groups import Groups, Ids
from streamops.kernel.time import MAX_INSTANT, MIN_INSTANT, Instants
from streamops.windows.core.spec import WindowSpec

__all__ = [
    "estimates",
    "is_order_sensitive",
    "key_fields",
    "keys_of",
    "merge_states",
    "micros",
    "number_keys",
    "state_schema",
    "states_of",
    "update_states",
    "usable_times",
]


def key_fields(spec: WindowSpec) -> list[tuple[str, pa.DataType]]:
    """The columns that hold the keys."""
    return [(f"key.{i}", field.type) for i, field in enumerate(spec.keys)]


def state_schema(spec: WindowSpec, *own: tuple[str, pa.DataType]) -> pa.Schema:
    """Columns of a table of entries with these columns of its own."""
    states = [
        (f"agg.{i}.{name}", dtype)
        for i, summary in enumerate(spec.summaries)
        for name, dtype in summary.fields
    ]
    return pa.schema([*key_fields(spec), *own, *states])


def keys_of(table: pa.Table, spec: WindowSpec) -> list[pa.Array]:
    """Key columns of a table of entries."""
    return [combine_chunks(table.column(f"key.{i}")) for i in range(len(spec.by))]


def number_keys(keys: Sequence[Sequence[pa.Array]], sizes: Sequence[int]) -> list[Ids]:
    """The keys of several tables as numbers, equal where they are equal."""
    columns = [pa.concat_arrays(pieces) for pieces in zip(*keys, strict=True)]
    return np.split(key_codes(columns, sum(sizes)), np.cumsum(sizes)[:-1])


def states_of(table: pa.Table, spec: WindowSpec) -> list[pa.Array]:
    """States of the aggregates in a table of entries."""
    names = [f"agg.{i}.{n}" for i, s in enumerate(spec.summaries) for n, _ in s.fields]
    return [combine_chunks(table.column(name)) for name in names]


def micros(table: pa.Table, name: str) -> Instants:
    """An int64 column without nulls."""
    return np.asarray(combine_chunks(table.column(name)))


def usable_times(spec: WindowSpec, rows: pa.Table) -> tuple[Instants, npt.NDArray[np.bool_]]:
    """Event times in microseconds, and which of them can be placed in a window."""
    times, valid = timestamp_micros(rows.column(spec.time))
    return times, valid & (times >= MIN_INSTANT) & (times <= MAX_INSTANT)


def update_states(spec: WindowSpec, groups: Groups, rows: pa.Table) -> list[pa.Array]:
    """States of the groups over rows."""
    return states.update_all(spec.summaries, groups, rows)


def merge_states(spec: WindowSpec, groups: Groups, members: Sequence[pa.Array]) -> list[pa.Array]:
    """States of the groups over states, those of all aggregates in one row."""
    return states.merge_all(spec.summaries, groups, members)


def is_order_sensitive(spec: WindowSpec) -> bool:
    """Whether values are taken back that tell how states were united: doubles, by their last bits.

    Then they must be united in one way only, or a preimage would not be what was published.
    """
    dtypes = (dtype for summary in spec.summaries for _, dtype in summary.fields)
    is_order_sensitive = any(map(pa.types.is_floating, dtypes)) or not all(
        map(merges_exactly, spec.summaries)
    )
    return spec.retracts and is_order_sensitive


def estimates(spec: WindowSpec, members: Sequence[pa.Array]) -> list[pa.Array]:
    """The values that the states stand for."""
    return states.estimate_all(spec.summaries, members)
