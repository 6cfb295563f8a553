"""Specs of the windows on a grid: tumbling and hopping, calendar, cumulative."""

from __future__ import annotations

import datetime as dt
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import numpy as np
import pyarrow as pa

from streamops.kernel.aggregation import Summary
from streamops.kernel.calendar import DAY, LONGEST, Unit, Weekday
from streamops.kernel.errors import SpecError
from streamops.kernel.grids import CalendarGrid, CumulativeGrid, FixedGrid, Grid
from streamops.kernel.groups import Groups
from streamops.kernel.parameters import require_choice, show_duration
from streamops.kernel.time import Duration, format_duration, parse_duration, parse_instant
from streamops.windows.core.calendars import require_unit, shortest_unit, show_length
from streamops.windows.core.spec import DEFINES, DURATION, WindowSpec

__all__ = [
    "MOST_WINDOWS",
    "CalendarSpec",
    "CumulativeSpec",
    "Empty",
    "FixedSpec",
    "GridSpec",
    "parse_empty_for",
    "parse_origin",
    "parse_period_origin",
]

Empty = Literal["skip", "publish"]

MOST_WINDOWS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GridSpec(WindowSpec):
    """Parameters that the windows on a grid share.

    Parameters
    ----------
    empty : str
        Whether windows without rows are published.
    empty_for : int, optional
        How long after a window with rows a key has empty windows.
    """

    empty: Empty = "skip"
    empty_for: int | None = field(default=None, metadata=DURATION)

    @property
    @abstractmethod
    def grid(self) -> Grid:
        """The grid that assigns event times to windows."""

    @property
    def window_identity(self) -> Mapping[str, Any]:
        """The grid; and `empty_for` where it is used."""
        empty = {} if self.empty_for is None else {"empty_for": self.empty_for}
        return {**self.grid.identity, **empty}

    def __post_init__(self) -> None:
        WindowSpec.__post_init__(self)
        require_choice(self.empty, Empty, parameter="empty", where=self.operator)

    def bind(self, schema: pa.Schema, *, carried: int | None) -> Self:
        """Return the spec over these columns."""
        bound = WindowSpec.bind(self, schema, carried=carried)
        if self.empty_for is not None:
            for name, written, summary in bound.aggregates:
                self._refuse_without_value(name, written, summary, bound.input)
        return bound

    def refuse_empty_windows(self, pace: int, got: str) -> None:
        """Refuse contradictory parameters of empty windows.

        Parameters
        ----------
        pace : int
            Shortest time from the end of a window to the end of the next one.
        got : str
            The parameter that defines it, for errors.
        """
        if self.empty == "publish" and self.empty_for is None:
            raise SpecError(
                "EMPTY_WITHOUT_BOUND",
                "without a bound, a key would have empty windows for ever after its last row",
                where=self.operator,
                got="empty='publish' without empty_for",
                expected="empty_for beside it",
                fix='empty_for="1 day", say: how long after a window with rows it has empty ones',
            )
        if self.empty_for is None:
            return
        given = f"empty_for={show_duration(self.empty_for)}"
        if self.empty == "skip":
            raise SpecError(
                "EMPTY_FOR_WITHOUT_EMPTY",
                "`empty_for` says how long empty windows are published, and none are",
                where=self.operator,
                got=f"{given} with empty='skip'",
                expected="empty='publish' beside it",
                fix="write empty='publish', or leave empty_for out",
            )
        if self.empty_for < pace:
            raise SpecError(
                "EMPTY_FOR_TOO_SHORT",
                "no empty window ends so soon after a window with rows",
                where=self.operator,
                got=f"{given}, {got}",
                expected=f"at least {format_duration(pace)}",
                fix="lengthen empty_for, or leave it and empty='publish' out",
            )
        windows = self.most_empty_windows(pace)
        if windows > MOST_WINDOWS:
            raise SpecError(
                "TOO_MANY_WINDOWS",
                "each key would have too many empty windows after its last row, each of them a result",
                where=self.operator,
                got=f"{given}, {got}: {windows:,} windows",
                expected=f"at most {MOST_WINDOWS:,} empty windows after one with rows",
                fix="shorten empty_for, or take longer windows",
            )

    def most_empty_windows(self, pace: int) -> int:
        """Return how many windows can end within `empty_for` after a window with rows."""
        return (self.empty_for or 0) // pace

    def refuse_many_windows(self, windows: int, parameter: str, got: str) -> None:
        """Refuse more windows per event than anybody wants results."""
        if windows > MOST_WINDOWS:
            raise SpecError(
                "TOO_MANY_WINDOWS",
                "each event would lie in too many windows, each of them a result",
                where=self.operator,
                got=f"{got}: {windows:,} windows",
                expected=f"at most {MOST_WINDOWS:,} windows for an event: ceil(size / {parameter})",
                fix=f"lengthen {parameter}: a result for every event is another operator than this one",
            )

    def _refuse_without_value(
        self, name: str, written: str, summary: Summary, columns: pa.Schema
    ) -> None:
        """Refuse a custom aggregate that has no value for zero rows."""
        groups, cause = Groups(np.empty(0, np.int64), 1), None
        try:
            values = summary.estimate(summary.update(groups, columns.empty_table()))
            got = None if len(values) == 1 else f"{len(values)} values"
        except Exception as error:  # whatever the user's code raises
            got, cause = f"{type(error).__name__}: {error}", error
        if got is not None:
            raise SpecError(
                "NO_VALUE_OF_NOTHING",
                f"{name!r} has no value for a window without rows",
                where=self.operator,
                got=f"{written} over no rows: {got}",
                expected="a state for a group without rows, and its estimate, such as null",
                fix="return one entry per group, rows or not (docs/aggregates.md), or empty='skip'",
            ) from cause


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedSpec(GridSpec):
    """Tumbling and hopping windows.

    Parameters
    ----------
    size, hop : int
        Length of a window; distance of two starts. Equal for tumbling windows.
    origin : int
        Phase of the grid, less than `hop`.
    """

    size: int = field(metadata=DEFINES)
    hop: int = field(metadata=DEFINES)
    origin: int = field(metadata=DEFINES)

    def __post_init__(self) -> None:
        GridSpec.__post_init__(self)
        got = f"hop={show_duration(self.hop)}, size={show_duration(self.size)}"
        if self.hop > self.size:
            raise SpecError(
                "HOP_EXCEEDS_SIZE",
                "`hop` is longer than `size`: events between two windows would be lost",
                where=self.operator,
                got=got,
                expected="0 < hop <= size",
                fix="shorten hop, or lengthen size",
            )
        self.refuse_many_windows(-(-self.size // self.hop), "hop", got)
        self.refuse_empty_windows(self.hop, f"hop={show_duration(self.hop)}")
        self.refuse_contradictions()

    @property
    def grid(self) -> FixedGrid:
        """Windows of one size at one distance."""
        return FixedGrid(self.size, self.hop, self.origin)


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarSpec(GridSpec):
    """Calendar windows."""

    unit: Unit = field(metadata={"first": True})
    zone: str = field(metadata={"first": True})
    week_start: Weekday = field(metadata={"first": True})

    def __post_init__(self) -> None:
        GridSpec.__post_init__(self)
        where = self.operator
        require_unit(self.unit, self.zone, self.week_start, parameter="unit", where=where)
        self.refuse_empty_windows(shortest_unit(self.unit), f"unit={self.unit!r}")
        self.refuse_contradictions()

    @property
    def grid(self) -> CalendarGrid:
        """Units of the calendar in the time zone."""
        return CalendarGrid(self.unit, self.zone, self.week_start)


@dataclass(frozen=True, slots=True, kw_only=True)
class CumulativeSpec(GridSpec):
    """Cumulative windows.

    Parameters
    ----------
    size : int or str
        Length of a period: a duration or, with `zone`, a calendar unit.
    every : int
        Time from the end of a window to the end of the next one.
    zone, week_start : str
        Time zone of calendar units; the day on which weeks start.
    origin : int
        Phase of fixed periods.
    """

    size: int | Unit = field(metadata={"shown": show_length, "first": True})
    every: int = field(metadata=DEFINES)
    zone: str | None = field(metadata={"first": True})
    week_start: Weekday = field(metadata={"first": True})
    origin: int = field(metadata=DEFINES)

    def __post_init__(self) -> None:
        GridSpec.__post_init__(self)
        where, size = self.operator, self.size
        if self.zone is not None:
            require_unit(size, self.zone, self.week_start, parameter="size", where=where)
        elif self.week_start != "monday":
            raise SpecError(
                "WEEK_START_WITHOUT_WEEK",
                "`week_start` says where weeks start, and there are none",
                where=where,
                got=f"week_start={self.week_start!r} with size={show_length(size)}",
                expected="size='week' and a zone beside it",
                fix="leave week_start out; origin says where fixed periods start",
            )
        longest = LONGEST[size] * DAY if isinstance(size, str) else size
        got = f"every={show_duration(self.every)}, size={show_length(size)}"
        if self.every > longest:
            raise SpecError(
                "EVERY_EXCEEDS_SIZE",
                "`every` is longer than `size`: no window would end within its period",
                where=where,
                got=got,
                expected="0 < every <= size",
                fix="shorten every, or lengthen size",
            )
        self.refuse_many_windows(-(-longest // self.every), "every", got)
        self.refuse_empty_windows(self.every, f"every={show_duration(self.every)}")
        self.refuse_contradictions()

    @property
    def grid(self) -> CumulativeGrid:
        """Windows that grow through each period."""
        return CumulativeGrid(self._periods, self.every)

    @property
    def _periods(self) -> FixedGrid | CalendarGrid:
        if isinstance(self.size, int):
            return FixedGrid(self.size, self.size, self.origin)
        assert self.zone is not None, "without a zone the size is a duration"
        return CalendarGrid(self.size, self.zone, self.week_start)

    def most_empty_windows(self, pace: int) -> int:
        """Return how many windows can end within `empty_for` after a window with rows.

        A row lies in windows up to the end of its period. After it, the last window of each period
        ends with the period, which may be sooner than `every` after the window before.
        """
        empty_for = self.empty_for or 0
        if isinstance(self.size, str):
            return empty_for // pace + empty_for // shortest_unit(self.size)
        whole, rest = divmod(empty_for, self.size)
        return whole * -(-self.size // pace) + rest // pace


def parse_empty_for(empty_for: Duration | None, *, where: str) -> int | None:
    """Return `empty_for` in microseconds; None where it was left out."""
    if empty_for is None:
        return None
    return parse_duration(empty_for, parameter="empty_for", where=where, minimum=1)


def parse_origin(origin: Duration | dt.datetime, hop: int, *, where: str) -> int:
    """Return the phase of a grid: the offset of `origin` within a hop."""
    if isinstance(origin, dt.datetime):
        return parse_instant(origin, parameter="origin", where=where) % hop
    return parse_duration(origin, parameter="origin", where=where) % hop


def parse_period_origin(origin: Duration | dt.datetime, size: int | Unit, *, where: str) -> int:
    """Return the phase of fixed periods; refuse an origin of calendar units."""
    if isinstance(size, int):
        return parse_origin(origin, size, where=where)
    if origin != "0 seconds":
        raise SpecError(
            "ORIGIN_WITH_ZONE",
            "`origin` moves fixed periods, and those of a calendar start where it says",
            where=where,
            got=f"origin={origin!r} beside zone",
            expected="one of the two",
            fix="leave origin out, or zone",
        )
    return 0
