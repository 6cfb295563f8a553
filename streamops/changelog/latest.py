"""The newest row of each key: what a change makes of it, and which deletes are forgotten.

A change counts if its place in the order of its key's changes is above what is remembered. A delete
leaves its place behind, until it is older than the horizon; the highest place so forgotten is kept,
and a change at or below it that is older than the horizon itself, of a key that nothing is known of,
may be one that was deleted since: it is rejected. Places of several keys need not be comparable (the
offsets of two partitions are not): what comes in time is taken whatever was forgotten.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from streamops.changelog.batch import KeyedBatch, key_columns, max_evicted, to_positions
from streamops.changelog.carry_forward import NONE, OrderedChanges
from streamops.changelog.classify import ClassifiedChanges
from streamops.changelog.table import KeyedTable
from streamops.kernel.columns import combine_chunks, concat, key_codes
from streamops.kernel.contract import State
from streamops.kernel.group_states import list_sizes, make_lists
from streamops.kernel.groups import Groups, Ids, Ints, Mask

__all__ = ["accept_changes", "advance_clock", "build_latest_rows", "check_latest_rows", "evict_tombstones", "find_effective", "latest_layout"]  # fmt: skip

Fields = Sequence[tuple[str, pa.DataType]]


def latest_layout(spec: KeyedTable, extra: Fields = ()) -> Mapping[str, pa.Schema]:
    """Columns of the tables of a state: with further ones, of which a forgotten row leaves the greatest."""
    keys = [(f"key.{i}", spec.input.field(name).type) for i, name in enumerate(spec.by)]
    change = [("place", spec.position), ("is_log", pa.bool_()), ("is_deleted", pa.bool_())]
    lacks = ("lacks", pa.list_(pa.int32()))
    values = [(f"value.{i}", spec.input.field(name).type) for i, name in enumerate(spec.values)]
    givers = ("givers", pa.list_(pa.struct([*change, lacks, *values])))
    row = [*keys, *change, ("age", pa.int64()), *extra, lacks, givers, *values]
    return {
        "rows": pa.schema(row),
        "forgotten": pa.schema([("place", spec.position), ("age", pa.int64()), *extra]),
    }


def accept_changes(
    spec: KeyedTable, state: State, judged: ClassifiedChanges
) -> tuple[KeyedBatch, int]:
    """What is remembered, and the changes that may be taken in; how many came before.

    What loses against another at its place is rejected, and taken in all the same: it may give a
    value to that. What is rejected as a change of its key is so as often as it came: two deletes say
    the same, and need not have come with the same values.
    """
    meeting, again, unknowable = KeyedBatch.of(spec, state, judged)
    size = len(meeting.kept)
    loses = meeting.loses[size : size + len(again)]
    judged.reject(np.flatnonzero(loses), "conflict")
    meeting, again = meeting.without(unknowable, "forgotten"), again[~unknowable]
    full = meeting.beyond()
    meeting, again = meeting.without(full, "full"), again[~full]
    loses = meeting.loses[size : size + len(again)]
    return meeting.without(again), int(np.count_nonzero(again & ~loses))


def find_effective(meeting: KeyedBatch, entries: OrderedChanges) -> tuple[Mask, int]:
    """Changes at or above what is remembered of their key; how many came that are below."""
    is_own, size = meeting.is_own(entries), len(meeting.kept)
    bar = np.full(int(entries.key.max(initial=NONE)) + 1, np.iinfo(np.int64).min)
    bar[:size] = meeting.place[:size]
    counts = is_own & ~meeting.loses[entries.row]
    found: Mask = counts & (entries.place >= bar[entries.key])
    return found, int(np.count_nonzero(counts & ~found & (entries.row >= size)))


def build_latest_rows(
    meeting: KeyedBatch,
    entries: OrderedChanges,
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
    row = entries.row[last]
    schema = latest_layout(spec, [(name, each.type) for name, each in extra.items()])["rows"]
    gives = (source != last[:, np.newaxis]) & (source != NONE) & ~gone[:, np.newaxis]
    key, value = np.nonzero(gives)
    size = max(len(entries.key), 1)
    both = np.unique(key * size + source[key, value])
    owner, giver = both // size, entries.row[both % size]
    kind = schema.field("givers").type
    givers = pa.StructArray.from_arrays(_changes(meeting, giver), fields=list(kind.value_type))
    columns = [
        *meeting.keys_of(entries.key[last]),
        meeting.places.take(pa.array(row)),
        meeting.logs.take(pa.array(row)),
        pa.array(gone),
        pa.array(meeting.ages[row]),
        *extra.values(),
        to_positions(meeting.lacks[row]),
        make_lists(givers, np.bincount(owner, minlength=len(last))).cast(kind),
        *values,
    ]
    return pa.table(columns, schema=schema)


def _changes(meeting: KeyedBatch, rows: Ids) -> list[pa.Array]:
    """Changes as they were sent."""
    index, lacks, gone = pa.array(rows), meeting.lacks[rows], meeting.is_delete[rows]
    absent = lacks | gone[:, np.newaxis]
    return [
        meeting.places.take(index),
        meeting.logs.take(index),
        pa.array(gone),
        to_positions(lacks),
        *(
            each.take(pa.array(rows, mask=absent[:, number]))
            for number, each in enumerate(meeting.values)
        ),
    ]


def advance_clock(before: int | None, ages: Ints) -> int | None:
    """The age of the newest change so far."""
    if not len(ages):
        return before
    return int(ages.max()) if before is None else max(before, int(ages.max()))


def evict_tombstones(
    spec: KeyedTable, newest: int | None, rows: pa.Table, forgotten: pa.Table
) -> dict[str, pa.Table]:
    """The tables of a state without deletes that are older than the horizon."""
    deleted = np.asarray(combine_chunks(rows.column("is_deleted")))
    gone = np.zeros(len(rows), np.bool_)
    if newest is not None:
        gone = deleted & (np.asarray(combine_chunks(rows.column("age"))) < spec.cutoff(newest))
    if gone.any():
        old = rows.filter(pa.array(gone)).select(forgotten.column_names)
        forgotten = max_evicted(concat([forgotten, old]))
        rows = rows.filter(pa.array(~gone))
    return {"rows": rows, "forgotten": forgotten}


def check_latest_rows(spec: KeyedTable, state: State) -> None:
    """Each key is there once, deletes are not too old, and what is deleted has no values."""
    rows, shown = state.tables["rows"], str(state.tables)
    groups, _ = Groups.of(key_codes([rows.column(name) for name in key_columns(spec)], len(rows)))
    assert groups.count == len(rows) <= spec.limit, f"a key twice, or too many: {shown}"
    assert len(state.tables["forgotten"]) <= 1, shown
    deleted = rows.filter(rows.column("is_deleted"))
    for number in range(len(spec.values)):
        assert deleted.column(f"value.{number}").null_count == len(deleted), shown
    for name in ("lacks", "givers"):
        assert not list_sizes(combine_chunks(deleted.column(name))).any(), shown
    if state.watermark is not None and len(deleted):
        assert pc.min(deleted.column("age")).as_py() >= spec.cutoff(state.watermark), shown
