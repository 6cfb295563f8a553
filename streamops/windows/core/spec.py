"""The parameters that all window operators share, and what follows from them.

A public function such as :func:`streamops.windows.tumbling` builds the dataclass of its operator
from what the user passed. ``bind`` checks it against the columns of a frame and fills in the
fields that depend on them. The algorithm reads the same dataclass.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self

import pyarrow as pa

from streamops.changelog.change_types import CHANGE_TYPE, REVISION
from streamops.kernel.aggregation import Aggregation, Summary, aggregate_identity
from streamops.kernel.core import Input
from streamops.kernel.errors import ColumnNotFound, SpecError
from streamops.kernel.parameters import (
    parse_delay,
    refuse_taken_names,
    require_aggregates,
    require_choice,
    require_instant,
    require_keys,
    require_name,
    show_duration,
)
from streamops.kernel.time import Duration

__all__ = [
    "DEFINES",
    "DURATION",
    "INSTANT",
    "RESERVED",
    "Early",
    "Stragglers",
    "TooLate",
    "WindowSpec",
    "parse_aggregates",
    "parse_optional_delay",
]

Stragglers = Literal["drop", "route", "update", "retract"]
TooLate = Literal["drop", "route"]
Early = Literal["never", "every batch"]

INSTANT = pa.timestamp("us", tz="UTC")

DURATION = {"shown": show_duration}
"""Metadata of a field in microseconds that ``repr`` shows as a duration."""

DEFINES = {"shown": show_duration, "first": True}
"""Metadata of a duration that defines the windows: ``repr`` shows it first."""

_WINDOW = ("window_start", "window_end")
_EXTRA = (REVISION, "timing", CHANGE_TYPE, "late")
RESERVED = (*_WINDOW, *_EXTRA)
"""Names of the columns that window results have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSpec(ABC):
    """Parameters of every window operator. Durations are microseconds.

    Parameters
    ----------
    operator : str
        Public name of the operator, for errors.
    time, by : str, tuple of str
        Event-time column, key columns.
    agg : tuple of (name, aggregate)
        What is computed, under which name.
    delay : int, optional
        How long a result waits before it is on time; None where the frame has a watermark.
    allowed_lateness : int
        How much longer stragglers are accepted.
    stragglers, too_late : str
        What happens to rows whose window is on time, and to rows beyond the lateness.
    early : str
        Whether results are published before they are on time.
    input : Schema
        Filled in by ``bind``: the columns that are read; every column of the frame where rows
        may be routed.
    aggregates : tuple of (name, repr, summary)
        Filled in by ``bind``: each aggregate as the user wrote it, and its implementation.
    """

    operator: str = field(repr=False)
    time: str
    by: tuple[str, ...]
    agg: tuple[tuple[str, Aggregation], ...]
    delay: int | None = field(metadata=DURATION)
    allowed_lateness: int = field(metadata=DURATION)
    stragglers: Stragglers
    too_late: TooLate
    early: Early = "never"
    input: pa.Schema = field(default=pa.schema([]), repr=False)
    aggregates: tuple[tuple[str, str, Summary], ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        where = self.operator
        require_choice(self.stragglers, Stragglers, parameter="stragglers", where=where)
        require_choice(self.too_late, TooLate, parameter="too_late", where=where)
        require_choice(self.early, Early, parameter="early", where=where)
        require_name(self.time, parameter="time", where=where)

    def resolve(
        self, schemas: tuple[pa.Schema, ...], *, carried: tuple[int | None, ...], shards: int
    ) -> Self:
        """Return the spec over the columns of the frame, see :class:`streamops.spark.operator.Parameters`."""
        return self.bind(schemas[0], carried=carried[0])

    def bind(self, schema: pa.Schema, *, carried: int | None) -> Self:
        """Return the spec over these columns.

        Parameters
        ----------
        schema : Schema
            Columns of the frame.
        carried : int, optional
            Delay of the watermark that the frame already has.
        """
        self._require_columns(schema)
        aggregates = tuple(
            (name, repr(aggregation), aggregation.bind(schema, time=self.time, where=self.operator))
            for name, aggregation in self.agg
        )
        read = {self.time, *self.by, *self.extra_columns.values()}
        read |= {column for *_, summary in aggregates for column in summary.inputs}
        return replace(
            self,
            input=schema if self.routes else pa.schema([f for f in schema if f.name in read]),
            aggregates=aggregates,
            delay=None if carried is not None else self.delay,
        )

    @property
    def extra_columns(self) -> Mapping[str, str]:
        """Further columns that the operator reads, by the parameter that names them."""
        return {}

    @property
    def inputs(self) -> tuple[Input, ...]:
        """The input: events, or results of windows."""
        return (Input(self.by, self.time, self.input, self.delay),)

    @property
    def times(self) -> tuple[str | None, ...]:
        """The event-time column."""
        return (self.time,)

    @property
    def delays(self) -> tuple[int | None, ...]:
        """Delay of the watermark that the operator defines."""
        return (self.delay,)

    @property
    def reads(self) -> tuple[tuple[str, ...], ...]:
        """Columns whose values are compared or computed with."""
        aggregated = (name for _, aggregation in self.agg for name in aggregation.columns)
        return ((*self.by, *self.extra_columns.values(), *aggregated),)

    @property
    def accepts_revisions(self) -> tuple[bool, ...]:
        """Whether the input is the results of windows, instead of events."""
        return (False,)

    @property
    def needs_preimages(self) -> bool:
        """Whether an update must come with its preimage."""
        return False

    @property
    def held_back(self) -> int:
        """On-time results are never behind the watermark."""
        return 0

    @property
    def lag(self) -> int:
        """How far Spark's watermark must lie behind the operator's own."""
        return self.allowed_lateness

    @property
    def time_columns(self) -> tuple[str, ...]:
        """Columns of the output, after the keys, that identify a result of a key.

        The last of them is the event time of the output.
        """
        return _WINDOW

    @property
    def event_time(self) -> str:
        """Event-time column of the output."""
        return self.time_columns[-1]

    @property
    def corrects(self) -> bool:
        """Whether stragglers correct published results."""
        return self.stragglers in ("update", "retract")

    @property
    def routes(self) -> bool:
        """Whether late rows are delivered, so that all their columns are needed."""
        return self.stragglers == "route" or self.too_late == "route"

    @property
    def is_early(self) -> bool:
        """Whether results are published before they are on time."""
        return self.early != "never"

    @property
    def revises(self) -> bool:
        """Whether a result can be published more than once."""
        return self.corrects or self.is_early

    @property
    def retracts(self) -> bool:
        """Whether the output is a change stream."""
        return self.stragglers == "retract"

    @property
    def retention(self) -> int:
        """How long after its end a window can still change."""
        return self.allowed_lateness if self.corrects else 0

    @property
    def keys(self) -> list[pa.Field]:
        """Fields of the key columns."""
        return [self.input.field(name) for name in self.by]

    @property
    def summaries(self) -> list[Summary]:
        """Implementations of the aggregates, in order."""
        return [summary for _, _, summary in self.aggregates]

    @property
    def origins(self) -> dict[str, tuple[int, str]]:
        """Columns of the output that hold values, or lists of values, of an input column."""
        found = {name: (0, name) for name in self.by}
        for name, _, summary in self.aggregates:
            if summary.inputs:
                dtype = self.input.field(summary.inputs[0]).type
                if summary.result in (dtype, pa.list_(dtype)):
                    found[name] = (0, summary.inputs[0])
        return found

    @property
    def value_columns(self) -> list[tuple[str, pa.DataType]]:
        """Name and type of the columns that a result has per key and window."""
        return [(name, summary.result) for name, _, summary in self.aggregates]

    @property
    def output(self) -> pa.Schema:
        """Keys, window, values; then the columns that corrections and routing add."""
        extra: list[tuple[str, pa.DataType]] = []
        if self.revises:
            extra.append((REVISION, pa.int32()))
        if self.is_early:
            extra.append(("timing", pa.string()))
        if self.retracts:
            extra.append((CHANGE_TYPE, pa.string()))
        if self.routes:
            extra.append(("late", self.late))
        window = ((name, INSTANT) for name in self.time_columns)
        return pa.schema([*self.keys, *window, *self.value_columns, *extra])

    @property
    def late(self) -> pa.StructType:
        """Type of the column ``late``."""
        return pa.struct(
            [
                ("reason", pa.string()),
                ("lateness", pa.duration("us")),
                ("watermark", INSTANT),
                ("row", pa.struct(list(self.input))),
            ]
        )

    @property
    def identity(self) -> Mapping[str, Any]:
        """Parameters that a checkpoint depends on. ``delay`` is not among them: it may change."""
        return {
            **self.window_identity,
            "by": [[field.name, str(field.type)] for field in self.keys],
            "time": self.time,
            "agg": [
                aggregate_identity(name, written, summary, self.input)
                for name, written, summary in self.aggregates
            ],
            "allowed_lateness": self.allowed_lateness,
            "stragglers": self.stragglers,
            "too_late": self.too_late,
            # Only where it is used: states are older than the parameter.
            **({"early": self.early} if self.is_early else {}),
        }

    @property
    @abstractmethod
    def window_identity(self) -> Mapping[str, Any]:
        """The part of the identity that defines the windows."""

    def refuse_contradictions(self) -> None:
        """Refuse parameters that exclude one another."""
        self.refuse_too_late_without_corrections()
        if self.corrects and not self.allowed_lateness and not self.is_early:
            raise SpecError(
                "NOTHING_TO_CORRECT",
                "no straggler would be accepted, so there is nothing to correct",
                where=self.operator,
                got=f"stragglers={self.stragglers!r} with allowed_lateness='0 seconds'",
                expected="how long after its window was on time a row still corrects it",
                fix='allowed_lateness="1 hour", say; or stragglers="drop"',
            )
        if not self.agg:
            raise SpecError(
                "NO_AGGREGATE",
                "nothing to compute",
                where=self.operator,
                got="agg={}",
                expected="at least one named aggregate",
                fix='agg={"events": aggregates.count()}',
            )
        self._refuse_names()

    def refuse_too_late_without_corrections(self) -> None:
        """Refuse ``too_late`` where no straggler is accepted."""
        if self.too_late == "route" and not self.corrects:
            raise SpecError(
                "TOO_LATE_WITHOUT_CORRECTIONS",
                "`too_late` says what happens beyond the lateness of corrections",
                where=self.operator,
                got=f"too_late='route' with stragglers={self.stragglers!r}",
                expected="stragglers='update' or 'retract' beside it",
                fix="stragglers='route' delivers every late row",
            )

    def _refuse_names(self) -> None:
        """Refuse two columns of the output with the same name."""
        names = [name for name, _ in self.agg]
        reserved: tuple[str, ...] = RESERVED
        given: dict[str, Any] = {"by": list(self.by), "agg": names}
        columns = [*self.by, *names]
        if self.time_columns != _WINDOW:  # the event time keeps its name in the output
            given, reserved = {"by": list(self.by), "time": self.time, "agg": names}, _EXTRA
            columns.append(self.time)
        fix = "name the aggregate, or rename the key column, differently"
        refuse_taken_names(columns, reserved, given, fix, self.operator)

    def _require_columns(self, schema: pa.Schema) -> None:
        """Refuse a frame without the columns, or with columns of the wrong types."""
        where = self.operator
        pairs = [("time", self.time), *(("by", name) for name in self.by)]
        pairs += self.extra_columns.items()
        # Custom aggregates may not check their columns themselves.
        pairs += [(f"agg: {a!r}", name) for _, a in self.agg for name in a.columns]
        for role, name in pairs:
            if name not in schema.names:
                raise ColumnNotFound(name, schema.names, where=where, role=role)
        require_instant(schema, self.time, where=where)
        require_keys(schema, self.by, where=where)


def parse_aggregates(
    agg: Mapping[str, Aggregation], *, where: str
) -> tuple[tuple[str, Aggregation], ...]:
    """Return the named aggregates as pairs, or raise an error."""
    require_aggregates(agg, where=where)
    return tuple(agg.items())


def parse_optional_delay(delay: Duration | None, *, where: str) -> int | None:
    """Return `delay` in microseconds; None where it was left out."""
    if delay is None:
        return None
    return parse_delay(delay, parameter="delay", where=where)
