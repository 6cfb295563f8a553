"""The newest row of each key, and its changes, in the plainest Python there is.

No change is ever forgotten: what a table looks like is computed from all changes that were taken in.
Of a key that was deleted longer ago than the horizon the revision is, but for the highest of all such
keys, above which a key that is not known begins. Of changes that contradict one another the greatest
counts; the others only have values for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from streamops.testing.values import comparable, same
from tests.oracles.windows import Row, key_of

Place = tuple[Any, ...]
WORDS = ("insert", "update_preimage", "update_postimage", "delete")


@dataclass
class Told:
    """What comes of a micro-batch."""

    emitted: list[Row] = field(default_factory=list)
    rejected: list[str] = field(default_factory=list)
    stale: int = 0
    duplicates: int = 0
    ignored: int = 0


@dataclass
class LatestOracle:
    """Changes of rows, with the columns ``seq`` and ``_change_type``, and values by name."""

    by: tuple[str, ...]
    values: tuple[str, ...]
    publish: str = "every change"
    snapshots: str = "below_log"
    time: str | None = None
    horizon: int | None = None

    taken: dict[Any, dict[Place, list[Row]]] = field(default_factory=dict)
    named: dict[Any, Row] = field(default_factory=dict)
    table: dict[Any, Row] = field(default_factory=dict)
    revisions: dict[Any, int] = field(default_factory=dict)
    forgotten: int = -1

    def fresh(self) -> LatestOracle:
        """The same settings; nothing has been seen."""
        return replace(self, taken={}, named={}, table={}, revisions={}, forgotten=-1)

    def step(self, rows: Sequence[Row]) -> Told:
        """What a micro-batch must give."""
        told, came = Told(), {}
        for row in rows:
            reason = self._wrong(row)
            if reason == "ignored":
                told.ignored += 1
            elif reason:
                told.rejected.append(reason)
            else:
                places = came.setdefault(key_of(row, self.by), {})
                places.setdefault(self._place(row), []).append(row)
        for key, places in came.items():
            self._meet(key, places, told)
        self._forget()
        return told

    def _forget(self) -> None:
        """The revisions of keys that are deleted, but for the highest."""
        if self.horizon is None or not self.taken:
            return
        came = (row for known in self.taken.values() for rows in known.values() for row in rows)
        edge = max(self._age(row) for row in came) - self.horizon
        for key, known in self.taken.items():
            last = known[max(known)][-1]
            if last["_change_type"] == "delete" and self._age(last) < edge:
                self.forgotten = max(self.forgotten, self.revisions.pop(key, -1))

    def _meet(self, key: Any, places: dict[Place, list[Row]], told: Told) -> None:
        known = self.taken.setdefault(key, {})
        self.revisions.setdefault(key, self.forgotten)
        newest = max(known, default=None)
        published: list[Place] = []
        for place in sorted(places):
            rows = places[place]
            was = known.get(place, []) if place == newest else []
            best = max([*was, *rows], key=self._rank)
            good = [row for row in rows if self._alike(row, best)]
            told.rejected += ["conflict"] * (len(rows) - len(good))
            stood = any(self._alike(row, best) for row in was)
            told.duplicates += len(good) - (not stood)
            if newest is not None and place < newest:
                told.stale += 1
            elif not stood:
                published.append(place)
            known[place] = sorted([*known.get(place, []), *rows], key=self._rank)
            self.named[key] = {name: rows[0][name] for name in self.by}
        if not known:
            del self.taken[key]
            return
        told_of = published
        if newest is not None and newest not in published:
            told_of = [newest, *published]
        changes = [known[place][-1] for place in told_of]
        for number, place in enumerate(told_of):
            left_out = self.publish == "last" and number < len(told_of) - 1
            if not left_out and not self._is_replaced(changes[number:]):
                self._tell(key, self._row_at(key, place), told)

    def _tell(self, key: Any, row: Row | None, told: Told) -> None:
        was, revision = self.table.get(key), self.revisions[key]
        if was is not None and row is not None and same(was, row):
            return
        if was is not None:
            word = "delete" if row is None else "update_preimage"
            told.emitted.append({**was, "revision": revision, "_change_type": word})
            del self.table[key]
        if row is not None:
            word = "insert" if was is None else "update_postimage"
            self.revisions[key] = revision + 1
            told.emitted.append({**row, "revision": revision + 1, "_change_type": word})
            self.table[key] = row

    def _row_at(self, key: Any, at: Place) -> Row | None:
        """The row after all changes up to a place."""
        row: Row | None = None
        changes = self.taken[key]
        for change in (each for place in sorted(changes) if place <= at for each in changes[place]):
            if change["_change_type"] == "delete":
                row = None
                continue
            lacks = change.get("_unavailable") or []
            before = row or {}
            row = dict(self.named[key])
            for name in self.values:
                row[name] = before.get(name) if name in lacks else change[name]
        return row

    def _is_replaced(self, changes: Sequence[Row]) -> bool:
        """Whether the first is a delete, and the next is of the same version of a log of Delta's."""
        if len(changes) < 2 or changes[0]["_change_type"] != "delete":
            return False
        seqs = [row["seq"] for row in changes[:2]]
        return (
            isinstance(seqs[0], dict)
            and "version" in seqs[0]
            and seqs[0]["version"] == seqs[1]["version"]
        )

    def _place(self, row: Row) -> Place:
        seq = row["seq"]
        parts = tuple(seq.values()) if isinstance(seq, dict) else (seq,)
        is_log = not row.get("_snapshot")
        return (is_log, *parts) if self.snapshots == "below_log" else (*parts, is_log)

    def _age(self, row: Row) -> int:
        return int(row["seq"] if self.time is None else row[self.time])

    def _rank(self, row: Row) -> Any:
        """Of changes at one place the one that is greatest by this counts."""
        if row["_change_type"] == "delete":
            return (False,)
        lacks = row.get("_unavailable") or []
        said = [() if name in lacks else (comparable(row[name]),) for name in self.values]
        return (True, said)

    def _alike(self, one: Row, other: Row) -> bool:
        deletes = [row["_change_type"] == "delete" for row in (one, other)]
        if any(deletes):
            return all(deletes)
        lacks = [set(row.get("_unavailable") or []) & set(self.values) for row in (one, other)]
        return lacks[0] == lacks[1] and all(
            same(one[name], other[name]) for name in self.values if name not in lacks[0]
        )

    def _wrong(self, row: Row) -> str:
        if row.get("rejected") is not None:
            return str(row["rejected"]["reason"])
        if row["_change_type"] == "update_preimage" or row.get("_tombstone"):
            return "ignored"
        if row["_change_type"] not in WORDS:
            return "unknown_operation"
        if any(row[name] is None for name in self.by):
            return "null_key"
        if row["seq"] is None:
            return "no_sequence"
        if self.time is not None and row[self.time] is None:
            return "null_time"
        return ""
