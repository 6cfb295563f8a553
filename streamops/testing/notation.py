"""How a transcript writes times, windows and rows."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

import pyarrow as pa

from streamops.kernel.errors import SpecError

__all__ = [
    "COLUMN_TYPES",
    "cell",
    "duration",
    "instant",
    "listed",
    "malformed",
    "mapping",
    "refuse_unknown",
    "row",
    "window",
]

INSTANT = pa.timestamp("us", tz="UTC")

_ZERO = Decimal(0)

COLUMN_TYPES = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "timestamp": INSTANT,
}
"""Types a transcript may give its columns, in Spark's words."""

_UNITS = {
    "us": Decimal(1),
    "ms": Decimal(1_000),
    "s": Decimal(1_000_000),
    "m": Decimal(60_000_000),
    "h": Decimal(3_600_000_000),
    "d": Decimal(86_400_000_000),
}
_TERM = r"(\d+(?:\.\d+)?)(us|ms|s|m|h|d)"
_DURATION = re.compile(rf"(-?)((?:{_TERM})+)")
_WINDOW = re.compile(r"\[([^,\[\]()]+),\s*([^,\[\]()]+)\)")


def malformed(where: str, what: str, *, got: Any, expected: Any) -> SpecError:
    """The error for a transcript that does not say what it means."""
    return SpecError(
        "TRANSCRIPT_MALFORMED",
        what,
        where=where,
        got=got,
        expected=expected,
        fix="correct the transcript; streamops.testing.transcripts describes the format",
    )


def duration(text: Any, where: str) -> dt.timedelta:
    """A length of time: ``10s``, ``-1.5s``, ``1h30m``, ``250ms``.

    Examples
    --------
    >>> duration("9.999999s", "doc")
    datetime.timedelta(seconds=9, microseconds=999999)
    """
    found = _DURATION.fullmatch(text) if isinstance(text, str) else None
    micros = Decimal("NaN")
    if found:
        micros = sum((Decimal(n) * _UNITS[unit] for n, unit in re.findall(_TERM, found[2])), _ZERO)
    if not found or micros % 1:
        raise malformed(
            where, "this is not a time", got=repr(text), expected="10s, 1h30m, 9.999999s, -1us"
        )
    return dt.timedelta(microseconds=-int(micros) if found[1] else int(micros))


def instant(value: Any, epoch: dt.datetime, where: str) -> dt.datetime | None:
    """An instant: so long after the epoch, or an ISO timestamp with its offset; None for null.

    Examples
    --------
    >>> instant("-1s", dt.datetime(2024, 1, 1, tzinfo=dt.UTC), "doc").isoformat()
    '2023-12-31T23:59:59+00:00'
    """
    if value is None:
        return None
    if isinstance(value, str) and not _DURATION.fullmatch(value):
        try:
            value = dt.datetime.fromisoformat(value)
        except ValueError:
            value = duration(value, where)  # fails, and says what may be written
    if isinstance(value, dt.datetime):
        if value.tzinfo is None:
            raise malformed(
                where, "this instant has no offset", got=value, expected="an offset, such as Z"
            )
        return value
    return epoch + duration(value, where)


def window(text: Any, epoch: dt.datetime, where: str) -> dict[str, dt.datetime | None]:
    """The columns of a window, ``[0s, 10s)``; nulls for null."""
    if text is None:
        return {"window_start": None, "window_end": None}
    found = _WINDOW.fullmatch(text) if isinstance(text, str) else None
    if not found:
        raise malformed(where, "this is not a window", got=repr(text), expected='"[0s, 10s)"')
    start, end = (instant(word.strip(), epoch, where) for word in found.groups())
    return {"window_start": start, "window_end": end}


def row(value: Any, schema: pa.Schema, epoch: dt.datetime, where: str) -> dict[str, Any]:
    """A row: words in the order of the columns (``a 1s``), or a mapping of all columns."""
    words = value.split() if isinstance(value, str) else value
    if isinstance(words, Mapping) and set(words) == set(schema.names):
        return {f.name: cell(words[f.name], f.type, epoch, where) for f in schema}
    if isinstance(words, list) and len(words) == len(schema):
        read = [None if word == "null" else word for word in words]
        return {f.name: cell(w, f.type, epoch, where) for f, w in zip(schema, read, strict=True)}
    raise malformed(
        where, "this is not a row", got=repr(value), expected=f"columns {' '.join(schema.names)}"
    )


def cell(value: Any, kind: pa.DataType, epoch: dt.datetime, where: str) -> Any:
    """A value of a column of this type, from YAML or from a word of a row."""
    if value is None:
        return None
    if pa.types.is_timestamp(kind):
        return instant(value, epoch, where)
    if pa.types.is_duration(kind):
        return duration(value, where)
    try:
        if isinstance(value, str) and not pa.types.is_string(kind):
            return pa.array([value]).cast(kind)[0].as_py()
        return pa.array([value], kind)[0].as_py()
    except pa.ArrowException as error:
        raise malformed(
            where, "a value does not fit its column", got=repr(value), expected=kind
        ) from error


def refuse_unknown(said: Any, known: set[str], required: set[str], where: str) -> None:
    """Refuse keys that mean nothing, and missing ones."""
    keys = set(mapping(said, where, "transcript"))
    if keys - known or required - keys:
        raise malformed(
            where,
            f"unknown or missing keys: {', '.join(sorted((keys - known) | (required - keys)))}",
            got=sorted(keys),
            expected=f"{sorted(required)}, and any of {sorted(known - required)}",
        )


def mapping(value: Any, where: str, what: str) -> dict[str, Any]:
    """The value, which must be a mapping with words as keys."""
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise malformed(
            where, f"`{what}` is not a mapping", got=repr(value), expected="{name: value}"
        )
    return value


def listed(value: Any, where: str, what: str) -> list[Any]:
    """The value, which must be a list."""
    if not isinstance(value, list):
        raise malformed(where, f"`{what}` is not a list", got=repr(value), expected="[...]")
    return value
