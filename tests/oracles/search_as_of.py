"""Stored queries as of the event time of documents, in simple Python: every version is stored for ever.

``stored`` has the versions that a core still stores: only these can be in conflict with a new version, and
a query without one may have been forgotten.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from streamops.kernel.values import comparable
from tests.oracles.search import EPOCH, MICROSECOND, Query, matches
from tests.oracles.windows import YEAR_1, YEAR_9999_ENDS, Expected, Row

Position = tuple[int, int]
"""Time and sequence of a version."""

Versions = dict[Any, dict[Position, Row]]
"""Versions of each query, by position."""

_READ = ("insert", "update_postimage")


@dataclass
class AsOfOracle:
    """Stored queries in one shard. Documents have their time in ``seen``, changes in ``since``."""

    text: tuple[str, ...]
    queries: dict[str, Query]
    invalid: dict[str | None, tuple[int, str]]
    documents: tuple[str, ...]
    columns: tuple[str, ...]
    horizon: int
    rejected: str
    operator: str = "or"
    instants: tuple[str, ...] = ()

    watermark: int | None = None
    waiting: list[Row] = field(default_factory=list)
    ever: Versions = field(default_factory=dict)
    stored: Versions = field(default_factory=dict)
    evicted: int | None = None
    accepted: list[Row] = field(default_factory=list)
    """The versions that the last step accepted, those in conflict among them."""

    def fresh(self) -> AsOfOracle:
        """An oracle with the same parameters and no rows."""
        return replace(self, watermark=None, waiting=[], ever={}, stored={}, evicted=None)

    def step(self, left: Sequence[Row], right: Sequence[Row], watermark: int | None) -> Expected:
        """One micro-batch: late rows by the previous watermark, matches by this one."""
        expected = Expected()
        expected.counts["rows"] = len(left) + len(right)
        self.waiting += [row for row in left if self.accepts(row, expected)]
        self.take_in(right, expected)
        if watermark is not None:
            self.watermark = max(watermark, self.watermark or watermark)
        due = [row for row in self.waiting if self._passed(row["seen"])]
        self.waiting = [row for row in self.waiting if not self._passed(row["seen"])]
        for row in due:
            expected.emitted += self.answer(row)
        self._evict()
        expected.counts["results"] = len(expected.emitted)
        return expected

    def finish(self) -> list[Row]:
        """The matches of all documents that wait."""
        return [found for row in self.waiting for found in self.answer(row)]

    def bound(self) -> int:
        """Documents that wait, versions that one of them may need, the newest forgotten delete."""
        return len(self.waiting) + sum(map(len, self.stored.values())) + (self.evicted is not None)

    def answer(self, document: Row) -> list[Row]:
        """The definition: the queries whose version at the time of the document matches."""
        content = document | {
            n: EPOCH + document[n] * MICROSECOND for n in self.instants if document[n] is not None
        }
        found = []
        for versions in self.ever.values():
            past = [position for position in versions if position[0] <= document["seen"]]
            newest = versions[max(past)] if past else None
            if newest is None or newest["_change_type"] == "delete":
                continue
            if matches(self.queries[newest["query"]], content, self.text, self.operator):
                found.append({**document, "query_id": newest["id"]} | self._route(None))
        return found

    def accepts(self, row: Row, expected: Expected) -> bool:
        """Whether a document is matched; if not, count it, and emit it if it is routed."""
        time = row["seen"]
        if time is None or not YEAR_1 <= time <= YEAR_9999_ENDS:
            reason = "null_time" if time is None else "time_out_of_range"
            self._reject(reason, expected, left=row)
        elif self._passed(time):
            self._late(time, expected, left=row)
        else:
            expected.counts["on_time"] += 1
            return True
        return False

    def take_in(self, rows: Sequence[Row], expected: Expected) -> None:
        """Store the changes that are accepted."""
        arrived: dict[Any, dict[Position, list[Row]]] = {}
        for row in rows:
            key, types = comparable(row["id"]), ("insert", "update_postimage", "delete")
            reason = self._wrong(row)
            if reason == "" and row["_change_type"] in types and not self._lacks(row):
                if not self._is_forgotten(key, row):
                    position = row["since"], row["lsn"]
                    arrived.setdefault(key, {}).setdefault(position, []).append(row)
                    continue
                reason = "forgotten"
            if reason:
                self._reject(reason, expected, right=row)
            else:
                expected.counts["on_time"] += 1
        self.accepted = []
        for key, positions in arrived.items():
            of_key = self.stored.setdefault(key, {})
            for position, changes in positions.items():
                was = [of_key[position]] if position in of_key else []
                best = max([*was, *changes], key=self._content)
                for row in changes:
                    if self._content(row) != self._content(best):
                        self._reject("conflict", expected, right=row)
                    elif self._passed(position[0]):
                        self._late(position[0], expected, right=row)
                    else:
                        expected.counts["on_time"] += 1
                self.accepted += changes
                of_key[position] = best
                self.ever.setdefault(key, {})[position] = best

    def _lacks(self, row: Row) -> bool:
        """Whether the query was not sent, because it did not change."""
        return row["_change_type"] != "delete" and "query" in (row.get("_unavailable") or [])

    def _wrong(self, row: Row) -> str:
        is_read = row["_change_type"] in _READ and not self._lacks(row)
        if is_read and row["query"] in self.invalid:
            return "invalid_query"
        if row["_change_type"] == "update_preimage":
            return ""
        if row["_change_type"] not in (*_READ, "delete"):
            return "unknown_operation"
        if row["id"] is None:
            return "null_key"
        if row["lsn"] is None:
            return "no_sequence"
        if row["since"] is None:
            return "null_time"
        return "" if YEAR_1 <= row["since"] <= YEAR_9999_ENDS else "time_out_of_range"

    def _is_forgotten(self, key: Any, row: Row) -> bool:
        return key not in self.stored and self.evicted is not None and row["since"] <= self.evicted

    def _content(self, row: Row) -> tuple[bool, str]:
        """What a version means, in the order in which one takes precedence."""
        is_delete = row["_change_type"] == "delete"
        return not is_delete, "" if is_delete else row["query"]

    def _evict(self) -> None:
        for key, versions in list(self.stored.items()):
            past = sorted(position for position in versions if self._passed(position[0]))
            for position in past[:-1]:
                del versions[position]
            ((time, _), last), is_alone = next(iter(versions.items())), len(versions) == 1
            is_deleted = last["_change_type"] == "delete"
            if is_alone and is_deleted and self._passed(time + self.horizon):
                del self.stored[key]
                self.evicted = max(time, self.evicted or time)

    def _passed(self, instant: int) -> bool:
        return self.watermark is not None and instant <= self.watermark

    def _late(self, time: int, expected: Expected, **of: Row) -> None:
        expected.counts["too_late"] += 1
        assert self.watermark is not None
        self._emit(
            "too_late", expected, lateness=self.watermark - time, watermark=self.watermark, **of
        )

    def _reject(self, reason: str, expected: Expected, **of: Row) -> None:
        expected.counts["rejected"] += 1
        details: Row = {}
        if reason == "invalid_query":
            position, message = self.invalid[of["right"]["query"]]
            details = {"position": position, "message": message}
        self._emit(reason, expected, **details, **of)

    def _emit(
        self,
        reason: str,
        expected: Expected,
        left: Row | None = None,
        right: Row | None = None,
        **details: Any,
    ) -> None:
        if right is not None:
            right = {name: right[name] for name in self.columns if name[0] != "_"}
        names = ("lateness", "watermark", "window", "position", "message")
        late: Row = {**dict.fromkeys(names), "reason": reason, **details}
        late |= {"side": "right" if left is None else "left", "row": {"left": left, "right": right}}
        if self.rejected == "route":
            nothing: Row = dict.fromkeys(self.documents)
            expected.late.append({**nothing, "query_id": None, "late": late})

    def _route(self, tag: Row | None) -> Row:
        return {"late": tag} if self.rejected == "route" else {}
