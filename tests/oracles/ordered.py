"""Rows in the order of event time, in simple Python: what the oracles of `over` and `resample` share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self

from tests.oracles.side_output import late_row
from tests.oracles.windows import YEAR_1, YEAR_9999_ENDS, Expected, Row, is_nan, key_of

NEVER = -(1 << 62)


@dataclass(kw_only=True)
class OrderedOracle:
    """The parameters, and what has arrived. Every accepted row is stored."""

    by: tuple[str, ...]
    time: str
    tie_break: tuple[str, ...] = ()
    stragglers: str = "drop"

    watermark: int | None = None
    arrived: list[Row] = field(default_factory=list)
    emitted: list[Any] = field(default_factory=list)

    @property
    @abstractmethod
    def added(self) -> Sequence[str]:
        """Columns of the output that the input does not have."""

    @property
    @abstractmethod
    def returned(self) -> Sequence[str] | None:
        """Columns of the input that are read, all of which can break a tie; None for all."""

    @abstractmethod
    def decided(self, watermark: int) -> list[Row]:
        """The results that are decided and were not emitted yet."""

    def fresh(self) -> Self:
        """An oracle with the same parameters and no rows."""
        return replace(self, watermark=None, arrived=[], emitted=[])

    def sequences(self, watermark: int) -> dict[Any, list[Row]]:
        """The rows of each key up to a watermark, in order."""
        found: dict[Any, list[Row]] = {}
        for row in sorted(self.arrived, key=self.position):
            if row[self.time] <= watermark:
                found.setdefault(key_of(row, self.by), []).append(row)
        return found

    def position(self, row: Row) -> list[Any]:
        """Where a row is among those of its key: nulls first, NaN last."""
        names = [self.time, *self.tie_break, *sorted(self.returned or row)]
        return [
            (0, 0) if row[n] is None else (2, 0) if is_nan(row[n]) else (1, row[n]) for n in names
        ]

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
        """The results that are not emitted yet."""
        return self.decided(-NEVER)

    def route(self, expected: Expected, row: Row, reason: str) -> None:
        """A row of the side output."""
        if self.stragglers == "drop":
            return
        facts: dict[str, Any] = {}
        if reason == "too_late":
            lateness = self.watermark - row[self.time]  # type: ignore[operator]
            facts = {"lateness": lateness, "watermark": self.watermark}
        filled = {name: row[name] for name in (*self.by, self.time)}
        output = dict.fromkeys((*(self.returned or row), *self.added)) | filled
        expected.late.append(output | {"late": late_row(reason, dict(row), **facts)})
