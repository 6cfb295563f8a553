"""What a user says about cumulative windows, validated once."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass, field
from typing import Any, get_args

import pyarrow as pa

from streamops.kernel.calendar import DAY, LONGEST, Unit, Weekday
from streamops.kernel.errors import SpecError
from streamops.kernel.grids import CalendarGrid, CumulativeGrid, FixedGrid
from streamops.kernel.time import Duration, parse_duration
from streamops.spark.parameters import show_duration
from streamops.windows.calendar_settings import calendar_grid, shortest
from streamops.windows.core.spec import FixedSpec
from streamops.windows.fixed_settings import phase_of
from streamops.windows.grid_settings import GridWindows, refuse_many
from streamops.windows.settings import DEFINES

__all__ = ["CumulativeWindows"]


def _shown(size: int | Unit) -> str:
    return repr(size) if isinstance(size, str) else show_duration(size)


@dataclass(frozen=True, slots=True)
class CumulativeWindows(GridWindows):
    """Settings of cumulative windows; durations in microseconds, units of the calendar as words."""

    size: int | Unit = field(metadata={"shown": _shown, "first": True})
    every: int = field(metadata=DEFINES)
    zone: str | None = field(metadata={"first": True})
    week_start: Weekday = field(metadata={"first": True})
    origin: int = field(metadata=DEFINES)

    @staticmethod
    def of(
        where: str,
        size: Duration | Unit,
        every: Duration,
        *,
        zone: str | None,
        week_start: Weekday,
        origin: Duration | dt.datetime,
        **said: Any,
    ) -> CumulativeWindows:
        """Settings as the user wrote them, normalised, or an error."""
        common = GridWindows.said(where, **said)
        pace = parse_duration(every, parameter="every", where=where, minimum=1)
        period: Any = size
        phase = 0
        if zone is None:
            _refuse_unit(size, week_start, where)
            period = parse_duration(size, parameter="size", where=where, minimum=1)
            phase = phase_of(origin, period, where)
        else:
            calendar_grid(period, zone, week_start, parameter="size", where=where)
            _refuse_origin(origin, where)
        settings = CumulativeWindows(
            **common, size=period, every=pace, zone=zone, week_start=week_start, origin=phase
        )
        settings._refuse_pace()
        settings.refuse_silence(pace, f"every={show_duration(pace)}")
        settings.refuse_contradictions()
        return settings

    def bind(self, schema: pa.Schema, *, carried: int | None) -> FixedSpec:
        """The spec over these columns."""
        grid = CumulativeGrid(self._periods, self.every)
        return FixedSpec(**self.bound(schema, carried), grid=grid)

    def most_empty(self, empty_for: int, pace: int) -> int:
        """How many windows can end within this time after one with rows has.

        A row lies in windows up to the end of its period. After it, the last window of each period
        ends with that, however soon after the one before it.
        """
        if isinstance(self.size, str):
            return empty_for // pace + empty_for // shortest(self.size)
        whole, rest = divmod(empty_for, self.size)
        return whole * -(-self.size // pace) + rest // pace

    @property
    def _periods(self) -> FixedGrid | CalendarGrid:
        if isinstance(self.size, int):
            return FixedGrid(self.size, self.size, self.origin)
        assert self.zone is not None, "without a zone the size is a duration"
        return CalendarGrid(self.size, self.zone, self.week_start)

    def _refuse_pace(self) -> None:
        longest = LONGEST[self.size] * DAY if isinstance(self.size, str) else self.size
        got = f"every={show_duration(self.every)}, size={_shown(self.size)}"
        if self.every > longest:
            raise SpecError(
                "EVERY_EXCEEDS_SIZE",
                "`every` is longer than `size`: no window would end within its period",
                where=self.where,
                got=got,
                expected="0 < every <= size",
                fix="shorten every, or lengthen size",
            )
        refuse_many(-(-longest // self.every), "every", got, self.where)


def _refuse_unit(size: object, week_start: object, where: str) -> None:
    """Refuse what needs a zone, where there is none."""
    if size in get_args(Unit):
        raise SpecError(
            "UNIT_WITHOUT_ZONE",
            f"where a {size} of the calendar starts depends on the time zone",
            where=where,
            got=f"size={size!r} without zone",
            expected="zone beside it; or a fixed duration",
            fix='zone="Europe/Berlin", say; or size="1 day", which is 24 hours',
        )
    if week_start != "monday":
        raise SpecError(
            "WEEK_START_WITHOUT_WEEK",
            "`week_start` says where weeks start, and there are none",
            where=where,
            got=f"week_start={week_start!r} with size={size!r}",
            expected="size='week' and a zone beside it",
            fix="leave week_start out; origin says where fixed periods start",
        )


def _refuse_origin(origin: object, where: str) -> None:
    if origin != "0 seconds":
        raise SpecError(
            "ORIGIN_WITH_ZONE",
            "`origin` moves fixed periods, and those of a calendar start where it says",
            where=where,
            got=f"origin={origin!r} beside zone",
            expected="one of the two",
            fix="leave origin out, or zone",
        )
