"""Parameters that the window operators share.

A public function such as :func:`streamops.windows.tumbling` builds the dataclass of its operator from
its arguments. ``resolve`` checks the dataclass against the columns of a frame, and fills in the fields
that depend on them. The algorithm reads the same dataclass.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Self, cast, get_args

import pyarrow as pa

from streamops.changelog.change_types import CHANGE_TYPE, REVISION
from streamops.kernel.added import Added
from streamops.kernel.aggregation import Aggregation, Summary, aggregate_identity
from streamops.kernel.calendar import DAY, Unit, require_zone
from streamops.kernel.core import Identity
from streamops.kernel.errors import Condition, SpecError
from streamops.kernel.lateness import INSTANT, LATE, late_field
from streamops.kernel.operator import ShardSpec, checkpointed
from streamops.kernel.parameters import (
    refuse_taken_names,
    require_choice,
    require_columns,
    require_instant,
    require_keys,
    show_duration,
)
from streamops.kernel.time import BEFORE_ALL, Duration, parse_duration
from streamops.windows import conditions

Stragglers = Literal["drop", "route", "update", "retract"]
TooLate = Literal["drop", "route"]
Early = Literal["never", "every batch"]
Turned = Literal["", "on", "off"]
"""Whether this is the first step with early results, or the first one without them."""

DURATION = {"shown": show_duration}
"""Metadata of a field in microseconds that ``repr`` shows as a duration."""

_WINDOW = ("window_start", "window_end")
_EXTRA = (REVISION, "timing", CHANGE_TYPE, LATE)
RESERVED = (*_WINDOW, *_EXTRA)
"""Names of the columns that window results have."""

_SHORTEST = {"day": 1, "week": 7, "month": 28, "quarter": 90, "year": 365}  # days
_CLOCK_CHANGE = DAY // 12  # clocks are put forward by two hours at most


def is_corrected(stragglers: str) -> bool:
    """Whether stragglers correct published results."""
    return stragglers in ("update", "retract")


def is_early(early: str) -> bool:
    """Whether results are published before they are on time."""
    return early != "never"


def identity_of_aggregates(
    spec: AggregatingSpec, aggregates: tuple[tuple[str, str, Summary], ...]
) -> list[list[str]]:
    """The aggregates in the identity of a checkpoint."""
    return [aggregate_identity(name, written, of, spec.input) for name, written, of in aggregates]


class AggregatingSpec:
    """Parameters of operators that aggregate per key. The fields are those of the subclasses.

    ``agg`` has pairs of a name and an aggregate. ``resolve`` fills in ``input``, the columns that are
    read, and ``aggregates``: name, ``repr`` and implementation of each aggregate.
    """

    __slots__ = ()

    operator: str
    by: tuple[str, ...]
    agg: tuple[tuple[str, Aggregation], ...]
    input: pa.Schema
    aggregates: tuple[tuple[str, str, Summary], ...]

    @property
    def aggregated(self) -> tuple[str, ...]:
        """Columns that the aggregates read."""
        return tuple(name for _, aggregation in self.agg for name in aggregation.columns)

    @property
    def keys(self) -> list[pa.Field]:
        """Fields of the key columns."""
        return [self.input.field(name) for name in self.by]

    @property
    def summaries(self) -> list[Summary]:
        """Implementations of the aggregates, in order."""
        return [summary for _, _, summary in self.aggregates]

    @property
    def value_columns(self) -> list[tuple[str, pa.DataType]]:
        """Name and type of the columns that a result has per key and window."""
        return [(name, summary.result) for name, _, summary in self.aggregates]

    def bind_aggregates(self, schema: pa.Schema, time: str) -> tuple[tuple[str, str, Summary], ...]:
        """Bind the aggregates to the columns of a frame."""
        return tuple(
            (name, repr(aggregation), aggregation.bind(schema, time=time))
            for name, aggregation in self.agg
        )

    def with_added(self, numbers: Collection[int]) -> Self:
        """The parameters, with these aggregates as ones some of whose states are unknown."""
        aggregates = tuple(
            (name, written, Added(summary) if number in numbers else summary)
            for number, (name, written, summary) in enumerate(self.aggregates)
        )
        of: Any = self
        return cast("Self", replace(of, aggregates=aggregates))

    def require_columns(self, schema: pa.Schema, **columns: str) -> None:
        """Refuse a frame without the key columns, aggregated columns, or these columns by parameter."""
        required = {role: [name] for role, name in columns.items()} | {"by": [*self.by]}
        # Custom aggregates may not check their columns themselves.
        required |= {f"agg: {aggregate!r}": [*aggregate.columns] for _, aggregate in self.agg}
        require_columns(schema.names, required)

    def refuse_no_aggregate(self) -> None:
        """Refuse an operator without aggregates."""
        if not self.agg:
            raise conditions.NO_AGGREGATE.error(got="agg={}")


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowSpec(AggregatingSpec, ShardSpec, ABC):
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
        Delay of the watermark that the operator defines. ``inputs`` passes it to the driver
        (``spark/drive.py``), which defines Spark's watermark; ``spark/step.py`` computes the
        operator's watermark from that, by which ``core.step`` closes windows. None if the frame has a
        watermark.
    allowed_lateness : int
        How much longer stragglers are accepted.
    stragglers, too_late : str
        What happens to rows of windows that are already published, and to rows beyond the allowed
        lateness.
    early : str
        Whether results are published before their window closes.
    closed : int
        Windows that end up to here left the state before `allowed_lateness` was raised: their rows are too late.
    final : int
        Windows that end up to here are final after this step: see :mod:`streamops.kernel.lag`.
    turned : str
        Whether `early` was turned on or off just now: open windows are published, or taken back.
    input : Schema
        Resolved: the columns that are read; all columns of the frame if late rows are routed.
    aggregates : tuple of (name, repr, summary)
        Resolved: each aggregate as the user wrote it, and its implementation.
    """

    time: str = checkpointed()
    agg: tuple[tuple[str, Aggregation], ...]
    allowed_lateness: int = checkpointed(metadata=DURATION)
    stragglers: Stragglers = checkpointed()
    too_late: TooLate = checkpointed()
    early: Early = checkpointed(default="never")
    closed: int = field(default=BEFORE_ALL, repr=False)
    final: int = field(default=BEFORE_ALL, repr=False)
    turned: Turned = field(default="", repr=False)
    aggregates: tuple[tuple[str, str, Summary], ...] = checkpointed(
        identity_of_aggregates, {"parameter": "agg"}, default=(), repr=False
    )

    def resolve(
        self, schemas: Sequence[pa.Schema], *, carried: Sequence[int | None], shards: int
    ) -> Self:
        """Resolve the columns and aggregates, see :class:`streamops.spark.definition.Parameters`."""
        (schema,) = schemas
        self.require_columns(schema, time=self.time, **self.extra_columns)
        require_instant(schema, self.time)
        require_keys(schema, self.by)
        aggregates = self.bind_aggregates(schema, self.time)
        read = {self.time, *self.by, *self.extra_columns.values()}
        read |= {column for *_, summary in aggregates for column in summary.inputs}
        return replace(
            self,
            input=schema if self.routes else pa.schema([f for f in schema if f.name in read]),
            aggregates=aggregates,
            delay=None if carried[0] is not None else self.delay,
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """Further columns, and those that are aggregated."""
        return (*self.extra_columns.values(), *self.aggregated)

    @property
    def extra_columns(self) -> Mapping[str, str]:
        """Further columns that the operator reads, by the parameter that names them."""
        return {}

    @property
    def lag(self) -> int:
        """How far Spark's watermark must lie behind the operator's own."""
        return self.allowed_lateness

    def lag_of(self, identity: Identity) -> int:
        """The lag of an operator with this identity."""
        lag: int = identity["allowed_lateness"]
        return lag

    @property
    def time_columns(self) -> tuple[str, ...]:
        """Columns of the output that identify a result of a key. The last one is its event time."""
        return _WINDOW

    @property
    def event_time(self) -> str:
        """Event-time column of the output."""
        return self.time_columns[-1]

    @property
    def corrects(self) -> bool:
        """Whether stragglers correct published results."""
        return is_corrected(self.stragglers)

    @property
    def routes(self) -> bool:
        """Whether late rows go to the side output, with all their columns."""
        return self.stragglers == "route" or self.too_late == "route"

    @property
    def is_early(self) -> bool:
        """Whether results are published before they are on time."""
        return is_early(self.early)

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

    def final_by(self, watermark: int) -> int:
        """Windows that end up to here cannot change any more."""
        return max(watermark - (self.allowed_lateness if self.corrects else 0), self.closed)

    def finalized(self) -> Self:
        """The parameters after a step: what is final now has left the state."""
        return replace(self, closed=max(self.closed, self.final))

    def is_bound_at(self, watermark: int) -> bool:
        """Whether `closed` still matters: windows could change without it."""
        return self.closed > replace(self, closed=BEFORE_ALL).final_by(watermark)

    def allowed_by(self, watermark: int) -> int:
        """The allowed lateness of rows that are compared with a watermark."""
        return watermark - self.final_by(watermark) if self.corrects else self.allowed_lateness

    @property
    def origins(self) -> dict[str, tuple[int, str]]:
        """Output columns with values of an input column, or lists of them."""
        found = {name: (0, name) for name in self.by}
        for name, _, summary in self.aggregates:
            if summary.inputs:
                dtype = self.input.field(summary.inputs[0]).type
                if summary.result in (dtype, pa.list_(dtype)):
                    found[name] = (0, summary.inputs[0])
        return found

    @property
    def output(self) -> pa.Schema:
        """Keys, window and values, then the columns that corrections and routing add."""
        extra: list[pa.Field | tuple[str, pa.DataType]] = []
        if self.revises:
            extra.append((REVISION, pa.int32()))
        if self.is_early:
            extra.append(("timing", pa.string()))
        if self.retracts:
            extra.append((CHANGE_TYPE, pa.string()))
        if self.routes:
            extra.append(late_field(self.input))
        window = ((name, INSTANT) for name in self.time_columns)
        return pa.schema([*self.keys, *window, *self.value_columns, *extra])

    def refuse_contradictions(self) -> None:
        """Refuse parameters that contradict each other."""
        self.refuse_too_late_without_corrections()
        if self.corrects and not self.allowed_lateness and not self.is_early:
            raise conditions.NOTHING_TO_CORRECT.error(
                got=f"stragglers={self.stragglers!r} with allowed_lateness='0 seconds'"
            )
        self.refuse_no_aggregate()
        self._refuse_names()

    def refuse_too_late_without_corrections(self) -> None:
        """Refuse ``too_late`` where no straggler is accepted."""
        if self.too_late == "route" and not self.corrects:
            raise conditions.TOO_LATE_WITHOUT_CORRECTIONS.error(
                got=f"too_late='route' with stragglers={self.stragglers!r}"
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
        refuse_taken_names(columns, reserved, given)


def parse_length(
    length: Duration | Unit,
    zone: str | None,
    condition: Condition[SpecError],
    *,
    parameter: str,
) -> int | Unit:
    """Parse a duration to microseconds, or return a calendar unit if there is a zone.

    ``condition`` is that of a unit without a zone.
    """
    if zone is not None:
        return cast("Unit", length)  # the spec checks that it is one
    if isinstance(length, str) and length in get_args(Unit):
        got = f"{parameter}={length!r} without zone"
        raise condition.error(parameter=parameter, unit=length, got=got)
    return parse_duration(length, parameter=parameter, minimum=1)


def show_length(length: int | Unit) -> str:
    """A length for ``repr``: a duration or a unit."""
    return repr(length) if isinstance(length, str) else show_duration(length)


def shortest_unit(unit: Unit) -> int:
    """Return a lower bound of the length of a unit, in microseconds."""
    return _SHORTEST[unit] * DAY - _CLOCK_CHANGE


def require_unit(unit: object, zone: object, week_start: object, *, parameter: str) -> None:
    """Refuse an unknown unit, weekday or time zone, and a weekday without weeks."""
    require_choice(unit, Unit, parameter=parameter)
    require_zone(zone)
    if unit != "week" and week_start != "monday":
        raise conditions.WEEK_START_WITHOUT_WEEK.error(
            parameter=parameter, got=f"week_start={week_start!r} with {parameter}={unit!r}"
        )
