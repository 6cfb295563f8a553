"""Windows on a grid, row by row, in simple Python: the expected results of a core.

Rows are dicts, instants are microseconds, and nothing is evicted. This code may be slow, but it
must be obvious: it follows the definition of a window.
"""

from __future__ import annotations

import math
import statistics
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from fractions import Fraction
from typing import Any, Self

from streamops.aggregates import Aggregate
from tests.oracles.lists import KEEPING, stored_value
from tests.oracles.side_output import late_row

Row = dict[str, Any]
Interval = tuple[int, int]
"""The start and the end of a window."""
Window = tuple[Any, Interval]
"""A key and an interval."""

YEAR_1 = -62_135_596_800_000_000
YEAR_9999_ENDS = 253_402_300_799_999_999


@dataclass
class Expected:
    """The expected results of one micro-batch."""

    emitted: list[Row] = field(default_factory=list)
    late: list[Row] = field(default_factory=list)
    counts: dict[str, int] = field(
        default_factory=lambda: dict.fromkeys(
            ("rows", "rejected", "on_time", "stragglers", "too_late", "results", "corrections"), 0
        )
    )


@dataclass
class Published:
    """The result of a window that was emitted last."""

    revision: int
    values: Row
    timing: str = "on_time"


@dataclass(kw_only=True)
class GridOracle(ABC):
    """Windows on a grid with every policy for stragglers, on time only or early as well."""

    by: tuple[str, ...]
    time: str
    agg: Mapping[str, Aggregate]
    allowed_lateness: int = 0
    stragglers: str = "drop"
    too_late: str = "drop"
    early: str = "never"
    empty_for: int | None = None

    watermark: int | None = None
    contents: dict[Window, list[Row]] = field(default_factory=dict)
    published: dict[Window, Published] = field(default_factory=dict)

    @property
    def corrects(self) -> bool:
        return self.stragglers in ("update", "retract")

    @property
    def is_early(self) -> bool:
        return self.early != "never"

    @property
    def routes(self) -> bool:
        return "route" in (self.stragglers, self.too_late)

    @abstractmethod
    def windows_of(self, instant: int) -> list[Interval]:
        """The windows that contain the instant."""

    @abstractmethod
    def after(self, interval: Interval) -> Interval:
        """The next window."""

    def empty(self) -> list[Window]:
        """The windows without rows to emit: those that end soon after a window with rows."""
        found: dict[Window, None] = {}
        for key, interval in self.contents if self.empty_for is not None else ():
            limit = min(interval[1] + self.empty_for, YEAR_9999_ENDS)
            follows = self.after(interval)
            while follows[1] <= limit:
                if (key, follows) not in self.contents:
                    found[key, follows] = None
                follows = self.after(follows)
        return list(found)

    def last_before(self, window: Window) -> Window:
        """The newest window with rows that comes before it."""
        key, interval = window
        return max(w for w in self.contents if w[0] == key and w[1] < interval)

    def fresh(self) -> Self:
        """An oracle with the same parameters and no rows."""
        return replace(self, watermark=None, contents={}, published={})

    def step(self, rows: Sequence[Row], watermark: int | None) -> Expected:
        """One micro-batch: late rows by the previous watermark, closed windows by this one."""
        expected = Expected()
        touched: list[Window] = []
        for row in rows:
            expected.counts["rows"] += 1
            instant = row[self.time]
            if instant is None or not YEAR_1 <= instant <= YEAR_9999_ENDS:
                expected.counts["rejected"] += 1
                reason = "null_time" if instant is None else "time_out_of_range"
                if self.routes:
                    expected.late.append(self._late(row, None, reason))
                continue
            for interval in self.windows_of(instant):
                window = (key_of(row, self.by), interval)
                timing = self._classify(interval[1])
                expected.counts[timing] += 1
                if timing == "on_time" or (timing == "stragglers" and self.corrects):
                    self.contents.setdefault(window, []).append(row)
                    touched.append(window)
                elif self.stragglers == "route" or self.too_late == "route":
                    reason = "straggler" if timing == "stragglers" else "too_late"
                    expected.late.append(self._late(row, interval, reason))
        previous_watermark = self.watermark
        for window in [*dict.fromkeys(touched), *self.empty()]:
            if self._closed(window[1][1]) and (window in touched or window not in self.published):
                self._publish(window, "late", expected)
        if watermark is not None and (self.watermark is None or watermark > self.watermark):
            self.watermark = watermark
        for window in [*self.contents, *self.empty()]:
            end = window[1][1]
            if self._closed(end) and (previous_watermark is None or end > previous_watermark):
                self._publish(window, "on_time", expected)
            elif self.is_early and not self._closed(end) and window in touched:
                self._publish(window, "early", expected)
        return expected

    def finish(self) -> list[Row]:
        """Every window that is still open."""
        expected = Expected()
        for window in [*self.contents, *self.empty()]:
            if not self._closed(window[1][1]):
                self._publish(window, "on_time", expected)
        return expected.emitted

    def bound(self) -> int:
        """Maximum rows of state: panes that can still change, their revisions, known keys.

        Rows that lie in the same windows share an entry, under one key.
        """
        panes = set()
        for (key, _), rows in self.contents.items():
            for row in rows:
                windows = self.windows_of(row[self.time])
                if not self._forgotten(max(end for _, end in windows)):
                    panes.add((key, tuple(windows)))
        revised = [
            window
            for window, last in self.published.items()
            if last.revision > 0 and not self._forgotten(window[1][1])
        ]
        known = {
            key
            for key, (_, end) in self.contents
            if self.empty_for is not None and not self._forgotten(end + self.empty_for)
        }
        return len(panes) + len(revised) + len(known)

    def _closed(self, end: int) -> bool:
        return self.watermark is not None and end <= self.watermark

    def _forgotten(self, end: int) -> bool:
        return self._closed(end + (self.allowed_lateness if self.corrects else 0))

    def _classify(self, end: int) -> str:
        if not self._closed(end):
            return "on_time"
        return "too_late" if self._closed(end + self.allowed_lateness) else "stragglers"

    def _publish(self, window: Window, timing: str, expected: Expected) -> None:
        """Emit the current result of the window, unless it was emitted before."""
        before, values = self.published.get(window), self._values(window)
        if before is None:
            # A window that consists of stragglers only starts at 1.
            self.published[window] = Published(int(timing == "late"), values, timing)
            expected.emitted.append(self._row(window, "insert"))
            expected.counts["results"] += 1
            return
        must_emit = before.timing == "early" and timing != "early"
        if same(before.values, values) and not must_emit:
            return
        if self.stragglers == "retract":
            expected.emitted.append(self._row(window, "update_preimage"))
        self.published[window] = Published(before.revision + 1, values, timing)
        expected.emitted.append(self._row(window, "update_postimage"))
        expected.counts["corrections"] += 1

    def _values(self, window: Window) -> Row:
        rows = self.contents.get(window, [])
        return {name: value_of(a, rows, self.time) for name, a in self.agg.items()}

    def _row(self, window: Window, change: str) -> Row:
        last = self.published[window]
        first = next(rows[0] for (key, _), rows in self.contents.items() if key == window[0])
        row = {name: first[name] for name in self.by}
        start, end = window[1]
        row |= {"window_start": start, "window_end": end, **last.values}
        if self.corrects or self.is_early:
            row["revision"] = last.revision
        if self.is_early:
            row["timing"] = last.timing
        if self.stragglers == "retract":
            row["_change_type"] = change
        if self.routes:
            row["late"] = None
        return row

    def _late(self, row: Row, interval: Interval | None, reason: str) -> Row:
        output = {name: row[name] for name in self.by}
        output["window_start"], output["window_end"] = interval or (None, None)
        output |= dict.fromkeys(self.agg)
        if self.corrects or self.is_early:
            output["revision"] = None
        if self.stragglers == "retract":
            output["_change_type"] = None
        watermark = self.watermark if interval is not None else None
        lateness = None if watermark is None else watermark - row[self.time]
        output["late"] = late_row(
            reason, dict(row), lateness=lateness, watermark=watermark, window=interval
        )
        return output


