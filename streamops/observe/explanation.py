"""Why a query has a result, or none: the answer, and the time line of a key."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from streamops.kernel.time import MAX_INSTANT, format_duration, format_instant
from streamops.state.reading import rows_of_shard
from streamops.testing.recorded import ArrivedRow
from streamops.testing.results import records

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

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
        made = f", from {len(self.rows)} rows" if self.rows else ""
        return f"micro-batch {self.batch}{state}: result{made}: {show(self.row)}"


@dataclass(frozen=True, slots=True)
class KeyState:
    """The state of an operator for the key after a micro-batch that changed it, as of ``state.read``."""

    batch: int
    operator: str
    blob: str = field(repr=False)
    segments: Mapping[int, str] = field(repr=False)

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of the state; of a later operator in a chain there may be several keys."""
        table = rows_of_shard(self.blob, self.segments)
        return [] if table is None else records(table.drop_columns("shard"))


@dataclass(frozen=True)
class Explanation:
    """The rows and results of one key, and why a result exists or does not.

    Parameters
    ----------
    reason : str
        "result", "open", "late", "rejected", "no_rows", "no_partner" or "no_result".
    answer : str
        The reason as a sentence.
    key_rows : tuple of KeyRow
        The rows that arrived, in their order.
    key_results : tuple of KeyResult
        The results that fit the conditions, in their order.
    due : int, optional
        Of an open result: Spark's watermark in milliseconds at which it is emitted.
    notes : tuple of str
        What the checkpoint or the source does not have any more, and what the ledger of the sink does not say.
    operator : str, optional
        Without a result: the operator that has the rows, or has lost them.
    key_states : tuple of KeyState
        The state of the key after each micro-batch that changed it.
    watermarks : tuple of tuple of int
        Each micro-batch, and Spark's watermark in milliseconds.
    """

    reason: str
    answer: str
    key_rows: tuple[KeyRow, ...]
    key_results: tuple[KeyResult, ...]
    due: int | None
    notes: tuple[str, ...]
    operator: str | None = None
    key_states: tuple[KeyState, ...] = ()
    watermarks: tuple[tuple[int, int], ...] = ()

    def __str__(self) -> str:
        both: list[KeyRow | KeyResult] = [*self.key_rows, *self.key_results]
        events = sorted(both, key=lambda event: event.batch)
        return "\n".join([self.answer, *map(str, events), *(f"note: {n}" for n in self.notes)])

    @property
    def rows(self) -> pd.DataFrame:
        """One row per row of the key: micro-batch, operator, outcome, watermark, lateness, columns."""
        import pandas as pd

        found = [
            {
                "batch": of.batch,
                "operator": of.operator,
                "side": of.arrived.side,
                "outcome": of.arrived.outcome,
                "watermark": instant(of.arrived.watermark),
                "lateness": None
                if of.arrived.lateness is None
                else dt.timedelta(microseconds=of.arrived.lateness),
                "row": of.arrived.row,
            }
            for of in self.key_rows
        ]
        return pd.DataFrame(found, columns=list(found[0]) if found else list(_ROW_COLUMNS))

    @property
    def results(self) -> pd.DataFrame:
        """One row per result: its micro-batch, the number of its rows, and its columns."""
        import pandas as pd

        return pd.DataFrame(
            [
                {"batch": of.batch, "rows": len(of.rows), "written": of.is_written, **of.row}
                for of in self.key_results
            ]
        )

    @property
    def states(self) -> pd.DataFrame:
        """One row per micro-batch and operator that changed its state: the tables of the state."""
        import pandas as pd

        found = [
            {"batch": of.batch, "operator": of.operator, **row}
            for of in self.key_states
            for row in of.rows
        ]
        return pd.DataFrame(found, columns=None if found else ["batch", "operator"])

    def plot(self, ax: Axes | None = None) -> Axes:
        """Plot the time line: rows and results at their event times, by micro-batch, and the watermark.

        Parameters
        ----------
        ax : Axes, optional
            Where to draw. Default: a new figure.

        Returns
        -------
        Axes

        Raises
        ------
        RequirementError
            ``PACKAGE_MISSING``: matplotlib is not installed.
        """
        from streamops.observe.time_line import draw

        return draw(self, ax)


_ROW_COLUMNS = ("batch", "operator", "side", "outcome", "watermark", "lateness", "row")


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


def show(row: Mapping[str, Any]) -> str:
    """A row as text."""
    return ", ".join(f"{name}={_value(value)}" for name, value in row.items())


def _value(value: Any) -> str:
    return value.isoformat() if isinstance(value, dt.datetime) else repr(value)
