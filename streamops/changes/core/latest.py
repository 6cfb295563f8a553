"""The newest row of each key: remembered, and its changes told as before and after.

A change counts if its place in the order of its key's changes is above what is remembered. A delete
leaves its place behind, until it is older than the horizon; the highest place so forgotten is kept,
and a change at or below it, of a key that nothing is known of, may be one that was deleted since: it
is rejected.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamops.changes.core.filled import NONE, Entries, filled, values_of
from streamops.changes.core.judged import Judged, rejected_rows
from streamops.changes.core.kept import Meeting, key_columns
from streamops.changes.core.spec import REJECTED, TOLD, ChangeCounts, TableSpec
from streamops.changes.core.told import Told, Versions
from streamops.kernel.columns import concat, conform, key_codes, one
from streamops.kernel.contract import State, StateFormat, Step
from streamops.kernel.groups import Groups, Ids, Ints, Mask
from streamops.kernel.ordering import ranks
from streamops.kernel.states import listed
from streamops.kernel.untimed import finish, next_deadline

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

STATE = StateFormat("changes.latest", 1)
COUNTS = ChangeCounts


def layout(spec: TableSpec) -> Mapping[str, pa.Schema]:
    """Columns of the state's tables."""
    cell = pa.struct([("value", pa.int32()), ("place", spec.position), ("is_log", pa.bool_())])
    keys = [(f"key.{i}", spec.input.field(name).type) for i, name in enumerate(spec.by)]
    own = [
        ("place", spec.position),
        ("is_log", pa.bool_()),
        ("is_deleted", pa.bool_()),
        ("age", pa.int64()),
        ("revision", pa.int32()),
        ("cells", pa.list_(cell)),
    ]
    values = [(f"value.{i}", spec.input.field(name).type) for i, name in enumerate(spec.values)]
    return {
        "rows": pa.schema([*keys, *own, *values]),
        "forgotten": pa.schema([("place", spec.position), ("revision", pa.int32())]),
    }


def empty(spec: TableSpec) -> State:
    """The state before the first step."""
    return State(None, {name: schema.empty_table() for name, schema in layout(spec).items()})


def pack(spec: TableSpec, rows: pa.Table) -> pa.Table:
    """The rows as they are."""
    return conform(rows, spec.input)


def step(spec: TableSpec, state: State, packed: pa.Table, watermark: int | None) -> Step:
    """One micro-batch: see the module's docstring. The watermark does not matter."""
    judged = Judged.of(spec, packed)
    meeting, duplicates = _admitted(spec, state, judged)
    entries = meeting.entries
    source = filled(entries, meeting.lacks)
    stands = _stands(entries, len(meeting.kept))
    counted = np.flatnonzero(stands & entries.ends if spec.publish == "last" else stands)
    values = values_of(meeting.values, entries, source[counted])
    versions = _versions(meeting, state, entries, counted, values)
    told = Told.of(versions)
    emitted = [_rows(meeting, versions, told), rejected_rows(spec, judged)]
    ends = np.flatnonzero(versions.ends)
    now = [value.take(pa.array(ends)) for value in values]
    rows = _remembered(
        meeting, entries, counted[ends], source[counted[ends]], told.after[ends], now
    )
    counts = ChangeCounts(
        rows=len(packed),
        rejected=int(np.count_nonzero(judged.is_rejected)),
        results=told.inserts,
        corrections=told.updates,
        deletes=told.deletes,
        stale=int(np.count_nonzero((entries.cell == NONE) & ~stands)),
        duplicates=duplicates,
        ignored=judged.ignored,
    )
    newest = _newest(state.watermark, judged.age)
    after = _forgetting(spec, newest, concat([meeting.rest, rows]), state.tables["forgotten"])
    return Step(after, concat(emitted), spec.output.empty_table(), counts)


def run(spec: TableSpec, packed: pa.Table) -> pa.Table:
    """The batch result: all rows in one step."""
    return step(spec, empty(spec), packed, None).emitted


def check(spec: TableSpec, state: State) -> None:
    """Each key is there once, deletes are not too old, and what is deleted has no values."""
    rows, shown = state.tables["rows"], str(state.tables)
    groups, _ = Groups.of(key_codes([rows.column(name) for name in key_columns(spec)], len(rows)))
    assert groups.count == len(rows) <= spec.limit, f"a key twice, or too many: {shown}"
    assert len(state.tables["forgotten"]) <= 1, shown
    deleted = rows.filter(rows.column("is_deleted"))
    for number in range(len(spec.values)):
        assert deleted.column(f"value.{number}").null_count == len(deleted), shown
    assert not pc.any(pc.greater(pc.list_value_length(deleted.column("cells")), 0)).as_py(), shown
    if state.watermark is not None and len(deleted):
        assert pc.min(deleted.column("age")).as_py() >= spec.cutoff(state.watermark), shown


