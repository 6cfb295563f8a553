"""Sliding windows, row by row, in simple Python: the expected results of a core.

Only the accepted rows and the last emitted results are stored. Every window is found among all rows
whenever its result is needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from streamops.aggregates import Aggregate
from tests.oracles.side_output import late_row
from tests.oracles.windows import (
    YEAR_1,
    YEAR_9999_ENDS,
    Expected,
    Published,
    Row,
    key_of,
    same,
    value_of,
)

Timestamp = tuple[Any, int]
"""A key, and an instant at which it has events."""


@dataclass
class SlidingOracle:
    """Sliding windows with every policy for stragglers."""

    size: int
    by: tuple[str, ...]
    time: str
    agg: Mapping[str, Aggregate]
    allowed_lateness: int = 0
    stragglers: str = "drop"
    too_late: str = "drop"
    early: str = "never"

    watermark: int | None = None
    arrived: list[Row] = field(default_factory=list)
    published: dict[Timestamp, Published] = field(default_factory=dict)

    @property
    def corrects(self) -> bool:
        return self.stragglers in ("update", "retract")

    @property
    def is_early(self) -> bool:
        return self.early != "never"

    @property
    def routes(self) -> bool:
        return "route" in (self.stragglers, self.too_late)

    def fresh(self) -> SlidingOracle:
        """An oracle with the same parameters and no rows."""
        return replace(self, watermark=None, arrived=[], published={})

    def timestamps(self) -> list[Timestamp]:
        """Every key and instant at which there is an event, once."""
        return list(dict.fromkeys((key_of(r, self.by), r[self.time]) for r in self.arrived))

    def window(self, timestamp: Timestamp) -> list[Row]:
        """The rows of its key in (t - size, t]: the definition."""
        key, t = timestamp
        return [
            row
            for row in self.arrived
            if key_of(row, self.by) == key and t - self.size < row[self.time] <= t
        ]

    def step(self, rows: Sequence[Row], watermark: int | None) -> Expected:
        """One micro-batch: late rows by the previous watermark, results by this one."""
        expected = Expected()
        for row in rows:
            expected.counts["rows"] += 1
            instant = row[self.time]
            if instant is None or not YEAR_1 <= instant <= YEAR_9999_ENDS:
                expected.counts["rejected"] += 1
                if self.routes:
                    reason = "null_time" if instant is None else "time_out_of_range"
                    expected.late.append(self._late(row, reason, is_late=False))
                continue
            timing = self._classify(instant)
            expected.counts[timing] += 1
            if timing == "on_time" or (timing == "stragglers" and self.corrects):
                self.arrived.append(row)
            elif self.routes:
                reason = "straggler" if timing == "stragglers" else "too_late"
                expected.late.append(self._late(row, reason, is_late=True))
        previous_watermark = self.watermark
        if watermark is not None and (self.watermark is None or watermark > self.watermark):
            self.watermark = watermark
        for timestamp in self.timestamps():
            if self._passed(timestamp[1]) or self.is_early:
                self._emit(timestamp, expected, previous_watermark)
        return expected

    def finish(self) -> list[Row]:
        """Every result that is not on time yet."""
        expected, over = (
            Expected(),
            replace(self, watermark=1 << 62, published=dict(self.published)),
        )
        for timestamp in self.timestamps():
            if not self._passed(timestamp[1]):
                over._emit(timestamp, expected, self.watermark)
        return expected.emitted

    def bound(self) -> int:
        """Maximum rows of state: timestamps in windows that can still be computed, and the
        revisions of results that can still change.
        """
        keeps = self.allowed_lateness if self.corrects else 0
        last = self.size - 1  # the last window that an event is in ends so long after it
        timestamps = [t for _, t in self.timestamps() if not self._passed(t + last + keeps)]
        revised = [
            t
            for (_, t), emitted in self.published.items()
            if emitted.revision > 0 and not self._passed(t + keeps)
        ]
        return len(timestamps) + len(revised)

    def _passed(self, instant: int) -> bool:
        return self.watermark is not None and instant <= self.watermark

    def _classify(self, instant: int) -> str:
        if not self._passed(instant):
            return "on_time"
        return "too_late" if self._passed(instant + self.allowed_lateness) else "stragglers"

    def _emit(
        self, timestamp: Timestamp, expected: Expected, previous_watermark: int | None
    ) -> None:
        """Publish the result, if it differs from what was published."""
        before, values = self.published.get(timestamp), self._values(timestamp)
        behind = previous_watermark is not None and timestamp[1] <= previous_watermark
        timing = "late" if behind else "on_time" if self._passed(timestamp[1]) else "early"
        if before is None:
            self.published[timestamp] = Published(1 if behind else 0, values, timing)
            expected.emitted.append(self._row(timestamp, self.published[timestamp], "insert"))
            expected.counts["results"] += 1
        elif (before.timing == "early" != timing) or not same(before.values, values):
            if self.stragglers == "retract":
                expected.emitted.append(self._row(timestamp, before, "update_preimage"))
            self.published[timestamp] = Published(before.revision + 1, values, timing)
            expected.emitted.append(
                self._row(timestamp, self.published[timestamp], "update_postimage")
            )
            expected.counts["corrections"] += 1

    def _values(self, timestamp: Timestamp) -> Row:
        rows = self.window(timestamp)
        return {name: value_of(a, rows, self.time) for name, a in self.agg.items()}

    def _row(self, timestamp: Timestamp, last: Published, change: str) -> Row:
        row = {name: self.window(timestamp)[-1][name] for name in self.by}
        row |= {self.time: timestamp[1], **last.values}
        if self.corrects or self.is_early:
            row["revision"] = last.revision
        if self.is_early:
            row["timing"] = last.timing
        if self.stragglers == "retract":
            row["_change_type"] = change
        if self.routes:
            row["late"] = None
        return row

    def _late(self, row: Row, reason: str, *, is_late: bool) -> Row:
        output = {name: row[name] for name in self.by}
        output |= dict.fromkeys((self.time, *self.agg))
        lateness = watermark = None
        if is_late and self.watermark is not None:
            output[self.time] = row[self.time]
            lateness, watermark = self.watermark - row[self.time], self.watermark
        output["late"] = late_row(reason, dict(row), lateness=lateness, watermark=watermark)
        return output
