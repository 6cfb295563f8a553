"""Aggregates per group over a change stream, told as a change stream whenever they are others.

A row that is published counts, one that is taken back no longer does. Counts, sums and means are
kept as totals that can be taken back exactly; for everything else the rows of the group are kept
(:mod:`streamops.changes.core.bags`). A group says something as long as it has more rows than none.
All of it is addition, so the order of changes does not matter, and nothing is left of what was added
and taken away: nor of what is taken away first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamops.changelog.emit import EmittedChanges, emit_changes
from streamops.changes.core.aggregate_spec import AggregateSpec
from streamops.changes.core.bags import by_value, estimated, netted
from streamops.changes.core.packs import States, apart, pack, weighed
from streamops.kernel.columns import combine_chunks, concat, key_codes, take
from streamops.kernel.contract import Counts, State, StateFormat, Step
from streamops.kernel.groups import Groups, Ids, Ints, Mask
from streamops.kernel.without_event_time import finish, next_deadline

__all__ = [
    "STATE",
    "TOLD",
    "check",
    "empty",
    "finish",
    "layout",
    "next_deadline",
    "pack",
    "run",
    "step",
]

STATE = StateFormat("changes.aggregate", 2)

TOLD = {name: name for name in ("rows", "rejected", "results", "corrections")}
"""What is told of a micro-batch, and where it stands among the counts."""


def layout(spec: AggregateSpec) -> Mapping[str, pa.Schema]:
    """Columns of the state's tables."""
    return {"groups": spec.groups, "rows": spec.rows} if spec.again else {"groups": spec.groups}


def empty(spec: AggregateSpec) -> State:
    """The state before the first step."""
    return State(None, {name: schema.empty_table() for name, schema in layout(spec).items()})


@dataclass(frozen=True, slots=True)
class _Touched:
    """The groups that something came for: those that were kept, in their order, then new ones.

    Parameters
    ----------
    kept : array of int64
        Rows of those that were kept.
    count : int
        How many groups there are.
    slots : array of int64
        The group of each row of the pack.
    of_rows : array of int64
        The group of each row that is kept for aggregates; -1: of one that nothing came for.
    keys : list of Array
        The key of each group.
    """

    kept: Ids
    count: int
    slots: Ids
    of_rows: Ids
    keys: list[pa.Array]


def step(spec: AggregateSpec, state: State, packed: pa.Table, watermark: int | None) -> Step:
    """One micro-batch: see the module's docstring. The watermark does not matter."""
    rows, bad = (
        int(np.asarray(combine_chunks(packed.column(name))).sum()) for name in ("changes", "bad")
    )
    packed, rejected = apart(spec, packed)
    kept = state.tables["groups"]
    touched = _touched(spec, state, packed)
    was = [combine_chunks(column).take(pa.array(touched.kept)) for column in _states(spec, kept)]
    rows_was = np.zeros(touched.count, np.int64)
    rows_was[: len(touched.kept)] = np.asarray(combine_chunks(kept.column("rows")))[touched.kept]
    among = Groups(touched.slots, touched.count)
    weight = np.asarray(combine_chunks(packed.column("weight")))
    rows_is = rows_was + among.sum_ints(weight)
    states = _merged(spec, touched, was, packed, weight)

    before, after = np.flatnonzero(rows_was > 0), np.flatnonzero(rows_is > 0)
    said, says = _estimates(spec, was, before), _estimates(spec, states, after)
    tables: dict[str, pa.Table] = {}
    has_rows = np.zeros(touched.count, np.bool_)
    if spec.again:
        bag, ids, weight_was, weight_is = _bags(spec, state, touched, packed, weight)
        there = np.flatnonzero(weight_is)
        fresh = take(bag, there).columns
        groups_of = pa.array(ids[there])
        own = [key.take(groups_of) for key in touched.keys]
        fresh = pa.table([*own, *fresh, pa.array(weight_is[there])], schema=spec.rows)
        untouched = pa.array(touched.of_rows < 0)
        tables["rows"] = concat([state.tables["rows"].filter(untouched), fresh])
        has_rows[ids[there]] = True
        groups = Groups(ids, touched.count)
        orders = by_value(spec.again, bag, groups)
        was_again = estimated(spec.again, bag, groups, weight_was, orders)
        is_again = estimated(spec.again, bag, groups, weight_is, orders)
        said = _beside(spec, said, was_again, before)
        says = _beside(spec, says, is_again, after)

    stays = (rows_is != 0) | has_rows | _is_something(spec, states, touched.count)
    entries = pa.table([*touched.keys, pa.array(rows_is), *states], schema=spec.groups)
    untouched = np.ones(len(kept), np.bool_)
    untouched[touched.kept] = False
    tables = {
        "groups": concat([kept.filter(pa.array(untouched)), entries.filter(pa.array(stays))]),
        **tables,
    }
    emitted, changes = _emit(spec, touched.keys, before, said, after, says)
    counts = Counts(rows=rows, rejected=bad, results=changes.inserts, corrections=changes.updates)
    emitted = concat([emitted, rejected])
    return Step(State(None, tables), emitted, spec.output.empty_table(), counts)


