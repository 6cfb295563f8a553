"""The two small operators of tests/spark/pair_cores.py, row by row."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from streamops.kernel.time import MAX_INSTANT, MIN_INSTANT
from tests.oracles.windows import Expected, Row


@dataclass
class EarlierOracle:
    """How many right rows of its key are not younger than a left row."""

    judged: int | None = None
    waiting: list[Row] = field(default_factory=list)
    seen: list[Row] = field(default_factory=list)

    def step(self, left: Sequence[Row], right: Sequence[Row], watermark: int | None) -> Expected:
        expected = Expected()
        self._take(left, "left", "ts", self.waiting, expected)
        self._take(right, "right", "at", self.seen, expected)
        due = [r for r in self.waiting if watermark is not None and r["ts"] <= watermark]
        self.waiting = [row for row in self.waiting if row not in due]
        expected.emitted = [self._answer(row) for row in due]
        expected.counts["results"] = len(due)
        self.judged = watermark
        return expected

    def _take(
        self, rows: Sequence[Row], side: str, time: str, kept: list[Row], expected: Expected
    ) -> None:
        for row in rows:
            expected.counts["rows"] += 1
            when = row[time]
            if when is None or not MIN_INSTANT <= when <= MAX_INSTANT:
                expected.counts["rejected"] += 1
                expected.late.append(self._late(side, row, "null time", None))
            elif self.judged is not None and when <= self.judged:
                expected.counts["too_late"] += 1
                expected.late.append(self._late(side, row, "too late", self.judged - when))
            else:
                expected.counts["on_time"] += 1
                kept.append(row)

    def _late(self, side: str, row: Row, reason: str, lateness: int | None) -> Row:
        rows = {"left": None, "right": None, side: row}
        told = {"side": side, "reason": reason, "lateness": lateness, "watermark": self.judged}
        return {"late": told | rows}

    def _answer(self, row: Row) -> Row:
        alike = [r for r in self.seen if r["key"] == row["k"] and row["k"] is not None]
        return {**row, "n": sum(r["at"] <= row["ts"] for r in alike)}

    def finish(self) -> list[Row]:
        return [self._answer(row) for row in self.waiting]

    def bound(self) -> int:
        return len(self.waiting) + len(self.seen)


@dataclass
class TallyOracle:
    """How many rows of each key both sides have had."""

    kept: dict[Any, Row] = field(default_factory=dict)

    def step(self, left: Sequence[Row], right: Sequence[Row], watermark: int | None) -> Expected:
        expected = Expected()
        expected.counts["rows"] = len(left) + len(right)
        touched = {}
        for name, key, rows in (("lefts", "k", left), ("rights", "key", right)):
            for row in rows:
                told = touched.setdefault(row[key], {"lefts": 0, "rights": 0})
                told[name] += 1
        for key, came in touched.items():
            before = self.kept.get(key)
            expected.counts["results" if before is None else "corrections"] += 1
            before = before or {"lefts": 0, "rights": 0, "revision": -1}
            sums = {name: before[name] + came[name] for name in came}
            self.kept[key] = {"k": key, **sums, "revision": before["revision"] + 1}
            expected.emitted.append(self.kept[key])
        return expected

    def finish(self) -> list[Row]:
        return []

    def bound(self) -> int:
        return len(self.kept)
