"""The history of the rows of each key, as intervals of the order of their changes.

The changes within the horizon are remembered, and the last one before it, the *base*. The intervals
of a key are computed from its changes, as they were and as they are, and what differs is told. A
change at or below the base is rejected: what it would change is sealed. So is one beyond the horizon
of a key without a base, at or below the highest place of the keys that were forgotten: it may be of one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pyarrow as pa

from streamops.changelog.batch import key_columns, max_evicted, over_limit, to_flags, to_positions
from streamops.changelog.classify import ClassifiedChanges
from streamops.changelog.conflicts import Conflicts
from streamops.changelog.latest import advance_clock
from streamops.changes.core.intervals import Changes, Intervals
from streamops.changes.core.rejects import rejected_rows
from streamops.changes.core.retold import retold
from streamops.changes.core.sealed import sealed
from streamops.changes.core.spec import TOLD, ChangeCounts, HistorySpec
from streamops.kernel.columns import combine_chunks, concat, conform, key_codes
from streamops.kernel.contract import State, StateFormat, Step
from streamops.kernel.groups import Groups, Ids, Mask, pair_codes
from streamops.kernel.ordering import ranks
from streamops.kernel.without_event_time import finish, next_deadline

__all__ = [
    "COUNTS",
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

STATE = StateFormat("changes.history", 2)
COUNTS = ChangeCounts


def layout(spec: HistorySpec) -> Mapping[str, pa.Schema]:
    """Columns of the state's tables."""
    keys = [(f"key.{i}", spec.input.field(name).type) for i, name in enumerate(spec.by)]
    own = [
        ("place", spec.position),
        ("since", spec.position),
        ("is_log", pa.bool_()),
        ("is_deleted", pa.bool_()),
        ("is_base", pa.bool_()),
        ("age", pa.int64()),
        ("revision", pa.int32()),
        ("lacks", pa.list_(pa.int32())),
    ]
    values = [(f"value.{i}", spec.input.field(name).type) for i, name in enumerate(spec.values)]
    return {
        "changes": pa.schema([*keys, *own, *values]),
        "forgotten": pa.schema([("place", spec.position), ("age", pa.int64())]),
    }


def empty(spec: HistorySpec) -> State:
    """The state before the first step."""
    return State(None, {name: schema.empty_table() for name, schema in layout(spec).items()})


def pack(spec: HistorySpec, rows: pa.Table) -> pa.Table:
    """The rows as they are."""
    return conform(rows, spec.input)


def step(spec: HistorySpec, state: State, packed: pa.Table, watermark: int | None) -> Step:
    """One micro-batch: see the module's docstring. The watermark does not matter."""
    judged = ClassifiedChanges.of(spec, packed)
    newest = advance_clock(state.watermark, judged.age)
    cutoff = None if newest is None else spec.cutoff(newest)
    changes, rest, duplicates = _admitted(spec, state, judged, cutoff)
    old = np.flatnonzero(changes.is_old)
    was = Intervals.of(spec, changes.take(old))[0].renumbered(old)
    stays = np.flatnonzero(~changes.is_lost)
    standing = changes.take(stays)
    now, counted, values, begun = Intervals.of(spec, standing)
    told = retold(spec, changes, was, now.renumbered(stays))
    emitted = concat([told.rows, rejected_rows(spec, judged)])
    beaten = ~standing.counts(spec.snapshots) & ~standing.is_old
    counts = ChangeCounts(
        rows=len(packed),
        rejected=int(np.count_nonzero(judged.is_rejected)),
        results=told.inserts,
        corrections=told.updates,
        deletes=told.deletes,
        stale=int(np.count_nonzero(beaten)),
        duplicates=duplicates,
        ignored=judged.ignored,
    )
    made = sealed(standing, told.revision[stays], counted, values, begun, cutoff)
    tables = {"changes": _table(spec, made.changes), "forgotten": state.tables["forgotten"]}
    tables["changes"] = concat([rest, tables["changes"]])
    if len(made.forgotten):
        gone = pa.table(
            [made.forgotten.place, made.forgotten.age], schema=layout(spec)["forgotten"]
        )
        tables["forgotten"] = max_evicted(concat([tables["forgotten"], gone]))
    return Step(State(newest, tables), emitted, spec.output.empty_table(), counts)


