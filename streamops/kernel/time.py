"""Instants and durations as ``int64`` microseconds, and their text formats.

An instant is the number of microseconds since 1970-01-01 UTC. A duration has a fixed length:
"1 day" is 86,400 s, regardless of daylight saving time.
"""

from __future__ import annotations

import datetime as dt
import difflib
import re

import numpy as np
import numpy.typing as npt

from streamops.kernel import conditions

Duration = str | dt.timedelta
"""The type of duration parameters: ``timedelta`` or text such as ``"30 minutes"``."""

Instants = npt.NDArray[np.int64]

MICROSECONDS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": 86_400_000_000,
    "week": 604_800_000_000,
}
_SHORT = {
    **{"us": "microsecond", "ms": "millisecond", "msec": "millisecond"},
    **{"s": "second", "sec": "second", "secs": "second"},
    **{"m": "minute", "min": "minute", "mins": "minute"},
    **{"h": "hour", "hr": "hour", "hrs": "hour", "d": "day", "w": "week"},
}
_NEAR = 0.8  # similarity: "mintue" matches "minute", "month" does not
CALENDAR_UNITS = {"month": 30, "quarter": 90, "year": 365}  # days, approximately

# The range that Spark and Python have in common. Timestamps outside of it cannot be collected.
MIN_INSTANT = -62_135_596_800_000_000  # 0001-01-01 00:00:00 UTC
MAX_INSTANT = 253_402_300_799_999_999  # 9999-12-31 23:59:59.999999 UTC

BEFORE_ALL = -(1 << 62)
"""An instant, or the number of a window, before all others; a duration can be added or subtracted
without overflow. The value of a watermark that does not exist yet."""
AFTER_ALL = 1 << 62
"""An instant, or the number of a window, after all others; as a watermark, the end of the stream."""

_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_LIKE_TERM = re.compile(r"[\s,]*(?P<count>[+-]?\d+)\s*(?P<unit>[a-z]+)[\s,]*", re.IGNORECASE)
_TERM = re.compile(r"\s*(?P<count>[+-]?\d+)\s*(?P<unit>[a-z]+?)s?(?=\s|$|[+-]|\d)", re.IGNORECASE)


def parse_duration(
    value: Duration, *, parameter: str, minimum: int | None = None, whole: int = 1
) -> int:
    """Return the microseconds of a duration.

    Parameters
    ----------
    value : timedelta or str
        ``timedelta(minutes=30)`` or ``"30 minutes"``, ``"1 hour 30 minutes"``.
    parameter : str
        For the error.
    minimum : int, optional
        The minimum in microseconds.
    whole : int
        The duration must be a multiple of this many microseconds.

    Raises
    ------
    SpecError
        ``INVALID_DURATION``.

    Examples
    --------
    >>> parse_duration("1 hour 30 minutes", parameter="size")
    5400000000
    >>> parse_duration("-5 seconds", parameter="origin")
    -5000000
    """
    if isinstance(value, dt.timedelta):
        micros = value // dt.timedelta(microseconds=1)
    else:
        micros = _parse_text(value, parameter)
    if abs(micros) > MAX_INSTANT - MIN_INSTANT:
        raise conditions.DURATION_TOO_LARGE.error(
            parameter=parameter,
            max_instant=format_duration(MAX_INSTANT - MIN_INSTANT),
            got=f"{parameter}={value!r}",
        )
    if minimum is not None and micros < minimum:
        raise conditions.DURATION_TOO_SMALL.error(
            parameter=parameter, minimum=format_duration(minimum), got=f"{parameter}={value!r}"
        )
    if micros % whole:
        raise conditions.DURATION_TOO_FINE.error(
            parameter=parameter, whole=format_duration(whole), got=f"{parameter}={value!r}"
        )
    return micros


