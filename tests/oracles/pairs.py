"""The two operators of :mod:`tests.spark.pair_cores`, row by row in plain Python."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from streamops.kernel.time import MAX_INSTANT, MIN_INSTANT
from tests.oracles.side_output import late_row
from tests.oracles.windows import Expected, Row


@dataclass
class EarlierOracle:
    """For each left row: how many right rows of its key are not later."""

    watermark: int | None = None
    waiting: list[Row] = field(default_factory=list)
    right: list[Row] = field(default_factory=list)

    def step(self, left: Sequence[Row], right: Sequence[Row], watermark: int | None) -> Expected:
        expected = Expected()
        self._accept(left, "left", "ts", self.waiting, expected)
        self._accept(right, "right", "at", self.right, expected)
        due = [r for r in self.waiting if watermark is not None and r["ts"] <= watermark]
        self.waiting = [row for row in self.waiting if row not in due]
        expected.emitted = [self._count(row) for row in due]
        expected.counts["results"] = len(due)
        self.watermark = watermark
        return expected

    def _accept(
        self, rows: Sequence[Row], side: str, time: str, accepted: list[Row], expected: Expected
    ) -> None:
        for row in rows:
            expected.counts["rows"] += 1
            instant = row[time]
            if instant is None or not MIN_INSTANT <= instant <= MAX_INSTANT:
                expected.counts["rejected"] += 1
                expected.late.append(self._late(side, row, "null_time", None))
            elif self.watermark is not None and instant <= self.watermark:
                expected.counts["too_late"] += 1
                expected.late.append(self._late(side, row, "too_late", self.watermark - instant))
            else:
                expected.counts["on_time"] += 1
                accepted.append(row)

    def _late(self, side: str, row: Row, reason: str, lateness: int | None) -> Row:
        watermark = None if lateness is None else self.watermark
        return {"late": late_row(reason, row, side=side, lateness=lateness, watermark=watermark)}

    def _count(self, row: Row) -> Row:
        matches = [r for r in self.right if r["key"] == row["k"] and row["k"] is not None]
        return {**row, "n": sum(r["at"] <= row["ts"] for r in matches)}

    def finish(self) -> list[Row]:
        return [self._count(row) for row in self.waiting]

    def bound(self) -> int:
        return len(self.waiting) + len(self.right)


@dataclass
class TallyOracle:
    """The number of rows per key and side."""

    results: dict[Any, Row] = field(default_factory=dict)

    def step(self, left: Sequence[Row], right: Sequence[Row], watermark: int | None) -> Expected:
        expected = Expected()
        expected.counts["rows"] = len(left) + len(right)
        arrived: dict[Any, dict[str, int]] = {}
        for name, key, rows in (("lefts", "k", left), ("rights", "key", right)):
            for row in rows:
                arrived.setdefault(row[key], {"lefts": 0, "rights": 0})[name] += 1
        for key, counts in arrived.items():
            before = self.results.get(key)
            expected.counts["results" if before is None else "corrections"] += 1
            before = before or {"lefts": 0, "rights": 0, "revision": -1}
            sums = {name: before[name] + counts[name] for name in counts}
            self.results[key] = {"k": key, **sums, "revision": before["revision"] + 1}
            expected.emitted.append(self.results[key])
        return expected

    def finish(self) -> list[Row]:
        return []

    def bound(self) -> int:
        return len(self.results)
