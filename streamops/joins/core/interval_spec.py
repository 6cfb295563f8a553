"""Settings of an interval join, bound to the schemas of both sides."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from streamops.changelog.change_types import CHANGE_TYPE
from streamops.joins.core.late import late_type
from streamops.joins.core.naming import Names
from streamops.kernel.pairs import Side, SideName

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
    """How far behind the watermark that judges the rows the event time of a result can lie, at most.

    In whole milliseconds, as Spark keeps its watermark: else ours would be ahead of its delay.

    Examples
    --------
    >>> held_back("left", -5_000, 1_001), held_back("right", -5_000, 1_001)
    (2000, 5000)
    """
    reach = {"full": 0, "right": -lower}.get(how, upper)
    return -(-max(reach, 0) // 1_000) * 1_000


@dataclass(frozen=True, slots=True)
class IntervalSpec:
    """An interval join over columns of known types.

    Parameters
    ----------
    left, right : Side
        Of the left all columns; of the right all, or its key and time where the output has none
        of them.
    how, matches, stragglers, too_late, early : str
        The user's words.
    lower, upper : int
        Microseconds from a left row's time to those of its partners, both ends included.
    tie_break : str, optional
        Column of the right that orders rows of one time; with ``matches`` other than "every".
    allowed_lateness : int
        Microseconds that stragglers are accepted.
    into : str
        Name of the column that says what a row is.
    names : Names
        Columns of a joined row.
    """

    left: Side
    right: Side
    how: How
    lower: int
    upper: int
    matches: Matches
    tie_break: str | None
    allowed_lateness: int
    stragglers: Stragglers
    too_late: TooLate
    early: Early
    into: str
    names: Names

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

    def kept_for(self, side: SideName) -> int:
        """From a row's time to the watermark at which it is forgotten.

        One of many partners is kept until the last left row that it can be the answer to is
        forgotten: the answer is looked up, not stored.
        """
        longer = max(self.upper, 0) if side == "right" and self.attributes else 0
        return self.reach(side) + longer + self.patience

    def side(self, side: SideName) -> Side:
        """The side of this name."""
        return self.left if side == "left" else self.right

    def kept(self, side: SideName) -> tuple[str, ...]:
        """Columns of the side that are kept in state, by name: their order in a frame may change."""
        of = self.side(side)
        assert of.time is not None
        whole = side == "left" or self.joins
        return tuple(sorted(of.input.names if whole else {*of.by, of.time}))

    @property
    def origins(self) -> Mapping[str, tuple[SideName, str]]:
        """Columns of the output that hold values of one of an input."""
        found: dict[str, tuple[SideName, str]] = {n: ("left", n) for n in self.left.input.names}
        if self.joins:
            found |= {name: ("right", own) for own, name in self.names.right}
        return found

    @property
    def output(self) -> pa.Schema:
        """The columns of both sides, what the row is, and what corrections and routing add."""
        fields = list(self.names.schema if self.joins else self.left.input)
        fields.append(pa.field(self.into, pa.string()))
        if self.takes_back:
            fields.append(pa.field(CHANGE_TYPE, pa.string()))
        if self.routes:
            fields.append(pa.field("late", late_type(self.left.input, self.right.input)))
        return pa.schema([field.with_nullable(True) for field in fields])

    @property
    def event_time(self) -> str | None:
        """Column of the output that carries its event time.

        A watermark that a frame brings is Spark's, and cannot be held back for the results that
        lie behind it: then the output has none, unless there are no such results.
        """
        brought = self.left.delay is None or self.right.delay is None
        if self.how == "full" or (brought and self._behind):
            return None
        if self.how != "right":
            return self.left.time
        joined = dict(self.names.right) | dict(zip(self.right.by, self.left.by, strict=True))
        return joined[self.right.time or ""]

    @property
    def lag(self) -> int:
        """How far Spark's watermark must lie behind the operator's own.

        Stragglers are accepted so far back, and results that have waited lie so far back.
        """
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
        said: dict[str, Any] = {
            "by": [list(pair) for pair in zip(self.left.by, self.right.by, strict=True)],
            "time": [self.left.time, self.right.time],
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
            said["tie_break"] = self.tie_break
        return said

    def _columns(self, side: SideName) -> list[list[str]]:
        schema = self.side(side).input
        return [[name, str(schema.field(name).type)] for name in self.kept(side)]
