"""Parameters of the windows on a grid: tumbling and hopping, calendar, cumulative."""

from __future__ import annotations

import datetime as dt
from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import pyarrow as pa

from streamops.kernel.aggregation import Summary
from streamops.kernel.calendar import DAY, LONGEST, Unit, Weekday
from streamops.kernel.grids import CalendarGrid, CumulativeGrid, FixedGrid, Grid
from streamops.kernel.groups import Groups
from streamops.kernel.operator import checkpointed
from streamops.kernel.parameters import show_duration
from streamops.kernel.time import Duration, format_duration, parse_duration, parse_instant
from streamops.windows import conditions
from streamops.windows.core.spec import (
    DURATION,
    WindowSpec,
    require_unit,
    shortest_unit,
    show_length,
)

MOST_WINDOWS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GridSpec(WindowSpec):
    """Parameters of all windows on a grid.

    ``empty_for`` is how long after a window with rows those without rows are published; None: never.
    """

    empty_for: int | None = checkpointed(metadata=DURATION, default=None)

    @property
    @abstractmethod
    def grid(self) -> Grid:
        """The grid that assigns event times to windows."""

    def resolve(
        self, schemas: Sequence[pa.Schema], *, carried: Sequence[int | None], shards: int
    ) -> Self:
        """Resolve the parameters. Empty windows need aggregates with a value for no rows."""
        resolved = WindowSpec.resolve(self, schemas, carried=carried, shards=shards)
        if self.empty_for is not None:
            resolved.refuse_without_value("empty_for")
        return resolved

    def refuse_empty_windows(self, pace: int, got: str) -> None:
        """Refuse an `empty_for` in which no window ends, or too many do.

        ``pace`` is the shortest time between the ends of two windows, and ``got`` the parameter that
        defines it.
        """
        if self.empty_for is None:
            return
        given = f"empty_for={show_duration(self.empty_for)}"
        if self.empty_for < pace:
            raise conditions.EMPTY_FOR_TOO_SHORT.error(
                pace=format_duration(pace), got=f"{given}, {got}"
            )
        windows = self.most_empty_windows(pace)
        if windows > MOST_WINDOWS:
            raise conditions.TOO_MANY_EMPTY_WINDOWS.error(
                most_windows=MOST_WINDOWS, got=f"{given}, {got}: {windows:,} windows"
            )

    def most_empty_windows(self, pace: int) -> int:
        """Return how many windows can end within `empty_for` after a window with rows."""
        return (self.empty_for or 0) // pace

    def refuse_many_windows(self, windows: int, parameter: str, got: str) -> None:
        """Refuse too many windows per event."""
        if windows > MOST_WINDOWS:
            raise conditions.TOO_MANY_WINDOWS.error(
                parameter=parameter, most_windows=MOST_WINDOWS, got=f"{got}: {windows:,} windows"
            )

    def refuse_without_value(self, parameter: str) -> None:
        """Refuse custom aggregates that have no value for zero rows, which this parameter needs."""
        for aggregate in self.aggregates:
            self._refuse_without_value(*aggregate, self.input, parameter)

    def _refuse_without_value(
        self, name: str, written: str, summary: Summary, columns: pa.Schema, parameter: str
    ) -> None:
        groups, cause = Groups(np.empty(0, np.int64), 1), None
        try:
            values = summary.estimate(summary.update(groups, columns.empty_table()))
            got = None if len(values) == 1 else f"{len(values)} values"
        except Exception as error:  # whatever the user's code raises
            got, cause = f"{type(error).__name__}: {error}", error
        if got is not None:
            raise conditions.NO_VALUE_OF_NOTHING.error(
                name=name, parameter=parameter, got=f"{written} over no rows: {got}"
            ) from cause


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedSpec(GridSpec):
    """Parameters of tumbling and hopping windows. Tumbling windows have ``hop == size``."""

    size: int = checkpointed(metadata=DURATION)
    hop: int = checkpointed(metadata=DURATION)
    origin: int = checkpointed(metadata=DURATION)

    def __post_init__(self) -> None:
        got = f"hop={show_duration(self.hop)}, size={show_duration(self.size)}"
        if self.hop > self.size:
            raise conditions.HOP_EXCEEDS_SIZE.error(got=got)
        self.refuse_many_windows(-(-self.size // self.hop), "hop", got)
        self.refuse_empty_windows(self.hop, f"hop={show_duration(self.hop)}")
        self.refuse_contradictions()

    @property
    def grid(self) -> FixedGrid:
        """Windows of length ``size`` every ``hop``."""
        return FixedGrid(self.size, self.hop, self.origin)


@dataclass(frozen=True, slots=True, kw_only=True)
class CalendarSpec(GridSpec):
    """Parameters of calendar windows."""

    unit: Unit = checkpointed()
    zone: str = checkpointed()
    week_start: Weekday = checkpointed()

    def __post_init__(self) -> None:
        require_unit(self.unit, self.zone, self.week_start, parameter="unit")
        self.refuse_empty_windows(shortest_unit(self.unit), f"unit={self.unit!r}")
        self.refuse_contradictions()

    @property
    def grid(self) -> CalendarGrid:
        """Calendar units in the time zone."""
        return CalendarGrid(self.unit, self.zone, self.week_start)


@dataclass(frozen=True, slots=True, kw_only=True)
class CumulativeSpec(GridSpec):
    """Parameters of cumulative windows. A period is a duration or, with `zone`, a calendar unit."""

    size: int | Unit = checkpointed(metadata={"shown": show_length})
    every: int = checkpointed(metadata=DURATION)
    zone: str | None = checkpointed()
    week_start: Weekday = checkpointed()
    origin: int = checkpointed(metadata=DURATION)

    def __post_init__(self) -> None:
        size = self.size
        if self.zone is not None:
            require_unit(size, self.zone, self.week_start, parameter="size")
        elif self.week_start != "monday":
            raise conditions.WEEK_START_OF_A_PERIOD.error(
                got=f"week_start={self.week_start!r} with size={show_length(size)}"
            )
        longest = LONGEST[size] * DAY if isinstance(size, str) else size
        got = f"every={show_duration(self.every)}, size={show_length(size)}"
        if self.every > longest:
            raise conditions.EVERY_EXCEEDS_SIZE.error(got=got)
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

        The last window of each period ends with the period, maybe less than `every` after the one
        before.
        """
        empty_for = self.empty_for or 0
        if isinstance(self.size, str):
            return empty_for // pace + empty_for // shortest_unit(self.size)
        whole, rest = divmod(empty_for, self.size)
        return whole * -(-self.size // pace) + rest // pace


def parse_origin(origin: Duration | dt.datetime, hop: int) -> int:
    """Return the phase of a grid: the offset of `origin` within a hop."""
    if isinstance(origin, dt.datetime):
        return parse_instant(origin, parameter="origin") % hop
    return parse_duration(origin, parameter="origin") % hop


def parse_period_origin(origin: Duration | dt.datetime, size: int | Unit) -> int:
    """Return the phase of fixed periods; refuse an origin of calendar units."""
    if isinstance(size, int):
        return parse_origin(origin, size)
    if origin != "0 seconds":
        raise conditions.ORIGIN_WITH_ZONE.error(got=f"origin={origin!r} with a zone")
    return 0
