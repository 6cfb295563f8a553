"""Functions per key, a row at a time, in simple Python.

All rows that have ever arrived are stored. In each step, every key is processed from the beginning, and
what was emitted before is left out.
"""

from __future__ import annotations

import copy
import datetime as dt
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

from streamops.testing.laws import Arrival, to_rows
from tests.oracles.side_output import late_row
from tests.oracles.windows import Row, key_of

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
COUNTS = ("rows", "rejected", "on_time", "stragglers", "too_late")
COUNTS = (*COUNTS, "results", "corrections", "failed", "ignored")  # type: ignore[assignment]


def instant(micros: int | None) -> dt.datetime | None:
    return None if micros is None else EPOCH + dt.timedelta(microseconds=micros)


def micros(time: dt.datetime) -> int:
    return (time - EPOCH) // dt.timedelta(microseconds=1)


@dataclass
class Alarms:
    """Timers as a set."""

    at: set[dt.datetime] = field(default_factory=set)

    def set(self, time: dt.datetime) -> None:
        self.at.add(time)

    def cancel(self, time: dt.datetime) -> None:
        self.at.discard(time)

    def cancel_all(self) -> None:
        self.at.clear()

    @property
    def pending(self) -> list[dt.datetime]:
        return sorted(self.at)


@dataclass
class Expected:
    emitted: list[Row] = field(default_factory=list)
    late: list[Row] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(COUNTS, 0))


@dataclass
class PerKeyOracle:
    """The output of a function per key."""

    spec: Any
    previous: int | None = None
    rows: dict[Any, list[Row]] = field(default_factory=dict)
    emitted: dict[Any, int] = field(default_factory=dict)
    mark: int = -(1 << 62)

    def fresh(self) -> PerKeyOracle:
        """An oracle with the same parameters and no rows."""
        return replace(self, previous=None, rows={}, emitted={}, mark=-(1 << 62))

    def step(self, rows: Sequence[Row], watermark: int | None) -> Expected:
        """The expected results of a micro-batch."""
        expected, spec = Expected(), self.spec
        if watermark is not None:
            self.mark = max(self.mark, watermark)
        for row in rows:
            expected.counts["rows"] += 1
            if spec.time is None:
                self.rows.setdefault(key_of(row, spec.by), []).append(row)
                continue
            time = row[spec.time]
            if time is None:
                expected.counts["rejected"] += 1
                expected.late += self._late(row, "null_time", None)
            elif self.previous is not None and time <= self.previous:
                expected.counts["too_late"] += 1
                expected.late += self._late(row, "too_late", self.previous)
            else:
                expected.counts["on_time"] += 1
                self.rows.setdefault(key_of(row, spec.by), []).append(row)
        self.previous = watermark if self.previous is None else max(self.previous, watermark or 0)
        expected.emitted = self._emit(self.mark)
        expected.counts["results"] = len(expected.emitted)
        return expected

    def finish(self) -> list[Row]:
        """Everything that is pending."""
        return [] if self.spec.time is None else self._emit(1 << 62)

    def run(self, arrivals: Sequence[Arrival]) -> list[Row]:
        """The batch result over the rows that are not late."""
        for (batch,), mark in arrivals:
            for row in to_rows(batch):
                time = row[self.spec.time]
                if time is not None and (mark is None or time > mark):
                    self.rows.setdefault(key_of(row, self.spec.by), []).append(row)
        return self._emit(1 << 62)

    def bound(self) -> int:
        """A state for each key, the rows that wait, and a timer for each row and after a timer."""
        rows = sum(map(len, self.rows.values()))
        return len(self.rows) + 3 * rows

    def _late(self, row: Row, reason: str, mark: int | None) -> list[Row]:
        spec = self.spec
        if spec.stragglers != "route":
            return []
        lateness = None if mark is None else mark - row[spec.time]
        late = late_row(reason, dict(row), lateness=lateness, watermark=mark)
        return [{**{name: row[name] for name in spec.by}, spec.time: row[spec.time], "late": late}]

    def _emit(self, mark: int) -> list[Row]:
        fresh = []
        for key, rows in self.rows.items():
            results = list(self._process(rows, mark))
            fresh += results[self.emitted.get(key, 0) :]
            self.emitted[key] = len(results)
        return fresh

    def _process(self, rows: list[Row], mark: int) -> Iterator[Row]:
        """All results of a key up to a watermark."""
        spec = self.spec
        names = {name: rows[0][name] for name in spec.by}
        key = tuple(names.values())
        state = SimpleNamespace(**dict.fromkeys(spec.state.names))
        for name, value in copy.deepcopy(spec.initial):
            setattr(state, name, value)
        alarms = Alarms()
        queue = list(rows)
        if spec.time is not None:
            rest = sorted({*rows[0]} - {*spec.by, spec.time, *spec.order_by})
            order = [spec.time, *spec.order_by, *rest]
            queue = [row for row in rows if row[spec.time] <= mark]
            queue.sort(key=lambda row: [(row[n] is not None, row[n] or 0) for n in order])
        now = -(1 << 62)
        while True:
            alarm = micros(min(alarms.at)) if alarms.at else 1 << 63
            if queue and (spec.time is None or queue[0][spec.time] <= alarm):
                row = queue.pop(0)
                now = 0 if spec.time is None else row[spec.time]
                values = {n: instant(v) if n == "ts" else v for n, v in row.items()}
                arguments = [key, iter([SimpleNamespace(**values)]), state]
                arguments += [] if spec.on_timer is None else [alarms]
                found = list(spec.function(*arguments))
            elif alarm <= mark:
                now = max(now, alarm)
                alarms.at.remove(min(alarms.at))
                found = list(spec.on_timer(key, instant(alarm), state, alarms))
            else:
                return
            for values in found:
                time = {} if spec.time is None else {spec.time: now}
                yield {**names, **time, **dict(zip(spec.result.names, values, strict=True))}
