"""What is known of a table whose rows have keys, of which the changes come in any order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from streamops.changelog.change_types import CHANGE_TYPE
from streamops.kernel.columns import combine_chunks
from streamops.kernel.contract import State
from streamops.kernel.groups import Ints, Mask

__all__ = [
    "CHANGED_AT",
    "CHANGE_COLUMNS",
    "COMMIT_COLUMNS",
    "DELTA_SEQUENCE",
    "REASONS",
    "REJECTED",
    "SEQUENCE",
    "SNAPSHOT",
    "TOMBSTONE",
    "UNAVAILABLE",
    "UNKNOWN_OPERATION",
    "KeyedTable",
    "Snapshots",
    "WhenFull",
    "drop_tombstones",
    "is_rejected_type",
]

Snapshots = Literal["below_log", "by_sequence"]
WhenFull = Literal["fail", "reject"]

SEQUENCE = "_sequence"
SNAPSHOT = "_snapshot"
UNAVAILABLE = "_unavailable"
CHANGED_AT = "_changed_at"
TOMBSTONE = "_tombstone"
REJECTED = "rejected"

CHANGE_COLUMNS = (CHANGE_TYPE, SEQUENCE, SNAPSHOT, UNAVAILABLE, CHANGED_AT, TOMBSTONE, REJECTED)
"""Columns that say something of a change, and are no value of the row."""

COMMIT_COLUMNS = ("_commit_version", "_commit_timestamp")
"""The same, of Delta's change data feed."""

DELTA_SEQUENCE = pa.struct([("version", pa.int64()), ("position", pa.int32())])
"""A place in Delta's log: the commit, and in it 0 for what goes and 1 for what comes."""

UNKNOWN_OPERATION = "unknown_operation"

REASONS = (
    UNKNOWN_OPERATION,
    "null_key",
    "no_sequence",
    "null_time",
    "time_out_of_range",
    "conflict",
    "forgotten",
    "full",
)
"""Why a change is rejected; the first that applies."""


def is_rejected_type(kind: pa.DataType) -> bool:
    """Whether values of this type say why a row was put aside."""
    fields = {each.name: each.type for each in kind} if pa.types.is_struct(kind) else {}
    return bool(fields.get("reason") == pa.string())


def drop_tombstones(rows: pa.Table) -> pa.Table:
    """The rows that say something of a table."""
    if TOMBSTONE not in rows.column_names:
        return rows
    return rows.filter(pc.invert(combine_chunks(rows.column(TOMBSTONE)).fill_null(False)))


@dataclass(frozen=True)
class KeyedTable:
    """What the machinery that remembers rows of a table must know of its changes.

    Parameters
    ----------
    where : str
        The operator, for errors.
    by : tuple of str
        Key columns.
    sequence : tuple of str
        Columns that order the changes of a key.
    time : str, optional
        Column by which deletes grow old; else they do by the sequence, a whole number.
    horizon : int
        For how long a delete is remembered: microseconds, or units of the sequence.
    values : tuple of str
        The other columns of the row.
    input : Schema
        The columns that are read.
    snapshots : str
        Whether rows of a snapshot lose against all of the log.
    limit : int
        Keys that one shard may keep.
    when_full : str
        What happens to changes of further ones.
    """

    where: str
    by: tuple[str, ...]
    sequence: tuple[str, ...]
    time: str | None
    horizon: int
    values: tuple[str, ...]
    input: pa.Schema
    snapshots: Snapshots
    limit: int
    when_full: WhenFull

    @property
    def position(self) -> pa.DataType:
        """Type of a place in the order of changes."""
        fields = [self.input.field(name) for name in self.sequence]
        return fields[0].type if len(fields) == 1 else pa.struct(fields)

    def cutoff(self, newest: int) -> int:
        """What is older is beyond the horizon; within what 64 bits hold."""
        return max(newest - self.horizon, -(1 << 63))

    def is_beyond(self, ages: Ints, is_log: Mask, state: State) -> Mask:
        """Which may be older than deletes that were forgotten, as some were.

        They are beyond the horizon of what came before them; or beyond one that was shorter, when
        something was forgotten. Of a row of a snapshot its age does not say: that may be when it was
        read.
        """
        newest, gone = (
            state.watermark,
            combine_chunks(state.tables["forgotten"].column("age"))[0].as_py(),
        )
        assert newest is not None
        result: Mask = ~is_log | (ages < self.cutoff(newest)) | (ages <= gone)
        return result
