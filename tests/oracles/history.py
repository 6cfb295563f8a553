"""The history of the rows of each key, in the plainest Python there is.

No change is ever forgotten: the intervals are computed from all changes that were taken in.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from streamops.testing.values import same
from tests.oracles.latest import LatestOracle, Place, Told
from tests.oracles.windows import Row


@dataclass
class HistoryOracle(LatestOracle):
    """Changes of rows, and the intervals they make."""

    track: tuple[str, ...] = ()
    truncates: bool = False

    taken: dict[Any, dict[Place, Row]] = field(default_factory=dict)  # type: ignore[assignment]
    published: dict[Any, dict[Place, Row]] = field(default_factory=dict)
    told_of: dict[Any, int] = field(default_factory=dict)

    def fresh(self) -> HistoryOracle:
        """The same settings; nothing has been seen."""
        return replace(self, taken={}, named={}, published={}, told_of={})

    def _place(self, row: Row) -> Place:
        seq = row["seq"]
        parts = tuple(seq.values()) if isinstance(seq, dict) else (seq,)
        return (parts, not row.get("_snapshot"))

    def _meet(self, key: Any, places: dict[Place, list[Row]], told: Told) -> None:
        known = self.taken.setdefault(key, {})
        fresh = set()
        for place, rows in places.items():
            best = max(([known[place]] if place in known else []) + rows, key=self._rank)
            good = [row for row in rows if self._alike(row, best)]
            told.rejected += ["conflict"] * (len(rows) - len(good))
            told.duplicates += len(good)
            if place not in known or not self._alike(known[place], best):
                told.duplicates -= 1
                known[place] = best
                fresh.add(place)
        self.named[key] = {name: next(iter(places.values()))[0][name] for name in self.by}
        told.stale += len(set(self._lost(known)) & fresh)
        before = self.published.get(key, {})
        after = {plain(row["valid_from"]): row for row in self.intervals(key)}
        for start, row in before.items():
            revision = self.told_of[key, start]
            if start not in after:
                told.emitted.append({**row, "revision": revision, "_change_type": "delete"})
            elif not same(row, after[start]):
                told.emitted.append(
                    {**row, "revision": revision, "_change_type": "update_preimage"}
                )
        for start, row in after.items():
            if start in before and same(row, before[start]):
                continue
            self.told_of[key, start] = self.told_of.get((key, start), -1) + 1
            word = "update_postimage" if start in before else "insert"
            revision = self.told_of[key, start]
            told.emitted.append({**row, "revision": revision, "_change_type": word})
        self.published[key] = after

    def _forget(self) -> None:
        """The revision of an interval is its own."""

    def _lost(self, known: dict[Place, Row]) -> list[Place]:
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
        places = [place for place in sorted(known) if place not in lost]
        for number, place in enumerate(places):
            change, before = known[place], row
            if self._is_replaced([known[each] for each in places[number:]]):
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


def plain(seq: Any) -> Place:
    """A place, to be compared."""
    return tuple(seq.values()) if isinstance(seq, dict) else (seq,)
