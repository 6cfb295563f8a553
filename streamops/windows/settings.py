"""What a user says about windows of any kind, validated once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from streamops.changelog.change_types import CHANGE_TYPE, REVISION
from streamops.kernel.contract import Aggregation
from streamops.kernel.errors import ColumnNotFound, SpecError
from streamops.kernel.time import Duration
from streamops.spark.columns import require_name
from streamops.spark.parameters import (
    parse_delay,
    parse_names,
    refuse_taken_names,
    require_aggregates,
    require_instant,
    require_keys,
    show_duration,
)
from streamops.spark.transform import require_choice
from streamops.windows.core.spec import Early, Stragglers, TooLate

__all__ = ["DEFINES", "IN_WORDS", "RESERVED", "WindowSettings"]

_WINDOW = ("window_start", "window_end")
_CORRECTING = ("update", "retract")
_EXTRA = (REVISION, "timing", CHANGE_TYPE, "late")
RESERVED = (*_WINDOW, *_EXTRA)
"""Names of columns that results of windows have."""


IN_WORDS = {"shown": show_duration}
DEFINES = {"shown": show_duration, "first": True}
"""Metadata of what says which windows they are: shown before all else."""


@dataclass(frozen=True, slots=True)
class WindowSettings:
    """What all windows have in common; durations in microseconds."""

    where: str = field(repr=False)
    time: str
    by: tuple[str, ...]
    agg: tuple[tuple[str, Aggregation], ...]
    delay: int | None = field(metadata=IN_WORDS)
    allowed_lateness: int = field(metadata=IN_WORDS)
    stragglers: Stragglers
    too_late: TooLate
    early: Early

    @staticmethod
    def said(
        where: str,
        *,
        time: str,
        by: str | Sequence[str],
        agg: Mapping[str, Aggregation],
        delay: Duration | None,
        allowed_lateness: Duration,
        stragglers: Stragglers,
        too_late: TooLate,
        early: Early = "never",
    ) -> dict[str, Any]:
        """The fields, as the user wrote them, normalised; or an error."""
        require_choice(stragglers, Stragglers, parameter="stragglers", where=where)
        require_choice(too_late, TooLate, parameter="too_late", where=where)
        require_choice(early, Early, parameter="early", where=where)
        require_name(time, parameter="time", where=where)
        keys = parse_names(by, parameter="by", where=where)
        lateness = parse_delay(allowed_lateness, parameter="allowed_lateness", where=where)
        require_aggregates(agg, where=where)
        waits = None
        if delay is not None:
            waits = parse_delay(delay, parameter="delay", where=where)
        return {
            "where": where,
            "time": time,
            "by": keys,
            "agg": tuple(agg.items()),
            "delay": waits,
            "allowed_lateness": lateness,
            "stragglers": stragglers,
            "too_late": too_late,
            "early": early,
        }

    @property
    def reads(self) -> tuple[str, ...]:
        """Columns whose values are compared or computed with."""
        own = (name for name in self.others.values() if name is not None)
        aggregated = (name for _, aggregation in self.agg for name in aggregation.columns)
        return (*self.by, *own, *aggregated)

    @property
    def lag(self) -> int:
        """How far Spark's watermark must lie behind the operator's own."""
        return self.allowed_lateness

    @property
    def of_results(self) -> bool:
        """Whether it reads results of windows, instead of events."""
        return False

    @property
    def others(self) -> Mapping[str, str | None]:
        """Further columns that are read, by the parameter that names them."""
        return {}

    @property
    def place(self) -> Mapping[str, str]:
        """Columns that say what a result is about and keep the name that the user gave them, by
        their parameter; without any it is a window.
        """
        return {}

    def bound(self, schema: pa.Schema, carried: int | None) -> dict[str, Any]:
        """The common fields of a spec over these columns."""
        named = {role: (name,) for role, name in self.others.items() if name is not None}
        for role, names in {"time": (self.time,), "by": self.by, **named}.items():
            for name in names:
                if name not in schema.names:
                    raise ColumnNotFound(name, schema.names, where=self.where, role=role)
        for _, aggregation in self.agg:  # also one that does not look for itself
            for name in aggregation.columns:
                if name not in schema.names:
                    role = f"agg: {aggregation!r}"
                    raise ColumnNotFound(name, schema.names, where=self.where, role=role)
        require_instant(schema, self.time, where=self.where)
        require_keys(schema, self.by, where=self.where)
        summaries = tuple(
            (name, repr(aggregation), aggregation.bind(schema, time=self.time, where=self.where))
            for name, aggregation in self.agg
        )
        read = {self.time, *self.by, *(name for *_, s in summaries for name in s.inputs)}
        read |= {name for names in named.values() for name in names}
        routes = "route" in (self.stragglers, self.too_late)
        return {
            "by": self.by,
            "time": self.time,
            "aggregates": summaries,
            "input": schema if routes else pa.schema([f for f in schema if f.name in read]),
            "delay": None if carried is not None else self.delay,
            "allowed_lateness": self.allowed_lateness,
            "stragglers": self.stragglers,
            "too_late": self.too_late,
            "early": self.early,
        }

    def refuse_contradictions(self) -> None:
        """Refuse what cannot be meant together."""
        self.refuse_too_late_alone()
        if self.stragglers in _CORRECTING and not self.allowed_lateness and self.early == "never":
            raise SpecError(
                "NOTHING_TO_CORRECT",
                "no straggler would be accepted, so there is nothing to correct",
                where=self.where,
                got=f"stragglers={self.stragglers!r} with allowed_lateness='0 seconds'",
                expected="how long after its window was on time a row still corrects it",
                fix='allowed_lateness="1 hour", say; or stragglers="drop"',
            )
        if not self.agg:
            raise SpecError(
                "NO_AGGREGATE",
                "nothing to compute",
                where=self.where,
                got="agg={}",
                expected="at least one named aggregate",
                fix='agg={"events": aggregates.count()}',
            )
        self._refuse_names()

    def refuse_too_late_alone(self) -> None:
        """Refuse a word for what comes beyond corrections where there are none."""
        if self.too_late == "route" and self.stragglers not in _CORRECTING:
            raise SpecError(
                "TOO_LATE_WITHOUT_CORRECTIONS",
                "`too_late` says what happens beyond the lateness of corrections",
                where=self.where,
                got=f"too_late='route' with stragglers={self.stragglers!r}",
                expected="stragglers='update' or 'retract' beside it",
                fix="stragglers='route' delivers every late row",
            )

    def _refuse_names(self) -> None:
        given = {"by": list(self.by), **self.place, "agg": [name for name, _ in self.agg]}
        names = [*self.by, *self.place.values(), *(name for name, _ in self.agg)]
        reserved = _EXTRA if self.place else RESERVED
        fix = "name the aggregate, or rename the key column, differently"
        refuse_taken_names(names, reserved, given, fix, self.where)
