"""Columns of every type that Debezium's connectors send, and the form of their values in each mode.

What a query reads, and the text of the database, become the same Python value, or the mirror differs.
"""

from __future__ import annotations

import datetime as dt
import re
from base64 import urlsafe_b64decode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from typing import Any

import numpy as np

EPOCH = dt.datetime(1970, 1, 1)  # noqa: DTZ001 (of times without a zone)
MICROSECOND = dt.timedelta(microseconds=1)
_JSON = "org.apache.kafka.connect.json.JsonConverter"


@dataclass(frozen=True)
class Mode:
    """How a connector sends values, and further settings of it."""

    time: str = "adaptive"
    decimal: str = "precise"
    binary: str = "bytes"
    interval: str = "numeric"
    with_schema: bool = False
    further: Mapping[str, str] = field(default_factory=dict)

    def of(self, connector: str) -> Mode:
        """The mode of a connector: for MariaDB there is no "adaptive"."""
        if connector == "mariadb" and self.time == "adaptive":
            return replace(self, time="adaptive_time_microseconds")
        return self

    def settings(self, connector: str) -> dict[str, Any]:
        """The settings of a connector, with underscores for dots."""
        result: dict[str, Any] = {
            "time_precision_mode": self.of(connector).time,
            "decimal_handling_mode": self.decimal,
            "binary_handling_mode": self.binary,
            # By default a value that cannot be converted is sent as null.
            "event_converting_failure_handling_mode": "fail",
            **self.further,
        }
        if connector == "postgresql":
            result["interval_handling_mode"] = self.interval
        else:
            # By default a number above those of a bigint is sent as another one.
            result["bigint_unsigned_handling_mode"] = "precise"
        for part in ("key", "value"):
            result[f"{part}_converter"] = _JSON
            result[f"{part}_converter_schemas_enable"] = str(self.with_schema).lower()
        return result


TRANSACTIONS = {"provide_transaction_metadata": "true"}
MODES = {
    "default": Mode(with_schema=True),
    "text": Mode("adaptive_time_microseconds", "string", "base64", "string", further=TRANSACTIONS),
    "connect": Mode("connect", "double", "hex"),
    "iso": Mode("isostring", "string", "base64-url-safe", "string"),
    "micros": Mode("microseconds", with_schema=True, further=TRANSACTIONS),
    "nanos": Mode("nanoseconds"),
}


