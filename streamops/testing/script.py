"""The lines of a transcript: what comes in a micro-batch, and what must come out."""

from __future__ import annotations

import datetime as dt
import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from streamops.changelog.table import REJECTED
from streamops.kernel.clocks import ClockMetrics
from streamops.kernel.core import Metrics
from streamops.testing.notation import (
    cell,
    duration,
    instant,
    listed,
    malformed,
    mapping,
    refuse_unknown,
    row,
    window,
)

__all__ = ["COUNTS", "Line", "puts_aside", "read_line"]

Records = list[dict[str, Any]]

_LINE = {
    "rows",
    "restart",
    "no_data",
    "expect",
    "late",
    "watermark",
    "counts",
    "state_rows",
    "clock",
}
_SIDES = ("left", "right")
_LATE = {"row", "window", "reason", "lateness", "watermark"}
_ASIDE = {"row", "reason"}
_LATE_OF_A_SIDE = {"row", "side", "reason", "lateness", "watermark"}
COUNTS = frozenset(Metrics.__dataclass_fields__)
"""What an operator counts, unless it says otherwise."""

_TOLD = set(ClockMetrics.__dataclass_fields__)
_INSTANTS = ("clock", "newest")


@dataclass(frozen=True, slots=True)
class Line:
    """A micro-batch and what is expected of it.

    Parameters
    ----------
    rows : Table, or pair of them, optional
        None for the micro-batch without data; in a pair, for a side without rows.
    expect, late : list of dict
        Everything that comes out.
    checks : mapping
        What else is checked: ``watermark``, ``state_rows``, and the names of counts.
    clock : mapping
        What is checked of what a clock told.
    restart : bool
        Whether the query is stopped before this micro-batch, and started again.
    """

    rows: pa.Table | tuple[pa.Table | None, pa.Table | None] | None = None
    expect: Records = field(default_factory=list)
    late: Records = field(default_factory=list)
    checks: Mapping[str, Any] = field(default_factory=dict)
    clock: Mapping[str, Any] = field(default_factory=dict)
    restart: bool = False


def read_line(
    said: Any,
    schemas: tuple[pa.Schema, ...],
    spec: Any,
    epoch: dt.datetime,
    where: str,
    counts: frozenset[str] = COUNTS,
) -> Line:
    """A line, as YAML has it, in the terms of the operator's spec.

    ``schemas`` are the columns of its one input, or of both; ``counts`` what may be checked of
    what was counted.
    """
    words = ("rows",) if len(schemas) == 1 else _SIDES
    refuse_unknown(said, (_LINE - {"rows"}) | set(words), set(), where)
    has_rows = any(word in said for word in words)
    flags = {said.get(name, True) for name in ("no_data", "restart")}
    if has_rows == ("no_data" in said) or ("restart" in said and not has_rows) or flags != {True}:
        raise malformed(
            where,
            "a line is one micro-batch",
            got=sorted(said),
            expected=f"{' and '.join(f'{word}: [...]' for word in words)}, or no_data: true",
        )
    tables = [
        _table(said[word], schema, epoch, where, word) if word in said else None
        for word, schema in zip(words, schemas, strict=True)
    ]
    rows: Any = tables[0] if len(tables) == 1 else tuple(tables)
    checks = {k: said[k] for k in ("state_rows",) if k in said}
    checks |= mapping(said.get("counts", {}), where, "counts")
    for name, count in checks.items():
        if name not in counts or not isinstance(count, int):
            raise malformed(
                where, "no such count", got=f"{name}: {count}", expected=", ".join(sorted(counts))
            )
    if "watermark" in said:
        checks["watermark"] = instant(said["watermark"], epoch, where)
    late = functools.partial(_late, spec=spec, epoch=epoch, where=where)
    if spec.inputs[0].time is None or puts_aside(spec.output):
        late = functools.partial(_put_aside, spec=spec, epoch=epoch, where=where)
    if len(schemas) > 1:
        late = functools.partial(_late_of_a_side, schemas=schemas, epoch=epoch, where=where)
    return Line(
        rows if has_rows else None,
        [
            _result(each, spec, epoch, where)
            for each in listed(said.get("expect", []), where, "expect")
        ],
        [late(each) for each in listed(said.get("late", []), where, "late")],
        checks,
        _clock(said.get("clock", {}), epoch, where),
        "restart" in said,
    )


