"""Session windows, row by row, in the plainest Python there is: what a core must say.

Nothing is kept but the rows that were accepted, and what was last said about each session. All
sessions are computed anew whenever they are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from streamops.aggregates import Aggregate
from tests.oracles.windows import (
    YEAR_1,
    YEAR_9999_ENDS,
    Expected,
    Row,
    key_of,
    same,
    value_of,
)

Window = tuple[Any, int, int]
"""A key, the start and the end of a session."""


@dataclass
class Arrived:
    """A row that was accepted, and the revision that its session has, or will begin with.

    It is a straggler in the micro-batch that it came with: then it is part of an open session as
    any other row, or of one that is told.
    """

    row: Row
    time: int
    end: int
    closes: bool
    straggler: bool = False
    revision: int = 0


@dataclass
class Said:
    """The last thing said about a session."""

    revision: int
    timing: str
    values: Row


@dataclass
class SessionOracle:
    """Session windows with every policy for stragglers."""

    gap: int
    by: tuple[str, ...]
    time: str
    agg: Mapping[str, Aggregate]
    gap_column: str | None = None
    until: str | None = None
    max_length: int | None = None
    allowed_lateness: int = 0
    stragglers: str = "drop"
    too_late: str = "drop"
    early: str = "never"

    watermark: int | None = None
    arrived: list[Arrived] = field(default_factory=list)
    published: dict[Window, Said] = field(default_factory=dict)

    @property
    def corrects(self) -> bool:
        return self.stragglers == "retract"

    @property
    def routes(self) -> bool:
        return "route" in (self.stragglers, self.too_late)

    def fresh(self) -> SessionOracle:
        """The same settings; nothing has been seen."""
        return replace(self, watermark=None, arrived=[], published={})

    # Sessions of rows: the definition.

    def sessions(self, arrived: Sequence[Arrived]) -> dict[Window, list[Arrived]]:
        """Every session, and its rows."""
        return {
            (key, start, end): members
            for key, chain in self._chains(arrived)
            for start, end, members in self._pieces(chain)
        }

    def _chains(self, arrived: Sequence[Arrived]) -> Iterator[tuple[Any, list[Arrived]]]:
        """The chains of every key."""
        for key in {key_of(each.row, self.by): None for each in arrived}:
            rows = [each for each in arrived if key_of(each.row, self.by) == key]
            for chain in self._chains_of(sorted(rows, key=lambda each: each.time)):
                yield key, chain

    def _chains_of(self, rows: Sequence[Arrived]) -> Iterator[list[Arrived]]:
        """Rows of one key that touch, up to silence or a closing row."""
        chain: list[Arrived] = []
        for row in rows:
            silence = chain and row.time > max(each.end for each in chain)
            closed = any(each.closes and each.time < row.time for each in chain)
            if silence or closed:
                yield chain
                chain = []
            chain.append(row)
        if chain:
            yield chain

    def _pieces(self, chain: list[Arrived]) -> Iterator[tuple[int, int, list[Arrived]]]:
        """A chain, cut where it is longer than it may be."""
        start = chain[0].time
        closing = [each.time for each in chain if each.closes]
        end = closing[-1] + 1 if closing else max(each.end for each in chain)
        if self.max_length is None:
            yield start, end, chain
            return
        numbers = sorted({(each.time - start) // self.max_length for each in chain})
        for number in numbers:
            members = [e for e in chain if (e.time - start) // self.max_length == number]
            first = start + number * self.max_length
            yield first, min(end, first + self.max_length), members

    # Micro-batches.

    def step(self, rows: Sequence[Row], watermark: int | None) -> Expected:
        """One micro-batch: rows are judged by the watermark of before, sessions close by this."""
        said = Expected()
        before = self.sessions(self.arrived)
        came = []
        for row in rows:
            said.counts["rows"] += 1
            reason = self._unusable(row)
            if reason is not None:
                said.counts["rejected"] += 1
                if self.routes:
                    said.late.append(self._late(row, None, reason))
                continue
            one = self._arrival(row)
            verdict = self._judge(one, before)
            said.counts[verdict] += 1
            if verdict == "on_time" or (verdict == "stragglers" and self.corrects):
                one.straggler = verdict == "stragglers"
                came.append(one)
            elif self.routes:
                word = "straggler" if verdict == "stragglers" else "too_late"
                said.late.append(self._late(row, one, word))
        self.arrived += came
        judged_by = self.watermark
        if watermark is not None and (self.watermark is None or watermark > self.watermark):
            self.watermark = watermark
        self._say(said, before, judged_by)
        for one in came:
            one.straggler = False
        return said

    def finish(self) -> list[Row]:
        """Every session that is still open."""
        said, judged_by = Expected(), self.watermark
        copy = replace(self, watermark=1 << 62, published=dict(self.published))
        copy._say(said, self.sessions(self.arrived), judged_by)
        return said.emitted

    def bound(self) -> int:
        """Entries of state there may be."""
        keeps = self.gap + (self.allowed_lateness if self.corrects else 0)
        cuts = self.until is not None or self.max_length is not None
        entries = 0
        for _, chain in self._chains(self.arrived):
            last = chain[0].end
            for _, end, members in self._pieces(chain):
                last = max(last, *(each.end for each in members))
                if not self._closed(end) or not self._closed(last + keeps):
                    entries += len({each.time for each in members}) if cuts else 1
                    entries += not self.corrects and self._closed(end) and cuts
        return entries

    def _closed(self, end: int) -> bool:
        return self.watermark is not None and end <= self.watermark

    def _unusable(self, row: Row) -> str | None:
        instant = row[self.time]
        if instant is None:
            return "null_time"
        if not YEAR_1 <= instant <= YEAR_9999_ENDS:
            return "time_out_of_range"
        gap = row[self.gap_column] if self.gap_column else self.gap
        return None if gap is not None and 0 < gap <= self.gap else "gap_out_of_range"

    def _arrival(self, row: Row) -> Arrived:
        gap = row[self.gap_column] if self.gap_column else self.gap
        closes = bool(self.until and row[self.until])
        return Arrived(row, row[self.time], row[self.time] + gap, closes)

    def _judge(self, one: Arrived, before: Mapping[Window, list[Arrived]]) -> str:
        """By its own interval; and by whether it alone would change what is on time."""
        if self._closed(one.end + self.allowed_lateness):
            return "too_late"
        if self._closed(one.end):
            return "stragglers"
        mine = key_of(one.row, self.by)
        of_key = [e for e in self.arrived if key_of(e.row, self.by) == mine]
        after = self.sessions([*of_key, one])
        published = {w: m for w, m in before.items() if w[0] == mine and self._closed(w[2])}
        changes = any(len(after.get(w, [])) != len(members) for w, members in published.items())
        return "stragglers" if changes else "on_time"

    def _say(
        self, said: Expected, before: Mapping[Window, list[Arrived]], judged_by: int | None
    ) -> None:
        """Publish what differs from what was published."""
        early = self.early != "never"
        after = self.sessions(self.arrived)
        old = dict(self.published)
        changed = [w for w in old if w not in after or self._differs(w, after[w], old[w])]
        for window, members in before.items():
            if window in changed:
                for each in members:
                    each.revision = old[window].revision + 1
        for window in changed:
            if window not in after:
                said.emitted.append(self._row(window, before[window], old[window], "delete"))
                del self.published[window]
        for window, members in after.items():
            if not (self._closed(window[2]) or early):
                continue
            if window in old and window not in changed:
                continue
            replaces = [
                w
                for w, rows in before.items()
                if w in old and any(any(each is row for row in members) for each in rows)
            ]
            revision = max(each.revision for each in members)
            behind = judged_by is not None and window[2] <= judged_by
            tardy = behind and not replaces and all(each.straggler for each in members)
            corrected = behind and any(w[2] <= judged_by for w in replaces)
            timing = "late" if tardy or corrected else "on_time"
            if not self._closed(window[2]):
                timing = "early"
            if tardy:
                revision = 1
            for each in members:
                each.revision = revision
            now = Said(revision, timing, self._values(members))
            if window in old:
                taken = self._row(window, before[window], old[window], "update_preimage")
                said.emitted += [taken, self._row(window, members, now, "update_postimage")]
            else:
                said.emitted.append(self._row(window, members, now, "insert"))
            said.counts["corrections" if replaces else "results"] += 1
            self.published[window] = now

    def _differs(self, window: Window, members: Sequence[Arrived], said: Said) -> bool:
        news = said.timing == "early" and self._closed(window[2])
        return news or not same(said.values, self._values(members))

    def _values(self, members: Sequence[Arrived]) -> Row:
        rows = [each.row for each in members]
        return {name: value_of(a, rows, self.time) for name, a in self.agg.items()}

    def _row(self, window: Window, members: Sequence[Arrived], said: Said, change: str) -> Row:
        row = {name: members[0].row[name] for name in self.by}
        row |= {"window_start": window[1], "window_end": window[2], **said.values}
        early = self.early != "never"
        if self.corrects or early:
            row["revision"] = said.revision
        if early:
            row["timing"] = said.timing
        if self.corrects or early:
            row["_change_type"] = change
        if self.routes:
            row["late"] = None
        return row

    def _late(self, row: Row, judged: Arrived | None, reason: str) -> Row:
        said = {name: row[name] for name in self.by}
        said |= dict.fromkeys(("window_start", "window_end", *self.agg))
        lateness = watermark = None
        if judged is not None and self.watermark is not None:
            said |= {"window_start": judged.time, "window_end": judged.end}
            lateness, watermark = self.watermark - judged.time, self.watermark
        said["late"] = {
            "reason": reason, "lateness": lateness, "watermark": watermark, "row": dict(row)
        }  # fmt: skip
        return said