def run(spec: HistorySpec, packed: pa.Table) -> pa.Table:
    """The batch result: all rows in one step."""
    return step(spec, empty(spec), packed, None).emitted


def check(spec: HistorySpec, state: State) -> None:
    """A key has one base at most, below all else; its intervals do not overlap, and one is open."""
    rows, shown = state.tables["changes"], str(state.tables)
    key = key_codes([rows.column(name) for name in key_columns(spec)], len(rows))
    changes = _changes(spec, rows, ClassifiedChanges.of(spec, spec.input.empty_table()), key, [])[
        0
    ].in_order()
    assert not (changes.is_base & ~changes.begins).any(), f"a base above another change: {shown}"
    assert len(state.tables["forgotten"]) <= 1, shown
    intervals = Intervals.of(spec, changes)[0]
    of = changes.key[intervals.start]
    pool = ranks(pa.concat_arrays([intervals.since, intervals.until]))
    since, until = np.split(pool, 2)
    is_open = np.asarray(intervals.until.is_null())
    assert (is_open | (since < until)).all(), f"an interval ends before it begins: {shown}"
    together = of[1:] == of[:-1]
    assert not (together & is_open[:-1]).any(), f"two open intervals: {shown}"
    assert (~together | (until[:-1] <= since[1:])).all(), f"intervals overlap: {shown}"


def _admitted(
    spec: HistorySpec, state: State, judged: ClassifiedChanges, cutoff: int | None
) -> tuple[Changes, pa.Table, int]:
    """What is remembered of keys with something to do, with the changes; the rest; duplicates.

    A change that is sealed contradicts nothing, and is a duplicate where it is there as it was.
    """
    rows, forgotten = (
        state.tables["changes"],
        combine_chunks(state.tables["forgotten"].column("place")),
    )
    names = zip(key_columns(spec), spec.by, strict=True)
    keys = [
        pa.concat_arrays([combine_chunks(rows.column(c)), judged.column(name)]) for c, name in names
    ]
    groups, _ = Groups.of(key_codes(keys, len(rows) + len(judged.changes)))
    number, came = groups.ids[: len(rows)], groups.ids[len(rows) :]
    is_touched = np.zeros(groups.count, np.bool_)
    is_touched[came] = True
    if cutoff is not None and len(rows):
        is_settled = _flags(rows, "is_base") & ~_flags(rows, "is_deleted")
        age = np.asarray(combine_chunks(rows.column("age")))
        is_touched[number[(age < cutoff) & ~is_settled]] = True
    mine = is_touched[number]
    kept = rows.filter(pa.array(mine))
    key = np.append(number[mine], came)
    changes, order = _changes(spec, kept, judged, key, [forgotten])

    size = len(kept)
    place = pair_codes(changes.key, pair_codes(changes.at, changes.is_log.astype(np.int64)))
    contested = Conflicts.of(place, changes.values, changes.lacks, changes.is_delete)
    first = contested.firsts()
    again = (first != np.arange(len(first))) & ~changes.is_old
    has_base, base = np.zeros(groups.count, np.bool_), np.zeros(groups.count, np.int64)
    has_base[changes.key[changes.is_base]] = True
    base[changes.key[changes.is_base]] = changes.at[changes.is_base]
    is_below = has_base[changes.key] & (changes.at <= base[changes.key])
    if len(forgotten):
        # What came at one place is judged as one, so that it can be compared.
        ages = contested.newest(changes.age)
        is_beyond = spec.is_beyond(ages, changes.is_log, state)
        is_below |= ~has_base[changes.key] & is_beyond & (changes.at <= order[0])
    late = ~changes.is_old & is_below & (first >= size)
    loses = replace(contested, order=np.where(late, -1, contested.order)).loses()
    conflict = loses & ~changes.is_old
    late &= ~conflict
    came_in = ~conflict & ~late
    full = _full(spec, changes, came_in, np.unique(number))
    again &= came_in & ~full
    for dropped, reason in ((conflict, "conflict"), (late, "forgotten"), (full, "full")):
        judged.reject(np.flatnonzero(dropped) - size, reason)
    kept_of = np.flatnonzero(came_in & ~full & ~again)
    rest = rows.filter(pa.array(~mine))
    changes = replace(changes, is_lost=loses & changes.is_old).take(kept_of).in_order()
    return changes, rest, int(np.count_nonzero(again))


