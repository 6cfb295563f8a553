"""Commands and events, a command at a time, in simple Python.

All commands that have ever arrived are stored. In each step, every entity is decided from its first command,
and what was emitted before is left out.
"""

from __future__ import annotations

import copy
from collections import Counter, namedtuple
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

from streamops.sourcing import Rejected
from streamops.testing.laws import Arrival, to_rows
from tests.oracles.side_output import late_row
from tests.oracles.windows import Row

COUNTS = (
    *("rows", "rejected", "on_time", "stragglers", "too_late"),
    *("results", "corrections", "failed", "ignored"),
)
FOREVER = 1 << 62


@dataclass
class Expected:
    """What one micro-batch emits."""

    emitted: list[Row] = field(default_factory=list)
    late: list[Row] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))


@dataclass
class Entity:
    """An entity after all its commands that the watermark has reached."""

    rows: list[Row]
    ignored: int
    state: Mapping[str, Any]
    version: int
    ids: list[str]


@dataclass
class DecideOracle:
    """Events and rejections of each entity."""

    decide: Callable[[Any, Any], Any]
    evolve: Callable[[Any, Any], Any]
    by: str
    command_id: str
    time: str
    initial: Mapping[str, Any]
    event: Sequence[str]
    expected_version: str | None = None
    order_by: Sequence[str] = ()
    max_ids: int = 1_000
    stragglers: str = "drop"

    commands: dict[Any, list[Row]] = field(default_factory=dict)
    emitted: Counter[Any] = field(default_factory=Counter)
    ignored: Counter[Any] = field(default_factory=Counter)
    previous: int | None = None
    mark: int = -FOREVER

    def fresh(self) -> DecideOracle:
        """An oracle with the same parameters and no commands."""
        nothing: dict[str, Any] = {"commands": {}, "emitted": Counter(), "ignored": Counter()}
        return replace(self, **nothing, previous=None, mark=-FOREVER)

    def step(self, rows: Sequence[Row], watermark: int | None) -> Expected:
        """The expected results of a micro-batch."""
        expected = Expected()
        counts = expected.counts
        counts["rows"] = len(rows)
        for row in rows:
            time, mark = row[self.time], self.previous
            if time is None:
                counts["rejected"] += 1
                expected.late.append(self._late(row, "null_time", None, None))
            elif mark is not None and time <= mark:
                counts["too_late"] += 1
                expected.late.append(self._late(row, "too_late", mark - time, mark))
            else:
                counts["on_time"] += 1
                self.commands.setdefault(row[self.by], []).append(row)
        if self.stragglers != "route":
            expected.late.clear()
        if watermark is not None:
            self.mark = max(self.mark, watermark)
            self.previous = self.mark
        expected.emitted = self._emit(counts)
        return expected

    def finish(self) -> list[Row]:
        """Everything that is pending."""
        self.mark = FOREVER
        return self._emit(dict.fromkeys(COUNTS, 0))

    def run(self, arrivals: Sequence[Arrival]) -> list[Row]:
        """The batch result over the commands that are not late."""
        for (batch,), mark in arrivals:
            self.previous = mark
            self.step(to_rows(batch), None)
        return self.finish()

    def bound(self) -> int:
        """One row for each entity with a command that was decided, and the commands that wait."""
        all_rows = [row for rows in self.commands.values() for row in rows]
        decided = [row for row in all_rows if row[self.time] <= self.mark]
        return len({row[self.by] for row in decided}) + len(all_rows) - len(decided)

    def entity(self, key: Any) -> Entity:
        """Decide all commands of an entity that the watermark has reached."""
        state_of: Any = namedtuple("State", [*self.initial])  # type: ignore[misc]
        event_of: Any = namedtuple("Event", [*self.event])  # type: ignore[misc]
        state = state_of(**copy.deepcopy(dict(self.initial)))
        due = [row for row in self.commands[key] if row[self.time] <= self.mark]
        order = [self.time, *self.order_by, self.command_id, *sorted(due[0] if due else [])]
        rows, ids = list[Row](), list[str]()
        version = ignored = 0

        def emit(row: Row, event: Sequence[Any], rejection: str | None) -> None:
            number = row[self.command_id]
            names = (self.by, self.time, "version", "command_id", *self.event, "rejection")
            identifier = None if number is None else str(number)
            values = (key, row[self.time], version, identifier, *event, rejection)
            rows.append(dict(zip(names, values, strict=True)))

        for row in sorted(due, key=lambda row: [_nulls_first(row[name]) for name in order]):
            number = row[self.command_id]
            none = [None] * len(self.event)
            if number is None:
                emit(row, none, "null_command_id")
                continue
            if str(number) in ids[-self.max_ids :]:
                ignored += 1
                continue
            ids.append(str(number))
            seen = None if self.expected_version is None else row[self.expected_version]
            if seen is not None and seen != version:
                emit(row, none, "version_conflict")
                continue
            decided = self.decide(state, SimpleNamespace(**row))
            if isinstance(decided, Rejected):
                emit(row, none, decided.reason)
                continue
            for event in decided:
                named = (
                    event if isinstance(event, dict) else dict(zip(self.event, event, strict=True))
                )
                made = event_of(**{name: named.get(name) for name in self.event})
                state = self.evolve(state, made)
                version += 1
                emit(row, made, None)
        return Entity(rows, ignored, state._asdict(), version, ids[-self.max_ids :])

    def _emit(self, counts: dict[str, int]) -> list[Row]:
        """What was not emitted before."""
        fresh = []
        for key in self.commands:
            entity = self.entity(key)
            fresh += entity.rows[self.emitted[key] :]
            counts["ignored"] += entity.ignored - self.ignored[key]
            self.emitted[key], self.ignored[key] = len(entity.rows), entity.ignored
        counts["results"] += len(fresh)
        return fresh

    def _late(self, row: Row, reason: str, lateness: int | None, mark: int | None) -> Row:
        late = late_row(reason, dict(row), lateness=lateness, watermark=mark)
        return {self.by: row[self.by], self.time: row[self.time], "late": late}


def _nulls_first(value: Any) -> tuple[Any, ...]:
    return (False,) if value is None else (True, value)
