"""Validation of calendar units and time zones."""

from __future__ import annotations

import difflib
import functools
import zoneinfo
from typing import cast, get_args

from streamops.kernel.calendar import DAY, Unit, Weekday
from streamops.kernel.errors import SpecError
from streamops.kernel.parameters import require_choice, show_duration
from streamops.kernel.time import Duration, parse_duration

__all__ = ["parse_length", "require_unit", "shortest_unit", "show_length"]

_SHORTEST = {"day": 1, "week": 7, "month": 28, "quarter": 90, "year": 365}  # days
_CLOCK_CHANGE = DAY // 12  # clocks are put forward by two hours at most


def parse_length(
    length: Duration | Unit, zone: str | None, *, parameter: str, reason: str, where: str
) -> int | Unit:
    """Return a duration in microseconds; with a zone, a calendar unit as it is.

    Parameters
    ----------
    reason : str
        Why a unit needs a zone, for the error, with ``{}`` for the unit.
    """
    if zone is not None:
        return cast("Unit", length)  # the spec checks that it is one
    if length in get_args(Unit):
        raise SpecError(
            "UNIT_WITHOUT_ZONE",
            reason.format(length),
            where=where,
            got=f"{parameter}={length!r} without zone",
            expected="zone beside it; or a fixed duration",
            fix=f'zone="Europe/Berlin", say; or {parameter}="1 day", which is 24 hours',
        )
    return parse_duration(length, parameter=parameter, where=where, minimum=1)


def show_length(length: int | Unit) -> str:
    """A length for ``repr``: a duration or a unit."""
    return repr(length) if isinstance(length, str) else show_duration(length)


def shortest_unit(unit: Unit) -> int:
    """Return a lower bound of the length of a unit, in microseconds."""
    return _SHORTEST[unit] * DAY - _CLOCK_CHANGE


def require_unit(
    unit: object, zone: object, week_start: object, *, parameter: str, where: str
) -> None:
    """Refuse an unknown unit, weekday or time zone, and a weekday without weeks."""
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


@functools.cache
def _known_zones() -> frozenset[str]:
    return frozenset(zoneinfo.available_timezones())


def _refuse_unknown_zone(zone: object, where: str) -> None:
    known = _known_zones()
    if isinstance(zone, str) and zone in known:
        return
    # Frequent mistakes: upper and lower case, a blank for an underscore, the city alone.
    folded = {name.casefold(): name for name in sorted(known)}
    wanted = str(zone).casefold().replace(" ", "_")
    close = difflib.get_close_matches(wanted, folded, n=1) or [
        name for name in folded if name.rpartition("/")[2] == wanted
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
