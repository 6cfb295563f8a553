"""Parameters shared by the changelog operators: key, sequence, horizon."""

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
    Microseconds,
    is_rejected_type,
)
from streamops.kernel.errors import SpecError
from streamops.kernel.ordering import is_comparable
from streamops.kernel.parameters import refuse_type, require_name
from streamops.kernel.time import Duration, parse_duration

__all__ = [
    "DEFAULT_MAX_KEYS",
    "parse_horizon",
    "refuse_change_type",
    "require_change_columns",
    "value_columns",
]

DEFAULT_MAX_KEYS = 10_000_000
"""Keys that an operator stores unless the user sets another limit."""


def parse_horizon(
    horizon: Duration | int | None, time: str | None, *, parameter: str, where: str
) -> int:
    """A horizon as a number of units of the sequence; with `time` as ``Microseconds``.

    Raises
    ------
    SpecError
        ``HORIZON_WITHOUT_UNIT``, or an error of ``parse_duration``.
    """
    if time is not None:
        require_name(time, parameter="time", where=where)
    if isinstance(horizon, str | dt.timedelta) and time is not None:
        return Microseconds(parse_duration(horizon, parameter=parameter, where=where, minimum=0))
    if isinstance(horizon, int) and type(horizon) is int and horizon >= 0 and time is None:
        return horizon
    raise SpecError(
        "HORIZON_WITHOUT_UNIT",
        f"`{parameter}` has no unit",
        where=where,
        got=f"{parameter}={horizon!r}, time={time!r}",
        expected="a duration and the column that it is measured on; or without `time` an integer, 0 "
        "or more, in units of the sequence",
        fix=f'{parameter}="7 days", time="_changed_at"; or {parameter}=1_000_000',
    )


def value_columns(
    schema: pa.Schema, key: Sequence[str], sequence: Sequence[str]
) -> tuple[str, ...]:
    """The value columns of a row: not its key, its sequence, or a description of the change."""
    others = {*key, *sequence, *CHANGE_COLUMNS, *COMMIT_COLUMNS}
    return tuple(name for name in schema.names if name not in others)


def refuse_change_type(columns: Mapping[str, Sequence[str | None]], *, where: str) -> None:
    """Refuse parameters that name the change type, which is not a column of the row.

    Raises
    ------
    SpecError
        ``CHANGE_TYPE_ASKED``.
    """
    for role, names in columns.items():
        if CHANGE_TYPE in names:
            raise SpecError(
                "CHANGE_TYPE_ASKED",
                f"{CHANGE_TYPE!r} is not a column of the row",
                where=where,
                got=f"{CHANGE_TYPE!r}, given as `{role}`",
                expected="a column of the row",
                fix="name another column, or none: the operator reads the change type in any case",
            )


def require_change_columns(
    schema: pa.Schema, sequence: Sequence[str], time: str | None, *, where: str
) -> None:
    """Refuse a sequence that has no order, and columns of a change that have another type."""
    dtypes = {field.name: field.type for field in schema}

    def refuse(role: str, name: str, expected: str) -> None:
        fix = "cast the column, or name another"
        refuse_type(schema, name, f"`{role}`", expected, fix, where=where)

    for name in sequence:
        if not is_comparable(dtypes[name]):
            refuse("sequence", name, "a type with an order")
    if time is None and not (len(sequence) == 1 and pa.types.is_integer(dtypes[sequence[0]])):
        expected = "one integer, in which the horizon is measured; or time=... beside it"
        refuse("sequence", sequence[0], expected)
    if time is not None and not pa.types.is_timestamp(dtypes[time]):
        refuse("time", time, "timestamp")
    wanted = {
        CHANGE_TYPE: (pa.types.is_string, "string"),
        SNAPSHOT: (pa.types.is_boolean, "boolean"),
        TOMBSTONE: (pa.types.is_boolean, "boolean"),
        UNAVAILABLE: (lambda dtype: dtype == pa.list_(pa.string()), "array<string>"),
        REJECTED: (is_rejected_type, "struct with a string `reason`"),
    }
    for name, (is_expected, expected) in wanted.items():
        if name in dtypes and not is_expected(dtypes[name]):
            refuse(name, name, expected)
