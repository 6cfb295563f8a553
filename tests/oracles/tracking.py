"""The offsets of device clocks, message by message, in plain Python.

Nothing is evicted: all samples of each device are stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.oracles.windows import YEAR_1, YEAR_9999_ENDS, Row, key_of

CELLS = 16


@dataclass
class TrackOracle:
    """Tracked clocks, with all samples of each device."""

    by: tuple[str, ...]
    horizon: int
    step: int
    largest_offset: int | None = None

    samples: dict[Any, list[tuple[int, int]]] = field(default_factory=dict)

    def fresh(self) -> TrackOracle:
        """Return an oracle with the same parameters and no samples."""
        return replace(self, samples={})

    def estimate(self, rows: Sequence[Row]) -> list[tuple[int | None, str | None]]:
        """Return the offset of each row, and how it was determined."""
        estimates: list[tuple[int | None, str | None]] = [(None, None)] * len(rows)
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
            estimates[number] = self._estimate(self.instants(key), at, offset)
        return estimates

    def instants(self, key: Any) -> list[tuple[int, int]]:
        """Return the instants of a device in order, with the minimum sample of each."""
        found: dict[int, int] = {}
        for at, offset in self.samples[key]:
            found[at] = min(offset, found.get(at, offset))
        return sorted(found.items())

    def _estimate(self, known: list[tuple[int, int]], at: int, offset: int) -> tuple[int, str]:
        before = [instant for instant in known if instant[0] < at]
        if not before or not self._near(before[-1][0], at):
            return offset, "corrected"
        if abs(offset - before[-1][1]) > self.step:
            return offset, "stepped"
        # Go back within the horizon, until the clock was set or the device was silent.
        least, later = offset, before[-1]
        for instant in reversed(before):
            is_set = abs(instant[1] - later[1]) > self.step
            if is_set or not self._near(instant[0], later[0]) or not self._near(instant[0], at):
                break
            least, later = min(least, instant[1]), instant
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
