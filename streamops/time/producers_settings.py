"""What a user says about the producers of a stream, validated once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from streamops.kernel.errors import ColumnNotFound, SchemaError, SpecError
from streamops.kernel.time import Duration, format_duration, parse_duration
from streamops.spark.columns import column, type_name
from streamops.spark.parameters import parse_delay, require_hashable
from streamops.spark.rowwise import instant_field, require_names
from streamops.time.core.producers import ProducersSpec
from streamops.time.instants import micros, now

__all__ = ["ProducersSettings"]

_IN_WORDS = {"shown": lambda duration: repr(format_duration(duration))}


@dataclass(frozen=True, slots=True)
class ProducersSettings:
    """Settings of a clock of producers; durations in microseconds."""

    where: str = field(repr=False)
    producer: str
    time: str
    delay: int = field(metadata=_IN_WORDS)
    idle: int = field(metadata=_IN_WORDS)
    arrival: str | None
    expected: tuple[Any, ...]

    @staticmethod
    def of(
        where: str,
        *,
        producer: str,
        time: str,
        delay: Duration,
        idle: Duration,
        arrival: str | None,
        expected: Sequence[Any],
    ) -> ProducersSettings:
        """Settings as the user wrote them, normalised, or an error."""
        named = {"producer": producer, "time": time}
        require_names(where, **named, **({} if arrival is None else {"arrival": arrival}))
        waits = parse_delay(delay, parameter="delay", where=where)
        silence = parse_duration(idle, parameter="idle", where=where, minimum=1)
        if isinstance(expected, str | bytes) or not isinstance(expected, Sequence):
            raise SpecError(
                "NOT_A_LIST",
                "`expected` is not a list of producers",
                where=where,
                got=f"expected={expected!r}",
                expected=f"a list of values of the column {producer!r}",
                fix=f"expected=[{expected!r}]",
            )
        return ProducersSettings(where, producer, time, waits, silence, arrival, tuple(expected))

    @property
    def reads(self) -> tuple[str, ...]:
        """The columns that are read."""
        named = (self.producer, self.time, self.arrival)
        return tuple(name for name in named if name is not None)

    def check(self, frame: DataFrame) -> None:
        """Refuse a frame without these columns."""
        names = frame.schema.names
        if self.producer not in names:
            raise ColumnNotFound(self.producer, names, where=self.where, role="producer")
        instant_field(frame, self.time, role="time", where=self.where)
        if self.arrival is not None:
            instant_field(frame, self.arrival, role="arrival", where=self.where)

    def bind(self, schema: pa.Schema) -> ProducersSpec:
        """The spec over columns of these types."""
        kind = schema.field(self.producer).type
        require_hashable(kind, where=f"{self.where}, producer {self.producer!r}")
        try:
            expected = pa.array(self.expected, kind)
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            raise SchemaError(
                "EXPECTED_TYPE",
                "`expected` has a value that the column of producers cannot have",
                where=self.where,
                got=f"expected={list(self.expected)!r}, {self.producer!r} of type {type_name(kind)}",
                expected=f"values of {self.producer!r}",
                fix=f"write them as they stand in the column {self.producer!r}",
            ) from error
        return ProducersSpec(self.producer, self.time, self.arrival, kind, self.idle, expected)

    def inputs(self) -> Sequence[Column]:
        """The producer, the event time, and when the row arrived."""
        arrived = now()
        if self.arrival is not None:
            said = micros(column(self.arrival))
            # What arrived after it was processed did not: else one wrong arrival would make all
            # others look silent. A null stays null; `least` alone would pass over it.
            arrived = F.when(said.isNotNull(), F.least(said, arrived))
        return column(self.producer), column(self.time), F.timestamp_micros(arrived)