def _admitted(spec: TableSpec, state: State, judged: Judged) -> tuple[Meeting, int]:
    """What is remembered, and the changes that may be taken in; how many came before."""
    meeting, unknowable = Meeting.of(spec, state, judged)
    again, conflict = meeting.repeated()
    meeting = meeting.without(conflict, "conflict")
    meeting = meeting.without(again[~conflict])
    meeting = meeting.without(unknowable[~(again | conflict)], "forgotten")
    return meeting.without(meeting.beyond(), "full"), int(np.count_nonzero(again))


def _newest(before: int | None, ages: Ints) -> int | None:
    if not len(ages):
        return before
    return int(ages.max()) if before is None else max(before, int(ages.max()))


def _stands(entries: Entries, kept: int) -> Mask:
    """Changes at or above what is remembered of their key."""
    is_change = entries.cell == NONE
    bar = np.full(int(entries.key.max(initial=NONE)) + 1, np.iinfo(np.int64).min)
    remembered = is_change & (entries.origin < kept)
    bar[entries.key[remembered]] = entries.place[remembered]
    stands: Mask = is_change & (entries.place >= bar[entries.key])
    return stands


def _versions(
    meeting: Meeting, state: State, entries: Entries, counted: Ids, values: list[pa.Array]
) -> Versions:
    kept = meeting.kept
    before = [one(kept.column(f"value.{i}")) for i in range(len(values))]
    number = int(entries.key.max(initial=NONE)) + 1
    was, revision = np.full(number, NONE), np.full(number, NONE)
    was[: len(kept)] = np.where(
        np.asarray(one(kept.column("is_deleted"))), NONE, len(counted) + np.arange(len(kept))
    )
    # A key that comes back goes on from the highest revision that was forgotten.
    revision[:] = max(state.tables["forgotten"].column("revision").to_pylist(), default=NONE)
    revision[: len(kept)] = np.asarray(one(kept.column("revision")))
    pools = [pa.concat_arrays(both) for both in zip(values, before, strict=True)]
    return Versions(entries.key[counted], ~entries.is_delete[counted], pools, was, revision)


def _rows(meeting: Meeting, versions: Versions, told: Told) -> pa.Table:
    """What is told, as rows of the output."""
    spec, index = meeting.spec, pa.array(told.row)
    columns = meeting.keys_of(told.key)
    columns += [value.take(index) for value in versions.values]
    columns += [pa.array(told.revision.astype(np.int32)), told.words]
    columns.append(pa.nulls(len(index), spec.output.field(REJECTED).type))
    return pa.table(columns, schema=spec.output)


def _remembered(
    meeting: Meeting,
    entries: Entries,
    last: Ids,
    source: Ids,
    revision: Ids,
    values: list[pa.Array],
) -> pa.Table:
    """The last change of each key, to be kept."""
    spec, gone = meeting.spec, entries.is_delete[last]
    origin = pa.array(entries.origin[last])
    key, value = np.nonzero((source != last[:, np.newaxis]) & ~gone[:, np.newaxis])
    of = source[key, value]
    given = pa.array(entries.origin[of], mask=of == NONE)
    kind = layout(spec)["rows"].field("cells").type
    cells = pa.StructArray.from_arrays(
        [pa.array(value.astype(np.int32)), meeting.places.take(given), meeting.logs.take(given)],
        fields=list(kind.value_type),
    )
    columns = [
        *meeting.keys_of(entries.key[last]),
        meeting.places.take(origin),
        meeting.logs.take(origin),
        pa.array(gone),
        pa.array(meeting.ages[entries.origin[last]]),
        pa.array(revision.astype(np.int32)),
        listed(cells, np.bincount(key, minlength=len(last))).cast(kind),
        *values,
    ]
    return pa.table(columns, schema=layout(spec)["rows"])


def _forgetting(spec: TableSpec, newest: int | None, rows: pa.Table, forgotten: pa.Table) -> State:
    """The state without deletes that are older than the horizon."""
    deleted = np.asarray(one(rows.column("is_deleted")))
    gone = np.zeros(len(rows), np.bool_)
    if newest is not None:
        gone = deleted & (np.asarray(one(rows.column("age"))) < spec.cutoff(newest))
    if gone.any():
        old = concat([forgotten, rows.filter(pa.array(gone)).select(forgotten.column_names)])
        highest = pa.array([int(ranks(one(old.column("place"))).argmax())])
        columns = [
            one(old.column("place")).take(highest),
            pa.array([pc.max(old.column("revision")).as_py()], pa.int32()),
        ]
        forgotten = pa.table(columns, schema=forgotten.schema)
        rows = rows.filter(pa.array(~gone))
    return State(newest, {"rows": rows, "forgotten": forgotten})
