"""The latest row of each key, and its changes, in simple Python.

No change is ever evicted: the table is computed from all accepted changes that are not below the
highest truncate. Of a key that was deleted longer ago than the horizon only the revision is evicted:
an unknown key continues above the highest of these. Of changes in conflict the greatest is effective;
the others only supply values to it.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from streamops.kernel.values import comparable, same
from tests.oracles.windows import Row, key_of

Position = tuple[Any, ...]
CHANGE_TYPES = ("insert", "update_preimage", "update_postimage", "delete")


@dataclass
class StepResult:
    """The expected results of a micro-batch."""

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

    taken: dict[Any, dict[Position, list[Row]]] = field(default_factory=dict)
    named: dict[Any, Row] = field(default_factory=dict)
    table: dict[Any, Row] = field(default_factory=dict)
    revisions: dict[Any, int] = field(default_factory=dict)
    forgotten: int = -1
    clock: int | None = None
    truncate: Row | None = None
    truncated: dict[Any, Row] = field(default_factory=dict)

    def fresh(self) -> LatestOracle:
        """An oracle with the same parameters and no rows."""
        fresh: dict[str, Any] = {"taken": {}, "named": {}, "table": {}, "revisions": {}}
        fresh |= {"forgotten": -1, "clock": None, "truncate": None, "truncated": {}}
        return replace(self, **fresh)

    def change(self, values: tuple[str, ...]) -> None:
        """Other value columns from now on: null in rows from before where one was added."""
        added, removed = {*values} - {*self.values}, {*self.values} - {*values}
        self.values = values

        def changed(row: Row) -> Row:
            found = {n: v for n, v in row.items() if n not in removed} | dict.fromkeys(added)
            if row.get("_unavailable"):
                found["_unavailable"] = [n for n in row["_unavailable"] if n not in removed | added]
            return found | {"_added": ({*row.get("_added", ())} - removed) | added}

        for positions in self.taken.values():
            for position, rows in positions.items():
                positions[position] = [
                    changed(row) | ({"_supplies": at} if at < len(rows) - 1 else {})
                    for at, row in enumerate(rows)
                ]
        names = (*self.by, *values)
        self.table = {
            key: {name: row.get(name) for name in names} for key, row in self.table.items()
        }

    def step(self, rows: Sequence[Row]) -> StepResult:
        """The expected results of a micro-batch."""
        result, good = StepResult(), []
        arrived: dict[Any, dict[Position, list[Row]]] = {}
        for row in rows:
            reason = self._wrong(row)
            if reason == "ignored":
                result.ignored += 1
            elif reason:
                result.rejected.append(reason)
            else:
                good.append(row)
        for row in good:
            self.clock = max(self._age(row), self._age(row) if self.clock is None else self.clock)
        truncated = self._truncate([r for r in good if r["_change_type"] == "truncate"], result)
        for row in good:
            if row["_change_type"] == "truncate":
                continue
            if self._is_truncated(self._position(row)):
                result.stale += 1
                continue
            positions = arrived.setdefault(key_of(row, self.by), {})
            positions.setdefault(self._position(row), []).append(row)
        for key in [*arrived, *(key for key in truncated if key not in arrived)]:
            self._apply(key, arrived.get(key, {}), result)
        self._forget()
        return result

    def _truncate(self, rows: Sequence[Row], result: StepResult) -> list[Any]:
        """Apply truncates; return the keys that may have a row below the highest one."""
        if not rows:
            return []
        known = [] if self.truncate is None else [self._position(self.truncate)]
        positions = [self._position(row) for row in rows]
        highest = max([*known, *positions])
        result.stale += sum(position < highest for position in positions)
        result.duplicates += sum(position == highest for position in positions)
        if highest in known:
            return []
        result.duplicates -= 1
        before = {key: self._newest(key) for key in self.taken}
        self.truncate = max(
            (row for row in rows if self._position(row) == highest), key=lambda row: self._age(row)
        )
        for key, newest in before.items():
            if key in self.table:
                self.truncated[key] = self.truncate
            elif newest is not None:
                self.truncated.pop(key, None)
        return list(self.table)

    def _is_truncated(self, position: Position) -> bool:
        return self.truncate is not None and position < self._position(self.truncate)

    def _newest(self, key: Any) -> Position | None:
        """The newest position of a key that is not below the truncate."""
        positions = self.taken.get(key, {})
        return max(
            (position for position in positions if not self._is_truncated(position)), default=None
        )

    def _forget(self) -> None:
        """Evict the revisions of deleted keys, except the highest."""
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

    def _apply(self, key: Any, positions: dict[Position, list[Row]], result: StepResult) -> None:
        known = self.taken.setdefault(key, {})
        self.revisions.setdefault(key, self.forgotten)
        newest = self._newest(key)
        published: list[Position] = []
        for position in sorted(positions):
            rows = positions[position]
            was = known.get(position, []) if position == newest else []
            was = [row for row in was if "_supplies" not in row]
            last = None if newest is not None else self.truncated.get(key)
            if last is not None and last is self.truncate and position == self._position(last):
                was = [{**last, "_change_type": "delete"}]
            best = max([*was, *rows], key=self._rank)
            good = [row for row in rows if self._alike(row, best)]
            result.rejected += ["conflict"] * (len(rows) - len(good))
            stood = any(self._alike(row, best) for row in was)
            result.duplicates += len(good) - (not stood)
            if newest is not None and position < newest:
                result.stale += 1
            elif not stood:
                published.append(position)
            known[position] = sorted([*known.get(position, []), *rows], key=self._rank)
            self.named[key] = {name: rows[0][name] for name in self.by}
        if not known:
            del self.taken[key]
            return
        emitted_positions = published
        if newest is not None and newest not in published:
            emitted_positions = [newest, *published]
        changes = [
            (known[position][-1], self._row_at(key, position)) for position in emitted_positions
        ]
        if newest is None and self.truncate is not None:
            # A row of the truncate's own position follows it, and replaces the row before at once.
            first = (
                changes[0][0] if changes and published[0] == self._position(self.truncate) else {}
            )
            if first.get("_change_type") in (None, "delete"):
                changes.insert(0, ({**self.truncate, "_change_type": "delete"}, None))
        for number, (_, row) in enumerate(changes):
            left_out = self.publish == "last" and number < len(changes) - 1
            if not left_out and not self._is_replaced([change for change, _ in changes[number:]]):
                self._emit(key, row, result)

    def _emit(self, key: Any, row: Row | None, result: StepResult) -> None:
        was, revision = self.table.get(key), self.revisions[key]
        if was is not None and row is not None and same(was, row):
            return
        if was is not None:
            change_type = "delete" if row is None else "update_preimage"
            result.emitted.append({**was, "revision": revision, "_change_type": change_type})
            del self.table[key]
        if row is not None:
            change_type = "insert" if was is None else "update_postimage"
            self.revisions[key] = revision + 1
            result.emitted.append({**row, "revision": revision + 1, "_change_type": change_type})
            self.table[key] = row

    def _row_at(self, key: Any, at: Position) -> Row | None:
        """The row after all changes up to a position."""
        row: Row | None = None
        known = self.taken[key]
        positions = [
            position
            for position in sorted(known)
            if position <= at and not self._is_truncated(position)
        ]
        for change in itertools.chain.from_iterable(known[position] for position in positions):
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
        """Whether the first is a delete, and the next belongs to the same Delta version."""
        if len(changes) < 2 or changes[0]["_change_type"] != "delete":
            return False
        seqs = [row["seq"] for row in changes[:2]]
        return (
            isinstance(seqs[0], dict)
            and "version" in seqs[0]
            and seqs[0]["version"] == seqs[1]["version"]
        )

    def _position(self, row: Row) -> Position:
        seq = row["seq"]
        parts = tuple(seq.values()) if isinstance(seq, dict) else (seq,)
        is_log = row["_change_type"] == "truncate" or not row.get("_snapshot")
        return (is_log, *parts) if self.snapshots == "below_log" else (*parts, is_log)

    def _age(self, row: Row) -> int:
        return int(row["seq"] if self.time is None else row[self.time])

    def _rank(self, row: Row) -> Any:
        """Of changes in conflict, the greatest by this rank is effective."""
        if (
            "_supplies" in row
        ):  # of other columns: it was not the greatest, and supplies values only
            return (-1, row["_supplies"])
        if row["_change_type"] == "delete":
            return (False,)
        lacks = self._lacks(row)
        values = [() if name in lacks else (comparable(row[name]),) for name in self.values]
        return (True, values)

    def _alike(self, one: Row, other: Row) -> bool:
        deletes = [row["_change_type"] == "delete" for row in (one, other)]
        if any(deletes):
            return all(deletes)
        lacks = [self._lacks(row) for row in (one, other)]
        return lacks[0] == lacks[1] and all(
            same(one[name], other[name]) for name in self.values if name not in lacks[0]
        )

    def _lacks(self, row: Row) -> set[str]:
        """Missing values, which the previous row supplies."""
        unavailable = row.get("_unavailable") or []
        nulls = [name for name in self.values if self.ignore_nulls and row[name] is None]
        nulls = [name for name in nulls if name not in row.get("_added", ())]
        return {*unavailable, *nulls} & set(self.values)

    def _wrong(self, row: Row) -> str:
        if row.get("rejected") is not None:
            return str(row["rejected"]["reason"])
        if row["_change_type"] == "update_preimage" or row.get("_tombstone"):
            return "ignored"
        is_truncate = self.truncates and row["_change_type"] == "truncate"
        if row["_change_type"] not in CHANGE_TYPES and not is_truncate:
            return "unknown_operation"
        if not is_truncate and any(row[name] is None for name in self.by):
            return "null_key"
        if row["seq"] is None:
            return "no_sequence"
        if self.time is not None and row[self.time] is None:
            return "null_time"
        return ""
