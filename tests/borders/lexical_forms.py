"""Forms of values in JSON, and what each is in each type by the standards, written without Spark.

JSON is RFC 8259, times are ISO 8601 with the profile of RFC 3339, bytes are RFC 4648, and numbers have
the ranges of SQL's types. A float is the nearest one.
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
import itertools
import json
import re
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
from pyspark.sql import types

REJECTED = "rejected"
NULL = "null"
TYPES = (
    *("tinyint", "smallint", "int", "bigint", "float", "double", "boolean", "string", "binary"),
    *("decimal(10,2)", "decimal(38,0)", "decimal(38,18)", "date", "timestamp", "timestamp_ntz"),
    *("interval day to second", "interval year to month"),
    *(("time(0)", "time(3)", "time(6)") if hasattr(types, "TimeType") else ()),
)
_BITS = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
_EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 (local times)
_CYCLE = 146_097 * 86_400_000_000  # microseconds of 400 years


class Number(str):
    """A number of JSON, with all its digits."""


def expected(type_name: str, form: str, zone: str, *, is_coded: bool = False) -> str:
    """The value of a form in a type, as text; null; or that it must be rejected.

    With `is_coded`, decimals may also be bytes in base64, as those of Debezium.
    """
    value = json.loads(form, parse_int=Number, parse_float=Number)
    if value is None:
        return NULL
    if type_name == "string":
        return _plain(value, form)
    if isinstance(value, bool):
        return str(value).lower() if type_name == "boolean" else REJECTED
    if isinstance(value, Number):
        return _of_number(type_name, value)
    if not isinstance(value, str) or (
        # Bytes in base64 have a length that is a multiple of four, and no point and no minus.
        is_coded and type_name.startswith("decimal") and _bytes(value) is not None
    ):
        return REJECTED
    return _of_text(type_name, value, zone)


def _plain(value: Any, form: str) -> str:
    """Strings are themselves, other values their JSON without white space."""
    if isinstance(value, str):
        return str(value)
    return form if isinstance(value, bool) else re.sub(r"\s", "", form)


def _of_number(type_name: str, text: str) -> str:
    if type_name in _BITS:
        limit = 1 << (_BITS[type_name] - 1)
        is_whole = re.fullmatch(r"-?[0-9]+", text) is not None
        return str(int(text)) if is_whole and -limit <= int(text) < limit else REJECTED
    if type_name.startswith("decimal"):
        return _decimal(type_name, text)
    return _nearest(type_name, text) if type_name in ("float", "double") else REJECTED


def _nearest(type_name: str, text: str) -> str:
    is_zero = not re.match(r"-?[0.]*[1-9]", text)
    nearest = float(text)
    if type_name == "float" and np.isfinite(nearest):
        with np.errstate(over="ignore", under="ignore"):
            guess = np.float32(nearest)
            if np.isfinite(guess) and Decimal(text).adjusted() > -60:
                near = [np.nextafter(guess, np.float32(s * np.inf)) for s in (-1, 1)]
                exact = Fraction(text)
                guess = min(
                    (x for x in (guess, *near) if np.isfinite(x)),
                    key=lambda x: (abs(Fraction(float(x)) - exact), int(x.view(np.int32)) & 1),
                )
            nearest = float(guess)
    return REJECTED if np.isinf(nearest) or (nearest == 0 and not is_zero) else repr(nearest)


def _decimal(type_name: str, text: str) -> str:
    precision, scale = map(int, re.findall(r"[0-9]+", type_name))
    value = Decimal(text)
    if value == 0:
        return f"{0:.{scale}f}"
    if not -60 < value.adjusted() < 60:
        return REJECTED
    with localcontext() as context:
        context.prec = 6_000
        whole = value.scaleb(scale)
        if whole != whole.to_integral_value() or abs(whole) >= 10**precision:
            return REJECTED
        return f"{value:.{scale}f}"


def _of_text(type_name: str, text: str, zone: str) -> str:
    if type_name in ("float", "double"):
        return repr(float(text)) if text in ("NaN", "Infinity", "-Infinity") else REJECTED
    if type_name.startswith("decimal"):
        is_number = re.fullmatch(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?", text)
        return _decimal(type_name, text) if is_number else REJECTED
    if type_name == "binary":
        data = _bytes(text)
        return REJECTED if data is None else data.hex().upper()
    if type_name == "date":
        day = _day(text)
        return REJECTED if day is None else str(day // 86_400_000_000)
    if type_name.startswith("timestamp"):
        return _timestamp(type_name, text, zone)
    if type_name.startswith("time"):
        clock = _clock(text, int(type_name[-2]))
        return REJECTED if clock is None else str(clock)
    return _interval(type_name, text) if type_name.startswith("interval") else REJECTED


def _bytes(text: str) -> bytes | None:
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None
    return data if base64.b64encode(data).decode() == text else None


def _day(text: str) -> int | None:
    """Microseconds since 1970 of the first instant of a day."""
    found = re.fullmatch(r"([0-9]{4}|[+-][0-9]{4,6})-([0-9]{2})-([0-9]{2})", text, re.ASCII)
    if found is None:
        return None
    cycles, year = divmod(int(found[1]) - 2000, 400)
    try:
        day = dt.datetime(2000 + year, int(found[2]), int(found[3]))  # noqa: DTZ001 (local)
    except ValueError:
        return None
    return (day - _EPOCH) // dt.timedelta(microseconds=1) + cycles * _CYCLE


def _clock(text: str, digits: int) -> int | None:
    """Microseconds since midnight."""
    found = re.fullmatch(r"([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:\.([0-9]+))?)?", text, re.ASCII)
    if found is None:
        return None
    hour, minute, second = int(found[1]), int(found[2]), int(found[3] or 0)
    fraction = found[4] or ""
    if hour > 23 or minute > 59 or second > 59 or fraction[digits:].strip("0"):
        return None
    return ((hour * 60 + minute) * 60 + second) * 1_000_000 + int(fraction[:6].ljust(6, "0"))


def _timestamp(type_name: str, text: str, zone: str) -> str:
    found = re.fullmatch(r"([^Tt ]+)(?:[Tt ]([0-9:.]+)(.*))?", text, re.DOTALL)
    if found is None:
        return REJECTED
    day, clock, offset = _day(found[1]), _clock(found[2] or "00:00", 6), found[3] or ""
    if day is None or clock is None:
        return REJECTED
    local = day + clock
    if type_name == "timestamp_ntz":
        return REJECTED if offset else str(local)
    if offset in ("Z", "z"):
        return str(local)
    if offset:
        sign = re.fullmatch(r"([+-])([0-9]{2}):?([0-9]{2})?", offset, re.ASCII)
        if sign is None or (offset.endswith(":")) or int(sign[3] or 0) > 59:
            return REJECTED
        minutes = int(sign[2]) * 60 + int(sign[3] or 0)
        if minutes > 18 * 60:
            return REJECTED
        return str(local - (minutes if sign[1] == "+" else -minutes) * 60_000_000)
    return _in_zone(local, zone)


def _in_zone(local: int, zone: str) -> str:
    """The instant of a local time, the first if there are two; there may be none."""
    try:
        naive = _EPOCH + dt.timedelta(microseconds=local)
    except OverflowError:
        return str(local) if zone == "UTC" else "any"
    if naive.year < 1900:  # before time zones, local mean time
        return str(local) if zone == "UTC" else "any"
    instant = naive.replace(tzinfo=ZoneInfo(zone)).astimezone(dt.UTC)
    if instant.astimezone(ZoneInfo(zone)).replace(tzinfo=None) != naive:
        return REJECTED
    return str((instant.replace(tzinfo=None) - _EPOCH) // dt.timedelta(microseconds=1))


def _interval(type_name: str, text: str) -> str:
    unit = "DAY TO SECOND" if type_name.endswith("second") else "YEAR TO MONTH"
    named = re.fullmatch(rf"INTERVAL '(.*)' {unit}", text, re.ASCII)
    body = named[1] if named else text
    if type_name.endswith("month"):
        found = re.fullmatch(r"([+-]?)([0-9]+)-([0-9]+)", body, re.ASCII)
        if found is None or int(found[3]) > 11:
            return REJECTED
        months = int(found[2]) * 12 + int(found[3])
        return str(-months if found[1] == "-" else months)
    found = re.fullmatch(r"([+-]?)([0-9]+) ([0-9]{1,2}:[0-9]{1,2}:[0-9]{1,2}.*)", body, re.ASCII)
    if found is None:
        return REJECTED
    padded = re.sub(r"(?<![0-9.])([0-9])(?![0-9])", r"0\1", found[3].partition(".")[0])
    clock = _clock(padded + "".join(found[3].partition(".")[1:]), 6)
    if clock is None:
        return REJECTED
    micros = int(found[2]) * 86_400_000_000 + clock
    return str(-micros if found[1] == "-" else micros)


def canonical(type_name: str, text: str | None) -> str:
    """The value that Spark shows as text, in the notation of ``expected``."""
    if text is None:
        return NULL
    if type_name in ("float", "double"):
        return repr(float(np.float32(text) if type_name == "float" else text))
    if type_name.startswith("decimal"):
        return f"{Decimal(text):.{re.findall('[0-9]+', type_name)[1]}f}"
    if type_name == "timestamp_ntz":
        return _timestamp(type_name, text, "UTC")
    if type_name.startswith("time("):
        return str(_clock(text, 6))
    return _interval(type_name, text) if type_name.startswith("interval") else text


def forms() -> list[str]:
    """JSON values of all kinds, each valid JSON."""
    numbers = ["0", "-0", "1", "-1", "10", "0.0", "-0.0", "1.0", "1.10", "0.1", "3.5", "1e2", "1E2"]
    numbers += ["1e+2", "1.5e3", "1500e-3", "1e-2", "12e-4", "0e5", "0e-99", "1e400", "-1e400"]
    numbers += ["1e-400", "5e-324", "2e-324", "1.7976931348623157e308", "1.7976931348623159e308"]
    numbers += ["3.4028235e38", "3.4028236e38", "1e39", "1e-45", "1e-46", "16777217", "0.30"]
    numbers += ["9007199254740993", "0.1234567890123456789", "1.00000017881393432617187499"]
    numbers += ["1.00000000000000000001e0", "1.005", "1.234", "1.2300000", "99999999.99"]
    numbers += [
        "100000000.00",
        "-99999999.99",
        "123456789.12",
        "1e7",
        "1e8",
        "9" * 38,
        "1" + "0" * 38,
    ]
    numbers += ["0." + "1" * 18, "0." + "1" * 19, "1" * 20 + "." + "2" * 18, "1" * 21 + ".5"]
    numbers += [
        "1767225600",
        "1767225600000000",
        "20260101",
        "2026",
        "1e999999999",
        "0.1e-2147483647",
    ]
    numbers += ["7" * 1_500]
    for bits in (8, 16, 32, 64):
        limit = 1 << (bits - 1)
        numbers += map(str, (limit - 1, limit, 2 * limit - 1, 2 * limit, -limit, -limit - 1))
    others = ["null", "true", "false", "[]", "{}", "[1.50]", '{"a": 1.0}', '[null, "x"]']
    return [*dict.fromkeys([*numbers, *others, *(json.dumps(text) for text in texts())])]


def texts() -> list[str]:
    """Strings of all kinds."""
    days = ["2026-01-01", "2024-02-29", "2026-02-29", "2026-02-30", "2026-13-01", "2026-00-10"]
    days += ["2026-01-00", "2026-1-1", "20260101", "2026", "2026-01", "2026-W01-4", "2026-001"]
    days += ["0001-01-01", "9999-12-31", "0000-01-01", "10000-01-01", "+10000-01-01", "-0001-01-01"]
    days += ["2026/01/01", "01-01-2026", "2026-01-01Z", "2026-01-01Tgarbage", "2026-01-01 x"]
    clocks = [
        "12:34",
        "12:34:56",
        "1:2:3",
        "24:00",
        "24:00:00",
        "23:59:60",
        "12:60:00",
        "12",
        "25:00:00",
    ]
    clocks += ["12:34:56." + "123456789"[:digits] for digits in range(10)]
    clocks += ["12:34:56.123456000", "12:34:56.1000000000000", "12:34:56,5", "12:34:56.12345600001"]
    clocks += ["12:34:56.0", "00:00:00", "12:34:56.000", "123456", "T12:34:56", "12:34:56 PM"]
    zones = [
        "Z",
        "z",
        "+01:00",
        "+0100",
        "+01",
        "-08:30",
        "+00:00",
        "-00:00",
        "+18:00",
        "+18:01",
        "+1",
    ]
    zones += [
        "+19:00",
        "UTC",
        " UTC",
        "[Europe/Berlin]",
        " Europe/Berlin",
        "+01:60",
        "+01:",
        " Z",
        "+01:00:00",
    ]
    times = [f"2026-01-01T{clock}{zone}" for clock in clocks for zone in ("", "Z")]
    times += [f"2026-01-01T12:34:56.123456{zone}" for zone in zones]
    times += [f"{day}T12:34:56Z" for day in days[:20]]
    times += [
        f"2026-01-01{separator}12:34:56Z" for separator in ("t", " ", "  ", "_", "\t", "\u00a0")
    ]
    times += [
        "2026-03-08T02:30:00",
        "2026-03-08T03:00:00",
        "2026-11-01T01:30:00",
        "2026-01-01T12:34z",
    ]
    times += ["1969-12-31T23:59:59.999999Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59.999999Z"]
    names = [
        "",
        " ",
        "x",
        "now",
        "today",
        "epoch",
        "tomorrow",
        "yesterday",
        "nan",
        "NaN",
        "Infinity",
    ]
    names += [
        "-Infinity",
        "+Infinity",
        "INF",
        "inf",
        "true",
        "TRUE",
        "t",
        "yes",
        "null",
        "NULL",
        "1",
        "-1",
    ]
    names += [
        "1.0",
        "3.5",
        "1e2",
        "+1",
        "01",
        "0x10",
        "1_000",
        "1,5",
        "1d",
        "1f",
        "-",
        ".5",
        "5.",
        "1.23",
    ]
    names += [
        "123.4500",
        "-1234",
        "1234",
        "12E4",
        "0.1e-2147483647",
        "1E+5",
        "0E-10",
        "1.5E-7",
        "1.234",
        "99999999.999",
    ]
    coded = [
        "AA==",
        "AB==",
        "AA",
        "AA=",
        "AAA=",
        "AAB=",
        "AAAA",
        "AAAAA",
        "!!!",
        "AA-_",
        "AA+/",
        "A A A A",
    ]
    coded += [
        "AAAA\n",
        "AAAA\nAAAA",
        "MDk=",
        "deadbeef",
        "=",
        "====",
        "AA==AA==",
        "\u00c4\u00c4\u00c4\u00c4",
    ]
    intervals = [
        "1 02:03:04",
        "1 2:3:4",
        "-1 02:03:04.5",
        "1 02:03:04.1234567",
        "1 02:03:04.1234560",
    ]
    intervals += [
        "1 25:00:00",
        "1 00:60:00",
        "INTERVAL '1 02:03:04' DAY TO SECOND",
        "P1DT2H",
        "1-2",
        "-1-2",
    ]
    intervals += ["1-12", "INTERVAL '1-2' YEAR TO MONTH", "P1Y2M", "1 day", "1 year"]
    strange = [
        "[1]",
        "{}",
        '{"a":1}',
        " [1]",
        "\\",
        '"',
        "\u0000",
        "\u0001",
        "\u00e4",
        "\U0001f600",
        "\u0081",
    ]
    strange += [
        "\\u0041",
        'say "[1]"',
        "6fa459ea-ee8a-3ca4-894e-db77e160355e",
        "a" * 500,
        "\u0090\u0081#1",
    ]
    plain = [*days, *clocks, *times, *names, *coded, *intervals, *strange]
    around = [
        f"{text}{end}"
        for text, end in itertools.product(("2026-01-01", "12:34:56", "1"), ("\n", " "))
    ]
    return [*dict.fromkeys([*plain, *around, *(f" {text}" for text in ("2026-01-01", "12:34:56"))])]
