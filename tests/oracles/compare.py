"""Comparisons of windows with earlier periods, row by row, in simple Python.

Only the accepted rows and the last result of each window are stored. Every earlier window is found
among all of them whenever it is needed.
"""

from __future__ import annotations

import calendar
import datetime as dt
import functools
import math
import statistics
import zoneinfo
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

from tests.oracles.side_output import late_row
from tests.oracles.windows import (
    YEAR_1,
    YEAR_9999_ENDS,
    Expected,
    Interval,
    Published,
    Row,
    Window,
    key_of,
    same,
)

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
MICROSECOND = dt.timedelta(microseconds=1)


@functools.cache
def clock(zone: str, instant: int) -> dt.datetime:
    """The local time."""
    return (EPOCH + instant * MICROSECOND).astimezone(zoneinfo.ZoneInfo(zone)).replace(tzinfo=None)


@functools.cache
def showing(zone: str, reading: dt.datetime) -> list[int]:
    """Every instant with this local time."""
    there = (reading.replace(tzinfo=dt.UTC) - EPOCH) // MICROSECOND
    quarters = (there + minutes * 60_000_000 for minutes in range(-26 * 60, 26 * 60 + 1, 15))
    return [instant for instant in quarters if clock(zone, instant) == reading]


@functools.cache
def first_after_gap(zone: str, reading: dt.datetime) -> int:
    """The first quarter of an hour with a later local time."""
    there = (reading.replace(tzinfo=dt.UTC) - EPOCH) // MICROSECOND // 900_000_000
    return next(
        quarter * 900_000_000
        for quarter in range(there - 110, there + 110)
        if clock(zone, quarter * 900_000_000) > reading
        and clock(zone, quarter * 900_000_000 - 1) < reading
    )


LENGTHS = {"month": 1, "quarter": 3, "year": 12}


def months_later(day: dt.date, months: int) -> dt.date:
    """The same day of a later month, or its last one."""
    years, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    return dt.date(years, month + 1, min(day.day, calendar.monthrange(years, month + 1)[1]))


def moved(day: dt.date, unit: str, units: int) -> dt.date | None:
    """The date some units earlier; None where there is no such day."""
    if unit in ("day", "week"):
        return day - units * dt.timedelta(days=1 if unit == "day" else 7)
    found = months_later(day, -units * LENGTHS[unit])
    return found if found.day == day.day else None


def ended(begin: dt.date, over: dt.date, unit: str, target: dt.date) -> dt.date:
    """The date that is as many months and days after the target as one date is after another."""
    months = 0
    while unit in LENGTHS and months_later(begin, months + 1) <= over:
        months += 1
    return months_later(target, months) + (over - months_later(begin, months))


def previous_windows(
    period: int | str, zone: str, start: int, end: int, units: int = 1
) -> list[Interval]:
    """The candidates for the window some periods before, the preferred one first."""
    if isinstance(period, int):
        return [(start - units * period, end - units * period)]
    begin, until = clock(zone, start), clock(zone, end - 1) + MICROSECOND
    skipped = midnights(clock(zone, start - 1) + MICROSECOND, begin)
    untils = [*midnights(until, clock(zone, end))[-1:], until]
    found: list[Interval] = []
    for reading in [begin, *skipped[:1]]:
        target = moved(reading.date(), period, units)
        if target is None:
            break
        first = first_showing(zone, dt.datetime.combine(target, reading.time()))
        for over in untils:
            day = ended(reading.date(), over.date(), period, target)
            found.append((first, first_showing(zone, dt.datetime.combine(day, over.time()))))
        if reading is not begin:
            continue
        if found[-1][0] >= found[-1][1]:
            skipped.clear()  # that day was skipped
        if showing(zone, dt.datetime.combine(target, reading.time())):
            found.append((first, first + end - start))
        if not skipped:
            break
    return found


