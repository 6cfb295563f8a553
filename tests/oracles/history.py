"""The history of the rows of each key, in simple Python.

No change is evicted: the intervals are computed from all accepted changes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from streamops.kernel.values import same
from tests.oracles.latest import LatestOracle, Position, StepResult
from tests.oracles.windows import Row


@dataclass
class HistoryOracle(LatestOracle):
    """Changes of rows, and the resulting intervals."""

    track: tuple[str, ...] = ()
    truncates: bool = False

    taken: dict[Any, dict[Position, Row]] = field(default_factory=dict)  # type: ignore[assignment]
    published: dict[Any, dict[Position, Row]] = field(default_factory=dict)
    emitted_revisions: dict[Any, int] = field(default_factory=dict)

    def fresh(self) -> HistoryOracle:
        """An oracle with the same parameters and no rows."""
        return replace(self, taken={}, named={}, published={}, emitted_revisions={})

    def _position(self, row: Row) -> Position:
        seq = row["seq"]
        parts = tuple(seq.values()) if isinstance(seq, dict) else (seq,)
        return (parts, not row.get("_snapshot"))

    def _apply(self, key: Any, positions: dict[Position, list[Row]], result: StepResult) -> None:
        known = self.taken.setdefault(key, {})
        fresh = set()
        for position, rows in positions.items():
            best = max(([known[position]] if position in known else []) + rows, key=self._rank)
            good = [row for row in rows if self._alike(row, best)]
            result.rejected += ["conflict"] * (len(rows) - len(good))
            result.duplicates += len(good)
            if position not in known or not self._alike(known[position], best):
                result.duplicates -= 1
                known[position] = best
                fresh.add(position)
        self.named[key] = {name: next(iter(positions.values()))[0][name] for name in self.by}
        result.stale += len(set(self._lost(known)) & fresh)
        before = self.published.get(key, {})
        after = {plain(row["valid_from"]): row for row in self.intervals(key)}
        for start, row in before.items():
            revision = self.emitted_revisions[key, start]
            if start not in after:
                result.emitted.append({**row, "revision": revision, "_change_type": "delete"})
            elif not same(row, after[start]):
                result.emitted.append(
                    {**row, "revision": revision, "_change_type": "update_preimage"}
                )
        for start, row in after.items():
            if start in before and same(row, before[start]):
                continue
            self.emitted_revisions[key, start] = self.emitted_revisions.get((key, start), -1) + 1
            change_type = "update_postimage" if start in before else "insert"
            revision = self.emitted_revisions[key, start]
            result.emitted.append({**row, "revision": revision, "_change_type": change_type})
        self.published[key] = after

    def _forget(self) -> None:
        """Every interval has its own revision."""

    def _lost(self, known: dict[Position, Row]) -> list[Position]:
        """Rows of snapshots that lose against the log."""
        logs = [seq for seq, is_log in known if is_log]
        if self.snapshots == "by_sequence":
            return [(seq, is_log) for seq, is_log in known if not is_log and seq in logs]
        return [p for p in known if not p[1] and any(seq <= p[0] for seq in logs)]

    def intervals(self, key: Any) -> list[Row]:
        """The intervals of a key."""
        known = self.taken[key]
        lost = self._lost(known)
        found: list[Row] = []
        row: Row | None = None
        carried: Row | None = None
        positions = [position for position in sorted(known) if position not in lost]
        for number, position in enumerate(positions):
            change, before = known[position], row
            if self._is_replaced([known[later] for later in positions[number:]]):
                carried = None
                continue
            row = carried = self._after(key, carried, change)
            both = before is not None and row is not None
            if both and all(same(row[name], before[name]) for name in self.track):
                found[-1].update(row)
                continue
            if before is not None:
                found[-1]["valid_to"] = change["seq"]
            if row is not None:
                found.append({**row, "valid_from": change["seq"], "valid_to": None})
        return found

    def _after(self, key: Any, before: Row | None, change: Row) -> Row | None:
        if change["_change_type"] == "delete":
            return None
        lacks = self._lacks(change)
        row = dict(self.named[key])
        for name in self.values:
            row[name] = (before or {}).get(name) if name in lacks else change[name]
        return row

    def rows(self) -> Sequence[Row]:
        """The whole table."""
        return [row for key in self.taken for row in self.intervals(key)]


def plain(seq: Any) -> Position:
    """A position, for comparisons."""
    return tuple(seq.values()) if isinstance(seq, dict) else (seq,)
