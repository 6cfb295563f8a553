"""Panes: partial aggregates per key and piece of the grid, and their union into windows.

A table of panes has the columns ``key.0``, ``key.1``, ... (the keys), ``pane`` (start of the
pane, microseconds) and ``agg.0.sum``, ... (the states of the aggregates).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from streamops.kernel.columns import concat, instants, key_codes, nulls, one, take
from streamops.kernel.groups import Groups, Ids, pair
from streamops.kernel.time import MAX_INSTANT, MIN_INSTANT, Instants
from streamops.windows.core.spec import Spec

__all__ = ["Windows", "keys_of", "micros", "pane_schema", "partial", "placed", "unite"]


def pane_schema(spec: Spec) -> pa.Schema:
    """Columns of a table of panes."""
    keys = [(f"key.{i}", field.type) for i, field in enumerate(spec.keys)]
    states = [
        (f"agg.{i}.{name}", kind)
        for i, summary in enumerate(spec.summaries)
        for name, kind in summary.fields
    ]
    return pa.schema([*keys, ("pane", pa.int64()), *states])


def keys_of(table: pa.Table, spec: Spec) -> list[pa.Array]:
    """Key columns of a table of this module."""
    return [one(table.column(f"key.{i}")) for i in range(len(spec.by))]


def micros(table: pa.Table, name: str) -> Instants:
    """An int64 column without nulls."""
    return np.asarray(one(table.column(name)))


def placed(spec: Spec, rows: pa.Table) -> tuple[Instants, npt.NDArray[np.bool_]]:
    """Event times in microseconds, and which of them can be placed in a window."""
    times, valid = instants(rows.column(spec.time))
    return times, valid & (times >= MIN_INSTANT) & (times <= MAX_INSTANT)


def partial(spec: Spec, rows: pa.Table) -> pa.Table:
    """Panes of raw rows, with their number in the column ``rows``.

    Rows without a usable event time are only counted: together, under a pane that is null.
    """
    times, valid = placed(spec, rows)
    unplaced = len(valid) - int(np.count_nonzero(valid))
    if unplaced:
        good = np.flatnonzero(valid)
        rows, times = take(rows, good), times[good]
    panes = spec.grid.pane_of(times)
    codes = key_codes([rows.column(name) for name in spec.by], len(rows))
    groups, firsts = Groups.of(pair(codes, panes))
    index = pa.array(firsts)
    keys = [one(rows.column(name)).take(index) for name in spec.by]
    states = [state for summary in spec.summaries for state in summary.update(groups, rows)]
    number = pa.field("rows", pa.int64())
    table = pa.table(
        [*keys, pa.array(panes[firsts]), *states, pa.array(groups.sizes())],
        schema=pane_schema(spec).append(number),
    )
    if not unplaced:
        return table
    return concat([table, nulls(pane_schema(spec), 1).append_column(number, [[unplaced]])])


def merged(spec: Spec, groups: Groups, table: pa.Table) -> list[pa.Array]:
    """States of the groups over the states in the table."""
    result: list[pa.Array] = []
    for i, summary in enumerate(spec.summaries):
        states = [one(table.column(f"agg.{i}.{name}")) for name, _ in summary.fields]
        result += summary.merge(groups, states)
    return result


def unite(spec: Spec, kept: pa.Table, codes: Ids, table: pa.Table) -> tuple[pa.Table, Ids]:
    """Panes of one key and one start become one.

    Parameters
    ----------
    kept : Table
        The panes of before: each of them once. They keep their place.
    codes : array of int64
        The key of each row of ``table``.
    table : Table
        ``kept``, and below it what is new.

    Returns
    -------
    panes : Table
    codes : array of int64
        The key of each of its rows.
    """
    if len(table) == len(kept):
        return kept, codes
    groups, firsts = Groups.of(pair(codes, micros(table, "pane")))
    head = take(table.select([*(f"key.{i}" for i in range(len(spec.by))), "pane"]), firsts)
    return (
        pa.table([*head.columns, *merged(spec, groups, table)], schema=pane_schema(spec)),
        codes[firsts],
    )


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows of one shard, each made of the panes of its key that lie in it.

    Parameters
    ----------
    keys : list of Array
        Key columns, one entry per window.
    codes, numbers : arrays of int64
        Key and number on the grid, one entry per window.
    values : list of Array
        The aggregates.
    """

    keys: list[pa.Array]
    codes: Ids
    numbers: Instants
    values: list[pa.Array]

    @staticmethod
    def of(spec: Spec, panes: pa.Table, codes: Ids, lowest: int, highest: int) -> Windows:
        """All windows numbered from ``lowest`` to ``highest`` that have a pane."""
        rows, numbers = spec.grid.explode(micros(panes, "pane"), lowest, highest)
        return Windows.over(spec, panes, codes, rows, numbers)

    @staticmethod
    def over(
        spec: Spec,
        panes: pa.Table,
        codes: Ids,
        rows: npt.NDArray[np.intp],
        numbers: Instants,
    ) -> Windows:
        """The windows of these pairs (row of ``panes``, number of a window)."""
        members = take(panes, rows)
        if spec.grid.hop == spec.grid.size:  # a window is its only pane
            firsts, states = np.arange(len(rows)), _states(spec, members)
        else:
            groups, firsts = Groups.of(pair(codes[rows], numbers))
            states = merged(spec, groups, members)
        index = pa.array(firsts)
        return Windows(
            keys=[key.take(index) for key in keys_of(members, spec)],
            codes=codes[rows][firsts],
            numbers=numbers[firsts],
            values=_estimates(spec, states),
        )

    def __len__(self) -> int:
        return len(self.numbers)

    def take(self, rows: npt.NDArray[np.intp]) -> Windows:
        """The windows at these positions."""
        index = pa.array(rows)
        return Windows(
            [key.take(index) for key in self.keys],
            self.codes[rows],
            self.numbers[rows],
            [value.take(index) for value in self.values],
        )


def _states(spec: Spec, table: pa.Table) -> list[pa.Array]:
    return [one(column) for column in table.columns[len(spec.by) + 1 :]]


def _estimates(spec: Spec, states: Sequence[pa.Array]) -> list[pa.Array]:
    result, position = [], 0
    for summary in spec.summaries:
        width = len(summary.fields)
        result.append(summary.estimate(states[position : position + width]))
        position += width
    return result
