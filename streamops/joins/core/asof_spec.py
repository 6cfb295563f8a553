"""Settings of temporal joins, bound to the schemas of facts and versions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import pyarrow as pa

from streamops.changelog.change_types import CHANGE_TYPE
from streamops.joins.core.late import late_type
from streamops.joins.core.naming import Names
from streamops.kernel.pairs import Side, SideName

__all__ = [
    "How",
    "LateVersions",
    "Stragglers",
    "TemporalSpec",
    "TooLate",
    "WaitsFor",
]

How = Literal["left", "inner"]
Stragglers = Literal["drop", "route", "answer"]
LateVersions = Literal["ignore", "retract"]
TooLate = Literal["drop", "route"]
WaitsFor = Literal["both", "facts"]


@dataclass(frozen=True, slots=True)
class TemporalSpec:
    """A temporal join over columns of known types; durations in microseconds.

    Parameters
    ----------
    by : tuple of (str, str)
        Key columns, of facts and of versions.
    time : str
        Event time of facts.
    version, sequence : str
        Instant from which a version holds; what orders versions of one instant.
    until : str, optional
        Instant from which it holds no more.
    deleted : str, optional
        A boolean column: true for a version without a value.
    facts, table : Schema
        All columns of facts, and of versions.
    names : Names
        Columns of the join.
    into : str
        Name of the column that says whether a fact has a version.
    how : str
        What becomes of facts without a version.
    tolerance : int, optional
        How old a version may be at the event time.
    waits_for : str
        Whose event times the watermark goes by.
    delay : tuple of (int or None, int or None)
        Delays of the watermarks that are defined on facts and on versions.
    allowed_lateness : int
        How long after it is on time an answer can be revised, or given to a straggler.
    stragglers, late_versions, too_late : str
        What happens to late facts, to answers that a late version changes, and to late rows.
    """

    by: tuple[tuple[str, str], ...]
    time: str
    version: str
    sequence: str
    until: str | None
    deleted: str | None
    facts: pa.Schema
    table: pa.Schema
    names: Names
    into: str
    how: How
    tolerance: int | None
    waits_for: WaitsFor
    delay: tuple[int | None, int | None]
    allowed_lateness: int
    stragglers: Stragglers
    late_versions: LateVersions
    too_late: TooLate

    @property
    def left(self) -> Side:
        """The facts."""
        return Side(tuple(name for name, _ in self.by), self.time, self.facts, self.delay[0])

    @property
    def right(self) -> Side:
        """The versions."""
        time = self.version if self.waits_for == "both" else None
        return Side(tuple(name for _, name in self.by), time, self.table, self.delay[1])

    @property
    def changes(self) -> bool:
        """Whether the versions come as a change stream."""
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
    def retention(self) -> int:
        """How long after its event time a fact can still be answered, or an answer be revised."""
        return self.allowed_lateness if self.retracts or self.stragglers == "answer" else 0

    @property
    def lag(self) -> int:
        """How far Spark's watermark must lie behind the operator's own."""
        return self.allowed_lateness

    @property
    def held_back(self) -> int:
        """Results come as their own times are passed."""
        return 0

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
        joined = (field.with_nullable(True) for field in self.names.schema)
        return pa.schema([*joined, *extra])

    @property
    def origins(self) -> Mapping[str, tuple[SideName, str]]:
        """Columns of the output that hold values of one of an input: of which side, which one."""
        found: dict[str, tuple[SideName, str]] = {n: ("left", n) for n in self.facts.names}
        return found | {name: ("right", column) for column, name in self.names.right}

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
            "facts": sorted([field.name, str(field.type)] for field in self.facts),
            "table": sorted([field.name, str(field.type)] for field in self.table),
            "how": self.how,
            "tolerance": self.tolerance,
            "allowed_lateness": self.allowed_lateness,
            "stragglers": self.stragglers,
            "late_versions": self.late_versions,
            "too_late": self.too_late,
        }