def _full(spec: HistorySpec, changes: Changes, stays: Mask, known: Ids) -> Mask:
    """Changes of keys for which there is no room."""
    came, first = np.unique(changes.key[stays], return_index=True)
    new = ~np.isin(came, known)
    at = pa.array(np.flatnonzero(stays)[first[new]])
    out = over_limit(spec, [column.take(at) for column in changes.names], len(known))
    return stays & np.isin(changes.key, came[new][out])


def _changes(
    spec: HistorySpec, rows: pa.Table, judged: ClassifiedChanges, key: Ids, others: list[pa.Array]
) -> tuple[Changes, Ids]:
    """What is remembered and the changes, as they stand; and the order of other places."""
    came = len(judged.changes)
    place = pa.concat_arrays([combine_chunks(rows.column("place")), judged.sequence])
    since = pa.concat_arrays([combine_chunks(rows.column("since")), judged.sequence])
    order = ranks(pa.concat_arrays([place, since, *others]))
    lacks = to_flags(combine_chunks(rows.column("lacks")), len(spec.values))
    # Of a row that is deleted, what comes with the delete is not kept.
    there = pa.array(np.arange(came), mask=judged.is_delete)
    sent = [judged.column(name).take(there) for name in spec.values]
    names = zip(key_columns(spec), spec.by, strict=True)
    changes = Changes(
        key=key,
        names=[
            pa.concat_arrays([combine_chunks(rows.column(c)), judged.column(n)]) for c, n in names
        ],
        place=place,
        since=since,
        at=order[: len(place)],
        interval=pair_codes(key, order[len(place) : 2 * len(place)]),
        is_log=np.append(_flags(rows, "is_log"), judged.is_log),
        is_delete=np.append(_flags(rows, "is_deleted"), judged.is_delete),
        is_base=np.append(_flags(rows, "is_base"), np.zeros(came, np.bool_)),
        is_old=np.append(np.ones(len(rows), np.bool_), np.zeros(came, np.bool_)),
        is_lost=np.zeros(len(place), np.bool_),
        age=np.append(np.asarray(combine_chunks(rows.column("age"))), judged.age),
        revision=np.append(np.asarray(combine_chunks(rows.column("revision"))), np.full(came, -1)),
        lacks=np.concatenate([lacks, judged.lacks]),
        values=[
            pa.concat_arrays([combine_chunks(rows.column(f"value.{i}")), each])
            for i, each in enumerate(sent)
        ],
    )
    return changes, order[2 * len(place) :]


def _flags(rows: pa.Table, name: str) -> Mask:
    return np.asarray(combine_chunks(rows.column(name)))


def _table(spec: HistorySpec, changes: Changes) -> pa.Table:
    """Changes, to be remembered."""
    columns = [
        *changes.names,
        changes.place,
        changes.since,
        pa.array(changes.is_log),
        pa.array(changes.is_delete),
        pa.array(changes.is_base),
        pa.array(changes.age),
        pa.array(changes.revision.astype(np.int32)),
        to_positions(changes.lacks),
        *changes.values,
    ]
    return pa.table(columns, schema=layout(spec)["changes"])
