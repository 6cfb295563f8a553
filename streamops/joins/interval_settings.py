"""What a user says about interval joins, validated once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import pyarrow as pa

from streamops.joins.core.interval_spec import (
    Early,
    How,
    IntervalSpec,
    Matches,
    Stragglers,
    TooLate,
    held_back,
)
from streamops.joins.core.naming import named, refuse_reserved
from streamops.joins.inputs import (
    ADDED,
    Both,
    delays_of,
    keys_of,
    own_delays,
    refuse_into,
    refuse_keys,
    refuse_missing,
    shown_both,
    shown_keys,
    shown_names,
    times_of,
)
from streamops.kernel.errors import SpecError
from streamops.kernel.ordering import is_comparable
from streamops.kernel.pairs import Side
from streamops.kernel.time import Duration, parse_duration
from streamops.spark.columns import require_name
from streamops.spark.parameters import parse_delay, refuse_type, require_instant, show_duration
from streamops.spark.transform import require_choice

__all__ = ["IntervalJoin"]

_DEFINES = {"shown": show_duration, "first": True}


@dataclass(frozen=True, slots=True)
class IntervalJoin:
    """Settings of interval joins; durations in microseconds."""

    where: str = field(repr=False)
    lower: int = field(metadata=_DEFINES)
    upper: int = field(metadata=_DEFINES)
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

    of_results: ClassVar[tuple[bool, bool]] = (False, False)
    needs_preimages: ClassVar[bool] = False

    @staticmethod
    def of(
        where: str,
        lower: Duration,
        upper: Duration,
        *,
        by: str | Sequence[str] | Mapping[str, str],
        time: str | tuple[str, str],
        how: How,
        matches: Matches,
        tie_break: str | None,
        delay: Duration | tuple[Duration | None, Duration | None] | None,
        allowed_lateness: Duration,
        stragglers: Stragglers,
        too_late: TooLate,
        early: Early,
        into: str,
    ) -> IntervalJoin:
        """Settings as the user wrote them, normalised, or an error."""
        for value, known, parameter in (
            (how, How, "how"),
            (matches, Matches, "matches"),
            (stragglers, Stragglers, "stragglers"),
            (too_late, TooLate, "too_late"),
            (early, Early, "early"),
        ):
            require_choice(value, known, parameter=parameter, where=where)
        refuse_into(into, where=where)
        if tie_break is not None:
            require_name(tie_break, parameter="tie_break", where=where)
        settings = IntervalJoin(
            where=where,
            lower=parse_duration(lower, parameter="lower", where=where),
            upper=parse_duration(upper, parameter="upper", where=where),
            by=keys_of(by, where=where),
            time=times_of(time, where=where),
            how=how,
            matches=matches,
            tie_break=tie_break,
            delay=delays_of(delay, where=where),
            allowed_lateness=parse_delay(
                allowed_lateness, parameter="allowed_lateness", where=where
            ),
            stragglers=stragglers,
            too_late=too_late,
            early=early,
            into=into,
        )
        settings._refuse_contradictions()
        return settings

    @property
    def times(self) -> tuple[str, str]:
        """Event-time columns."""
        return self.time

    @property
    def delays(self) -> Both:
        """Delays of the watermarks that the operator defines."""
        return self.delay

    @property
    def lag(self) -> int:
        """How far Spark's watermark must lie behind the operator's own: see ``IntervalSpec.lag``."""
        if None in self.delay:
            return self.allowed_lateness
        return self.allowed_lateness + held_back(self.how, self.lower, self.upper)

    @property
    def reads(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Columns whose values are compared."""
        left, right = zip(*self.by, strict=True)
        ties = () if self.tie_break is None else (self.tie_break,)
        return (*left, self.times[0]), (*right, self.times[1], *ties)

    @property
    def routes(self) -> bool:
        """Whether late rows are delivered."""
        return "route" in (self.stragglers, self.too_late)

    def bind(self, left: pa.Schema, right: pa.Schema, *, carried: Both) -> IntervalSpec:
        """The spec over these columns."""
        ours, theirs = zip(*self.by, strict=True)
        ties = [] if self.tie_break is None else [self.tie_break]
        asked = {"time": self.times[:1], "by": ours}
        refuse_missing(left, asked, where=f"{self.where}, left frame")
        asked = {"time": self.times[1:], "by": theirs}
        refuse_missing(right, asked | {"tie_break": ties}, where=f"{self.where}, right frame")
        require_instant(left, self.times[0], where=f"{self.where}, left frame")
        require_instant(right, self.times[1], where=f"{self.where}, right frame")
        refuse_keys(left, right, self.by, where=self.where)
        if ties and not is_comparable(right.field(ties[0]).type):
            fix = "name a column that counts: a log position, an id that grows"
            use, expected = "a tie-break", "values that have an order"
            refuse_type(right, ties[0], use, expected, fix, where=f"{self.where}, right frame")
        joined = self.how not in ("semi", "anti")
        names = named(left, right if joined else pa.schema([]), self.by, self.where)
        added = [self.into]
        changes, late = ADDED
        added += [changes] if self.stragglers == "retract" or self.early != "never" else []
        added += [late] if self.routes else []
        fix = "rename the column before the join, or name the added one otherwise by into=..."
        refuse_reserved(names.schema.names, added, fix, self.where)
        read = {*theirs, self.times[1]}
        whole = joined or self.routes
        seen = right if whole else pa.schema([f for f in right if f.name in read])
        one, other = own_delays(self.delays, carried)
        return IntervalSpec(
            left=Side(ours, self.times[0], left, one),
            right=Side(theirs, self.times[1], seen, other),
            how=self.how,
            lower=self.lower,
            upper=self.upper,
            matches=self.matches,
            tie_break=self.tie_break,
            allowed_lateness=self.allowed_lateness,
            stragglers=self.stragglers,
            too_late=self.too_late,
            early=self.early,
            into=self.into,
            names=names,
        )

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
