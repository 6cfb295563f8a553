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
    "Direction",
    "How",
    "LateVersions",
    "Stragglers",
    "TemporalSpec",
    "TooLate",
    "WaitsFor",
]

How = Literal["left", "inner"]
Direction = Literal["backward", "forward", "nearest"]
Stragglers = Literal["drop", "route", "answer"]
LateVersions = Literal["ignore", "retract"]
TooLate = Literal["drop", "route"]
WaitsFor = Literal["both", "facts"]


def look_ahead(direction: Direction, tolerance: int | None) -> int:
    """How far after a fact its answer may lie. A batch needs no bound, and waits for nothing.

    Examples
    --------
    >>> look_ahead("backward", 5_000), look_ahead("nearest", 5_000), look_ahead("forward", None)
    (0, 5000, 0)
    """
    return 0 if direction == "backward" or tolerance is None else tolerance


def held_back(ahead: int) -> int:
    """The same in whole milliseconds, rounded up, as Spark keeps its watermark.

    Examples
    --------
    >>> held_back(0), held_back(1_001)
    (0, 2000)
    """
    return -(-ahead // 1_000) * 1_000


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
        Greatest distance between the event time and the time of the version, inclusive.
    direction : str
        On which side of the event time a version is searched for.
    allow_exact : bool
        Whether a version at exactly the event time is a candidate.
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
    direction: Direction
    allow_exact: bool
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
    def look_ahead(self) -> int:
        """How far past the event time of a fact the watermark must be before the fact is answered."""
        return look_ahead(self.direction, self.tolerance)

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
        """How far behind the watermark the event time of a result that is on time can be."""
        return held_back(self.look_ahead)

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
            "direction": self.direction,
            "allow_exact": self.allow_exact,
            "allowed_lateness": self.allowed_lateness,
            "stragglers": self.stragglers,
            "late_versions": self.late_versions,
            "too_late": self.too_late,
        }
