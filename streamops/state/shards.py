"""The stored shards of an operator, decoded and encoded again: for another number of them, or from an
older format. Spark's state store is not needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from streamops.kernel.added import with_all_unknown
from streamops.kernel.codec import StoredFrame, read_stored, require_checksum
from streamops.kernel.columns import concat
from streamops.kernel.core import State, StateFormat
from streamops.kernel.errors import CheckpointError, located
from streamops.kernel.frame import FRAME
from streamops.kernel.placement import (
    Placement,
    Tables,
    merge_states,
    redistribute_states,
    require_tables,
    upgrade,
)
from streamops.kernel.segments import INDEX, ROWS, UNMERGED, read_index
from streamops.spark.step import Stored, to_frame
from streamops.state import conditions
from streamops.state.comparing import find_row
from streamops.state.mapping import Migration
from streamops.state.operators import FORMATS, PLACEMENTS


@dataclass(frozen=True, slots=True)
class StoredShard:
    """A shard as it is in a state store.

    Parameters
    ----------
    shard : int
        Its number.
    stored : Stored
        The row of its state.
    timer : int, optional
        When its timer or timeout fires, in milliseconds.
    partition : int
        The partition that it is in.
    segments : mapping of int to str
        Its segments by number, as stored.
    """

    shard: int
    stored: Stored
    timer: int | None
    partition: int
    segments: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OperatorState:
    """The state of an operator, decoded.

    Parameters
    ----------
    frame : int
        Version of the frames.
    format : StateFormat
        The layout, and its version.
    identity : mapping
        The parameters that the state depends on.
    shards : int
        Number of shards.
    states : mapping of int to State
        By shard. A shard without a state is missing. Rows of segments are in the table ``_unmerged``: in all
        shards, or in none.
    deadline : int, optional
        The first of the deadlines.
    timer : int, optional
        When the timers or timeouts fire: all at once.
    """

    frame: int
    format: StateFormat
    identity: Mapping[str, Any]
    shards: int
    states: Mapping[int, State]
    deadline: int | None
    timer: int | None

    @property
    def name(self) -> str:
        """Name of the layout, such as ``windows.grid``."""
        return self.format.kind

    @property
    def placement(self) -> Placement:
        """Which shard each row belongs to."""
        return PLACEMENTS[self.name]

    @property
    def entries(self) -> int:
        """Rows of all tables."""
        return sum(state.rows for state in self.states.values())

    @property
    def is_current(self) -> bool:
        """Whether frames and layout have the versions that this release writes."""
        return self.frame == FRAME and self.format == FORMATS[self.name]

    def merged(self) -> State:
        """The state of all keys in one."""
        return merge_states(self.placement, self.identity, list(self.states.values()))


def decode_shards(rows: Sequence[StoredShard], migration: Migration | None = None) -> OperatorState:
    """Decode the shards of an operator and check that they belong together.

    With a migration, the state is that of the operator that continues.

    Raises
    ------
    StateFormatError
        ``STATE_CORRUPT``, ``STATE_VERSION``.
    CheckpointError
        ``CHECKPOINT_INCONSISTENT``.
    """
    assert rows, "an operator without a shard"
    frames = {row.shard: read_header(row) for row in rows}
    first = frames[rows[0].shard]
    for shard, frame in frames.items():
        if _header(frame) != _header(first) or shard not in range(first.shards):
            raise _contradiction(
                f"shard {rows[0].shard}: {_header(first)}; shard {shard}: {_header(frame)}"
            )
    placement = PLACEMENTS[first.layout]
    tables = {
        row.shard: read_tables(frames[row.shard], row.segments, migration, row.stored.watermark)
        for row in rows
    }
    # The same tables in all shards, also if only some of them have segments.
    further = [of[UNMERGED].slice(0, 0) for of in tables.values() if UNMERGED in of]
    more = {UNMERGED: further[0]} if further else {}
    complete = _with_same_columns({shard: more | of for shard, of in tables.items()})
    states = {
        row.shard: State(row.stored.watermark, complete[row.shard])
        for row in sorted(rows, key=lambda row: row.shard)
    }
    timers = {row.timer for row in rows}
    watermarks = {row.stored.watermark for row in rows}
    if len(timers) > 1 or (placement.watermark == "equal" and len(watermarks) > 1):
        raise _contradiction(f"watermarks {watermarks}, timers {timers}")
    deadlines = (row.stored.deadline for row in rows if row.stored.deadline is not None)
    return OperatorState(
        frame=first.frame,
        format=first.format if migration is None else migration.step.core.STATE,
        identity=first.identity if migration is None else migration.identity,
        shards=first.shards,
        states=states,
        deadline=(
            min(deadlines, default=None)
            if migration is None
            else migration.deadline(states.values())
        ),
        timer=timers.pop(),
    )


def _with_same_columns(tables: Mapping[int, Tables]) -> dict[int, dict[str, pa.Table]]:
    """The tables of each shard; aggregates may be unknown in some of them only."""
    found: dict[int, dict[str, pa.Table]] = {shard: dict(of) for shard, of in tables.items()}
    for name in {name for of in tables.values() for name in of}:
        shards = [shard for shard, of in found.items() if name in of]
        complete = with_all_unknown([found[shard][name] for shard in shards])
        for shard, table in zip(shards, complete, strict=True):
            found[shard][name] = table
    return found


def read_tables(
    frame: StoredFrame,
    segments: Mapping[int, str],
    migration: Migration | None = None,
    watermark: int | None = None,
) -> dict[str, pa.Table]:
    """The tables of a shard. Rows of its segments are in the table ``_unmerged``.

    With a migration, they are those of the operator that continues; ``watermark`` is that of the state.

    Raises
    ------
    CheckpointError
        ``CHECKPOINT_INCONSISTENT``.
    """
    tables = frame.tables()
    require_tables(tables.keys() - {INDEX}, frame.format, PLACEMENTS[frame.layout])
    if migration is not None:
        tables = migration.read(frame, watermark)
    if INDEX not in tables:
        return tables
    checksums = {of.number: of.checksum for of in read_index(tables.pop(INDEX))}
    if checksums.keys() != segments.keys():
        found = f"segments {sorted(segments)}, and an index of {sorted(checksums)}"
        raise _contradiction(found)
    rows = [tables[UNMERGED]] if UNMERGED in tables else []
    for number, checksum in sorted(checksums.items()):
        with located(at=f"segment {number}"):
            blob = require_checksum(to_frame(segments[number]), checksum)
            segment = read_stored(blob)
            if segment.identity != frame.identity and migration is None:
                raise conditions.SEGMENT_OF_OTHER_AGGREGATES.error(got=str(segment.identity))
            read = (
                segment.tables()
                if migration is None
                else migration.read(segment, None, is_segment=True)
            )
            rows.append(read[ROWS])
    return tables | {UNMERGED: concat(with_all_unknown(rows))}


def read_header(row: StoredShard) -> StoredFrame:
    """Verify the frame of a shard, and read its header.

    Raises
    ------
    StateFormatError
        ``STATE_CORRUPT``, ``STATE_VERSION``: this release has
        no such layout.
    """
    with located(at=f"shard {row.shard}"):
        frame = read_stored(row.stored.frame)
    if frame.layout not in FORMATS:
        raise conditions.STATE_UNKNOWN.error(
            formats=", ".join(sorted(FORMATS)), got=f"{frame.layout} version {frame.version}"
        )
    return frame


def convert(state: OperatorState) -> OperatorState:
    """Convert a state to the current formats.

    Raises
    ------
    StateFormatError
        ``STATE_VERSION``.
    """
    current = FORMATS[state.name]
    if state.format == current:
        return state
    states, identity = {}, state.identity
    for shard, old in state.states.items():
        identity, tables = upgrade(
            state.placement, state.format, current, state.identity, old.tables
        )
        states[shard] = State(old.watermark, tables)
    return OperatorState(
        state.frame, current, identity, state.shards, states, state.deadline, state.timer
    )


def redistribute(state: OperatorState, shards: int, *, moves: bool = False) -> OperatorState:
    """Redistribute a state in the current format on another number of shards, or if its keys move."""
    if (shards == state.shards and not moves) or state.placement.is_single:
        return state
    identity, parts = redistribute_states(
        state.placement, state.identity, state.states, state.shards, shards
    )
    states = dict(enumerate(parts))
    return OperatorState(
        state.frame, state.format, identity, shards, states, state.deadline, state.timer
    )


def migrate_shards(
    rows: Sequence[StoredShard], migration: Migration
) -> tuple[OperatorState, OperatorState]:
    """The state of the operator that continues, as it is stored now, and on the shards where it belongs.

    Raises
    ------
    StateFormatError
        ``STATE_CORRUPT``, ``STATE_VERSION``, ``STATE_PARAMETERS``.
    SpecError
        ``PARAMETER_WITHOUT_EFFECT``, ``DUPLICATE_COLUMN``.
    """
    shards, first = migration.step.shards, read_header(rows[0])
    if PLACEMENTS[first.layout].redistribute is not None and shards != first.shards:
        # The parameters of such a state depend on the number of shards, which changes first.
        moved = redistribute(convert(decode_shards(rows)), shards)
        rows = encode_shards(moved, dict.fromkeys(range(shards), 0))
        first = read_header(rows[0])
    migration.require_used(first.identity)
    state = decode_shards(rows, migration)
    return state, redistribute(state, shards, moves=migration.moves(first.identity))


def encode_shards(state: OperatorState, partition_of: Mapping[int, int]) -> list[StoredShard]:
    """Encode a state in the current formats. The next step decodes each shard: other parameters may emit something."""
    header = FORMATS[state.name], state.identity, state.shards
    encoded = {
        shard: Stored.of(_without_empty(of_shard), header, deadline=state.deadline, is_due=True)
        for shard, of_shard in state.states.items()
    }
    return [
        StoredShard(shard, stored, state.timer, partition_of[shard])
        for shard, stored in encoded.items()
    ]


def _without_empty(state: State) -> State:
    """The state without the table ``_unmerged``, if it is empty."""
    tables = {n: table for n, table in state.tables.items() if n != UNMERGED or len(table)}
    return State(state.watermark, tables)


def find_difference(left: OperatorState, right: OperatorState) -> str:
    """Describe a difference between two states, on whatever shards; empty if there is none.

    They have the same rows, watermark and timers. Of a state that is not placed by the rules of its tables, the rows are
    not compared if the number of shards differs.
    """
    if (left.format, left.timer) != (right.format, right.timer):
        return f"{left.format}, timer {left.timer}, and {right.format}, timer {right.timer}"
    if left.placement.redistribute is not None and left.shards != right.shards:
        return ""
    if left.identity != right.identity:
        return f"parameters {left.identity} and {right.identity}"
    same_shards = (left.shards, left.states.keys()) == (right.shards, right.states.keys())
    if same_shards and not any(
        _find_difference(of, right.states[shard]) for shard, of in left.states.items()
    ):
        return ""
    return _find_difference(left.merged(), right.merged())


def _find_difference(left: State, right: State) -> str:
    if left.watermark != right.watermark:
        return f"watermarks {left.watermark} and {right.watermark}"
    if left.tables.keys() != right.tables.keys():
        return f"tables {sorted(left.tables)} and {sorted(right.tables)}"
    for name, table in left.tables.items():
        found = find_row(table, right.tables[name])
        if found:
            return f"table {name!r}: {found}"
    return ""


def _header(frame: StoredFrame) -> tuple[Any, ...]:
    return frame.frame, frame.format, frame.shards, frame.identity


def _contradiction(got: str) -> CheckpointError:
    return conditions.SHARDS_CONTRADICT.error(got=got)
