"""Deduplication, row by row, with sets instead of filters, in simple Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.oracles.windows import YEAR_1, YEAR_9999_ENDS, Row, key_of


@dataclass
class SeenOracle:
    """Identities with their first event times. Exact, and without a limit."""

    by: tuple[str, ...]
    time: str | None
    horizon: int | None
    generations: int

    first: dict[Any, int] = field(default_factory=dict)
    newest: int | None = None

    def fresh(self) -> SeenOracle:
        """An oracle with the same parameters and no rows."""
        return replace(self, first={}, newest=None)

    def judge(self, rows: Sequence[Row]) -> list[str]:
        """The decision for each row of a micro-batch. Rows with equal times keep their order."""
        decisions = [self._unusable(row) for row in rows]
        order = [number for number, decision in enumerate(decisions) if not decision]
        for number in sorted(order, key=lambda number: self._time(rows[number])):
            decisions[number] = self._decide(rows[number])
        return decisions

    def forgotten(self, rows: Sequence[Row], decisions: Sequence[str]) -> list[Row]:
        """Rows that are reported as new although their identity is known.

        All other decisions, such as a new identity reported as known, are accepted.
        """
        pairs = [pair for pair in zip(rows, decisions, strict=True) if not self._unusable(pair[0])]
        found = []
        for row, decision in sorted(pairs, key=lambda p: (self._time(p[0]), p[1] != "first")):
            known = dict(self.first)
            if self._decide(row) == "again":
                found += [row] if decision != "again" else []
            elif decision != "first":
                self.first = known
        return found

    def cell(self, time: int) -> int:
        """The cell of an instant."""
        return 0 if self.horizon is None else time // -(-self.horizon // self.generations)

    def _decide(self, row: Row) -> str:
        key, time = key_of(row, self.by), self._time(row)
        self.newest = time if self.newest is None else max(self.newest, time)
        oldest = self.cell(self.newest) - self.generations
        if key in self.first and self.first[key] >= oldest:
            return "again"
        if self.cell(time) < oldest:
            return "too_old"
        self.first[key] = self.cell(time)
        return "first"

    def _time(self, row: Row) -> int:
        return 0 if self.time is None else row[self.time]

    def _unusable(self, row: Row) -> str:
        if any(row[name] is None for name in self.by):
            return "null_identity"
        if self.time is None:
            return ""
        if row[self.time] is None:
            return "null_time"
        return "" if YEAR_1 <= row[self.time] <= YEAR_9999_ENDS else "time_out_of_range"
