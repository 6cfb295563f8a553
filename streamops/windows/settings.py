"""What a user says about windows on a grid, validated once."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from streamops.kernel.contract import Aggregation
from streamops.kernel.errors import ColumnNotFound, SchemaError, SpecError
from streamops.kernel.grid import Grid
from streamops.kernel.hashing import require_hashable
from streamops.kernel.time import Duration, format_duration, parse_duration, parse_instant
from streamops.spark.columns import require_name, type_name
from streamops.spark.transform import choice
from streamops.windows.core.spec import Spec, Stragglers, TooLate

__all__ = ["FixedWindows"]

_MILLISECOND = 1_000
_MOST_WINDOWS = 10_000
_RESERVED = ("window_start", "window_end", "revision", "_change_type", "late")


def _words(micros: int | None) -> str:
    return repr(None if micros is None else format_duration(micros))


_IN_WORDS = {"shown": _words}


@dataclass(frozen=True, slots=True)
class FixedWindows:
    """Settings of tumbling and hopping windows; durations in microseconds."""

    where: str = field(repr=False)
    size: int = field(metadata=_IN_WORDS)
    hop: int = field(metadata=_IN_WORDS)
    origin: int = field(metadata=_IN_WORDS)
    time: str
    by: tuple[str, ...]
    agg: tuple[tuple[str, Aggregation], ...]
    delay: int | None = field(metadata=_IN_WORDS)
    allowed_lateness: int = field(metadata=_IN_WORDS)
    stragglers: Stragglers
    too_late: TooLate

    @staticmethod
    def of(
        where: str,
        size: Duration,
        hop: Duration,
        *,
        time: str,
        by: str | Sequence[str],
        agg: Mapping[str, Aggregation],
        delay: Duration | None,
        allowed_lateness: Duration,
        stragglers: Stragglers,
        too_late: TooLate,
        origin: Duration | dt.datetime,
    ) -> FixedWindows:
        """Settings as the user wrote them, normalised, or an error."""
        choice(stragglers, Stragglers, parameter="stragglers", where=where)
        choice(too_late, TooLate, parameter="too_late", where=where)
        require_name(time, parameter="time", where=where)
        keys = _names(by, where)
        size_ = parse_duration(size, parameter="size", where=where, minimum=1)
        hop_ = parse_duration(hop, parameter="hop", where=where, minimum=1)
        lateness = parse_duration(
            allowed_lateness,
            parameter="allowed_lateness",
            where=where,
            minimum=0,
            whole=_MILLISECOND,
        )
        _refuse_no_aggregates(agg, where)
        waits = None
        if delay is not None:
            waits = parse_duration(
                delay, parameter="delay", where=where, minimum=0, whole=_MILLISECOND
            )
        if isinstance(origin, dt.datetime):
            phase = parse_instant(origin, parameter="origin", where=where)
        else:
            phase = parse_duration(origin, parameter="origin", where=where)
        settings = FixedWindows(
            where, size_, hop_, phase % hop_, time, keys, tuple(agg.items()), waits, lateness,
            stragglers, too_late,
        )  # fmt: skip
        settings._refuse_contradictions()
        return settings

    @property
    def reads(self) -> tuple[str, ...]:
        """Columns whose values are compared or computed with."""
        return (*self.by, *(name for _, aggregation in self.agg for name in aggregation.columns))

    def bind(self, schema: pa.Schema, *, carried: int | None) -> Spec:
        """The spec over these columns."""
        for role, names in (("time", (self.time,)), ("by", self.by)):
            for name in names:
                if name not in schema.names:
                    raise ColumnNotFound(name, schema.names, where=self.where, role=role)
        self._refuse_types(schema)
        summaries = tuple(
            (name, repr(aggregation), aggregation.bind(schema, time=self.time, where=self.where))
            for name, aggregation in self.agg
        )
        read = {self.time, *self.by, *(name for *_, s in summaries for name in s.inputs)}
        routes = "route" in (self.stragglers, self.too_late)
        return Spec(
            grid=Grid(self.size, self.hop, self.origin),
            by=self.by,
            time=self.time,
            aggregates=summaries,
            input=schema if routes else pa.schema([f for f in schema if f.name in read]),
            delay=None if carried is not None else self.delay,
            allowed_lateness=self.allowed_lateness,
            stragglers=self.stragglers,
            too_late=self.too_late,
        )

    def _refuse_contradictions(self) -> None:
        if self.hop > self.size:
            raise SpecError(
                "HOP_EXCEEDS_SIZE",
                "`hop` is longer than `size`: events between two windows would be lost",
                where=self.where,
                got=f"hop={_words(self.hop)}, size={_words(self.size)}",
                expected="0 < hop <= size",
                fix="shorten hop, or lengthen size",
            )
        windows = -(-self.size // self.hop)
        if windows > _MOST_WINDOWS:
            raise SpecError(
                "TOO_MANY_WINDOWS",
                "each event would lie in too many windows, each of them a result",
                where=self.where,
                got=f"hop={_words(self.hop)}, size={_words(self.size)}: {windows:,} windows",
                expected=f"at most {_MOST_WINDOWS:,} windows for an event: ceil(size / hop)",
                fix="lengthen hop: a result for every event is another operator than this one",
            )
        if self.too_late == "route" and self.stragglers not in ("update", "retract"):
            raise SpecError(
                "TOO_LATE_WITHOUT_CORRECTIONS",
                "`too_late` says what happens beyond the lateness of corrections",
                where=self.where,
                got=f"too_late='route' with stragglers={self.stragglers!r}",
                expected="stragglers='update' or 'retract' beside it",
                fix="stragglers='route' delivers every late row",
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
        names = [*self.by, *(name for name, _ in self.agg)]
        # To Spark, names that differ only in case are one name.
        folded = [name.lower() for name in names]
        taken = sorted({n for n in names if folded.count(n.lower()) > 1 or n.lower() in _RESERVED})
        if taken:
            raise SpecError(
                "NAME_TAKEN",
                f"a name stands for two columns of the result: {', '.join(taken)}",
                where=self.where,
                got=f"by={list(self.by)}, agg={[name for name, _ in self.agg]}",
                expected=f"names unlike one another and unlike {', '.join(_RESERVED)}",
                fix="name the aggregate, or rename the key column, differently",
            )

    def _refuse_types(self, schema: pa.Schema) -> None:
        kind = schema.field(self.time).type
        if not (pa.types.is_timestamp(kind) and kind.tz is not None):
            raise SchemaError(
                "COLUMN_TYPE",
                f"column {self.time!r} cannot be used as event time",
                where=self.where,
                got=f"{self.time!r} of type {type_name(kind)}",
                expected="timestamp",
                fix=f"df.withColumn({self.time!r}, F.to_timestamp({self.time!r}))",
            )
        for name in self.by:
            try:
                require_hashable(schema.field(name).type, where=f"{self.where}, key {name!r}")
            except SchemaError as error:  # the kernel knows Arrow's names of types only
                facts = {"where": error.where, "expected": error.expected, "fix": error.fix}
                raise SchemaError(
                    error.code, error.what, got=type_name(error.got), **facts
                ) from None


def _names(by: object, where: str) -> tuple[str, ...]:
    names = (by,) if isinstance(by, str) or not isinstance(by, Sequence) else by
    for name in names:
        require_name(name, parameter="by", where=where)
    return tuple(names)


def _refuse_no_aggregates(agg: object, where: str) -> None:
    named = dict(agg) if isinstance(agg, Mapping) else {"?": agg}
    for name, value in named.items():
        require_name(name, parameter="agg", where=where)
        # A Column of Spark's seems to have whatever attribute it is asked for.
        methods = (getattr(value, method, None) for method in ("bind", "to_spark"))
        if isinstance(value, type) or not all(map(callable, methods)):
            raise SpecError(
                "NOT_AN_AGGREGATE",
                f"{name!r} is not an aggregate",
                where=where,
                got=f"agg={agg!r}",
                expected="a mapping of names to aggregates",
                fix='agg={"events": aggregates.count()}',
            )
