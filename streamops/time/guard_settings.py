"""What a user says about a guard, validated once, and the expressions it comes down to."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StringType

from streamops.kernel.errors import StreamopsError, WatermarkError
from streamops.kernel.time import (
    MAX_INSTANT,
    MIN_INSTANT,
    Duration,
    format_duration,
    format_instant,
    parse_duration,
    parse_instant,
)
from streamops.spark.checks import WATERMARK
from streamops.spark.columns import column
from streamops.spark.rowwise import instant_field, require_names
from streamops.spark.transform import require_choice
from streamops.time.instants import FROM_YEAR_1, as_instant, micros, now

__all__ = ["GUARDED", "QUARANTINED", "REASONS", "GuardSettings", "OutOfBounds", "Unusable"]

OutOfBounds = Literal["quarantine", "clamp", "fail"]
Unusable = Literal["quarantine", "fail"]

GUARDED = "guarded"
QUARANTINED = "quarantined"
_CLAMPED = "clamped"
_UNUSABLE = ("null_time", "unparsable_time")
REASONS = (*_UNUSABLE, "future", "past")

# Names of intermediate columns.
_INSTANT, _UPPER, _LOWER, _REASON = (
    f"__streamops_{name}" for name in ("instant", "upper", "lower", "reason")
)
_MARK = "\0"  # where a message has a value of the row


def _bound_in_words(before: int | dt.datetime | None) -> str:
    match before:
        case dt.datetime():
            return format_instant(parse_instant(before, parameter="before", where=""))
        case int():
            return format_duration(before)
        case _:
            return FROM_YEAR_1


@dataclass(frozen=True, slots=True)
class GuardSettings:
    """Settings of a guard; durations in microseconds."""

    where: str = field(repr=False)
    time: str
    arrival: str | None
    ahead: int = field(metadata={"shown": lambda ahead: repr(format_duration(ahead))})
    before: int | dt.datetime | None = field(
        metadata={"shown": lambda bound: repr(None if bound is None else _bound_in_words(bound))}
    )
    future: OutOfBounds
    past: OutOfBounds
    unusable: Unusable

    @staticmethod
    def of(
        where: str,
        *,
        time: str,
        arrival: str | None,
        ahead: Duration,
        before: Duration | dt.datetime | None,
        future: OutOfBounds,
        past: OutOfBounds,
        unusable: Unusable,
    ) -> GuardSettings:
        """Settings as the user wrote them, normalised, or an error."""
        if arrival is None:
            require_names(where, time=time)
        else:
            require_names(where, time=time, arrival=arrival)
        require_choice(future, OutOfBounds, parameter="future", where=where)
        require_choice(past, OutOfBounds, parameter="past", where=where)
        require_choice(unusable, Unusable, parameter="unusable", where=where)
        most = parse_duration(ahead, parameter="ahead", where=where, minimum=0)
        least: int | dt.datetime | None = None
        if isinstance(before, dt.datetime):
            parse_instant(before, parameter="before", where=where)
            least = before
        elif before is not None:
            least = parse_duration(before, parameter="before", where=where, minimum=0)
        return GuardSettings(where, time, arrival, most, least, future, past, unusable)

    @property
    def adds(self) -> tuple[str, ...]:
        """The struct that says what was done to a row."""
        return (GUARDED,)

    @property
    def marked(self) -> str:
        """The event time: what follows reads it."""
        return self.time

    def check(self, frame: DataFrame) -> None:
        """Refuse a frame that cannot be guarded, or no longer."""
        found = instant_field(
            frame,
            self.time,
            role="time",
            where=self.where,
            accepts=_is_text,
            expected="timestamp, or string",
        )
        if self.arrival is not None:
            instant_field(frame, self.arrival, role="arrival", where=self.where)
        if frame.isStreaming and WATERMARK in (found.metadata or {}):
            raise WatermarkError(
                "GUARD_BEHIND_WATERMARK",
                "the watermark is there already, so a row from the future has moved it already",
                where=self.where,
                got=f"a frame with a watermark on {self.time!r}",
                expected="a frame without a watermark",
                fix=f"guard first, withWatermark({self.time!r}, ...) or delay=... after it",
            )

    def apply(self, frame: DataFrame) -> DataFrame:
        """The frame with a guarded event time, and what was done to it."""
        fields = {each.name: each for each in frame.schema.fields}
        instant = as_instant(column(self.time), fields[self.time].dataType)
        upper, lower = self._bounds()
        judged = frame.select(
            "*", instant.alias(_INSTANT), upper.alias(_UPPER), lower.alias(_LOWER)
        ).select("*", self._reason().alias(_REASON))
        failing = self._failing()
        if failing is not None:
            judged = judged.where(failing)
        reason = F.col(_REASON)
        bound = F.when(reason == "future", F.col(_UPPER)).when(reason == "past", F.col(_LOWER))
        limit = F.timestamp_micros(bound)
        # A time that was unusable has no bound, and is never clamped. Every field may be null: a
        # struct of others that is null itself is one that PySpark cannot hand over as Arrow.
        outcome = F.when(reason.isin(*self._clamps()), _CLAMPED).when(
            reason.isNotNull(), QUARANTINED
        )
        told = F.struct(
            reason.alias("reason"),
            outcome.alias("outcome"),
            column(self.time).alias("original"),
            limit.alias("bound"),
        )
        time = F.when(reason.isNull(), F.col(_INSTANT)).when(outcome == _CLAMPED, limit)
        metadata = {self.time: fields[self.time].metadata or {}}
        return judged.select(
            *(
                time.alias(name, metadata=metadata[name]) if name == self.time else column(name)
                for name in fields
            ),
            F.when(reason.isNotNull(), told).alias(GUARDED),
        )

    def counts(self) -> Mapping[str, Column]:
        """Rows, and those that were not good: by what was done, and by reason."""
        outcome, reason = (column(GUARDED)[part] for part in ("outcome", "reason"))
        return {
            "rows": F.count(F.lit(1)),
            **{word: F.count_if(outcome == word) for word in (_CLAMPED, QUARANTINED)},
            **{word: F.count_if(reason == word) for word in REASONS},
        }

    def _bounds(self) -> tuple[Column, Column]:
        """Greatest and least good event time, in microseconds; they never cross."""
        clock = now()
        arrival = clock
        if self.arrival is not None:
            # What arrived after it was processed did not; and a row that does not say when it
            # arrived, arrived now. `least` passes over nulls.
            arrival = F.least(micros(column(self.arrival)), clock)
        upper = F.least(arrival + F.lit(self.ahead), F.lit(MAX_INSTANT))
        lower = F.lit(MIN_INSTANT)
        if isinstance(self.before, dt.datetime):
            lower = F.lit(parse_instant(self.before, parameter="before", where=self.where))
        elif self.before is not None:
            lower = F.greatest(arrival - F.lit(self.before), F.lit(MIN_INSTANT))
        # The upper bound goes first: nothing later than arrival + ahead leaves a guard.
        return upper, F.least(lower, upper)

    def _reason(self) -> Column:
        instant = F.unix_micros(F.col(_INSTANT))
        return (
            F.when(column(self.time).isNull(), "null_time")
            .when(instant.isNull(), "unparsable_time")
            .when(instant > F.col(_UPPER), "future")
            .when(instant < F.col(_LOWER), "past")
        )

    def _clamps(self) -> list[str]:
        return [word for word in ("future", "past") if getattr(self, word) == "clamp"]

    def _failing(self) -> Column | None:
        """True, or an error: as a filter, because a column that nobody reads is not computed."""
        behind = isinstance(self.before, int)
        limits = {
            "future": f"at most {format_duration(self.ahead)} ahead of its arrival",
            "past": f"at most {_bound_in_words(self.before)} behind its arrival"
            if behind
            else f"{_bound_in_words(self.before)} or later",
            "null_time": "a time",
            "unparsable_time": "text that Spark casts to a timestamp",
        }
        policies = {"future": self.future, "past": self.past}
        passes: Column | None = None
        for reason, limit in limits.items():
            if policies.get(reason, self.unusable) != "fail":
                continue
            raised = F.raise_error(self._message(reason, limit)).cast("boolean")
            when = F.col(_REASON) == reason
            passes = F.when(when, raised) if passes is None else passes.when(when, raised)
        return None if passes is None else passes.otherwise(True)

    def _message(self, reason: str, limit: str) -> Column:
        is_bound = reason not in _UNUSABLE
        parameter = reason if is_bound else "unusable"
        error = StreamopsError(
            "GUARD_FAILED",
            f"a row has an event time that is not accepted: {reason}",
            where=self.where,
            got=f"{self.time!r} is {_MARK}" + (f", and the bound {_MARK}" if is_bound else ""),
            expected=limit,
            fix=f'{parameter}="quarantine" keeps the row, marked, and the stream going',
        )
        zone = F.concat(F.lit(" (time zone "), F.current_timezone(), F.lit(")"))
        values = [F.coalesce(column(self.time).cast("string"), F.lit("null"))]
        if is_bound:
            bound = F.timestamp_micros(F.col(_UPPER if reason == "future" else _LOWER))
            values += [F.concat(bound.cast("string"), zone)]
        first, *rest = map(F.lit, str(error).split(_MARK))
        pairs = zip(values, rest, strict=True)
        return F.concat(first, *(part for pair in pairs for part in pair))


def _is_text(kind: DataType) -> bool:
    return isinstance(kind, StringType)