@dataclass(kw_only=True)
class WindowOracle(GridOracle):
    """Tumbling and hopping windows."""

    size: int
    hop: int
    origin: int

    def after(self, interval: Interval) -> Interval:
        """A hop later."""
        return interval[0] + self.hop, interval[1] + self.hop

    def windows_of(self, instant: int) -> list[Interval]:
        """The windows [start, start + size) that contain the instant."""
        start = (instant - self.origin) // self.hop * self.hop + self.origin
        found = []
        while start + self.size > instant:
            found.append((start, start + self.size))
            start -= self.hop
        return found


def key_of(row: Row, by: Sequence[str]) -> tuple[Any, ...]:
    """The key as SQL compares it: null is null, NaN is NaN, -0.0 is 0.0."""
    return tuple("NaN" if is_nan(row[name]) else row[name] for name in by)


def is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def same(left: Row, right: Row) -> bool:
    return all(equal(left[name], right[name]) for name in left)


def equal(one: Any, other: Any) -> bool:
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(equal, one, other))
    return one == other or (is_nan(one) and is_nan(other))


def value_of(aggregate: Aggregate, rows: Sequence[Row], time: str) -> Any:
    """The aggregate over these rows."""
    if aggregate.column is None:
        return len(rows)
    if aggregate.function in KEEPING:
        return stored_value(aggregate, rows, time, ranked)
    if aggregate.function in ("first", "last"):
        ordered = sorted(rows, key=lambda row: (row[time], *ranked(row[aggregate.tie_break])))
        if not ordered:
            return None
        return ordered[0 if aggregate.function == "first" else -1][aggregate.column]
    return reduce(aggregate.function, list(present(rows, aggregate.column)))


