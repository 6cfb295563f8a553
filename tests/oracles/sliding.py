"""Sliding windows, row by row, in the plainest Python there is: what a core must say.

Nothing is kept but the rows that were accepted, and what was last said about each result. Every
window is searched for among all rows whenever its result is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from streamops.aggregates import Aggregate
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

Moment = tuple[Any, int]
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
    published: dict[Moment, Published] = field(default_factory=dict)

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
        """The same settings; nothing has been seen."""
        return replace(self, watermark=None, arrived=[], published={})

    def moments(self) -> list[Moment]:
        """Every key and instant at which there is an event, once."""
        return list(dict.fromkeys((key_of(r, self.by), r[self.time]) for r in self.arrived))

    def window(self, moment: Moment) -> list[Row]:
        """The rows of its key in (t - size, t]: the definition."""
        key, t = moment
        return [
            row
            for row in self.arrived
            if key_of(row, self.by) == key and t - self.size < row[self.time] <= t
        ]

    def step(self, rows: Sequence[Row], watermark: int | None) -> Expected:
        """One micro-batch: rows are judged by the watermark of before, results by this one."""
        said = Expected()
        for row in rows:
            said.counts["rows"] += 1
            instant = row[self.time]
            if instant is None or not YEAR_1 <= instant <= YEAR_9999_ENDS:
                said.counts["rejected"] += 1
                if self.routes:
                    reason = "null_time" if instant is None else "time_out_of_range"
                    said.late.append(self._late(row, reason, judged=False))
                continue
            verdict = self._judge(instant)
            said.counts[verdict] += 1
            if verdict == "on_time" or (verdict == "stragglers" and self.corrects):
                self.arrived.append(row)
            elif self.routes:
                reason = "straggler" if verdict == "stragglers" else "too_late"
                said.late.append(self._late(row, reason, judged=True))
        judged_by = self.watermark
        if watermark is not None and (self.watermark is None or watermark > self.watermark):
            self.watermark = watermark
        for moment in self.moments():
            if self._passed(moment[1]) or self.is_early:
                self._say(moment, said, judged_by)
        return said

    def finish(self) -> list[Row]:
        """Every result that is not on time yet."""
        said, over = Expected(), replace(self, watermark=1 << 62, published=dict(self.published))
        for moment in self.moments():
            if not self._passed(moment[1]):
                over._say(moment, said, self.watermark)
        return said.emitted

    def bound(self) -> int:
        """Entries of state there may be: moments in the reach of a window that can still be
        computed, and the revisions of results that can still change.
        """
        keeps = self.allowed_lateness if self.corrects else 0
        last = self.size - 1  # the last window that an event is in ends so long after it
        moments = [t for _, t in self.moments() if not self._passed(t + last + keeps)]
        revised = [
            t
            for (_, t), last_said in self.published.items()
            if last_said.revision > 0 and not self._passed(t + keeps)
        ]
        return len(moments) + len(revised)

    def _passed(self, instant: int) -> bool:
        return self.watermark is not None and instant <= self.watermark

    def _judge(self, instant: int) -> str:
        if not self._passed(instant):
            return "on_time"
        return "too_late" if self._passed(instant + self.allowed_lateness) else "stragglers"

    def _say(self, moment: Moment, said: Expected, judged_by: int | None) -> None:
        """Publish the result, if it differs from what was published."""
        before, values = self.published.get(moment), self._values(moment)
        behind = judged_by is not None and moment[1] <= judged_by
        timing = "late" if behind else "on_time" if self._passed(moment[1]) else "early"
        if before is None:
            self.published[moment] = Published(1 if behind else 0, values, timing)
            said.emitted.append(self._row(moment, self.published[moment], "insert"))
            said.counts["results"] += 1
        elif (before.timing == "early" != timing) or not same(before.values, values):
            if self.stragglers == "retract":
                said.emitted.append(self._row(moment, before, "update_preimage"))
            self.published[moment] = Published(before.revision + 1, values, timing)
            said.emitted.append(self._row(moment, self.published[moment], "update_postimage"))
            said.counts["corrections"] += 1

    def _values(self, moment: Moment) -> Row:
        rows = self.window(moment)
        return {name: value_of(a, rows, self.time) for name, a in self.agg.items()}

    def _row(self, moment: Moment, said: Published, change: str) -> Row:
        row = {name: self.window(moment)[-1][name] for name in self.by}
        row |= {self.time: moment[1], **said.values}
        if self.corrects or self.is_early:
            row["revision"] = said.revision
        if self.is_early:
            row["timing"] = said.timing
        if self.stragglers == "retract":
            row["_change_type"] = change
        if self.routes:
            row["late"] = None
        return row

    def _late(self, row: Row, reason: str, *, judged: bool) -> Row:
        said = {name: row[name] for name in self.by}
        said |= dict.fromkeys((self.time, *self.agg))
        lateness = watermark = None
        if judged and self.watermark is not None:
            said[self.time] = row[self.time]
            lateness, watermark = self.watermark - row[self.time], self.watermark
        said["late"] = {
            "reason": reason, "lateness": lateness, "watermark": watermark, "row": dict(row)
        }  # fmt: skip
        return said