def _touched(spec: AggregateSpec, state: State, packed: pa.Table) -> _Touched:
    tables = [state.tables["groups"], packed]
    if spec.again:
        tables.append(state.tables["rows"])
    columns = [
        pa.concat_arrays([combine_chunks(table.column(at)) for table in tables])
        for at in range(len(spec.by))
    ]
    sizes = [len(table) for table in tables]
    # A kept group is there once and stands first: its number is its place.
    groups, firsts = Groups.of(key_codes(columns, sum(sizes)))
    numbers = np.split(groups.ids, np.cumsum(sizes)[:-1])
    came = np.unique(numbers[1])
    slot = np.full(groups.count, -1, np.int64)
    slot[came] = np.arange(len(came))
    keys = [column.take(pa.array(firsts[came])) for column in columns]
    of_rows = slot[numbers[2]] if spec.again else np.zeros(0, np.int64)
    return _Touched(came[came < sizes[0]], len(came), slot[numbers[1]], of_rows, keys)


def _states(spec: AggregateSpec, table: pa.Table) -> list[pa.ChunkedArray]:
    width = sum(len(total.fields) for total in spec.totals)
    columns: list[pa.ChunkedArray] = table.columns
    return columns[len(columns) - width :]


def _merged(
    spec: AggregateSpec, touched: _Touched, was: States, packed: pa.Table, weight: Ints
) -> States:
    """The totals of the groups with what came."""
    if spec.again:
        came = weighed(spec, Groups(touched.slots, touched.count), _told_rows(spec, packed), weight)
        slots = np.arange(touched.count)
    else:
        came = [combine_chunks(column) for column in _states(spec, packed)]
        slots = touched.slots
    both = [pa.concat_arrays(pieces) for pieces in zip(was, came, strict=True)]
    members = Groups(np.concatenate([np.arange(len(touched.kept)), slots]), touched.count)
    result: States = []
    for total in spec.totals:
        width, at = len(total.fields), len(result)
        result += total.merge(members, both[at : at + width])
    return result


def _told_rows(spec: AggregateSpec, packed: pa.Table) -> pa.Table:
    """The rows of a pack, with the names that the aggregates know."""
    at = len(spec.by)
    return packed.select(range(at, at + len(spec.told))).rename_columns(spec.told)


def _estimates(spec: AggregateSpec, states: States, groups: Ids) -> States:
    """What the totals of these groups say."""
    index, said, at = pa.array(groups), [], 0
    for total in spec.totals:
        width = len(total.fields)
        said.append(total.estimate([state.take(index) for state in states[at : at + width]]))
        at += width
    return said


def _is_something(spec: AggregateSpec, states: States, count: int) -> Mask:
    something, at = np.zeros(count, np.bool_), 0
    for total in spec.totals:
        width = len(total.fields)
        something |= ~total.is_nothing(states[at : at + width])
        at += width
    return something


def _bags(
    spec: AggregateSpec, state: State, touched: _Touched, packed: pa.Table, weight: Ints
) -> tuple[pa.Table, Ids, Ints, Ints]:
    """Rows of the groups, the group of each, and how often it was and is there."""
    active = np.flatnonzero(touched.of_rows >= 0)
    kept = take(state.tables["rows"], active)
    weight_was = np.asarray(combine_chunks(kept.column("weight")))
    columns = [field.name for field in spec.rows][len(spec.by) : -1]
    both = [
        kept.select(columns).rename_columns(spec.columns),
        _told_rows(spec, packed).select(spec.columns),
    ]
    ids = np.concatenate([touched.of_rows[active], touched.slots])
    rows, of, weight_is = netted(concat(both), ids, np.concatenate([weight_was, weight]))
    # A kept row is there once and stands first.
    before = np.zeros(len(of), np.int64)
    before[: len(active)] = weight_was
    return rows, of, before, weight_is


def _beside(spec: AggregateSpec, said: States, again: States, groups: Ids) -> States:
    """What the totals of these groups say, and what the rows of all do, in the order asked for."""
    totals, rest = iter(said), (each.take(pa.array(groups)) for each in again)
    return [next(rest if each.total is None else totals) for each in spec.asked]


def _emit(
    spec: AggregateSpec, keys: States, before: Ids, was: States, after: Ids, values: States
) -> tuple[pa.Table, EmittedChanges]:
    """The changes of the groups that had rows before, or have them after the step."""
    changes = emit_changes(was, values, (before, after))
    index = pa.array(changes.take_ints(before, after))
    columns = [key.take(index) for key in keys] + changes.take(was, values)
    columns.append(changes.change_type)
    columns += [pa.nulls(len(index), field.type) for field in spec.aside]
    return pa.table(columns, schema=spec.output), changes


def run(spec: AggregateSpec, packed: pa.Table) -> pa.Table:
    """The batch result: all changes in one step."""
    return step(spec, empty(spec), packed, None).emitted


def check(spec: AggregateSpec, state: State) -> None:
    """Groups and rows are there once each, and only where there is something to say of them."""
    groups = state.tables["groups"]
    shown = str({name: table.to_pylist() for name, table in state.tables.items()})
    keys = [combine_chunks(column) for column in groups.columns[: len(spec.by)]]
    found, _ = Groups.of(key_codes(keys, len(groups)))
    assert found.count == len(groups), f"a group twice: {shown}"
    if spec.again:
        rows = state.tables["rows"]
        weight = np.asarray(combine_chunks(rows.column("weight")))
        assert (weight != 0).all(), f"a row that is not there: {shown}"
        every, _ = Groups.of(key_codes(rows.columns[:-1], len(rows)))
        assert every.count == len(rows), f"a row twice: {shown}"
    else:
        nothing = np.asarray(combine_chunks(groups.column("rows"))) == 0
        states = [combine_chunks(column) for column in _states(spec, groups)]
        nothing &= ~_is_something(spec, states, len(groups))
        assert not nothing.any(), f"a group of nothing: {shown}"
