"""A query with other aggregates than its state has: they are mapped by name.

An aggregate of the same name that is computed otherwise is another one. A state with it is refused, but a segment may be
older than a state in which its name was free.

The state of an aggregate that was added does not know the rows from before. It is *unknown*: its results are null, as are
those of all states that it is merged with, until a window, session or key has only rows from after the change. A state table
has a column ``agg.N.unknown`` as long as some state is unknown. Without the column all are known, so the state of a query
that was never changed does not have it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamops.kernel.aggregation import States, Summary, aggregate_identity, merges_exactly
from streamops.kernel.groups import Groups

UNKNOWN = "unknown"
_PREFIX = "agg."

Tables = Mapping[str, pa.Table]
Aggregates = Sequence[tuple[str, str, Summary]]
"""Name, ``repr`` and implementation of each aggregate."""


@dataclass(frozen=True, slots=True)
class Added:
    """The summary of an aggregate some of whose states are unknown."""

    summary: Summary

    @property
    def merges_exactly(self) -> bool:
        """Whether the estimate is independent of the order in which states are merged."""
        return merges_exactly(self.summary)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Columns that ``update`` reads."""
        return self.summary.inputs

    @property
    def fields(self) -> tuple[tuple[str, pa.DataType], ...]:
        """Those of the summary, and whether the state is unknown."""
        return (*self.summary.fields, (UNKNOWN, pa.bool_()))

    @property
    def result(self) -> pa.DataType:
        """Type of the estimate."""
        return self.summary.result

    def update(self, groups: Groups, rows: pa.Table) -> States:
        """States of rows are known."""
        return [*self.summary.update(groups, rows), pa.repeat(False, groups.count)]

    def merge(self, groups: Groups, states: Sequence[pa.Array]) -> States:
        """A state is unknown if one that it is merged from is."""
        *others, unknown = states
        of = groups.ids[np.asarray(unknown.fill_null(False))]
        merged = np.zeros(groups.count, bool)
        merged[of] = True
        return [*self.summary.merge(groups, others), pa.array(merged)]

    def estimate(self, states: Sequence[pa.Array]) -> pa.Array:
        """The value of every state; null if it is unknown."""
        *others, unknown = states
        return pc.if_else(
            unknown.fill_null(False),
            pa.scalar(None, self.summary.result),
            self.summary.estimate(others),
        )


def have_same_names(stored: Sequence[Sequence[Any]], wanted: Sequence[Sequence[Any]]) -> bool:
    """Whether aggregates of the same name are the same, in two identities.

    Examples
    --------
    >>> have_same_names([["n", "count()"]], [["total", "sum('v')"], ["n", "count()"]])
    True
    >>> have_same_names([["n", "count()"]], [["n", "sum('v')"]])
    False
    """
    before = {entry[0]: list(entry) for entry in stored}
    return all(before.get(entry[0], list(entry)) == list(entry) for entry in wanted)


def map_aggregates(
    stored: Sequence[Sequence[Any]], aggregates: Aggregates, rows: pa.Schema, tables: Tables
) -> dict[str, pa.Table]:
    """The tables with the states of these aggregates instead of the stored ones, mapped by name.

    Parameters
    ----------
    stored : sequence
        The aggregates in the identity of the state.
    aggregates : sequence
        Those that the query computes.
    rows : Schema
        The columns that these read.
    tables : mapping of str to Table
        The state.
    """
    wanted = [aggregate_identity(*of, rows) for of in aggregates]
    numbers = {of[0]: number for number, of in enumerate(stored) if list(of) in wanted}
    return {
        name: _map_table(numbers, aggregates, rows, table) if _numbers(table, "") else table
        for name, table in tables.items()
    }


