"""What a user says about rows that are remembered per key, validated once."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NoReturn

import pyarrow as pa

from streamops.changes.core.spec import (
    REJECTED,
    Publish,
    Snapshots,
    TableSpec,
    WhenFull,
)
from streamops.changes.names import SAID
from streamops.kernel.changes import CHANGE_TYPE, REVISION
from streamops.kernel.errors import ColumnNotFound, SchemaError, SpecError
from streamops.kernel.ordering import is_comparable
from streamops.kernel.time import Duration, format_duration, parse_duration
from streamops.spark.columns import require_name
from streamops.spark.parameters import distinct_names, refuse_type, require_keys, require_most_keys
from streamops.spark.transform import choice

__all__ = ["MOST_KEYS", "LatestSettings", "parse_horizon", "shown_horizon"]

MOST_KEYS = 10_000_000
"""Keys that are kept unless more are asked for."""

_COMMIT = ("_commit_version", "_commit_timestamp")


def shown_horizon(horizon: tuple[int, bool] | None) -> str:
    """A horizon as the user wrote it."""
    if horizon is None:
        return "None"
    units, is_duration = horizon
    return repr(format_duration(units)) if is_duration else repr(units)


@dataclass(frozen=True, slots=True)
class LatestSettings:
    """Settings of rows that are remembered; a duration in microseconds.

    ``horizon`` has the number of units, and whether these are of time.
    """

    where: str = field(repr=False)
    key: tuple[str, ...]
    sequence: tuple[str, ...]
    horizon: tuple[int, bool] = field(metadata={"shown": shown_horizon})
    time: str | None
    publish: Publish
    snapshots: Snapshots
    max_keys: int
    when_full: WhenFull

    of_results: ClassVar[bool] = True

    @staticmethod
    def of(
        where: str,
        key: str | Sequence[str],
        *,
        sequence: str | Sequence[str],
        horizon: Duration | int,
        time: str | None,
        publish: Publish,
        snapshots: Snapshots,
        max_keys: int,
        when_full: WhenFull,
    ) -> LatestSettings:
        """Settings as the user wrote them, normalised, or an error."""
        keys = distinct_names(key, parameter="key", where=where)
        places = distinct_names(sequence, parameter="sequence", where=where)
        both = sorted(set(keys) & set(places))
        if both or time in keys:
            raise SpecError(
                "SAME_COLUMN",
                "a column of the key is no order of the changes of a key",
                where=where,
                got=f"key={keys!r}, sequence={places!r}, time={time!r}",
                expected="other columns",
                fix="name the position in the log as `sequence`",
            )
        choice(publish, Publish, parameter="publish", where=where)
        choice(snapshots, Snapshots, parameter="snapshots", where=where)
        choice(when_full, WhenFull, parameter="when_full", where=where)
        require_most_keys(max_keys, MOST_KEYS, where=where)
        units = parse_horizon(horizon, time, parameter="horizon", where=where)
        return LatestSettings(
            where, keys, places, units, time, publish, snapshots, max_keys, when_full
        )

    @property
    def reads(self) -> tuple[str, ...]:
        """Columns whose values are compared."""
        return (*self.key, *self.sequence)

    def bind(self, schema: pa.Schema, *, shards: int) -> TableSpec:
        """The spec over these columns."""
        kinds = {each.name: each.type for each in schema}
        roles = {"key": self.key, "sequence": self.sequence, "time": (self.time,)}
        for role, names in roles.items():
            for name in names:
                if name is not None and name not in kinds:
                    raise ColumnNotFound(name, schema.names, where=self.where, role=role)
        require_keys(schema, self.key, where=self.where)
        self._require_types(schema, kinds)
        apart = {*self.key, *self.sequence, *SAID, *_COMMIT}
        values = tuple(name for name in schema.names if name not in apart)
        self._refuse_taken([*self.key, *values])
        return TableSpec(
            self.where,
            self.key,
            self.sequence,
            self.time,
            self.horizon[0],
            values,
            schema,
            self.publish,
            self.snapshots,
            -(-self.max_keys // shards),
            self.when_full,
        )

    def _require_types(self, schema: pa.Schema, kinds: dict[str, pa.DataType]) -> None:
        for name in self.sequence:
            if not is_comparable(kinds[name]):
                self._refuse(schema, "sequence", name, "a type whose values have an order")
        single = kinds[self.sequence[0]] if len(self.sequence) == 1 else None
        if self.time is None and (single is None or not pa.types.is_integer(single)):
            expected = "one whole number, in which the horizon is measured, or time=... beside it"
            self._refuse(schema, "sequence", self.sequence[0], expected)
        if self.time is not None and not pa.types.is_timestamp(kinds[self.time]):
            self._refuse(schema, "time", self.time, "timestamp")
        wanted = {
            CHANGE_TYPE: (pa.types.is_string, "string"),
            "_snapshot": (pa.types.is_boolean, "boolean"),
            "_tombstone": (pa.types.is_boolean, "boolean"),
            "_unavailable": (lambda kind: kind == pa.list_(pa.string()), "array<string>"),
            REJECTED: (_tells_reason, "struct with a string `reason`"),
        }
        for name, (is_right, expected) in wanted.items():
            if name in kinds and not is_right(kinds[name]):
                self._refuse(schema, name, name, expected)

    def _refuse(self, schema: pa.Schema, role: str, name: str, expected: str) -> NoReturn:
        fix = "cast the column, or name another"
        refuse_type(schema, name, f"`{role}`", expected, fix, where=self.where)

    def _refuse_taken(self, names: Sequence[str]) -> None:
        taken = sorted(name for name in names if name.lower() in {REVISION, CHANGE_TYPE, REJECTED})
        if taken:
            raise SchemaError(
                "NAME_TAKEN",
                f"a column of the row has the name of one that is added: {', '.join(taken)}",
                where=self.where,
                got=f"columns {', '.join(names)}",
                expected=f"names unlike {REVISION}, {CHANGE_TYPE}, {REJECTED}",
                fix=f"df.withColumnRenamed({taken[0]!r}, ...) before this operator",
            )


def _tells_reason(kind: pa.DataType) -> bool:
    fields = {each.name: each.type for each in kind} if pa.types.is_struct(kind) else {}
    return bool(fields.get("reason") == pa.string())


def parse_horizon(
    horizon: Any, time: str | None, *, parameter: str, where: str
) -> tuple[int, bool]:
    """Units of a horizon, and whether they are of time, in microseconds.

    Raises
    ------
    SpecError
        ``HORIZON_WITHOUT_UNIT``, or what a duration is refused with.
    """
    if time is not None:
        require_name(time, parameter="time", where=where)
    is_duration = isinstance(horizon, str | dt.timedelta)
    if is_duration and time is not None:
        return parse_duration(horizon, parameter=parameter, where=where, minimum=0), True
    if type(horizon) is int and horizon >= 0 and time is None:
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
