"""What an explanation has of a key: rows, results and states."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from streamops.kernel.time import MAX_INSTANT, format_duration, format_instant
from streamops.state.reading import rows_of_shard
from streamops.testing.recorded import ArrivedRow, of_key
from streamops.testing.results import records

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_BOUNDS = (("window_start", "window_end"), ("match_start", "match_end"))
_NAMES = {"stragglers": "straggler", "accepted": "accepted"}
LATE = {"too_late", "straggler", "stragglers", "too_old"}
REJECTED = {"rejected", "null_time", "time_out_of_range"}


@dataclass(frozen=True, slots=True)
class KeyRow:
    """A row of the key: its micro-batch, its operator, and what it counted as."""

    batch: int
    operator: str
    arrived: ArrivedRow

    def __str__(self) -> str:
        row = self.arrived
        outcome = _NAMES.get(row.outcome, row.outcome.replace("_", " "))
        behind = ""
        if row.lateness is not None and row.outcome in LATE:
            behind = f" by {format_duration(row.lateness)}"
        side = f" {row.side}" if row.side else ""
        return (
            f"micro-batch {self.batch}: {self.operator}{side}: {outcome}{behind}, "
            f"watermark {format_instant(row.watermark)}: {show(row.row)}"
        )


@dataclass(frozen=True, slots=True)
class KeyResult:
    """A result of the key, the rows that it is made of, and whether the target of the sink has it."""

    batch: int
    row: dict[str, Any]
    rows: tuple[KeyRow, ...]
    is_committed: bool
    is_written: bool | None = None

    def __str__(self) -> str:
        state = "" if self.is_committed else ", not committed"
        if self.is_written is not None:
            state += ", written" if self.is_written else ", not written"
        made = f", from {count(self.rows, 'row')}" if self.rows else ""
        return f"micro-batch {self.batch}{state}: result{made}: {show(self.row)}"


@dataclass(frozen=True, slots=True)
class KeyState:
    """The state of an operator for the key after a micro-batch that changed it, as of ``state.read``."""

    batch: int
    operator: str
    blob: str = field(repr=False)
    segments: Mapping[int, str] = field(repr=False)
    where: Mapping[str, Any] = field(default_factory=dict, repr=False)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of the state; of a later operator in a chain there may be several keys."""
        table = rows_of_shard(self.blob, self.segments)
        return [] if table is None else records(of_key(table.drop_columns("shard"), self.where))


def bounds_of(row: Mapping[str, Any]) -> tuple[str, str] | None:
    """The columns with the bounds of a result, if it has some."""
    for start, end in _BOUNDS:
        if row.get(start) is not None and row.get(end) is not None:
            return start, end
    return None


def instant(micros: int | None) -> dt.datetime | None:
    """The instant of these microseconds, if there is one."""
    if micros is None or abs(micros) > MAX_INSTANT:
        return None
    return _EPOCH + dt.timedelta(microseconds=micros)


def micros_of(instant: dt.datetime) -> int:
    """The microseconds of an instant."""
    if instant.tzinfo is None:
        instant = instant.replace(tzinfo=dt.UTC)
    return (instant - _EPOCH) // dt.timedelta(microseconds=1)


def count(things: Sequence[Any], name: str) -> str:
    """How many there are, as text."""
    return f"{len(things)} {name}{'' if len(things) == 1 else 's'}"


def show(row: Mapping[str, Any]) -> str:
    """A row as text."""
    return ", ".join(f"{name}={_value(value)}" for name, value in row.items())


def _value(value: Any) -> str:
    return value.isoformat() if isinstance(value, dt.datetime) else repr(value)
