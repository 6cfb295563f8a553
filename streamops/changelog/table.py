"""The columns of a stream of keyed changes, and the parameters of the operators that read it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from streamops.changelog import conditions
from streamops.changelog.change_types import CHANGE_TYPE
from streamops.kernel import conditions as common
from streamops.kernel.columns import combine_chunks
from streamops.kernel.core import State
from streamops.kernel.groups import Ints, Mask
from streamops.kernel.lateness import LATE
from streamops.kernel.operator import checkpointed, with_types
from streamops.kernel.ordering import require_sequence
from streamops.kernel.parameters import refuse_type
from streamops.kernel.time import Duration, format_duration, parse_duration

Snapshots = Literal["below_log", "by_sequence"]
WhenFull = Literal["fail", "reject_new"]

SEQUENCE = "_sequence"
SNAPSHOT = "_snapshot"
UNAVAILABLE = "_unavailable"
CHANGED_AT = "_changed_at"
TOMBSTONE = "_tombstone"
REJECTED = "rejected"

CHANGE_COLUMNS = (CHANGE_TYPE, SEQUENCE, SNAPSHOT, UNAVAILABLE, CHANGED_AT, TOMBSTONE, REJECTED)
"""Columns that describe a change; they are not values of the row."""

SIDE_OUTPUT = (REJECTED, LATE)
"""Columns in which an operator before has a reason why a row is not a result."""

COMMIT_COLUMNS = ("_commit_version", "_commit_timestamp")
"""The same columns of Delta's change data feed."""

DELTA_SEQUENCE = pa.struct([("version", pa.int64()), ("position", pa.int32())])
"""Sequence of a change in Delta's log: the commit, and 0 for a retraction or 1 for an addition."""

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
"""Reasons for which a change is rejected, by precedence."""


class Microseconds(int):
    """A duration in microseconds. Its ``repr`` is the duration as a user writes it."""

    def __repr__(self) -> str:
        return repr(format_duration(self))


def is_rejected_type(dtype: pa.DataType) -> bool:
    """Whether a column of this type has the reason for which a row was rejected."""
    fields = {field.name: field.type for field in dtype} if pa.types.is_struct(dtype) else {}
    return bool(fields.get("reason") == pa.string())


def drop_tombstones(rows: pa.Table) -> pa.Table:
    """The rows without Kafka's tombstones."""
    if TOMBSTONE not in rows.column_names:
        return rows
    return rows.filter(pc.invert(combine_chunks(rows.column(TOMBSTONE)).fill_null(False)))


@dataclass(frozen=True, kw_only=True)
class KeyedTable:
    """Parameters of an operator that stores the latest row of each key."""

    key: tuple[str, ...] = checkpointed(with_types)
    sequence: tuple[str, ...] = checkpointed(with_types)  # columns that order the changes of a key
    horizon: int  # how long a deleted key is stored: microseconds of `time`, or units of `sequence`
    time: str | None = (
        checkpointed()
    )  # the horizon is measured on this column, or on the sequence, an integer
    snapshots: Snapshots = (
        checkpointed()
    )  # whether rows of a snapshot are below every change of the log
    when_full: WhenFull  # what happens to changes of more than `limit` keys
    ignore_nulls: bool = checkpointed(default=False)  # whether a null is a missing value
    # Set by ``resolve``:
    input: pa.Schema = field(default_factory=lambda: pa.schema([]), repr=False)  # columns to read
    values: tuple[str, ...] = checkpointed(
        with_types, default=(), repr=False
    )  # value columns of the row
    limit: int = field(default=0, repr=False)  # number of keys that a shard may store

    @property
    def truncates(self) -> bool:
        """Whether a truncate is a change, and not an unknown operation."""
        return False

    @property
    def by(self) -> tuple[str, ...]:
        """Columns that select the shard of a row."""
        return self.key

    @property
    def position(self) -> pa.DataType:
        """Type of the sequence."""
        fields = [self.input.field(name) for name in self.sequence]
        return fields[0].type if len(fields) == 1 else pa.struct(fields)

    def cutoff(self, clock: int) -> int:
        """The oldest clock within the horizon, at least the lowest 64-bit integer."""
        return max(clock - self.horizon, -(1 << 63))

    def is_beyond(self, clock: Ints, is_log: Mask, state: State) -> Mask:
        """Which changes may be older than an evicted tombstone, in a state that has evicted some.

        These are changes beyond the horizon of the previous micro-batches; changes not newer than a
        tombstone evicted with a shorter horizon; and all rows of a snapshot, whose time may be that
        of the read.
        """
        latest = state.watermark
        evicted = combine_chunks(state.tables["evicted"].column("clock"))[0].as_py()
        assert latest is not None
        result: Mask = ~is_log | (clock < self.cutoff(latest)) | (clock <= evicted)
        return result


