"""Home timelines: the newest posts of each user, from the changes of posts joined with follows.

State has all posts of a user's timeline, as a removed post is replaced by the newest that was not in
the timeline. A step reads only the users that occur in its changes: the output is the difference of
their newest posts before and after. What was emitted follows from the rows, so it is not stored.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from streamops.changelog.change_types import CHANGE_TYPE, change_weights
from streamops.changelog.emit import emit_changes
from streamops.joins.core.timeline_spec import TimelineSpec
from streamops.kernel.columns import combine_chunks, concat, conform, key_codes, take
from streamops.kernel.core import Metrics, SideName, State, StateFormat, Step, finish, next_deadline
from streamops.kernel.groups import Groups, Ids, Ints, Mask, pair_codes
from streamops.kernel.hashing import xxhash64
from streamops.kernel.ordering import ranks

__all__ = [
    "METRICS",
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

METRICS = {
    "rows": "rows",
    "ignored": "rejected",
    "results": "results",
    "corrections": "corrections",
}

STATE = StateFormat("joins.timeline", 1)


def layout(spec: TimelineSpec) -> Mapping[str, pa.Schema]:
    """Columns of the state's tables."""
    return {"rows": spec.rows}


def empty(spec: TimelineSpec) -> State:
    """The state before the first step."""
    return State(None, {"rows": spec.rows.empty_table()})


def pack(spec: TimelineSpec, rows: pa.Table, side: SideName = "left") -> pa.Table:
    """The rows with weights instead of change types."""
    rows = conform(rows, spec.schema)
    columns = [rows.column(name) for name in spec.names]
    columns.append(pa.array(change_weights(rows.column(CHANGE_TYPE))))
    if spec.routes:
        columns.append(rows.column("late"))
    return pa.table(columns, schema=spec.packed)


@dataclass(frozen=True, slots=True)
class _Rows:
    """The rows of the users that something came for, each once.

    Parameters
    ----------
    table : Table
        With the columns of the state, without weights.
    before, after : array of int64
        How often each is there.
    user, post : array of int64
        A code of the user, and one of the user and the post's key.
    """

    table: pa.Table
    before: Ints
    after: Ints
    user: Ids
    post: Ids


def step(
    spec: TimelineSpec, state: State, inputs: Sequence[pa.Table], watermark: int | None
) -> Step:
    """One micro-batch: see the module's docstring."""
    (packed,) = inputs
    weight = np.asarray(combine_chunks(packed.column("weight")))
    moves = np.flatnonzero(weight)
    arrived = packed.select(spec.rows.names[:-1])
    stored = state.tables["rows"]
    rows, untouched = _touched(
        spec, stored, take(arrived, moves) if len(moves) < len(arrived) else arrived, weight[moves]
    )

    order = _newest_first(spec, rows)
    was, is_ = np.zeros(len(order), np.bool_), np.zeros(len(order), np.bool_)
    was[_newest(rows, order, rows.before > 0, spec.parameters.cap)] = True
    is_[_newest(rows, order, rows.after > 0, spec.parameters.cap)] = True
    changes, results, corrections = _emit(spec, rows, was, is_)

    stays = rows.after != 0
    fresh = pa.table([*rows.table.columns, pa.array(rows.after)], schema=spec.rows)
    table = concat([stored.filter(pa.array(untouched)), fresh.filter(pa.array(stays))])
    emitted = concat([changes, _aside(spec, take(packed, np.flatnonzero(weight == 0)))])
    counts = Metrics(rows=len(packed), results=results, corrections=corrections)
    return Step(State(None, {"rows": table}), emitted, spec.output.empty_table(), counts)


