"""What was seen before, row by row, with sets instead of filters, in the plainest Python there is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.oracles.windows import YEAR_1, YEAR_9999_ENDS, Row, key_of


@dataclass
class SeenOracle:
    """Identities, and when each of them came first. Nothing is ever probable, nor full."""

    by: tuple[str, ...]
    time: str | None
    horizon: int | None
    generations: int

    first: dict[Any, int] = field(default_factory=dict)
    newest: int | None = None

    def fresh(self) -> SeenOracle:
        """The same settings; nothing has been seen."""
        return replace(self, first={}, newest=None)

    def judge(self, rows: Sequence[Row]) -> list[str]:
        """The verdict of each row of a micro-batch. Rows of one time are taken as they stand."""
        said = [self._unusable(row) for row in rows]
        order = [number for number, verdict in enumerate(said) if not verdict]
        for number in sorted(order, key=lambda number: self._time(rows[number])):
            said[number] = self._judged(rows[number])
        return said

    def forgotten(self, rows: Sequence[Row], said: Sequence[str]) -> list[Row]:
        """Rows that are told to be new although the identity was, and is remembered.

        Whatever is told beside, such as that a new identity was seen, is believed.
        """
        pairs = [pair for pair in zip(rows, said, strict=True) if not self._unusable(pair[0])]
        found = []
        for row, verdict in sorted(pairs, key=lambda p: (self._time(p[0]), p[1] != "first")):
            known = dict(self.first)
            if self._judged(row) == "again":
                found += [row] if verdict != "again" else []
            elif verdict != "first":
                self.first = known
        return found

    def cell(self, time: int) -> int:
        """The cell of an instant."""
        return 0 if self.horizon is None else time // -(-self.horizon // self.generations)

    def _judged(self, row: Row) -> str:
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
