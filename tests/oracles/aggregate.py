"""Aggregates of groups over a change stream, from a bag of all rows, in the plainest Python.

How often a row is there is how often it was published less how often it was taken back; where a
delete comes before its insert that is below 0 for a while. Totals count such rows, as debts;
everything else looks at rows that are there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from streamops.testing.values import comparable
from tests.oracles.windows import Expected, Row

Weighted = list[tuple[Row, int]]
Answer = Callable[[Weighted], Any]

SIGN = {"insert": 1, "update_postimage": 1, "update_preimage": -1, "delete": -1}


@dataclass
class AggregateOracle:
    """What is said of each group that has rows, whenever it is something else."""

    by: tuple[str, ...]
    answers: Mapping[str, Answer]

    rows: dict[Any, tuple[Row, int]] = field(default_factory=dict)
    said: dict[Any, Row] = field(default_factory=dict)

    def fresh(self) -> AggregateOracle:
        """The same settings; nothing has been seen."""
        return replace(self, rows={}, said={})

    def step(self, changes: Sequence[Row], watermark: int | None = None) -> Expected:
        """What a micro-batch must give."""
        for change in changes:
            row = {k: v for k, v in change.items() if k not in ("_change_type", "ts")}
            sign = SIGN.get(change["_change_type"], 0)
            key = comparable(row)
            self.rows[key] = (row, self.rows.get(key, (row, 0))[1] + sign)
        groups: dict[Any, Weighted] = {}
        for row, times in self.rows.values():
            groups.setdefault(self._of(row), []).append((row, times))
        expected = Expected()
        bad = sum(change["_change_type"] not in SIGN for change in changes)
        expected.counts |= {"rows": len(changes), "rejected": bad}
        for key, rows in groups.items():
            self._tell(key, rows, expected)
        return expected

    def _of(self, row: Row) -> Any:
        return comparable([row[name] for name in self.by])

    def _tell(self, key: Any, rows: Weighted, expected: Expected) -> None:
        before, now = self.said.pop(key, None), None
        if sum(times for _, times in rows) > 0:
            now = {name: rows[0][0][name] for name in self.by}
            now |= {name: answer(rows) for name, answer in self.answers.items()}
            self.said[key] = now
        told: list[tuple[Row | None, str]] = []
        if before is None or now is None:
            told = [(before, "delete"), (now, "insert")]
            expected.counts["results"] += now is not None
        elif comparable(before) != comparable(now):
            told = [(before, "update_preimage"), (now, "update_postimage")]
            expected.counts["corrections"] += 1
        expected.emitted += [{**row, "_change_type": change} for row, change in told if row]

    def finish(self) -> list[Row]:
        """Nothing: all is said."""
        return []

    def bound(self) -> int:
        """An entry for each group, and for each different row."""
        rows = [row for row, times in self.rows.values() if times]
        return len({self._of(row) for row in rows}) + len(rows)


def present(rows: Weighted, column: str) -> list[tuple[Any, int]]:
    return [(row[column], times) for row, times in rows if row[column] is not None and times]


def count(column: str | None) -> Answer:
    def answer(rows: Weighted) -> int:
        if column is None:
            return sum(times for _, times in rows)
        return sum(times for _, times in present(rows, column))

    return answer


def total(column: str) -> Answer:
    """The exact sum, rounded once."""

    def answer(rows: Weighted) -> Any:
        values = present(rows, column)
        if sum(times for _, times in values) <= 0:
            return None
        of = [sum(t for v, t in values if same(v)) for same in (math.isnan, is_inf(1), is_inf(-1))]
        if of[0] > 0 or (of[1] > 0 and of[2] > 0):
            return math.nan
        if of[1] > 0 or of[2] > 0:
            return math.inf if of[1] > 0 else -math.inf
        found = sum((Fraction(v) * t for v, t in values if math.isfinite(v)), Fraction(0))
        if all(isinstance(value, int) for value, _ in values):
            return int(found)
        try:
            return float(found)
        except OverflowError:
            return math.inf if found > 0 else -math.inf

    return answer


def is_inf(sign: int) -> Callable[[Any], bool]:
    return lambda value: math.isinf(value) and value * sign > 0


def mean(column: str) -> Answer:
    """The sum as a double, over the number of values."""
    sums, counts = total(column), count(column)

    def answer(rows: Weighted) -> Any:
        found = sums(rows)
        return None if found is None else float(found) / counts(rows)

    return answer


def there(rows: Weighted, column: str) -> list[Any]:
    return [value for value, times in present(rows, column) for _ in range(times)]


def extreme(column: str, pick: Callable[..., Any]) -> Answer:
    return lambda rows: pick(there(rows, column), key=comparable_number, default=None)


def comparable_number(value: Any) -> Any:
    """NaN is the greatest number."""
    nan = isinstance(value, float) and math.isnan(value)
    return (nan, 0 if nan else value)


def top(k: int, column: str, ranked_by: str) -> Answer:
    """The values of the rows that are greatest in another column, and then in this one."""

    def answer(rows: Weighted) -> list[Any]:
        ranked = [row for row, times in rows if row[ranked_by] is not None for _ in range(times)]
        ranked.sort(
            key=lambda row: (
                comparable_number(row[ranked_by]),
                row[column] is not None,
                row[column] or 0,
            ),
            reverse=True,
        )
        return [row[column] for row in ranked[:k]]

    return answer


def distinct(column: str) -> Answer:
    return lambda rows: len({comparable(value) for value in there(rows, column)})