def ranked(value: Any) -> tuple[bool, bool, Any]:
    """Spark's order of values: null below everything, NaN above everything."""
    if value is None:
        return (False, False, 0)
    return (True, True, 0) if is_nan(value) else (True, False, value)


def present(rows: Sequence[Row], column: str | None) -> Iterator[Any]:
    assert column is not None
    return (row[column] for row in rows if row[column] is not None)


def reduce(function: str, values: list[Any]) -> Any:
    """The aggregate of values that are not null."""
    if function == "count":
        return len(values)
    if not values or (function in ("variance", "stddev") and len(values) < 2):
        return None
    match function:
        case "sum" if isinstance(values[0], Decimal):
            return exactly(sum(map(unscaled, values)), scale_of(values[0]))
        case "sum":
            return sum(values[1:], values[0])
        case "mean" if isinstance(values[0], Decimal):
            return half_up(values)
        case "mean":
            return sum(map(float, values)) / len(values)
        case "min":
            return min(values, key=ranked)
        case "max":
            return max(values, key=ranked)
    if not all(math.isfinite(value) for value in values):
        return math.nan
    variance = statistics.variance([float(value) for value in values])
    return math.sqrt(variance) if function == "stddev" else variance


def half_up(values: Sequence[Decimal]) -> Decimal:
    """Mean with four more digits behind the point, rounded half away from zero."""
    total = sum(map(unscaled, values)) * 10**4
    rounded = (2 * abs(total) + len(values)) // (2 * len(values))
    return exactly(-rounded if total < 0 else rounded, scale_of(values[0]) + 4)


def scale_of(value: Decimal) -> int:
    """Digits behind the point."""
    return -int(value.as_tuple().exponent)


def unscaled(value: Decimal) -> int:
    """The digits as one number, the point left out."""
    return int(Fraction(value) * 10 ** scale_of(value))


def exactly(digits: int, scale: int) -> Decimal:
    """The decimal of these digits; Decimal's own arithmetic would round to 28 of them."""
    return Decimal(f"{digits}e{-scale}")