def _table(said: Any, schema: pa.Schema, epoch: dt.datetime, where: str, word: str) -> pa.Table:
    read = [row(each, schema, epoch, where) for each in listed(said, where, word)]
    return pa.Table.from_pylist(read, schema)


def _clock(said: Any, epoch: dt.datetime, where: str) -> dict[str, Any]:
    refuse_unknown(said, _TOLD, set(), where)
    since = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    told = dict(said)
    for name in _INSTANTS:
        when = instant(told.get(name), epoch, where)
        if when is not None:
            told[name] = (when - since) // dt.timedelta(microseconds=1)
    return told


def _result(said: Any, spec: Any, epoch: dt.datetime, where: str) -> dict[str, Any]:
    said = dict(mapping(said, where, "expect"))
    cells = window(said.pop("window"), epoch, where) if "window" in said else {}
    if "change" in said:
        said["_change_type"] = said.pop("change")
    apart = {"late", *([REJECTED] if puts_aside(spec.output) else [])}
    types = {f.name: f.type for f in spec.output if f.name not in apart}
    if set(cells) | set(said) != set(types):
        raise malformed(
            where,
            "an expected row names other columns than the output has",
            got=sorted({*said, *cells}),
            expected=sorted(types),
        )
    return cells | {name: cell(value, types[name], epoch, where) for name, value in said.items()}


def _late(said: Any, spec: Any, epoch: dt.datetime, where: str) -> dict[str, Any]:
    has_window = "window_start" in spec.output.names
    refuse_unknown(said, _LATE if has_window else _LATE - {"window"}, {"row", "reason"}, where)
    came = row(said["row"], spec.inputs[0].schema, epoch, where)
    return {
        **{name: came[name] for name in spec.inputs[0].by},
        **(
            window(said.get("window"), epoch, where)
            if has_window
            else {spec.event_time: came[spec.inputs[0].time]}
        ),
        **_judged(said, epoch, where),
        "row": came,
    }


def puts_aside(output: pa.Schema) -> bool:
    """Whether rejected rows come among the results, whole, in a column of their own."""
    kinds = {field.name: field.type for field in output}
    kind = kinds.get(REJECTED, pa.null())
    return bool(pa.types.is_struct(kind)) and [each.name for each in kind] == ["reason", "row"]


def _put_aside(said: Any, spec: Any, epoch: dt.datetime, where: str) -> dict[str, Any]:
    refuse_unknown(said, _ASIDE, _ASIDE, where)
    if not puts_aside(spec.output):
        raise malformed(where, "no row is put aside here", got=said, expected="late: []")
    return {"reason": said["reason"], "row": row(said["row"], spec.inputs[0].schema, epoch, where)}


def _late_of_a_side(
    said: Any, schemas: tuple[pa.Schema, ...], epoch: dt.datetime, where: str
) -> dict[str, Any]:
    refuse_unknown(said, _LATE_OF_A_SIDE, {"row", "side", "reason"}, where)
    side = said["side"]
    if side not in _SIDES:
        raise malformed(where, "this is not a side", got=side, expected="left, or right")
    came = row(said["row"], schemas[_SIDES.index(side)], epoch, where)
    return {
        "side": side,
        **_judged(said, epoch, where),
        **{each: came if each == side else None for each in _SIDES},
    }


def _judged(said: Any, epoch: dt.datetime, where: str) -> dict[str, Any]:
    late = said.get("lateness")
    return {
        "reason": said["reason"],
        "lateness": None if late is None else duration(late, where),
        "watermark": instant(said.get("watermark"), epoch, where),
    }
