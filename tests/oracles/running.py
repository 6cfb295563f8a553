"""Running values of keys, row by row, in simple Python.

Nothing is evicted: every row of each key is stored, and the last emitted value.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.oracles.windows import Expected, Row, key_of, same


@dataclass
class RunningOracle:
    """The value of each key, whenever it changes."""

    by: tuple[str, ...]
    answers: Mapping[str, Callable[[list[Row]], Any]]
    changes: str = "update"

    seen: dict[Any, list[Row]] = field(default_factory=dict)
    published: dict[Any, Row] = field(default_factory=dict)

    def fresh(self) -> RunningOracle:
        """An oracle with the same parameters and no rows."""
        return replace(self, seen={}, published={})

    def step(self, rows: Sequence[Row], watermark: int | None) -> Expected:
        """The expected results of a micro-batch."""
        expected = Expected()
        expected.counts["rows"] = len(rows)
        for row in rows:
            self.seen.setdefault(key_of(row, self.by), []).append(row)
        for key in dict.fromkeys(key_of(row, self.by) for row in rows):
            self._emit(key, expected)
        return expected

    def _emit(self, key: Any, expected: Expected) -> None:
        rows = self.seen[key]
        values = {name: answer(rows) for name, answer in self.answers.items()}
        named = {name: rows[0][name] for name in self.by}
        before = self.published.get(key)
        if before is None:
            now, change = {**named, **values, "revision": 0}, "insert"
            expected.counts["results"] += 1
        elif same(values, {name: before[name] for name in values}):
            return
        else:
            now = {**named, **values, "revision": before["revision"] + 1}
            change = "update_postimage"
            expected.counts["corrections"] += 1
            if self.changes == "retract":
                expected.emitted.append({**before, "_change_type": "update_preimage"})
        marked = {"_change_type": change} if self.changes == "retract" else {}
        expected.emitted.append({**now, **marked})
        self.published[key] = now

    def finish(self) -> list[Row]:
        """Nothing is pending."""
        return []

    def bound(self) -> int:
        """One entry for each key."""
        return len(self.seen)
