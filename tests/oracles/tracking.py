"""The offsets of devices' clocks, message by message, in the plainest Python there is.

Nothing is ever forgotten: of each device, every sample that was seen.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.oracles.windows import YEAR_1, YEAR_9999_ENDS, Row, key_of

CELLS = 16


@dataclass
class TrackOracle:
    """Clocks that are followed from message to message."""

    by: tuple[str, ...]
    horizon: int
    step: int
    largest_offset: int | None = None

    samples: dict[Any, list[tuple[int, int]]] = field(default_factory=dict)

    def fresh(self) -> TrackOracle:
        """The same settings; nothing has been seen."""
        return replace(self, samples={})

    def judge(self, rows: Sequence[Row]) -> list[tuple[int | None, str | None]]:
        """The offset of each row, and how it came about."""
        said: list[tuple[int | None, str | None]] = [(None, None)] * len(rows)
        latest = {key: max(at for at, _ in seen) for key, seen in self.samples.items()}
        order = [number for number, row in enumerate(rows) if self._is_sample(row)]
        for number in sorted(order, key=lambda number: rows[number]["received"]):
            row = rows[number]
            key, offset = key_of(row, self.by), row["received"] - row["sent"]
            at = max(row["received"], latest.get(key, row["received"]))
            self.samples.setdefault(key, []).append((at, offset))
        for number in order:
            row = rows[number]
            key, offset = key_of(row, self.by), row["received"] - row["sent"]
            at = max(row["received"], latest.get(key, row["received"]))
            said[number] = self._said(self.instants(key), at, offset)
        return said

    def instants(self, key: Any) -> list[tuple[int, int]]:
        """The instants of a device in order, and the least sample of each."""
        found: dict[int, int] = {}
        for at, offset in self.samples[key]:
            found[at] = min(offset, found.get(at, offset))
        return sorted(found.items())

    def _said(self, known: list[tuple[int, int]], at: int, offset: int) -> tuple[int, str]:
        before = [each for each in known if each[0] < at]
        if not before or not self._near(before[-1][0], at):
            return offset, "corrected"
        if abs(offset - before[-1][1]) > self.step:
            return offset, "stepped"
        # Back through the horizon, until the clock was set or the device was silent for long.
        least, later = offset, before[-1]
        for each in reversed(before):
            is_set = abs(each[1] - later[1]) > self.step
            if is_set or not self._near(each[0], later[0]) or not self._near(each[0], at):
                break
            least, later = min(least, each[1]), each
        return least, "estimated"

    def _near(self, before: int, at: int) -> bool:
        cell = -(-self.horizon // CELLS)
        return at // cell - before // cell <= CELLS

    def _is_sample(self, row: Row) -> bool:
        for name in ("sent", "received"):
            if row[name] is None or not YEAR_1 <= row[name] <= YEAR_9999_ENDS:
                return False
        offset = abs(row["received"] - row["sent"])
        return self.largest_offset is None or offset <= self.largest_offset
