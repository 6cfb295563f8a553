"""Silences of keys, an event at a time, in simple Python.

All events that have ever arrived are stored. In each step, the events of every key are compared from the
first one on, and what was emitted before is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from tests.oracles.windows import Expected, Row

FOREVER = 1 << 62


@dataclass
class SilencesOracle:
    """Intervals between two events of a key that are longer than a bound."""

    by: str
    time: str
    longest: int

    events: dict[Any, list[int]] = field(default_factory=dict)
    emitted: dict[Any, int] = field(default_factory=dict)
    mark: int | None = None

    def fresh(self) -> SilencesOracle:
        """An oracle with the same parameters and no events."""
        return replace(self, events={}, emitted={}, mark=None)

    def step(self, rows: Sequence[Row], watermark: int | None) -> Expected:
        """The expected results of a micro-batch."""
        expected = Expected()
        for row in rows:
            time = row[self.time]
            is_late = time is not None and self.mark is not None and time <= self.mark
            fate = "rejected" if time is None else "too_late" if is_late else "on_time"
            expected.counts[fate] += 1
            if fate == "on_time":
                self.events.setdefault(row[self.by], []).append(time)
        expected.counts["rows"] = len(rows)
        if watermark is not None:
            self.mark = watermark if self.mark is None else max(self.mark, watermark)
        expected.emitted = self._emit(self.mark)
        expected.counts["results"] = len(expected.emitted)
        return expected

    def finish(self) -> list[Row]:
        """Everything that is pending."""
        return self._emit(FOREVER)

    def bound(self) -> int:
        """The newest event of each key, and the events that wait."""
        times = [(key, time) for key, times in self.events.items() for time in times]
        due = [key for key, time in times if self.mark is not None and time <= self.mark]
        return len(set(due)) + len(times) - len(due)

    def _emit(self, mark: int | None) -> list[Row]:
        fresh = []
        for key, times in self.events.items():
            due = sorted(time for time in times if mark is not None and time <= mark)
            found = [
                {self.by: key, self.time: end, "since": start}
                for start, end in pairwise(due)
                if end - start > self.longest
            ]
            fresh += found[self.emitted.get(key, 0) :]
            self.emitted[key] = len(found)
        return fresh
