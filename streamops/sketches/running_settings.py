"""What a user says about running values per key, validated once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import pyarrow as pa

from streamops.changelog.change_types import CHANGE_TYPE, REVISION
from streamops.kernel.contract import Aggregation
from streamops.kernel.errors import ColumnNotFound
from streamops.sketches.core.running import Changes, RunningSpec, WhenFull
from streamops.spark.parameters import (
    parse_names,
    refuse_taken_names,
    require_keys,
    require_most_keys,
)
from streamops.spark.transform import require_choice

__all__ = ["MOST_KEYS", "RunningSettings"]

MOST_KEYS = 1_000_000
"""Keys that are kept unless more are asked for."""

_ADDED = (REVISION, CHANGE_TYPE)


@dataclass(frozen=True, slots=True)
class RunningSettings:
    """Settings of running values per key."""

    where: str = field(repr=False)
    by: tuple[str, ...]
    agg: tuple[tuple[str, Aggregation], ...]
    changes: Changes
    max_keys: int
    when_full: WhenFull

    of_results: ClassVar[bool] = False
    needs_preimages: ClassVar[bool] = False

    @staticmethod
    def of(
        where: str,
        agg: Mapping[str, Aggregation],
        *,
        by: str | Sequence[str],
        changes: Changes,
        max_keys: int,
        when_full: WhenFull,
    ) -> RunningSettings:
        """Settings as the user wrote them, normalised, or an error."""
        require_choice(changes, Changes, parameter="changes", where=where)
        require_choice(when_full, WhenFull, parameter="when_full", where=where)
        names = parse_names(by, parameter="by", where=where)
        require_most_keys(max_keys, MOST_KEYS, where=where)
        given = {"by": list(names), "agg": list(agg)}
        fix = "name the result differently (into=...), or rename the key column"
        refuse_taken_names([*names, *agg], _ADDED, given, fix, where)
        return RunningSettings(where, names, tuple(agg.items()), changes, max_keys, when_full)

    @property
    def reads(self) -> tuple[str, ...]:
        """Columns whose values are compared or computed with."""
        return (*self.by, *(name for _, each in self.agg for name in each.columns))

    def bind(self, schema: pa.Schema, *, shards: int) -> RunningSpec:
        """The spec over these columns."""
        for name in self.by:
            if name not in schema.names:
                raise ColumnNotFound(name, schema.names, where=self.where, role="by")
        require_keys(schema, self.by, where=self.where)
        summaries = tuple(
            (name, repr(each), each.bind(schema, time="", where=self.where))
            for name, each in self.agg
        )
        read = {*self.by, *(name for *_, summary in summaries for name in summary.inputs)}
        return RunningSpec(
            self.where,
            self.by,
            summaries,
            pa.schema([field for field in schema if field.name in read]),
            self.changes,
            -(-self.max_keys // shards),
            self.when_full,
        )
