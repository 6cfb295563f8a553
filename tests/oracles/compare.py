"""Windows beside those of the previous period, row by row, in the plainest Python there is.

Nothing is kept but the rows that were accepted, and what was last said about each window. Every
previous window is searched for among all of them whenever it is asked for.
"""

from __future__ import annotations

import datetime as dt
import functools
import zoneinfo
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

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
    """What a clock on a wall shows."""
    return (EPOCH + instant * MICROSECOND).astimezone(zoneinfo.ZoneInfo(zone)).replace(tzinfo=None)


@functools.cache
def showing(zone: str, reading: dt.datetime) -> list[int]:
    """Every instant at which a clock shows it, found by asking the clock."""
    there = (reading.replace(tzinfo=dt.UTC) - EPOCH) // MICROSECOND
    quarters = (there + minutes * 60_000_000 for minutes in range(-26 * 60, 26 * 60 + 1, 15))
    return [instant for instant in quarters if clock(zone, instant) == reading]


@functools.cache
def first_after_gap(zone: str, reading: dt.datetime) -> int:
    """The first quarter of an hour at which a clock shows something later."""
    there = (reading.replace(tzinfo=dt.UTC) - EPOCH) // MICROSECOND // 900_000_000
    return next(
        quarter * 900_000_000
        for quarter in range(there - 110, there + 110)
        if clock(zone, quarter * 900_000_000) > reading
        and clock(zone, quarter * 900_000_000 - 1) < reading
    )


