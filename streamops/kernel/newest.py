"""The newest row of each key: what a change makes of it, and which deletes are forgotten.

A change counts if its place in the order of its key's changes is above what is remembered. A delete
leaves its place behind, until it is older than the horizon; the highest place so forgotten is kept,
and a change at or below it, of a key that nothing is known of, may be one that was deleted since: it
is rejected.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamops.kernel.columns import concat, key_codes, one
from streamops.kernel.contract import State
from streamops.kernel.filled import NONE, Entries
from streamops.kernel.groups import Groups, Ids, Ints, Mask
from streamops.kernel.judged import Judged
from streamops.kernel.kept import Meeting, key_columns
from streamops.kernel.keyed import KeyedTable
from streamops.kernel.ordering import ranks
from streamops.kernel.states import listed

__all__ = ["admitted", "check_rows", "forgetting", "newest_age", "newest_layout", "remembered", "stands"]  # fmt: skip

Fields = Sequence[tuple[str, pa.DataType]]


def newest_layout(spec: KeyedTable, extra: Fields = ()) -> Mapping[str, pa.Schema]:
    """Columns of the tables of a state: with further ones, of which a forgotten row leaves the greatest."""
    cell = pa.struct([("value", pa.int32()), ("place", spec.position), ("is_log", pa.bool_())])
    keys = [(f"key.{i}", spec.input.field(name).type) for i, name in enumerate(spec.by)]
    own = [
        ("place", spec.position),
        ("is_log", pa.bool_()),
        ("is_deleted", pa.bool_()),
        ("age", pa.int64()),
        *extra,
        ("cells", pa.list_(cell)),
    ]
    values = [(f"value.{i}", spec.input.field(name).type) for i, name in enumerate(spec.values)]
    return {
        "rows": pa.schema([*keys, *own, *values]),
        "forgotten": pa.schema([("place", spec.position), *extra]),
    }


def admitted(spec: KeyedTable, state: State, judged: Judged) -> tuple[Meeting, int]:
    """What is remembered, and the changes that may be taken in; how many came before."""
    meeting, unknowable = Meeting.of(spec, state, judged)
    again, conflict = meeting.repeated()
    meeting = meeting.without(conflict, "conflict")
    meeting = meeting.without(again[~conflict])
    meeting = meeting.without(unknowable[~(again | conflict)], "forgotten")
    return meeting.without(meeting.beyond(), "full"), int(np.count_nonzero(again))


def stands(entries: Entries, kept: int) -> Mask:
    """Changes at or above what is remembered of their key."""
    is_change = entries.cell == NONE
    bar = np.full(int(entries.key.max(initial=NONE)) + 1, np.iinfo(np.int64).min)
    known = is_change & (entries.origin < kept)
    bar[entries.key[known]] = entries.place[known]
    found: Mask = is_change & (entries.place >= bar[entries.key])
    return found


def remembered(
    meeting: Meeting,
    entries: Entries,
    last: Ids,
    source: Ids,
    values: Sequence[pa.Array],
    extra: Mapping[str, pa.Array],
) -> pa.Table:
    """The last change of each key, to be kept.

    Parameters
    ----------
    meeting, entries
        What was remembered, and what came.
    last : array of int64
        The entry that each key ends with.
    source : array of int64
        Last entries by values: which entry each value comes of.
    values : sequence of Array
        Values of the last entries.
    extra : mapping of str to Array
        Further columns.
    """
    spec, gone = meeting.spec, entries.is_delete[last]
    origin = pa.array(entries.origin[last])
    key, value = np.nonzero((source != last[:, np.newaxis]) & ~gone[:, np.newaxis])
    of = source[key, value]
    given = pa.array(entries.origin[of], mask=of == NONE)
    schema = newest_layout(spec, [(name, each.type) for name, each in extra.items()])["rows"]
    kind = schema.field("cells").type
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
        *extra.values(),
        listed(cells, np.bincount(key, minlength=len(last))).cast(kind),
        *values,
    ]
    return pa.table(columns, schema=schema)


def newest_age(before: int | None, ages: Ints) -> int | None:
    """The age of the newest change so far."""
    if not len(ages):
        return before
    return int(ages.max()) if before is None else max(before, int(ages.max()))


def forgetting(
    spec: KeyedTable, newest: int | None, rows: pa.Table, forgotten: pa.Table
) -> dict[str, pa.Table]:
    """The tables of a state without deletes that are older than the horizon."""
    deleted = np.asarray(one(rows.column("is_deleted")))
    gone = np.zeros(len(rows), np.bool_)
    if newest is not None:
        gone = deleted & (np.asarray(one(rows.column("age"))) < spec.cutoff(newest))
    if gone.any():
        old = concat([forgotten, rows.filter(pa.array(gone)).select(forgotten.column_names)])
        highest = pa.array([int(ranks(one(old.column("place"))).argmax())])
        columns = [one(old.column("place")).take(highest)]
        columns += [pa.array([pc.max(each).as_py()], each.type) for each in old.columns[1:]]
        forgotten = pa.table(columns, schema=forgotten.schema)
        rows = rows.filter(pa.array(~gone))
    return {"rows": rows, "forgotten": forgotten}


def check_rows(spec: KeyedTable, state: State) -> None:
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