def _touched(
    spec: TimelineSpec, stored: pa.Table, arrived: pa.Table, weight: Ints
) -> tuple[_Rows, Mask]:
    """Rows of the users that something came for; and which of the kept ones are of others."""
    at = {name: f"c.{i}" for i, name in enumerate(spec.names)}
    users = _codes([stored, arrived], [at[name] for name in spec.user])
    groups, _ = Groups.of(users)
    something = np.zeros(groups.count, np.bool_)
    something[groups.ids[len(stored) :]] = True
    active = something[groups.ids[: len(stored)]]
    old = stored.filter(pa.array(active))
    both = concat([old.drop_columns(["weight"]), arrived])
    # A stored row occurs once and is first: its group is its position.
    equal, firsts = Groups.of(key_codes(both.columns, len(both)))
    before = np.zeros(equal.count, np.int64)
    before[: len(old)] = np.asarray(combine_chunks(old.column("weight")))
    after = before + Groups(equal.ids[len(old) :], equal.count).sum_ints(weight)
    table = take(both, firsts)
    user = np.concatenate([groups.ids[: len(stored)][active], groups.ids[len(stored) :]])[firsts]
    post = pair_codes(user, _codes([table], [at[name] for name in spec.parameters.key]))
    return _Rows(table, before, after, user, post), ~active


def _codes(tables: list[pa.Table], names: list[str]) -> Ids:
    columns = [
        pa.concat_arrays([combine_chunks(table.column(name)) for table in tables]) for name in names
    ]
    return key_codes(columns, sum(map(len, tables)))


def _newest_first(spec: TimelineSpec, rows: _Rows) -> Ids:
    """The rows user by user, the newest first; among equally new ones the greatest key."""
    at = {name: combine_chunks(rows.table.column(i)) for i, name in enumerate(spec.names)}
    order = [~ranks(at[name]) for name in (spec.parameters.ranked_by, *spec.parameters.key)]
    # Of a post that has two authors for a while: by their hash, and not by which came first.
    order.append(xxhash64([at[name] for name in spec.author]))
    return np.lexsort([*reversed(order), rows.user])


def _newest(rows: _Rows, order: Ids, there: Mask, cap: int) -> Ids:
    """The rows that timelines show if these are there."""
    ordered = order[there[order]]
    _, firsts = Groups.of(rows.post[ordered])  # a post is shown once
    ordered = ordered[firsts]
    user = rows.user[ordered]
    position = np.arange(len(user)) - np.searchsorted(user, user, "left")
    return ordered[position < cap]


def _emit(spec: TimelineSpec, rows: _Rows, was: Mask, is_: Mask) -> tuple[pa.Table, int, int]:
    """The changes, how many rows are new, and how many say something else."""
    goes, comes = np.flatnonzero(was & ~is_), np.flatnonzero(is_ & ~was)
    # A row that stays as it was is in neither, so that two rows of a post differ.
    changes = emit_changes(
        [], [], (rows.post[goes], rows.post[comes]), reemit=np.ones(len(comes), np.bool_)
    )
    found = take(rows.table, changes.take_ints(goes, comes))
    columns = dict(zip(spec.names, found.columns, strict=True))
    columns[CHANGE_TYPE] = changes.change_type
    if spec.routes:
        columns["late"] = pa.nulls(len(found), spec.output.field("late").type)
    output = pa.table([columns[name] for name in spec.output.names], schema=spec.output)
    return output, changes.inserts, changes.updates


def _aside(spec: TimelineSpec, packed: pa.Table) -> pa.Table:
    """Rejected changes, as they came."""
    if not spec.routes:
        return spec.output.empty_table()
    columns = {name: packed.column(i) for i, name in enumerate(spec.names)}
    columns["late"] = packed.column("late")
    columns[CHANGE_TYPE] = pa.nulls(len(packed), pa.string())
    return pa.table([columns[name] for name in spec.output.names], schema=spec.output)


def run(spec: TimelineSpec, inputs: Sequence[pa.Table]) -> pa.Table:
    """The batch result: all changes in one step."""
    return step(spec, empty(spec), inputs, None).output


def check(spec: TimelineSpec, state: State) -> None:
    """Each row is there once, and only rows that are there."""
    rows = state.tables["rows"]
    formatted = f"rows: {rows.to_pylist()}"
    groups, _ = Groups.of(key_codes(rows.columns[:-1], len(rows)))
    assert groups.count == len(rows), f"a row twice: {formatted}"
    assert (np.asarray(combine_chunks(rows.column("weight"))) > 0).all(), (
        f"a row that is not there: {formatted}"
    )