def midnights(before: dt.datetime, after: dt.datetime) -> list[dt.datetime]:
    """The midnights that a change of the clock skips."""
    days = (before.date() + dt.timedelta(days=n) for n in range((after - before).days + 2))
    found = (dt.datetime.combine(day, dt.time()) for day in days)
    return [reading for reading in found if before <= reading <= after and before < after]


def first_showing(zone: str, reading: dt.datetime) -> int:
    """The first instant with this local time; if it is skipped, the first after the gap."""
    return (showing(zone, reading) or [first_after_gap(zone, reading)])[0]


@dataclass
class CompareOracle:
    """Comparisons with every policy for stragglers and every type of input."""

    period: int | str
    by: tuple[str, ...]
    values: tuple[str, ...]
    zone: str = ""
    revised: str = "never"
    allowed_lateness: int = 0
    stragglers: str = "drop"
    too_late: str = "drop"
    periods: int = 1
    threshold: float = 3.5
    min_periods: int = 1

    watermark: int | None = None
    arrived: list[Row] = field(default_factory=list)
    published: dict[Window, Published] = field(default_factory=dict)
    revisions: dict[Window, int] = field(default_factory=dict)

    @property
    def corrects(self) -> bool:
        return self.stragglers in ("update", "retract")

    @property
    def routes(self) -> bool:
        return "route" in (self.stragglers, self.too_late)

    def fresh(self) -> CompareOracle:
        """An oracle with the same parameters and no rows."""
        return replace(self, watermark=None, arrived=[], published={}, revisions={})

    def windows(self) -> dict[Window, Row]:
        """All windows, each with its newest row: a delete is newer than the row that it removes."""
        newest: dict[Window, tuple[Any, Row]] = {}
        for row in self.arrived:
            window = (key_of(row, self.by), (row["window_start"], row["window_end"]))
            rank = (row.get("revision", 0), row.get("_change_type") == "delete")
            if window not in newest or rank > newest[window][0]:
                newest[window] = (rank, row)
        return {w: row for w, ((_, is_deleted), row) in newest.items() if not is_deleted}

    def step(self, rows: Sequence[Row], watermark: int | None) -> Expected:
        """One micro-batch: late rows by the previous watermark, results by this one."""
        expected = Expected()
        for row in rows:
            expected.counts["rows"] += 1
            instant = row["window_end"]
            if instant is None or not YEAR_1 <= instant <= YEAR_9999_ENDS:
                expected.counts["rejected"] += 1
                if self.routes:
                    reason = "null_time" if instant is None else "time_out_of_range"
                    expected.late.append(self._late(row, reason, is_late=False))
                continue
            timing = self._classify(instant)
            expected.counts[timing] += 1
            if timing == "on_time" or (timing == "stragglers" and self.corrects):
                if row.get("_change_type") != "update_preimage":
                    self.arrived.append(row)
            elif self.routes:
                reason = "straggler" if timing == "stragglers" else "too_late"
                expected.late.append(self._late(row, reason, is_late=True))
        previous_watermark = self.watermark
        if watermark is not None and (self.watermark is None or watermark > self.watermark):
            self.watermark = watermark
        there = self.windows()
        for window in [w for w in self.published if w not in there]:
            expected.emitted.append(self._row(window, self.published.pop(window), "delete"))
        for window in there:
            if self._passed(window[1][1]):
                self._emit(window, there, expected, previous_watermark)
        return expected

    def finish(self) -> list[Row]:
        """Every comparison that is not on time yet."""
        there = self.windows()
        return [
            self._row(window, Published(0, self._compared(window, there)), "insert")
            for window in there
            if window not in self.published
        ]

    def bound(self) -> int:
        """Maximum rows of state: windows that ended less than all periods, and an hour for daylight
        saving time, before the watermark.
        """
        keeps = self.allowed_lateness if self.corrects else 0
        if isinstance(self.period, str):
            hours = {"day": 24, "week": 168}[self.period] * self.periods + 1
            back = hours * 3_600_000_000
        else:
            back = self.period * self.periods
        windows = {(key_of(r, self.by), r["window_start"], r["window_end"]) for r in self.arrived}
        return sum(not self._passed(end + back + keeps) for _, _, end in windows)

    def _passed(self, instant: int) -> bool:
        return self.watermark is not None and instant <= self.watermark

    def _classify(self, instant: int) -> str:
        if not self._passed(instant):
            return "on_time"
        return "too_late" if self._passed(instant + self.allowed_lateness) else "stragglers"

    def _emit(
        self,
        window: Window,
        there: dict[Window, Row],
        expected: Expected,
        previous_watermark: int | None,
    ) -> None:
        """Publish the comparison, if it differs from what was published."""
        before, values = self.published.get(window), self._compared(window, there)
        if before is None:
            behind = previous_watermark is not None and window[1][1] <= previous_watermark
            was = self.revisions.get(window)
            revision = was + 1 if was is not None else 1 if behind else 0
            change, count = "insert", "results" if was is None else "corrections"
        elif same(before.values, values):
            return
        else:
            if self.stragglers == "retract":
                expected.emitted.append(self._row(window, before, "update_preimage"))
            revision, change, count = before.revision + 1, "update_postimage", "corrections"
        self.published[window] = Published(revision, values)
        self.revisions[window] = revision
        expected.emitted.append(self._row(window, self.published[window], change))
        expected.counts[count] += 1

    def _compared(self, window: Window, there: dict[Window, Row]) -> Row:
        key, (start, end) = window
        earlier: list[Row] = []
        for units in range(1, self.periods + 1):
            candidates = previous_windows(self.period, self.zone, start, end, units)
            found = (there[key, candidate] for candidate in candidates if (key, candidate) in there)
            earlier.append(next(found, {}))
        previous = earlier[0]
        row = there[window]
        output: Row = {name: row[name] for name in self.by}
        output |= {"window_start": start, "window_end": end}
        for name in self.values:
            value, before = row[name], previous.get(name)
            known = value is not None and before is not None
            change = value - before if known else None
            output |= {name: value, f"previous_{name}": before, f"change_{name}": change}
            output[f"rate_{name}"] = float(change) / float(before) if known and before else None
            if self.periods > 1:
                output |= self._band(name, value, [row.get(name) for row in earlier])
        return output

    def _band(self, name: str, value: Any, earlier: list[Any]) -> Row:
        """The median and deviation in exact arithmetic, rounded at last."""
        known = [Fraction(item) for item in earlier if item is not None and math.isfinite(item)]
        median = deviation = is_anomaly = None
        if known:
            center = statistics.median(known)
            median = float(center)
            deviation = 1.4826 * float(statistics.median(abs(item - center) for item in known))
            is_known = value is not None and not math.isnan(value)
            if is_known and len(known) >= self.min_periods:
                distance = math.inf if math.isinf(value) else float(abs(Fraction(value) - center))
                is_anomaly = distance > self.threshold * deviation
        return {
            f"median_{name}": median,
            f"deviation_{name}": deviation,
            f"count_{name}": len(known),
            f"anomaly_{name}": is_anomaly,
        }

    def _row(self, window: Window, last: Published, change: str) -> Row:
        row = dict(last.values)
        if self.corrects:
            row["revision"] = last.revision
        if self.stragglers == "retract":
            row["_change_type"] = change
        return row

    def _late(self, row: Row, reason: str, *, is_late: bool) -> Row:
        output = {name: row[name] for name in self.by}
        lateness = watermark = window = None
        if is_late and self.watermark is not None:
            window = row["window_start"], row["window_end"]
            output["window_start"], output["window_end"] = window
            lateness, watermark = self.watermark - row["window_end"], self.watermark
        output["late"] = late_row(
            reason, dict(row), lateness=lateness, watermark=watermark, window=window
        )
        return output
