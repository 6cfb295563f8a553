"""The parameters of an as-of join."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Literal

import pyarrow as pa

from streamops.changelog.change_types import CHANGE_TYPE, REVISION
from streamops.changelog.table import TOMBSTONE, UNAVAILABLE, refuse_change_type
from streamops.joins.core.inputs import (
    Both,
    own_delays,
    refuse_into,
    refuse_keys,
    refuse_missing,
    sequence_of_revisions,
    shown_both,
    shown_keys,
)
from streamops.joins.core.late import late_type
from streamops.joins.core.naming import Names, named, refuse_reserved
from streamops.kernel.core import Input
from streamops.kernel.errors import SchemaError, SpecError, WatermarkError
from streamops.kernel.ordering import is_comparable
from streamops.kernel.parameters import (
    refuse_type,
    require_choice,
    require_instant,
    require_name,
    show_duration,
)
from streamops.kernel.time import format_duration

__all__ = [
    "AsofSpec",
    "Direction",
    "How",
    "LateVersions",
    "Stragglers",
    "TooLate",
    "WaitsFor",
]

How = Literal["left", "inner"]
Direction = Literal["backward", "forward", "nearest"]
Stragglers = Literal["drop", "route", "answer"]
LateVersions = Literal["ignore", "retract"]
TooLate = Literal["drop", "route"]
WaitsFor = Literal["both", "facts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AsofSpec:
    """The parameters of an as-of join, and what is resolved against the schemas of its inputs.

    Parameters
    ----------
    by : tuple of (str, str)
        Key columns: name among the facts, name among the versions.
    tolerance, allowed_lateness : int
        Microseconds. No tolerance: None.
    delay : tuple of int, optional
        Delays of the watermarks that the operator defines, in microseconds. Resolved, None for an
        input that brings a watermark.
    time, version, sequence, until, deleted, how, direction, allow_exact, waits_for, stragglers
        As in :func:`streamops.joins.asof`, like the remaining parameters.
    inputs : tuple of Input
        Resolved: all columns of the facts and of the versions.
    names : Names
        Resolved: columns of a joined row.
    """

    where: ClassVar[str] = "joins.asof"
    accepts_revisions: ClassVar[tuple[bool, bool]] = (False, True)
    needs_preimages: ClassVar[bool] = False

    by: tuple[tuple[str, str], ...] = field(metadata={"shown": shown_keys})
    time: str
    version: str
    sequence: str
    until: str | None
    deleted: str | None
    how: How
    tolerance: int | None = field(metadata={"shown": show_duration})
    direction: Direction
    allow_exact: bool
    waits_for: WaitsFor
    delay: Both = field(metadata={"shown": shown_both})
    allowed_lateness: int = field(metadata={"shown": show_duration})
    stragglers: Stragglers
    late_versions: LateVersions
    too_late: TooLate
    into: str
    inputs: tuple[Input, ...] = field(default=(), repr=False)
    names: Names = field(default=Names(pa.schema([]), ()), repr=False)

    def __post_init__(self) -> None:
        for value, known, parameter in (
            (self.how, How, "how"),
            (self.direction, Direction, "direction"),
            (self.waits_for, WaitsFor, "waits_for"),
            (self.stragglers, Stragglers, "stragglers"),
            (self.late_versions, LateVersions, "late_versions"),
            (self.too_late, TooLate, "too_late"),
        ):
            require_choice(value, known, parameter=parameter, where=self.where)
        refuse_into(self.into, where=self.where)
        for parameter in ("time", "version", "sequence", "until", "deleted"):
            name = getattr(self, parameter)
            if name is not None or parameter not in ("until", "deleted"):
                require_name(name, parameter=parameter, where=self.where)
        self._refuse_contradictions()
        self._refuse_directions()

    @property
    def times(self) -> tuple[str | None, str | None]:
        """Event-time columns that determine the watermark."""
        return self.time, self.version if self.waits_for == "both" else None

    @property
    def delays(self) -> Both:
        """Delays of the watermarks that the operator defines."""
        return self.delay

    @property
    def reads(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Columns whose values are compared."""
        left, right = zip(*self.by, strict=True)
        return (*left, self.time), (*right, self.version, self.sequence)

    def require_tolerance(self) -> None:
        """Refuse a stream that looks ahead without a bound.

        Raises
        ------
        SpecError
            ``TOLERANCE_MISSING``.
        """
        if self.direction != "backward" and self.tolerance is None:
            raise SpecError(
                "TOLERANCE_MISSING",
                "a later version could always arrive: a fact without a match would wait for ever",
                where=self.where,
                got=f"direction={self.direction!r} on a stream, without tolerance",
                expected="a tolerance: a fact is answered once the watermark has passed its time by that",
                fix='tolerance="10 minutes", say; on batches it may be left out',
            )

    def resolve(
        self, schemas: tuple[pa.Schema, ...], *, carried: tuple[int | None, ...], shards: int
    ) -> AsofSpec:
        """The parameters over these columns."""
        left, right = schemas
        self._refuse_columns(left, right)
        if self.waits_for == "facts" and carried[1] is not None:
            raise _unwanted_watermark(carried[1], self.where)
        hidden = {self.deleted, CHANGE_TYPE, TOMBSTONE}
        visible = pa.schema([column for column in right if column.name not in hidden])
        names = named(left, visible, self.by, self.where)
        added = [self.into]
        added += [CHANGE_TYPE] if self.retracts else []
        added += ["late"] if self.routes else []
        fix = "rename the column before the join, or name the added one otherwise by into=..."
        refuse_reserved(names.schema.names, added, fix, self.where)
        delay = own_delays(self.delay, (carried[0], carried[1]))
        left_by, right_by = zip(*self.by, strict=True)
        inputs = (
            Input(left_by, self.times[0], left, delay[0]),
            Input(right_by, self.times[1], right, delay[1]),
        )
        return replace(self, delay=delay, inputs=inputs, names=names)

    @property
    def left(self) -> Input:
        """The facts, resolved."""
        return self.inputs[0]

    @property
    def right(self) -> Input:
        """The versions, resolved."""
        return self.inputs[1]

    @property
    def facts(self) -> pa.Schema:
        """All columns of the facts."""
        return self.inputs[0].schema

    @property
    def table(self) -> pa.Schema:
        """All columns of the versions."""
        return self.inputs[1].schema

    @property
    def changes(self) -> bool:
        """Whether the versions are a change stream."""
        return CHANGE_TYPE in self.table.names

    @property
    def retracts(self) -> bool:
        """Whether an answer can be revised, so that the output is a change stream."""
        return self.late_versions == "retract"

    @property
    def routes(self) -> bool:
        """Whether late rows are delivered."""
        return "route" in (self.stragglers, self.too_late)

    @property
    def look_ahead(self) -> int:
        """How far past the event time of a fact the watermark must be before the fact is answered.

        A batch needs no bound, and waits for nothing.
        """
        return 0 if self.direction == "backward" or self.tolerance is None else self.tolerance

    @property
    def retention(self) -> int:
        """How long after its event time a fact can still be answered, or an answer be revised."""
        if self.retracts:
            return self.look_ahead + self.allowed_lateness
        accepted = self.allowed_lateness if self.stragglers == "answer" else 0
        return max(self.look_ahead, accepted)

    @property
    def lag(self) -> int:
        """How far Spark's watermark must lie behind the operator's own.

        Late facts are accepted up to the allowed lateness, and results that looked ahead are held back.
        """
        return self.allowed_lateness + self.held_back

    @property
    def held_back(self) -> int:
        """How far behind the watermark the event time of a result that is on time can be.

        In whole milliseconds, rounded up, as Spark stores its watermark.
        """
        return -(-self.look_ahead // 1_000) * 1_000

    @property
    def event_time(self) -> str:
        """Column of the output that carries its event time: that of the facts."""
        return self.time

    @property
    def output(self) -> pa.Schema:
        """Facts, versions without their keys, the status; then what revising and routing add."""
        extra: list[tuple[str, pa.DataType]] = [(self.into, pa.string())]
        if self.retracts:
            extra.append((CHANGE_TYPE, pa.string()))
        if self.routes:
            extra.append(("late", late_type(self.facts, self.table)))
        joined = (column.with_nullable(True) for column in self.names.schema)
        return pa.schema([*joined, *extra])

    @property
    def origins(self) -> Mapping[str, tuple[int, str]]:
        """Columns of the output with values of a column of an input: of which input and column."""
        found = {name: (0, name) for name in self.facts.names}
        return found | {name: (1, column) for column, name in self.names.right}

    @property
    def identity(self) -> Mapping[str, Any]:
        """Everything the state depends on. Neither ``delay`` nor ``waits_for`` is in it: they may change."""
        return {
            "by": [list(pair) for pair in self.by],
            "time": self.time,
            "version": self.version,
            "sequence": self.sequence,
            "until": self.until,
            "deleted": self.deleted,
            "facts": sorted([column.name, str(column.type)] for column in self.facts),
            "table": sorted([column.name, str(column.type)] for column in self.table),
            "how": self.how,
            "tolerance": self.tolerance,
            "direction": self.direction,
            "allow_exact": self.allow_exact,
            "allowed_lateness": self.allowed_lateness,
            "stragglers": self.stragglers,
            "late_versions": self.late_versions,
            "too_late": self.too_late,
        }

    @property
    def _optional(self) -> dict[str, str]:
        """Optional columns of the versions, by their parameter."""
        names = {"until": self.until, "deleted": self.deleted}
        return {role: name for role, name in names.items() if name is not None}

    def _refuse_contradictions(self) -> None:
        roles = {"version": self.version, "sequence": self.sequence, **self._optional}
        theirs = {name for _, name in self.by}
        asked = {"by": [*theirs], **{role: [name] for role, name in roles.items()}}
        refuse_change_type(asked, where=self.where)
        if self.sequence == REVISION:
            fix = (
                "have the position in the log among the values of the row, and deletes as rows that "
                "say so (docs/joins.md, 'A table that is captured')"
            )
            raise sequence_of_revisions(self.sequence, fix, where=self.where)
        names = [*roles.values(), *theirs]
        if len(set(names)) < len(names):
            raise SpecError(
                "COLUMN_TWICE",
                "a column of the versions cannot be two things",
                where=self.where,
                got=", ".join(
                    f"{role}={name!r}" for role, name in (("by", self.by), *roles.items())
                ),
                expected="a column of its own for each",
                fix="name another column, or give the versions one more before the join",
            )
        if self.too_late == "route" and self.stragglers != "answer" and not self.retracts:
            raise SpecError(
                "TOO_LATE_WITHOUT_CORRECTIONS",
                "`too_late` says what happens beyond the lateness of late answers and corrections",
                where=self.where,
                got=f"too_late='route' with stragglers={self.stragglers!r}, "
                f"late_versions={self.late_versions!r}",
                expected="stragglers='answer' or late_versions='retract' beside it",
                fix="stragglers='route' delivers every late row",
            )

    def _refuse_directions(self) -> None:
        if type(self.allow_exact) is not bool:
            raise SpecError(
                "NOT_A_BOOLEAN",
                "`allow_exact` is neither true nor false",
                where=self.where,
                got=f"allow_exact={self.allow_exact!r}",
                expected="True or False",
                fix="allow_exact=False excludes versions at exactly the event time",
            )
        if self.direction == "forward" and self.until is not None:
            raise SpecError(
                "UNTIL_WITHOUT_BACKWARD",
                "`until` ends a version that began before the fact, and forward finds later ones only",
                where=self.where,
                got=f"until={self.until!r} with direction='forward'",
                expected="until with direction='backward' or 'nearest'",
                fix="leave until out: the column is in the output all the same",
            )
        if self.tolerance == 0 and not self.allow_exact:
            raise SpecError(
                "NO_VERSION_CAN_MATCH",
                "versions at the event time are excluded, and so are all others",
                where=self.where,
                got="tolerance of 0 with allow_exact=False",
                expected="a tolerance above 0, or allow_exact=True",
                fix="allow_exact=True matches versions at exactly the event time",
            )

    def _refuse_columns(self, left: pa.Schema, right: pa.Schema) -> None:
        ours, theirs = zip(*self.by, strict=True)
        versions = f"{self.where}, right frame"
        asked = {"by": theirs, "version": [self.version], "sequence": [self.sequence]}
        asked |= {role: [name] for role, name in self._optional.items()}
        refuse_missing(left, {"by": ours, "time": [self.time]}, where=f"{self.where}, left frame")
        refuse_missing(right, asked, where=versions)
        require_instant(left, self.time, where=f"{self.where}, left frame")
        for name in (self.version, *([self.until] if self.until is not None else [])):
            require_instant(right, name, where=versions)
        refuse_keys(left, right, self.by, where=self.where)
        if not is_comparable(right.field(self.sequence).type):
            fix = "name a number that grows with each change: a log position, a commit version"
            use, expected = "a sequence", "values that have an order"
            refuse_type(right, self.sequence, use, expected, fix, where=versions)
        if self.deleted is not None and not pa.types.is_boolean(right.field(self.deleted).type):
            fix = "a column with the condition: df.withColumn('gone', F.col('op') == 'd')"
            use, expected = "the sign of a deletion", "boolean"
            refuse_type(right, self.deleted, use, expected, fix, where=versions)
        if CHANGE_TYPE in right.names and not pa.types.is_string(right.field(CHANGE_TYPE).type):
            fix = "rename it, if it is no change type"
            refuse_type(right, CHANGE_TYPE, "the change type", "string", fix, where=versions)
        if TOMBSTONE in right.names and not pa.types.is_boolean(right.field(TOMBSTONE).type):
            fix = "rename it, if it is no sign of a tombstone"
            refuse_type(right, TOMBSTONE, "a tombstone", "boolean", fix, where=versions)
        if UNAVAILABLE in right.names:
            raise _not_whole(self.where)


def _not_whole(where: str) -> SchemaError:
    return SchemaError(
        "ROWS_NOT_WHOLE",
        "versions must be whole rows, and of these some values may not have been sent",
        where=f"{where}, right frame",
        got=f"a column {UNAVAILABLE!r}, which names them: they are null, and not as they were before",
        expected="rows with all their values",
        fix="changes.normalize between the reader and the join puts the values from before there "
        "(docs/joins.md shows how); where the connector always sends whole rows, "
        f"right.drop({UNAVAILABLE!r})",
    )


def _unwanted_watermark(delay: int, where: str) -> WatermarkError:
    return WatermarkError(
        "WATERMARK_NOT_WAITED_FOR",
        "the versions bring a watermark, and Spark waits for the least of all in a query",
        where=f"{where}, right frame",
        got=f"a watermark with a delay of {format_duration(delay)!r} and waits_for='facts'",
        expected="versions without a watermark, or waits_for='both'",
        fix="leave withWatermark(...) on the versions out; or, where answers are to wait for them, "
        "waits_for='both'",
    )
