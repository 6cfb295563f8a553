"""What a user says about duplicates, validated once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import pyarrow as pa
from pyspark.sql import Column, DataFrame

from streamops.changelog.change_types import CHANGE_TYPE
from streamops.kernel.errors import ColumnNotFound, SchemaError, SpecError, WatermarkError
from streamops.kernel.time import Duration, format_duration, parse_duration
from streamops.sketches.bloom import require_capacity, require_rate, too_large
from streamops.sketches.core.filters import MOST_BITS
from streamops.sketches.core.seen import COUNTS, FULL, SEEN, SeenSpec
from streamops.spark.checks import WATERMARK
from streamops.spark.columns import require_name
from streamops.spark.parameters import parse_names, require_hashable
from streamops.spark.rowwise import instant_field
from streamops.spark.transform import require_choice

__all__ = ["Again", "SeenSettings", "WhenFull"]

Again = Literal["drop", "flag"]
WhenFull = Literal["fail", "flag", "rotate"]

_MOST_GENERATIONS = 64


@dataclass(frozen=True, slots=True)
class SeenSettings:
    """Settings of the suppression of duplicates; durations in microseconds."""

    where: str = field(repr=False)
    shards: int = field(repr=False)
    identity: tuple[str, ...]
    capacity: int
    false_positive_rate: float
    time: str | None
    horizon: int | None = field(
        metadata={"shown": lambda micros: repr(micros and format_duration(micros))}
    )
    generations: int
    again: Again
    when_full: WhenFull

    @staticmethod
    def of(
        where: str,
        identity: str | Sequence[str],
        *,
        capacity: int,
        false_positive_rate: float,
        time: str | None,
        horizon: Duration | None,
        generations: int,
        again: Again,
        when_full: WhenFull,
        shards: int,
    ) -> SeenSettings:
        """Settings as the user wrote them, normalised, or an error."""
        names = _names(identity, where)
        require_capacity(capacity, where=where)
        rate = require_rate(false_positive_rate, where=where)
        require_choice(again, Again, parameter="again", where=where)
        require_choice(when_full, WhenFull, parameter="when_full", where=where)
        if time is not None:
            require_name(time, parameter="time", where=where)
        if type(generations) is not int or not 1 <= generations <= _MOST_GENERATIONS:
            raise SpecError(
                "GENERATIONS_OUT_OF_RANGE",
                "`generations` is out of range",
                where=where,
                got=f"generations={generations!r}",
                expected=f"an integer from 1 to {_MOST_GENERATIONS}",
                fix="leave it out: a horizon of four, and up to a fourth longer",
            )
        back = None
        if horizon is not None:
            back = parse_duration(horizon, parameter="horizon", where=where, minimum=generations)
            if time is None:
                raise SpecError(
                    "HORIZON_WITHOUT_TIME",
                    "a horizon is measured in event time, and none is named",
                    where=where,
                    got=f"horizon={format_duration(back)!r}, time=None",
                    expected="the column with the event time",
                    fix='time="ts", or no horizon and when_full="rotate" to forget by number',
                )
        made = SeenSettings(
            where, shards, names, capacity, rate, time, back, generations, again, when_full
        )
        shape = made.bind(pa.schema([(name, pa.null()) for name in names])).shape
        if shape.bits > MOST_BITS:
            raise too_large(
                f"filters of {shape.bits} bits, with shards={shards}",
                fix=f"shards={shards * -(-shape.bits // MOST_BITS)} or more",
                where=where,
            )
        return made

    @property
    def by(self) -> tuple[str, ...]:
        """The identity: equal ones meet in one shard."""
        return self.identity

    @property
    def adds(self) -> tuple[str, ...]:
        """What a row was found to be, and whether that can be relied on."""
        return (SEEN, FULL)

    @property
    def marked(self) -> str:
        """The column that tells the next operator about this one."""
        return SEEN

    def check(self, frame: DataFrame) -> None:
        """Refuse a frame without the columns it reads, or with a watermark."""
        fields = {each.name: each for each in frame.schema.fields}
        for name in self.by:
            if name not in fields:
                raise ColumnNotFound(name, list(fields), where=self.where, role="identity")
        if self.time is not None:
            instant_field(frame, self.time, role="time", where=self.where)
        if CHANGE_TYPE in fields:
            raise SchemaError(
                "SKETCH_CANNOT_FORGET",
                "rows of a change stream that have the same identity are no duplicates",
                where=self.where,
                got=f"a frame with the column {CHANGE_TYPE!r}",
                expected="rows that are only ever added",
                fix=f"suppress duplicates before what makes the change stream; or drop {CHANGE_TYPE!r} "
                "where all rows are inserts",
            )
        marks = [name for name, each in fields.items() if WATERMARK in (each.metadata or {})]
        if frame.isStreaming and marks:
            raise WatermarkError(
                "SEEN_BEHIND_WATERMARK",
                "the watermark would be lost: rows pass through Python here",
                where=self.where,
                got=f"a frame with a watermark on {marks[0]!r}",
                expected="a frame without a watermark",
                fix="suppress duplicates first, withWatermark(...) or delay=... after it",
            )

    def bind(self, schema: pa.Schema) -> SeenSpec:
        """The spec over these columns."""
        what = "an identity has a type that Spark does not hash"
        for name in self.by:
            kind = schema.field(name).type
            require_hashable(kind, where=f"{self.where}, column {name!r}", what=what)
        return SeenSpec(
            by=self.by,
            time=self.time,
            horizon=self.horizon,
            generations=self.generations,
            capacity=self.capacity,
            rate=self.false_positive_rate,
            shards=self.shards,
            when_full=self.when_full,
            again=self.again,
            input=schema,
        )

    def finish(self, frame: DataFrame, names: Sequence[str]) -> DataFrame:
        """The rows as the core left them."""
        return frame

    def finished(self, rows: pa.Table) -> pa.Table:
        """The same, of a table."""
        return rows

    @property
    def told(self) -> tuple[str, ...]:
        """The core counts, also what does not come out."""
        return COUNTS

    def counts(self) -> Mapping[str, Column]:
        """Nothing beside."""
        return {}


def _names(identity: object, where: str) -> tuple[str, ...]:
    names = parse_names(identity, parameter="identity", where=where)
    if not names or len(set(names)) < len(names):
        raise SpecError(
            "NO_IDENTITY",
            "`identity` does not say what makes two rows the same",
            where=where,
            got=f"identity={identity!r}",
            expected="one column or several, each once",
            fix='identity=["order_id"]',
        )
    return names
