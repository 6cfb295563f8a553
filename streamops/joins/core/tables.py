"""A join of two tables that change, kept up to date: changes of both in, changes of the join out.

A step looks at what came only: the entries of the keys that are joined on in it, before and after
the changes of both sides. What was said of them follows from how they were, so it is not kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamops.joins.core.delta import Weighted, delta
from streamops.joins.core.entries import Changes, Entries, advanced, read, valid, within
from streamops.joins.core.publish import Found, published, rejects
from streamops.joins.core.tables_spec import TableSide, TablesSpec
from streamops.kernel.columns import combine_chunks, concat, conform, key_codes
from streamops.kernel.contract import State, StateFormat, Step
from streamops.kernel.groups import Groups, Ids, Mask
from streamops.kernel.pairs import SideName
from streamops.kernel.without_event_time import finish, next_deadline

__all__ = [
    "STATE",
    "check",
    "empty",
    "finish",
    "layout",
    "next_deadline",
    "pack",
    "run",
    "step",
]

STATE = StateFormat("joins.tables", 1)

_SIDES: tuple[SideName, SideName] = ("left", "right")


def layout(spec: TablesSpec) -> Mapping[str, pa.Schema]:
    """Columns of the state's tables."""
    return {name: side.entries for name, side in zip(_SIDES, spec.tables, strict=True)}


def pack(spec: TablesSpec, side: SideName, rows: pa.Table) -> pa.Table:
    """The rows as they are: what they do is only known where their likes are."""
    return conform(rows, spec.tables[_SIDES.index(side)].input)


def empty(spec: TablesSpec) -> State:
    """The state before the first step."""
    return State(None, {name: schema.empty_table() for name, schema in layout(spec).items()})


def step(
    spec: TablesSpec, state: State, left: pa.Table, right: pa.Table, watermark: int | None
) -> Step:
    """One micro-batch: see the module's docstring. The watermark does not matter."""
    packs = (left, right)
    changes = [read(side, rows) for side, rows in zip(spec.tables, packs, strict=True)]
    kept = [state.tables[name] for name in _SIDES]
    numbers, count, touched = _numbered(spec, kept, changes)

    moved = [
        _moved(side, kept[at], changes[at], numbers[at], numbers[2 + at], touched)
        for at, side in enumerate(spec.tables)
    ]
    one_side, other = moved
    change = delta(one_side.weighted, other.weighted, count)
    emitted, counts = published(spec, one_side.found, other.found, change)
    refused = [each.entries.refused for each in moved]
    late = [rejects(spec, name, packs[at], refused[at]) for at, name in enumerate(_SIDES)]
    outdated = sum(each.entries.outdated for each in moved)
    rows, bad = len(left) + len(right), sum(int(np.count_nonzero(each)) for each in refused)
    said = replace(
        counts, rows=rows, rejected=bad, too_late=outdated, on_time=rows - bad - outdated
    )
    tables: dict[str, pa.Table] = {
        name: within(side, each.table, spec.remember)
        for name, side, each in zip(_SIDES, spec.tables, moved, strict=True)
    }
    return Step(State(None, tables), emitted, concat(late), said)


@dataclass(frozen=True, slots=True)
class _Moved:
    """One side after its changes.

    Parameters
    ----------
    entries : Entries
        Those of the keys that something came for.
    weighted, found : Weighted, Found
        How often they are there, and what joined rows are made of.
    table : Table
        The state of the side.
    """

    entries: Entries
    weighted: Weighted
    found: Found
    table: pa.Table


def _moved(
    side: TableSide, kept: pa.Table, changes: Changes, join: Ids, came: Ids, touched: Mask
) -> _Moved:
    """The side after its changes, of which only the entries of these keys are looked at."""
    active = touched[join]
    mask = pa.array(active)
    of = np.concatenate([join[active], came])
    entries = advanced(side, kept.filter(mask), changes, of)
    fresh = pa.table([*entries.rows.columns, pa.array(entries.after)], schema=side.entries)
    fresh = fresh.filter(pa.array(entries.stays))
    rows = entries.rows.rename_columns(side.names)
    join = of[entries.of]
    return _Moved(
        entries,
        Weighted(join, valid(rows, side.by), entries.before, entries.after, side.outer),
        Found(rows, join),
        concat([kept.filter(pc.invert(mask)), fresh]),
    )


def _numbered(
    spec: TablesSpec, kept: list[pa.Table], changes: list[Changes]
) -> tuple[list[Ids], int, Mask]:
    """What rows are joined on as numbers: of both kept tables, then of the changes of both sides."""
    tables = [*kept, *(each.rows for each in changes)]
    places = [[side.names.index(name) for name in side.by] for side in spec.tables]
    columns = [
        pa.concat_arrays(
            [combine_chunks(table.column(places[i % 2][at])) for i, table in enumerate(tables)]
        )
        for at in range(len(places[0]))
    ]
    sizes = [len(table) for table in tables]
    groups, _ = Groups.of(key_codes(columns, sum(sizes)))
    numbers = np.split(groups.ids, np.cumsum(sizes)[:-1])
    touched = np.zeros(groups.count, np.bool_)
    touched[numbers[2]] = True
    touched[numbers[3]] = True
    return numbers, groups.count, touched


def run(spec: TablesSpec, left: pa.Table, right: pa.Table) -> pa.Table:
    """The batch result: all changes in one step."""
    step_ = step(spec, empty(spec), left, right, None)
    return concat([step_.emitted, step_.late])


def check(spec: TablesSpec, state: State) -> None:
    """Each entry is there once, and what is gone is only remembered where there are sequences."""
    for name, side in zip(_SIDES, spec.tables, strict=True):
        table = state.tables[name]
        shown = f"{name}: {table.to_pylist()}"
        names = side.names
        identity = [*side.by, *side.key] if side.key else names
        columns = [table.column(names.index(each)) for each in identity]
        groups, _ = Groups.of(key_codes(columns, len(table)))
        assert groups.count == len(table), f"an entry twice: {shown}"
        weight = np.asarray(combine_chunks(table.column("weight")))
        gone = int(np.count_nonzero(weight == 0))
        assert gone <= (0 if side.sequence is None else spec.remember), f"not forgotten: {shown}"
        most = 1 if side.key else None
        assert (weight >= 0).all(), shown
        assert most is None or (weight <= most).all(), f"a key twice: {shown}"
