"""The parameters of an interval join."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import pyarrow as pa

from streamops.changelog.change_types import CHANGE_TYPE
from streamops.joins.core.inputs import (
    ADDED,
    Both,
    own_delays,
    refuse_into,
    refuse_keys,
    refuse_missing,
    shown_both,
    shown_keys,
    shown_names,
)
from streamops.joins.core.late import late_type
from streamops.joins.core.naming import Names, named, refuse_reserved
from streamops.kernel.core import SIDES, Input, SideName
from streamops.kernel.errors import SpecError
from streamops.kernel.ordering import is_comparable
from streamops.kernel.parameters import (
    refuse_type,
    require_choice,
    require_instant,
    require_name,
    show_duration,
)

__all__ = ["Early", "How", "IntervalSpec", "Matches", "Stragglers", "TooLate", "held_back"]

How = Literal["inner", "left", "right", "full", "semi", "anti"]
Matches = Literal["every", "first", "last"]
Stragglers = Literal["drop", "route", "retract"]
TooLate = Literal["drop", "route"]
Early = Literal["never", "every batch"]

_PRESERVE: Mapping[SideName, tuple[How, ...]] = {
    "left": ("left", "full", "anti"),
    "right": ("right", "full"),
}


def held_back(how: How, lower: int, upper: int) -> int:
    """How far behind the watermark the event time of a result can lie, at most.

    In whole milliseconds, as Spark keeps its watermark: else ours would be ahead of its delay.

    Examples
    --------
    >>> held_back("left", -5_000, 1_001), held_back("right", -5_000, 1_001)
    (2000, 5000)
    """
    reach = {"full": 0, "right": -lower}.get(how, upper)
    return -(-max(reach, 0) // 1_000) * 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalSpec:
    """The parameters of an interval join, and what is resolved against the schemas of its inputs.

    Parameters
    ----------
    lower, upper, allowed_lateness : int
        Microseconds.
    by : tuple of (str, str)
        Key columns: name on the left, name on the right.
    time : tuple of str
        Event-time columns, left and right.
    delay : tuple of int, optional
        Delays of the watermarks that the operator defines, in microseconds. Resolved, None for an
        input that brings a watermark.
    how, matches, tie_break, stragglers, too_late, early, into
        As in :func:`streamops.joins.interval`.
    inputs : tuple of Input
        Resolved: all columns of the left; of the right all, or its keys and time if the output has
        no other.
    names : Names
        Resolved: columns of a joined row.
    """

    where: ClassVar[str] = "joins.interval"
    accepts_revisions: ClassVar[tuple[bool, bool]] = (False, False)
    needs_preimages: ClassVar[bool] = False

    lower: int = field(metadata={"shown": show_duration})
    upper: int = field(metadata={"shown": show_duration})
    by: tuple[tuple[str, str], ...] = field(metadata={"shown": shown_keys})
    time: tuple[str, str] = field(metadata={"shown": shown_names})
    how: How
    matches: Matches
    tie_break: str | None
    delay: Both = field(metadata={"shown": shown_both})
    allowed_lateness: int = field(metadata={"shown": show_duration})
    stragglers: Stragglers
    too_late: TooLate
    early: Early
    into: str
    inputs: tuple[Input, ...] = field(default=(), repr=False)
    names: Names = field(default=Names(pa.schema([]), ()), repr=False)

    def __post_init__(self) -> None:
        for value, known, parameter in (
            (self.how, How, "how"),
            (self.matches, Matches, "matches"),
            (self.stragglers, Stragglers, "stragglers"),
            (self.too_late, TooLate, "too_late"),
            (self.early, Early, "early"),
        ):
            require_choice(value, known, parameter=parameter, where=self.where)
        refuse_into(self.into, where=self.where)
        if self.tie_break is not None:
            require_name(self.tie_break, parameter="tie_break", where=self.where)
        self._refuse_contradictions()

    @property
    def times(self) -> tuple[str, str]:
        """Event-time columns."""
        return self.time

    @property
    def delays(self) -> Both:
        """Delays of the watermarks that the operator defines."""
        return self.delay

    @property
    def reads(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Columns whose values are compared."""
        left, right = zip(*self.by, strict=True)
        ties = () if self.tie_break is None else (self.tie_break,)
        return (*left, self.times[0]), (*right, self.times[1], *ties)

    def resolve(
        self, schemas: tuple[pa.Schema, ...], *, carried: tuple[int | None, ...], shards: int
    ) -> IntervalSpec:
        """The parameters over these columns."""
        left, right = schemas
        left_by, right_by = zip(*self.by, strict=True)
        ties = [] if self.tie_break is None else [self.tie_break]
        required = {"time": self.time[:1], "by": left_by}
        refuse_missing(left, required, where=f"{self.where}, left frame")
        required = {"time": self.time[1:], "by": right_by}
        refuse_missing(right, required | {"tie_break": ties}, where=f"{self.where}, right frame")
        require_instant(left, self.time[0], where=f"{self.where}, left frame")
        require_instant(right, self.time[1], where=f"{self.where}, right frame")
        refuse_keys(left, right, self.by, where=self.where)
        if ties and not is_comparable(right.field(ties[0]).type):
            fix = "name a column that counts: a log position, an id that grows"
            use, expected = "a tie-break", "values that have an order"
            refuse_type(right, ties[0], use, expected, fix, where=f"{self.where}, right frame")
        names = named(left, right if self.joins else pa.schema([]), self.by, self.where)
        changes, late = ADDED
        added = [self.into]
        added += [changes] if self.takes_back else []
        added += [late] if self.routes else []
        fix = "rename the column before the join, or name the added one otherwise by into=..."
        refuse_reserved(names.schema.names, added, fix, self.where)
        if not (self.joins or self.routes):
            right = pa.schema([f for f in right if f.name in {*right_by, self.time[1]}])
        delay = own_delays(self.delay, (carried[0], carried[1]))
        inputs = (
            Input(left_by, self.time[0], left, delay[0]),
            Input(right_by, self.time[1], right, delay[1]),
        )
        return replace(self, delay=delay, inputs=inputs, names=names)

    @property
    def left(self) -> Input:
        """The left input, resolved."""
        return self.inputs[0]

    @property
    def right(self) -> Input:
        """The right input, resolved."""
        return self.inputs[1]

    @property
    def attributes(self) -> bool:
        """Whether a left row is joined with one of its partners only."""
        return self.matches != "every"

    @property
    def corrects(self) -> bool:
        """Whether what is final can change."""
        return self.stragglers == "retract"

    @property
    def is_early(self) -> bool:
        """Whether rows are published before they are final."""
        return self.early != "never"

    @property
    def takes_back(self) -> bool:
        """Whether the output is a change stream."""
        return self.corrects or self.is_early

    @property
    def routes(self) -> bool:
        """Whether late rows are delivered, so that rows must travel whole."""
        return self.stragglers == "route" or self.too_late == "route"

    @property
    def patience(self) -> int:
        """How far behind the watermark rows are still accepted."""
        return self.allowed_lateness if self.corrects else 0

    @property
    def joins(self) -> bool:
        """Whether the output has columns of the right."""
        return self.how not in ("semi", "anti")

    def preserves(self, side: SideName) -> bool:
        """Whether rows of this side without a partner are published."""
        return self.how in _PRESERVE[side]

    def remembers(self, side: SideName) -> bool:
        """Whether state says what a row of this side was published as."""
        return self.preserves(side) or (side == "left" and self.attributes)

    def reach(self, side: SideName) -> int:
        """From a row's time to the last time at which it can have a partner."""
        return self.upper if side == "left" else -self.lower

    def retention(self, side: SideName) -> int:
        """From a row's time to the watermark at which it is forgotten.

        One of many partners is kept until the last left row that it can be the answer to is
        forgotten: the answer is looked up, not stored.
        """
        longer = max(self.upper, 0) if side == "right" and self.attributes else 0
        return self.reach(side) + longer + self.patience

    def side(self, side: SideName) -> Input:
        """The input of this name, resolved."""
        return self.inputs[SIDES.index(side)]

    def stored_columns(self, side: SideName) -> tuple[str, ...]:
        """Columns of the side that are kept in state, by name: their order in a frame may change."""
        of = self.side(side)
        assert of.time is not None
        whole = side == "left" or self.joins
        return tuple(sorted(of.schema.names if whole else {*of.by, of.time}))

    @property
    def origins(self) -> Mapping[str, tuple[int, str]]:
        """Columns of the output that hold values of one of an input."""
        found = {name: (0, name) for name in self.left.schema.names}
        if self.joins:
            found |= {name: (1, own) for own, name in self.names.right}
        return found

    @property
    def output(self) -> pa.Schema:
        """The columns of both sides, what the row is, and what corrections and routing add."""
        fields = list(self.names.schema if self.joins else self.left.schema)
        fields.append(pa.field(self.into, pa.string()))
        if self.takes_back:
            fields.append(pa.field(CHANGE_TYPE, pa.string()))
        if self.routes:
            fields.append(pa.field("late", late_type(self.left.schema, self.right.schema)))
        return pa.schema([field.with_nullable(True) for field in fields])

    @property
    def event_time(self) -> str | None:
        """Column of the output that carries its event time.

        A watermark that a frame brings is Spark's, and cannot be held back for the results that
        lie behind it: then the output has none, unless there are no such results.
        """
        if self.how == "full" or (None in self.delay and self._behind):
            return None
        if self.how != "right":
            return self.time[0]
        joined = dict(self.names.right) | {right: left for left, right in self.by}
        return joined[self.time[1]]

    @property
    def lag(self) -> int:
        """How far Spark's watermark must lie behind the operator's own.

        By the allowed lateness, and by what results that have waited lie behind. A watermark that a
        frame brings cannot be held back for them.
        """
        if not self.inputs:
            return self.allowed_lateness + (0 if None in self.delay else self._behind)
        return self.allowed_lateness + self.held_back

    @property
    def held_back(self) -> int:
        """The part of the lag that is for results which are on time and have waited."""
        return self._behind if self.event_time is not None else 0

    @property
    def _behind(self) -> int:
        return held_back(self.how, self.lower, self.upper)

    @property
    def identity(self) -> Mapping[str, Any]:
        """Everything the state depends on. ``delay`` is not in it: it may change."""
        identity: dict[str, Any] = {
            "by": [list(pair) for pair in self.by],
            "time": list(self.time),
            "left": self._columns("left"),
            "right": self._columns("right"),
            "how": self.how,
            "lower": self.lower,
            "upper": self.upper,
            "matches": self.matches,
            "allowed_lateness": self.allowed_lateness,
            "stragglers": self.stragglers,
            "too_late": self.too_late,
            "early": self.early,
        }
        if self.tie_break is not None:
            identity["tie_break"] = self.tie_break
        return identity

    def _columns(self, side: SideName) -> list[list[str]]:
        schema = self.side(side).schema
        return [[name, str(schema.field(name).type)] for name in self.stored_columns(side)]

    def _refuse_contradictions(self) -> None:
        if self.lower > self.upper:
            raise SpecError(
                "BOUNDS_REVERSED",
                "no time lies between the bounds",
                where=self.where,
                got=f"lower={show_duration(self.lower)}, upper={show_duration(self.upper)}",
                expected="lower <= upper, both measured from the left row's time to the right's",
                fix="exchange them; a right row that comes first has a negative bound",
            )
        if self.too_late == "route" and self.stragglers != "retract":
            raise SpecError(
                "TOO_LATE_WITHOUT_CORRECTIONS",
                "`too_late` says what happens beyond the lateness of corrections",
                where=self.where,
                got=f"too_late='route' with stragglers={self.stragglers!r}",
                expected="stragglers='retract' beside it",
                fix="stragglers='route' delivers every late row",
            )
        self._refuse_attribution()
        lone = self.how in ("left", "right", "full", "anti")
        if self.early != "never" and not lone and self.matches == "every":
            raise SpecError(
                "NOTHING_EARLY",
                "a match is final at once, and nothing else is published",
                where=self.where,
                got=f"early={self.early!r} with how={self.how!r}",
                expected="how='left', 'right', 'full' or 'anti', or matches='first' or 'last'",
                fix="leave early out",
            )

    def _refuse_attribution(self) -> None:
        if self.matches == "every":
            if self.tie_break is not None:
                raise SpecError(
                    "TIE_BREAK_WITHOUT_CHOICE",
                    "every match is published: there is nothing to choose",
                    where=self.where,
                    got=f"tie_break={self.tie_break!r} with matches='every'",
                    expected="matches='first' or 'last' beside it",
                    fix="leave tie_break out",
                )
            return
        if self.how not in ("inner", "left"):
            raise SpecError(
                "MATCHES_OF_LEFT_ROWS",
                "one match is chosen for each left row, which says nothing of the right's",
                where=self.where,
                got=f"matches={self.matches!r} with how={self.how!r}",
                expected="how='inner' or 'left'; 'semi' and 'anti' ask for no particular match",
                fix="how='left', or matches='every'",
            )
        if self.tie_break is None:
            raise SpecError(
                "TIE_BREAK_MISSING",
                "which of two right rows of the same time is meant would be left to chance",
                where=self.where,
                got=f"matches={self.matches!r} without tie_break",
                expected="a column of the right that orders rows of one time",
                fix='tie_break="id", say: an id that grows, a log position, an offset',
            )
