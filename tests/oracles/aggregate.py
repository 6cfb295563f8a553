"""Aggregates of groups over a change stream, from a multiset of all rows, in simple Python.

The weight of a row is the number of inserts minus the number of deletes. It is below 0 while a delete
has arrived before its insert. Totals include negative weights, but no emitted count is below 0. All
other aggregates use the rows with a positive weight, after adding the weights of rows that are equal
in the columns that they read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction
from typing import Any

from streamops.kernel.values import comparable
from tests.oracles.lists import at
from tests.oracles.windows import Expected, Row, ranked

Weighted = list[tuple[Row, int]]
Answer = Callable[[Weighted], Any]

SIGN = {"insert": 1, "update_postimage": 1, "update_preimage": -1, "delete": -1}


@dataclass
class AggregateOracle:
    """The result of each group with rows, whenever it changes.

    ``read`` has the columns of the answers that are not totals.
    """

    by: tuple[str, ...]
    answers: Mapping[str, Answer]
    read: Mapping[str, Sequence[str]] = field(default_factory=dict)

    rows: dict[Any, tuple[Row, int]] = field(default_factory=dict)
    published: dict[Any, Row] = field(default_factory=dict)

    def fresh(self) -> AggregateOracle:
        """An oracle with the same parameters and no rows."""
        return replace(self, rows={}, published={})

    def step(self, changes: Sequence[Row], watermark: int | None = None) -> Expected:
        """The expected results of a micro-batch."""
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
            self._emit(key, rows, expected)
        return expected

    def _of(self, row: Row) -> Any:
        return comparable([row[name] for name in self.by])

    def _emit(self, key: Any, rows: Weighted, expected: Expected) -> None:
        before, now = self.published.pop(key, None), None
        if sum(times for _, times in rows) > 0:
            now = {name: rows[0][0][name] for name in self.by}
            combined = together(
                rows, {column for columns in self.read.values() for column in columns}
            )
            for name, answer in self.answers.items():
                now[name] = answer(combined if name in self.read else rows)
            self.published[key] = now
        changes: list[tuple[Row | None, str]] = []
        if before is None or now is None:
            changes = [(before, "delete"), (now, "insert")]
            expected.counts["results"] += now is not None
        elif comparable(before) != comparable(now):
            changes = [(before, "update_preimage"), (now, "update_postimage")]
            expected.counts["corrections"] += 1
        expected.emitted += [{**row, "_change_type": change} for row, change in changes if row]

    def finish(self) -> list[Row]:
        """Nothing is pending."""
        return []

    def bound(self) -> int:
        """One row of state per group, and per distinct row."""
        rows = [row for row, times in self.rows.values() if times]
        return len({self._of(row) for row in rows}) + len(rows)


def together(rows: Weighted, columns: Collection[str]) -> Weighted:
    """Rows that are equal in these columns, combined."""
    found: dict[Any, tuple[Row, int]] = {}
    for row, times in rows:
        key = comparable({name: row[name] for name in columns})
        found[key] = (row, found.get(key, (row, 0))[1] + times)
    return list(found.values())


def present(rows: Weighted, column: str) -> list[tuple[Any, int]]:
    return [(row[column], times) for row, times in rows if row[column] is not None and times]


def count(column: str | None) -> Answer:
    def answer(rows: Weighted) -> int:
        counted = rows if column is None else present(rows, column)
        return max(0, sum(times for _, times in counted))

    return answer


def total(column: str) -> Answer:
    """The exact sum, of doubles rounded once."""

    def answer(rows: Weighted) -> Any:
        values = present(rows, column)
        if sum(times for _, times in values) <= 0:
            return None
        if isinstance(values[0][0], float):
            return nearest(values)
        return sum(value * times for value, times in values)

    return answer


def nearest(values: Sequence[tuple[float, int]]) -> float:
    """The double nearest to the sum."""
    of = [sum(t for v, t in values if same(v)) for same in (math.isnan, is_inf(1), is_inf(-1))]
    if of[0] > 0 or (of[1] > 0 and of[2] > 0):
        return math.nan
    if of[1] > 0 or of[2] > 0:
        return math.inf if of[1] > 0 else -math.inf
    found = sum((Fraction(v) * t for v, t in values if math.isfinite(v)), Fraction(0))
    try:
        return float(found)
    except OverflowError:
        return math.inf if found > 0 else -math.inf


def is_inf(sign: int) -> Callable[[Any], bool]:
    return lambda value: math.isinf(value) and value * sign > 0


def mean(column: str) -> Answer:
    """The sum over the number of values: as a double, or of decimals with four more digits."""
    sums, counts = total(column), count(column)

    def answer(rows: Weighted) -> Any:
        found = sums(rows)
        if isinstance(found, Decimal):
            last = Decimal(1).scaleb(int(found.as_tuple().exponent) - 4)
            return (found / counts(rows)).quantize(last, ROUND_HALF_UP)
        return None if found is None else float(found) / counts(rows)

    return answer


def there(rows: Weighted, column: str) -> list[Any]:
    return [value for value, times in present(rows, column) for _ in range(times)]


def extreme(column: str, pick: Callable[..., Any]) -> Answer:
    return lambda rows: pick(there(rows, column), key=ranked, default=None)


def top(k: int, column: str, ranked_by: str, tie_break: str) -> Answer:
    """The values of the rows that are greatest in two other columns, and then in this one."""

    def answer(rows: Weighted) -> list[Any]:
        found = [row for row, times in rows if row[ranked_by] is not None for _ in range(times)]
        found.sort(key=lambda row: [ranked(row[n]) for n in (ranked_by, tie_break, column)])
        return [row[column] for row in found[::-1][:k]]

    return answer


def distinct(column: str) -> Answer:
    return lambda rows: len({comparable(value) for value in there(rows, column)})


def variance(column: str, *, root: bool = False) -> Answer:
    """In two passes over the values from the least to the greatest, each distance rounded.

    So it is the same to the last bit for the same values, in any order of arrival.
    """

    def answer(rows: Weighted) -> Any:
        values = [float(value) for value in sorted(there(rows, column), key=ranked)]
        if len(values) < 2:
            return None
        offsets = [value - values[0] for value in values]
        shift = one_by_one(offsets) / len(values)
        squares = [(offset - shift) * (offset - shift) for offset in offsets]
        found = one_by_one(squares) / (len(values) - 1)
        return math.sqrt(found) if root else found

    return answer


def one_by_one(values: Sequence[float]) -> float:
    """The sum, rounded after each value: Python's own is not."""
    found = 0.0
    for value in values:
        found += value
    return found


def quantiles(column: str, *probabilities: float) -> Answer:
    """Between the two values that are next, as Spark does."""

    def answer(rows: Weighted) -> Any:
        values = sorted(there(rows, column), key=ranked)
        return [at(values, probability) for probability in probabilities] if values else None

    return answer
