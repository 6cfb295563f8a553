"""Windows whose parameters change between two micro-batches, row by row: what a restart is expected to do.

The oracles evict nothing, so a change says which windows cannot be corrected any more: those that could not be before
it, whatever the parameters are now. Rows have the number of their micro-batch in the column ``batch``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.oracles.sessions import Arrived, SessionOracle
from tests.oracles.sessions import Window as Session
from tests.oracles.sliding import SlidingOracle, Timestamp
from tests.oracles.windows import Expected, Row, Window, WindowOracle, key_of


@dataclass(kw_only=True)
class Changing:
    """What the windows have in common."""

    final: int | None = None
    """Windows that end up to here are final, whatever the allowed lateness is."""
    added: Mapping[str, int] = field(default_factory=dict)
    """The micro-batch since which an aggregate is computed, if it was added."""

    def change(self, batch: int, **parameters: Any) -> Expected:
        """Other parameters from this micro-batch on. What the first micro-batch emits before anything else."""
        of: Any = self
        if of.watermark is not None:
            final = of.watermark - (of.allowed_lateness if of.corrects else 0)
            self.final = final if self.final is None else max(self.final, final)
        self.forget()
        agg = parameters.get("agg", of.agg)
        self.added = {name: self.added.get(name, 0) if name in of.agg else batch for name in agg}
        for name, value in parameters.items():
            setattr(self, name, value)
        self.compute_anew()
        return Expected()

    def forget(self) -> None:
        """Remember what cannot be corrected any more."""

    def compute_anew(self) -> None:
        """Results are compared by the aggregates of now."""

    def is_final(self, end: int) -> bool:
        """Whether a window could not be corrected any more when the parameters changed."""
        of: Any = self
        return bool(of.corrects and self.final is not None and end <= self.final)

    def without_unknown(self, values: Row, rows: Sequence[Row]) -> Row:
        """Null for aggregates that do not know some of the rows."""
        return {
            name: None if any(row["batch"] < self.added.get(name, 0) for row in rows) else value
            for name, value in values.items()
        }


@dataclass(kw_only=True)
class ChangingWindows(Changing, WindowOracle):
    """Tumbling and hopping windows."""

    def _classify(self, end: int) -> str:
        timing = super()._classify(end)
        return "too_late" if timing == "stragglers" and self.is_final(end) else timing

    def compute_anew(self) -> None:
        """Results are compared by the aggregates of now."""
        for window, last in self.published.items():
            last.values = self._values(window)

    def _values(self, window: Window) -> Row:
        return self.without_unknown(super()._values(window), self.contents.get(window, []))


@dataclass(kw_only=True)
class ChangingSliding(Changing, SlidingOracle):
    """Sliding windows."""

    def _classify(self, instant: int) -> str:
        timing = super()._classify(instant)
        return "too_late" if timing == "stragglers" and self.is_final(instant) else timing

    def compute_anew(self) -> None:
        """Results are compared by the aggregates of now."""
        for timestamp, last in self.published.items():
            last.values = self._values(timestamp)

    def _values(self, timestamp: Timestamp) -> Row:
        return self.without_unknown(super()._values(timestamp), self.window(timestamp))


@dataclass(kw_only=True)
class ChangingSessions(Changing, SessionOracle):
    """Sessions. Those that were published when stragglers did not correct them are final."""

    lost: frozenset[Session] = frozenset()
    settled: int | None = None
    """Rows up to here could touch a session that could not be corrected any more."""

    def forget(self) -> None:
        """Sessions that ended a gap ago; all published ones, if they are not corrected."""
        if self.final is not None:
            self.settled = max(self.settled or 0, self.final - self.gap)
        if not self.corrects:
            over = (w for w in self.sessions(self.arrived) if self._closed(w[2]))
            self.lost = self.lost.union(over)

    def _classify(self, arrived_row: Arrived, before: Mapping[Session, list[Arrived]]) -> str:
        timing = super()._classify(arrived_row, before)
        accepted = timing == "on_time" or (timing == "stragglers" and self.corrects)
        if accepted and self.settled is not None and arrived_row.time <= self.settled:
            return "too_late"
        if timing == "stragglers" and self.corrects:
            mine = key_of(arrived_row.row, self.by)
            of_key = [e for e in self.arrived if key_of(e.row, self.by) == mine]
            after = self.sessions([*of_key, arrived_row])
            own = (w for w in before if w in self.lost and w[0] == mine)
            changes = any(len(after.get(w, [])) != len(before[w]) for w in own)
            if changes or self.is_final(arrived_row.end):
                return "too_late"
        return timing

    def compute_anew(self) -> None:
        """Results are compared by the aggregates of now."""
        sessions = self.sessions(self.arrived)
        for window, last in self.published.items():
            last.values = self._values(sessions[window])

    def _values(self, members: Sequence[Arrived]) -> Row:
        return self.without_unknown(super()._values(members), [member.row for member in members])