DEFAULT_MAX_KEYS = 10_000_000
"""Default number of keys that an operator may store."""


def parse_horizon(horizon: Duration | int | None, time: str | None, *, parameter: str) -> int:
    """A horizon as ``Microseconds`` with `time`, otherwise as a number of units of the sequence.

    Raises
    ------
    SpecError
        ``PARAMETER_MISSING``, or an error of ``parse_duration``.
    """
    if isinstance(horizon, str | dt.timedelta) and time is not None:
        return Microseconds(parse_duration(horizon, parameter=parameter, minimum=0))
    if isinstance(horizon, int) and type(horizon) is int and horizon >= 0 and time is None:
        return horizon
    raise conditions.HORIZON_WITHOUT_UNIT.error(
        parameter=parameter, got=f"{parameter}={horizon!r}, time={time!r}"
    )


def value_columns(
    schema: pa.Schema, key: Sequence[str], sequence: Sequence[str]
) -> tuple[str, ...]:
    """The value columns of a row: not its key, its sequence, or a description of the change."""
    others = {*key, *sequence, *CHANGE_COLUMNS, *COMMIT_COLUMNS}
    return tuple(name for name in schema.names if name not in others)


def refuse_change_type(columns: Mapping[str, Sequence[str | None]]) -> None:
    """Refuse parameters that name the change type, which is not a column of the row.

    Raises
    ------
    SpecError
        ``NAME_TAKEN``.
    """
    for role, names in columns.items():
        if CHANGE_TYPE in names:
            raise conditions.CHANGE_TYPE_RESERVED.error(
                change_type=CHANGE_TYPE, got=f"{CHANGE_TYPE!r}, given as `{role}`"
            )


def require_change_columns(schema: pa.Schema, sequence: Sequence[str], time: str | None) -> None:
    """Refuse a sequence without an order, and columns of a change that have the wrong type."""
    dtypes = {field.name: field.type for field in schema}

    def refuse(role: str, name: str, expected: str) -> None:
        condition = common.CHANGE_COLUMN_TYPE
        refuse_type(condition, schema, name, role=role, expected=expected)

    require_sequence(schema, sequence)
    if time is None and not (len(sequence) == 1 and pa.types.is_integer(dtypes[sequence[0]])):
        expected = "one integer, in which the horizon is measured; or time=... beside it"
        refuse("sequence", sequence[0], expected)
    if time is not None and not pa.types.is_timestamp(dtypes[time]):
        refuse("time", time, "timestamp")
    wanted = {
        CHANGE_TYPE: (pa.types.is_string, "string"),
        SNAPSHOT: (pa.types.is_boolean, "boolean"),
        TOMBSTONE: (pa.types.is_boolean, "boolean"),
        UNAVAILABLE: (lambda dtype: dtype == pa.list_(pa.string()), "array<string>"),
        REJECTED: (is_rejected_type, "struct with a string `reason`"),
    }
    for name, (is_expected, expected) in wanted.items():
        if name in dtypes and not is_expected(dtypes[name]):
            refuse(name, name, expected)
