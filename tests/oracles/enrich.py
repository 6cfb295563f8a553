"""Facts beside what a table says when they come, in the plainest Python there is.

Of each key all changes are known, and the row is computed from all of them; but for keys that were
deleted longer ago than the horizon, of which nothing is. A change that came later than the horizon
may be of one of these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from streamops.testing.values import comparable, same
from tests.oracles.windows import YEAR_1, YEAR_9999_ENDS, Expected, Row

Place = tuple[Any, ...]
Changes = dict[Place, list[Row]]
WORDS = ("insert", "update_preimage", "update_postimage", "delete")


@dataclass
class EnrichOracle:
    """A latest-value join in one shard.

    ``by`` are the keys of facts and of the table, ``values`` the table's columns and what they are
    called in the result.
    """

    by: tuple[tuple[str, str], ...]
    sequence: tuple[str, ...]
    values: tuple[tuple[str, str], ...]
    columns: tuple[str, ...]
    horizon: int
    time: str | None = None
    how: str = "left"
    rejected: str = "drop"

    known: dict[Any, Changes] = field(default_factory=dict)
    newest: int | None = None
    highest: Place | None = None
    oldest: int = -(10**18)

    def fresh(self) -> EnrichOracle:
        """The same settings; nothing has been seen."""
        return replace(self, known={}, newest=None, highest=None, oldest=-(10**18))

    def row_of(self, key: Any) -> Row | None:
        """What the table says of a key: the definition."""
        row: Row | None = None
        known = self.known.get(key, {})
        for change in (each for place in sorted(known) for each in known[place]):
            if change["_change_type"] == "delete":
                row = None
            else:
                lacks, before = change.get("_unavailable") or [], row or {}
                names = [name for name, _ in self.values]
                row = {n: before.get(n) if n in lacks else change[n] for n in names}
        return row

    def answer(self, fact: Row) -> Row | None:
        """What is said of a fact now; None: nothing."""
        key = [fact[name] for name, _ in self.by]
        row = None if any(part is None for part in key) else self.row_of(comparable(key))
        if row is None and self.how == "inner":
            return None
        said = {name: (row or {}).get(own) for own, name in self.values}
        return {**fact, **said, "status": "missing" if row is None else "matched"}

    def step(self, left: Sequence[Row], right: Sequence[Row], watermark: int | None) -> Expected:
        """What a micro-batch must give: its changes come before its facts."""
        said = Expected()
        said.counts["rows"] = len(left) + len(right)
        came: dict[Any, dict[Place, list[Row]]] = {}
        for row in right:
            reason = self._wrong(row)
            if reason == "ignored":
                continue
            if reason:
                self._reject(row, reason, said)
                continue
            key = comparable([row[name] for _, name in self.by])
            came.setdefault(key, {}).setdefault(self._place(row), []).append(row)
        bar = self.newest
        for row in (row for places in came.values() for rows in places.values() for row in rows):
            age = self._age(row)
            self.newest = age if self.newest is None else max(age, self.newest)
        tops = {key: max(self.known[key]) for key in came if key in self.known}
        for key, places in came.items():
            for place, rows in places.items():
                self._take(key, place, rows, tops.get(key), bar, said)
        self._forget()
        for fact in left:
            answer = self.answer(fact)
            said.emitted += [] if answer is None else [answer]
        counts = said.counts
        counts["results"] = len(said.emitted)
        counts["on_time"] = counts["rows"] - counts["rejected"] - counts["too_late"]
        return said

    def finish(self) -> list[Row]:
        """No fact waits."""
        return []

    def bound(self) -> int:
        """A row for each key that something is known of, and the highest place forgotten."""
        return len(self.known) + (self.highest is not None)

    def _take(
        self,
        key: Any,
        place: Place,
        rows: list[Row],
        top: Place | None,
        bar: int | None,
        said: Expected,
    ) -> None:
        """Changes of one place; the highest of their key, and the newest age, from before."""
        was = self.known[key][place] if place == top else []
        best = max([*was, *rows], key=self._rank)
        good = [row for row in rows if self._alike(row, best)]
        for row in rows:
            if not self._alike(row, best):
                self._reject(row, "conflict", said)
        if top is None and self.highest is not None and place[1:] <= self.highest:
            assert bar is not None
            age = max(self._age(row) for row in rows)
            if not place[0] or age < bar - self.horizon or age <= self.oldest:
                for row in good:
                    self._reject(row, "forgotten", said)
                return
        stood = any(self._alike(row, best) for row in was)
        said.counts["too_late"] += len(good) - (not stood)
        said.counts["too_late"] += top is not None and place < top
        changes = self.known.setdefault(key, {})
        changes[place] = sorted([*changes.get(place, []), *rows], key=self._rank)

    def _forget(self) -> None:
        for key, changes in list(self.known.items()):
            top = max(changes)
            last = changes[top][-1]
            gone = last["_change_type"] == "delete"
            if gone and self._age(last) < (self.newest or 0) - self.horizon:
                self.oldest = max(self.oldest, self._age(last))
                place = top[1:]
                self.highest = place if self.highest is None else max(place, self.highest)
                del self.known[key]

    def _reject(self, row: Row, reason: str, said: Expected) -> None:
        said.counts["rejected"] += 1
        if self.rejected == "route":
            told: Row = dict.fromkeys(("lateness", "watermark", "left"))
            right = {name: row[name] for name in self.columns}
            said.late.append({"late": {**told, "side": "right", "reason": reason, "right": right}})

    def _place(self, row: Row) -> Place:
        parts: list[Any] = []
        for name in self.sequence:
            value = row[name]
            parts += value.values() if isinstance(value, dict) else [value]
        return (not row.get("_snapshot"), *parts)

    def _age(self, row: Row) -> int:
        return int(row[self.sequence[0] if self.time is None else self.time])

    def _rank(self, row: Row) -> Any:
        """Of changes at one place the one that is greatest by this counts."""
        if row["_change_type"] == "delete":
            return (False,)
        lacks, names = row.get("_unavailable") or [], sorted(name for name, _ in self.values)
        return (True, [() if name in lacks else (comparable(row[name]),) for name in names])

    def _alike(self, one: Row, other: Row) -> bool:
        deletes = [row["_change_type"] == "delete" for row in (one, other)]
        if any(deletes):
            return all(deletes)
        names = {name for name, _ in self.values}
        lacks = [set(row.get("_unavailable") or []) & names for row in (one, other)]
        rest = names - lacks[0]
        return lacks[0] == lacks[1] and all(same(one[name], other[name]) for name in rest)

    def _wrong(self, row: Row) -> str:
        if row.get("rejected") is not None:
            return str(row["rejected"]["reason"])
        if row["_change_type"] == "update_preimage" or row.get("_tombstone"):
            return "ignored"
        if row["_change_type"] not in WORDS:
            return "unknown_operation"
        if any(row[name] is None for _, name in self.by):
            return "null_key"
        if any(row[name] is None for name in self.sequence):
            return "no_sequence"
        if self.time is None:
            return ""
        if row[self.time] is None:
            return "null_time"
        inside = YEAR_1 <= row[self.time] <= YEAR_9999_ENDS
        return "" if inside else "time_out_of_range"
