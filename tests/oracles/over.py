"""Values of the rows before and after a row, in simple Python: the expected results of a core.

Every accepted row is stored, and every value is looked up in all of them by its definition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from streamops.windows.core.over import RowFunction
from tests.oracles.side_output import late_row
from tests.oracles.windows import YEAR_1, YEAR_9999_ENDS, Expected, Row, is_nan, key_of

NEVER = -(1 << 62)


@dataclass
class OverOracle:
    """Functions of other rows, without averages, whose floats are not exact."""

    values: Mapping[str, RowFunction]
    within: int
    by: tuple[str, ...]
    time: str
    tie_break: tuple[str, ...] = ()
    stragglers: str = "drop"

    watermark: int | None = None
    arrived: list[Row] = field(default_factory=list)
    emitted: list[Row] = field(default_factory=list)

    def fresh(self) -> OverOracle:
        """An oracle with the same parameters and no rows."""
        return replace(self, watermark=None, arrived=[], emitted=[])

    def sequences(self, watermark: int) -> list[list[Row]]:
        """The rows of each key up to a watermark, in order."""
        found: dict[Any, list[Row]] = {}
        for row in self.arrived:
            if row[self.time] <= watermark:
                found.setdefault(key_of(row, self.by), []).append(row)
        return [sorted(rows, key=self.position) for rows in found.values()]

    def position(self, row: Row) -> list[Any]:
        """Where a row is among those of its key: nulls first, NaN last."""
        names = [self.time, *self.tie_break, *sorted(row)]
        return [
            (0, 0) if row[n] is None else (2, 0) if is_nan(row[n]) else (1, row[n]) for n in names
        ]

    def is_decided(self, rows: Sequence[Row], at: int, watermark: int) -> bool:
        """Whether no later row can change the values of a row."""
        ahead = max((f.offset for f in self.values.values() if f.function == "lead"), default=0)
        return at + ahead < len(rows) or rows[at][self.time] + self.within <= watermark

    def value(self, of: RowFunction, rows: Sequence[Row], at: int) -> Any:
        """The definition of a function."""
        other = at + of.offset if of.function == "lead" else at - of.offset
        if not 0 <= other < len(rows):
            return None
        elapsed = rows[at][self.time] - rows[other][self.time]
        if abs(elapsed) > self.within:
            return None
        value, found = rows[at][of.column], rows[other][of.column]
        if of.function in ("lag", "lead"):
            return found
        if value is None or found is None:
            return None
        if of.function == "difference":
            return value - found
        return float(value - found) / (elapsed / of.length) if elapsed else None

    def decided(self, watermark: int) -> list[Row]:
        """The rows that are decided and were not emitted yet."""
        results = []
        for rows in self.sequences(watermark):
            for at, row in enumerate(rows):
                if self.is_decided(rows, at, watermark) and not any(row is r for r in self.emitted):
                    self.emitted.append(row)
                    values = {name: self.value(of, rows, at) for name, of in self.values.items()}
                    results.append({**row, **values, **self.no_late})
        return results

    @property
    def no_late(self) -> Row:
        return {"late": None} if self.stragglers == "route" else {}

    def step(self, rows: Sequence[Row], watermark: int | None) -> Expected:
        """One micro-batch: late rows by the previous watermark, results by this one."""
        expected = Expected()
        for row in rows:
            expected.counts["rows"] += 1
            instant = row[self.time]
            if instant is None or not YEAR_1 <= instant <= YEAR_9999_ENDS:
                expected.counts["rejected"] += 1
                self.route(expected, row, "null_time" if instant is None else "time_out_of_range")
            elif self.watermark is not None and instant <= self.watermark:
                expected.counts["too_late"] += 1
                self.route(expected, row, "too_late")
            else:
                expected.counts["on_time"] += 1
                self.arrived.append(row)
        if watermark is not None and (self.watermark is None or watermark > self.watermark):
            self.watermark = watermark
            expected.emitted = self.decided(watermark)
        expected.counts["results"] = len(expected.emitted)
        return expected

    def finish(self) -> list[Row]:
        """The rows that are not emitted yet."""
        return self.decided(-NEVER)

    def bound(self) -> int:
        """Maximum rows of state: those not known, those that wait, and those that are read."""
        mark = NEVER if self.watermark is None else self.watermark
        back = max((f.offset for f in self.values.values() if f.function != "lead"), default=0)
        total = sum(row[self.time] > mark for row in self.arrived)
        for rows in self.sequences(mark):
            waiting = sum(not self.is_decided(rows, at, mark) for at in range(len(rows)))
            recent = sum(row[self.time] + self.within > mark for row in rows)
            total += waiting + back if waiting else min(recent, back)
        return total

    def route(self, expected: Expected, row: Row, reason: str) -> None:
        """A row of the side output."""
        if self.stragglers == "drop":
            return
        facts: dict[str, Any] = {}
        if reason == "too_late":
            lateness = self.watermark - row[self.time]  # type: ignore[operator]
            facts = {"lateness": lateness, "watermark": self.watermark}
        filled = {name: row[name] for name in (*self.by, self.time)}
        output = dict.fromkeys((*row, *self.values)) | filled
        expected.late.append(output | {"late": late_row(reason, dict(row), **facts)})
