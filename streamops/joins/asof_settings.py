"""What a user says about temporal joins, validated once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pyarrow as pa

from streamops.changelog.change_types import CHANGE_TYPE, REVISION
from streamops.changelog.table import TOMBSTONE, UNAVAILABLE, refuse_change_type
from streamops.joins.core.asof_spec import (
    Direction,
    How,
    LateVersions,
    Stragglers,
    TemporalSpec,
    TooLate,
    WaitsFor,
    held_back,
    look_ahead,
)
from streamops.joins.core.inputs import (
    Both,
    delays_of,
    keys_of,
    own_delays,
    refuse_into,
    refuse_keys,
    refuse_missing,
    sequence_of_revisions,
    shown_both,
    shown_keys,
)
from streamops.joins.core.naming import named, refuse_reserved
from streamops.kernel.errors import SchemaError, SpecError, WatermarkError
from streamops.kernel.ordering import is_comparable
from streamops.kernel.time import Duration, format_duration, parse_duration
from streamops.spark.columns import require_name
from streamops.spark.parameters import parse_delay, refuse_type, require_instant, show_duration
from streamops.spark.transform import require_choice

__all__ = ["TemporalJoin"]


@dataclass(frozen=True, slots=True)
class TemporalJoin:
    """Settings of temporal joins; durations in microseconds."""

    where: str = field(repr=False)
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

    of_results: ClassVar[tuple[bool, bool]] = (False, True)
    needs_preimages: ClassVar[bool] = False

    @staticmethod
    def of(
        where: str,
        *,
        by: str | Sequence[str] | Mapping[str, str],
        time: str,
        version: str,
        sequence: str,
        until: str | None,
        deleted: str | None,
        how: How,
        tolerance: Duration | None,
        direction: Direction,
        allow_exact: bool,
        waits_for: WaitsFor,
        delay: Duration | tuple[Duration | None, Duration | None] | None,
        allowed_lateness: Duration,
        stragglers: Stragglers,
        late_versions: LateVersions,
        too_late: TooLate,
        into: str,
    ) -> TemporalJoin:
        """Settings as the user wrote them, normalised, or an error."""
        for value, known, parameter in (
            (how, How, "how"),
            (direction, Direction, "direction"),
            (waits_for, WaitsFor, "waits_for"),
            (stragglers, Stragglers, "stragglers"),
            (late_versions, LateVersions, "late_versions"),
            (too_late, TooLate, "too_late"),
        ):
            require_choice(value, known, parameter=parameter, where=where)
        refuse_into(into, where=where)
        roles = {"time": time, "version": version, "sequence": sequence}
        for parameter, name in (roles | {"until": until, "deleted": deleted}).items():
            if name is not None or parameter in roles:
                require_name(name, parameter=parameter, where=where)
        oldest = None
        if tolerance is not None:
            oldest = parse_duration(tolerance, parameter="tolerance", where=where, minimum=0)
        lateness = parse_delay(allowed_lateness, parameter="allowed_lateness", where=where)
        settings = TemporalJoin(
            where=where,
            by=keys_of(by, where=where),
            time=time,
            version=version,
            sequence=sequence,
            until=until,
            deleted=deleted,
            how=how,
            tolerance=oldest,
            direction=direction,
            allow_exact=allow_exact,
            waits_for=waits_for,
            delay=_delays(delay, waits_for, where),
            allowed_lateness=lateness,
            stragglers=stragglers,
            late_versions=late_versions,
            too_late=too_late,
            into=into,
        )
        settings._refuse_contradictions()
        return settings

    @property
    def retracts(self) -> bool:
        """Whether an answer can be revised."""
        return self.late_versions == "retract"

    @property
    def times(self) -> tuple[str | None, str | None]:
        """Event-time columns that the watermark goes by."""
        return self.time, self.version if self.waits_for == "both" else None

    @property
    def delays(self) -> Both:
        """Delays of the watermarks that the operator defines."""
        return self.delay

    @property
    def lag(self) -> int:
        """How far Spark's watermark must lie behind the operator's own."""
        return self.allowed_lateness + held_back(look_ahead(self.direction, self.tolerance))

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

    def bind(self, left: pa.Schema, right: pa.Schema, *, carried: Both) -> TemporalSpec:
        """The spec over these columns."""
        self._refuse_columns(left, right)
        if self.waits_for == "facts" and carried[1] is not None:
            raise _waits_for_versions(carried[1], self.where)
        hidden = {self.deleted, CHANGE_TYPE, TOMBSTONE}
        shown = pa.schema([column for column in right if column.name not in hidden])
        names = named(left, shown, self.by, self.where)
        added = [self.into]
        added += [CHANGE_TYPE] if self.retracts else []
        added += ["late"] if "route" in (self.stragglers, self.too_late) else []
        fix = "rename the column before the join, or name the added one otherwise by into=..."
        refuse_reserved(names.schema.names, added, fix, self.where)
        return TemporalSpec(
            by=self.by,
            time=self.time,
            version=self.version,
            sequence=self.sequence,
            until=self.until,
            deleted=self.deleted,
            facts=left,
            table=right,
            names=names,
            into=self.into,
            how=self.how,
            tolerance=self.tolerance,
            direction=self.direction,
            allow_exact=self.allow_exact,
            waits_for=self.waits_for,
            delay=own_delays(self.delays, carried),
            allowed_lateness=self.allowed_lateness,
            stragglers=self.stragglers,
            late_versions=self.late_versions,
            too_late=self.too_late,
        )

    @property
    def _optional(self) -> dict[str, str]:
        """Columns of the versions that need not be named, by their parameter."""
        said = {"until": self.until, "deleted": self.deleted}
        return {role: name for role, name in said.items() if name is not None}

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


def _delays(delay: Any, waits_for: str, where: str) -> Both:
    """Delays of the watermarks on facts and on versions."""
    left, right = delays_of(delay, where=where)
    if waits_for == "both":
        return left, right
    if isinstance(delay, tuple) and right is not None:
        raise SpecError(
            "DELAY_WITHOUT_WATERMARK",
            "the versions have a delay, and no part in the watermark",
            where=where,
            got=f"delay={delay!r} with waits_for='facts'",
            expected="one delay, that of the facts",
            fix=f"delay={delay[0]!r}, or waits_for='both'",
        )
    return left, None


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


def _waits_for_versions(delay: int, where: str) -> WatermarkError:
    return WatermarkError(
        "WATERMARK_NOT_WAITED_FOR",
        "the versions bring a watermark, and Spark waits for the least of all in a query",
        where=f"{where}, right frame",
        got=f"a watermark with a delay of {format_duration(delay)!r} and waits_for='facts'",
        expected="versions without a watermark, or waits_for='both'",
        fix="leave withWatermark(...) on the versions out; or, where answers are to wait for them, "
        "waits_for='both'",
    )
