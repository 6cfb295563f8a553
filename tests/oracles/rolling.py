"""Rolling aggregates, border by border, in simple Python: the expected results of a core.

Every accepted row is stored, and every value is computed from all of them by its definition.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from streamops.aggregates import Aggregate
from tests.oracles.side_output import late_row
from tests.oracles.windows import YEAR_1, YEAR_9999_ENDS, Expected, Row, key_of, same, value_of


@dataclass
class RollingOracle:
    """Rolling aggregates with every policy for late rows."""

    every: int
    horizons: Mapping[str, int]
    by: tuple[str, ...]
    time: str
    agg: Mapping[str, Aggregate]
    stragglers: str = "drop"

    watermark: int | None = None
    arrived: list[Row] = field(default_factory=list)

    @property
    def routes(self) -> bool:
        return self.stragglers == "route"

    def fresh(self) -> RollingOracle:
        """An oracle with the same parameters and no rows."""
        return replace(self, watermark=None, arrived=[])

    def values(self, key: Any, t: int) -> Row:
        """The values of a key at an instant: the definition."""
        return {
            f"{name}_{horizon}": value_of(aggregate, rows, self.time)
            for horizon, length in self.horizons.items()
            for rows in [self.rows(key, t - length, t)]
            for name, aggregate in self.agg.items()
        }

    def rows(self, key: Any, start: int, end: int) -> list[Row]:
        """The rows of a key in [start, end)."""
        own = (row for row in self.arrived if key_of(row, self.by) == key)
        return [row for row in own if start <= row[self.time] < end]

    def changes(self, after: int, until: int) -> list[Row]:
        """The rows of the output with borders in (after, until]."""
        found: dict[tuple[Any, int], Row] = {}
        for row in self.arrived:
            # Between these borders, the same rows are in all horizons.
            entry = self.border_after(row[self.time])
            for border in (entry, *(entry + length for length in self.horizons.values())):
                key = key_of(row, self.by)
                if not after < border <= until or (key, border) in found:
                    continue
                values = self.values(key, border)
                if not same(values, self.values(key, border - self.every)):
                    found[key, border] = {name: row[name] for name in self.by}
                    found[key, border] |= {"window_end": border, **values}
                    if self.routes:
                        found[key, border]["late"] = None
        return list(found.values())

    def border_after(self, instant: int) -> int:
        """The first multiple of ``every`` after an instant."""
        return (instant // self.every + 1) * self.every

    def step(self, rows: Sequence[Row], watermark: int | None) -> Expected:
        """One micro-batch: late rows by the previous watermark, results by this one."""
        expected = Expected()
        for row in rows:
            expected.counts["rows"] += 1
            instant = row[self.time]
            if instant is None or not YEAR_1 <= instant <= YEAR_9999_ENDS:
                expected.counts["rejected"] += 1
                self.route(expected, row, "null_time" if instant is None else "time_out_of_range")
            elif self.watermark is not None and self.border_after(instant) <= self.watermark:
                expected.counts["too_late"] += 1
                self.route(expected, row, "too_late")
            else:
                expected.counts["on_time"] += 1
                self.arrived.append(row)
        previous = -(1 << 62) if self.watermark is None else self.watermark
        if watermark is not None and (self.watermark is None or watermark > self.watermark):
            self.watermark = watermark
            expected.emitted = self.changes(previous, min(watermark, YEAR_9999_ENDS))
        expected.counts["results"] = len(expected.emitted)
        return expected

    def finish(self) -> list[Row]:
        """Every result that is not on time yet."""
        return self.changes(
            -(1 << 62) if self.watermark is None else self.watermark, YEAR_9999_ENDS
        )

    def bound(self) -> int:
        """Maximum rows of state: panes in a horizon, and rows of open panes."""
        mark = -(1 << 62) if self.watermark is None else self.watermark
        longest = max(self.horizons.values())
        entries = [
            (key_of(row, self.by), self.border_after(row[self.time])) for row in self.arrived
        ]
        open_rows = len([border for _, border in entries if border > mark])
        return len({of for of in entries if of[1] + longest > mark}) + open_rows

    def route(self, expected: Expected, row: Row, reason: str) -> None:
        """A row of the side output."""
        if not self.routes:
            return
        output: Row = {name: row[name] for name in self.by}
        names = [f"{name}_{horizon}" for horizon in self.horizons for name in self.agg]
        output |= dict.fromkeys(("window_end", *names))
        facts: dict[str, Any] = {}
        if reason == "too_late":
            end = self.border_after(row[self.time])
            output["window_end"] = end
            facts = {
                "lateness": self.watermark - row[self.time],  # type: ignore[operator]
                "watermark": self.watermark,
                "window": (end - self.every, end),
            }
        expected.late.append(output | {"late": late_row(reason, dict(row), **facts)})
