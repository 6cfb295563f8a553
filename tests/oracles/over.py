"""Values of the rows before and after a row, in simple Python: the expected results of a core.

Every accepted row is stored, and every value is looked up in all of them by its definition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from streamops.windows.core.over import RowFunction
from tests.oracles.ordered import NEVER, OrderedOracle
from tests.oracles.windows import Row


@dataclass(kw_only=True)
class OverOracle(OrderedOracle):
    """Functions of other rows, without averages, whose floats are not exact."""

    values: Mapping[str, RowFunction]
    within: int

    @property
    def added(self) -> Sequence[str]:
        return list(self.values)

    @property
    def returned(self) -> None:
        """All columns."""

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
        for rows in self.sequences(watermark).values():
            for at, row in enumerate(rows):
                if self.is_decided(rows, at, watermark) and not any(row is r for r in self.emitted):
                    self.emitted.append(row)
                    values = {name: self.value(of, rows, at) for name, of in self.values.items()}
                    results.append({**row, **values, **self.no_late})
        return results

    def bound(self) -> int:
        """Maximum rows of state: those not known, those that wait, and those that are read."""
        mark = NEVER if self.watermark is None else self.watermark
        back = max((f.offset for f in self.values.values() if f.function != "lead"), default=0)
        total = sum(row[self.time] > mark for row in self.arrived)
        for rows in self.sequences(mark).values():
            waiting = sum(not self.is_decided(rows, at, mark) for at in range(len(rows)))
            recent = sum(row[self.time] + self.within > mark for row in rows)
            total += waiting + back if waiting else min(recent, back)
        return total
