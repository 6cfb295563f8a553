"""What a user says about rows that are remembered per key, validated once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import pyarrow as pa

from streamops.changelog.change_types import CHANGE_TYPE, REVISION
from streamops.changelog.parameters import (
    DEFAULT_MAX_KEYS,
    Horizon,
    format_horizon,
    parse_horizon,
    require_change_columns,
    value_columns,
)
from streamops.changelog.table import Snapshots, WhenFull
from streamops.changes.core.spec import Publish, TableSpec
from streamops.changes.names import REJECTED
from streamops.kernel.errors import ColumnNotFound, SchemaError, SpecError
from streamops.kernel.time import Duration
from streamops.spark.parameters import parse_distinct_names, require_keys, require_most_keys
from streamops.spark.transform import require_choice

__all__ = ["LatestSettings"]


@dataclass(frozen=True, slots=True)
class LatestSettings:
    """Settings of rows that are remembered; a duration in microseconds.

    ``horizon`` has the number of units, and whether these are of time.
    """

    where: str = field(repr=False)
    key: tuple[str, ...]
    sequence: tuple[str, ...]
    horizon: Horizon = field(metadata={"shown": format_horizon})
    time: str | None
    publish: Publish
    snapshots: Snapshots
    max_keys: int
    when_full: WhenFull

    of_results: ClassVar[bool] = True
    needs_preimages: ClassVar[bool] = False

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
        keys = parse_distinct_names(key, parameter="key", where=where)
        places = parse_distinct_names(sequence, parameter="sequence", where=where)
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
        require_choice(publish, Publish, parameter="publish", where=where)
        require_choice(snapshots, Snapshots, parameter="snapshots", where=where)
        require_choice(when_full, WhenFull, parameter="when_full", where=where)
        require_most_keys(max_keys, DEFAULT_MAX_KEYS, where=where)
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
        require_change_columns(schema, self.sequence, self.time, where=self.where)
        values = value_columns(schema, self.key, self.sequence)
        self._refuse_taken([*self.key, *values])
        return TableSpec(
            self.where,
            self.key,
            self.sequence,
            self.time,
            self.horizon[0],
            values,
            schema,
            self.snapshots,
            -(-self.max_keys // shards),
            self.when_full,
            self.publish,
        )

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
