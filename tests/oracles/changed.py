"""Windows whose parameters change between two micro-batches, row by row: what a restart is expected to do.

The oracles evict nothing, so a change says which windows cannot be corrected any more: those that could not be before
it, whatever the parameters are now. Rows have the number of their micro-batch in the column ``batch``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.oracles.calendars import CalendarOracle, CumulativeOracle
from tests.oracles.sessions import Arrived, SessionOracle
from tests.oracles.sessions import Window as Session
from tests.oracles.sliding import SlidingOracle, Timestamp
from tests.oracles.windows import (
    Expected,
    GridOracle,
    Published,
    Row,
    Window,
    WindowOracle,
    key_of,
)


@dataclass(kw_only=True)
class Changing:
    """What the windows have in common."""

    final: int | None = None
    """Windows that end up to here are final, whatever the allowed lateness is."""
    added: Mapping[str, int] = field(default_factory=dict)
    next_revisions: dict[Any, int] = field(default_factory=dict)
    """The next revisions of results that were taken back."""
    """The micro-batch since which an aggregate is computed, if it was added."""

    def change(self, batch: int, **parameters: Any) -> Expected:
        """Other parameters from this micro-batch on. What the first micro-batch emits before anything else."""
        of: Any = self
        if of.watermark is not None:
            final = of.watermark - (of.allowed_lateness if of.corrects else 0)
            self.final = final if self.final is None else max(self.final, final)
        self.forget()
        was_early, expected = of.early != "never", Expected()
        agg = parameters.get("agg", of.agg)
        self.added = {name: self.added.get(name, 0) if name in of.agg else batch for name in agg}
        for name, value in parameters.items():
            setattr(self, name, value)
        self.compute_anew()
        is_early = of.early != "never"
        if not of.corrects and not is_early:  # there are no revisions
            self.next_revisions = {}
        if is_early and not was_early:
            for last in of.published.values():
                last.timing = "late" if last.revision > 0 else "on_time"
        if was_early and not is_early:
            self.take_back(expected)
        return expected

    def pass_by(self, mark: int) -> None:
        """After a step whose watermark Spark computed with another lag: what was final by that lag stays final."""
        self.final = mark if self.final is None else max(self.final, mark)

    def take_back(self, expected: Expected) -> None:
        """Early results are deleted, where there are deletes. The next result has the next revision."""
        of: Any = self
        for result, last in [*of.published.items()]:
            if not of._closed(self.end_of(result)):
                if of.stragglers == "retract":
                    expected.emitted.append(of._row(result, "delete"))
                if of.corrects:
                    self.next_revisions[result] = last.revision + 1
                del of.published[result]

    def end_of(self, result: Any) -> int:
        """When a result is on time."""
        raise NotImplementedError

    def publish_next(self, result: Any, timing: str, values: Row, expected: Expected) -> bool:
        """Publish a result that was taken back, with its next revision."""
        of: Any = self
        revision = self.next_revisions.pop(result, None)
        if revision is None:
            return False
        of.published[result] = Published(revision, values, timing)
        expected.emitted.append(of._row(result, "insert"))
        expected.counts["results"] += 1
        return True

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
class ChangingGrid(Changing, GridOracle):
    """Windows on a grid."""

    def _classify(self, end: int) -> str:
        timing = super()._classify(end)
        return "too_late" if timing == "stragglers" and self.is_final(end) else timing

    def end_of(self, result: Window) -> int:
        """The end of the window."""
        return result[1][1]

    def step(self, rows: Sequence[Row], watermark: int | None) -> Expected:
        """One micro-batch. With early results, all open windows are published."""
        expected = super().step(rows, watermark)
        for window in self.contents if self.is_early else ():
            if window not in self.published and not self._closed(window[1][1]):
                self._publish(window, "early", expected)
        return expected

    def _publish(self, window: Window, timing: str, expected: Expected) -> None:
        if not self.publish_next(window, timing, self._values(window), expected):
            super()._publish(window, timing, expected)

    def compute_anew(self) -> None:
        """Results are compared by the aggregates of now."""
        for window, last in self.published.items():
            last.values = self._values(window)

    def _values(self, window: Window) -> Row:
        return self.without_unknown(super()._values(window), self.contents.get(window, []))


@dataclass(kw_only=True)
class ChangingWindows(ChangingGrid, WindowOracle):
    """Tumbling and hopping windows."""


@dataclass(kw_only=True)
class ChangingCalendar(ChangingGrid, CalendarOracle):
    """Units of the calendar."""


@dataclass(kw_only=True)
class ChangingCumulative(ChangingGrid, CumulativeOracle):
    """Cumulative windows."""


@dataclass(kw_only=True)
class ChangingSliding(Changing, SlidingOracle):
    """Sliding windows."""

    def _classify(self, instant: int) -> str:
        timing = super()._classify(instant)
        return "too_late" if timing == "stragglers" and self.is_final(instant) else timing

    def end_of(self, result: Timestamp) -> int:
        """The event time."""
        return result[1]

    def _row(self, timestamp: Timestamp, last: Published | str, change: str = "") -> Row:
        if isinstance(last, str):  # the last result
            return super()._row(timestamp, self.published[timestamp], last)
        return super()._row(timestamp, last, change)

    def _emit(
        self, timestamp: Timestamp, expected: Expected, previous_watermark: int | None
    ) -> None:
        behind = previous_watermark is not None and timestamp[1] <= previous_watermark
        timing = "late" if behind else "on_time" if self._passed(timestamp[1]) else "early"
        if not self.publish_next(timestamp, timing, self._values(timestamp), expected):
            super()._emit(timestamp, expected, previous_watermark)

    def _closed(self, end: int) -> bool:
        return self._passed(end)

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

    def pass_by(self, mark: int) -> None:
        """Rows of a session end a gap before it, except for a closing row."""
        gap = self.gap if self.final is None else self.final - (self.settled or 0)
        super().pass_by(mark)
        self.settled = max(self.settled or 0, mark - (0 if self.until else gap))

    def _classify(self, arrived_row: Arrived, before: Mapping[Session, list[Arrived]]) -> str:
        timing = super()._classify(arrived_row, before)
        # By its own interval, it would pass.
        is_closed = timing == "too_late" if self.corrects else self._closed(arrived_row.end)
        if not is_closed and self.settled is not None and arrived_row.time <= self.settled:
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
        if not self.corrects and self.early == "never":  # there are no revisions
            for row in self.arrived:
                row.revision = 0
        sessions = self.sessions(self.arrived)
        for window, last in self.published.items():
            last.values = self._values(sessions[window])

    def _values(self, members: Sequence[Arrived]) -> Row:
        return self.without_unknown(super()._values(members), [member.row for member in members])

    def take_back(self, expected: Expected) -> None:
        """Early sessions are deleted; the next one has the next revision."""
        sessions = self.sessions(self.arrived)
        for window, last in [*self.published.items()]:
            if not self._closed(window[2]):
                expected.emitted.append(self._row(window, sessions[window], last, "delete"))
                del self.published[window]
                for member in sessions[window]:
                    member.revision = last.revision + 1
