"""The parameters of an as-of join."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import pyarrow as pa

from streamops.changelog.change_types import CHANGE_TYPE, REVISION
from streamops.changelog.table import TOMBSTONE, UNAVAILABLE, refuse_change_type
from streamops.changelog.versions import Direction
from streamops.joins import conditions
from streamops.joins.core.join_spec import (
    JoinSpec,
    added_columns,
    require_into,
    require_key_types,
)
from streamops.kernel.core import Input
from streamops.kernel.errors import located
from streamops.kernel.operator import checkpointed
from streamops.kernel.ordering import require_sequence
from streamops.kernel.parameters import (
    Delays,
    refuse_type,
    require_columns,
    require_instant,
    show_delays,
    show_duration,
    unused_watermark,
)

How = Literal["left", "inner"]
Stragglers = Literal["drop", "route", "answer"]
LateVersions = Literal["ignore", "retract"]
TooLate = Literal["drop", "route"]
WaitsFor = Literal["both", "facts"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AsofSpec(JoinSpec):
    """The parameters of :func:`streamops.joins.asof`. Durations are in microseconds."""

    time: str = checkpointed()
    version: str = checkpointed()
    sequence: str = checkpointed()
    until: str | None = checkpointed()
    deleted: str | None = checkpointed()
    how: How = checkpointed()
    tolerance: int | None = checkpointed(metadata={"shown": show_duration})
    direction: Direction = checkpointed()
    allow_exact: bool = checkpointed()
    waits_for: WaitsFor
    delay: Delays = field(metadata={"shown": show_delays})
    allowed_lateness: int = checkpointed(metadata={"shown": show_duration})
    stragglers: Stragglers = checkpointed()
    late_versions: LateVersions = checkpointed()
    too_late: TooLate = checkpointed()
    into: str

    def __post_init__(self) -> None:
        require_into(self.into)
        self._refuse_contradictions()
        self._refuse_directions()

    def require_tolerance(self) -> None:
        """Refuse a forward search without a bound, on a stream."""
        if self.direction != "backward" and self.tolerance is None:
            raise conditions.TOLERANCE_MISSING.error(
                got=f"direction={self.direction!r} on a stream, without tolerance"
            )

    @property
    def declared(self) -> tuple[Input, Input]:
        """The facts, and the versions."""
        version = self.version if self.waits_for == "both" else None
        return (
            Input(self.left_by, self.time, delay=self.delay[0], columns=(self.time,)),
            Input(
                self.right_by,
                version,
                delay=self.delay[1],
                columns=(self.version, self.sequence),
                accepts_revisions=True,
            ),
        )

    def resolve(
        self, schemas: Sequence[pa.Schema], *, carried: Sequence[int | None], shards: int
    ) -> AsofSpec:
        """Resolve the parameters against the schemas of facts and versions."""
        left, right = schemas
        self._refuse_columns(left, right)
        if self.waits_for == "facts" and carried[1] is not None:
            raise unused_watermark(carried[1], waits_for=self.waits_for)
        hidden = {self.deleted, CHANGE_TYPE, TOMBSTONE}
        inputs = self.resolve_inputs(schemas, carried)
        added = added_columns(
            self.into, changes=self.retracts, late=(left, right) if self.routes else None
        )
        visible = pa.schema([column for column in right if column.name not in hidden])
        return self.with_columns(inputs, left, visible, added)

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
        """Whether results can be revised, so that the output is a change stream."""
        return self.late_versions == "retract"

    @property
    def routes(self) -> bool:
        """Whether late rows are emitted as side output."""
        return "route" in (self.stragglers, self.too_late)

    @property
    def look_ahead(self) -> int:
        """How far the watermark must have passed a fact before the fact is joined.

        In a batch without a tolerance it does not matter: the watermark has passed everything.
        """
        return 0 if self.direction == "backward" or self.tolerance is None else self.tolerance

    @property
    def retention(self) -> int:
        """How long after its event time a fact can still be joined, or its result be revised."""
        if self.retracts:
            return self.look_ahead + self.allowed_lateness
        accepted = self.allowed_lateness if self.stragglers == "answer" else 0
        return max(self.look_ahead, accepted)

    @property
    def lag(self) -> int:
        """How far Spark's watermark must lie behind the operator's own."""
        return self.allowed_lateness + self.held_back

    @property
    def held_back(self) -> int:
        """How far behind the watermark a result on time can lie; whole milliseconds, rounded up."""
        return -(-self.look_ahead // 1_000) * 1_000

    @property
    def identity(self) -> Mapping[str, Any]:
        """All that the state depends on. ``delay`` and ``waits_for`` may change."""
        return {
            **super(AsofSpec, self).identity,
            "facts": sorted([column.name, str(column.type)] for column in self.facts),
            "table": sorted([column.name, str(column.type)] for column in self.table),
        }

    @property
    def _optional(self) -> dict[str, str]:
        """Optional columns of the versions, by parameter."""
        names = {"until": self.until, "deleted": self.deleted}
        return {role: name for role, name in names.items() if name is not None}

    def _refuse_contradictions(self) -> None:
        roles = {"version": self.version, "sequence": self.sequence, **self._optional}
        used = {"by": [*set(self.right_by)], **{role: [name] for role, name in roles.items()}}
        refuse_change_type(used)
        if self.sequence == REVISION:
            raise conditions.SEQUENCE_OF_VERSIONS.error(got=f"sequence={self.sequence!r}")
        names = [name for columns in used.values() for name in columns]
        if len(set(names)) < len(names):
            raise conditions.COLUMN_TWICE.error(
                got=", ".join(f"{k}={v!r}" for k, v in {"by": self.by, **roles}.items())
            )
        if self.too_late == "route" and self.stragglers != "answer" and not self.retracts:
            raise conditions.TOO_LATE_WITHOUT_ANSWERS.error(
                got=f"too_late='route' with stragglers={self.stragglers!r}, "
                f"late_versions={self.late_versions!r}"
            )

    def _refuse_directions(self) -> None:
        if self.direction == "forward" and self.until is not None:
            raise conditions.UNTIL_WITHOUT_BACKWARD.error(
                got=f"until={self.until!r} with direction='forward'"
            )
        if self.tolerance == 0 and not self.allow_exact:
            raise conditions.NO_VERSION_CAN_MATCH.error(got="tolerance of 0 with allow_exact=False")

    def _refuse_columns(self, left: pa.Schema, right: pa.Schema) -> None:
        with located(at="left frame"):
            require_columns(left.names, {"by": self.left_by, "time": [self.time]})
            require_instant(left, self.time)
        require_key_types(left, right, self.by)
        with located(at="right frame"):
            self._refuse_versions(right)

    def _refuse_versions(self, right: pa.Schema) -> None:
        used = {"by": self.right_by, "version": [self.version], "sequence": [self.sequence]}
        used |= {role: [name] for role, name in self._optional.items()}
        require_columns(right.names, used)
        for name in (self.version, *([self.until] if self.until is not None else [])):
            require_instant(right, name)
        require_sequence(right, (self.sequence,))
        flag = self.deleted
        if flag in right.names and not pa.types.is_boolean(right.field(flag).type):
            refuse_type(conditions.FLAG_TYPE, right, str(flag))
        marks = {
            TOMBSTONE: (pa.types.is_boolean, "boolean", "a tombstone flag"),
            CHANGE_TYPE: (pa.types.is_string, "string", "the change type"),
        }
        for mark, (is_expected, expected, use) in marks.items():
            if mark in right.names and not is_expected(right.field(mark).type):
                refuse_type(conditions.MARK_TYPE, right, mark, use=use, expected=expected)
        if UNAVAILABLE in right.names:
            raise conditions.ROWS_NOT_WHOLE.error(
                unavailable=UNAVAILABLE,
                got=f"a column {UNAVAILABLE!r} with their names: these values are null",
            )
