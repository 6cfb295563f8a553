"""Facts with the current row of a table, in simple Python.

All changes of each key are stored, and the row is computed from all of them, except for keys that were
deleted longer ago than the horizon, which are evicted. A change beyond the horizon may belong to one
of these.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from streamops.kernel.values import comparable, same
from tests.oracles.side_output import late_row
from tests.oracles.windows import YEAR_1, YEAR_9999_ENDS, Expected, Row

Position = tuple[Any, ...]
Changes = dict[Position, list[Row]]
CHANGE_TYPES = ("insert", "update_preimage", "update_postimage", "delete")


@dataclass
class EnrichOracle:
    """An enrichment in one shard.

    ``by`` has the keys of facts and of the table, ``values`` the columns of the table and their names
    in the result, ``columns`` the columns of the table as received.
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
    highest: Position | None = None
    oldest: int = -(10**18)

    def fresh(self) -> EnrichOracle:
        """An oracle with the same parameters and no rows."""
        return replace(self, known={}, newest=None, highest=None, oldest=-(10**18))

    def row_of(self, key: Any) -> Row | None:
        """The current row of a key: the definition."""
        row: Row | None = None
        known = self.known.get(key, {})
        for change in itertools.chain.from_iterable(known[position] for position in sorted(known)):
            if change["_change_type"] == "delete":
                row = None
            else:
                lacks, before = change.get("_unavailable") or [], row or {}
                names = [name for name, _ in self.values]
                row = {n: before.get(n) if n in lacks else change[n] for n in names}
        return row

    def answer(self, fact: Row) -> Row | None:
        """The output row of a fact now; None: no row."""
        key = [fact[name] for name, _ in self.by]
        row = None if any(part is None for part in key) else self.row_of(comparable(key))
        if row is None and self.how == "inner":
            return None
        values = {name: (row or {}).get(own) for own, name in self.values}
        return {**fact, **values, "status": "missing" if row is None else "matched"}

    def step(self, left: Sequence[Row], right: Sequence[Row], watermark: int | None) -> Expected:
        """The expected results of a micro-batch, whose changes precede its facts."""
        expected = Expected()
        expected.counts["rows"] = len(left) + len(right)
        arrived: dict[Any, dict[Position, list[Row]]] = {}
        for row in right:
            reason = self._wrong(row)
            if reason == "ignored":
                continue
            if reason:
                self._reject(row, reason, expected)
                continue
            key = comparable([row[name] for _, name in self.by])
            arrived.setdefault(key, {}).setdefault(self._position(row), []).append(row)
        bar = self.newest
        for row in (
            row for positions in arrived.values() for rows in positions.values() for row in rows
        ):
            age = self._age(row)
            self.newest = age if self.newest is None else max(age, self.newest)
        tops = {key: max(self.known[key]) for key in arrived if key in self.known}
        for key, positions in arrived.items():
            for position, rows in positions.items():
                self._take(key, position, rows, tops.get(key), bar, expected)
        self._forget()
        for fact in left:
            answer = self.answer(fact)
            expected.emitted += [] if answer is None else [answer]
        counts = expected.counts
        counts["results"] = len(expected.emitted)
        counts["on_time"] = counts["rows"] - counts["rejected"] - counts["too_late"]
        return expected

    def finish(self) -> list[Row]:
        """Nothing is pending."""
        return []

    def bound(self) -> int:
        """One row of state per known key, and the highest evicted position."""
        return len(self.known) + (self.highest is not None)

    def _take(
        self,
        key: Any,
        position: Position,
        rows: list[Row],
        top: Position | None,
        bar: int | None,
        expected: Expected,
    ) -> None:
        """Apply changes of one position. ``top``, ``bar``: the highest position of the key and the
        newest age before the micro-batch.
        """
        was = self.known[key][position] if position == top else []
        best = max([*was, *rows], key=self._rank)
        good = [row for row in rows if self._alike(row, best)]
        for row in rows:
            if not self._alike(row, best):
                self._reject(row, "conflict", expected)
        if top is None and self.highest is not None and position[1:] <= self.highest:
            assert bar is not None
            age = max(self._age(row) for row in rows)
            if not position[0] or age < bar - self.horizon or age <= self.oldest:
                for row in good:
                    self._reject(row, "forgotten", expected)
                return
        stood = any(self._alike(row, best) for row in was)
        expected.counts["too_late"] += len(good) - (not stood)
        expected.counts["too_late"] += top is not None and position < top
        changes = self.known.setdefault(key, {})
        changes[position] = sorted([*changes.get(position, []), *rows], key=self._rank)

    def _forget(self) -> None:
        for key, changes in list(self.known.items()):
            top = max(changes)
            last = changes[top][-1]
            is_deleted = last["_change_type"] == "delete"
            if is_deleted and self._age(last) < (self.newest or 0) - self.horizon:
                self.oldest = max(self.oldest, self._age(last))
                position = top[1:]
                self.highest = position if self.highest is None else max(position, self.highest)
                del self.known[key]

    def _reject(self, row: Row, reason: str, expected: Expected) -> None:
        expected.counts["rejected"] += 1
        if self.rejected == "route":
            right = {name: row[name] for name in self.columns}
            expected.late.append({"late": late_row(reason, right, side="right")})

    def _position(self, row: Row) -> Position:
        parts: list[Any] = []
        for name in self.sequence:
            value = row[name]
            parts += value.values() if isinstance(value, dict) else [value]
        return (not row.get("_snapshot"), *parts)

    def _age(self, row: Row) -> int:
        return int(row[self.sequence[0] if self.time is None else self.time])

    def _rank(self, row: Row) -> Any:
        """Of changes in conflict, the greatest by this rank is effective."""
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
        if row["_change_type"] not in CHANGE_TYPES:
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
