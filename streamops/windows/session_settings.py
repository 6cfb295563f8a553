"""What a user says about sessions, validated once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from streamops.kernel.errors import SpecError
from streamops.kernel.time import Duration, parse_duration
from streamops.spark.columns import require_name
from streamops.spark.parameters import refuse_type, show_duration
from streamops.spark.transform import require_choice
from streamops.windows.core.spec import SessionSpec, WhenLonger
from streamops.windows.settings import DEFINES, WindowSettings

__all__ = ["SessionWindows"]


@dataclass(frozen=True, slots=True)
class SessionWindows(WindowSettings):
    """Settings of session windows; durations in microseconds."""

    gap: int = field(metadata=DEFINES)
    gap_column: str | None = field(metadata={"first": True})
    until: str | None = field(metadata={"first": True})
    max_length: int | None = field(metadata=DEFINES)
    when_longer: WhenLonger = field(metadata={"first": True})

    @staticmethod
    def of(
        where: str,
        gap: Duration,
        *,
        gap_column: str | None,
        until: str | None,
        max_length: Duration | None,
        when_longer: WhenLonger,
        **said: Any,
    ) -> SessionWindows:
        """Settings as the user wrote them, normalised, or an error."""
        _refuse_update(where, said["stragglers"])
        common = WindowSettings.said(where, **said)
        silence = parse_duration(gap, parameter="gap", where=where, minimum=1)
        for parameter, name in (("gap_column", gap_column), ("until", until)):
            if name is not None:
                require_name(name, parameter=parameter, where=where)
        require_choice(when_longer, WhenLonger, parameter="when_longer", where=where)
        longest = None
        if max_length is not None:
            longest = parse_duration(max_length, parameter="max_length", where=where, minimum=1)
        settings = SessionWindows(
            **common,
            gap=silence,
            gap_column=gap_column,
            until=until,
            max_length=longest,
            when_longer=when_longer,
        )
        settings._refuse_lengths()
        settings.refuse_contradictions()
        return settings

    @property
    def others(self) -> dict[str, str | None]:
        """Further columns that are read, by the parameter that names them."""
        return {"gap_column": self.gap_column, "until": self.until}

    @property
    def lag(self) -> int:
        """How far Spark's watermark must lie behind the operator's own: see ``SessionSpec.lag``."""
        return self.allowed_lateness + (self.gap if self.until is not None else 0)

    def bind(self, schema: pa.Schema, *, carried: int | None) -> SessionSpec:
        """The spec over these columns."""
        common = self.bound(schema, carried)
        own = self.gap_column
        if own is not None and schema.field(own).type != pa.duration("us"):
            refuse_type(
                schema,
                own,
                "the gap of a row",
                "interval day to second",
                f"F.make_dt_interval(secs=F.col({own!r})), say, where it is a number of seconds",
                where=self.where,
            )
        if self.until is not None and not pa.types.is_boolean(schema.field(self.until).type):
            refuse_type(
                schema,
                self.until,
                "the sign of a closing row",
                "boolean",
                "a column with the condition: df.withColumn('ends', F.col('event') == 'logout')",
                where=self.where,
            )
        return SessionSpec(
            **common,
            gap=self.gap,
            gap_column=self.gap_column,
            until=self.until,
            max_length=self.max_length,
            when_longer=self.when_longer,
        )

    def _refuse_lengths(self) -> None:
        if self.max_length is None and self.when_longer != "split":
            raise SpecError(
                "WHEN_LONGER_WITHOUT_LENGTH",
                "`when_longer` says what happens beyond the greatest length",
                where=self.where,
                got=f"when_longer={self.when_longer!r} without max_length",
                expected="max_length beside it",
                fix='max_length="12 hours", say, or leave when_longer out',
            )
        if self.max_length is not None and self.max_length < self.gap:
            raise SpecError(
                "MAX_LENGTH_BELOW_GAP",
                "`max_length` is shorter than `gap`: every session would be cut",
                where=self.where,
                got=f"max_length={show_duration(self.max_length)}, gap={show_duration(self.gap)}",
                expected="gap <= max_length: a session of one event is as long as its gap",
                fix="lengthen max_length, or shorten gap",
            )


def _refuse_update(where: str, stragglers: object) -> None:
    if stragglers == "update":
        raise SpecError(
            "UPDATE_CANNOT_MERGE",
            "a straggler can merge sessions, and an update cannot take one back",
            where=where,
            got="stragglers='update'",
            expected="one of 'drop', 'route', 'retract'",
            fix="stragglers='retract': the sessions merged are deleted, by their own start and end",
        )