@dataclass(frozen=True)
class Reading:
    """The type in the schema of a query, and how its values and texts of the database compare."""

    type: str
    decode: Callable[[Any], Any]
    parse: Callable[[str], Any]


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Parameters
    ----------
    name : str
    ddl : str
        Its type in the database.
    form : "number", "text" and so on
        How it is sent, a function of `Forms`; or "array of" such a form.
    values : sequence of str
        Literals of SQL.
    digits : int
        Of fractions of a second, or after the decimal point.
    """

    name: str
    ddl: str
    form: str
    values: Sequence[str]
    digits: int = 6

    def read_by(self, mode: Mode) -> Reading:
        """How a query reads it."""
        *array, form = self.form.split(" of ")
        item: Reading = getattr(Forms(mode, self.digits), form)()
        if not array:
            return item
        return Reading(
            f"array<{item.type}>",
            lambda items: [None if value is None else item.decode(value) for value in items],
            lambda text: [
                None if value == "NULL" else item.parse(value.strip('"'))
                for value in text[1:-1].split(",")
            ],
        )


@dataclass(frozen=True)
class Forms:
    """The forms of values in a mode."""

    mode: Mode
    digits: int

    def number(self) -> Reading:
        return Reading("bigint", int, int)

    def flag(self) -> Reading:
        return Reading("boolean", bool, lambda text: text in {"t", "true", "1"})

    def single(self) -> Reading:
        return Reading("float", _float, lambda text: _float(np.float32(text)))

    def double(self) -> Reading:
        return Reading("double", _float, _float)

    def text(self) -> Reading:
        return Reading("string", str, str)

    def decimal(self) -> Reading:
        match self.mode.decimal:
            case "precise":
                return Reading("binary", lambda value: _unscaled(value, self.digits), Decimal)
            case "string":
                return Reading(f"decimal(38,{self.digits})", Decimal, Decimal)
        return self.double()

    def whole(self) -> Reading:
        # As text it may look like bytes.
        if self.mode.decimal == "string":
            return Reading("string", Decimal, Decimal)
        return replace(self, digits=0).decimal()

    def unsigned(self) -> Reading:
        return Reading("binary", lambda value: _unscaled(value, 0), Decimal)

    def numeric(self) -> Reading:
        if self.mode.decimal == "precise":
            struct = "struct<scale: int, value: binary>"
            return Reading(struct, lambda v: _unscaled(v["value"], v["scale"]), Decimal)
        return self.whole()

    def date(self) -> Reading:
        if self.mode.time == "isostring":
            return Reading("string", lambda text: text.removesuffix("Z"), str)
        return Reading("int", lambda days: str((EPOCH + dt.timedelta(days)).date()), str)

    def clock(self) -> Reading:
        unit = 1_000 if self.mode.time == "connect" else 1
        if self.mode.time == "isostring":
            return Reading("string", lambda text: _clock(text.removesuffix("Z")), _clock)
        cut = self.mode.time == "adaptive" and self.digits <= 3
        return Reading(
            "bigint",
            lambda number: self._to_micros(number, is_short=cut),
            lambda text: _clock(text) // unit * unit,
        )

    def timestamp(self) -> Reading:
        if self.mode.time == "isostring":
            return Reading("timestamp", _of_instant, _since_epoch)
        unit = (1_000 if self.mode.time == "connect" else 1) * MICROSECOND
        return Reading(
            "bigint",
            lambda number: self._to_micros(number, is_short=self.digits <= 3) * MICROSECOND,
            lambda text: _since_epoch(text) // unit * unit,
        )

    def instant(self) -> Reading:
        return Reading("timestamp", _of_instant, lambda t: _since_epoch(t.removesuffix("+00")))

    def zoned_clock(self) -> Reading:
        def parse(text: str) -> int:
            clock, sign, hours = re.split(r"([+-])", text)
            return (_clock(clock) - int(sign + hours) * 3_600_000_000) % 86_400_000_000

        return Reading("string", lambda text: _clock(text.removesuffix("Z")), parse)

    def interval(self) -> Reading:
        if self.mode.interval == "string":
            return Reading("string", _interval, _interval)
        return Reading("bigint", int, _interval_micros)

    def bytes(self) -> Reading:
        match self.mode.binary:
            case "hex":
                return Reading("string", bytes.fromhex, _hex)
            case "base64-url-safe":
                return Reading("string", urlsafe_b64decode, _hex)
        return Reading("binary", bytes, _hex)

    def bits(self) -> Reading:
        return Reading("binary", lambda v: int.from_bytes(v, "little"), lambda text: int(text, 2))

    def point(self) -> Reading:
        struct = "struct<x: double, y: double, wkb: binary, srid: int>"
        return Reading(
            struct, lambda v: [v["x"], v["y"]], lambda t: [*map(float, re.findall(r"[\d.]+", t))]
        )

    def _to_micros(self, number: int, *, is_short: bool) -> int:
        match self.mode.time:
            case "nanoseconds":
                assert number % 1_000 == 0
                return number // 1_000
            case "connect":
                return number * 1_000
            case "adaptive" | "adaptive_time_microseconds" if is_short:
                return number * 1_000
        return number


def _float(value: Any) -> Any:
    number = float(value)
    return "NaN" if number != number else number


def _unscaled(value: Any, scale: int) -> Decimal:
    number = int.from_bytes(value, "big", signed=True)
    return Decimal(f"{number}e{-scale}")


def _hex(text: str) -> bytes:
    return bytes.fromhex(text.removeprefix("\\x"))


def _of_instant(value: dt.datetime) -> dt.timedelta:
    return value.replace(tzinfo=None) - EPOCH  # the session is in UTC


def _since_epoch(text: str) -> dt.timedelta:
    return dt.datetime.fromisoformat(text) - EPOCH


def _clock(text: str) -> int:
    hours, minutes, seconds = map(Decimal, text.lstrip("-").split(":"))
    micros = int(((hours * 60 + minutes) * 60 + seconds) * 1_000_000)
    return -micros if text.startswith("-") else micros


def _interval(text: str) -> list[Decimal]:
    """Years, months, days, hours, minutes, seconds of an interval in ISO 8601."""
    days, _, clock = text.partition("T")
    parts = [dict((unit, Decimal(n)) for n, unit in _AMOUNT.findall(t)) for t in (days, clock)]
    return [
        part.get(unit, Decimal(0))
        for part, units in zip(parts, ("YMD", "HMS"), strict=True)
        for unit in units
    ]


_AMOUNT = re.compile(r"(-?[\d.]+)([A-Z])")


def _interval_micros(text: str) -> int:
    years, months, days, hours, minutes, seconds = _interval(text)
    whole = (years * 12 + months) * 2_629_800 + days * 86_400  # a month has a 12th of 365.25 days
    return int((whole + (hours * 60 + minutes) * 60 + seconds) * 1_000_000)


POSTGRES = [
    Column("i2", "smallint", "number", ["-32768", "32767"]),
    Column("i8", "bigint", "number", ["-9223372036854775808", "9223372036854775807"]),
    Column("fl", "boolean", "flag", ["true", "false"]),
    Column("f4", "real", "single", ["1.1", "'NaN'", "'-Infinity'", "3.4028235e38", "1e-45"]),
    Column("f8", "double precision", "double", ["0.1", "'NaN'", "'Infinity'", "5e-324", "-0.0"]),
    Column("d2", "numeric(10,2)", "decimal", ["12345678.12", "-0.01", "0", "12"], 2),
    Column("d9", "numeric(38,9)", "decimal", ["12345678901234567890123456789.123456789"], 9),
    Column("d0", "numeric(8,0)", "whole", ["1234", "-99999999", "0"]),
    Column("du", "numeric", "numeric", ["1234567.125", "1e20", "-0.000000000000000000001"]),
    Column("mo", "money", "decimal", ["12.34", "-0.05"], 2),
    Column("te", "text", "text", [r"E'a\n\"\u0001\\ \U0001F600'", "''", "'{\"a\": 1}'", "'null'"]),
    Column("ch", "char(4)", "text", ["'ab'"]),
    Column("da", "date", "date", ["'2024-02-29'", "'1583-01-01'", "'9999-12-31'"]),
    Column("t6", "time", "clock", ["'12:34:56.123456'", "'00:00'", "'23:59:59.999999'"]),
    Column("t0", "time(0)", "clock", ["'23:59:59'"], 0),
    Column("tz", "timetz", "zoned_clock", ["'12:34:56.123456+02'", "'00:00:00+05'"]),
    Column("s6", "timestamp", "timestamp", ["'2024-03-09 12:34:56.123456'", "'1700-01-01'"]),
    Column("s3", "timestamp(3)", "timestamp", ["'1969-12-31 23:59:59.999'"], 3),
    Column("sz", "timestamptz", "instant", ["'2024-03-09 12:34:56.000001+02'", "'9999-12-31Z'"]),
    Column("iv", "interval", "interval", ["'1 year 2 mons 3 days 04:05:06.789'", "'-1 day'"]),
    Column("ba", "bytea", "bytes", [r"'\xdeadbeef00ff'", r"'\xfbfffe'", r"'\x'"]),
    Column("js", "json", "text", ["'{\"a\": 1.50}'", "'[1, null]'", "'\"text\"'"]),
    Column("jb", "jsonb", "text", ["'{\"a\": [1, null]}'", "'null'", "'12'"]),
    Column("uu", "uuid", "text", ["'00000000-0000-0000-0000-00000000000a'"]),
    Column("ip", "inet", "text", ["'10.0.0.1/8'", "'::1'"]),
    Column("b1", "bit(1)", "flag", ["B'1'", "B'0'"]),
    Column("bi", "bit(10)", "bits", ["B'1000000001'"]),
    Column("rg", "int4range", "text", ["'[1,5)'"]),
    Column("po", "point", "point", ["'(1.5,2)'"]),
    Column("xm", "xml", "text", ["'<a>&amp;</a>'"]),
    Column("en", "mood", "text", ["'sad'"]),
    Column("an", "int[]", "array of number", ["'{1,NULL,3}'"]),
    Column("at", "text[]", "array of text", ["'{a,NULL,b}'"]),
    Column("ad", "numeric(5,2)[]", "array of decimal", ["'{1.5,-2}'"], 2),
    Column("aa", "date[]", "array of date", ["'{2024-03-09,NULL}'"]),
    Column("az", "timestamptz[]", "array of instant", ["'{2024-03-09 12:34:56.123456+02}'"]),
    Column("as_", "timestamp[]", "array of timestamp", ["'{2024-03-09 12:34:56.123456}'"]),
    Column("af", "float8[]", "array of double", ["'{1.5,NaN}'"]),
]
MARIADB = [
    Column("i1", "tinyint", "number", ["-128", "127"]),
    Column("fl", "boolean", "number", ["true", "false"]),
    Column("u4", "int unsigned", "number", ["4294967295"]),
    Column("i8", "bigint", "number", ["-9223372036854775808", "9223372036854775807"]),
    Column("u8", "bigint unsigned", "unsigned", ["18446744073709551615", "0"]),
    Column("f4", "float", "single", ["1.25", "-3.5"]),
    Column("f8", "double", "double", ["0.1", "1.5e300"]),
    Column("d2", "decimal(10,2)", "decimal", ["12345678.12", "-0.01", "0"], 2),
    Column("d9", "decimal(38,9)", "decimal", ["12345678901234567890123456789.123456789"], 9),
    Column("d0", "decimal(8,0)", "whole", ["1234", "-99999999"]),
    Column("te", "text", "text", ["'a\\n\\\"\\\\ 😀'", "''", "'{\"a\": 1}'", "'null'"]),
    Column("tl", "varchar(20) CHARACTER SET latin1", "text", ["'é'"]),
    Column("ch", "char(4)", "text", ["'ab'"]),
    Column("da", "date", "date", ["'2024-02-29'", "'1000-01-01'", "'9999-12-31'"]),
    Column("t6", "time(6)", "clock", ["'12:34:56.123456'", "'00:00:00'", "'23:59:59.999999'"]),
    Column("t0", "time", "clock", ["'23:59:59'"], 0),
    Column("s6", "datetime(6)", "timestamp", ["'2024-03-09 12:34:56.123456'", "'1700-01-01'"]),
    Column("s0", "datetime", "timestamp", ["'1969-12-31 23:59:59'"], 0),
    Column("sz", "timestamp(6) NULL", "instant", ["'2024-03-09 12:34:56.000001'"]),
    Column("ye", "year", "number", ["2024", "1901"]),
    Column("ba", "varbinary(20)", "bytes", ["x'deadbeef00ff'", "x'fbfffe'", "''"]),
    Column("bf", "binary(4)", "bytes", ["x'ff00'"]),
    Column("bl", "blob", "bytes", ["x'00010203'"]),
    Column("js", "json", "text", ["'{\"a\": 1.50}'", "'[1, null]'"]),
    Column("uu", "uuid", "text", ["'00000000-0000-0000-0000-00000000000a'"]),
    Column("b1", "bit(1)", "flag", ["b'1'", "b'0'"]),
    Column("bi", "bit(10)", "bits", ["b'1000000001'"]),
    Column("en", "enum('sad','glad')", "text", ["'sad'"]),
    Column("st", "set('a','b','c')", "text", ["'a,c'", "''"]),
]
TYPES = {"postgresql": POSTGRES, "mariadb": MARIADB}


def text_expression(column: Column, connector: str) -> str:
    """The expression that is the text of a column in the database."""
    if connector == "postgresql":
        value = f"{column.name}{'::numeric' * (column.ddl == 'money')}"
        # A cast to text would cut spaces.
        return f"CASE WHEN {column.name} IS NOT NULL THEN format('%s', {value}) END"
    match column.form:
        case "bytes":
            return f"HEX({column.name})"
        case "bits" | "flag":
            return f"BIN({column.name})"
    return f"CAST({column.name} AS CHAR)"
