"""The parameters of an interval join."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import pyarrow as pa

from streamops.joins import conditions
from streamops.joins.core.join_spec import (
    JoinSpec,
    added_columns,
    require_into,
    require_key_types,
    require_order,
    show_pair,
)
from streamops.kernel.core import SIDES, Input, SideName
from streamops.kernel.errors import located
from streamops.kernel.groups import Mask
from streamops.kernel.operator import checkpointed
from streamops.kernel.parameters import (
    Delays,
    require_columns,
    require_instant,
    show_delays,
    show_duration,
)
from streamops.kernel.time import BEFORE_ALL, Instants

How = Literal["inner", "left", "right", "full", "semi", "anti"]
Matches = Literal["every", "first", "last"]
Stragglers = Literal["drop", "route", "retract"]
TooLate = Literal["drop", "route"]
Early = Literal["never", "every batch"]

_PRESERVE: Mapping[SideName, tuple[How, ...]] = {
    "left": ("left", "full", "anti"),
    "right": ("right", "full"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalSpec(JoinSpec):
    """The parameters of :func:`streamops.joins.interval`. Durations are in microseconds.

    If the output has no columns of the right, its resolved input has the keys and the time only.
    """

    lower: int = checkpointed(metadata={"shown": show_duration})
    upper: int = checkpointed(metadata={"shown": show_duration})
    time: tuple[str, str] = checkpointed(metadata={"shown": show_pair})
    how: How = checkpointed()
    matches: Matches = checkpointed()
    tie_break: str | None = checkpointed()
    delay: Delays = field(metadata={"shown": show_delays})
    allowed_lateness: int = checkpointed(metadata={"shown": show_duration})
    stragglers: Stragglers = checkpointed()
    too_late: TooLate = checkpointed()
    early: Early = checkpointed()
    into: str
    final: int = field(default=BEFORE_ALL, repr=False)
    """Rows whose time is that of the results are final up to here, whatever the bounds are."""

    def __post_init__(self) -> None:
        require_into(self.into)
        self._refuse_contradictions()

    @property
    def declared(self) -> tuple[Input, Input]:
        """Rows of both sides."""
        ties = () if self.tie_break is None else (self.tie_break,)
        left, right = self.time
        return (
            Input(self.left_by, left, delay=self.delay[0], columns=(left,)),
            Input(self.right_by, right, delay=self.delay[1], columns=(right, *ties)),
        )

    def resolve(
        self, schemas: Sequence[pa.Schema], *, carried: Sequence[int | None], shards: int
    ) -> IntervalSpec:
        """Resolve the parameters against the schemas of both sides."""
        left, right = schemas
        ties = [] if self.tie_break is None else [self.tie_break]
        with located(at="left frame"):
            require_columns(left.names, {"time": self.time[:1], "by": self.left_by})
            require_instant(left, self.time[0])
        with located(at="right frame"):
            used = {"time": self.time[1:], "by": self.right_by, "tie_break": ties}
            require_columns(right.names, used)
            require_instant(right, self.time[1])
        require_key_types(left, right, self.by)
        for name in ties:
            with located(at="right frame"):
                require_order(right, name, "a tie-break")
        joined = right if self.joins else pa.schema([])
        if not (self.joins or self.routes):
            right = pa.schema([f for f in right if f.name in {*self.right_by, self.time[1]}])
        late = (left, right) if self.routes else None
        added = added_columns(self.into, changes=self.is_change_stream, late=late)
        inputs = self.resolve_inputs((left, right), carried)
        return self.with_columns(inputs, left, joined, added)

    @property
    def attributes(self) -> bool:
        """Whether a left row is joined with one of its partners only."""
        return self.matches != "every"

    @property
    def corrects(self) -> bool:
        """Whether stragglers are joined, so that final results can change."""
        return self.stragglers == "retract"

    @property
    def is_early(self) -> bool:
        """Whether rows are emitted before they are final."""
        return self.early != "never"

    @property
    def is_change_stream(self) -> bool:
        """Whether the output is a change stream."""
        return self.corrects or self.is_early

    @property
    def routes(self) -> bool:
        """Whether late rows are emitted as side output."""
        return self.stragglers == "route" or self.too_late == "route"

    @property
    def joins(self) -> bool:
        """Whether the output has columns of the right."""
        return self.how not in ("semi", "anti")

    def preserves(self, side: SideName) -> bool:
        """Whether rows of this side without a partner are emitted."""
        return self.how in _PRESERVE[side]

    def stores_status(self, side: SideName) -> bool:
        """Whether the state has the status that a row of this side was emitted with."""
        return self.preserves(side) or (side == "left" and self.attributes)

    def reach(self, side: SideName) -> int:
        """From the time of a row to the last time at which it can have a partner."""
        return self.upper if side == "left" else -self.lower

    def retention(self, side: SideName) -> int:
        """From the time of a row to the watermark at which it is evicted.

        With "first" and "last" a right row is stored until the last left row that it can answer is
        evicted: answers are looked up, not stored.
        """
        longer = max(self.upper, 0) if side == "right" and self.attributes else 0
        return self.reach(side) + longer + (self.allowed_lateness if self.corrects else 0)

    def is_final(self, side: SideName, times: Instants, watermark: int) -> Mask:
        """Whether rows can have no further partner on time."""
        final: Mask = times + self.reach(side) <= watermark
        return final | self.is_settled(side, times)

    def is_settled(self, side: SideName, times: Instants) -> Mask:
        """Whether rows were final by the bounds of before, see :mod:`streamops.kernel.lag`."""
        has_time = (side == "right") == (self.how == "right")
        settled: Mask = times <= (self.final if has_time else BEFORE_ALL)
        return settled

    def side(self, side: SideName) -> Input:
        """The input of this name, resolved."""
        return self.inputs[SIDES.index(side)]

    def stored_columns(self, side: SideName) -> tuple[str, ...]:
        """Columns of the side in state, sorted by name: their order in a frame may change."""
        side_input = self.side(side)
        assert side_input.time is not None
        if side == "left" or self.joins:
            return tuple(sorted(side_input.schema.names))
        return tuple(sorted({*side_input.by, side_input.time}))

    @property
    def event_time(self) -> str | None:
        """Column of the output with its event time.

        A watermark that a frame brings cannot be held back for results that lie behind it. If there are
        such results, the output has no event time.
        """
        if self.how == "full" or (self._has_carried_watermark and self._lateness_of_results):
            return None
        if self.how != "right":
            return self.time[0]
        joined = dict(self.names.right) | {right: left for left, right in self.by}
        return joined[self.time[1]]

    @property
    def lag(self) -> int:
        """How far Spark's watermark must lie behind the operator's own.

        By the allowed lateness; and by as much as results on time lie behind, unless a frame brings the
        watermark.
        """
        if self.resolved:
            return self.allowed_lateness + self.held_back
        own = not self._has_carried_watermark
        return self.allowed_lateness + (self._lateness_of_results if own else 0)

    def lag_of(self, identity: Mapping[str, Any]) -> int:
        """The lag of an operator with this identity."""
        names = ("lower", "upper", "how", "matches", "tie_break", "allowed_lateness", "stragglers")
        before = {name: identity[name] for name in (*names, "too_late", "early")}
        return replace(self, **before).lag

    @property
    def held_back(self) -> int:
        """How far behind the watermark a result on time can lie, if the output has an event time."""
        return self._lateness_of_results if self.event_time is not None else 0

    @property
    def _has_carried_watermark(self) -> bool:
        delays = [side.delay for side in self.inputs] if self.inputs else self.delay
        return None in delays

    @property
    def _lateness_of_results(self) -> int:
        """How far behind the watermark a result can lie.

        In whole milliseconds, as in Spark's watermark: otherwise the delay would be too short.
        """
        reach = {"full": 0, "right": -self.lower}.get(self.how, self.upper)
        return -(-max(reach, 0) // 1_000) * 1_000

    @property
    def identity(self) -> Mapping[str, Any]:
        """All that the state depends on. ``delay`` may change."""
        columns: dict[str, Any] = {side: self._columns(side) for side in SIDES}
        return {**super(IntervalSpec, self).identity, **columns}

    def _columns(self, side: SideName) -> list[list[str]]:
        schema = self.side(side).schema
        return [[name, str(schema.field(name).type)] for name in self.stored_columns(side)]

    def _refuse_contradictions(self) -> None:
        if self.lower > self.upper:
            raise conditions.BOUNDS_REVERSED.error(
                got=f"lower={show_duration(self.lower)}, upper={show_duration(self.upper)}"
            )
        if self.too_late == "route" and self.stragglers != "retract":
            raise conditions.TOO_LATE_WITHOUT_CORRECTIONS.error(
                got=f"too_late='route' with stragglers={self.stragglers!r}"
            )
        self._refuse_attribution()
        preserved = any(self.preserves(side) for side in SIDES)
        if self.early != "never" and not preserved and self.matches == "every":
            raise conditions.EARLY_WITHOUT_EFFECT.error(
                got=f"early={self.early!r} with how={self.how!r}"
            )

    def _refuse_attribution(self) -> None:
        if self.matches == "every":
            if self.tie_break is not None:
                raise conditions.TIE_BREAK_WITHOUT_CHOICE.error(
                    got=f"tie_break={self.tie_break!r} with matches='every'"
                )
            return
        if self.how not in ("inner", "left"):
            raise conditions.MATCHES_OF_LEFT_ROWS.error(
                got=f"matches={self.matches!r} with how={self.how!r}"
            )
        if self.tie_break is None:
            raise conditions.TIE_BREAK_MISSING.error(
                got=f"matches={self.matches!r} without tie_break"
            )