def _parse_text(value: object, parameter: str) -> int:
    text = value.strip() if isinstance(value, str) else ""
    total, position = 0, 0
    while position < len(text):
        term = _TERM.match(text, position)
        unit = term["unit"].lower() if term else ""
        if unit in CALENDAR_UNITS:
            days = CALENDAR_UNITS[unit]
            raise conditions.CALENDAR_DURATION.error(
                parameter=parameter, unit=unit, days=days, got=f"{parameter}={value!r}"
            )
        if term is None or unit not in MICROSECONDS:
            break
        total += int(term["count"]) * MICROSECONDS[unit]
        position = term.end()
    if not text or position < len(text):
        meant, condition = _suggest(text), conditions.NOT_A_DURATION
        if meant is not None:
            condition = conditions.DURATION_MISSPELT
        elif isinstance(value, int | float):
            condition = conditions.DURATION_WITHOUT_UNIT
        raise condition.error(
            parameter=parameter,
            meant=meant,
            value=value,
            units=", ".join(MICROSECONDS),
            got=f"{parameter}={value!r}",
        )
    return total


def _suggest(text: str) -> str | None:
    """Return the probably intended duration, if units are abbreviated or misspelt."""
    terms, position = [], 0
    text = re.sub(r"(?i)^interval\s+", "", text).replace("'", "")  # as in SQL
    while position < len(text):
        term = _LIKE_TERM.match(text, position)
        if term is None:
            return None
        given = term["unit"]
        # "M" stands for months elsewhere.
        unit = "" if given == "M" else _SHORT.get(given.lower(), given.lower().removesuffix("s"))
        near = difflib.get_close_matches(unit, MICROSECONDS, n=1, cutoff=_NEAR)
        if not near:
            return None
        plural = "" if term["count"] in ("1", "+1", "-1") else "s"
        terms.append(f"{term['count']} {near[0]}{plural}")
        position = term.end()
    return " ".join(terms) or None


def parse_instant(value: dt.datetime, *, parameter: str) -> int:
    """Return the microseconds since 1970-01-01 UTC of an aware datetime.

    Examples
    --------
    >>> parse_instant(dt.datetime(1970, 1, 2, tzinfo=dt.UTC), parameter="origin")
    86400000000
    """
    if value.tzinfo is None:
        raise conditions.NAIVE_DATETIME.error(parameter=parameter, got=f"{parameter}={value!r}")
    return (value - _EPOCH) // dt.timedelta(microseconds=1)


def format_duration(micros: int) -> str:
    """Return a duration as text that :func:`parse_duration` accepts.

    Examples
    --------
    >>> format_duration(5_400_000_000)
    '1 hour 30 minutes'
    >>> format_duration(0)
    '0 seconds'
    """
    if micros == 0:
        return "0 seconds"
    sign, remainder, terms = ("-" if micros < 0 else ""), abs(micros), []
    for unit in ("day", "hour", "minute", "second", "millisecond", "microsecond"):
        count, remainder = divmod(remainder, MICROSECONDS[unit])
        if count:
            terms.append(f"{sign}{count} {unit}{'s' if count != 1 else ''}")
    return " ".join(terms)


def format_instant(micros: int | None) -> str:
    """Return an instant as text, in UTC.

    Examples
    --------
    >>> format_instant(1_500_000)
    '1970-01-01 00:00:01.500000Z'
    >>> format_instant(None)
    'none yet'
    """
    if micros is None:
        return "none yet"
    if not MIN_INSTANT <= micros <= MAX_INSTANT:
        return f"{micros} microseconds since 1970"
    instant = _EPOCH + dt.timedelta(microseconds=micros)
    return instant.replace(tzinfo=None).isoformat(" ") + "Z"


def advance_watermark(previous: int | None, current: int | None) -> int | None:
    """Return the greater of two watermarks; None if both are None. A watermark never moves back.

    Examples
    --------
    >>> advance_watermark(None, 5), advance_watermark(5, 3), advance_watermark(5, None)
    (5, 5, 5)
    """
    if previous is None or current is None:
        return current if previous is None else previous
    return max(previous, current)


def spark_watermark(newest: int | None, delay: int) -> int:
    """Return Spark's watermark, in milliseconds, after an event at ``newest``.

    Spark's watermark has whole milliseconds, is rounded down, and starts at 0 (1970), which means
    that there is none yet.

    Examples
    --------
    >>> spark_watermark(10_000_999, delay=4_000_000)
    6000
    >>> spark_watermark(None, delay=4_000_000)
    0
    """
    if newest is None:
        return 0
    return max(0, newest // 1_000 - delay // 1_000)
