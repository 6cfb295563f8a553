"""What a user says about changes that are applied to a table, validated once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal

import pyarrow as pa

from streamops.changes.core.spec import VALID_FROM, VALID_TO, HistorySpec, TableSpec
from streamops.changes.latest_settings import LatestSettings
from streamops.kernel.errors import ColumnNotFound, SchemaError, SpecError
from streamops.spark.parameters import parse_distinct_names
from streamops.spark.transform import require_choice

__all__ = ["ApplySettings", "History"]

History = Literal["overwrite", "intervals"]


@dataclass(frozen=True, slots=True)
class ApplySettings(LatestSettings):
    """Settings of changes that are applied to a table."""

    history: History
    track: tuple[str, ...] | None

    @staticmethod
    def applied(
        where: str,
        key: str | Sequence[str],
        *,
        history: History,
        track: str | Sequence[str] | None,
        **said: Any,
    ) -> ApplySettings:
        """Settings as the user wrote them, normalised, or an error."""
        require_choice(history, History, parameter="history", where=where)
        if track is not None and history == "overwrite":
            raise SpecError(
                "TRACK_WITHOUT_HISTORY",
                "`track` says where an interval ends, and there are none",
                where=where,
                got=f"track={track!r}, history={history!r}",
                expected="history='intervals' beside it",
                fix="leave track out",
            )
        tracked = (
            None if track is None else parse_distinct_names(track, parameter="track", where=where)
        )
        latest = LatestSettings.of(where, key, publish="last", **said)
        given = {each.name: getattr(latest, each.name) for each in fields(latest)}
        return ApplySettings(**given, history=history, track=tracked)

    def bind(self, schema: pa.Schema, *, shards: int) -> TableSpec:
        """The spec over these columns."""
        spec = LatestSettings.bind(self, schema, shards=shards)
        if self.history == "overwrite":
            return spec
        for name in self.track or ():
            if name not in spec.values:
                raise ColumnNotFound(name, spec.values, where=self.where, role="track")
        both = {VALID_FROM, VALID_TO}
        taken = sorted(name for name in (*spec.by, *spec.values) if name.lower() in both)
        if taken:
            raise SchemaError(
                "NAME_TAKEN",
                f"a column of the row has the name of one that is added: {', '.join(taken)}",
                where=self.where,
                got=f"columns {', '.join(schema.names)}",
                expected=f"names unlike {VALID_FROM}, {VALID_TO}",
                fix=f"df.withColumnRenamed({taken[0]!r}, ...) before this operator",
            )
        given = {each.name: getattr(spec, each.name) for each in fields(spec)}
        return HistorySpec(**given, track=spec.values if self.track is None else self.track)
