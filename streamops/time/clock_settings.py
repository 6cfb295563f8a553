"""What a user says about the clocks of devices, validated once, and the expressions for it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streamops.kernel.time import MIN_INSTANT, Duration, format_duration, parse_duration
from streamops.spark.columns import column
from streamops.spark.rowwise import instant_field, require_names
from streamops.spark.transform import require_choice
from streamops.time.instants import interval, micros

__all__ = ["QUALITIES", "ClockSettings", "Otherwise"]

Otherwise = Literal["received", "device", "null"]

CORRECTED, OFFSET, QUALITY = "corrected_time", "clock_offset", "clock_quality"
_PLAUSIBLE = "plausible"
_CORRECTED = "corrected"
QUALITIES = (
    _CORRECTED,
    _PLAUSIBLE,
    "no_event_time",
    "no_sent_time",
    "no_received_time",
    "sent_before_event",
    "waited_too_long",
    "offset_too_large",
)

# Names of intermediate columns: microseconds.
_EVENT, _SENT, _RECEIVED, _QUALITY = (
    f"__streamops_{name}" for name in ("event", "sent", "received", "quality")
)


def _words(count: int | None) -> str:
    return repr(None if count is None else format_duration(count))


@dataclass(frozen=True, slots=True)
class ClockSettings:
    """Settings of a correction of clocks; durations in microseconds."""

    where: str = field(repr=False)
    time: str
    sent: str
    received: str
    tolerance: int = field(metadata={"shown": _words})
    longest_wait: int | None = field(metadata={"shown": _words})
    largest_offset: int | None = field(metadata={"shown": _words})
    otherwise: Otherwise

    @staticmethod
    def of(
        where: str,
        *,
        time: str,
        sent: str,
        received: str,
        tolerance: Duration,
        longest_wait: Duration | None,
        largest_offset: Duration | None,
        otherwise: Otherwise,
    ) -> ClockSettings:
        """Settings as the user wrote them, normalised, or an error."""
        return ClockSettings(
            **ClockSettings.said(
                where,
                time=time,
                sent=sent,
                received=received,
                tolerance=tolerance,
                longest_wait=longest_wait,
                largest_offset=largest_offset,
                otherwise=otherwise,
            )
        )

    @staticmethod
    def said(
        where: str,
        *,
        time: str,
        sent: str,
        received: str,
        tolerance: Duration,
        longest_wait: Duration | None,
        largest_offset: Duration | None,
        otherwise: Otherwise,
    ) -> dict[str, Any]:
        """The fields, as the user wrote them, normalised; or an error."""
        require_names(where, time=time, sent=sent, received=received)
        require_choice(otherwise, Otherwise, parameter="otherwise", where=where)
        limits = {
            parameter: None
            if value is None
            else parse_duration(value, parameter=parameter, where=where, minimum=0)
            for parameter, value in (
                ("longest_wait", longest_wait),
                ("largest_offset", largest_offset),
            )
        }
        forgiven = parse_duration(tolerance, parameter="tolerance", where=where, minimum=0)
        return {
            "where": where,
            "time": time,
            "sent": sent,
            "received": received,
            "tolerance": forgiven,
            **limits,
            "otherwise": otherwise,
        }

    @property
    def adds(self) -> tuple[str, ...]:
        """The corrected time, the offset of the clock, and what to think of it."""
        return (CORRECTED, OFFSET, QUALITY)

    @property
    def marked(self) -> str:
        """The corrected time: what follows reads it."""
        return CORRECTED

    def check(self, frame: DataFrame) -> None:
        """Refuse a frame without the three timestamps."""
        for role in ("time", "sent", "received"):
            instant_field(frame, getattr(self, role), role=role, where=self.where)

    @property
    def qualities(self) -> tuple[str, ...]:
        """What may be thought of a corrected time."""
        return QUALITIES

    def apply(self, frame: DataFrame) -> DataFrame:
        """The frame with its corrected time."""
        own = F.col(_RECEIVED) - F.col(_SENT)
        return self.corrected(frame, frame.schema.names, own, F.lit(_CORRECTED))

    def corrected(
        self, frame: DataFrame, names: Sequence[str], offset: Column, good: Column
    ) -> DataFrame:
        """These columns of the frame, and those of the result.

        Parameters
        ----------
        offset : Column
            Of the device's clock, in microseconds.
        good : Column
            The quality of what it corrects.
        """
        event = F.col(_EVENT)
        three = {_EVENT: self.time, _SENT: self.sent, _RECEIVED: self.received}
        judged = frame.select(
            "*", *(micros(column(name)).alias(alias) for alias, name in three.items())
        )
        judged = judged.select("*", self._quality(offset, good).alias(_QUALITY))
        corrected = (
            F.when(F.col(_QUALITY) == _PLAUSIBLE, event)
            .when(F.col(_QUALITY) == good, event + offset)
            .otherwise(self._otherwise())
        )
        return judged.select(
            *(column(name) for name in names),
            F.timestamp_micros(corrected).alias(CORRECTED),
            interval(offset).alias(OFFSET),
            F.col(_QUALITY).alias(QUALITY),
        )

    def counts(self) -> Mapping[str, Column]:
        """Rows, and how many are of each quality."""
        return {
            "rows": F.count(F.lit(1)),
            **{word: F.count_if(column(QUALITY) == word) for word in self.qualities},
        }

    def _quality(self, offset: Column, good: Column) -> Column:
        event, sent, received = map(F.col, (_EVENT, _SENT, _RECEIVED))
        wait = sent - event
        # Longer than that, and the event would have happened before the year 1.
        too_long = event + offset < F.lit(MIN_INSTANT)
        if self.longest_wait is not None:
            too_long |= wait > F.lit(self.longest_wait)
        quality = (
            F.when(event.isNull(), "no_event_time")
            .when(received.isNull(), "no_received_time")
            .when(sent.isNull(), "no_sent_time")
            .when(wait < F.lit(0), "sent_before_event")
            .when(too_long, "waited_too_long")
        )
        if self.largest_offset is not None:
            too_large = F.abs(received - sent) > F.lit(self.largest_offset)
            quality = quality.when(too_large, "offset_too_large")
        near = offset.between(F.lit(0), F.lit(self.tolerance))
        return quality.when(near, _PLAUSIBLE).otherwise(good)

    def _otherwise(self) -> Column:
        """What stands for an event time that the three timestamps do not tell."""
        match self.otherwise:
            case "received":
                return F.col(_RECEIVED)
            case "device":
                # Nothing was received before it happened. `least` passes over nulls, so a row
                # without an event time is held apart.
                event = F.col(_EVENT)
                return F.when(event.isNotNull(), F.least(event, F.col(_RECEIVED)))
            case _:
                return F.lit(None).cast("bigint")
