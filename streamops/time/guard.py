"""Validation of event times against bounds, and the split of valid and routed rows."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from streamops.changelog.chains import WATERMARK
from streamops.kernel.parameters import require_distinct_columns, show_duration
from streamops.kernel.time import (
    MAX_INSTANT,
    MIN_INSTANT,
    Duration,
    format_duration,
    format_instant,
    parse_duration,
    parse_instant,
)
from streamops.spark.columns import column, instant_field, micros, now
from streamops.spark.json_columns import read_instant
from streamops.spark.operator import Operator
from streamops.time import conditions

OutOfBounds = Literal["route", "clamp", "fail"]
Unusable = Literal["route", "fail"]

GUARDED = "guarded"
_ROUTED = "routed"
_CLAMPED = "clamped"
_UNUSABLE = ("null_time", "unparsable_time")
REASONS = (*_UNUSABLE, "future", "past")

# Names of intermediate columns.
_INSTANT, _UPPER, _LOWER, _REASON = (
    f"__streamops_{name}" for name in ("instant", "upper", "lower", "reason")
)
_MARK = "\0"  # placeholder for values of the row in a message
_YEAR_1 = "0001-01-01 00:00:00Z"


def guard(
    time: str,
    *,
    arrival: str | None = None,
    ahead: Duration = "5 minutes",
    before: Duration | dt.datetime | None = None,
    future: OutOfBounds = "route",
    past: OutOfBounds = "route",
    unusable: Unusable = "route",
) -> Operator:
    """Validate event times before a watermark is defined on them.

    An event time is valid if it lies in ``[lower, arrival + ahead]``, both ends included, where
    `lower` is the bound given by `before`. Rows with any other event time are clamped,
    routed, or fail the query. Without this check, one row of the year 2999 would advance the
    watermark permanently.

    Input        `time`: timestamp or string (event time) · `arrival`: timestamp · other columns of
                 any type
    Output       the same columns, `time`: timestamp, null in a routed row · guarded:
                 struct<reason, outcome, original, bound>, null in a valid row
    Output mode  any
    Watermark    none on the input; define it on the output, by ``withWatermark`` or an operator's
                 `delay`. It never exceeds the current time by more than `ahead`
    State        none
    Order        rows may arrive in any order; each row is checked independently
    Batch        same rows out if `arrival` is given; otherwise rows are checked against the start
                 of the batch

    Parameters
    ----------
    time : str
        Event-time column. A string is a timestamp in ISO 8601, such as "2026-01-01T12:00:00.5+01:00".
        A string without a zone is in the time zone of the session.
    arrival : str, optional
        Column with the time at which the row arrived, by a trusted clock, such as the time at
        which the server or the log received it. The start of the micro-batch is used if `arrival`
        is omitted, null, outside the years 1 to 9999, or later than that start.
    ahead : duration
        How far an event time may lie ahead of its arrival, >= 0: the tolerated clock error.
    before : duration or aware datetime, optional
        Lower bound of event times: an instant, or a duration relative to the arrival. Default:
        the year 1.
    future, past : "route", "clamp" or "fail"
        Handling of rows beyond the upper or the lower bound. "route": the event time becomes
        null, so that operators count the row as rejected. "clamp": the event time becomes the
        bound. "fail": the query fails.
    unusable : "route" or "fail"
        Handling of rows whose event time is null, or a string that is not exactly a timestamp.

    Returns
    -------
    Operator
        For use with ``DataFrame.transform``.

    Raises
    ------
    SpecError
        A parameter has the wrong type or is out of range.
    SchemaError, ColumnNotFound
        A column does not exist or has the wrong type, or the frame has a column ``guarded``.
    WatermarkError
        The frame has a watermark on `time` already.

    Examples
    --------
    >>> from streamops import time
    >>> time.guard("ts", ahead="1 minute", before="30 days", past="clamp")
    time.guard(time='ts', ahead='1 minute', before='30 days', past='clamp')
    >>> views.transform(time.guard("ts"))
    DataFrame[page: string, ts: timestamp, guarded: struct<...>]

    Notes
    -----
    ``guarded.reason`` is "null_time", "unparsable_time", "future" or "past"; ``outcome`` is
    "routed" or "clamped"; ``original`` is the original value, ``bound`` the bound that it
    exceeded.

    See Also
    --------
    streamops.split_side_output : split valid and invalid rows.
    correct_clock : event times of devices whose clocks are wrong.

    References
    ----------
    Kleppmann: "Designing Data-Intensive Applications", chapter 11, "Whose clock are you using,
    anyway?".
    """
    spec = GuardSpec(
        time=time,
        arrival=arrival,
        ahead=parse_duration(ahead, parameter="ahead", minimum=0),
        before=_parse_bound(before),
        future=future,
        past=past,
        unusable=unusable,
    )
    return Operator(GuardSpec.where, spec)


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardSpec:
    """The parameters of a guard; durations in microseconds."""

    where: ClassVar[str] = "time.guard"
    adds: ClassVar[tuple[str, ...]] = (GUARDED,)

    time: str
    arrival: str | None
    ahead: int = field(metadata={"shown": show_duration})
    before: int | dt.datetime | None = field(
        metadata={"shown": lambda bound: repr(None if bound is None else _format_bound(bound))}
    )
    future: OutOfBounds
    past: OutOfBounds
    unusable: Unusable

    def __post_init__(self) -> None:
        optional = {} if self.arrival is None else {"arrival": self.arrival}
        require_distinct_columns(time=self.time, **optional)

    @property
    def marked(self) -> str:
        """The event time: downstream operators read it."""
        return self.time

    def check(self, frame: DataFrame) -> None:
        """Reject frames without the columns, and frames that already have a watermark."""
        found = instant_field(
            frame,
            self.time,
            role="time",
            accepts=lambda data_type: isinstance(data_type, StringType),
            expected="timestamp, or string",
        )
        if self.arrival is not None:
            instant_field(frame, self.arrival, role="arrival")
        if frame.isStreaming and WATERMARK in (found.metadata or {}):
            raise conditions.GUARD_BEHIND_WATERMARK.error(
                time=self.time, got=f"a frame with a watermark on {self.time!r}"
            )

    def apply(self, frame: DataFrame) -> DataFrame:
        """Return the frame with valid event times, and the outcome of the check."""
        fields = {field.name: field for field in frame.schema.fields}
        instant = column(self.time)
        if isinstance(fields[self.time].dataType, StringType):
            instant = read_instant(F.trim(instant.cast("string")))
        upper, lower = self._bounds()
        checked = frame.select(
            "*", instant.alias(_INSTANT), upper.alias(_UPPER), lower.alias(_LOWER)
        ).select("*", self._reason().alias(_REASON))
        errors = self._error_filter()
        if errors is not None:
            checked = checked.where(errors)
        reason = F.col(_REASON)
        bound = F.when(reason == "future", F.col(_UPPER)).when(reason == "past", F.col(_LOWER))
        limit = F.timestamp_micros(bound)
        # Unusable times have no bound and are never clamped. Every field is nullable: PySpark
        # cannot convert a null struct with non-nullable fields to Arrow.
        outcome = F.when(reason.isin(*self._clamps()), _CLAMPED).when(reason.isNotNull(), _ROUTED)
        outcome_struct = F.struct(
            reason.alias("reason"),
            outcome.alias("outcome"),
            column(self.time).alias("original"),
            limit.alias("bound"),
        )
        time = F.when(reason.isNull(), F.col(_INSTANT)).when(outcome == _CLAMPED, limit)
        metadata = {self.time: fields[self.time].metadata or {}}
        return checked.select(
            *(
                time.alias(name, metadata=metadata[name]) if name == self.time else column(name)
                for name in fields
            ),
            F.when(reason.isNotNull(), outcome_struct).alias(GUARDED),
        )

    def counts(self) -> Mapping[str, Column]:
        """Count all rows, and rows that failed the check by outcome and by reason."""
        outcome, reason = (column(GUARDED)[part] for part in ("outcome", "reason"))
        return {
            "rows": F.count(F.lit(1)),
            **{value: F.count_if(outcome == value) for value in (_CLAMPED, _ROUTED)},
            "side_output": F.count_if(outcome == _ROUTED),
            **{value: F.count_if(reason == value) for value in REASONS},
        }

    def _bounds(self) -> tuple[Column, Column]:
        """Return the upper and lower bound, in microseconds; lower <= upper."""
        clock = now()
        arrival = clock
        if self.arrival is not None:
            # An arrival after the start of the micro-batch is wrong; a null arrival means now.
            # `least` ignores nulls.
            arrival = F.least(micros(column(self.arrival)), clock)
        upper = F.least(arrival + F.lit(self.ahead), F.lit(MAX_INSTANT))
        lower = F.lit(MIN_INSTANT)
        if isinstance(self.before, dt.datetime):
            lower = F.lit(parse_instant(self.before, parameter="before"))
        elif self.before is not None:
            lower = F.greatest(arrival - F.lit(self.before), F.lit(MIN_INSTANT))
        # The upper bound takes precedence: no event time after arrival + ahead passes.
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
        return [reason for reason in ("future", "past") if getattr(self, reason) == "clamp"]

    def _error_filter(self) -> Column | None:
        """Return a filter that raises an error. Spark would skip a column that is not read."""
        limits = {
            "future": f"at most {format_duration(self.ahead)} ahead of its arrival",
            "past": f"at most {_format_bound(self.before)} behind its arrival"
            if isinstance(self.before, int)
            else f"{_format_bound(self.before)} or later",
            "null_time": "not null",
            "unparsable_time": "a timestamp in ISO 8601",
        }
        policies = {"future": self.future, "past": self.past}
        passes: Column | None = None
        for reason, limit in limits.items():
            if policies.get(reason, self.unusable) == "fail":
                error = F.raise_error(self._message(reason, limit)).cast("boolean")
                passes = F.when(F.col(_REASON) == reason, error).otherwise(
                    F.lit(True) if passes is None else passes
                )
        return passes

    def _message(self, reason: str, limit: str) -> Column:
        is_bound = reason not in _UNUSABLE
        parameter = reason if is_bound else "unusable"
        error = conditions.GUARD_FAILED.error(
            where="time.guard",
            reason=reason,
            parameter=parameter,
            expected=limit,
            got=f"{self.time!r} is {_MARK}" + (f", and the bound {_MARK}" if is_bound else ""),
        )
        zone = F.concat(F.lit(" (time zone "), F.current_timezone(), F.lit(")"))
        values = [F.coalesce(column(self.time).cast("string"), F.lit("null"))]
        if is_bound:
            bound = F.timestamp_micros(F.col(_UPPER if reason == "future" else _LOWER))
            values += [F.concat(bound.cast("string"), zone)]
        first, *rest = map(F.lit, str(error).split(_MARK))
        pairs = zip(values, rest, strict=True)
        return F.concat(first, *(part for pair in pairs for part in pair))


def _parse_bound(before: Duration | dt.datetime | None) -> int | dt.datetime | None:
    """Convert a duration to microseconds; return an instant unchanged."""
    if isinstance(before, dt.datetime):
        parse_instant(before, parameter="before")
        return before
    if before is None:
        return None
    return parse_duration(before, parameter="before", minimum=0)


def _format_bound(before: int | dt.datetime | None) -> str:
    match before:
        case dt.datetime():
            return format_instant(parse_instant(before, parameter="before"))
        case int():
            return format_duration(before)
        case _:
            return _YEAR_1
