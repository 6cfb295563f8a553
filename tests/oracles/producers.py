"""The clock of a stream with many producers, row by row, in the plainest Python there is.

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
    """The greatest event time and the greatest arrival since it became active; no event time of
    one that is only expected."""

    newest: int | None
    seen: int


@dataclass
class ProducersOracle:
    """The producers that are active, and the clock."""

    idle: int
    expected: Sequence[Any] = ()
    clock: int | None = None
    active: dict[Any, Producer] = field(default_factory=dict)

    def step(self, rows: Sequence[Row]) -> dict[str, Any]:
        """One micro-batch; what must be told of it."""
        before = set(self.active)
        rejected = 0
        for name, time, arrival in rows:
            if not in_calendar(time) or not in_calendar(arrival):
                rejected += 1
                continue
            assert time is not None
            assert arrival is not None
            there = self.active.setdefault(name, Producer(time, arrival))
            there.newest = time if there.newest is None else max(there.newest, time)
            there.seen = max(there.seen, arrival)

        # Who is expected counts as seen in the first micro-batch that has something to say.
        if not before and self.active:
            start = max(p.seen for p in self.active.values())
            for name in self.expected:
                self.active.setdefault(name, Producer(None, start)).seen = start

        # Who was seen last is not silent. Everyone else is, if that was long enough before.
        for name in list(self.active):
            if max(p.seen for p in self.active.values()) - self.active[name].seen >= self.idle:
                del self.active[name]

        # Nobody who is behind the clock has a say in it.
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
