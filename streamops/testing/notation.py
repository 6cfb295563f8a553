"""How a transcript writes times, windows, rows, and the lines of its script."""

from __future__ import annotations

import datetime as dt
import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, NamedTuple

import pyarrow as pa

from streamops.changelog.table import REJECTED
from streamops.kernel.core import SIDES, ClockMetrics, Input
from streamops.kernel.errors import SpecError
from streamops.kernel.lateness import LATE, has_side_output
from streamops.kernel.values import Refused, UnsupportedType, converter
from streamops.testing import conditions

_INSTANT = pa.timestamp("us", tz="UTC")

_ZERO = Decimal(0)

COLUMN_TYPES = {
    "string": pa.string(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "double": pa.float64(),
    "timestamp": _INSTANT,
}
"""Types of columns in a transcript, with their names in Spark."""

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

_LINE = {"restart", "no_data", "expect", "late", "watermark", "counts", "state_rows", "clock"}
_CLOCK = set(ClockMetrics.__dataclass_fields__)


def malformed(what: str, *, got: Any, expected: Any) -> SpecError:
    """The error for a malformed transcript."""
    return conditions.TRANSCRIPT_MALFORMED.error(reason=what, expected=expected, got=got)


def duration(text: Any) -> dt.timedelta:
    """Read a duration: ``10s``, ``-1.5s``, ``1h30m``, ``250ms``.

    Examples
    --------
    >>> duration("9.999999s")
    datetime.timedelta(seconds=9, microseconds=999999)
    """
    found = _DURATION.fullmatch(text) if isinstance(text, str) else None
    micros = Decimal("NaN")
    if found:
        micros = sum((Decimal(n) * _UNITS[unit] for n, unit in re.findall(_TERM, found[2])), _ZERO)
    if not found or micros % 1:
        raise malformed(
            "this is not a time", got=repr(text), expected="10s, 1h30m, 9.999999s, -1us"
        )
    return dt.timedelta(microseconds=-int(micros) if found[1] else int(micros))


def instant(value: Any, epoch: dt.datetime) -> dt.datetime | None:
    """Read an instant: a duration after the epoch, or an ISO timestamp with an offset; None for null.

    Examples
    --------
    >>> instant("-1s", dt.datetime(2024, 1, 1, tzinfo=dt.UTC)).isoformat()
    '2023-12-31T23:59:59+00:00'
    """
    if value is None:
        return None
    if isinstance(value, str) and not _DURATION.fullmatch(value):
        try:
            value = dt.datetime.fromisoformat(value)
        except ValueError:
            value = duration(value)  # raises, with the valid formats
    if isinstance(value, dt.datetime):
        if value.tzinfo is None:
            raise malformed(
                "this instant has no offset", got=value, expected="an offset, such as Z"
            )
        return value
    return epoch + duration(value)


def window(text: Any, epoch: dt.datetime) -> dict[str, dt.datetime | None]:
    """Read the columns of a window, ``[0s, 10s)``; nulls for null."""
    if text is None:
        return {"window_start": None, "window_end": None}
    found = _WINDOW.fullmatch(text) if isinstance(text, str) else None
    if not found:
        raise malformed("this is not a window", got=repr(text), expected='"[0s, 10s)"')
    start, end = (instant(border.strip(), epoch) for border in found.groups())
    return {"window_start": start, "window_end": end}


def _row(value: Any, schema: pa.Schema, epoch: dt.datetime) -> dict[str, Any]:
    """Read a row: values in the order of the columns (``a 1s``), or a mapping of all columns."""
    values = value.split() if isinstance(value, str) else value
    if isinstance(values, list) and len(values) == len(schema):
        values = [None if text == "null" else text for text in values]
        values = dict(zip(schema.names, values, strict=True))
    if isinstance(values, Mapping) and set(values) == set(schema.names):
        return {f.name: _cell(values[f.name], f.type, epoch) for f in schema}
    raise malformed(
        "this is not a row", got=repr(value), expected=f"columns {' '.join(schema.names)}"
    )


def _cell(value: Any, type_: pa.DataType, epoch: dt.datetime) -> Any:
    """Read a value of a column of this type."""
    if value is None:
        return None
    if pa.types.is_timestamp(type_):
        return instant(value, epoch)
    if pa.types.is_duration(type_):
        return duration(value)
    try:
        if isinstance(value, str) and not pa.types.is_string(type_):
            return pa.array([value]).cast(type_)[0].as_py()
        return converter(type_)(value)
    except (pa.ArrowException, Refused, UnsupportedType) as error:
        raise malformed(
            "a value does not fit its column", got=repr(value), expected=type_
        ) from error


def require_keys(value: Any, known: set[str], required: set[str]) -> dict[str, Any]:
    """The mapping; unknown and missing keys are refused."""
    keys = set(require_mapping(value, "transcript"))
    if keys - known or required - keys:
        raise malformed(
            f"unknown or missing keys: {', '.join(sorted((keys - known) | (required - keys)))}",
            got=sorted(keys),
            expected=f"{sorted(required)}, and any of {sorted(known - required)}",
        )
    return dict(value)


def require_mapping(value: Any, what: str) -> dict[str, Any]:
    """The value, which must be a mapping with strings as keys."""
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise malformed(f"`{what}` is not a mapping", got=repr(value), expected="{name: value}")
    return value


def _require_list(value: Any, what: str) -> list[Any]:
    if not isinstance(value, list):
        raise malformed(f"`{what}` is not a list", got=repr(value), expected="[...]")
    return value


@dataclass(frozen=True, slots=True)
class Line:
    """A micro-batch and its expected output.

    Parameters
    ----------
    rows : Table, or pair of them, optional
        None for the micro-batch without data; in a pair, None for an input without rows.
    expect, late : list of dict
        All output rows, and all late or rejected rows.
    checks : mapping
        Expected values of ``watermark``, ``state_rows``, and metrics.
    clock : mapping
        Expected metrics of a clock.
    restart : bool
        Whether the query is restarted before this micro-batch.
    """

    rows: pa.Table | tuple[pa.Table | None, pa.Table | None] | None = None
    expect: list[dict[str, Any]] = field(default_factory=list)
    late: list[dict[str, Any]] = field(default_factory=list)
    checks: Mapping[str, Any] = field(default_factory=dict)
    clock: Mapping[str, Any] = field(default_factory=dict)
    restart: bool = False


class Outline(NamedTuple):
    """What a script needs to know about an operator: its inputs, its output, the event time of this."""

    sides: tuple[Input, ...]
    columns: pa.Schema
    time: str | None


def read_line(
    value: Any,
    schemas: tuple[pa.Schema, ...],
    spec: Outline,
    epoch: dt.datetime,
    counts: frozenset[str],
) -> Line:
    """Read a line of a script.

    ``schemas`` has the columns of each input, ``spec`` is that of the operator, and ``counts`` the names
    of metrics that can be checked.
    """
    names = ("rows",) if len(schemas) == 1 else SIDES
    line = require_keys(value, _LINE | set(names), set())
    has_rows = any(name in line for name in names)
    flags = {line.get(name, True) for name in ("no_data", "restart")}
    if has_rows == ("no_data" in line) or ("restart" in line and not has_rows) or flags != {True}:
        raise malformed(
            "a line is one micro-batch",
            got=sorted(line),
            expected=f"{' and '.join(f'{name}: [...]' for name in names)}, or no_data: true",
        )
    tables = [
        _table(line[name], schema, epoch, name) if name in line else None
        for name, schema in zip(names, schemas, strict=True)
    ]
    rows: Any = tables[0] if len(tables) == 1 else tuple(tables)
    checks = {name: line[name] for name in ("state_rows",) if name in line}
    checks |= require_mapping(line.get("counts", {}), "counts")
    for name, count in checks.items():
        if name not in counts or not isinstance(count, int):
            raise malformed(
                "no such count", got=f"{name}: {count}", expected=", ".join(sorted(counts))
            )
    if "watermark" in line:
        checks["watermark"] = instant(line["watermark"], epoch)
    expected = _require_list(line.get("expect", []), "expect")
    if len(schemas) > 1:
        read_late = functools.partial(_late_with_side, spec=spec, schemas=schemas, epoch=epoch)
    elif spec.sides[0].time is None and not has_side_output(spec.columns):
        read_late = functools.partial(_rejected, spec=spec, epoch=epoch)
    elif spec.time == "match_end":
        read_late = functools.partial(_late_match, spec=spec, epoch=epoch)
    else:
        read_late = functools.partial(_late, spec=spec, epoch=epoch)
    return Line(
        rows if has_rows else None,
        [_result(row, spec, epoch) for row in expected],
        [read_late(row) for row in _require_list(line.get("late", []), "late")],
        checks,
        _clock(line.get("clock", {}), epoch),
        "restart" in line,
    )


def _table(value: Any, schema: pa.Schema, epoch: dt.datetime, name: str) -> pa.Table:
    rows = [_row(row, schema, epoch) for row in _require_list(value, name)]
    return pa.Table.from_pylist(rows, schema)


def _clock(value: Any, epoch: dt.datetime) -> dict[str, Any]:
    metrics = require_keys(value, _CLOCK, set())
    for name in ("clock", "newest"):
        time = instant(metrics.get(name), epoch)
        if time is not None:
            since = time - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
            metrics[name] = since // dt.timedelta(microseconds=1)
    return metrics


def _result(value: Any, spec: Outline, epoch: dt.datetime) -> dict[str, Any]:
    row = dict(require_mapping(value, "expect"))
    borders = window(row.pop("window"), epoch) if "window" in row else {}
    if "change" in row:
        row["_change_type"] = row.pop("change")
    side_output = {"late", *([REJECTED] if routes_rejected(spec.columns) else [])}
    types = {f.name: f.type for f in spec.columns if f.name not in side_output}
    if set(borders) | set(row) != set(types):
        raise malformed(
            "an expected row has other columns than the output",
            got=sorted({*row, *borders}),
            expected=sorted(types),
        )
    return borders | {name: _cell(cell, types[name], epoch) for name, cell in row.items()}


def _late(value: Any, spec: Outline, epoch: dt.datetime) -> dict[str, Any]:
    has_window = "window_end" in spec.columns.names
    known = _late_names(spec, value) - {"side"} - (set() if has_window else {"window"})
    late = require_keys(value, known, {"row", "reason"})
    row = _row(late["row"], spec.sides[0].schema, epoch)
    time = spec.sides[0].time
    times = {} if time is None else {spec.time or "": row[time]}
    missed = None
    if has_window:
        borders = window(late.get("window"), epoch)
        times = {name: at for name, at in borders.items() if name in spec.columns.names}
        missed = dict(zip(("start", "end"), borders.values(), strict=True))
        missed = None if missed["start"] is None else missed
    keys = {name: row[name] for name in spec.sides[0].by if times}
    return {**keys, **times, **_fields(spec, late, epoch, window=missed, row=row)}


def _late_match(value: Any, spec: Outline, epoch: dt.datetime) -> dict[str, Any]:
    """Read a late row, or a partial match that ran out of time."""
    by = spec.sides[0].by
    known = _late_names(spec, value) - {"side", "window"} | {"start", *by}
    late = require_keys(value, known, {"reason"})
    if "row" in late:
        row = _row(late["row"], spec.sides[0].schema, epoch)
        keys, time = {name: row[name] for name in by}, row[spec.sides[0].time or ""]
    else:
        row, time = None, instant(late["start"], epoch)
        keys = {name: late[name] for name in by}
    times = {"match_start": time, "match_end": time}
    return {**keys, **times, **_fields(spec, late, epoch, row=row)}


def _late_with_side(
    value: Any, spec: Outline, schemas: tuple[pa.Schema, ...], epoch: dt.datetime
) -> dict[str, Any]:
    known = _late_names(spec, value) - {"window"}
    late = require_keys(value, known, {"row", "side", "reason"})
    side = late["side"]
    if side not in SIDES:
        raise malformed("this is not a side", got=side, expected="left, or right")
    # Written as in the input, of which the struct may have less, and in another order.
    stored = spec.columns.field(LATE).type.field("row").type.field(side).type
    names = {field.name for field in stored}
    columns = [field for field in schemas[SIDES.index(side)] if field.name in names]
    row = _row(late["row"], pa.schema(columns), epoch)
    rows = {str(name): row if name == side else None for name in SIDES}
    return _fields(spec, late, epoch, row=rows)


def _late_names(spec: Outline, value: Any) -> set[str]:
    """The fields of ``late``, those that only this operator has among them."""
    if not has_side_output(spec.columns):
        raise _not_routed(value)
    return {field.name for field in spec.columns.field(LATE).type}


def _fields(
    spec: Outline, late: Mapping[str, Any], epoch: dt.datetime, **values: Any
) -> dict[str, Any]:
    """The fields of ``late``."""
    lateness = late.get("lateness")
    values = {
        **late,
        **values,
        "lateness": None if lateness is None else duration(lateness),
        "watermark": instant(late.get("watermark"), epoch),
    }
    return {field.name: values.get(field.name) for field in spec.columns.field(LATE).type}


def _not_routed(got: Any) -> SpecError:
    what = "this operator does not route rejected rows"
    return malformed(what, got=got, expected="late: []")


def routes_rejected(output: pa.Schema) -> bool:
    """Whether the output has rejected rows, with a reason, in a column of their own."""
    types = {field_.name: field_.type for field_ in output}
    type_ = types.get(REJECTED, pa.null())
    return bool(pa.types.is_struct(type_)) and [field_.name for field_ in type_] == [
        "reason",
        "row",
    ]


def _rejected(value: Any, spec: Outline, epoch: dt.datetime) -> dict[str, Any]:
    rejected = require_keys(value, {"row", "reason"}, {"row", "reason"})
    if not routes_rejected(spec.columns):
        raise _not_routed(value)
    row = _row(rejected["row"], spec.sides[0].schema, epoch)
    return {"reason": rejected["reason"], "row": row}
