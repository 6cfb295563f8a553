"""Running values of keys, row by row, in the plainest Python there is.

Nothing is ever forgotten: of each key, every row that was seen, and the last thing said of it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.oracles.windows import Expected, Row, key_of, same


@dataclass
class RunningOracle:
    """What is said of each key, whenever it is something else."""

    by: tuple[str, ...]
    answers: Mapping[str, Callable[[list[Row]], Any]]
    changes: str = "update"

    seen: dict[Any, list[Row]] = field(default_factory=dict)
    said: dict[Any, Row] = field(default_factory=dict)

    def fresh(self) -> RunningOracle:
        """The same settings; nothing has been seen."""
        return replace(self, seen={}, said={})

    def step(self, rows: Sequence[Row], watermark: int | None) -> Expected:
        """What a micro-batch must give."""
        expected = Expected()
        expected.counts["rows"] = len(rows)
        for row in rows:
            self.seen.setdefault(key_of(row, self.by), []).append(row)
        for key in dict.fromkeys(key_of(row, self.by) for row in rows):
            self._tell(key, expected)
        return expected

    def _tell(self, key: Any, expected: Expected) -> None:
        rows = self.seen[key]
        values = {name: answer(rows) for name, answer in self.answers.items()}
        named = {name: rows[0][name] for name in self.by}
        before = self.said.get(key)
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
        said = {"_change_type": change} if self.changes == "retract" else {}
        expected.emitted.append({**now, **said})
        self.said[key] = now

    def finish(self) -> list[Row]:
        """Nothing: all is said."""
        return []

    def bound(self) -> int:
        """One entry for each key."""
        return len(self.seen)
