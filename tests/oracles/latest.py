"""The latest row of each key, and its changes, in the plainest Python there is.

No change is ever evicted: the table is computed from all accepted changes that are not below the
highest truncate. Of a key that was deleted longer ago than the horizon only the revision is evicted:
an unknown key continues above the highest of these. Of changes in conflict the greatest is effective;
the others only supply values to it.
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
    ignore_nulls: bool = False
    truncates: bool = True

    taken: dict[Any, dict[Place, list[Row]]] = field(default_factory=dict)
    named: dict[Any, Row] = field(default_factory=dict)
    table: dict[Any, Row] = field(default_factory=dict)
    revisions: dict[Any, int] = field(default_factory=dict)
    forgotten: int = -1
    clock: int | None = None
    truncate: Row | None = None
    truncated: dict[Any, Row] = field(default_factory=dict)

    def fresh(self) -> LatestOracle:
        """The same settings; nothing has been seen."""
        fresh: dict[str, Any] = {"taken": {}, "named": {}, "table": {}, "revisions": {}}
        fresh |= {"forgotten": -1, "clock": None, "truncate": None, "truncated": {}}
        return replace(self, **fresh)

    def step(self, rows: Sequence[Row]) -> Told:
        """What a micro-batch must give."""
        told, good = Told(), []
        came: dict[Any, dict[Place, list[Row]]] = {}
        for row in rows:
            reason = self._wrong(row)
            if reason == "ignored":
                told.ignored += 1
            elif reason:
                told.rejected.append(reason)
            else:
                good.append(row)
        for row in good:
            self.clock = max(self._age(row), self._age(row) if self.clock is None else self.clock)
        truncated = self._truncate([r for r in good if r["_change_type"] == "truncate"], told)
        for row in good:
            if row["_change_type"] == "truncate":
                continue
            if self._is_truncated(self._place(row)):
                told.stale += 1
                continue
            places = came.setdefault(key_of(row, self.by), {})
            places.setdefault(self._place(row), []).append(row)
        for key in [*came, *(key for key in truncated if key not in came)]:
            self._meet(key, came.get(key, {}), told)
        self._forget()
        return told

    def _truncate(self, rows: Sequence[Row], told: Told) -> list[Any]:
        """Take in truncates; the keys that may have a row below the highest one."""
        if not rows:
            return []
        known = [] if self.truncate is None else [self._place(self.truncate)]
        places = [self._place(row) for row in rows]
        highest = max([*known, *places])
        told.stale += sum(place < highest for place in places)
        told.duplicates += sum(place == highest for place in places)
        if highest in known:
            return []
        told.duplicates -= 1
        before = {key: self._newest(key) for key in self.taken}
        self.truncate = max(
            (row for row in rows if self._place(row) == highest), key=lambda row: self._age(row)
        )
        for key, newest in before.items():
            if key in self.table:
                self.truncated[key] = self.truncate
            elif newest is not None:
                self.truncated.pop(key, None)
        return list(self.table)

    def _is_truncated(self, place: Place) -> bool:
        return self.truncate is not None and place < self._place(self.truncate)

    def _newest(self, key: Any) -> Place | None:
        """The newest place of a key that is not below the truncate."""
        places = self.taken.get(key, {})
        return max((place for place in places if not self._is_truncated(place)), default=None)

    def _forget(self) -> None:
        """The revisions of keys that are deleted, but for the highest."""
        if self.horizon is None or not self.taken:
            return
        assert self.clock is not None
        for key, known in self.taken.items():
            last = known[max(known)][-1]
            is_deleted, age = last["_change_type"] == "delete", self._age(last)
            if self._newest(key) is None and key in self.truncated:
                is_deleted, age = True, self._age(self.truncated[key])
            if is_deleted and age < self.clock - self.horizon:
                self.forgotten = max(self.forgotten, self.revisions.pop(key, -1))

    def _meet(self, key: Any, places: dict[Place, list[Row]], told: Told) -> None:
        known = self.taken.setdefault(key, {})
        self.revisions.setdefault(key, self.forgotten)
        newest = self._newest(key)
        published: list[Place] = []
        for place in sorted(places):
            rows = places[place]
            was = known.get(place, []) if place == newest else []
            last = None if newest is not None else self.truncated.get(key)
            if last is not None and last is self.truncate and place == self._place(last):
                was = [{**last, "_change_type": "delete"}]
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
        changes = [(known[place][-1], self._row_at(key, place)) for place in told_of]
        if newest is None and self.truncate is not None:
            changes.insert(0, ({**self.truncate, "_change_type": "delete"}, None))
        for number, (_, row) in enumerate(changes):
            left_out = self.publish == "last" and number < len(changes) - 1
            if not left_out and not self._is_replaced([change for change, _ in changes[number:]]):
                self._tell(key, row, told)

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
        known = self.taken[key]
        places = [place for place in sorted(known) if place <= at and not self._is_truncated(place)]
        for change in (each for place in places for each in known[place]):
            if change["_change_type"] == "delete":
                row = None
                continue
            lacks = self._lacks(change)
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
        is_log = row["_change_type"] == "truncate" or not row.get("_snapshot")
        return (is_log, *parts) if self.snapshots == "below_log" else (*parts, is_log)

    def _age(self, row: Row) -> int:
        return int(row["seq"] if self.time is None else row[self.time])

    def _rank(self, row: Row) -> Any:
        """Of changes at one place the one that is greatest by this counts."""
        if row["_change_type"] == "delete":
            return (False,)
        lacks = self._lacks(row)
        said = [() if name in lacks else (comparable(row[name]),) for name in self.values]
        return (True, said)

    def _alike(self, one: Row, other: Row) -> bool:
        deletes = [row["_change_type"] == "delete" for row in (one, other)]
        if any(deletes):
            return all(deletes)
        lacks = [self._lacks(row) for row in (one, other)]
        return lacks[0] == lacks[1] and all(
            same(one[name], other[name]) for name in self.values if name not in lacks[0]
        )

    def _lacks(self, row: Row) -> set[str]:
        """Values that the row before has."""
        unavailable = row.get("_unavailable") or []
        nulls = [name for name in self.values if self.ignore_nulls and row[name] is None]
        return {*unavailable, *nulls} & set(self.values)

    def _wrong(self, row: Row) -> str:
        if row.get("rejected") is not None:
            return str(row["rejected"]["reason"])
        if row["_change_type"] == "update_preimage" or row.get("_tombstone"):
            return "ignored"
        is_truncate = self.truncates and row["_change_type"] == "truncate"
        if row["_change_type"] not in WORDS and not is_truncate:
            return "unknown_operation"
        if not is_truncate and any(row[name] is None for name in self.by):
            return "null_key"
        if row["seq"] is None:
            return "no_sequence"
        if self.time is not None and row[self.time] is None:
            return "null_time"
        return ""
