"""The clock of a stream with several producers, row by row, in plain Python.

Rows are (producer, event time, arrival); instants are microseconds, None is a null.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

YEAR_1 = -62_135_596_800_000_000
YEAR_9999_ENDS = 253_402_300_799_999_999

Row = tuple[Any, int | None, int | None]


def in_calendar(instant: int | None) -> bool:
    return instant is not None and YEAR_1 <= instant <= YEAR_9999_ENDS


@dataclass
class Producer:
    """The greatest event time and arrival since it became active. An expected one has no time."""

    newest: int | None
    seen: int


@dataclass
class ProducersOracle:
    """The active producers, and the clock."""

    idle: int
    expected: Sequence[Any] = ()
    clock: int | None = None
    active: dict[Any, Producer] = field(default_factory=dict)

    def step(self, rows: Sequence[Row]) -> dict[str, Any]:
        """Process one micro-batch, and return its metrics."""
        before = set(self.active)
        rejected = 0
        for name, time, arrival in rows:
            if not in_calendar(time) or not in_calendar(arrival):
                rejected += 1
                continue
            assert time is not None
            assert arrival is not None
            producer = self.active.setdefault(name, Producer(time, arrival))
            producer.newest = time if producer.newest is None else max(producer.newest, time)
            producer.seen = max(producer.seen, arrival)

        # Expected producers are active from the first micro-batch with a usable row.
        if not before and self.active:
            start = max(p.seen for p in self.active.values())
            for name in self.expected:
                self.active.setdefault(name, Producer(None, start)).seen = start

        # Silence is measured from the newest arrival of all producers.
        for name in list(self.active):
            if max(p.seen for p in self.active.values()) - self.active[name].seen >= self.idle:
                del self.active[name]

        # Producers behind the clock do not hold it.
        holding = {
            name: p.newest
            for name, p in self.active.items()
            if self.clock is None or (p.newest is not None and p.newest >= self.clock)
        }
        awaited = [name for name, time in holding.items() if time is None]
        if holding and not awaited:
            self.clock = min(time for time in holding.values() if time is not None)
        newest = max((p.newest for p in self.active.values() if p.newest is not None), default=None)
        slowest = [name for name, time in holding.items() if time == self.clock]
        return {
            "rows": len(rows),
            "rejected": rejected,
            "active": len(self.active),
            "behind": len(self.active) - len(holding),
            "joined": len(set(self.active) - before),
            "forgotten": len(before - set(self.active)),
            "clock": self.clock,
            "newest": newest,
            "held_by": first(awaited or slowest),
            "led_by": first(name for name, p in self.active.items() if p.newest == newest),
        }


def first(names: Any) -> str | None:
    return min(("null" if name is None else str(name) for name in names), default=None)
