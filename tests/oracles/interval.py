"""Interval joins, row by row, in simple Python: the expected results of a core.

Nothing is evicted. After every micro-batch, the complete output is computed from the definition, over
all accepted rows, and compared with the output before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.oracles.side_output import late_row
from tests.oracles.windows import YEAR_1, YEAR_9999_ENDS, Expected, Row, equal

Pair = tuple[int | None, int | None]
"""Numbers of a left and of a right row; None for a row without a partner."""


@dataclass
class IntervalOracle:
    """Interval joins with every policy."""

    columns: tuple[tuple[str, ...], tuple[str, ...]]
    by: tuple[tuple[str, str], ...]
    time: tuple[str, str]
    lower: int
    upper: int
    how: str = "inner"
    matches: str = "every"
    tie_break: str | None = None
    allowed_lateness: int = 0
    stragglers: str = "drop"
    too_late: str = "drop"
    early: str = "never"

    watermark: int | None = None
    left: list[Row] = field(default_factory=list)
    right: list[Row] = field(default_factory=list)
    published: dict[Pair, str] = field(default_factory=dict)
    late: set[tuple[int, int]] = field(default_factory=set)
    """Pairs in which one row arrived when the other was final."""

    @property
    def corrects(self) -> bool:
        return self.stragglers == "retract"

    @property
    def routes(self) -> bool:
        return "route" in (self.stragglers, self.too_late)

    @property
    def takes_back(self) -> bool:
        return self.corrects or self.early != "never"

    def fresh(self) -> IntervalOracle:
        """An oracle with the same parameters and no rows."""
        return replace(self, watermark=None, left=[], right=[], published={}, late=set())

    def meet(self, left: Row, right: Row) -> bool:
        """The definition."""
        keys = [(left[ours], right[theirs]) for ours, theirs in self.by]
        if any(ours is None or not equal(ours, theirs) for ours, theirs in keys):
            return False
        distance = right[self.time[1]] - left[self.time[0]]
        return self.lower <= distance <= self.upper

    def step(self, left: Sequence[Row], right: Sequence[Row], watermark: int | None) -> Expected:
        """One micro-batch: late rows by the previous watermark, results by this one."""
        expected, previous_watermark = Expected(), self.watermark
        old = len(self.left), len(self.right)
        self.left += self.accepted(left, 0, expected)
        self.right += self.accepted(right, 1, expected)
        if watermark is not None and (previous_watermark is None or watermark > previous_watermark):
            self.watermark = watermark
        self._publish(expected, old, previous_watermark)
        return expected

    def finish(self) -> list[Row]:
        """The pending output at the end of both streams."""
        expected, over = (
            Expected(),
            replace(self, watermark=1 << 62, published=dict(self.published)),
        )
        over._publish(expected, (len(self.left), len(self.right)), self.watermark)
        return expected.emitted

    def bound(self) -> int:
        """Maximum rows of state: those that may still match rows that are accepted."""
        patience = self.allowed_lateness if self.corrects else 0
        longer = max(self.upper, 0) if self.matches != "every" else 0
        left = [t for t in self._times(0) if not self._passed(t + self.upper + patience)]
        right = [t for t in self._times(1) if not self._passed(t - self.lower + longer + patience)]
        return len(left) + len(right)

    def _publish(
        self, expected: Expected, old: tuple[int, int], previous_watermark: int | None
    ) -> None:
        """Emit new results, and retract results that are no longer valid."""
        wanted = dict(self._wanted(old, previous_watermark))
        back = [p for p, status in self.published.items() if wanted.get(p) != status]
        anew = [p for p, status in wanted.items() if self.published.get(p) != status]
        assert self.takes_back or not back, "an emitted result is not retracted"
        expected.emitted += [self._row(p, self.published[p], "delete") for p in back]
        expected.emitted += [self._row(p, wanted[p], "insert") for p in anew]
        late = sum(wanted[pair] == "late_match" for pair in anew)
        expected.counts["results"] += len(anew) - late
        expected.counts["corrections"] += late
        self.published = wanted

    def _wanted(
        self, old: tuple[int, int], previous_watermark: int | None
    ) -> list[tuple[Pair, str]]:
        """The complete output up to now."""
        pairs = [
            (i, j)
            for i, ours in enumerate(self.left)
            for j, theirs in enumerate(self.right)
            if self.meet(ours, theirs)
        ]
        self._find_late(pairs, old, previous_watermark)
        lone_left = self._lone(0, {i for i, _ in pairs})
        lone_right = self._lone(1, {j for _, j in pairs})
        if self.matches != "every":
            return self._answered(pairs, dict(lone_left))
        matched = [(p, self._status(p, p)) for p in pairs]
        alone: list[tuple[Pair, str]] = []
        if self.how in ("left", "full", "anti"):
            alone += [((i, None), status) for i, status in lone_left]
        if self.how in ("right", "full"):
            alone += [((None, j), status) for j, status in lone_right]
        if self.how == "anti":
            return alone
        if self.how == "semi":
            best: dict[Pair, str] = {}
            for i, j in pairs:
                status = self._status((i, None), (i, j))
                if best.get((i, None)) != "matched":
                    best[i, None] = status
            return list(best.items())
        return matched + alone

    def _answered(
        self, pairs: Sequence[tuple[int, int]], lone: dict[int, str]
    ) -> list[tuple[Pair, str]]:
        """One partner for each left row."""
        wanted: list[tuple[Pair, str]] = []
        if self.how == "left":
            wanted += [((i, None), status) for i, status in lone.items()]
        for i in range(len(self.left)):
            partners = [j for k, j in pairs if k == i]
            if not partners:
                continue
            choose = min if self.matches == "first" else max
            j = choose(partners, key=self._order)
            final = self._times(1)[j] if self.matches == "first" else self._end(0, i)
            if not self._passed(final):
                if self.early != "never":
                    wanted.append(((i, j), "early"))
                continue
            before = [s for p, s in self.published.items() if p[0] == i and p[1] != j]
            status = self._status((i, j), (i, j))
            if any(s != "early" for s in before):
                status = "late_match"
            wanted.append(((i, j), status))
        return wanted

    def _order(self, j: int) -> tuple[Any, ...]:
        """By time and tie-break, then by all values: null, numbers, NaN."""
        assert self.tie_break is not None
        row, keys = self.right[j], {name for _, name in self.by}
        rest = [row[name] for name in sorted(row) if name not in keys]
        return self._times(1)[j], *map(_rank, [row[self.tie_break], *rest])

    def _find_late(
        self, pairs: Sequence[tuple[int, int]], old: tuple[int, int], previous_watermark: int | None
    ) -> None:
        """Store which of the new pairs are late, whenever they are emitted."""
        if previous_watermark is None:
            return
        for i, j in pairs:
            right_is_late = j >= old[1] and self._end(0, i) <= previous_watermark
            left_is_late = i >= old[0] and self._end(1, j) <= previous_watermark
            if right_is_late or left_is_late:
                self.late.add((i, j))

    def _status(self, of: Pair, pair: tuple[int, int]) -> str:
        """Its previous status, or the status of a match."""
        before = self.published.get(of)
        if before in ("matched", "late_match"):
            return before
        return "late_match" if pair in self.late else "matched"

    def _lone(self, side: int, met: set[int]) -> list[tuple[int, str]]:
        """Rows without a partner that must be published."""
        found = []
        for number in range(len(self._times(side))):
            if number not in met and self._passed(self._end(side, number)):
                found.append((number, "expired"))
            elif number not in met and self.early != "never":
                found.append((number, "early"))
        return found

    def _times(self, side: int) -> list[int]:
        return [row[self.time[side]] for row in (self.left, self.right)[side]]

    def _end(self, side: int, number: int) -> int:
        """The last time at which the row can have a partner."""
        time = self._times(side)[number]
        return time + self.upper if side == 0 else time - self.lower

    def _passed(self, instant: int) -> bool:
        return self.watermark is not None and instant <= self.watermark

    def accepted(
        self, rows: Sequence[Row], side: int, expected: Expected | None = None
    ) -> list[Row]:
        """Classify rows of the left (0) or the right (1); return those that are joined."""
        accepted, expected = [], expected or Expected()
        for row in rows:
            expected.counts["rows"] += 1
            instant = row[self.time[side]]
            if instant is None or not YEAR_1 <= instant <= YEAR_9999_ENDS:
                expected.counts["rejected"] += 1
                if self.routes:
                    reason = "null_time" if instant is None else "time_out_of_range"
                    expected.late.append(self._late(row, side, reason, is_late=False))
                continue
            behind = -1 if self.watermark is None else self.watermark - instant
            if behind < 0:
                timing = "on_time"
            else:
                timing = "stragglers" if behind < self.allowed_lateness else "too_late"
            expected.counts[timing] += 1
            if timing == "on_time" or (timing == "stragglers" and self.corrects):
                accepted.append(row)
            elif self.routes:
                reason = "straggler" if timing == "stragglers" else "too_late"
                expected.late.append(self._late(row, side, reason, is_late=True))
        return accepted

    def _late(self, row: Row, side: int, reason: str, *, is_late: bool) -> Row:
        assert self.watermark is not None or not is_late
        found = {name: row[name] for name in self.columns[side]}
        lateness = self.watermark - row[self.time[side]] if is_late else None
        watermark = self.watermark if is_late else None
        name = ("left", "right")[side]
        return {"late": late_row(reason, found, side=name, lateness=lateness, watermark=watermark)}

    def _row(self, pair: Pair, status: str, change: str) -> Row:
        i, j = pair
        row: Row = dict.fromkeys(self.columns[0])
        if i is not None:
            row |= {name: self.left[i][name] for name in self.columns[0]}
        if j is not None and self.how not in ("semi", "anti"):
            partner = self.right[j]
            if i is None:
                row |= {ours: partner[theirs] for ours, theirs in self.by}
            keys = {theirs for _, theirs in self.by}
            for name in self.columns[1]:
                if name not in keys:
                    row[f"{name}_right" if name in self.columns[0] else name] = partner[name]
        row["status"] = status
        return row | ({"_change_type": change} if self.takes_back else {})


def _rank(value: Any) -> tuple[int, Any]:
    if value is None:
        return 0, 0
    return (2, 0) if value != value else (1, value)
