"""What a user says about accounts of late rows, validated once, and the expressions for it."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DayTimeIntervalType, StructType, TimestampType

from streamops.kernel.errors import SchemaError
from streamops.kernel.time import format_duration
from streamops.observe.core.rules import require_share
from streamops.observe.names import key_names, require_columns
from streamops.observe.scale import ANY, LATENESS, SAVED, Scale
from streamops.spark.columns import column, refuse_duplicates, require_name
from streamops.spark.operator import show_fields

__all__ = ["LateAccounts", "MergedAccounts", "NeededLateness"]

_TOLD = ("reason", "lateness", "watermark", "row")
_SECONDS = ("least_seconds", "greatest_seconds", "total_seconds")
_MEASURES = ("rows", *_SECONDS, LATENESS, SAVED)
_EXACT = "decimal(38,6)"
_MICROSECOND = dt.timedelta(microseconds=1)


def _shown_scale(scale: Scale) -> str:
    return repr(tuple(format_duration(each) for each in scale.bounds))


@dataclass(frozen=True, slots=True, repr=False)
class _Accounting:
    """What the three have in common."""

    where: str = field(repr=False)
    by: tuple[str, ...]

    def __repr__(self) -> str:
        return f"{self.where}({', '.join(show_fields(self))})"


@dataclass(frozen=True, slots=True, repr=False)
class LateAccounts(_Accounting):
    """Settings of :func:`streamops.observe.account_late`."""

    producer: str | None
    scale: Scale = field(metadata={"shown": _shown_scale})

    @staticmethod
    def of(where: str, *, by: Any, producer: str | None, bounds: Any) -> LateAccounts:
        """Settings as the user wrote them, normalised, or an error."""
        if producer is not None:
            require_name(producer, parameter="producer", where=where)
        told = ["reason", *(() if producer is None else ["producer"]), *_MEASURES]
        names = key_names(by, told, where=where)
        return LateAccounts(where, names, producer, Scale.of(bounds, where=where))

    def __repr__(self) -> str:
        return f"{self.where}({', '.join(show_fields(self))})".replace("scale=", "bounds=")

    def __call__(self, frame: DataFrame) -> DataFrame:
        """The account of these late rows."""
        kinds = _columns(frame, self.where)
        self._check(kinds)
        keys = [*(_unmarked(name) for name in self.by), F.col("reason")]
        if self.producer is not None:
            keys.insert(-1, F.col("row").getField(self.producer).alias("producer"))
        late, behind = self._micros(kinds)
        bounds = self.scale.bounds
        seconds = late.cast("decimal(20,0)") * F.lit(Decimal("0.000001"))
        return frame.groupBy(*keys).agg(
            F.count(F.lit(1)).alias("rows"),
            *_sums(F.min(seconds), F.max(seconds), F.sum(seconds)),
            self.scale.counted(LATENESS, [*(late <= F.lit(b) for b in bounds), late.isNotNull()]),
            self.scale.counted(SAVED, [behind < F.lit(b) for b in bounds]),
        )

    def _micros(self, kinds: dict[str, Any]) -> tuple[Column, Column]:
        """Lateness, and how far the end of the window is behind the watermark; microseconds."""
        late = F.call_function("div", F.col("lateness"), F.lit(_MICROSECOND))
        if "window_end" not in kinds:
            return late, late  # what such a row missed ends with the row itself
        return late, F.unix_micros("watermark") - F.unix_micros("window_end")

    def _check(self, kinds: dict[str, Any]) -> None:
        wanted = {"lateness": DayTimeIntervalType, "watermark": TimestampType, "row": StructType}
        if "window_end" in kinds:
            wanted["window_end"] = TimestampType
        fits = "reason" in kinds and all(
            isinstance(kinds.get(name), kind) for name, kind in wanted.items()
        )
        if not fits:
            raise SchemaError(
                "NOT_LATE_ROWS",
                "the frame does not hold late rows",
                where=self.where,
                got=", ".join(f"{name} {kind.simpleString()}" for name, kind in kinds.items()),
                expected="reason, lateness (interval day to second), watermark (timestamp), "
                "row (struct)",
                fix="_, late = split_side_output(batch), and account for `late`",
            )
        keys = [name for name in kinds if name not in _TOLD]
        require_columns(self.by, keys, role="by", where=self.where)
        if self.producer is not None:
            there = kinds["row"].names
            require_columns((self.producer,), there, role="producer", where=self.where)


@dataclass(frozen=True, slots=True, repr=False)
class MergedAccounts(_Accounting):
    """Settings of :func:`streamops.observe.merge_accounts`."""

    @staticmethod
    def of(where: str, *, by: Any) -> MergedAccounts:
        """Settings as the user wrote them, normalised, or an error."""
        return MergedAccounts(where, key_names(by, _MEASURES, where=where))

    def __call__(self, frame: DataFrame) -> DataFrame:
        """The account of all rows of these accounts."""
        return _merged(frame, self.by, self.where)[0]


@dataclass(frozen=True, slots=True, repr=False)
class NeededLateness(_Accounting):
    """Settings of :func:`streamops.observe.lateness_needed`."""

    share: float = field(metadata={"first": True})

    @staticmethod
    def of(where: str, *, share: float, by: Any) -> NeededLateness:
        """Settings as the user wrote them, normalised, or an error."""
        require_share(share, where=where, fix="share=0.99 asks for 99 of 100 rows")
        names = key_names(by, ("rows", "needed", SAVED, "not_enough"), where=where)
        return NeededLateness(where, names, share)

    def __call__(self, frame: DataFrame) -> DataFrame:
        """What would have been needed, for each of `by`."""
        merged, scale = _merged(frame, self.by, self.where)
        rows = F.col(LATENESS)[ANY]
        enough = F.lit(Decimal(str(self.share))) * rows
        # The last resort: a millisecond more than the greatest lateness, in whole milliseconds.
        most = (F.floor(F.col("greatest_seconds") * F.lit(1_000)) + F.lit(1)).cast("bigint")
        needed, saved = F.lit(dt.timedelta(milliseconds=1)) * most, rows
        below = _interval(scale.bounds[-1])
        names = scale.names(SAVED)
        for place in reversed(range(len(names))):
            count = F.col(SAVED)[names[place]]
            is_enough = count >= enough
            before = _interval(scale.bounds[place - 1] if place else None)
            needed = F.when(is_enough, _interval(scale.bounds[place])).otherwise(needed)
            saved = F.when(is_enough, count).otherwise(saved)
            below = F.when(is_enough, before).otherwise(below)
        has_some = rows > 0
        return merged.select(
            *(column(name) for name in self.by),
            rows.alias("rows"),
            F.when(has_some, needed).alias("needed"),
            F.when(has_some, saved).otherwise(rows).alias(SAVED),
            F.when(has_some, below).alias("not_enough"),
        )


def _merged(frame: DataFrame, by: Sequence[str], where: str) -> tuple[DataFrame, Scale]:
    kinds = _columns(frame, where)
    scale = Scale.told_by(kinds.get(LATENESS), LATENESS)
    if scale is None or scale != Scale.told_by(kinds.get(SAVED), SAVED) or _lacking(kinds):
        raise SchemaError(
            "NOT_AN_ACCOUNT",
            "the frame is not an account of late rows",
            where=where,
            got=", ".join(f"{name} {kind.simpleString()}" for name, kind in kinds.items()),
            expected=f"{', '.join(_MEASURES)}, as observe.account_late makes them",
            fix="late.transform(observe.account_late(...)) first; accounts of different scales "
            "cannot be merged",
        )
    require_columns(by, [name for name in kinds if name not in _MEASURES], role="by", where=where)
    # A constant stands for no columns: without any, Spark makes a row of nothing.
    keys = [_unmarked(name) for name in by] or [F.lit("").alias("__streamops_all")]
    least, greatest, total = map(F.col, _SECONDS)
    merged = frame.groupBy(*keys).agg(
        F.sum("rows").alias("rows"),
        *_sums(F.min(least), F.max(greatest), F.sum(total)),
        scale.summed(LATENESS),
        scale.summed(SAVED),
    )
    return merged.select(*(column(name) for name in (*by, *_MEASURES))), scale


def _lacking(kinds: dict[str, Any]) -> bool:
    wanted = {"rows": "bigint", **dict.fromkeys(_SECONDS, _EXACT)}
    return any(
        name not in kinds or kinds[name].simpleString() != kind for name, kind in wanted.items()
    )


def _sums(*said: Column) -> list[Column]:
    return [each.cast(_EXACT).alias(name) for name, each in zip(_SECONDS, said, strict=True)]


def _interval(micros: int | None) -> Column:
    span = None if micros is None else dt.timedelta(microseconds=micros)
    return F.lit(span).cast("interval day to second")


def _unmarked(name: str) -> Column:
    """The column without a watermark: by that, Spark would drop late rows, which all of them are."""
    return column(name).alias(name, metadata={})


def _columns(frame: DataFrame, where: str) -> dict[str, Any]:
    refuse_duplicates(frame, where=where)
    return {field.name: field.dataType for field in frame.schema.fields}
