"""Rows on a grid of event time, in simple Python: the expected results of a core.

Every accepted row is stored, and every instant of the grid is looked up in all of them by its definition.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.oracles.ordered import NEVER, OrderedOracle
from tests.oracles.windows import YEAR_9999_ENDS, Row, is_nan


@dataclass(kw_only=True)
class ResampleOracle(OrderedOracle):
    """The parameters, and what has arrived."""

    every: int
    values: Mapping[str, str]
    max_gap: int

    @property
    def added(self) -> Sequence[str]:
        return ["observed_at"]

    @property
    def returned(self) -> Sequence[str]:
        return [*self.by, self.time, *self.values]

    @property
    def waits(self) -> bool:
        return "linear" in self.values.values()

    def series(self, watermark: int) -> dict[Any, list[Row]]:
        """The rows of each key up to a watermark: the last one of each event time, in order."""
        return {
            key: list({row[self.time]: row for row in rows}.values())
            for key, rows in self.sequences(watermark).items()
        }

    def value(self, column: str, method: str, before: Row, after: Row | None, instant: int) -> Any:
        """The definition of a value at an instant."""
        value, elapsed = before[column], instant - before[self.time]
        if method == "previous":
            return value
        if method == "null":
            return None if elapsed else value
        if value is None or not elapsed:
            return None if value is None else float(value)
        if after is None or after[column] is None:
            return None
        distance = after[self.time] - before[self.time]
        if distance > self.max_gap:
            return None
        low, high = float(value), float(after[column])
        share = float(elapsed) / float(distance)
        found = low + (high - low) * share
        if not math.isfinite(high - low):
            found = low * (1 - share) + high * share
        return found if is_nan(found) else min(max(found, min(low, high)), max(low, high))

    def decided(self, watermark: int) -> list[Row]:
        """The instants that are decided and were not emitted yet."""
        results = []
        for key, rows in self.series(watermark).items():
            times = [row[self.time] for row in rows]
            # Instants with a row at or before them, at most `max_gap` before.
            instants = {
                number * self.every
                for time in times
                for number in range(-(-time // self.every), (time + self.max_gap) // self.every + 1)
            }
            for instant in sorted(instants):
                at = bisect.bisect_right(times, instant)
                before, after = rows[at - 1], rows[at] if at < len(rows) else None
                known_from = instant
                if self.waits:
                    ends = before[self.time] + self.max_gap
                    known_from = min(ends, watermark if after else ends)
                if known_from > watermark or instant > YEAR_9999_ENDS:
                    continue
                if (key, instant) in self.emitted:
                    continue
                self.emitted.append((key, instant))
                values = {
                    name: self.value(name, method, before, after, instant)
                    for name, method in self.values.items()
                }
                keys = {name: before[name] for name in self.by}
                times_of = {self.time: instant, "observed_at": before[self.time]}
                results.append({**keys, **times_of, **values, **self.no_late})
        return results

    def bound(self) -> int:
        """Maximum rows of state: those not known, and the last one of each key within the gap."""
        mark = NEVER if self.watermark is None else self.watermark
        total = sum(row[self.time] > mark for row in self.arrived)
        series = self.series(mark).values()
        return total + sum(rows[-1][self.time] + self.max_gap > mark for rows in series)
