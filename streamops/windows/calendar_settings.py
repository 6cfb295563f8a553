"""What a user says about windows of the calendar, validated once."""

from __future__ import annotations

import difflib
import zoneinfo
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from streamops.kernel.calendar import DAY, Unit, Weekday
from streamops.kernel.errors import SpecError
from streamops.kernel.grids import CalendarGrid
from streamops.spark.transform import require_choice
from streamops.windows.core.spec import FixedSpec
from streamops.windows.grid_settings import GridWindows

__all__ = ["CalendarWindows", "calendar_grid", "shortest"]

_FIRST = {"first": True}

_SHORTEST = {"day": 1, "week": 7, "month": 28, "quarter": 90, "year": 365}  # days
_CHANGED = DAY // 12  # clocks are put forward by two hours at most


@dataclass(frozen=True, slots=True)
class CalendarWindows(GridWindows):
    """Settings of calendar windows."""

    unit: Unit = field(metadata=_FIRST)
    zone: str = field(metadata=_FIRST)
    week_start: Weekday = field(metadata=_FIRST)

    @staticmethod
    def of(
        where: str, unit: Unit, zone: str, *, week_start: Weekday, **said: Any
    ) -> CalendarWindows:
        """Settings as the user wrote them, normalised, or an error."""
        common = GridWindows.said(where, **said)
        calendar_grid(unit, zone, week_start, parameter="unit", where=where)
        settings = CalendarWindows(**common, unit=unit, zone=zone, week_start=week_start)
        settings.refuse_silence(shortest(unit), f"unit={unit!r}")
        settings.refuse_contradictions()
        return settings

    def bind(self, schema: pa.Schema, *, carried: int | None) -> FixedSpec:
        """The spec over these columns."""
        grid = CalendarGrid(self.unit, self.zone, self.week_start)
        return FixedSpec(**self.bound(schema, carried), grid=grid)


def shortest(unit: Unit) -> int:
    """No such unit is shorter, in microseconds."""
    return _SHORTEST[unit] * DAY - _CHANGED


def calendar_grid(
    unit: Unit, zone: str, week_start: Weekday, *, parameter: str, where: str
) -> CalendarGrid:
    """The grid of these units, said by ``parameter``; or an error."""
    require_choice(unit, Unit, parameter=parameter, where=where)
    require_choice(week_start, Weekday, parameter="week_start", where=where)
    _refuse_unknown_zone(zone, where)
    if unit != "week" and week_start != "monday":
        raise SpecError(
            "WEEK_START_WITHOUT_WEEK",
            "`week_start` says where weeks start, and there are none",
            where=where,
            got=f"week_start={week_start!r} with {parameter}={unit!r}",
            expected=f"{parameter}='week' beside it",
            fix="leave week_start out",
        )
    return CalendarGrid(unit, zone, week_start)


def _refuse_unknown_zone(zone: object, where: str) -> None:
    known = zoneinfo.available_timezones()
    if isinstance(zone, str) and zone in known:
        return
    # The commonest slips are the case of a letter, and a blank for an underscore.
    folded = {name.casefold(): name for name in sorted(known)}
    said = str(zone).casefold().replace(" ", "_")
    close = difflib.get_close_matches(said, folded, n=1) or [
        name for name in folded if name.rpartition("/")[2] == said
    ]
    listed = "zoneinfo.available_timezones() lists them"
    raise SpecError(
        "UNKNOWN_ZONE",
        "`zone` is not a time zone",
        where=where,
        got=f"zone={zone!r}",
        expected=f"an IANA name such as 'Europe/Berlin'; {listed}",
        fix=f"did you mean {folded[close[0]]!r}?"
        if close
        else "write the name of a zone, or 'UTC'",
    )
