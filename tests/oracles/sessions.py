"""Session windows, row by row, in simple Python: the expected results of a core.

Only the accepted rows and the last result of each session are stored. All sessions are computed
again for every result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from streamops.aggregates import Aggregate
from tests.oracles.side_output import late_row
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

    It is a straggler in the micro-batch in which it arrives. After that, it is part of an open or an
    emitted session, as any other row.
    """

    row: Row
    time: int
    end: int
    closes: bool
    straggler: bool = False
    revision: int = 0


@dataclass
class Published:
    """The result of a session that was emitted last."""

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
    published: dict[Window, Published] = field(default_factory=dict)

    @property
    def corrects(self) -> bool:
        return self.stragglers == "retract"

    @property
    def routes(self) -> bool:
        return "route" in (self.stragglers, self.too_late)

    def fresh(self) -> SessionOracle:
        """An oracle with the same parameters and no rows."""
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
        for key in {key_of(row.row, self.by): None for row in arrived}:
            rows = [row for row in arrived if key_of(row.row, self.by) == key]
            for chain in self._chains_of(sorted(rows, key=lambda row: row.time)):
                yield key, chain

    def _chains_of(self, rows: Sequence[Arrived]) -> Iterator[list[Arrived]]:
        """Rows of one key that touch, up to silence or a closing row."""
        chain: list[Arrived] = []
        for row in rows:
            silence = chain and row.time > max(member.end for member in chain)
            closed = any(member.closes and member.time < row.time for member in chain)
            if silence or closed:
                yield chain
                chain = []
            chain.append(row)
        if chain:
            yield chain

    def _pieces(self, chain: list[Arrived]) -> Iterator[tuple[int, int, list[Arrived]]]:
        """The sessions of a chain, which is split if it is longer than the limit."""
        start = chain[0].time
        closing = [row.time for row in chain if row.closes]
        end = closing[-1] + 1 if closing else max(row.end for row in chain)
        if self.max_length is None:
            yield start, end, chain
            return
        numbers = sorted({(row.time - start) // self.max_length for row in chain})
        for number in numbers:
            members = [e for e in chain if (e.time - start) // self.max_length == number]
            first = start + number * self.max_length
            yield first, min(end, first + self.max_length), members

    # Micro-batches.

    def step(self, rows: Sequence[Row], watermark: int | None) -> Expected:
        """One micro-batch: late rows by the previous watermark, closed sessions by this one."""
        expected = Expected()
        before = self.sessions(self.arrived)
        new_rows = []
        for row in rows:
            expected.counts["rows"] += 1
            reason = self._unusable(row)
            if reason is not None:
                expected.counts["rejected"] += 1
                if self.routes:
                    expected.late.append(self._late(row, None, reason))
                continue
            arrived_row = self._arrival(row)
            timing = self._classify(arrived_row, before)
            expected.counts[timing] += 1
            if timing == "on_time" or (timing == "stragglers" and self.corrects):
                arrived_row.straggler = timing == "stragglers"
                new_rows.append(arrived_row)
            elif self.routes:
                reason = "straggler" if timing == "stragglers" else "too_late"
                expected.late.append(self._late(row, arrived_row, reason))
        self.arrived += new_rows
        previous_watermark = self.watermark
        if watermark is not None and (self.watermark is None or watermark > self.watermark):
            self.watermark = watermark
        self._emit(expected, before, previous_watermark)
        for arrived_row in new_rows:
            arrived_row.straggler = False
        return expected

    def finish(self) -> list[Row]:
        """Every session that is still open."""
        expected, previous_watermark = Expected(), self.watermark
        copy = replace(self, watermark=1 << 62, published=dict(self.published))
        copy._emit(expected, self.sessions(self.arrived), previous_watermark)
        return expected.emitted

    def bound(self) -> int:
        """Maximum rows of state."""
        keeps = self.gap + (self.allowed_lateness if self.corrects else 0)
        cuts = self.until is not None or self.max_length is not None
        entries = 0
        for _, chain in self._chains(self.arrived):
            last = chain[0].end
            for _, end, members in self._pieces(chain):
                last = max(last, *(row.end for row in members))
                if not self._closed(end) or not self._closed(last + keeps):
                    entries += len({row.time for row in members}) if cuts else 1
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

    def _classify(self, arrived_row: Arrived, before: Mapping[Window, list[Arrived]]) -> str:
        """By its own interval, and by whether it would change a session that is on time."""
        if self._closed(arrived_row.end + self.allowed_lateness):
            return "too_late"
        if self._closed(arrived_row.end):
            return "stragglers"
        mine = key_of(arrived_row.row, self.by)
        of_key = [e for e in self.arrived if key_of(e.row, self.by) == mine]
        after = self.sessions([*of_key, arrived_row])
        published = {w: m for w, m in before.items() if w[0] == mine and self._closed(w[2])}
        changes = any(len(after.get(w, [])) != len(members) for w, members in published.items())
        return "stragglers" if changes else "on_time"

    def _emit(
        self,
        expected: Expected,
        before: Mapping[Window, list[Arrived]],
        previous_watermark: int | None,
    ) -> None:
        """Emit the differences to what was emitted before."""
        early = self.early != "never"
        after = self.sessions(self.arrived)
        old = dict(self.published)
        changed = [w for w in old if w not in after or self._differs(w, after[w], old[w])]
        for window, members in before.items():
            if window in changed:
                for member in members:
                    member.revision = old[window].revision + 1
        for window in changed:
            if window not in after:
                expected.emitted.append(self._row(window, before[window], old[window], "delete"))
                del self.published[window]
        for window, members in after.items():
            if not (self._closed(window[2]) or early):
                continue
            if window in old and window not in changed:
                continue
            replaces = [
                w
                for w, rows in before.items()
                if w in old and any(any(other is row for row in members) for other in rows)
            ]
            revision = max(member.revision for member in members)
            behind = previous_watermark is not None and window[2] <= previous_watermark
            tardy = behind and not replaces and all(member.straggler for member in members)
            corrected = behind and any(w[2] <= previous_watermark for w in replaces)
            timing = "late" if tardy or corrected else "on_time"
            if not self._closed(window[2]):
                timing = "early"
            if tardy:
                revision = 1
            for member in members:
                member.revision = revision
            now = Published(revision, timing, self._values(members))
            if window in old:
                taken = self._row(window, before[window], old[window], "update_preimage")
                expected.emitted += [taken, self._row(window, members, now, "update_postimage")]
            else:
                expected.emitted.append(self._row(window, members, now, "insert"))
            expected.counts["corrections" if replaces else "results"] += 1
            self.published[window] = now

    def _differs(self, window: Window, members: Sequence[Arrived], last: Published) -> bool:
        news = last.timing == "early" and self._closed(window[2])
        return news or not same(last.values, self._values(members))

    def _values(self, members: Sequence[Arrived]) -> Row:
        rows = [member.row for member in members]
        return {name: value_of(a, rows, self.time) for name, a in self.agg.items()}

    def _row(self, window: Window, members: Sequence[Arrived], last: Published, change: str) -> Row:
        row = {name: members[0].row[name] for name in self.by}
        row |= {"window_start": window[1], "window_end": window[2], **last.values}
        early = self.early != "never"
        if self.corrects or early:
            row["revision"] = last.revision
        if early:
            row["timing"] = last.timing
        if self.corrects or early:
            row["_change_type"] = change
        if self.routes:
            row["late"] = None
        return row

    def _late(self, row: Row, arrived: Arrived | None, reason: str) -> Row:
        output = {name: row[name] for name in self.by}
        output |= dict.fromkeys(("window_start", "window_end", *self.agg))
        lateness = watermark = window = None
        if arrived is not None and self.watermark is not None:
            window = arrived.time, arrived.end
            output["window_start"], output["window_end"] = window
            lateness, watermark = self.watermark - arrived.time, self.watermark
        output["late"] = late_row(
            reason, dict(row), lateness=lateness, watermark=watermark, window=window
        )
        return output