def _map_table(
    stored: Mapping[str, int], aggregates: Aggregates, rows: pa.Schema, table: pa.Table
) -> pa.Table:
    columns = {name: table.column(name) for name in table.column_names if not _is_state(name)}
    count = table.num_rows
    for number, (name, _, summary) in enumerate(aggregates):
        prefix = f"{_PREFIX}{number}."
        if name in stored:
            before = f"{_PREFIX}{stored[name]}."
            parts = [part for part in table.column_names if part.startswith(before)]
            columns |= {prefix + part.removeprefix(before): table.column(part) for part in parts}
            continue
        groups = Groups(np.empty(0, np.int64), count)
        empty = summary.update(groups, rows.empty_table())
        names = [prefix + field for field, _ in summary.fields]
        columns |= {
            **dict(zip(names, empty, strict=True)),
            prefix + UNKNOWN: pa.repeat(True, count),
        }
    return pa.table(columns)


def unknown_aggregates(tables: Iterable[pa.Table]) -> frozenset[int]:
    """Numbers of the aggregates some of whose states may be unknown."""
    return frozenset(number for table in tables for number in _numbers(table, UNKNOWN))


def mark_known(table: pa.Table, numbers: Iterable[int], summaries: Sequence[Summary]) -> pa.Table:
    """Add the columns of these aggregates to a table of states that has none of them, each behind its states."""
    for number in sorted(numbers):
        names, prefix = table.column_names, f"{_PREFIX}{number}."
        if prefix + summaries[number].fields[0][0] in names and prefix + UNKNOWN not in names:
            last = max(at for at, name in enumerate(names) if name.startswith(prefix))
            known = pa.repeat(False, table.num_rows)
            table = table.add_column(last + 1, prefix + UNKNOWN, known)
    return table


def with_all_unknown(tables: Sequence[pa.Table]) -> list[pa.Table]:
    """Tables of states, of which some have columns of unknown states, with the columns of all of them."""
    found = dict.fromkeys(name for table in tables for name in table.column_names)
    names = [name for name in found if not name.endswith(f".{UNKNOWN}")]
    for unknown in (name for name in found if name not in names):  # each behind its states
        prefix = unknown.removesuffix(UNKNOWN)
        states = [at for at, name in enumerate(names) if name.startswith(prefix)]
        names.insert(max(states) + 1, unknown)
    return [_complete(table, names) for table in tables]


def _complete(table: pa.Table, names: list[str]) -> pa.Table:
    for name in names:
        if name not in table.column_names and name.endswith(f".{UNKNOWN}"):
            table = table.append_column(name, pa.repeat(False, table.num_rows))
    return table.select(names) if {*names} == {*table.column_names} else table


def without_unknown(table: pa.Table) -> pa.Table:
    """A table of states with null for those that are unknown, and without the columns that say so."""
    for number in _numbers(table, UNKNOWN):
        prefix = f"{_PREFIX}{number}."
        unknown = table.column(prefix + UNKNOWN).fill_null(False)
        table = table.drop_columns([prefix + UNKNOWN])
        for at, of in enumerate(table.schema):
            if of.name.startswith(prefix):
                states = pc.if_else(unknown, pa.scalar(None, of.type), table.column(at))
                table = table.set_column(at, of.with_nullable(True), states)
    return table


def drop_known(tables: Tables) -> dict[str, pa.Table]:
    """Remove the columns of aggregates of which no state is unknown any more."""
    for number in unknown_aggregates(tables.values()):
        name = f"{_PREFIX}{number}.{UNKNOWN}"
        having = [table.column(name) for table in tables.values() if name in table.column_names]
        if not any(pc.any(column).as_py() for column in having):
            tables = {
                key: table.drop_columns([name]) if name in table.column_names else table
                for key, table in tables.items()
            }
    return dict(tables)


def _is_state(name: str) -> bool:
    return name.startswith(_PREFIX)


def _numbers(table: pa.Table, field: str) -> set[int]:
    """Numbers of the aggregates of which a table has this column, or any."""
    parts = (name.split(".", 2) for name in table.column_names if _is_state(name))
    return {int(number) for _, number, of in parts if not field or of == field}
