"""As-of joins, row by row, in simple Python: the expected results of a core.

Every accepted version is stored forever in `ever`, and the answer to a fact is found among all of them.
`stored` has the versions that a core still stores, as only these can conflict with a new version.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from streamops.kernel.values import comparable
from tests.oracles.side_output import late_row
from tests.oracles.windows import YEAR_1, YEAR_9999_ENDS, Expected, Row

Position = tuple[Any, int, Any]
"""Key, version time and sequence."""


@dataclass
class Fact:
    """An accepted fact, and the version of its answer; False before it was answered."""

    row: Row
    answered: Row | bool | None = False


@dataclass
class AsofOracle:
    """As-of joins with every policy."""

    by: tuple[tuple[str, str], ...]
    time: str
    version: str
    sequence: str
    columns: tuple[str, ...]
    joined: tuple[tuple[str, str], ...]
    until: str | None = None
    deleted: str | None = None
    changes: bool = False
    how: str = "left"
    tolerance: int | None = None
    direction: str = "backward"
    allow_exact: bool = True
    allowed_lateness: int = 0
    stragglers: str = "drop"
    late_versions: str = "ignore"
    too_late: str = "drop"

    watermark: int | None = None
    facts: list[Fact] = field(default_factory=list)
    ever: dict[Position, Row] = field(default_factory=dict)
    stored: dict[Position, Row] = field(default_factory=dict)

    def fresh(self) -> AsofOracle:
        """An oracle with the same parameters and no rows."""
        return replace(self, watermark=None, facts=[], ever={}, stored={})

    @property
    def retracts(self) -> bool:
        return self.late_versions == "retract"

    @property
    def routes(self) -> bool:
        return "route" in (self.stragglers, self.too_late)

    @property
    def retention(self) -> int:
        lateness = self.allowed_lateness if self.retracts or self.stragglers == "answer" else 0
        return self.ahead + lateness if self.retracts else max(self.ahead, lateness)

    @property
    def ahead(self) -> int:
        """The maximum time from a fact to a later answer."""
        return 0 if self.direction == "backward" else self.tolerance or 0

    def is_deleted(self, row: Row) -> bool:
        by_flag = self.deleted is not None and row[self.deleted] is True
        return by_flag or (self.changes and row["_change_type"] == "delete")

    def answer(self, fact: Row) -> Row | None:
        """The definition."""
        key, t = self._key(fact, 0), fact[self.time]
        if any(part is None for part in key):
            return None
        of_key = [row for (k, _, _), row in self.ever.items() if k == comparable(key)]
        found = []
        if self.direction != "forward":
            found.append(self._before(of_key, t))
        if self.direction != "backward":
            found.append(self._after(of_key, t))
        near = [row for row in found if row is not None]
        # Of two equally distant versions, the first one, which is before the fact.
        return min(near, key=lambda row: abs(t - row[self.version]), default=None)

    def _before(self, of_key: Sequence[Row], t: int) -> Row | None:
        """The newest version, if it has a value, still holds, and is not too far away."""
        past = [r for r in of_key if r[self.version] < t or (self.allow_exact and self._at(r, t))]
        if not past:
            return None
        newest = max(past, key=lambda r: (r[self.version], comparable(r[self.sequence])))
        return newest if self._holds(newest, t) and self._near(newest, t) else None

    def _after(self, of_key: Sequence[Row], t: int) -> Row | None:
        """The version of the first instant at which there is a value."""
        for instant in sorted({row[self.version] for row in of_key}):
            if instant > t or (self.allow_exact and instant == t):
                there = [row for row in of_key if self._at(row, instant)]
                last = max(there, key=lambda r: comparable(r[self.sequence]))
                if self._holds(last, instant):
                    return last if self._near(last, t) else None
        return None

    def _at(self, row: Row, instant: int) -> bool:
        return bool(row[self.version] == instant)

    def _holds(self, row: Row, instant: int) -> bool:
        end = None if self.until is None else row[self.until]
        return not self.is_deleted(row) and (end is None or instant < end)

    def _near(self, row: Row, t: int) -> bool:
        return self.tolerance is None or abs(t - row[self.version]) <= self.tolerance

    def step(self, left: Sequence[Row], right: Sequence[Row], watermark: int | None) -> Expected:
        """One micro-batch: late rows by the previous watermark, answers by this one."""
        expected = Expected()
        for row in left:
            self.judge_fact(row, expected)
        new_versions = [row for row in right if self.judge_version(row, expected)]
        conflicts = self.take_in(new_versions, expected)
        for row in new_versions:
            if not any(row is other for other in conflicts):
                self._missed(row, expected)
        previous_watermark = self.watermark
        if watermark is not None and (self.watermark is None or watermark > self.watermark):
            self.watermark = watermark
        if self.retracts:
            for fact in self.facts:
                final = (
                    previous_watermark is None
                    or fact.row[self.time] + self.ahead
                    <= previous_watermark - self.allowed_lateness
                )
                if fact.answered is not False and not final:
                    self._revise(fact, expected)
        for fact in self.facts:
            if fact.answered is False and self._passed(fact.row[self.time] + self.ahead):
                self.emit(fact, expected)
        self._forget()
        return expected

    def finish(self) -> list[Row]:
        """The answers of all pending facts."""
        expected = Expected()
        over = replace(self, facts=[replace(f) for f in self.facts], watermark=1 << 62)
        for fact in over.facts:
            if fact.answered is False:
                over.emit(fact, expected)
        return expected.emitted

    def bound(self) -> int:
        """Maximum rows of state."""
        facts = sum(1 for fact in self.facts if self._waits(fact))
        newer = [p for p, row in self.ever.items() if not self._passed(p[1] + self.retention)]
        base = {key for key, v, _ in self.ever if self._passed(v + self.retention)}
        if self.direction == "forward":
            base = set()
        return facts + len(newer) + len(base)

    def _waits(self, fact: Fact) -> bool:
        t, matchable = fact.row[self.time], None not in self._key(fact.row, 0)
        if not self._passed(t + self.ahead):
            return matchable or self.how == "left"
        return self.retracts and matchable and not self._passed(t + self.retention)

    def _passed(self, instant: int) -> bool:
        return self.watermark is not None and instant <= self.watermark

    def _key(self, row: Row, side: int) -> tuple[Any, ...]:
        return tuple(row[pair[side]] for pair in self.by)

    def _timing(self, instant: int) -> str:
        if not self._passed(instant):
            return "on_time"
        return "too_late" if self._passed(instant + self.allowed_lateness) else "stragglers"

    def judge_fact(self, row: Row, expected: Expected) -> None:
        expected.counts["rows"] += 1
        reason = _unplaceable(row[self.time])
        if reason:
            self._reject("left", row, reason, expected)
            return
        timing = self._timing(row[self.time])
        expected.counts[timing] += 1
        if timing == "on_time" or (timing == "stragglers" and self.stragglers == "answer"):
            self.facts.append(Fact(row))
        elif self.routes and (timing == "too_late" or self.stragglers == "route"):
            expected.late.append(self._late("left", row, timing, row[self.time]))

    def judge_version(self, row: Row, expected: Expected) -> bool:
        expected.counts["rows"] += 1
        if row.get("_tombstone"):
            expected.counts["on_time"] += 1
            return False
        reason = _unplaceable(row[self.version])
        if not reason and row[self.sequence] is None:
            reason = "null_sequence"
        if not reason and self.until is not None and row[self.until] is not None:
            reason = "until_before_version" if row[self.until] < row[self.version] else None
        change_types = ("insert", "update_preimage", "update_postimage", "delete")
        if not reason and self.changes and row["_change_type"] not in change_types:
            reason = "unknown_change_type"
        if reason:
            self._reject("right", row, reason, expected)
            return False
        expected.counts[self._timing(row[self.version])] += 1
        back = self.changes and row["_change_type"] == "update_preimage"
        return not back and None not in self._key(row, 1)

    def _missed(self, row: Row, expected: Expected) -> None:
        """Deliver a version that answers may have missed."""
        timing = self._timing(row[self.version])
        missed = not self.retracts and self.stragglers == "route" and timing == "stragglers"
        if self.routes and (timing == "too_late" or missed):
            expected.late.append(self._late("right", row, timing, row[self.version]))

    def take_in(self, rows: Sequence[Row], expected: Expected) -> list[Row]:
        """Of rows with one position, store the greatest, by its values in the order of their names.

        The others are rejected if they differ, and returned.
        """
        conflicts = []
        positions: dict[Position, list[Row]] = {}
        for position, row in self.stored.items():
            positions.setdefault(position, []).append(row)
        for row in rows:
            key, sequence = self._key(row, 1), comparable(row[self.sequence])
            positions.setdefault((comparable(key), row[self.version], sequence), []).append(row)
        for position, those in positions.items():
            best = max(
                those, key=lambda r: (not self.is_deleted(r), self._content(r), self._rest(r))
            )
            for row in those:
                if self._meaning(row) == self._meaning(best) or (
                    self.changes and self.is_deleted(row)
                ):
                    continue
                expected.counts[self._timing(row[self.version])] -= 1
                self._reject("right", row, "conflicting_version", expected)
                conflicts.append(row)
            self.ever[position] = self.stored[position] = best
        return conflicts

    def _content(self, row: Row) -> Any:
        aside = self._aside()
        return [comparable(row[name]) for name in sorted(self.columns) if name not in aside]

    def _rest(self, row: Row) -> Any:
        aside = self._aside()
        return [comparable(row[name]) for name in sorted(self.columns) if name in aside]

    def _aside(self) -> set[str | None]:
        keys = {name for _, name in self.by}
        return {*keys, self.version, self.sequence, self.deleted, "_change_type", "_tombstone"}

    def _meaning(self, row: Row) -> Any:
        return None if self.is_deleted(row) else self._content(row)

    def emit(self, fact: Fact, expected: Expected) -> None:
        fact.answered = self.answer(fact.row)
        if fact.answered is not None or self.how == "left":
            expected.emitted.append(self._row(fact.row, fact.answered, "insert"))
            expected.counts["results"] += 1

    def _revise(self, fact: Fact, expected: Expected) -> None:
        old, new = fact.answered, self.answer(fact.row)
        assert not isinstance(old, bool)
        fact.answered = new
        if self._values(old) == self._values(new):
            return
        had, has = (self.how == "left" or version is not None for version in (old, new))
        if had:
            back = "update_preimage" if has else "delete"
            expected.emitted.append(self._row(fact.row, old, back))
        if has:
            change = "update_postimage" if had else "insert"
            expected.emitted.append(self._row(fact.row, new, change))
            expected.counts["corrections"] += 1

    def _values(self, version: Row | None) -> Any:
        return version and [comparable(version[own]) for own, _ in self.joined]

    def _forget(self) -> None:
        """Evict versions that cannot be an answer; the newest of a key below the horizon can."""
        for key in {position[0] for position in self.stored}:
            old = [p for p in self.stored if p[0] == key and self._passed(p[1] + self.retention)]
            for position in old:
                oldest = None if self.tolerance is None else position[1] + self.tolerance
                expired = oldest is not None and self._passed(oldest + self.retention)
                if position != max(old) or expired or self.direction == "forward":
                    del self.stored[position]

    def _row(self, fact: Row, version: Row | None, change: str) -> Row:
        row = dict(fact)
        row |= {name: None if version is None else version[own] for own, name in self.joined}
        row["status"] = "missing" if version is None else "matched"
        if self.retracts:
            row["_change_type"] = change
        if self.routes:
            row["late"] = None
        return row

    def _reject(self, side: str, row: Row, reason: str, expected: Expected) -> None:
        expected.counts["rejected"] += 1
        if self.routes:
            expected.late.append(self._late(side, row, reason, None))

    def _late(self, side: str, row: Row, reason: str, instant: int | None) -> Row:
        late: Row = late_row({"stragglers": "straggler"}.get(reason, reason), dict(row), side=side)
        if instant is not None and self.watermark is not None:
            late |= {"lateness": self.watermark - instant, "watermark": self.watermark}
        return {"late": late}


def _unplaceable(instant: int | None) -> str | None:
    if instant is None:
        return "null_time"
    return None if YEAR_1 <= instant <= YEAR_9999_ENDS else "time_out_of_range"
