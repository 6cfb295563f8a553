"""Rows as the tasks of the sinks with versions get them, and an oracle of what they must leave."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from streamops.sinks.versioned import VersionedStore


class Change(NamedTuple):
    """A change of a key; the sequence is a revision, which a delete shares with the row that it removes."""

    key: str
    revision: int
    deletes: bool = False

    @property
    def row(self) -> dict[str, Any]:
        """The row that is written."""
        return {"id": self.key, "revision": self.revision, "text": f"{self.key} at {self.revision}"}


def planned(changes: Iterable[Change]) -> pa.RecordBatch:
    """The rows of a task."""
    given = list(changes)
    return pa.record_batch(
        {
            "key": pa.array([c.key for c in given], pa.string()),
            "sequence": pa.array([c.revision for c in given], pa.int64()),
            "change": pa.array(["delete" if c.deletes else "insert" for c in given], pa.string()),
            "is_text": pa.array([True] * len(given), pa.bool_()),
            "document": pa.array([json.dumps(c.row) for c in given], pa.string()),
        }
    )


def deliver(
    sink: VersionedStore, rows: pa.RecordBatch | Iterable[Change], *, routes: bool = False
) -> dict[str, Any]:
    """Write the rows of a task, and return the sums of its receipts, and the rows that were refused."""
    batch = rows if isinstance(rows, pa.RecordBatch) else planned(rows)
    found = list(sink.write_rows(iter([batch]), by_revision=True, routes=routes))
    table = pa.Table.from_batches(found)
    result: dict[str, Any] = {
        n: sum(table[n].to_pylist()) for n in ("written", "older", "rejected")
    }
    reasons = zip(table["reason"].to_pylist(), table["row"].to_pylist(), strict=True)
    return result | {"reasons": [pair for pair in reasons if pair[0] is not None]}


def expected(changes: Iterable[Change]) -> dict[str, dict[str, Any]]:
    """The latest row of each key that is not deleted: the naive way."""
    latest: dict[str, Change] = {}
    for change in changes:
        known = latest.get(change.key)
        if known is None or (change.revision, change.deletes) > (known.revision, known.deletes):
            latest[change.key] = change
    return {key: change.row for key, change in latest.items() if not change.deletes}


def batches(changes: list[Change], size: int) -> Iterator[list[Change]]:
    """The changes in micro-batches of a size."""
    for start in range(0, len(changes), size):
        yield changes[start : start + size]