def moved(reading: dt.datetime, unit: str) -> dt.datetime | None:
    """The same reading one unit earlier; None where there is no such day."""
    if unit in ("day", "week"):
        return reading - dt.timedelta(days=1 if unit == "day" else 7)
    months = reading.year * 12 + reading.month - 1 - {"month": 1, "quarter": 3, "year": 12}[unit]
    try:
        return reading.replace(year=months // 12, month=months % 12 + 1)
    except ValueError:
        return None


def places_before(period: int | str, zone: str, start: int, end: int) -> list[Interval]:
    """Where the previous window may be, in the order in which they count."""
    if isinstance(period, int):
        return [(start - period, end - period)]
    from_inside = clock(zone, start - 1) + MICROSECOND, clock(zone, end - 1) + MICROSECOND
    begin, over = moved(clock(zone, start), period), moved(from_inside[1], period)
    found = []
    if begin is not None:
        shown = showing(zone, begin)
        first = first_showing(zone, begin)
        if over is not None:
            found.append((first, first_showing(zone, over)))
        if shown:
            found.append((first, first + end - start))
    since = moved(from_inside[0], period)
    if from_inside[0] < clock(zone, start) and since is not None and over is not None:
        found.append((first_showing(zone, since), first_showing(zone, over)))
    return found


def first_showing(zone: str, reading: dt.datetime) -> int:
    """The first instant at which a clock shows it; where it is skipped, the first after the gap."""
    return (showing(zone, reading) or [first_after_gap(zone, reading)])[0]


@dataclass
class CompareOracle:
    """Comparisons with every policy for stragglers and every kind of input."""

    period: int | str
    by: tuple[str, ...]
    values: tuple[str, ...]
    zone: str = ""
    revised: str = "never"
    allowed_lateness: int = 0
    stragglers: str = "drop"
    too_late: str = "drop"

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
        """The same settings; nothing has been seen."""
        return replace(self, watermark=None, arrived=[], published={}, revisions={})

    def windows(self) -> dict[Window, Row]:
        """The windows there are, by the newest of their rows: a delete is newer than what it removes."""
        newest: dict[Window, tuple[Any, Row]] = {}
        for row in self.arrived:
            window = (key_of(row, self.by), (row["window_start"], row["window_end"]))
            rank = (row.get("revision", 0), row.get("_change_type") == "delete")
            if window not in newest or rank > newest[window][0]:
                newest[window] = (rank, row)
        return {w: row for w, ((_, is_gone), row) in newest.items() if not is_gone}

    def step(self, rows: Sequence[Row], watermark: int | None) -> Expected:
        """One micro-batch: rows are judged by the watermark of before, results by this one."""
        said = Expected()
        for row in rows:
            said.counts["rows"] += 1
            instant = row["window_end"]
            if instant is None or not YEAR_1 <= instant <= YEAR_9999_ENDS:
                said.counts["rejected"] += 1
                if self.routes:
                    reason = "null_time" if instant is None else "time_out_of_range"
                    said.late.append(self._late(row, reason, judged=False))
                continue
            verdict = self._judge(instant)
            said.counts[verdict] += 1
            if verdict == "on_time" or (verdict == "stragglers" and self.corrects):
                if row.get("_change_type") != "update_preimage":
                    self.arrived.append(row)
            elif self.routes:
                reason = "straggler" if verdict == "stragglers" else "too_late"
                said.late.append(self._late(row, reason, judged=True))
        judged_by = self.watermark
        if watermark is not None and (self.watermark is None or watermark > self.watermark):
            self.watermark = watermark
        there = self.windows()
        for window in [w for w in self.published if w not in there]:
            said.emitted.append(self._row(window, self.published.pop(window), "delete"))
        for window in there:
            if self._passed(window[1][1]):
                self._say(window, there, said, judged_by)
        return said

    def finish(self) -> list[Row]:
        """Every comparison that is not on time yet."""
        there = self.windows()
        return [
            self._row(window, Published(0, self._compared(window, there)), "insert")
            for window in there
            if window not in self.published
        ]

    def bound(self) -> int:
        """Entries of state there may be: windows that ended less than a period, and an hour
        where the clock is changed, before the watermark.
        """
        keeps = self.allowed_lateness if self.corrects else 0
        back = self.period
        if isinstance(back, str):
            back = {"day": 25, "week": 169}[back] * 3_600_000_000
        windows = {(key_of(r, self.by), r["window_start"], r["window_end"]) for r in self.arrived}
        return sum(not self._passed(end + back + keeps) for _, _, end in windows)

    def _passed(self, instant: int) -> bool:
        return self.watermark is not None and instant <= self.watermark

    def _judge(self, instant: int) -> str:
        if not self._passed(instant):
            return "on_time"
        return "too_late" if self._passed(instant + self.allowed_lateness) else "stragglers"

    def _say(
        self, window: Window, there: dict[Window, Row], said: Expected, judged_by: int | None
    ) -> None:
        """Publish the comparison, if it differs from what was published."""
        before, values = self.published.get(window), self._compared(window, there)
        if before is None:
            behind = judged_by is not None and window[1][1] <= judged_by
            was = self.revisions.get(window)
            revision = was + 1 if was is not None else 1 if behind else 0
            change, count = "insert", "results" if was is None else "corrections"
        elif same(before.values, values):
            return
        else:
            if self.stragglers == "retract":
                said.emitted.append(self._row(window, before, "update_preimage"))
            revision, change, count = before.revision + 1, "update_postimage", "corrections"
        self.published[window] = Published(revision, values)
        self.revisions[window] = revision
        said.emitted.append(self._row(window, self.published[window], change))
        said.counts[count] += 1

    def _compared(self, window: Window, there: dict[Window, Row]) -> Row:
        key, (start, end) = window
        places = places_before(self.period, self.zone, start, end)
        previous = next((there[key, each] for each in places if (key, each) in there), {})
        row = there[window]
        said: Row = {name: row[name] for name in self.by}
        said |= {"window_start": start, "window_end": end}
        for name in self.values:
            value, before = row[name], previous.get(name)
            known = value is not None and before is not None
            change = value - before if known else None
            said |= {name: value, f"previous_{name}": before, f"change_{name}": change}
            said[f"rate_{name}"] = float(change) / float(before) if known and before else None
        return said

    def _row(self, window: Window, said: Published, change: str) -> Row:
        row = dict(said.values)
        if self.corrects:
            row["revision"] = said.revision
        if self.stragglers == "retract":
            row["_change_type"] = change
        return row

    def _late(self, row: Row, reason: str, *, judged: bool) -> Row:
        said = {name: row[name] for name in self.by}
        lateness = watermark = None
        if judged and self.watermark is not None:
            said |= {name: row[name] for name in ("window_start", "window_end")}
            lateness, watermark = self.watermark - row["window_end"], self.watermark
        said["late"] = {
            "reason": reason, "lateness": lateness, "watermark": watermark, "row": dict(row)
        }  # fmt: skip
        return said
