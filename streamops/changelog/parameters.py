"""What users say of a table whose rows have keys, of which the changes come in any order."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence

import pyarrow as pa

from streamops.changelog.change_types import CHANGE_TYPE
from streamops.changelog.table import (
    CHANGE_COLUMNS,
    COMMIT_COLUMNS,
    REJECTED,
    SNAPSHOT,
    TOMBSTONE,
    UNAVAILABLE,
    is_rejected_type,
)
from streamops.kernel.errors import SpecError
from streamops.kernel.ordering import is_comparable
from streamops.kernel.parameters import refuse_type, require_name
from streamops.kernel.time import Duration, format_duration, parse_duration

__all__ = [
    "DEFAULT_MAX_KEYS",
    "Horizon",
    "format_horizon",
    "parse_horizon",
    "refuse_change_type",
    "require_change_columns",
    "value_columns",
]

DEFAULT_MAX_KEYS = 10_000_000
"""Keys that are kept unless more are asked for."""

Horizon = tuple[int, bool]
"""A number of units, and whether these are of time: microseconds."""


def format_horizon(horizon: Horizon | None) -> str:
    """A horizon as the user wrote it."""
    if horizon is None:
        return "None"
    units, is_duration = horizon
    return repr(format_duration(units)) if is_duration else repr(units)


def parse_horizon(
    horizon: Duration | int | None, time: str | None, *, parameter: str, where: str
) -> Horizon:
    """Units of a horizon, and whether they are of time, in microseconds.

    Raises
    ------
    SpecError
        ``HORIZON_WITHOUT_UNIT``, or what a duration is refused with.
    """
    if time is not None:
        require_name(time, parameter="time", where=where)
    if isinstance(horizon, str | dt.timedelta) and time is not None:
        return parse_duration(horizon, parameter=parameter, where=where, minimum=0), True
    if isinstance(horizon, int) and type(horizon) is int and horizon >= 0 and time is None:
        return horizon, False
    raise SpecError(
        "HORIZON_WITHOUT_UNIT",
        f"`{parameter}` does not say for how long a delete is remembered",
        where=where,
        got=f"{parameter}={horizon!r}, time={time!r}",
        expected="a duration and the column that it is measured on, or without `time` a whole "
        "number, 0 or more, of units of the sequence",
        fix=f'{parameter}="7 days", time="_changed_at"; or {parameter}=1_000_000',
    )


def value_columns(
    schema: pa.Schema, key: Sequence[str], sequence: Sequence[str]
) -> tuple[str, ...]:
    """Columns that are values of the row: neither its key, nor what is said of a change."""
    apart = {*key, *sequence, *CHANGE_COLUMNS, *COMMIT_COLUMNS}
    return tuple(name for name in schema.names if name not in apart)


def refuse_change_type(asked: Mapping[str, Sequence[str | None]], *, where: str) -> None:
    """Refuse parameters that name the change type: it says what happens to a row, and is none of it.

    Raises
    ------
    SpecError
        ``CHANGE_TYPE_ASKED``.
    """
    for role, names in asked.items():
        if CHANGE_TYPE in names:
            raise SpecError(
                "CHANGE_TYPE_ASKED",
                f"{CHANGE_TYPE!r} says what happens to a row, and is no column of it",
                where=where,
                got=f"{CHANGE_TYPE!r}, given as `{role}`",
                expected="a column of the row",
                fix="name another column, or leave it out: the change type is read in any case",
            )


def require_change_columns(
    schema: pa.Schema, sequence: Sequence[str], time: str | None, *, where: str
) -> None:
    """Refuse changes that cannot be put in order, or what is said of them in another type."""
    kinds = {each.name: each.type for each in schema}

    def refuse(role: str, name: str, expected: str) -> None:
        fix = "cast the column, or name another"
        refuse_type(schema, name, f"`{role}`", expected, fix, where=where)

    for name in sequence:
        if not is_comparable(kinds[name]):
            refuse("sequence", name, "a type whose values have an order")
    if time is None and not (len(sequence) == 1 and pa.types.is_integer(kinds[sequence[0]])):
        expected = "one whole number, in which the horizon is measured, or time=... beside it"
        refuse("sequence", sequence[0], expected)
    if time is not None and not pa.types.is_timestamp(kinds[time]):
        refuse("time", time, "timestamp")
    wanted = {
        CHANGE_TYPE: (pa.types.is_string, "string"),
        SNAPSHOT: (pa.types.is_boolean, "boolean"),
        TOMBSTONE: (pa.types.is_boolean, "boolean"),
        UNAVAILABLE: (lambda kind: kind == pa.list_(pa.string()), "array<string>"),
        REJECTED: (is_rejected_type, "struct with a string `reason`"),
    }
    for name, (is_right, expected) in wanted.items():
        if name in kinds and not is_right(kinds[name]):
            refuse(name, name, expected)
